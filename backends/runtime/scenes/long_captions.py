"""Long captions: up to four sentences that tell every colour, size, place, texture and neighbour of a scene, and nothing that is not there."""

from __future__ import annotations

import numpy as np

from backends.runtime.scenes.captions import PLACES, place, with_article
from backends.runtime.scenes.scene import Scene, Thing

LARGE, SMALL = 0.25, 0.15  # radii, shares of the side
_COUNTS = ("no shapes", "one shape", "two shapes", "three shapes", "four shapes")
_TEXTURES = {
    "plain": "is even",
    "graded": "grows lighter from one side to the other",
    "striped": "has stripes",
    "rough": "has a rough grain",
    "brick": "is built of bricks",
}


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def where(thing: Thing) -> str:
    """The ninth of the picture that holds the thing's centre, in words.

    >>> where(Thing("star", (1.0, 0.0, 0.0), 0.2, 0.5, 0.1))
    'on the left'
    """
    row = "upper " if thing.y < 0.4 else "lower " if thing.y > 0.6 else ""
    column = "left" if thing.x < 0.4 else "right" if thing.x > 0.6 else ""
    if row and column:
        return f"in the {row}{column}"
    if row:
        return "at the top" if row == "upper " else "at the bottom"
    return f"on the {column}" if column else "in the middle"


def _size(thing: Thing) -> str:
    return "large" if thing.radius >= LARGE else "small" if thing.radius < SMALL else "middle-sized"


def long_caption(scene: Scene, rng: np.random.Generator) -> str:
    """One to four sentences about the scene; which of the two openings is drawn from ``rng``."""
    background, things = scene.background, scene.things
    wall = with_article(f"{background.name} wall")
    if not things:
        return f"The picture shows {wall} and no shapes. The wall {_TEXTURES[background.texture]}."
    names = [f"{thing.name} {thing.shape}" for thing in things]
    shown = _listed([with_article(name) for name in names])
    opening = f"The picture shows {shown} in front of {wall}." if rng.random() < 0.5 else f"In front of {wall}, {_COUNTS[len(things)]} can be seen: {shown}."
    sizes = _listed([f"the {name} is {_size(thing)} and lies {where(thing)}" for name, thing in zip(names, things, strict=True)])
    sentences = [opening, sizes[0].upper() + sizes[1:] + "."]
    if len(things) > 1:
        links = [f"the {names[n]} is {PLACES[place(things[n], things[n + 1])]} the {names[n + 1]}" for n in range(len(things) - 1)]
        sentences.append(_listed(links)[0].upper() + _listed(links)[1:] + ".")
    return " ".join([*sentences, f"The wall {_TEXTURES[background.texture]}."])
