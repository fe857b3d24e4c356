"""The Triton kernel of ``kernels.rounding``, in a module of its own: the interpreter finds a function that a kernel calls by module name only."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels import rounding

stretch, margin = tl.constexpr(rounding.STRETCH), tl.constexpr(rounding.MARGIN)


@triton.jit
def soft_error(v_ptr, floor_ptr, scale_ptr, zero_ptr, target_ptr, row, column, mask, columns, groups, top):
    # Besides the error of a tile everything that its gradient needs.
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    group_at = row.to(tl.int64)[:, None] * groups + (column // (columns // groups))[None, :]
    sigmoid = tl.sigmoid(tl.load(v_ptr + at, mask=mask, other=0.0).to(tl.float32))
    floor = tl.load(floor_ptr + at, mask=mask, other=0.0).to(tl.float32)
    target = tl.load(target_ptr + at, mask=mask, other=0.0).to(tl.float32)
    scale = tl.load(scale_ptr + group_at, mask=mask, other=0.0).to(tl.float32)
    zero = tl.load(zero_ptr + group_at, mask=mask, other=0.0).to(tl.float32)
    stretched = stretch * sigmoid - margin
    h = tl.minimum(tl.maximum(stretched, 0.0), 1.0)
    level = floor + h + zero
    # Outside the mask scale and target are 0, and so is the error.
    error = scale * (tl.minimum(tl.maximum(level, 0.0), top) - zero) - target
    slope = tl.where(stretched == h, stretch * sigmoid * (1.0 - sigmoid), 0.0)
    by_level = tl.where((level >= 0.0) & (level <= top), scale, 0.0)
    return error, h, slope, by_level


@triton.jit
def objective(
    v_ptr, floor_ptr, scale_ptr, zero_ptr, target_ptr, metric_ptr, recon_ptr, regulariser_ptr, gradient_ptr,
    rows, columns, groups, top, weight, beta, ROWS: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    # One program: ROWS whole rows. The metric passes through shared memory in panels of STEP rows: 256 x 256 numbers of fp32 are 256 KiB,
    # more than a block may use. The error of a panel's columns is computed again in the end: cheaper than a way through memory.
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    weighted = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in range(0, columns, STEP):
        inner = first + tl.arange(0, STEP)
        inner_mask = (row < rows)[:, None] & (inner < columns)[None, :]
        error, _, _, _ = soft_error(v_ptr, floor_ptr, scale_ptr, zero_ptr, target_ptr, row, inner, inner_mask, columns, groups, top)
        panel_mask = (inner < columns)[:, None] & (column < columns)[None, :]
        panel = tl.load(metric_ptr + inner[:, None] * columns + column[None, :], mask=panel_mask, other=0.0).to(tl.float32)
        weighted = tl.dot(error, panel, weighted, input_precision="ieee")
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    error, h, slope, by_level = soft_error(v_ptr, floor_ptr, scale_ptr, zero_ptr, target_ptr, row, column, mask, columns, groups, top)
    signed = 2.0 * h - 1.0
    size = tl.abs(signed)
    # The logarithm of 0 would be infinite, and infinity times a beta of 1 less 1 no number.
    power = tl.exp2((beta - 1.0) * tl.log2(tl.maximum(size, 1e-30)))
    sign = tl.where(signed > 0.0, 1.0, tl.where(signed < 0.0, -1.0, 0.0))
    gradient = (2.0 * weighted * by_level - 2.0 * weight * beta * power * sign) * slope
    tl.store(gradient_ptr + row.to(tl.int64)[:, None] * columns + column[None, :], gradient, mask=mask)
    tl.store(recon_ptr + row, tl.sum(weighted * error, 1), mask=row < rows)
    tl.store(regulariser_ptr + row, weight * tl.sum(tl.where(mask, 1.0 - power * size, 0.0), 1), mask=row < rows)
