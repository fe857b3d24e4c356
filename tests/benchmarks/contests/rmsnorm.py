"""RMSNorm against torch's own."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional

from kernels import rmsnorm
from tests.benchmarks.contest import Contest, row_contests


def plain(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, x.shape[-1:], weight, rmsnorm.EPS)


def contests(device: str) -> Iterator[Contest]:
    return row_contests("rmsnorm", device, 1, rmsnorm.op, plain, rmsnorm.reference)
