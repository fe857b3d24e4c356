"""One description of a kernel launch, read by the launcher, by the ahead-of-time compiler and by whoever tunes a schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Call:
    """kernel: the name of the jit function. arguments: tensors and numbers of the run. constants: its compile-time constants."""

    kernel: str
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    constants: Mapping[str, Any]
    num_warps: int = 4
    num_stages: int = 1


def run(kernels: Mapping[str, Any], calls: Iterable[Call]) -> None:
    """Launches the calls one after the other on the current stream."""
    for call in calls:
        kernels[call.kernel][call.grid](**call.arguments, **call.constants, num_warps=call.num_warps, num_stages=call.num_stages)


def next_power_of_two(number: int) -> int:
    """The smallest power of two that is not below the number; a tile's side must be one.

    >>> [next_power_of_two(n) for n in (1, 2, 3, 1000)]
    [1, 2, 4, 1024]
    """
    return 1 << (number - 1).bit_length()


def require_powers_of_two(**sides: int) -> None:
    """Raises ValueError naming the first side that is not a power of two."""
    for name, side in sides.items():
        if side < 1 or side & (side - 1):
            raise ValueError(f"{name} is {side}, not a power of two")


def require_no_gradient(name: str, *tensors: torch.Tensor | None) -> None:
    """Raises ValueError when a gradient is wanted of a kernel that has no backward pass."""
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
        raise ValueError(f"{name} has no backward pass; call it under torch.no_grad()")
