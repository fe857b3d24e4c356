"""Draws random scenes: walls, solids and gradients, one shape, two shapes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from backends.runtime.scenes.captions import caption
from backends.runtime.scenes.colours import COLOURS, Rgb, delta_e, nearest_name, vary
from backends.runtime.scenes.long_captions import long_caption
from backends.runtime.scenes.scene import Background, Scene, Thing
from backends.runtime.scenes.shapes import SHAPES

LEFT_OUT = 0.4  # share of captions without the colour word; drawn for thing and background apart
FREE = 0.4  # share of the untold colours that are any sRGB colour and not near a named one
APART = 25.0  # least CIEDE2000 between a thing and what it lies on
TEXTURE_SHARES = {"plain": 0.6, "graded": 0.28, "striped": 0.04, "rough": 0.04, "brick": 0.04}  # below a shape
_NAMES = tuple(COLOURS)


def _any_colour(rng: np.random.Generator) -> Rgb:
    r, g, b = rng.random(3).tolist()
    return r, g, b


def _colour(rng: np.random.Generator, away_from: list[Rgb], told: bool = False) -> tuple[Rgb, str, bool]:
    """A colour, its name and whether the caption tells it, at least APART from those given (the farthest of a few draws if none is)."""
    named = bool(rng.random() >= LEFT_OUT) or told
    free = not named and rng.random() < FREE
    names = [""] * 12 if free else [_NAMES[i] for i in rng.integers(len(_NAMES), size=12)]
    colours = [vary(name, rng) if name else _any_colour(rng) for name in names]
    at = 0
    if away_from:
        distance = delta_e(np.array(colours)[:, None], np.array(away_from)[None]).min(axis=1)
        at = int(np.argmax(distance >= APART)) if distance.max() >= APART else int(np.argmax(distance))
    return colours[at], names[at] or nearest_name(colours[at]), named


def _background(rng: np.random.Generator, shares: dict[str, float], told: bool = False) -> Background:
    colour, name, named = _colour(rng, [], told)
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


def draw_one(rng: np.random.Generator, size: int = 64, spread: float = 1.0) -> Scene:
    """One shape on a wall. spread 1: radius 0.22 to 0.38 of the side, anywhere within the picture, turned by up to 10 degrees; 0: always alike."""
    background = _background(rng, TEXTURE_SHARES)
    colour, name, named = _colour(rng, [background.colour])
    radius = 0.3 + 0.08 * spread * float(rng.uniform(-1, 1))
    x, y = 0.5 + (0.47 - radius) * 0.7 * spread * rng.uniform(-1, 1, 2)
    thing = Thing(str(rng.choice(SHAPES)), colour, float(x), float(y), radius, spread * float(rng.uniform(-10, 10)), name, named)
    return _finished(Scene(background, (thing,), size=size), rng)


def draw_two(rng: np.random.Generator, size: int = 64, spread: float = 1.0) -> Scene:
    """Two different shapes beside or above one another, in colours that differ from the wall's and from each other's; spread as in ``draw_one``."""
    background = _background(rng, TEXTURE_SHARES)
    kinds = rng.choice(SHAPES, 2, replace=False)
    upright = bool(rng.random() < 0.5)
    things: list[Thing] = []
    for number, shape in enumerate(kinds):
        colour, name, named = _colour(rng, [background.colour, *(t.colour for t in things)])
        along, across = np.array([(0.27, 0.73)[number], 0.5]) + spread * rng.uniform(-1, 1, 2) * (0.03, 0.12)
        x, y = (across, along) if upright else (along, across)
        radius, angle = 0.19 + 0.03 * spread * rng.uniform(-1, 1), spread * rng.uniform(-10, 10)
        things.append(Thing(str(shape), colour, float(x), float(y), float(radius), float(angle), name, named))
    if rng.random() < 0.5:
        things.reverse()
    return _finished(Scene(background, tuple(things), size=size), rng)


def draw(rng: np.random.Generator, size: int = 64, spread: float = 1.0) -> Scene:
    """A scene of the training mixture: 15 % walls, 10 % solids and gradients, 60 % one shape, 15 % two."""
    kind = rng.random()
    if kind < 0.15:
        return draw_wall(rng, size)
    if kind < 0.25:
        return draw_solid(rng, size)
    return draw_one(rng, size, spread) if kind < 0.85 else draw_two(rng, size, spread)


def draw_detailed(rng: np.random.Generator, size: int = 64) -> Scene:
    """One to three different shapes in cells of a 2 x 2 grid, every colour near a named one, with a caption of up to four sentences."""
    background = _background(rng, TEXTURE_SHARES, told=True)
    count = int(rng.integers(1, 4))
    cells, things = rng.permutation(4)[:count], list[Thing]()
    for shape, cell in zip(rng.choice(SHAPES, count, replace=False), cells, strict=True):
        colour, name, _ = _colour(rng, [background.colour, *(t.colour for t in things)], told=True)
        radius = float(rng.uniform(0.12, 0.2)) if count > 1 else float(rng.uniform(0.15, 0.35))
        middle = np.array([0.27 + 0.46 * (cell % 2), 0.27 + 0.46 * (cell // 2)]) if count > 1 else np.array([0.5, 0.5])
        x, y = middle + rng.uniform(-0.03, 0.03, 2)
        things.append(Thing(str(shape), colour, float(x), float(y), radius, float(rng.uniform(-10, 10)), name, True))
    scene = Scene(background, tuple(things), size=size, seed=int(rng.integers(2**31)))
    return replace(scene, caption=long_caption(scene, rng))
