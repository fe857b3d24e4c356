"""Short captions in several wordings, at most fifteen words of a small vocabulary."""

from __future__ import annotations

import numpy as np

from backends.runtime.scenes.colours import COLOURS
from backends.runtime.scenes.scene import TEXTURES, Background, Scene, Thing
from backends.runtime.scenes.shapes import SHAPES

PLACES = {"left": "left of", "right": "right of", "above": "above", "below": "below"}
_PLAIN_WORDS = ("a", "an", "and", "above", "background", "below", "beside", "big", "front", "in", "left", "of", "on", "painted", "photo", "right", "small")

WORDS: tuple[str, ...] = (*COLOURS, *SHAPES, *TEXTURES, *_PLAIN_WORDS, "the", "wall", "with")


def with_article(words: str) -> str:
    """The words with "a" or "an" before them.

    >>> with_article("orange ring")
    'an orange ring'
    """
    return ("an " if words[0] in "aeiou" else "a ") + words


def _wall(background: Background, rng: np.random.Generator, noun: str) -> str:
    """ "red brick wall": the colour if it is told, the texture in half of the captions."""
    texture = background.texture if rng.random() < 0.5 else ""
    return " ".join(filter(None, [background.name if background.named else "", texture, noun]))


def _thing(thing: Thing, rng: np.random.Generator, sized: bool) -> str:
    size = ""
    if sized and rng.random() < 0.3:
        size = "big" if thing.radius > 0.33 else "small" if thing.radius < 0.26 else ""
    return " ".join(filter(None, [size, thing.name if thing.named else "", thing.shape]))


def place(first: Thing, second: Thing) -> str:
    """Where the first lies, seen from the second: a key of PLACES."""
    dx, dy = second.x - first.x, second.y - first.y
    if abs(dx) > abs(dy):
        return "left" if dx > 0 else "right"
    return "above" if dy > 0 else "below"


def caption(scene: Scene, rng: np.random.Generator) -> str:
    """One of many wordings for the scene; colour words only where ``named`` says so; empty for a two-colour gradient without things.

    Every thing's shape is told, the texture in about half of the captions.
    """
    background, things = scene.background, scene.things
    if not things:
        if background.second is not None:
            return ""
        if background.named and rng.random() < 0.15:
            return f"a wall painted {background.name}"
        wall = _wall(background, rng, "wall")
        return str(rng.choice([wall, with_article(wall), with_article(wall), f"a photo of {with_article(wall)}", f"the {wall}"]))
    if len(things) == 1:
        text = with_article(_thing(things[0], rng, True))
        if not background.named and rng.random() < 0.5:
            return text
        if rng.random() < 0.2:
            return f"{with_article(_wall(background, rng, 'wall'))} with {text}"
    else:
        side = PLACES[place(things[0], things[1])]
        link = str(rng.choice([side, side, "and", "beside"]))
        text = f"{with_article(_thing(things[0], rng, False))} {link} {with_article(_thing(things[1], rng, False))}"
        if not background.named:
            return text
    start = "in front of" if rng.random() < 0.2 else "on"
    return f"{text} {start} {with_article(_wall(background, rng, str(rng.choice(['wall', 'background']))))}"
