"""LayerNorm of the rows of a matrix: y[r, c] = weight[c] * (x[r, c] - mean_r) / sqrt(variance_r + eps) + bias[c].

Source: Ba, Kiros and Hinton (arXiv 1607.06450). Three forms: three passes (mean, variance, result), two passes where mean and variance come
together by the merging formula of Chan, Golub and LeVeque, one pass with whole rows in registers. Shapes: x (..., D), weight (D), bias (D).
Sums are in fp32 whatever the dtype of x. Forward only.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from kernels import launching, row_schedule, use_triton
from kernels.row_schedule import RowSchedule

EPS = 1e-5
PASSES = 3


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    """y (..., D) in the dtype of x.

    >>> reference(torch.tensor([[1.0, 3.0]]), torch.ones(2), torch.ones(2)).round(decimals=4).tolist()
    [[0.0, 2.0]]
    """
    return torch.nn.functional.layer_norm(x.float(), x.shape[-1:], weight.float(), bias.float(), eps).to(x.dtype)


def op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = EPS, schedule: RowSchedule | None = None) -> torch.Tensor:
    """As ``reference``; on a CUDA device one Triton kernel. Raises ValueError for shapes that do not fit and for a wanted gradient there."""
    if weight.shape != x.shape[-1:] or bias.shape != x.shape[-1:]:
        raise ValueError(f"x {tuple(x.shape)} needs weight and bias of shape (D), not {tuple(weight.shape)} and {tuple(bias.shape)}")
    if not use_triton(x):
        return reference(x, weight, bias, eps)
    launching.require_no_gradient("layernorm", x, weight, bias)
    return launch(x, weight, bias, eps, schedule)


@cache
def triton_kernels() -> dict[str, Any]:
    """The jit functions by name, made on first use: Triton is imported only where a kernel is."""
    import triton
    import triton.language as tl

    @triton.jit
    def layernorm(
        x_ptr, weight_ptr, bias_ptr, y_ptr, eps, rows, columns,
        ROWS: tl.constexpr, BLOCK: tl.constexpr, PASSES: tl.constexpr, STAGES: tl.constexpr, UNROLL: tl.constexpr,
        INTERLEAVED: tl.constexpr, MASKED: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr,
    ):  # fmt: skip
        tiles = tl.cdiv(rows, ROWS)
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            row = tile + tl.arange(0, ROWS) * tiles if INTERLEAVED else tile * ROWS + tl.arange(0, ROWS)
            inside = (row < rows)[:, None]
            start = row.to(tl.int64)[:, None] * columns
            if PASSES == 1:
                column = tl.arange(0, BLOCK)[None, :]
                mask = inside & (column < columns) if MASKED else inside & (column >= 0)
                x = tl.load(x_ptr + start + column, mask=mask, other=0.0, eviction_policy=LOAD).to(tl.float32)
                centred = tl.where(mask, x - (tl.sum(x, 1) / columns)[:, None], 0.0)
                scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / columns + eps)
                weight = tl.load(weight_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
                bias = tl.load(bias_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
                y = centred * scale[:, None] * weight + bias
                tl.store(y_ptr + start + column, y.to(y_ptr.dtype.element_ty), mask=mask, cache_modifier=STORE)
            else:
                if PASSES == 2:
                    mean = tl.zeros((ROWS,), tl.float32)
                    square = tl.zeros((ROWS,), tl.float32)  # sum of squared distances from the mean of what was read so far
                    for first in tl.range(0, columns, BLOCK, num_stages=STAGES, loop_unroll_factor=UNROLL):
                        column = first + tl.arange(0, BLOCK)[None, :]
                        mask = inside & (column < columns) if MASKED else inside & (column >= 0)
                        x = tl.load(x_ptr + start + column, mask=mask, other=0.0, eviction_policy=LOAD).to(tl.float32)
                        count = tl.minimum(columns - first, BLOCK).to(tl.float32)
                        own = tl.sum(x, 1) / count
                        centred = tl.where(mask, x - own[:, None], 0.0)
                        moved = own - mean
                        square += tl.sum(centred * centred, 1) + moved * moved * (first * count / (first + count))
                        mean += moved * (count / (first + count))
                else:
                    # Rows are reduced once, behind the loop: cheaper, and Triton 3.7 fails on a sum of a loop that is used twice.
                    sums = tl.zeros((ROWS, BLOCK), tl.float32)
                    for first in tl.range(0, columns, BLOCK, num_stages=STAGES, loop_unroll_factor=UNROLL):
                        column = first + tl.arange(0, BLOCK)[None, :]
                        mask = inside & (column < columns) if MASKED else inside & (column >= 0)
                        x = tl.load(x_ptr + start + column, mask=mask, other=0.0, eviction_policy=LOAD).to(tl.float32)
                        sums += x
                    mean = tl.sum(sums, 1) / columns
                    squares = tl.zeros((ROWS, BLOCK), tl.float32)
                    for first in tl.range(0, columns, BLOCK, num_stages=STAGES, loop_unroll_factor=UNROLL):
                        column = first + tl.arange(0, BLOCK)[None, :]
                        mask = inside & (column < columns) if MASKED else inside & (column >= 0)
                        x = tl.load(x_ptr + start + column, mask=mask, other=0.0, eviction_policy=LOAD).to(tl.float32)
                        centred = tl.where(mask, x - mean[:, None], 0.0)
                        squares += centred * centred
                    square = tl.sum(squares, 1)
                scale = 1.0 / tl.sqrt(square / columns + eps)
                for first in tl.range(0, columns, BLOCK, num_stages=STAGES, loop_unroll_factor=UNROLL):
                    column = first + tl.arange(0, BLOCK)[None, :]
                    mask = inside & (column < columns) if MASKED else inside & (column >= 0)
                    x = tl.load(x_ptr + start + column, mask=mask, other=0.0, eviction_policy=LOAD).to(tl.float32)
                    weight = tl.load(weight_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
                    bias = tl.load(bias_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
                    y = (x - mean[:, None]) * scale[:, None] * weight + bias
                    tl.store(y_ptr + start + column, y.to(y_ptr.dtype.element_ty), mask=mask, cache_modifier=STORE)

    return {"layernorm": layernorm}


def calls(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, y: torch.Tensor, eps: float, schedule: RowSchedule) -> list[launching.Call]:
    """The launch that writes y; all contiguous, and only their shapes are looked at."""
    columns = x.shape[-1]
    arguments = {"x_ptr": x, "weight_ptr": weight, "bias_ptr": bias, "y_ptr": y, "eps": eps}
    return [row_schedule.row_call("layernorm", arguments, x.numel() // columns, columns, schedule, PASSES)]


def launch(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = EPS, schedule: RowSchedule | None = None) -> torch.Tensor:
    """y of the Triton kernel; shapes as ``reference``."""
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    chosen = schedule or row_schedule.default(x.shape[-1])
    launching.run(triton_kernels(), calls(x, weight.contiguous(), bias.contiguous(), y, eps, chosen))
    return y
