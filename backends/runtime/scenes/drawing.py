"""Draws random scenes: walls, solids and gradients, one shape, two shapes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from backends.runtime.scenes.captions import caption
from backends.runtime.scenes.colours import COLOURS, Rgb, delta_e, nearest_name, vary
from backends.runtime.scenes.scene import Background, Scene, Thing
from backends.runtime.scenes.shapes import SHAPES

LEFT_OUT = 0.4  # share of captions without the colour word; drawn for thing and background apart
FREE = 0.4  # share of the untold colours that are any sRGB colour and not near a named one
APART = 25.0  # least CIEDE2000 between a thing and what it lies on
TEXTURE_SHARES = {"plain": 0.5, "graded": 0.3, "striped": 0.06, "rough": 0.07, "brick": 0.07}  # below a shape
_NAMES = tuple(COLOURS)


def _any_colour(rng: np.random.Generator) -> Rgb:
    r, g, b = rng.random(3).tolist()
    return r, g, b


def _colour(rng: np.random.Generator, away_from: list[Rgb]) -> tuple[Rgb, str, bool]:
    """A colour, its name and whether the caption tells it, at least APART from those given (the farthest of a few draws if none is)."""
    named = bool(rng.random() >= LEFT_OUT)
    free = not named and rng.random() < FREE
    names = [""] * 12 if free else [_NAMES[i] for i in rng.integers(len(_NAMES), size=12)]
    colours = [vary(name, rng) if name else _any_colour(rng) for name in names]
    at = 0
    if away_from:
        distance = delta_e(np.array(colours)[:, None], np.array(away_from)[None]).min(axis=1)
        at = int(np.argmax(distance >= APART)) if distance.max() >= APART else int(np.argmax(distance))
    return colours[at], names[at] or nearest_name(colours[at]), named


def _background(rng: np.random.Generator, shares: dict[str, float]) -> Background:
    colour, name, named = _colour(rng, [])
    return Background(str(rng.choice(list(shares), p=list(shares.values()))), colour, name, named)


def _finished(scene: Scene, rng: np.random.Generator) -> Scene:
    return replace(scene, caption=caption(scene, rng), seed=int(rng.integers(2**31)))


def draw_wall(rng: np.random.Generator, size: int = 64) -> Scene:
    """A wall without things, of any texture."""
    return _finished(Scene(_background(rng, dict.fromkeys(TEXTURE_SHARES, 1 / len(TEXTURE_SHARES))), size=size), rng)


def draw_solid(rng: np.random.Generator, size: int = 64) -> Scene:
    """One even colour or a gradient of two, drawn evenly from sRGB; the caption is empty."""
    first = _any_colour(rng)
    return _finished(Scene(Background("plain", first, second=first if rng.random() < 0.5 else _any_colour(rng)), size=size), rng)


def draw_one(rng: np.random.Generator, size: int = 64) -> Scene:
    """One shape on a wall, radius 0.22 to 0.38 of the side."""
    background = _background(rng, TEXTURE_SHARES)
    colour, name, named = _colour(rng, [background.colour])
    radius = float(rng.uniform(0.22, 0.38))
    x, y = 0.5 + (0.47 - radius) * 0.7 * rng.uniform(-1, 1, 2)
    thing = Thing(str(rng.choice(SHAPES)), colour, float(x), float(y), radius, float(rng.uniform(-10, 10)), name, named)
    return _finished(Scene(background, (thing,), size=size), rng)


def draw_two(rng: np.random.Generator, size: int = 64) -> Scene:
    """Two different shapes beside or above one another, in colours that differ from the wall's and from each other's."""
    background = _background(rng, TEXTURE_SHARES)
    kinds = rng.choice(SHAPES, 2, replace=False)
    upright = bool(rng.random() < 0.5)
    things: list[Thing] = []
    for number, shape in enumerate(kinds):
        colour, name, named = _colour(rng, [background.colour, *(t.colour for t in things)])
        along, across = (0.27, 0.73)[number] + rng.uniform(-0.03, 0.03), 0.5 + rng.uniform(-0.12, 0.12)
        x, y = (across, along) if upright else (along, across)
        things.append(Thing(str(shape), colour, float(x), float(y), float(rng.uniform(0.16, 0.22)), float(rng.uniform(-10, 10)), name, named))
    if rng.random() < 0.5:
        things.reverse()
    return _finished(Scene(background, tuple(things), size=size), rng)


def draw(rng: np.random.Generator, size: int = 64) -> Scene:
    """A scene of the training mixture: 15 % walls, 10 % solids and gradients, 60 % one shape, 15 % two."""
    kind = rng.random()
    maker = draw_wall if kind < 0.15 else draw_solid if kind < 0.25 else draw_one if kind < 0.85 else draw_two
    return maker(rng, size)
