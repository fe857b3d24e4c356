"""A conformal band on one's own data: split, predictor, selection, envelopes, calibration (section 4.8 of the card)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from backends.conformal_ksos.checks import array, number, one_of, seed_number, shown
from backends.conformal_ksos.conformal import HalfWidths, Interval, conformal_quantile, rank_needed
from backends.conformal_ksos.cross_validation import Settings, Training, descend, folds, held_out, larger, select
from backends.conformal_ksos.kernel import Features
from backends.conformal_ksos.predictors import PredictorName, fit_predictor, refuse_interpolation
from backends.conformal_ksos.selection import LENGTH_SCALE_GRID
from backends.conformal_ksos.solver import Fit, SolverName, fit
from backends.contract import InputError

Array = np.ndarray
Symmetry = float | Literal["auto", "separate", "symmetric"]

MIN_ROWS = 30
LARGEST = 1e100  # squares of larger numbers leave the range of floats
MAX_KERNEL_ROWS = 600  # training rows; one kernel matrix and its eigen-decomposition stay below 0.1 s
_SPLIT_STREAM = 3


@dataclass(frozen=True, slots=True)
class Envelope:
    """Solved envelopes with the units they were solved in: gives half-widths at any row."""

    training: Training
    features: Features
    solved: Fit
    delta: float

    def half_widths(self, x: Array) -> HalfWidths:
        """sqrt(f + delta) in the units of y at raw rows x (m, d)."""
        f_upper, f_lower = self.solved.operators.envelopes(self.features(self.training.standardise(x)))
        return HalfWidths.of(f_upper, f_lower, self.training.residual_sd, self.delta)


@dataclass(frozen=True, slots=True)
class Band:
    """A calibrated band. ``predict(x)`` gives its edges at new rows (m, d); ``mean(x)`` its middle line.

    quantile: q, inf when there are too few calibration rows; lambda3: the symmetry used, 0 = separate, inf = symmetric;
    length_scale: in median distances; gap: relative duality gap; coverage: k / (n_c + 1), exact for continuous exchangeable scores.
    """

    mean: Callable[[Array], Array]
    envelope: Envelope
    quantile: float
    lambda3: float
    length_scale: float
    gap: float
    coverage: float

    def predict(self, x: Array) -> Interval:
        """Lower and upper edge at rows x (m, d), (m,) for d = 1. Raises InputError for field ``x``."""
        rows = _rows("x", x)
        d = self.envelope.training.x.shape[1]
        if rows.ndim != 2 or rows.shape[1] != d or len(rows) == 0:
            raise InputError("x", f"has the shape {np.shape(x)}", f"give rows of {d} numbers, (m, {d}){' or (m,)' if d == 1 else ''}, m at least 1")
        return self.envelope.half_widths(rows).band(self.mean(rows), self.quantile)


@dataclass(frozen=True, slots=True)
class _GivenPredictor:
    """A caller's predictor, whose answers are checked."""

    function: Callable[[Array], Array]

    def __call__(self, rows: Array) -> Array:
        found = array("predictor", self.function(rows))
        if found.shape != (len(rows),):
            raise InputError("predictor", f"returned the shape {found.shape} for {len(rows)} rows", "return one number a row, (m,) and not (m, 1)")
        return found


def split_rows(n: int, n_train: int, n_calibration: int, seed: int) -> tuple[Array, Array, Array]:
    """Seeded row numbers of the training, calibration and test part."""
    order = np.random.default_rng([seed, _SPLIT_STREAM]).permutation(n)
    return order[:n_train], order[n_train : n_train + n_calibration], order[n_train + n_calibration :]


def as_lambda3(symmetry: float | str, chosen: float) -> float:
    """lambda3 of a symmetry setting; ``chosen`` is what "auto" stands for."""
    words = {"auto": chosen, "separate": 0.0, "symmetric": math.inf}
    return words[symmetry] if isinstance(symmetry, str) else float(symmetry)


