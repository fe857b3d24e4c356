"""Head-wise RMSNorm, forward and backward, at the sizes of small and large language models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from kernels import headwise_rmsnorm
from tests.benchmarks.contest import TOLERANCE, Contest, Tensors


def both_ways(norm: Callable[..., torch.Tensor], x: torch.Tensor, gamma: torch.Tensor, dy: torch.Tensor) -> Tensors:
    """(y, dx, dgamma)."""
    x, gamma = x.detach().requires_grad_(), gamma.detach().requires_grad_()
    y = norm(x, gamma)
    return y.detach(), *torch.autograd.grad(y, (x, gamma), dy)


def draw(device: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensors:
    """x and dy of this type; gamma stays in fp32, as a trained model keeps it."""
    generator = torch.Generator(device).manual_seed(0)
    x, dy = (torch.randn(shape, generator=generator, device=device).to(dtype) for _ in range(2))
    return x, torch.randn(shape[-2:], generator=generator, device=device), dy


def contests(device: str) -> Iterator[Contest]:
    ours, plain = partial(both_ways, headwise_rmsnorm.op), partial(both_ways, headwise_rmsnorm.reference)
    for dtype in TOLERANCE:
        for shape, timed in (((1, 1, 1, 1), False), ((1, 37, 3, 20), False), ((4, 4096, 12, 64), True), ((2, 4096, 32, 128), True)):
            yield Contest(f"headwise_rmsnorm forward + backward {shape}", dtype, partial(draw, device, dtype, shape), ours, plain, timed)
