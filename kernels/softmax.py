"""Softmax of the rows of a matrix: y[r, c] = exp(x[r, c] - max_c x[r, c]) / sum_c exp(x[r, c] - max_c x[r, c]).

Three forms: three passes (maximum, sum, result), two passes with the online maximum and sum of Milakov and Gimelshein (arXiv 1805.02867),
one pass with whole rows in registers. Shapes: x (..., D). Sums are in fp32 whatever the dtype of x. Forward only.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch

from kernels import launching, row_schedule, use_triton
from kernels.row_schedule import RowSchedule

PASSES = 3


def reference(x: torch.Tensor) -> torch.Tensor:
    """y (..., D) in the dtype of x.

    >>> reference(torch.tensor([[1.0, 1.0, -torch.inf]])).tolist()
    [[0.5, 0.5, 0.0]]
    """
    return x.float().softmax(-1).to(x.dtype)


def op(x: torch.Tensor, schedule: RowSchedule | None = None) -> torch.Tensor:
    """As ``reference``; on a CUDA device one Triton kernel. Raises ValueError where a gradient is wanted there."""
    if not use_triton(x):
        return reference(x)
    launching.require_no_gradient("softmax", x)
    return launch(x, schedule)


@cache
def triton_kernels() -> dict[str, Any]:
    """The jit functions by name, made on first use: Triton is imported only where a kernel is."""
    import triton
    import triton.language as tl

    @triton.jit
    def softmax(
        x_ptr, y_ptr, log2e, rows, columns,
        ROWS: tl.constexpr, BLOCK: tl.constexpr, PASSES: tl.constexpr, STAGES: tl.constexpr, UNROLL: tl.constexpr,
        INTERLEAVED: tl.constexpr, MASKED: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr,
    ):  # fmt: skip
        tiles = tl.cdiv(rows, ROWS)
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            row = tile + tl.arange(0, ROWS) * tiles if INTERLEAVED else tile * ROWS + tl.arange(0, ROWS)
            inside = (row < rows)[:, None]
            start = row.to(tl.int64)[:, None] * columns
            # The largest finite negative instead of -inf: a row of -inf alone would make -inf - -inf, which is not a number.
            if PASSES == 1:
                column = tl.arange(0, BLOCK)[None, :]
                mask = inside & (column < columns) if MASKED else inside & (column >= 0)
                x = tl.load(x_ptr + start + column, mask=mask, other=float("-inf"), eviction_policy=LOAD).to(tl.float32)
                top = tl.maximum(tl.max(x, 1), -3.0e38)
                weights = tl.exp2((x - top[:, None]) * log2e)
                y = weights / tl.sum(weights, 1)[:, None]
                tl.store(y_ptr + start + column, y.to(y_ptr.dtype.element_ty), mask=mask, cache_modifier=STORE)
            else:
                if PASSES == 2:
                    top = tl.full((ROWS,), -3.0e38, tl.float32)
                    total = tl.zeros((ROWS,), tl.float32)
                    for first in tl.range(0, columns, BLOCK, num_stages=STAGES, loop_unroll_factor=UNROLL):
                        column = first + tl.arange(0, BLOCK)[None, :]
                        mask = inside & (column < columns) if MASKED else inside & (column >= 0)
                        x = tl.load(x_ptr + start + column, mask=mask, other=float("-inf"), eviction_policy=LOAD).to(tl.float32)
                        higher = tl.maximum(top, tl.max(x, 1))
                        total = total * tl.exp2((top - higher) * log2e) + tl.sum(tl.exp2((x - higher[:, None]) * log2e), 1)
                        top = higher
                else:
                    # Rows are reduced once, behind the loop: cheaper, and Triton 3.7 fails on a maximum of a loop that is used twice.
                    tops = tl.full((ROWS, BLOCK), -3.0e38, tl.float32)
                    for first in tl.range(0, columns, BLOCK, num_stages=STAGES, loop_unroll_factor=UNROLL):
                        column = first + tl.arange(0, BLOCK)[None, :]
                        mask = inside & (column < columns) if MASKED else inside & (column >= 0)
                        x = tl.load(x_ptr + start + column, mask=mask, other=float("-inf"), eviction_policy=LOAD).to(tl.float32)
                        tops = tl.maximum(tops, x)
                    top = tl.max(tops, 1)
                    totals = tl.zeros((ROWS, BLOCK), tl.float32)
                    for first in tl.range(0, columns, BLOCK, num_stages=STAGES, loop_unroll_factor=UNROLL):
                        column = first + tl.arange(0, BLOCK)[None, :]
                        mask = inside & (column < columns) if MASKED else inside & (column >= 0)
                        x = tl.load(x_ptr + start + column, mask=mask, other=float("-inf"), eviction_policy=LOAD).to(tl.float32)
                        totals += tl.exp2((x - top[:, None]) * log2e)
                    total = tl.sum(totals, 1)
                for first in tl.range(0, columns, BLOCK, num_stages=STAGES, loop_unroll_factor=UNROLL):
                    column = first + tl.arange(0, BLOCK)[None, :]
                    mask = inside & (column < columns) if MASKED else inside & (column >= 0)
                    x = tl.load(x_ptr + start + column, mask=mask, other=float("-inf"), eviction_policy=LOAD).to(tl.float32)
                    y = tl.exp2((x - top[:, None]) * log2e) / total[:, None]
                    tl.store(y_ptr + start + column, y.to(y_ptr.dtype.element_ty), mask=mask, cache_modifier=STORE)

    return {"softmax": softmax}


def calls(x: torch.Tensor, y: torch.Tensor, schedule: RowSchedule) -> list[launching.Call]:
    """The launch that writes y; x and y contiguous, and only their shapes are looked at."""
    columns = x.shape[-1]
    arguments = {"x_ptr": x, "y_ptr": y, "log2e": math.log2(math.e)}
    return [row_schedule.row_call("softmax", arguments, x.numel() // columns, columns, schedule, PASSES)]


def launch(x: torch.Tensor, schedule: RowSchedule | None = None) -> torch.Tensor:
    """y of the Triton kernel; shapes as ``reference``."""
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    launching.run(triton_kernels(), calls(x, y, schedule or row_schedule.default(x.shape[-1])))
    return y
