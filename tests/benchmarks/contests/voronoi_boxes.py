"""Classing and weighing boxes in one pass, against the products over boxes, cells and variables held in memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from kernels import voronoi_boxes
from tests.benchmarks.contest import Contest, Tensors
from tests.kernels.interpreted import draw_boxes


def draw(device: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensors:
    return tuple(x.to(device) for x in draw_boxes(shape, dtype, torch.Generator().manual_seed(0)))


def contests(device: str) -> Iterator[Contest]:
    # The errors of classes and masses are judged as one: a class that differs is an error of 1.
    for dtype in (torch.float64, torch.float32):
        for shape in ((1, 1, 1, 1), (1000, 5, 4, 3), (200_000, 16, 1, 2), (200_000, 64, 4, 6)):
            timed = shape[0] > 1000 and dtype == torch.float64
            name = "voronoi_boxes M={} K={} C={} d={}".format(*shape)
            yield Contest(f"{name} {dtype}", torch.float32, partial(draw, device, dtype, shape), voronoi_boxes.op, voronoi_boxes.reference, timed)
