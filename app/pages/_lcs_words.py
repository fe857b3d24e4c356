"""A prompt of the little model from chips, within its vocabulary."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.plotting import Changes, Panel
from backends.lcs.card import LITTLE
from backends.runtime.scenes import COLOURS, SHAPES, TEXTURES, WORDS

THINGS = 2  # shapes in one prompt, at most


@dataclass(frozen=True, slots=True)
class Words:
    """What a prompt says in the chips' terms. color: of the first shape, without one of the wall; wall: whether a wall is named."""

    shapes: tuple[str, ...] = ()
    color: str | None = None
    texture: str | None = None
    wall: bool = True


def read(prompt: str) -> Words:
    """The chips' words in a prompt; all else is passed over.

    >>> read("a red circle beside a ring on a brick wall")
    Words(shapes=('circle', 'ring'), color='red', texture='brick', wall=True)
    """
    found = re.findall(r"\w+", prompt.lower())
    shapes = tuple(dict.fromkeys(word for word in found if word in SHAPES))
    color = next((word for word in found if word in COLOURS), None)
    texture = next((word for word in found if word in TEXTURES), None)
    return Words(shapes[:THINGS], color, texture, "wall" in found or "background" in found or not shapes)


def write(words: Words) -> str:
    """The prompt of these words.

    >>> write(Words(("star", "heart"), "orange")), write(Words((), "red", "brick"))
    ('an orange star and a heart on a wall', 'a red brick wall')
    """
    wall = _noun("" if words.shapes else words.color, words.texture, "wall")
    if not words.shapes:
        return wall
    first, *others = words.shapes
    things = " and ".join([_noun(words.color, None, first), *(_noun(None, None, shape) for shape in others)])
    return f"{things} on {wall}" if words.wall or words.texture else things


def _noun(color: str | None, texture: str | None, noun: str) -> str:
    text = " ".join(filter(None, [color, texture, noun]))
    return ("an " if text[0] in "aeiou" else "a ") + text


def chips(params: Any) -> Panel | None:
    """The words of the vocabulary, those of the prompt pressed."""
    if params.model != LITTLE or params.picture is not None:
        return None
    words = read(params.prompt)
    of = "its colour" if words.shapes else "the wall\u2019s colour"
    groups = [
        _group("Shape, at most two", "shape", SHAPES, words.shapes),
        _group("Wall", "texture", TEXTURES, (words.texture,)),
        _group(f"A word for {of}: it fights the steering", "color", tuple(COLOURS), (words.color,)),
    ]
    others = [word for word in sorted(WORDS) if word not in (*SHAPES, *TEXTURES, *COLOURS)]
    said = f"Click to write the prompt anew. Typed prompts may also use: {', '.join(others)}. Any other word is unknown to the little model."
    return Panel("words", "chips", "The prompt, word by word", {"groups": groups}, said, "wide")


def _group(title: str, kind: str, names: tuple[str, ...], pressed: tuple[str | None, ...]) -> dict[str, Any]:
    return {"title": title, "chips": [{"id": f"{kind} {name}", "text": name, "pressed": name in pressed} for name in names]}


def chosen(event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    """The prompt with one word put in or taken out; object words follow the shapes."""
    kind, _, name = str(event.get("id", "")).partition(" ")
    words, pressed = read(str(params.get("prompt", ""))), bool(event.get("pressed"))
    if kind == "shape" and name in SHAPES:
        kept = tuple(shape for shape in words.shapes if shape != name)
        words = replace(words, shapes=(*kept[-(THINGS - 1) :], name) if pressed else kept)
    elif kind == "color" and name in COLOURS:
        words = replace(words, color=name if pressed else None)
    elif kind == "texture" and name in TEXTURES:
        words = replace(words, texture=name if pressed else None, wall=True)
    else:
        return None
    changes = {"prompt": write(words)}
    named = [word.strip() for word in str(params.get("objects", "")).split(",") if word.strip()]
    still = [word for word in named if word in words.shapes]
    if named and not still:
        still = list(words.shapes[-1:])
    return Changes(changes | ({"objects": ", ".join(still)} if still != named else {}), run=True)
