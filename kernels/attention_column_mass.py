"""Causal attention that also returns how much attention each key receives, without ever storing the T x T weights.

Pass 1 is flash attention and keeps the log-sum-exp of each row; pass 2 walks the queries of a block of keys and adds exp(score - lse).
So the sink score can be read at T = 32,768, where the weights of one layer of 32 heads would take 137 GB in fp32. Scores, sums and
mass are fp32 whatever the dtype of q, k, v. The isolated-row rule: an isolated query sees its own key alone; later queries still see it.

Shapes: q (B, H, T, D); k, v (B, G, T, D) with G dividing H (grouped heads: query head h reads key head h // (H / G)); D at most 256.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

from kernels import headwise_rmsnorm, use_triton

EPS = headwise_rmsnorm.EPS
WARPS = 8  # with 4, the 64-row tiles need 255 registers a thread and spill on sm_80


class Result(NamedTuple):
    """output (B, H, T, D) in the dtype of q; mass (B, H, T) fp32: for each key the sum of its weights over the counted queries."""

    output: torch.Tensor
    mass: torch.Tensor


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    isolate: Sequence[int] = (),
    first_query: int = 0,
    diagonal: bool = True,
    gamma: torch.Tensor | None = None,
    eps: float = EPS,
) -> Result:
    """Output and received mass by the plain softmax, all T x T weights in memory.

    isolate: positions that see themselves alone. The mass of key j sums over queries i >= first_query, and over i > j alone when
    ``diagonal`` is False. gamma: (D) or (H, D), applies head-wise RMSNorm to the output. Raises ValueError for shapes that do not fit.

    >>> one = torch.ones(1, 1, 3, 2)
    >>> (6 * reference(one, one, one).mass).round().tolist()
    [[[11.0, 5.0, 2.0]]]
    >>> (6 * reference(one, one, one, isolate=[1]).mass).round().tolist()
    [[[8.0, 8.0, 2.0]]]
    """
    _check(q, k, v, isolate, first_query, gamma)
    length, repeats = q.shape[2], q.shape[1] // k.shape[1]
    k, v = (x.float().repeat_interleave(repeats, 1) for x in (k, v))
    position = torch.arange(length, device=q.device)
    seen = position[:, None] >= position[None, :]
    alone = _isolated(q, isolate).bool()
    seen &= ~alone[:, None] | torch.eye(length, dtype=torch.bool, device=q.device)
    weights = (q.float() @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~seen, -torch.inf).softmax(-1)
    output = weights @ v
    if gamma is not None:
        output = _per_head_last(output, gamma, eps)
    counted = weights if diagonal else weights.tril(-1)
    return Result(output.to(q.dtype), counted[..., first_query:, :].sum(-2))


def op(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    isolate: Sequence[int] = (),
    first_query: int = 0,
    diagonal: bool = True,
    gamma: torch.Tensor | None = None,
    eps: float = EPS,
) -> Result:
    """As ``reference``; on a CUDA device by two Triton kernels in O(T) memory. Forward only: raises ValueError when a gradient is wanted there."""
    if not use_triton(q):
        return reference(q, k, v, isolate=isolate, first_query=first_query, diagonal=diagonal, gamma=gamma, eps=eps)
    _check(q, k, v, isolate, first_query, gamma)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (q, k, v, gamma)):
        raise ValueError("attention_column_mass measures and has no backward pass; call it under torch.no_grad()")
    return launch(q, k, v, isolate=isolate, first_query=first_query, diagonal=diagonal, gamma=gamma, eps=eps)


def _per_head_last(output: torch.Tensor, gamma: torch.Tensor, eps: float) -> torch.Tensor:
    return headwise_rmsnorm.reference(output.transpose(1, 2), gamma, eps).transpose(1, 2)


def _isolated(q: torch.Tensor, isolate: Sequence[int]) -> torch.Tensor:
    flags = torch.zeros(q.shape[2], dtype=torch.int8)
    flags[list(isolate)] = 1
    return flags.to(q.device)


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, isolate: Sequence[int], first_query: int, gamma: torch.Tensor | None) -> None:
    batch, heads, length, width = q.shape
    if k.shape != v.shape or k.shape != (batch, k.shape[1], length, width) or heads % k.shape[1]:
        raise ValueError(f"k {tuple(k.shape)} and v {tuple(v.shape)} do not fit q {tuple(q.shape)}")
    if any(not 0 <= position < length for position in isolate):
        raise ValueError(f"isolate {list(isolate)} names a position outside 0 to {length - 1}")
    if first_query < 0:
        raise ValueError(f"first_query is {first_query}, a position from 0")
    if gamma is not None and gamma.shape not in ((width,), (heads, width)):
        raise ValueError(f"gamma must have shape ({width},) or ({heads}, {width}), not {tuple(gamma.shape)}")


@cache
def triton_kernels() -> tuple[Any, Any]:
    """(attend, collect), made on first use: Triton is imported only where a kernel is."""
    import triton
    import triton.language as tl

    @triton.jit
    def attend(
        q_ptr, k_ptr, v_ptr, isolated_ptr, gamma_ptr, output_ptr, lse_ptr, length, heads, groups, scale, eps,
        D: tl.constexpr, NORM: tl.constexpr, SHARED: tl.constexpr, WIDEN: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        # One program: ROWS queries of one head of one text. scale carries log2(e), so that exp2 does the softmax.
        plane = tl.program_id(1).to(tl.int64)
        head = plane % heads
        kv_plane = plane // heads * groups + head // (heads // groups)
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, BLOCK)
        row_mask = (row < length)[:, None] & (column < D)[None, :]
        row_at = (plane * length + row)[:, None] * D + column[None, :]
        q = tl.load(q_ptr + row_at, mask=row_mask, other=0.0)
        if WIDEN:
            q = q.to(tl.float32)
        alone = tl.load(isolated_ptr + row, mask=row < length, other=0) != 0
        # Not -inf: an isolated row has seen no key before its own block, and -inf - -inf is not a number.
        top = tl.full((ROWS,), -1.0e30, tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        sums = tl.zeros((ROWS, BLOCK), tl.float32)
        for first in range(0, tl.minimum((tl.program_id(0) + 1) * ROWS, length), KEYS):
            key = first + tl.arange(0, KEYS)
            key_mask = (key < length)[:, None] & (column < D)[None, :]
            key_at = (kv_plane * length + key)[:, None] * D + column[None, :]
            k = tl.load(k_ptr + key_at, mask=key_mask, other=0.0)
            v = tl.load(v_ptr + key_at, mask=key_mask, other=0.0)
            if WIDEN:
                k, v = k.to(tl.float32), v.to(tl.float32)
            seen = (key[None, :] <= row[:, None]) & (key < length)[None, :] & ((key[None, :] == row[:, None]) | ~alone[:, None])
            scores = tl.where(seen, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))
            higher = tl.maximum(top, tl.max(scores, 1))
            weights = tl.exp2(scores - higher[:, None])
            shrink = tl.exp2(top - higher)
            total = total * shrink + tl.sum(weights, 1)
            sums = sums * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
            top = higher
        output = sums / total[:, None]
        if NORM:
            gamma = tl.load(gamma_ptr + (0 if SHARED else head * D) + column, mask=column < D, other=0.0).to(tl.float32)
            output = output / tl.sqrt(tl.sum(output * output, 1) / D + eps)[:, None] * gamma[None, :]
        tl.store(output_ptr + row_at, output.to(output_ptr.dtype.element_ty), mask=row_mask)
        tl.store(lse_ptr + plane * length + row, top + tl.log2(total), mask=row < length)

    @triton.jit
    def collect(
        q_ptr, k_ptr, isolated_ptr, lse_ptr, mass_ptr, length, heads, groups, first_query, scale,
        D: tl.constexpr, DIAGONAL: tl.constexpr, WIDEN: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        # One program: KEYS keys of one query head. It owns their sums, so no atomic addition is needed and every run gives the same bits.
        plane = tl.program_id(1).to(tl.int64)
        kv_plane = plane // heads * groups + plane % heads // (heads // groups)
        key = tl.program_id(0) * KEYS + tl.arange(0, KEYS)
        column = tl.arange(0, BLOCK)
        key_at = (kv_plane * length + key)[:, None] * D + column[None, :]
        k = tl.load(k_ptr + key_at, mask=(key < length)[:, None] & (column < D)[None, :], other=0.0)
        if WIDEN:
            k = k.to(tl.float32)
        mass = tl.zeros((KEYS,), tl.float32)
        for first in range(tl.maximum(tl.program_id(0) * KEYS, first_query) // ROWS * ROWS, length, ROWS):
            row = first + tl.arange(0, ROWS)
            row_at = (plane * length + row)[:, None] * D + column[None, :]
            q = tl.load(q_ptr + row_at, mask=(row < length)[:, None] & (column < D)[None, :], other=0.0)
            if WIDEN:
                q = q.to(tl.float32)
            lse = tl.load(lse_ptr + plane * length + row, mask=row < length, other=0.0)
            alone = tl.load(isolated_ptr + row, mask=row < length, other=0) != 0
            seen = (key[None, :] <= row[:, None]) if DIAGONAL else (key[None, :] < row[:, None])
            seen = seen & ((key[None, :] == row[:, None]) | ~alone[:, None]) & ((row < length) & (row >= first_query))[:, None]
            scores = tl.where(seen, tl.dot(q, tl.trans(k), input_precision="ieee") * scale - lse[:, None], float("-inf"))
            mass += tl.sum(tl.exp2(scores), 0)
        tl.store(mass_ptr + plane * length + key, mass, mask=key < length)

    return attend, collect


def tile(dtype: torch.dtype, width: int) -> dict[str, int]:
    """Sizes of a program's tile: fp32 tiles are smaller, because each number takes twice the room and no tensor core."""
    side = 32 if dtype == torch.float32 or width > 128 else 64
    return {"ROWS": side, "KEYS": side, "BLOCK": max(16, 1 << (width - 1).bit_length())}


def launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    isolate: Sequence[int] = (),
    first_query: int = 0,
    diagonal: bool = True,
    gamma: torch.Tensor | None = None,
    eps: float = EPS,
) -> Result:
    """The two Triton kernels; shapes as ``reference``."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    batch, heads, length, width = q.shape
    groups, isolated, sizes = k.shape[1], _isolated(q, isolate), tile(q.dtype, width)
    output, mass, lse = torch.empty_like(q), *(torch.empty(batch, heads, length, dtype=torch.float32, device=q.device) for _ in range(2))
    scale = math.log2(math.e) / math.sqrt(width)
    attend, collect = triton_kernels()
    widen = q.dtype == torch.bfloat16 and not q.is_cuda  # the interpreter, which alone runs this on a CPU, multiplies bf16 wrongly
    norm, shared = gamma is not None, gamma is None or gamma.dim() == 1
    weights = q if gamma is None else gamma.contiguous()  # never read without NORM
    attend[(-(-length // sizes["ROWS"]), batch * heads)](
        q, k, v, isolated, weights, output, lse, length, heads, groups, scale, eps, D=width, NORM=norm, SHARED=shared, WIDEN=widen, num_warps=WARPS, **sizes
    )
    collect[(-(-length // sizes["KEYS"]), batch * heads)](
        q, k, isolated, lse, mass, length, heads, groups, first_query, scale, D=width, DIAGONAL=diagonal, WIDEN=widen, num_warps=WARPS, **sizes
    )
    return Result(output, mass)
