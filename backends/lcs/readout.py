"""Colours measured on pictures, and the peers of the subspace's cone: an affine read-out of the same coordinates, and recolouring afterwards."""

from __future__ import annotations

import colorsys
from dataclasses import dataclass

import numpy as np
import torch
from skimage.color import rgb2hsv
from skimage.transform import resize

from backends.lcs.solids import to_rgb
from backends.runtime import scenes
from kernels import lcs as kernel

Array = np.ndarray
AGREES = 0.4  # overlap above which the segmenter and the attention mean one object


@dataclass(frozen=True, slots=True)
class AffineReadout:
    """RGB = C W + w0, fitted on the solids: no cone, no hue. W (3, 3), w0 (3,)."""

    weights: Array
    offset: Array

    @classmethod
    def fit(cls, coordinates: Array, rgb: Array) -> AffineReadout:
        """Least squares; coordinates, rgb: (n, 3), rgb in [0, 1]."""
        solution = np.linalg.lstsq(np.column_stack([coordinates, np.ones(len(coordinates))]), rgb, rcond=None)[0]
        return cls(solution[:3], solution[3])

    def rgb(self, coordinates: Array) -> Array:
        """(..., 3) in [0, 1]."""
        return np.clip(coordinates @ self.weights + self.offset, 0, 1)


@dataclass(frozen=True, slots=True)
class Difference:
    """A picture's mean colour against the wanted one. color: "#rrggbb"; delta_e: CIEDE2000; delta_h in degrees, delta_s and delta_l 0 to 1."""

    color: str
    delta_e: float
    delta_h: float
    delta_s: float
    delta_l: float


def hsl_of(color: str) -> tuple[float, float, float]:
    """(h, s, l) in [0, 1] of "#rrggbb".

    >>> hsl_of("#00ffff")
    (0.5, 1.0, 0.5)
    """
    hue, lightness, saturation = colorsys.rgb_to_hls(*to_rgb(color))
    return hue, saturation, lightness


def hex_of(rgb: Array) -> str:
    """ "#rrggbb" of a colour (3,) in [0, 1]."""
    return "#" + "".join(f"{round(255 * float(np.clip(v, 0, 1))):02x}" for v in rgb)


def mean_rgb(picture: Array, region: Array | None = None) -> Array:
    """Mean sRGB (3,) in [0, 1] of a picture (H, W, 3) uint8, over a region (H, W) bool."""
    return np.asarray((picture if region is None else picture[region]).reshape(-1, 3).mean(0) / 255)


def cell_rgb(picture: Array, grid: tuple[int, int]) -> Array:
    """Mean sRGB (L, 3) in [0, 1] of each token's square; grid: (height, width) in tokens."""
    (height, width), (rows, columns) = picture.shape[:2], grid
    return np.asarray(picture.reshape(rows, height // rows, columns, width // columns, 3).mean((1, 3)).reshape(-1, 3) / 255)


def difference(rgb: Array, color: str) -> Difference:
    """A mean colour (3,) in [0, 1] against "#rrggbb"."""
    shown = hex_of(rgb)
    wanted, hue, lightness, saturation = hsl_of(color), *colorsys.rgb_to_hls(*(float(v) for v in rgb))
    turn = abs((hue - wanted[0] + 0.5) % 1 - 0.5)
    return Difference(shown, float(scenes.delta_e(rgb, np.asarray(to_rgb(color)))), 360 * turn, abs(saturation - wanted[1]), abs(lightness - wanted[2]))


def recolour(picture: Array, color: str, region: Array) -> Array:
    """The finished picture with the region's HSL means moved to a colour: what steering is not. (H, W, 3) uint8."""
    hsv = rgb2hsv(picture[region] / 255)
    lightness = hsv[:, 2] * (1 - hsv[:, 1] / 2)
    room = np.minimum(lightness, 1 - lightness)
    saturation = np.divide(hsv[:, 2] - lightness, room, out=np.zeros_like(room), where=room > 0)
    hue, target = 2 * np.pi * hsv[:, 0], hsl_of(color)
    mean = np.arctan2(np.sin(hue).mean(), np.cos(hue).mean()) / (2 * np.pi)
    moved = np.stack((hsv[:, 0] + target[0] - mean, saturation + target[1] - saturation.mean(), lightness + target[2] - lightness.mean()), -1)
    moved[:, 1:] = moved[:, 1:].clip(0, 1)
    out = picture.copy()
    out[region] = np.round(255 * kernel.to_rgb(torch.from_numpy(moved)).numpy().clip(0, 1)).astype(np.uint8)
    return out


def measured_region(picture: Array, mask: Array | None, grid: tuple[int, int]) -> tuple[Array, float | None]:
    """Where colours are compared (H, W) bool, and how well the mask (L,) and the segmenter agree on this picture (intersection over union).

    The whole picture without a mask; the object that the segmenter finds where it is the one that the mask means; else the mask's own cells.
    """
    if mask is None:
        return np.ones(picture.shape[:2], bool), None
    cells = resize(mask.reshape(grid), picture.shape[:2], order=0)
    found = scenes.segment(picture)
    agreement = scenes.overlap(cells, found)
    return (found if agreement >= AGREES else cells), agreement
