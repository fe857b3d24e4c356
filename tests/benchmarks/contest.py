"""One operation at one size: our op, what it must give, and the plain torch that it is timed against."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

import kernels
from tests.kernels.interpreted import relative

Tensors = tuple[torch.Tensor, ...]
Function = Callable[..., torch.Tensor | Tensors]
# Relative to the largest entry. fp32 products are exact products here, but sums run in another order.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2**-7}


@dataclass(frozen=True, slots=True)
class Contest:
    """make: draws the inputs. ours, plain and reference take them; plain: the rival as torch offers it.

    reference: what must come out, where that is not what ``plain`` gives.
    """

    name: str
    dtype: torch.dtype
    make: Callable[[], Tensors]
    ours: Function
    plain: Function
    timed: bool = False
    reference: Function | None = None

    def error(self) -> float:
        """Largest error over the largest true entry (at least 1), over all outputs."""
        given = self.make()
        pairs = zip(_tuple(self.ours(*given)), _tuple((self.reference or self.plain)(*given)), strict=True)
        return max(relative(found, wanted) for found, wanted in pairs)


def _tuple(value: torch.Tensor | Tensors) -> Tensors:
    return (value,) if isinstance(value, torch.Tensor) else value


def drawing(device: str, dtype: torch.dtype, *shapes: tuple[int, ...]) -> Callable[[], Tensors]:
    """Draws normal tensors of these shapes when called, each time the same."""

    def draw() -> Tensors:
        generator = torch.Generator(device).manual_seed(0)
        return tuple(torch.randn(shape, generator=generator, device=device).to(dtype) for shape in shapes)

    return draw


def row_contests(name: str, device: str, vectors: int, ours: Function, plain: Function, reference: Function) -> Iterator[Contest]:
    """Contests of a kernel over the rows of a matrix, which takes so many vectors beside it: one number, odd widths, a width beyond the registers."""
    for dtype in TOLERANCE:
        for shape in ((1, 1), (37, 1000), (3, 20_000), (16_384, 4096)):
            timed = shape[0] > 1000 and dtype != torch.float16
            make = drawing(device, dtype, shape, *[shape[-1:]] * vectors)
            yield Contest(f"{name} {shape}", dtype, make, ours, plain, timed, reference)


def kernel_names() -> list[str]:
    """Every module of kernels/ that holds a Triton kernel beside its reference."""
    folder = Path(str(kernels.__file__)).parent
    return sorted(path.stem for path in folder.glob("*.py") if "\ndef triton_kernels(" in path.read_text())


def contests(name: str, device: str) -> Iterator[Contest]:
    """The contests of one kernel, of ``contests(device)`` in ``tests/benchmarks/contests/<kernel>.py``."""
    yield from importlib.import_module(f"tests.benchmarks.contests.{name}").contests(device)
