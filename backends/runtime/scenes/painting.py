"""Paints a scene: the textured wall, a soft shadow under each shape, and light that falls from the upper left."""

from __future__ import annotations

from functools import cache

import numpy as np
from PIL import Image, ImageFilter

from backends.runtime.scenes.colours import Rgb
from backends.runtime.scenes.scene import Background, Rendered, Scene
from backends.runtime.scenes.shapes import coverage

LIGHT = 0.10  # how much lighter the lit end of a shape is, in sRGB units
SHADOW = 0.30  # share of light that a full shadow takes
CONTRAST = {"plain": 0.0, "graded": 0.10, "striped": 0.07, "rough": 0.05, "brick": 0.07}  # of a texture about its colour, in sRGB units


@cache
def _grid(size: int) -> tuple[np.ndarray, np.ndarray]:
    """x and y of the pixel centres, (size, size) each, -1 to 1."""
    line = ((np.arange(size) + 0.5) / size * 2 - 1).astype(np.float32)
    return np.broadcast_to(line[None], (size, size)), np.broadcast_to(line[:, None], (size, size))


def _pattern(texture: str, size: int, rng: np.random.Generator) -> np.ndarray:
    """A pattern (size, size) of about unit amplitude and mean near zero, so that a texture keeps the mean colour of its wall."""
    x, y = _grid(size)
    if texture == "plain":
        return np.zeros((size, size), np.float32)
    angle = rng.uniform(0, 2 * np.pi)
    along = np.cos(angle) * x + np.sin(angle) * y
    if texture == "graded":
        return along
    if texture == "striped":
        return np.clip(3 * np.sin(along * np.pi * rng.uniform(2.5, 4.5) + rng.uniform(0, 6)), -1, 1)
    if texture == "rough":
        noise = Image.fromarray(rng.integers(0, 256, (size, size), dtype=np.uint8)).filter(ImageFilter.GaussianBlur(size / 64))
        pattern = np.asarray(noise, np.float32)
        return (pattern - pattern.mean()) / (2 * pattern.std())
    if texture == "brick":
        rows = (y + 1) * rng.uniform(3, 4)
        columns = (x + 1) * rng.uniform(1.6, 2.4) + 0.5 * (np.floor(rows) % 2)
        joint = (rows % 1 < 0.16) | (columns % 1 < 0.09)
        return np.where(joint, 1.0, -joint.mean() / (1 - joint.mean())).astype(np.float32)
    raise ValueError(f"no texture {texture!r}; there are {', '.join(CONTRAST)}")


def _array(colour: Rgb) -> np.ndarray:
    return np.asarray(colour, np.float32)


def _wall(background: Background, size: int, rng: np.random.Generator) -> np.ndarray:
    if background.second is not None:
        share = (_pattern("graded", size, rng) / 2**0.5 + 1)[..., None] / 2
        return (1 - share) * _array(background.colour) + share * _array(background.second)
    pattern = _pattern(background.texture, size, rng)[..., None]
    return _array(background.colour) + CONTRAST[background.texture] * pattern


def render(scene: Scene) -> Rendered:
    """The picture of a scene, its truth and its caption. The same scene gives the same picture.

    Raises ValueError for a shape or a texture that there is not.
    """
    size = scene.size
    x, y = _grid(size)
    canvas = _wall(scene.background, size, np.random.default_rng(scene.seed))
    cover = np.zeros((len(scene.things), size, size), np.float32)
    for number, thing in enumerate(scene.things):
        here = coverage(thing.shape, size, thing.x, thing.y, thing.radius, thing.angle)
        drop = 0.12 * thing.radius
        cast = Image.fromarray((255 * coverage(thing.shape, size, thing.x + drop, thing.y + drop, thing.radius, thing.angle)).astype(np.uint8))
        shade = np.asarray(cast.filter(ImageFilter.GaussianBlur(size * 0.1 * thing.radius)), np.float32)[..., None] / 255
        light = -((x - 2 * thing.x + 1) + (y - 2 * thing.y + 1)) / (4 * thing.radius)
        lit = _array(thing.colour) + LIGHT * np.clip(light, -1, 1)[..., None]
        canvas = canvas * (1 - SHADOW * shade)
        canvas += here[..., None] * (lit - canvas)
        cover[:number] *= 1 - here
        cover[number] = here
    return Rendered((np.clip(canvas, 0, 1) * 255 + 0.5).astype(np.uint8), cover, scene.caption)
