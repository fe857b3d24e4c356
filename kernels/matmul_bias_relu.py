"""A linear layer with its activation: y = relu(a @ b + bias).

Two forms: fused (one kernel, the sum of a tile never leaves the registers) and unfused (SPLIT_K partial products in fp32, then a second
kernel adds them up, adds the bias and cuts off). Shapes: a (M, K), b (K, N) of any strides, bias (N), y (M, N). Products are added in fp32
whatever the dtype. Forward only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from kernels import launching, use_triton

EPILOGUE_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class MatmulSchedule:
    """block_m, block_n, block_k: a program's tile. group: tiles of rows that are walked together, so that the second matrix stays in the cache.

    columns_first: the walk goes down the columns. precision: of fp32 products on the tensor cores, ieee | tf32x3 (three tf32 products) | tf32.
    hinted: promises that tiles do not wrap around the edge, which gives wide loads: right only where block_n divides N.
    masked=False leaves out the remainder of K: right only where block_k divides K. Raises nothing; ``calls`` checks.
    """

    block_m: int = 64
    block_n: int = 64
    block_k: int = 32
    group: int = 8
    split_k: int = 1
    fused: bool = True
    warps: int = 4
    stages: int = 3
    unroll: int = 1
    columns_first: bool = False
    hinted: bool = False
    masked: bool = True
    precision: str = "ieee"
    load: str = ""


def default(dtype: torch.dtype) -> MatmulSchedule:
    """Half precision goes to the tensor cores and pays for larger tiles."""
    return MatmulSchedule() if dtype == torch.float32 else MatmulSchedule(block_m=128, block_n=128, warps=8)


def reference(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """y (M, N) in the dtype of a.

    >>> reference(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, -1.0], [1.0, -1.0]]), torch.ones(2)).tolist()
    [[4.0, 0.0]]
    """
    return (a @ b + bias).relu()


def op(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, schedule: MatmulSchedule | None = None) -> torch.Tensor:
    """As ``reference``; on a CUDA device by Triton. Raises ValueError for shapes that do not fit and for a wanted gradient there."""
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0] or bias.shape != b.shape[1:]:
        raise ValueError(f"a {tuple(a.shape)}, b {tuple(b.shape)} and bias {tuple(bias.shape)} do not fit")
    if not use_triton(a):
        return reference(a, b, bias)
    launching.require_no_gradient("matmul_bias_relu", a, b, bias)
    return launch(a, b, bias, schedule)


@cache
def triton_kernels() -> dict[str, Any]:
    """The jit functions by name, made on first use: Triton is imported only where a kernel is."""
    import triton
    import triton.language as tl

    @triton.jit
    def matmul(
        a_ptr, b_ptr, bias_ptr, y_ptr, m, n, k, stride_bk, stride_bn,
        BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, SPLIT_K: tl.constexpr, FUSED: tl.constexpr,
        STAGES: tl.constexpr, UNROLL: tl.constexpr, COLUMNS_FIRST: tl.constexpr, HINTED: tl.constexpr, MASKED: tl.constexpr,
        PRECISION: tl.constexpr, LOAD: tl.constexpr,
    ):  # fmt: skip
        # One program: one tile of y, or with SPLIT_K the part of it that every SPLIT_K-th step of k gives.
        tiles_m = tl.cdiv(m, BLOCK_M)
        tiles_n = tl.cdiv(n, BLOCK_N)
        if COLUMNS_FIRST:
            band = GROUP * tiles_m
            first_n = tl.program_id(0) // band * GROUP
            width = tl.minimum(tiles_n - first_n, GROUP)
            tile_n = first_n + tl.program_id(0) % band % width
            tile_m = tl.program_id(0) % band // width
        else:
            band = GROUP * tiles_n
            first_m = tl.program_id(0) // band * GROUP
            width = tl.minimum(tiles_m - first_m, GROUP)
            tile_m = first_m + tl.program_id(0) % band % width
            tile_n = tl.program_id(0) % band // width
        row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        # Rows and columns outside wrap around: what they give is never stored, and the loads need no mask for them.
        a_row = (row % m).to(tl.int64)[:, None] * k
        b_column = column % n
        if HINTED:
            b_column = tl.max_contiguous(tl.multiple_of(b_column, BLOCK_N), BLOCK_N)
        b_column = b_column.to(tl.int64)[None, :] * stride_bn
        sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for first in tl.range(tl.program_id(1) * BLOCK_K, k, BLOCK_K * SPLIT_K, num_stages=STAGES, loop_unroll_factor=UNROLL):
            inner = first + tl.arange(0, BLOCK_K)
            if MASKED:
                a = tl.load(a_ptr + a_row + inner[None, :], mask=(inner < k)[None, :], other=0.0, eviction_policy=LOAD)
                b = tl.load(b_ptr + inner.to(tl.int64)[:, None] * stride_bk + b_column, mask=(inner < k)[:, None], other=0.0, eviction_policy=LOAD)
            else:
                a = tl.load(a_ptr + a_row + inner[None, :], eviction_policy=LOAD)
                b = tl.load(b_ptr + inner.to(tl.int64)[:, None] * stride_bk + b_column, eviction_policy=LOAD)
            sums = tl.dot(a, b, sums, input_precision=PRECISION)
        inside = (row < m)[:, None] & (column < n)[None, :]
        at = row.to(tl.int64)[:, None] * n + column[None, :]
        if FUSED:
            bias = tl.load(bias_ptr + column, mask=column < n, other=0.0).to(tl.float32)
            sums = tl.maximum(sums + bias[None, :], 0.0)
            tl.store(y_ptr + at, sums.to(y_ptr.dtype.element_ty), mask=inside)
        else:
            tl.store(y_ptr + tl.program_id(1).to(tl.int64) * m * n + at, sums, mask=inside)

    @triton.jit
    def epilogue(partial_ptr, bias_ptr, y_ptr, size, n, SPLIT_K: tl.constexpr, BLOCK: tl.constexpr):
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = at < size
        total = tl.load(bias_ptr + at % n, mask=inside, other=0.0).to(tl.float32)
        for part in tl.static_range(SPLIT_K):
            total += tl.load(partial_ptr + part * size + at, mask=inside, other=0.0)
        tl.store(y_ptr + at, tl.maximum(total, 0.0).to(y_ptr.dtype.element_ty), mask=inside)

    return {"matmul": matmul, "epilogue": epilogue}


def calls(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, y: torch.Tensor, schedule: MatmulSchedule) -> list[launching.Call]:
    """The launches that write y; a, bias and y contiguous, b of any strides. Raises ValueError for a schedule that cannot be right."""
    s = schedule
    launching.require_powers_of_two(block_m=s.block_m, block_n=s.block_n, block_k=s.block_k, warps=s.warps)
    if min(s.block_m, s.block_n, s.block_k) < 16 or s.group < 1 or s.split_k < 1:
        raise ValueError(f"blocks of at least 16, group and split_k of at least 1 are needed, not {s}")
    if s.fused and s.split_k > 1:
        raise ValueError("a fused epilogue needs the whole sum of a tile: split_k must be 1")
    (m, k), n = a.shape, b.shape[1]
    target = y if s.fused else torch.empty(s.split_k, m, n, dtype=torch.float32, device=a.device)
    constants = {
        "BLOCK_M": s.block_m, "BLOCK_N": s.block_n, "BLOCK_K": s.block_k, "GROUP": s.group, "SPLIT_K": s.split_k, "FUSED": s.fused,
        "STAGES": s.stages, "UNROLL": s.unroll, "COLUMNS_FIRST": s.columns_first, "HINTED": s.hinted, "MASKED": s.masked,
        "PRECISION": s.precision, "LOAD": s.load,
    }  # fmt: skip
    arguments = {
        "a_ptr": a, "b_ptr": b, "bias_ptr": bias, "y_ptr": target, "m": m, "n": n, "k": k, "stride_bk": b.stride(0), "stride_bn": b.stride(1)
    }  # fmt: skip
    grid = (-(-m // s.block_m) * -(-n // s.block_n), s.split_k)
    found = [launching.Call("matmul", grid, arguments, constants, s.warps, s.stages)]
    if not s.fused:
        rest = {"partial_ptr": target, "bias_ptr": bias, "y_ptr": y, "size": m * n, "n": n}
        found.append(launching.Call("epilogue", (-(-m * n // EPILOGUE_BLOCK),), rest, {"SPLIT_K": s.split_k, "BLOCK": EPILOGUE_BLOCK}))
    return found


def launch(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, schedule: MatmulSchedule | None = None) -> torch.Tensor:
    """y of the Triton kernels; shapes as ``reference``."""
    a, y = a.contiguous(), torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    launching.run(triton_kernels(), calls(a, b, bias.contiguous(), y, schedule or default(a.dtype)))
    return y
