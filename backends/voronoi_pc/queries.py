"""Marginal and conditional queries of a Voronoi sum with certified bounds (section 4.2 of the card)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from backends.voronoi_pc.conditions import EVERYTHING, Evidence, Span, complement, overlap
from backends.voronoi_pc.refinement import FINE, Refinement, Rule
from backends.voronoi_pc.voronoi_sum import VoronoiSum

LEAST_LOG_DENSITY = -700.0  # below it a density is 0 in float64


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
    start = [_box(kept, {**evidence.between, **{i: overlap(s, evidence.between.get(i, EVERYTHING)) for i, s in box.items()}}) for box in boxes]
    start = [(low, high) for low, high in start if bool((low < high).all())]
    if not start:
        return 0.0, 0.0, factor
    scaled = type(region)(region.normals, region.offsets, region.log_weights - factor, region.experts)
    made = Refinement(scaled, (torch.stack([s[0] for s in start]), torch.stack([s[1] for s in start])), rule)
    for _ in made.run(splits, share=share):
        pass
    return made.lower, made.upper, factor


def _box(kept: Sequence[int], spans: Mapping[int, Span]) -> tuple[Tensor, Tensor]:
    ends = torch.tensor([spans.get(i, EVERYTHING) for i in kept], dtype=torch.float64)
    return ends[:, 0], ends[:, 1]


def conditional_bounds(node: VoronoiSum, event: Mapping[int, Span], evidence: Evidence, splits: int, rule: Rule = "extent") -> Span:
    """Bounds of P(event | evidence): N- / (N- + R+) <= P <= N+ / (N+ + R-), with N the mass of event and evidence, R of its complement and evidence.

    event: variable (from 0) -> (low, high), of variables that are not fixed. Raises ValueError for evidence of mass 0 and for an event on a fixed variable.

    >>> import math
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
