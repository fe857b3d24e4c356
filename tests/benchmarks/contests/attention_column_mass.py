"""Attention that also returns the mass of each key, up to a length at which plain torch still fits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from kernels import attention_column_mass
from tests.benchmarks.contest import TOLERANCE, Contest, Tensors


def draw(device: str, dtype: torch.dtype, batch: int, heads: int, groups: int, length: int, width: int) -> Tensors:
    """q, k, v of this type and gamma in fp32."""
    generator = torch.Generator(device).manual_seed(0)
    q = torch.randn(batch, heads, length, width, generator=generator, device=device).to(dtype)
    k, v = (torch.randn(batch, groups, length, width, generator=generator, device=device).to(dtype) for _ in range(2))
    return q, k, v, torch.rand(heads, width, generator=generator, device=device)


def ours(isolate: list[int], q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gamma: torch.Tensor) -> Tensors:
    return attention_column_mass.op(q, k, v, isolate=isolate, gamma=gamma)


def plain(isolate: list[int], q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gamma: torch.Tensor) -> Tensors:
    return attention_column_mass.reference(q, k, v, isolate=isolate, gamma=gamma)


def contests(device: str) -> Iterator[Contest]:
    for dtype in TOLERANCE:
        for sizes in ((1, 1, 1, 1, 1), (2, 6, 3, 201, 20), (1, 9, 3, 4096, 64), (1, 8, 8, 4096, 128)):
            batch, heads, groups, length, width = sizes
            isolate = sorted({length // 2, length - 1})
            name = f"attention_column_mass B={batch} H={heads} G={groups} T={length} D={width}"
            yield Contest(name, dtype, partial(draw, device, dtype, *sizes), partial(ours, isolate), partial(plain, isolate), length >= 4096)