def fit_band(
    X: Array,
    y: Array,
    *,
    alpha: float = 0.1,
    symmetry: Symmetry = "auto",
    predictor: PredictorName | Callable[[Array], Array] = "linear",
    length_scale: float | Literal["auto"] = "auto",
    calibration_fraction: float = 0.4,
    settings: Settings | None = None,
    solver: SolverName = "l-bfgs-b",
    seed: int = 0,
) -> Band:
    """Fits an asymmetric adaptive band with coverage >= 1 - alpha on exchangeable rows.

    X: (n, d) or (n,), d small (the kernel sees all columns); y: (n,), n >= 30; symmetry: "auto", "separate", "symmetric" or lambda3
    >= 0; predictor: a name, or a function (m, d) -> (m,) fitted on other rows; length_scale: "auto" or a multiple of the median
    distance; calibration_fraction: part of the rows used only for the quantile. Raises InputError naming the argument.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, 200)
    >>> band = fit_band(x, x + 0.3 * rng.exponential(size=200), symmetry="separate", length_scale=1.0)
    >>> edges = band.predict(np.array([0.0, 0.5]))
    >>> bool((edges.lower < edges.upper).all()), round(band.coverage, 3)
    (True, 0.901)
    """
    rows, target = _checked(X, y)
    alpha = number("alpha", alpha, "choose a value between 0 and 1, such as 0.1", 0, 1, open_low=True, open_high=True)
    symmetry = _word_or_number("symmetry", symmetry, ("auto", "separate", "symmetric"), "0 or more", False)
    length_scale = _word_or_number("length_scale", length_scale, ("auto",), "above 0", True)
    calibration_fraction = number("calibration_fraction", calibration_fraction, "choose a value from 0.05 to 0.9", 0.05, 0.9)
    seed = seed_number(seed)
    one_of("solver", solver, ("l-bfgs-b", "fista"))
    if not callable(predictor):
        one_of("predictor", predictor, ("linear", "kernel-ridge", "random-forest"))
    settings = _checked_settings(Settings() if settings is None else settings)
    n_calibration = round(calibration_fraction * len(target))
    n_train = min(len(target) - n_calibration, MAX_KERNEL_ROWS)
    train, calibration, _ = split_rows(len(target), n_train, n_calibration, seed)
    if np.any(np.ptp(rows[train], axis=0) == 0):
        raise InputError("X", "has a column that never changes in the training rows", "leave it out")
    mean: Callable[[Array], Array]
    if callable(predictor):
        mean = _GivenPredictor(predictor)
        residuals = target[train] - mean(rows[train])
        refuse_interpolation(residuals, target[train])
    else:
        fitted = fit_predictor(predictor, rows[train], target[train], seed)
        mean, residuals = fitted.predict, fitted.residuals
    training = Training.of(rows[train], residuals)
    chosen, multiplier = math.nan, length_scale
    if symmetry == "auto" or multiplier == "auto":
        multipliers = LENGTH_SCALE_GRID if multiplier == "auto" else (multiplier,)
        parts = {m: [held_out(training, m, held, settings) for held in folds(n_train, seed)] for m in multipliers}
        selection = select(training, parts, settings, seed)
        chosen, multiplier = selection.lambda3, selection.curves.multiplier
    lambda3 = as_lambda3(symmetry, chosen)
    features = training.features(float(multiplier))
    start = None
    for solved in descend(settings, features.v, training.r, larger(lambda3), settings.tolerance, lambda: None):
        start = solved.multipliers
    solved = fit(settings.problem(features.v, training.r, lambda3), tolerance=settings.tolerance, solver=solver, start=start)
    envelope = Envelope(training, features, solved, settings.delta)
    calibrated = envelope.half_widths(rows[calibration]).scores(target[calibration] - mean(rows[calibration]))
    quantile = conformal_quantile(calibrated, alpha)
    coverage = min(1.0, rank_needed(n_calibration, alpha) / (n_calibration + 1)) if math.isfinite(quantile) else 1.0
    return Band(mean, envelope, quantile, lambda3, float(multiplier), solved.gap, coverage)


def _rows(name: str, x: Any) -> Array:
    rows = array(name, x)
    return rows[:, None] if rows.ndim == 1 else rows


def _checked(x: Any, y: Any) -> tuple[Array, Array]:
    rows, target = _rows("X", x), array("y", y)
    if rows.ndim != 2 or rows.shape[1] == 0 or target.shape != (rows.shape[0],):
        raise InputError("X", f"has the shape {rows.shape} beside y of {target.shape}", "give (n, d) and (n,)")
    if len(target) < MIN_ROWS:
        raise InputError("X", f"has {len(target)} rows", f"give at least {MIN_ROWS}")
    for name, numbers in (("X", rows), ("y", target)):
        if np.abs(numbers).max() > LARGEST:
            raise InputError(name, f"holds a number above {LARGEST:g}", "give it in another unit")
        if np.any(np.ptp(numbers, axis=0) == 0):
            raise InputError(name, "has a column that never changes", "leave it out")
    return rows, target


def _word_or_number(name: str, value: Any, words: tuple[str, ...], bound: str, positive: bool) -> Any:
    if isinstance(value, str) and value in words:
        return value
    high = math.nextafter(math.inf, 0) if positive else math.inf  # an infinite lambda3 is the symmetric limit
    return number(name, value, f"choose {', '.join(words)} or a number {bound}", 0, high, open_low=positive)


def _checked_settings(settings: Settings) -> Settings:
    if not isinstance(settings, Settings):
        raise InputError("settings", f"{shown(settings)} is not possible", "give a Settings")
    one_of("penalty", settings.penalty, ("pointwise", "operator"))
    one_of("criterion", settings.criterion, ("dcov", "hsic"))
    above, least = "choose a number above 0, at most 1e30", "choose a number from 0 to 1e30"
    return replace(
        settings,
        b=number("b", settings.b, least, 0, 1e30),
        lambda1=number("lambda1", settings.lambda1, least, 0, 1e30),
        lambda2=number("lambda2", settings.lambda2, above, 0, 1e30, open_low=True),
        delta=number("delta", settings.delta, above, 0, 1e30, open_low=True),
        tolerance=number("tolerance", settings.tolerance, above, 0, 1e30, open_low=True),
    )
