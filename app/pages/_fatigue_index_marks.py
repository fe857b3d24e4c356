"""What the pictures of fatigue-index share: whom a colour means, the axis of tokens, places of labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.plotting import Trace, alpha, axis, floats, plain_text

# The three contributions, lowest first. The warning colour is the alarm's alone.
PARTS = (("attention", alpha("$method", 0.95)), ("entropy", alpha("$method", 0.5)), ("drift", alpha("$peer-3", 0.45)))
KEY = (("attention", "$method"), ("entropy", alpha("$method", 0.72)), ("drift", "$peer-3"))  # their names: darker, to be read
ASKED, REST, CALIBRATED = "$method", "$peer-2", "$truth"
LETTERS = 14  # of a token, in a label


def steps(values: Any) -> np.ndarray:
    """The tokens' numbers, from 1, of a series; two bytes each."""
    return np.arange(1, np.size(values) + 1).astype(np.uint16)


def token_axis(data: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The axis of written tokens; it stands still while the text grows."""
    return axis("written token", "count", range=[0.5, most(data) + 0.5], showgrid=False, nticks=8, **more)


def most(data: Mapping[str, Any]) -> int:
    """Tokens that the axis has room for."""
    return max(int(data["room"]), len(data["tokens"]))


def word(text: str) -> str:
    """A token as labels write it: neither markup nor a colour."""
    shown = text.strip() or "space"
    return plain_text(shown if len(shown) <= LETTERS else shown[:LETTERS] + "\u2026")


def said(data: Mapping[str, Any]) -> list[str]:
    """Each written token for the hover text."""
    return [word(text) for text in data["tokens"]]


def bar_runs(on: Any, row: float, colour: str, name: str) -> Trace:
    """A strip of one row that is filled where ``on`` (T,) holds, on the second pair of axes."""
    states = floats(on)
    at = steps(states)[states > 0.5]
    style = {"color": colour, "line": {"width": 0}}
    height = np.full(at.size, 0.76)
    return {
        "type": "bar",
        "x": at,
        "y": height,
        "base": np.full(at.size, row - 0.38),
        "width": 1.0,
        "name": name,
        "marker": style,
        "yaxis": "y2",
        "hovertemplate": f"{name}: on at token %{{x}}<extra></extra>",
    }
