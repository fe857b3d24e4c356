"""Out-of-fold scores over length-scales and symmetry, and what they decide; training rows only (section 4.7 of the card)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from backends.conformal_ksos.dual import Penalty, Problem
from backends.conformal_ksos.kernel import Features, median_distance
from backends.conformal_ksos.selection import FOLDS, SYMMETRY_GRID, Criterion, CriterionName, HeldOut, choose_symmetry
from backends.conformal_ksos.solver import Fit, fit

Array = np.ndarray

SCREENING_GAP = 1e-2  # relative gap of the out-of-fold fits: their ranks have settled by then
_FOLD_STREAM, _PERMUTATION_STREAM = 1, 2  # sub-streams of the seed


@dataclass(frozen=True, slots=True)
class Settings:
    """Weights of the problem: b >= 0, lambda1 > 0, lambda2 > 0, floor delta > 0 inside the root; penalty; criterion; gap to reach."""

    b: float = 1.0
    lambda1: float = 1.0
    lambda2: float = 1.0
    delta: float = 1e-3
    penalty: Penalty = "pointwise"
    criterion: CriterionName = "dcov"
    tolerance: float = 1e-3

    def problem(self, v: Array, residuals: Array, lambda3: float) -> Problem:
        return Problem(v, residuals, self.b, self.lambda1, self.lambda2, lambda3, self.penalty)


@dataclass(frozen=True, slots=True)
class Training:
    """The rows that everything is fitted on. x: (n, d) raw features; mean, sd: (d,) of x; residuals: (n,) y - m; residual_sd."""

    x: Array
    mean: Array
    sd: Array
    residuals: Array
    residual_sd: float

    @classmethod
    def of(cls, x: Array, residuals: Array, bias: float = 0.0) -> Training:
        """bias: residual sds that were added to m, so that every residual falls by as much."""
        residual_sd = float(np.std(residuals))
        return cls(x, x.mean(axis=0), x.std(axis=0), residuals - bias * residual_sd, residual_sd)

    @property
    def z(self) -> Array:
        """(n, d) standardised features."""
        return self.standardise(self.x)

    @property
    def r(self) -> Array:
        """(n,) standardised residuals."""
        return self.residuals / self.residual_sd

    def standardise(self, x: Array) -> Array:
        return (x - self.mean) / self.sd

    def features(self, multiplier: float) -> Features:
        """Features of all rows; the length-scale is multiplier times the median distance."""
        return Features.of(self.z, multiplier * median_distance(self.z))


def larger(lambda3: float) -> tuple[float, ...]:
    """The values of the grid above lambda3, from inf downwards: the fixed path from which lambda3 is started.

    >>> larger(3.0), larger(float("inf"))
    ((inf, 100.0, 10.0), ())
    """
    return tuple(value for value in SYMMETRY_GRID if value > lambda3)


def descend(settings: Settings, v: Array, residuals: Array, grid: tuple[float, ...], tolerance: float, check: Callable[[], None]) -> Iterator[Fit]:
    """Solves along a descending grid, each problem started from the one before it."""
    start = None
    for lambda3 in grid:
        solved = fit(settings.problem(v, residuals, lambda3), tolerance=tolerance, start=start, on_step=lambda _: check())
        start = solved.multipliers
        yield solved


def folds(n: int, seed: int) -> list[Array]:
    """The held-out rows of each fold."""
    order = np.random.default_rng([seed, _FOLD_STREAM]).permutation(n)
    return [np.sort(order[start::FOLDS]) for start in range(FOLDS)]


def held_out(training: Training, multiplier: float, held: Array, settings: Settings, check: Callable[[], None] = lambda: None) -> HeldOut:
    """Fits all of SYMMETRY_GRID without the rows ``held`` and scores them."""
    z, r = training.z, training.r
    kept = np.setdiff1d(np.arange(len(r)), held)
    features = Features.of(z[kept], multiplier * median_distance(z))
    phi = features(z[held])
    widths = np.empty((len(SYMMETRY_GRID), len(held)))
    for row, solved in enumerate(descend(settings, features.v, r[kept], SYMMETRY_GRID, SCREENING_GAP, check)):
        f_upper, f_lower = solved.operators.envelopes(phi)
        widths[row] = np.sqrt(np.where(r[held] > 0, f_upper, f_lower) + settings.delta)
    return HeldOut(held, np.abs(r[held]) / widths, widths)


@dataclass(frozen=True, slots=True)
class Curves:
    """Both statistics along SYMMETRY_GRID at the best length-scale so far; losses: multiplier -> least loss over the grid."""

    multiplier: float
    losses: Mapping[float, float]
    dcov: Array
    hsic: Array


def curves(training: Training, parts: Mapping[float, list[HeldOut]], settings: Settings) -> Curves:
    """What the folds that have ended say, per multiplier."""
    found: dict[float, Curves] = {}
    losses: dict[float, float] = {}
    for multiplier, some in parts.items():
        held = HeldOut.join(some)
        criterion = Criterion(settings.criterion, training.z[held.rows], training.r[held.rows])
        dcov, hsic = criterion.dcov(held.scores), criterion.hsic(held.widths)
        losses[multiplier] = float(np.min(dcov if settings.criterion == "dcov" else -hsic))
        found[multiplier] = Curves(multiplier, losses, dcov, hsic)
    return found[min(losses, key=losses.__getitem__)]


@dataclass(frozen=True, slots=True)
class Selection:
    """The outcome: curves over SYMMETRY_GRID, p-values (6,), the chosen index, and lambda3 there."""

    curves: Curves
    p_values: Array
    chosen: int

    @property
    def lambda3(self) -> float:
        return SYMMETRY_GRID[self.chosen]


def select(training: Training, parts: Mapping[float, list[HeldOut]], settings: Settings, seed: int, check: Callable[[], None] = lambda: None) -> Selection:
    """Length-scale with the least loss, and there the most symmetric lambda3 that the data do not reject."""
    best = curves(training, parts, settings)
    held = HeldOut.join(parts[best.multiplier])
    criterion = Criterion(settings.criterion, training.z[held.rows], training.r[held.rows])
    chosen, p_values = choose_symmetry(criterion, held, np.random.default_rng([seed, _PERMUTATION_STREAM]), check)
    return Selection(best, p_values, chosen)
