"""The Triton kernels of ``kernels.dequant_matmul``, in a module of its own: the interpreter finds a function that a kernel calls by module name only."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def weights(words_ptr, scale_ptr, zero_ptr, row, inner, mask, line, groups, width, BITS: tl.constexpr):
    # A tile of W in fp32. row and inner broadcast against each other to the tile's shape; line: words of a row.
    bit = inner % 32 * BITS
    at = row.to(tl.int64) * line + inner // 32 * BITS + bit // 32
    shift = (bit % 32).to(tl.uint32)
    level = tl.load(words_ptr + at, mask=mask, other=0).to(tl.uint32, bitcast=True) >> shift
    if 32 % BITS != 0:
        across = mask & (bit % 32 + BITS > 32)
        rest = tl.load(words_ptr + at + 1, mask=across, other=0).to(tl.uint32, bitcast=True)
        # A shift by 32 has no defined result; where the shift is 0 nothing lies across.
        level = level | rest << (32 - bit % 32 & 31).to(tl.uint32)
    level = (level & ((1 << BITS) - 1)).to(tl.float32)
    group_at = row.to(tl.int64) * groups + inner // width
    scale = tl.load(scale_ptr + group_at, mask=mask, other=0.0).to(tl.float32)
    zero = tl.load(zero_ptr + group_at, mask=mask, other=0.0).to(tl.float32)
    return scale * (level - zero)


@triton.jit
def decode(x_ptr, words_ptr, scale_ptr, zero_ptr, y_ptr, n, k, line, groups, width, BITS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    # One program: BLOCK_N outputs of one row of x, without the tensor cores: few rows wait for the memory, not for the products.
    row = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    sums = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    for first in range(0, k, BLOCK_K):
        inner = first + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + tl.program_id(1).to(tl.int64) * k + inner, mask=inner < k, other=0.0).to(tl.float32)
        mask = (row < n)[:, None] & (inner < k)[None, :]
        sums += x[None, :] * weights(words_ptr, scale_ptr, zero_ptr, row[:, None], inner[None, :], mask, line, groups, width, BITS)
    y = tl.sum(sums, 1).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + tl.program_id(1).to(tl.int64) * n + row, y, mask=row < n)


@triton.jit
def prefill(
    x_ptr, words_ptr, scale_ptr, zero_ptr, y_ptr, m, n, k, line, groups, width,
    BITS: tl.constexpr, WIDEN: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # One program: a tile of y. The tile of W is laid out as the second operand of the product, (BLOCK_K, BLOCK_N).
    position = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, k, BLOCK_K):
        inner = first + tl.arange(0, BLOCK_K)
        x_mask = (position < m)[:, None] & (inner < k)[None, :]
        x = tl.load(x_ptr + position.to(tl.int64)[:, None] * k + inner[None, :], mask=x_mask, other=0.0)
        if WIDEN:
            x = x.to(tl.float32)
        mask = (inner < k)[:, None] & (row < n)[None, :]
        w = weights(words_ptr, scale_ptr, zero_ptr, row[None, :], inner[:, None], mask, line, groups, width, BITS)
        sums = tl.dot(x, w.to(x.dtype), sums, input_precision="ieee")
    inside = (position < m)[:, None] & (row < n)[None, :]
    tl.store(y_ptr + position.to(tl.int64)[:, None] * n + row[None, :], sums.to(y_ptr.dtype.element_ty), mask=inside)
