"""Reading and steering colour, fused, against the many small operations of plain torch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from kernels import lcs
from tests.benchmarks.contest import TOLERANCE, Contest, Tensors
from tests.kernels.interpreted import double_cone


def draw(device: str, dtype: torch.dtype, pictures: int, length: int) -> Tensors:
    """Tokens of this type, a mask, and how each picture moves."""
    generator = torch.Generator().manual_seed(0)
    x = (5 * torch.randn(pictures, length, 64, generator=generator)).to(device, dtype)
    mask = torch.rand(pictures, length, generator=generator) < 0.6
    moves = 3 * torch.randn(pictures, 3, generator=generator), torch.rand(pictures, 3, generator=generator) - 0.5
    return x, mask.to(device), *(move.to(device) for move in moves)


def both(device: str, fused: bool, x: torch.Tensor, mask: torch.Tensor, shift: torch.Tensor, turn: torch.Tensor) -> Tensors:
    """(coordinates, steered tokens). HSL and RGB have a looser tolerance of their own and are held by the interpreter's tests."""
    plane, cone = (type(part)(*(value.to(device) for value in part)) for part in double_cone(torch.Generator().manual_seed(1)))
    observe, steer = (lcs.observe, lcs.steer) if fused else (lcs.observe_reference, lcs.steer_reference)
    return observe(x, plane, cone, clip=True).coordinates, steer(x, mask, plane, cone, lcs.Move(shift, turn, 0.3), clip=True)


def contests(device: str) -> Iterator[Contest]:
    for dtype in TOLERANCE:
        for pictures, length in ((1, 1), (3, 17), (8, 4096)):
            make = partial(draw, device, dtype, pictures, length)
            yield Contest(f"lcs observe + steer N={pictures} L={length}", dtype, make, partial(both, device, True), partial(both, device, False), length > 1000)
