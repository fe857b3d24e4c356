"""LayerNorm against torch's own."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional

from kernels import layernorm
from tests.benchmarks.contest import Contest, row_contests


def plain(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, x.shape[-1:], weight, bias, layernorm.EPS)


def contests(device: str) -> Iterator[Contest]:
    return row_contests("layernorm", device, 2, layernorm.op, plain, layernorm.reference)
