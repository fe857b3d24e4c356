"""Names the shape of a mask: the nearest of many drawn outlines."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy import ndimage

from backends.runtime.scenes.shapes import SHAPES, coverage

SIDE = 24  # masks are compared on a grid of SIDE x SIDE, centred and scaled to equal area
SPREAD = 2.2  # half the grid's side in root-mean-square radii of the mask


def normalised(mask: np.ndarray) -> np.ndarray:
    """A mask (H, W) moved to its centre of mass and scaled to a fixed mean radius: (SIDE, SIDE) floats in 0 to 1, so that only the outline counts."""
    rows, columns = np.nonzero(mask > 0.5)
    if not rows.size:
        return np.zeros((SIDE, SIDE), np.float32)
    radius = SPREAD * max(1.0, float(np.sqrt(rows.var() + columns.var())))
    line = ((np.arange(SIDE) + 0.5) / SIDE * 2 - 1) * radius
    at = np.meshgrid(rows.mean() + line, columns.mean() + line, indexing="ij")
    return ndimage.map_coordinates(mask.astype(np.float32), at, order=1, mode="constant")


class ShapeJudge:
    """Nearest neighbour among outlines of every shape, turned from -10 to 10 degrees.

    >>> ShapeJudge()(coverage("star", 64, 0.5, 0.5, 0.3) > 0.5)
    'star'
    """

    def __init__(self) -> None:
        self._names, self._outlines = _examples()

    def distances(self, mask: np.ndarray) -> dict[str, float]:
        """Least mean squared difference between the mask's outline and each shape's."""
        error = ((self._outlines - normalised(mask)) ** 2).mean(axis=(1, 2))
        return {shape: float(error[self._names == shape].min()) for shape in SHAPES}

    def __call__(self, mask: np.ndarray) -> str:
        """The shape whose outline is nearest."""
        found = self.distances(mask)
        return min(found, key=found.__getitem__)


@cache
def _examples() -> tuple[np.ndarray, np.ndarray]:
    drawn = [(shape, normalised(coverage(shape, 64, 0.5, 0.5, r, a))) for shape in SHAPES for r in (0.24, 0.34) for a in (-10, -5, 0, 5, 10)]
    return np.array([name for name, _ in drawn]), np.stack([outline for _, outline in drawn])
