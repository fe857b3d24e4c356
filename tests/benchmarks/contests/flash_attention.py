"""Attention against torch's scaled_dot_product_attention."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch.nn import functional

from kernels import flash_attention
from tests.benchmarks.contest import TOLERANCE, Contest, drawing


def contests(device: str) -> Iterator[Contest]:
    for dtype in TOLERANCE:
        for shape in ((1, 1, 1, 1), (2, 3, 201, 20), (1, 2, 300, 200), (2, 16, 2048, 64)):
            for causal in (False, True):
                ours, reference = (partial(f, causal=causal) for f in (flash_attention.op, flash_attention.reference))
                plain = partial(functional.scaled_dot_product_attention, is_causal=causal)
                timed = causal and shape[2] > 1000 and dtype != torch.float16
                name = f"flash_attention {shape}{' causal' if causal else ''}"
                yield Contest(name, dtype, drawing(device, dtype, *[shape] * 3), ours, plain, timed, reference)
