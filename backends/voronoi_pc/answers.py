"""What a hard circuit answers: partition function, densities of one variable, probabilities of events, each as a certified interval.

A Voronoi sum answers with bounds and, in two variables, with the exact value beside them; a factorised circuit is exact by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from backends.voronoi_pc.conditions import EVERYTHING, Evidence, Span, overlap
from backends.voronoi_pc.hierarchical import FactorisedVoronoi
from backends.voronoi_pc.queries import conditional_bounds, mass_bounds
from backends.voronoi_pc.refinement import COARSE, Rule
from backends.voronoi_pc.slices import exact_mass, slice_mass
from backends.voronoi_pc.voronoi_sum import VoronoiSum

Array = np.ndarray
Hard = VoronoiSum | FactorisedVoronoi
CURVE_SPLITS = 100  # of each point of a curve


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard a query is worked on: splits, split rule, and what is called between the parts."""

    splits: int
    rule: Rule
    check: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Curve:
    """A density of one variable: at, lower, upper (t,); exact (t,) or None where it is not known."""

    at: Array
    lower: Array
    upper: Array
    exact: Array | None


def density_curve(model: Hard, variable: int, at: Array, given: Evidence, effort: Effort) -> Curve:
    """p(x_variable | given) at these places; ``given`` may be empty. Raises ValueError for evidence of mass 0."""
    if isinstance(model, FactorisedVoronoi):
        values = _factorised_curve(model, variable, at, given)
        return Curve(at, values, values, values)
    span = given.between.get(variable, EVERYTHING)
    inside = (at >= span[0]) & (at <= span[1])
    lower, upper = np.zeros(at.size), np.zeros(at.size)
    whole = mass_bounds(model, given, [{}], effort.splits, effort.rule)
    if whole[1] <= 0:
        raise ValueError("the evidence has mass 0")
    for i in np.flatnonzero(inside):
        effort.check()
        low, high, factor = _at_one_place(model, variable, float(at[i]), given, effort)
        scale = math.exp(min(factor - whole[2], 700.0))
        lower[i], upper[i] = scale * low / whole[1], scale * high / whole[0] if whole[0] > 0 else math.inf
    exact = np.where(inside, _exact_curve(model, variable, at, given), 0.0) if model.dimension == 2 else None
    return Curve(at, lower, upper, exact)


def _at_one_place(model: VoronoiSum, variable: int, value: float, given: Evidence, effort: Effort) -> tuple[float, float, float]:
    """Bounds of f with one more variable fixed, and the log of their factor."""
    fixed = {**given.fixed, variable: value}
    if len(fixed) == model.dimension:
        log_f = float(model.log_unnormalised([[fixed[i] for i in range(model.dimension)]])[0])
        return 1.0, 1.0, log_f
    between = {i: span for i, span in given.between.items() if i != variable}
    try:
        return mass_bounds(model, Evidence(fixed, between), [{}], min(effort.splits, CURVE_SPLITS), effort.rule, COARSE)
    except ValueError:  # no expert reaches there
        return 0.0, 0.0, 0.0


def _factorised_curve(model: FactorisedVoronoi, variable: int, at: Array, given: Evidence) -> Array:
    whole = model.mass(given.fixed, given.between)
    if whole <= 0:
        raise ValueError("the evidence has mass 0")
    fixed = {i: torch.full((at.size,), v, dtype=torch.float64) for i, v in given.fixed.items()}
    value = model.marginal({**fixed, variable: torch.from_numpy(at)}, given.between).numpy() / whole
    low, high = given.between.get(variable, EVERYTHING)
    return np.where((at >= low) & (at <= high), value, 0.0)


def _exact_curve(model: VoronoiSum, variable: int, at: Array, given: Evidence) -> Array:
    """The density by exact slices, in two variables."""
    other = 1 - variable
    if other in given.fixed:
        points = np.empty((at.size, 2))
        points[:, variable], points[:, other] = at, given.fixed[other]
        whole = float(slice_mass(model, other, [given.fixed[other]], *given.between.get(variable, EVERYTHING))[0])
        return np.asarray(torch.exp(model.log_unnormalised(points)).numpy() / whole)
    low, high = given.between.get(other, EVERYTHING)
    return np.asarray(slice_mass(model, variable, at, low, high).numpy() / exact_mass(model, *_ends({**given.between})))


def _ends(spans: Mapping[int, Span]) -> tuple[list[float], list[float]]:
    both = [spans.get(i, EVERYTHING) for i in range(2)]
    return [low for low, _ in both], [high for _, high in both]


def probability(model: Hard, event: Mapping[int, Span], given: Evidence, effort: Effort) -> tuple[float, float, float | None]:
    """Lower bound, upper bound and, where it is known, the exact value of P(event | given). Raises ValueError for evidence of mass 0."""
    if isinstance(model, FactorisedVoronoi):
        exact = model.conditional(event, given.fixed, given.between)
        return exact, exact, exact
    low, high = conditional_bounds(model, event, given, effort.splits, effort.rule)
    return low, high, _exact_probability(model, event, given) if model.dimension == 2 else None


def _exact_probability(model: VoronoiSum, event: Mapping[int, Span], given: Evidence) -> float:
    both = {i: overlap(event.get(i, EVERYTHING), given.between.get(i, EVERYTHING)) for i in {*event, *given.between}}
    if any(low >= high for low, high in both.values()):
        return 0.0
    if not given.fixed:
        return exact_mass(model, *_ends(both)) / exact_mass(model, *_ends(given.between))
    ((held, value),) = given.fixed.items()
    part, whole = (float(slice_mass(model, held, [value], *spans.get(1 - held, EVERYTHING))[0]) for spans in (both, given.between))
    return part / whole
