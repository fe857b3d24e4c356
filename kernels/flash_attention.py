"""Attention without the T x T weights in memory: y = softmax(q k^T / sqrt(D)) v, causal or not.

Source: FlashAttention (Dao et al., arXiv 2205.14135). Three forms, all in O(T) memory: three passes over the keys (maximum, sum, result),
two passes (maximum and sum together, result), one pass with the result rescaled as the maximum grows. Shapes: q, k, v (B, H, T, D) with D at
most 256; k of any strides. Scores and sums are fp32 whatever the dtype. Forward only. ``attention_column_mass`` also measures the weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from kernels import launching, use_triton

WIDEST = 256


@dataclass(frozen=True, slots=True)
class AttentionSchedule:
    """rows, keys: a program's tile of queries and one step's keys. passes: over the keys, 1 to 3. reverse: the last rows first, which balances a causal run.

    masked=False leaves the mask on the keys out: right only where ``keys`` divides T. precision: of fp32 products, ieee | tf32x3 | tf32.
    """

    rows: int = 32
    keys: int = 32
    passes: int = 1
    warps: int = 4
    stages: int = 2
    unroll: int = 1
    reverse: bool = False
    masked: bool = True
    precision: str = "ieee"
    load: str = ""


def default(dtype: torch.dtype, width: int) -> AttentionSchedule:
    """fp32 tiles are smaller, because each number takes twice the room and no tensor core."""
    if dtype == torch.float32 or width > 128:
        return AttentionSchedule(warps=8)
    return AttentionSchedule(rows=128, keys=64, warps=8, reverse=True)


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False) -> torch.Tensor:
    """y (B, H, T, D) in the dtype of q, all T x T weights in memory.

    >>> reference(torch.zeros(1, 1, 2, 1), torch.zeros(1, 1, 2, 1), torch.tensor([[[[2.0], [4.0]]]]), causal=True).flatten().tolist()
    [2.0, 3.0]
    """
    scores = q.float() @ k.float().transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    return (scores.softmax(-1) @ v.float()).to(q.dtype)


def op(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False, schedule: AttentionSchedule | None = None) -> torch.Tensor:
    """As ``reference``; on a CUDA device one Triton kernel. Raises ValueError for shapes that do not fit and for a wanted gradient there."""
    if q.dim() != 4 or q.shape != k.shape or q.shape != v.shape or q.shape[-1] > WIDEST:
        raise ValueError(f"q, k, v must have one shape (B, H, T, D) with D at most {WIDEST}, not {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}")
    if not use_triton(q):
        return reference(q, k, v, causal)
    launching.require_no_gradient("flash_attention", q, k, v)
    return launch(q, k, v, causal, schedule)


@cache
def triton_kernels() -> dict[str, Any]:
    """The jit functions by name, made on first use: Triton is imported only where a kernel is."""
    import triton
    import triton.language as tl

    @triton.jit
    def attention(
        q_ptr, k_ptr, v_ptr, y_ptr, scale, length, stride_plane, stride_kt, stride_kd, width,
        CAUSAL: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PASSES: tl.constexpr, STAGES: tl.constexpr,
        UNROLL: tl.constexpr, REVERSE: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr, LOAD: tl.constexpr,
    ):  # fmt: skip
        # One program: ROWS queries of one head. scale carries log2(e), so that exp2 does the softmax.
        plane = tl.program_id(1).to(tl.int64) * stride_plane
        block = tl.num_programs(0) - 1 - tl.program_id(0) if REVERSE else tl.program_id(0)
        row = block * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, BLOCK)
        row_mask = (row < length)[:, None] & (column < width)[None, :]
        row_at = plane + row[:, None] * width + column[None, :]
        q = tl.load(q_ptr + row_at, mask=row_mask, other=0.0)
        end = tl.minimum((block + 1) * ROWS, length) if CAUSAL else length
        # The largest finite negative instead of -inf, because -inf - -inf is not a number.
        top = tl.full((ROWS,), -1.0e30, tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        sums = tl.zeros((ROWS, BLOCK), tl.float32)
        tops = tl.full((ROWS, KEYS), -1.0e30, tl.float32)
        for sweep in tl.static_range(PASSES):
            for first in tl.range(0, end, KEYS, num_stages=STAGES, loop_unroll_factor=UNROLL):
                key = first + tl.arange(0, KEYS)
                inside = key < length if MASKED else key >= 0
                k_at = plane + key[None, :] * stride_kt + column[:, None] * stride_kd
                k = tl.load(k_ptr + k_at, mask=inside[None, :] & (column < width)[:, None], other=0.0, eviction_policy=LOAD)
                scores = tl.dot(q, k, input_precision=PRECISION) * scale
                seen = inside[None, :] & (key[None, :] <= row[:, None]) if CAUSAL else inside[None, :]
                scores = tl.where(seen, scores, float("-inf"))
                if PASSES == 3 and sweep == 0:
                    tops = tl.maximum(tops, scores)
                if PASSES < 3 and sweep == 0:
                    higher = tl.maximum(top, tl.max(scores, 1))
                    shrink = tl.exp2(top - higher)
                    top = higher
                    total = total * shrink
                    if PASSES == 1:
                        sums = sums * shrink[:, None]
                if sweep >= PASSES - 2:
                    weights = tl.exp2(scores - top[:, None])
                    if sweep == PASSES - 2 or PASSES == 1:
                        total += tl.sum(weights, 1)
                    if sweep == PASSES - 1:
                        v_at = plane + key[:, None] * width + column[None, :]
                        v = tl.load(v_ptr + v_at, mask=inside[:, None] & (column < width)[None, :], other=0.0, eviction_policy=LOAD)
                        sums = tl.dot(weights.to(v.dtype), v, sums, input_precision=PRECISION)
            if PASSES == 3 and sweep == 0:
                top = tl.max(tops, 1)  # behind the loop: Triton 3.7 fails on a maximum of a loop that is used twice
        tl.store(y_ptr + row_at, (sums / total[:, None]).to(y_ptr.dtype.element_ty), mask=row_mask)

    return {"attention": attention}


def calls(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, y: torch.Tensor, causal: bool, schedule: AttentionSchedule) -> list[launching.Call]:
    """The launch that writes y; q, v, y contiguous, k of any strides inside a head. Raises ValueError for a schedule outside its bounds."""
    s = schedule
    launching.require_powers_of_two(rows=s.rows, keys=s.keys, warps=s.warps)
    if min(s.rows, s.keys) < 16 or not 1 <= s.passes <= 3:
        raise ValueError(f"rows and keys of at least 16 and 1 to 3 passes are needed, not {s}")
    batch, heads, length, width = q.shape
    arguments = {
        "q_ptr": q, "k_ptr": k, "v_ptr": v, "y_ptr": y, "scale": math.log2(math.e) / math.sqrt(width), "length": length,
        "stride_plane": length * width, "stride_kt": k.stride(2), "stride_kd": k.stride(3), "width": width,
    }  # fmt: skip
    constants = {
        "CAUSAL": causal, "BLOCK": max(16, launching.next_power_of_two(width)), "ROWS": s.rows, "KEYS": s.keys, "PASSES": s.passes,
        "STAGES": s.stages, "UNROLL": s.unroll, "REVERSE": s.reverse, "MASKED": s.masked, "PRECISION": s.precision, "LOAD": s.load,
    }  # fmt: skip
    return [launching.Call("attention", (-(-length // s.rows), batch * heads), arguments, constants, s.warps, s.stages)]


def launch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False, schedule: AttentionSchedule | None = None) -> torch.Tensor:
    """y of the Triton kernel; shapes as ``reference``."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    y = torch.empty_like(q)
    launching.run(triton_kernels(), calls(q, k, v, y, causal, schedule or default(q.dtype, q.shape[-1])))
    return y
