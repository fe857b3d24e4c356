"""Products with packed weights of 3 and 4 bits, one row and many, against weights that were unpacked beforehand and lie in memory in full."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from kernels import dequant_matmul
from kernels.dequant_matmul import Packed
from tests.benchmarks.contest import TOLERANCE, Contest, Tensors
from tests.kernels.interpreted import draw_packed


def draw(device: str, dtype: torch.dtype, shape: tuple[int, ...], bits: int) -> Tensors:
    """x, words, scale, zero and the full weights in the dtype of x; shape (M, N, K, G)."""
    generator = torch.Generator().manual_seed(0)
    packed = draw_packed(shape[1:], bits, generator)
    x = torch.randn(shape[0], shape[2], generator=generator).to(dtype)
    given = (x, packed.words, packed.scale, packed.zero, dequant_matmul.dequantise(packed).to(dtype))
    return tuple(tensor.to(device) for tensor in given)


def packed_product(bits: int, x: torch.Tensor, words: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, full: torch.Tensor) -> torch.Tensor:
    return dequant_matmul.op(x, Packed(words, scale, zero, bits, full.shape[1]))


def full_product(x: torch.Tensor, words: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, full: torch.Tensor) -> torch.Tensor:
    return x @ full.T


def contests(device: str) -> Iterator[Contest]:
    for dtype in TOLERANCE:
        for bits in (3, 4):
            for shape in ((1, 1, 1, 1), (3, 21, 150, 3), (37, 67, 96, 1), (1, 4096, 4096, 16), (2048, 4096, 4096, 16)):
                timed = shape[1] > 1000 and dtype != torch.float32
                make = partial(draw, device, dtype, shape, bits)
                yield Contest(f"dequant_matmul {bits} bits (M, N, K, G) = {shape}", dtype, make, partial(packed_product, bits), full_product, timed)
