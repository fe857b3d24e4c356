"""Softmax against torch's own."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kernels import softmax
from tests.benchmarks.contest import Contest, row_contests


def plain(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(-1)


def contests(device: str) -> Iterator[Contest]:
    return row_contests("softmax", device, 0, softmax.op, plain, softmax.reference)
