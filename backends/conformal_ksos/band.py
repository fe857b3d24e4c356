"""A conformal band on one's own data: split, predictor, selection, envelopes, calibration (section 4.8 of the card)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

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
        rows = _rows(x)
        return self.envelope.half_widths(rows).band(self.mean(rows), self.quantile)


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
    _check_options(alpha, symmetry, predictor, length_scale, calibration_fraction)
    settings = settings or Settings()
    n_calibration = round(calibration_fraction * len(target))
    n_train = min(len(target) - n_calibration, MAX_KERNEL_ROWS)
    train, calibration, _ = split_rows(len(target), n_train, n_calibration, seed)
    if callable(predictor):
        mean = predictor
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


def _rows(x: Array) -> Array:
    rows = np.asarray(x, dtype=float)
    return rows[:, None] if rows.ndim == 1 else rows


def _checked(x: Array, y: Array) -> tuple[Array, Array]:
    try:
        rows, target = _rows(x), np.asarray(y, dtype=float)
    except (TypeError, ValueError):
        raise InputError("X", "X or y hold something that is not a number", "give arrays of numbers") from None
    if rows.ndim != 2 or rows.shape[1] == 0 or target.shape != (rows.shape[0],):
        raise InputError("X", f"has the shape {rows.shape} beside y of {target.shape}", "give (n, d) and (n,)")
    if len(target) < MIN_ROWS:
        raise InputError("X", f"has {len(target)} rows", f"give at least {MIN_ROWS}")
    for name, array in (("X", rows), ("y", target)):
        if not np.isfinite(array).all():
            raise InputError(name, "holds NaN or infinity", "give finite numbers")
        if np.any(np.ptp(array, axis=0) == 0):
            raise InputError(name, "has a column that never changes", "leave it out")
    return rows, target


def _check_options(alpha: float, symmetry: Symmetry, predictor: object, length_scale: float | str, calibration_fraction: float) -> None:
    if not 0 < alpha < 1:
        raise InputError("alpha", f"{alpha} is not between 0 and 1", "choose a value such as 0.1")
    if symmetry not in ("auto", "separate", "symmetric") and not (isinstance(symmetry, int | float) and symmetry >= 0):
        raise InputError("symmetry", f"{symmetry!r} is unknown", "choose auto, separate, symmetric or a number of 0 or more")
    if not callable(predictor) and predictor not in ("linear", "kernel-ridge", "random-forest"):
        raise InputError("predictor", f"{predictor!r} is unknown", "choose linear, kernel-ridge, random-forest or give a function")
    if length_scale != "auto" and not (isinstance(length_scale, int | float) and 0 < length_scale < math.inf):
        raise InputError("length_scale", f"{length_scale!r} is not possible", "choose auto or a positive number")
    if not 0.05 <= calibration_fraction <= 0.9:
        raise InputError("calibration_fraction", f"{calibration_fraction} is not possible", "choose a value from 0.05 to 0.9")
