"""What a page does with a drag: which numbers of an event can be trusted, and where a dragged line went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

FAR = 1e6  # no axis of the lab reaches farther


def is_number(value: Any, limit: float = FAR) -> TypeGuard[float]:
    """Whether what a browser sent is a finite number within +-``limit``; True and False are none.

    >>> is_number(2), is_number(True), is_number("2"), is_number(float("nan")), is_number(20, limit=9)
    (True, False, False, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and -limit < value < limit


def moved_end(event: Mapping[str, Any], before: Any, along: str = "x") -> float | None:
    """Where a dragged line went, in units of the axis ``along``; None for an event without two numbers.

    A line held in the middle moves both ends, held near an end that one alone: what counts is the end that moved from ``before``,
    the line's old place; where that is no number, the first end.

    >>> moved_end({"x0": 3, "x1": 5}, 3), moved_end({"y0": 4, "y1": 4}, None, along="y"), moved_end({"x0": "3"}, 3)
    (5, 4, None)
    """
    start, end = event.get(f"{along}0"), event.get(f"{along}1")
    if not (is_number(start) and is_number(end)):
        return None
    return max(start, end, key=lambda place: abs(place - before)) if is_number(before) else start


def named_place(event: Mapping[str, Any], name: str) -> float | None:
    """The old place of a line whose shape is named ``name`` and, after a space, the place; None for another shape.

    >>> named_place({"shape": "cut .25"}, "cut"), named_place({"shape": "cut x"}, "cut"), named_place({}, "cut")
    (0.25, None, None)
    """
    shape = event.get("shape")
    if not isinstance(shape, str) or not shape.startswith(f"{name} "):
        return None
    try:
        return float(shape.rsplit(" ", 1)[1])
    except ValueError:
        return None
