"""Head-wise RMSNorm, forward and backward: y[n, h] = gamma * x[n, h] / sqrt(mean_i x[n, h, i]^2 + eps).

Source: head-wise RMSNorm of "The Structural Origin of Attention Sink" (arXiv 2605.06611). Shapes: x (..., H, D) with D at most 1024 on a
GPU; gamma (D), shared by the heads, or (H, D). Sums are in fp32 whatever the dtype of x.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from kernels import use_triton

EPS = 1e-6
ROWS = 16  # rows (position, head) of one program; at D = 64 a program holds 1024 numbers
PROGRAMS = 512  # programs of the backward pass, each with its own partial sum of gamma's gradient


def reference(x: torch.Tensor, gamma: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    """y (..., H, D) in the dtype of x; gamma: (D) or (H, D). Differentiable.

    >>> reference(torch.full((1, 2, 4), 3.0), torch.ones(4)).unique().round(decimals=4).tolist()
    [1.0]
    """
    wide = x.float()
    return (gamma.float() * wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


def op(x: torch.Tensor, gamma: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    """As ``reference``; on a CUDA device one fused kernel each way."""
    _check(x, gamma)
    return Fused.apply(x, gamma, eps) if use_triton(x) else reference(x, gamma, eps)


def _check(x: torch.Tensor, gamma: torch.Tensor) -> None:
    if x.dim() < 2 or gamma.shape not in (x.shape[-1:], x.shape[-2:]):
        raise ValueError(f"x {tuple(x.shape)} needs gamma of shape (D) or (H, D), not {tuple(gamma.shape)}")


@cache
def triton_kernels() -> tuple[Any, Any]:
    """(forward, backward), made on first use: Triton is imported only where a kernel is."""
    import triton
    import triton.language as tl

    @triton.jit
    def forward(
        x_ptr, gamma_ptr, y_ptr, rows, heads, eps, D: tl.constexpr, SHARED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
    ):
        row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, BLOCK)
        mask = (row < rows)[:, None] & (column < D)[None, :]
        at = row[:, None] * D + column[None, :]
        x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
        head = tl.zeros_like(row) if SHARED else row % heads
        gamma = tl.load(gamma_ptr + head[:, None] * D + column[None, :], mask=mask, other=0.0).to(tl.float32)
        scale = 1.0 / tl.sqrt(tl.sum(x * x, 1) / D + eps)
        tl.store(y_ptr + at, (x * scale[:, None] * gamma).to(y_ptr.dtype.element_ty), mask=mask)

    @triton.jit
    def backward(
        x_ptr, gamma_ptr, dy_ptr, dx_ptr, dgamma_ptr, positions, heads, eps,
        D: tl.constexpr, SHARED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        # Program (i, h) walks the positions of one head, so that gamma's gradient needs no atomic addition and is the same in every run.
        head, step = tl.program_id(1), tl.num_programs(0) * ROWS
        column = tl.arange(0, BLOCK)
        inside = column < D
        gamma = tl.load(gamma_ptr + (0 if SHARED else head * D) + column, mask=inside, other=0.0).to(tl.float32)
        dgamma = tl.zeros((BLOCK,), tl.float32)
        for first in range(tl.program_id(0) * ROWS, positions, step):
            position = first + tl.arange(0, ROWS)
            mask = (position < positions)[:, None] & inside[None, :]
            at = (position.to(tl.int64) * heads + head)[:, None] * D + column[None, :]
            x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
            dy = tl.load(dy_ptr + at, mask=mask, other=0.0).to(tl.float32)
            scale = 1.0 / tl.sqrt(tl.sum(x * x, 1) / D + eps)
            unit = x * scale[:, None]
            dgamma += tl.sum(dy * unit, 0)
            du = dy * gamma[None, :]
            dx = (du - unit * (tl.sum(du * unit, 1) / D)[:, None]) * scale[:, None]
            tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        tl.store(dgamma_ptr + (tl.program_id(0) * heads + head) * D + column, dgamma, mask=inside)

    return forward, backward


def launch_forward(x: torch.Tensor, gamma: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    """y of the Triton kernel; x must be contiguous."""
    heads, width = x.shape[-2:]
    rows, y = x.numel() // width, torch.empty_like(x)
    block = 1 << (width - 1).bit_length()
    triton_kernels()[0][(-(-rows // ROWS),)](x, gamma.contiguous(), y, rows, heads, eps, D=width, SHARED=gamma.dim() == 1, ROWS=ROWS, BLOCK=block)
    return y


def launch_backward(x: torch.Tensor, gamma: torch.Tensor, dy: torch.Tensor, eps: float = EPS) -> tuple[torch.Tensor, torch.Tensor]:
    """(dx, dgamma) of the Triton kernel; x and dy must be contiguous."""
    heads, width = x.shape[-2:]
    positions, dx = x.numel() // (heads * width), torch.empty_like(x)
    programs = max(1, min(-(-positions // ROWS), PROGRAMS // heads))
    partial = torch.empty(programs, heads, width, dtype=torch.float32, device=x.device)
    block, shared = 1 << (width - 1).bit_length(), gamma.dim() == 1
    kernel = triton_kernels()[1]
    kernel[(programs, heads)](x, gamma.contiguous(), dy, dx, partial, positions, heads, eps, D=width, SHARED=shared, ROWS=ROWS, BLOCK=block)
    return dx, partial.sum((0, 1) if shared else 0).to(gamma.dtype)


class Fused(torch.autograd.Function):
    """The two kernels as one differentiable operation: ``Fused.apply(x, gamma, eps)``."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, gamma: torch.Tensor, eps: float) -> torch.Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x, gamma)
        ctx.eps = eps
        return launch_forward(x, gamma, eps)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        x, gamma = ctx.saved_tensors
        return *launch_backward(x, gamma, gradients[0].contiguous(), ctx.eps), None
