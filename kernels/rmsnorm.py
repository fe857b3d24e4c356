"""RMSNorm of the rows of a matrix: y[r, c] = weight[c] * x[r, c] / sqrt(mean_c x[r, c]^2 + eps).

Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (arXiv 1910.07467). Shapes: x (..., D), weight (D). Sums are in fp32
whatever the dtype of x. Forward only; ``headwise_rmsnorm`` is the form with a gradient. Its schedule is an argument, so that it can be tuned.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from kernels import launching, row_schedule, use_triton
from kernels.row_schedule import RowSchedule

EPS = 1e-6
PASSES = 2


def reference(x: torch.Tensor, weight: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    """y (..., D) in the dtype of x.

    >>> reference(torch.tensor([[3.0, 3.0]]), torch.tensor([1.0, 2.0])).round().tolist()
    [[1.0, 2.0]]
    """
    wide = x.float()
    return (weight.float() * wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


def op(x: torch.Tensor, weight: torch.Tensor, eps: float = EPS, schedule: RowSchedule | None = None) -> torch.Tensor:
    """As ``reference``; on a CUDA device one Triton kernel. Raises ValueError for shapes that do not fit and for a wanted gradient there."""
    if weight.shape != x.shape[-1:]:
        raise ValueError(f"x {tuple(x.shape)} needs weight of shape (D), not {tuple(weight.shape)}")
    if not use_triton(x):
        return reference(x, weight, eps)
    launching.require_no_gradient("rmsnorm", x, weight)
    return launch(x, weight, eps, schedule)


@cache
def triton_kernels() -> dict[str, Any]:
    """The jit functions by name, made on first use: Triton is imported only where a kernel is."""
    import triton
    import triton.language as tl

    @triton.jit
    def rmsnorm(
        x_ptr, weight_ptr, y_ptr, eps, rows, columns,
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
                weight = tl.load(weight_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
                scale = 1.0 / tl.sqrt(tl.sum(x * x, 1) / columns + eps)
                y = x * scale[:, None] * weight
                tl.store(y_ptr + start + column, y.to(y_ptr.dtype.element_ty), mask=mask, cache_modifier=STORE)
            else:
                squares = tl.zeros((ROWS, BLOCK), tl.float32)
                for first in tl.range(0, columns, BLOCK, num_stages=STAGES, loop_unroll_factor=UNROLL):
                    column = first + tl.arange(0, BLOCK)[None, :]
                    mask = inside & (column < columns) if MASKED else inside & (column >= 0)
                    x = tl.load(x_ptr + start + column, mask=mask, other=0.0, eviction_policy=LOAD).to(tl.float32)
                    squares += x * x
                scale = 1.0 / tl.sqrt(tl.sum(squares, 1) / columns + eps)
                for first in tl.range(0, columns, BLOCK, num_stages=STAGES, loop_unroll_factor=UNROLL):
                    column = first + tl.arange(0, BLOCK)[None, :]
                    mask = inside & (column < columns) if MASKED else inside & (column >= 0)
                    x = tl.load(x_ptr + start + column, mask=mask, other=0.0, eviction_policy=LOAD).to(tl.float32)
                    weight = tl.load(weight_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
                    y = x * scale[:, None] * weight
                    tl.store(y_ptr + start + column, y.to(y_ptr.dtype.element_ty), mask=mask, cache_modifier=STORE)

    return {"rmsnorm": rmsnorm}


def calls(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, eps: float, schedule: RowSchedule) -> list[launching.Call]:
    """The launch that writes y; x, weight and y contiguous, and only their shapes are looked at."""
    columns = x.shape[-1]
    arguments = {"x_ptr": x, "weight_ptr": weight, "y_ptr": y, "eps": eps}
    return [row_schedule.row_call("rmsnorm", arguments, x.numel() // columns, columns, schedule, PASSES)]


def launch(x: torch.Tensor, weight: torch.Tensor, eps: float = EPS, schedule: RowSchedule | None = None) -> torch.Tensor:
    """y of the Triton kernel; shapes as ``reference``."""
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    launching.run(triton_kernels(), calls(x, weight.contiguous(), y, eps, schedule or row_schedule.default(x.shape[-1])))
    return y
