"""The objective of learned rounding with its gradient, at the sizes of small and large language models, against the same closed form in torch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from kernels import rounding
from tests.benchmarks.contest import TOLERANCE, Contest, Tensors
from tests.kernels.interpreted import draw_rounding


def draw(device: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensors:
    return tuple(x.to(device) for x in draw_rounding(shape, dtype, torch.Generator().manual_seed(0)))


def contests(device: str) -> Iterator[Contest]:
    ours, plain = (partial(form, bits=3, weight=1.0, beta=8.0) for form in (rounding.op, rounding.reference))  # half-way through the learning
    for dtype in TOLERANCE:
        for shape in ((1, 1, 1), (37, 48, 3), (1536, 96, 1), (4096, 256, 1)):
            yield Contest(f"rounding (R, c, G) = {shape}", dtype, partial(draw, device, dtype, shape), ours, plain, shape[0] > 1000)
