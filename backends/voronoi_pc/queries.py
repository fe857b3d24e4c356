"""Marginal and conditional queries with certified bounds, and their text: ``x1 = 0.5, x2 in [0, 1]``, ``x2 > 1``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from backends.voronoi_pc.refinement import FINE, Refinement, Rule
from backends.voronoi_pc.voronoi_sum import VoronoiSum

Span = tuple[float, float]
EVERYTHING: Span = (-math.inf, math.inf)
LEAST_LOG_DENSITY = -700.0  # below it a density is 0 in float64

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


def mass_bounds(
    node: VoronoiSum, evidence: Evidence, boxes: Sequence[Mapping[int, Span]], splits: int, rule: Rule = "extent", share: int = FINE
) -> tuple[float, float, float]:
    """Lower and upper bound of f with ``evidence``, integrated over the union of disjoint ``boxes``, and the log of the factor taken out of both.

    The true value is exp(factor) times a number in [lower, upper]. boxes: variable -> (low, high) each; unnamed variables are free.
    Raises ValueError where the fixed values have density 0.
    """
    region = node.region(evidence.fixed)
    factor = float(region.log_weights.max())
    if not factor > LEAST_LOG_DENSITY:
        raise ValueError("the evidence has density 0")
    kept = [i for i in range(node.dimension) if i not in evidence.fixed]
    start = [_box(kept, {**evidence.between, **{i: _overlap(s, evidence.between.get(i, EVERYTHING)) for i, s in box.items()}}) for box in boxes]
    start = [(low, high) for low, high in start if bool((low < high).all())]
    if not start:
        return 0.0, 0.0, factor
    scaled = type(region)(region.normals, region.offsets, region.log_weights - factor, region.experts)
    made = Refinement(scaled, (torch.stack([s[0] for s in start]), torch.stack([s[1] for s in start])), rule)
    for _ in made.run(splits, share=share):
        pass
    return made.lower, made.upper, factor


def _overlap(a: Span, b: Span) -> Span:
    return max(a[0], b[0]), min(a[1], b[1])


def _box(kept: Sequence[int], spans: Mapping[int, Span]) -> tuple[Tensor, Tensor]:
    ends = torch.tensor([spans.get(i, EVERYTHING) for i in kept], dtype=torch.float64)
    return ends[:, 0], ends[:, 1]


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


def conditional_bounds(node: VoronoiSum, event: Mapping[int, Span], evidence: Evidence, splits: int, rule: Rule = "extent") -> Span:
    """Bounds of P(event | evidence): N- / (N- + R+) <= P <= N+ / (N+ + R-), with N the mass of event and evidence, R of its complement and evidence.

    event: variable (from 0) -> (low, high), of variables that are not fixed. Raises ValueError for evidence of mass 0 and for an event on a fixed variable.

    >>> from backends.voronoi_pc import Experts
    >>> centres = [[-1.0, 0.0], [1.0, 0.0]]
    >>> node = VoronoiSum(centres, [0.5, 0.5], Experts.of(centres, [[1.0, 1.0]] * 2))
    >>> low, high = conditional_bounds(node, {1: (0.0, math.inf)}, Evidence({0: 0.3}), 200)
    >>> low <= 0.5 <= high, high - low < 1e-9
    (True, True)
    """
    if not event or set(event) & set(evidence.fixed):
        raise ValueError("the event names no variable that is free")
    n_low, n_high, _ = mass_bounds(node, evidence, [event], splits, rule)
    r_low, r_high, _ = mass_bounds(node, evidence, list(complement(event)), splits, rule)
    if n_high + r_high <= 0:
        raise ValueError("the evidence has mass 0")
    return n_low / (n_low + r_high) if n_low > 0 else 0.0, n_high / (n_high + r_low) if n_high + r_low > 0 else 1.0
