"""Counting the probes in which two candidates differ, for all pairs, against the comparison held in memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from kernels import pairwise_mismatch
from tests.benchmarks.contest import Contest, Tensors


def draw(device: str, candidates: int, probes: int) -> Tensors:
    generator = torch.Generator(device).manual_seed(0)
    return (torch.randint(-2, 4, (candidates, probes), generator=generator, device=device, dtype=torch.int32),)


def plain(codes: torch.Tensor) -> torch.Tensor:
    return (codes[:, None] != codes[None]).sum(-1, dtype=torch.int32)


def contests(device: str) -> Iterator[Contest]:
    for candidates, probes in ((1, 1), (37, 1000), (2000, 40), (2000, 400)):
        make = partial(draw, device, candidates, probes)
        yield Contest(f"pairwise_mismatch N={candidates} P={probes}", torch.float32, make, pairwise_mismatch.op, plain, candidates > 1000)
