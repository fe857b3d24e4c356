"""What the pictures of tai share: the colour, symbol and letter of a meaning, and bars with their names above them."""

from __future__ import annotations

import string
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from app.plotting import Trace, bars, label, plain_text

# The hues of the other themes: told apart in light, in dark and by colour-blind eyes. This method's own is left for what it measures.
PALETTE = ("uncertainty", "images", "decisions", "worlds", "code", "adapt", "look-inside")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "pentagon")
WRAP, LINES = 46, 2  # a phone's width in characters, and lines of a name
ROW_PX = 56
BAR = 0.16  # of a row


def colour_of(number: int) -> str:
    """The colour token of the meaning with this number; -1 is in no meaning.

    >>> colour_of(0), colour_of(7), colour_of(-1)
    ('$theme-uncertainty', '$theme-uncertainty', '$muted')
    """
    return "$muted" if number < 0 else f"$theme-{PALETTE[number % len(PALETTE)]}"


def symbol_of(number: int) -> str:
    """The symbol of its marks, which changes where the colours begin anew."""
    return "circle-open" if number < 0 else SYMBOLS[number // len(PALETTE) % len(SYMBOLS)]


def letter(number: int) -> str:
    """The letters of a number, as a spreadsheet counts its columns.

    >>> letter(0), letter(25), letter(26)
    ('A', 'Z', 'AA')
    """
    rest, last = divmod(number, 26)
    return (letter(rest - 1) if rest else "") + string.ascii_uppercase[last]


def wrapped(text: str, width: int = WRAP, lines: int = LINES) -> str:
    """A text from outside in short lines for a label: at most ``lines``, neither markup nor token.

    >>> wrapped("the index of the first match", 12)
    'the index of<br>the ...'
    """
    return "<br>".join(plain_text(part) for part in textwrap.wrap(text, width, max_lines=lines, placeholder=" ..."))


def row_bars(names: Sequence[str], values: np.ndarray, colours: Sequence[str], *, hover: str) -> tuple[list[Trace], list[dict[str, Any]], dict[str, Any], int]:
    """Lying bars, the first on top, each with its name above it: (traces, names, vertical axis, height in px of the rows).

    values: (n,). A name beside its bar would take half of a phone's width.
    """
    at = np.arange(len(names))
    drawn = bars(values, at, "rows", width=BAR, orientation="h", hover=hover, text=[plain_text(n) for n in names], textposition="none")
    drawn["marker"]["color"] = list(colours)
    notes = [label(0, i - BAR, wrapped(name), "$ink", yanchor="bottom", shift=(2, 1)) for i, name in zip(at.tolist(), names, strict=True)]
    axis = {"visible": False, "range": [len(names) - 0.6, -0.95], "fixedrange": True}
    return [drawn], notes, axis, ROW_PX * len(names)
