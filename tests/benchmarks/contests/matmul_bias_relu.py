"""A linear layer with ReLU against torch's product and its epilogue; fp32 products are exact on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from kernels import matmul_bias_relu
from kernels.matmul_bias_relu import MatmulSchedule
from tests.benchmarks.contest import TOLERANCE, Contest, drawing

SPLIT = MatmulSchedule(split_k=4, fused=False, columns_first=True)


def plain(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.addmm(bias, a, b).relu()


def reference(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """In fp32, because torch rounds a product in half precision before the bias is added."""
    return matmul_bias_relu.reference(a.float(), b.float(), bias.float())


def contests(device: str) -> Iterator[Contest]:
    for dtype in TOLERANCE:
        for m, n, k in ((1, 1, 1), (131, 67, 259), (4096, 4096, 4096)):
            make = drawing(device, dtype, (m, k), (k, n), (n,))
            timed = m > 1000 and dtype != torch.float16
            yield Contest(f"matmul_bias_relu {(m, n, k)}", dtype, make, matmul_bias_relu.op, plain, timed, reference)
            yield Contest(f"matmul_bias_relu {(m, n, k)} split", dtype, make, partial(matmul_bias_relu.op, schedule=SPLIT), plain, False, reference)
