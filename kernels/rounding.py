"""Learned rounding of a cluster of weight columns: the objective of each row and its gradient in one pass.

Source: the rounding step of "STLA: Spatiotemporal Lookahead Alignment for Post-Training Quantization" (github.com/AI2C-Lab/STLA, aespa.py),
which is AdaRound (arXiv 2004.10568) with another metric. With h(V) = clip(1.2 sigmoid(V) - 0.1, 0, 1):

    Q = scale (clip(floor + h + zero, 0, 2^bits - 1) - zero),   e = Q - target
    recon = sum((e S) * e),   regulariser = weight sum(1 - |2h - 1|^beta)

The look-ahead objective takes the metric S = S_K and the target W_K (plus the asymmetric correction, where there is one); the local one takes
S = H_KK and the original weights. Shapes: v, floor, target (R, c); scale, zero (R, G), G groups of c / G columns; S (c, c), symmetric.
Everything is computed in fp32. The gradient comes in closed form, so autograd records nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch

from kernels import use_triton
from kernels.launching import next_power_of_two

STRETCH, MARGIN = 1.2, 0.1  # the sigmoid reaches from -0.1 to 1.1, so that 0 and 1 are reached at finite V
WIDEST = 256  # columns of a cluster that a program's registers hold


class Objective(NamedTuple):
    """Of each row: recon (R) and regulariser (R), the loss is their sum; gradient (R, c): of that loss by V. All fp32."""

    recon: torch.Tensor
    regulariser: torch.Tensor
    gradient: torch.Tensor


def rectified_sigmoid(v: torch.Tensor) -> torch.Tensor:
    """h(V) in [0, 1], the shape of v: the share of the step up. V >= 0 rounds up.

    >>> rectified_sigmoid(torch.tensor([-9.0, 0.0, 9.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return (STRETCH * torch.sigmoid(v) - MARGIN).clamp(0.0, 1.0)


@torch.no_grad()
def reference(
    v: torch.Tensor, floor: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, target: torch.Tensor, metric: torch.Tensor,
    *, bits: int, weight: float, beta: float,
) -> Objective:  # fmt: skip
    """The objective of each row and its gradient in plain torch.

    floor: whole numbers, floor(W_K / scale), in any type. target: in any floating type. beta: at least 1; 20 falls to 2 in training. weight: of
    the regulariser, 0 in the first fifth of the iterations. Raises ValueError for shapes and numbers that do not fit.

    >>> one = torch.ones(1, 1)
    >>> [x.item() for x in reference(0 * one, 0 * one, one, 0 * one, 0 * one, 2 * one, bits=2, weight=1.0, beta=2.0)]
    [0.5, 1.0, 0.6000000238418579]
    """
    _check(v, floor, scale, zero, target, metric, bits, beta)
    width, top = v.shape[1] // scale.shape[1], 2**bits - 1
    scale, zero = (x.float().repeat_interleave(width, 1) for x in (scale, zero))
    sigmoid = torch.sigmoid(v.float())
    stretched = STRETCH * sigmoid - MARGIN
    h = stretched.clamp(0.0, 1.0)
    level = floor + h + zero
    error = scale * (level.clamp(0, top) - zero) - target.float()
    weighted = error @ metric.float()
    signed = 2 * h - 1
    power = signed.abs().pow(beta - 1)
    by_h = 2 * weighted * scale * ((level >= 0) & (level <= top)) - (2 * weight * beta) * power * signed.sign()
    gradient = by_h * (STRETCH * sigmoid * (1 - sigmoid)) * (stretched == h)
    return Objective((weighted * error).sum(1), weight * (1 - power * signed.abs()).sum(1), gradient)


def op(
    v: torch.Tensor, floor: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, target: torch.Tensor, metric: torch.Tensor,
    *, bits: int, weight: float, beta: float,
) -> Objective:  # fmt: skip
    """As ``reference``; on a CUDA device one fused kernel for clusters of up to 256 columns."""
    if not use_triton(v) or v.dim() != 2 or v.shape[1] > WIDEST:
        return reference(v, floor, scale, zero, target, metric, bits=bits, weight=weight, beta=beta)
    _check(v, floor, scale, zero, target, metric, bits, beta)
    return launch(v, floor, scale, zero, target, metric, bits=bits, weight=weight, beta=beta)


def _check(
    v: torch.Tensor, floor: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, target: torch.Tensor, metric: torch.Tensor, bits: int, beta: float
) -> None:
    if v.dim() != 2 or not v.numel() or floor.shape != v.shape or target.shape != v.shape or metric.shape != (v.shape[1],) * 2:
        shapes = f"v {tuple(v.shape)}, floor {tuple(floor.shape)}, target {tuple(target.shape)} and metric {tuple(metric.shape)}"
        raise ValueError(f"{shapes} do not fit: (R, c) thrice and (c, c)")
    if scale.dim() != 2 or scale.shape != zero.shape or scale.shape[0] != v.shape[0] or not scale.shape[1] or v.shape[1] % scale.shape[1]:
        raise ValueError(f"scale {tuple(scale.shape)} and zero {tuple(zero.shape)} must be ({v.shape[0]}, G) with G dividing {v.shape[1]}")
    if not 1 <= bits <= 8:
        raise ValueError(f"bits is {bits}, not 1 to 8")
    if not beta >= 1:
        raise ValueError(f"beta is {beta}, below 1, where the regulariser has no finite slope at its top")


@cache
def triton_kernels() -> tuple[Any]:
    """The kernel, found on first use: Triton is imported only where a kernel is."""
    from kernels import _rounding_triton

    return (_rounding_triton.objective,)


def tile(columns: int) -> dict[str, int]:
    """Sizes of a program's tile: 16 whole rows, and panels of the metric of 32 rows (32 KiB at 256 columns)."""
    return {"ROWS": 16, "BLOCK": max(16, next_power_of_two(columns)), "STEP": 32}


def warps(columns: int) -> int:
    """Of a program: with 8 at 256 columns each thread spills registers on sm_80 and sm_90."""
    return 8 if columns <= WIDEST // 2 else 16


@torch.no_grad()
def launch(
    v: torch.Tensor, floor: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, target: torch.Tensor, metric: torch.Tensor,
    *, bits: int, weight: float, beta: float,
) -> Objective:  # fmt: skip
    """The Triton kernel; shapes as ``reference``, at most 256 columns."""
    rows, columns = v.shape
    if columns > WIDEST:
        raise ValueError(f"a cluster of {columns} columns is wider than {WIDEST}")
    recon, regulariser = (torch.empty(rows, dtype=torch.float32, device=v.device) for _ in range(2))
    gradient, sizes = torch.empty(rows, columns, dtype=torch.float32, device=v.device), tile(columns)
    given = (x.contiguous() for x in (v, floor, scale, zero, target, metric))
    triton_kernels()[0][(-(-rows // sizes["ROWS"]),)](
        *given, recon, regulariser, gradient, rows, columns, scale.shape[1], float(2**bits - 1), float(weight), float(beta), num_warps=warps(columns), **sizes
    )
    return Objective(recon, regulariser, gradient)
