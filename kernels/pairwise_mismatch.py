"""Pairwise behaviour distance for many candidates: in how many probes each pair of rows differs, without the N x N x P comparison.

Codes (N, P) are whole numbers, one for each outcome. From N of about 2,000 on the comparison in memory (N = 4,000, P = 400: 6.4 GB) is
what stops the CPU; here each program holds one tile of the result and reads its rows once. The counts are exact.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from kernels import use_triton

ROWS_AT_ONCE = 64  # of the reference, so that its comparison stays small


def reference(codes: torch.Tensor) -> torch.Tensor:
    """Counts (N, N) int32 of the probes in which rows i and j of codes (N, P) differ.

    >>> reference(torch.tensor([[0, 1], [0, 2], [3, 1]])).tolist()
    [[0, 1, 1], [1, 0, 2], [1, 2, 0]]
    """
    _check(codes)
    parts = [(rows[:, None] != codes[None]).sum(-1, dtype=torch.int32) for rows in codes.split(ROWS_AT_ONCE)]
    return torch.cat(parts) if parts else torch.zeros((0, 0), dtype=torch.int32, device=codes.device)


def op(codes: torch.Tensor) -> torch.Tensor:
    """As ``reference``; on a CUDA device by a tiled kernel in O(N^2) memory. Raises ValueError for other than whole numbers (N, P)."""
    _check(codes)
    return launch(codes) if use_triton(codes) else reference(codes)


def _check(codes: torch.Tensor) -> None:
    if codes.dim() != 2:
        raise ValueError(f"codes have shape {tuple(codes.shape)}, not (N, P)")
    if codes.is_floating_point() or codes.is_complex():
        raise ValueError(f"codes are whole numbers, not {codes.dtype}")


@cache
def triton_kernels() -> tuple[Any]:
    """The kernel, made on first use: Triton is imported only where a kernel is."""
    import triton
    import triton.language as tl

    @triton.jit
    def count(codes_ptr, counts_ptr, n, probes, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):
        # One program: ROWS x COLUMNS pairs, STEP probes at a time.
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        row_at, column_at = row.to(tl.int64) * probes, column.to(tl.int64) * probes
        total = tl.zeros((ROWS, COLUMNS), tl.int32)
        for first in range(0, probes, STEP):
            probe = first + tl.arange(0, STEP)
            inside = probe < probes
            # Beyond the last probe both sides read the same number, so that nothing is counted there.
            left = tl.load(codes_ptr + row_at[:, None] + probe[None, :], mask=(row < n)[:, None] & inside[None, :], other=0)
            right = tl.load(codes_ptr + column_at[:, None] + probe[None, :], mask=(column < n)[:, None] & inside[None, :], other=0)
            total += tl.sum((left[:, None, :] != right[None, :, :]).to(tl.int32), 2)
        mask = (row < n)[:, None] & (column < n)[None, :]
        tl.store(counts_ptr + row.to(tl.int64)[:, None] * n + column[None, :], total, mask=mask)

    return (count,)


def tile(probes: int) -> dict[str, int]:
    """Sizes of a program's tile: more probes at a time need smaller tiles for the same registers."""
    return {"ROWS": 32, "COLUMNS": 32, "STEP": 4 if probes < 64 else 8}


def launch(codes: torch.Tensor) -> torch.Tensor:
    """The Triton kernel; shapes as ``reference``. Codes are taken as int32."""
    codes = codes.to(torch.int32).contiguous()
    n, probes = codes.shape
    counts = torch.empty((n, n), dtype=torch.int32, device=codes.device)
    if n:
        sizes = tile(probes)
        triton_kernels()[0][(-(-n // sizes["ROWS"]), -(-n // sizes["COLUMNS"]))](codes, counts, n, probes, **sizes)
    return counts
