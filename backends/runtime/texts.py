"""Texts in the public domain that the lab ships: short passages, two long texts for calibration and evaluation, and one in Middle English."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from backends.runtime import folders

FOLDER = folders.ROOT / "static" / "data"


@dataclass(frozen=True, slots=True)
class Passage:
    """source: author, work and year, or where the words come from."""

    source: str
    text: str


@functools.cache
def passages() -> tuple[Passage, ...]:
    """Twenty short English passages, each of at least 96 tokens of the bundled model.

    >>> len(passages()), passages()[2].text[:16]
    (20, 'Call me Ishmael.')
    """
    blocks = (FOLDER / "english-passages.txt").read_text(encoding="utf-8").strip().split("\n\n")
    return tuple(Passage(source.removeprefix("# "), text) for source, text in (block.split("\n", 1) for block in blocks))


def constitution() -> Passage:
    """The Constitution of the United States with its amendments, about 45,000 characters: the calibration text.

    >>> constitution().text[:35]
    'The Constitution of the United Stat'
    """
    return _long("us-constitution.txt")


def king_james() -> Passage:
    """Ruth, Jonah and Esther in the King James Version, about 50,000 characters: the evaluation text.

    >>> king_james().text[:29]
    'Now it came to pass in the da'
    """
    return _long("king-james.txt")


def chaucer() -> Passage:
    """Lines 1 to 162 of Chaucer's General Prologue, Middle English, about 7,000 characters: a text that a model of today hardly knows.

    >>> chaucer().text[:28]
    'Whan that Aprille with his s'
    """
    return _long("chaucer.txt")


@functools.cache
def _long(name: str) -> Passage:
    source, text = (FOLDER / name).read_text(encoding="utf-8").split("\n", 1)
    return Passage(source.removeprefix("# "), text)
