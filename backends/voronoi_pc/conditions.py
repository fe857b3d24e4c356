"""Conditions as text and as numbers: ``x1 = 0.5, x2 in [0, 1]``, ``x2 > 1``; needs no tensors, so that a page can read them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Span = tuple[float, float]
EVERYTHING: Span = (-math.inf, math.inf)

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_PART = re.compile(
    rf"x\s*(?P<variable>\d{{1,3}})\s*(?:(?P<sign><=|>=|=|<|>)\s*(?P<value>{_NUMBER})|in\s*\[\s*(?P<low>{_NUMBER})\s*,\s*(?P<high>{_NUMBER})\s*\])",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known or asked. fixed: variable (from 0) -> value; between: variable -> (low, high)."""

    fixed: Mapping[int, float] = field(default_factory=dict)
    between: Mapping[int, Span] = field(default_factory=dict)


def parse(text: str, dimension: int) -> Evidence:
    """Reads conditions separated by commas; variables count from 1 in the text. Raises ValueError in words.

    >>> parse("x1 = 0.5, x2 in [0, 1]", 2)
    Evidence(fixed={0: 0.5}, between={1: (0.0, 1.0)})
    >>> parse("x2 > 1", 2).between
    {1: (1.0, inf)}
    """
    fixed: dict[int, float] = {}
    between: dict[int, Span] = {}
    position, rest = 0, text.strip()
    while position < len(rest):
        found = _PART.match(rest, position)
        if found is None:
            raise ValueError("this cannot be read as conditions")
        variable = int(found["variable"]) - 1
        if not 0 <= variable < dimension:
            raise ValueError(f"there is no x{variable + 1}; the variables are x1 to x{dimension}")
        if variable in fixed or (variable in between and found["sign"] == "="):
            raise ValueError(f"x{variable + 1} is fixed and named twice")
        if found["sign"] == "=":
            fixed[variable] = _finite(found["value"])
        else:
            low, high = between.get(variable, EVERYTHING)
            more = _span(found)
            between[variable] = max(low, more[0]), min(high, more[1])
            if between[variable][0] >= between[variable][1]:
                raise ValueError(f"the conditions on x{variable + 1} leave nothing")
        position = found.end()
        comma = re.compile(r"\s*(?:,|and\b|$)\s*").match(rest, position)
        if comma is None:
            raise ValueError("conditions are separated by commas")
        position = comma.end()
    return Evidence(fixed, between)


def _span(found: re.Match[str]) -> Span:
    if found["sign"] is None:
        return _finite(found["low"]), _finite(found["high"])
    value = _finite(found["value"])
    return (-math.inf, value) if found["sign"].startswith("<") else (value, math.inf)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def complement(event: Mapping[int, Span]) -> Iterator[dict[int, Span]]:
    """Disjoint boxes that together are everything outside the event.

    >>> list(complement({0: (0.0, 1.0)}))
    [{0: (-inf, 0.0)}, {0: (1.0, inf)}]
    """
    held: dict[int, Span] = {}
    for variable, (low, high) in event.items():
        if low > -math.inf:
            yield {**held, variable: (-math.inf, low)}
        if high < math.inf:
            yield {**held, variable: (high, math.inf)}
        held[variable] = (low, high)


def overlap(a: Span, b: Span) -> Span:
    """The part that two intervals share; empty where its low end is above its high end.

    >>> overlap((0.0, 2.0), (1.0, 3.0))
    (1.0, 2.0)
    """
    return max(a[0], b[0]), min(a[1], b[1])


def text_of(spans: Mapping[int, Span]) -> str:
    """Intervals as the text that ``parse`` reads.

    >>> text_of({1: (0.5, math.inf), 2: (0.0, 1.0)})
    'x2 > 0.5, x3 in [0, 1]'
    """
    return ", ".join(_one(variable, low, high) for variable, (low, high) in sorted(spans.items()))


def _one(variable: int, low: float, high: float) -> str:
    if math.isinf(low):
        return f"x{variable + 1} < {high:g}"
    return f"x{variable + 1} > {low:g}" if math.isinf(high) else f"x{variable + 1} in [{low:g}, {high:g}]"
