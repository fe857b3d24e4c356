"""Seven shapes as outlines, and the share of each pixel that a shape covers."""

from __future__ import annotations

from functools import cache

import numpy as np
from PIL import Image, ImageDraw

SHAPES = ("circle", "square", "triangle", "star", "ring", "cross", "heart")

_FINE = 4  # the outline is filled on a grid this many times finer, then averaged: soft edges without a formula for each shape


def _polar(angles: np.ndarray, radii: np.ndarray | float) -> np.ndarray:
    return np.stack([np.sin(angles) * radii, -np.cos(angles) * radii], axis=-1)


@cache
def outline(shape: str) -> tuple[np.ndarray, ...]:
    """The contours of a shape of radius 1 about the origin, each (N, 2) as x to the right, y down; a second contour is a hole.

    >>> [c.shape for c in outline("square")]
    [(4, 2)]
    """
    turn = np.linspace(0, 2 * np.pi, 64, endpoint=False)
    if shape == "circle":
        return (_polar(turn, 0.95),)
    if shape == "ring":
        return (_polar(turn, 1.0), _polar(turn, 0.55))
    if shape == "square":
        return (0.82 * np.array([[-1.0, -1], [1, -1], [1, 1], [-1, 1]]),)
    if shape == "triangle":
        return (np.array([0, 0.2]) + _polar(np.arange(3) * 2 * np.pi / 3, 1.1),)
    if shape == "star":
        return (_polar(np.arange(10) * np.pi / 5, np.tile([1.08, 0.45], 5)),)
    if shape == "cross":
        a, b = 1.0, 0.34
        return (np.array([[-b, -a], [b, -a], [b, -b], [a, -b], [a, b], [b, b], [b, a], [-b, a], [-b, b], [-a, b], [-a, -b], [-b, -b]]),)
    if shape == "heart":
        x, y = 16 * np.sin(turn) ** 3, 13 * np.cos(turn) - 5 * np.cos(2 * turn) - 2 * np.cos(3 * turn) - np.cos(4 * turn)
        return (np.stack([x, -y - 2.5], axis=-1) / 15.5,)
    raise ValueError(f"no shape {shape!r}; there are {', '.join(SHAPES)}")


def coverage(shape: str, size: int, x: float, y: float, radius: float, angle: float = 0.0) -> np.ndarray:
    """The share (size, size) of each pixel that the shape covers, 0 to 1.

    x, y, radius: shares of the side, the centre from the upper left corner. angle: degrees clockwise.
    """
    a = np.deg2rad(angle)
    turn = np.array([[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]])
    fine = size * _FINE
    picture = Image.new("L", (fine, fine))
    draw = ImageDraw.Draw(picture)
    for number, contour in enumerate(outline(shape)):
        points = (contour @ turn * radius + [x, y]) * fine - 0.5
        draw.polygon([tuple(p) for p in points.tolist()], fill=0 if number else 255)
    return np.asarray(picture.reduce(_FINE), np.float32) / 255
