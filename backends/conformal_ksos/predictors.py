"""Predictors m(x), fitted on training rows alone, with the residuals that the envelopes are fitted to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from backends.contract import InputError

Array = np.ndarray
PredictorName = Literal["linear", "kernel-ridge", "random-forest"]

SHOWN: dict[PredictorName, str] = {"linear": "linear regression", "kernel-ridge": "kernel ridge regression", "random-forest": "random forest"}
FOLDS = 5
INTERPOLATES = 1e-6  # residuals below this share of the target's sd mean that m reproduces its training rows


@dataclass(frozen=True, slots=True)
class Predictor:
    """predict: rows (m, p) -> (m,). residuals: (n,) of the training rows, out-of-fold for the flexible predictors."""

    predict: Callable[[Array], Array]
    residuals: Array
    shown: str


def fit_predictor(name: PredictorName, x: Array, y: Array, seed: int, check: Callable[[], None] = lambda: None) -> Predictor:
    """Fits m on x (n, p), y (n,); ``check`` is called between the fits.

    A linear model hardly bends to single rows, so its own residuals serve; kernel ridge and the forest do, so theirs are out-of-fold.
    Raises InputError for field ``predictor`` when m reproduces the training rows.
    """
    from sklearn.model_selection import KFold

    model = _model(name, seed).fit(x, y)
    if name == "linear":
        residuals = y - model.predict(x)
    else:
        residuals = np.empty_like(y)
        for kept, held in KFold(FOLDS, shuffle=True, random_state=seed).split(x):
            check()
            residuals[held] = y[held] - _model(name, seed).fit(x[kept], y[kept]).predict(x[held])
    refuse_interpolation(residuals, y)
    return Predictor(model.predict, residuals, SHOWN[name])


def refuse_interpolation(residuals: Array, y: Array) -> None:
    """Raises InputError when the residuals do not vary: there is nothing to learn a width from."""
    if np.std(residuals) <= INTERPOLATES * np.std(y):
        problem = "it reproduces the training rows, so all residuals are 0 or equal"
        raise InputError("predictor", problem, "choose another one, or bring out-of-fold predictions as a column")


def _model(name: PredictorName, seed: int) -> Any:
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if name == "linear":
        return LinearRegression()
    if name == "random-forest":
        return RandomForestRegressor(n_estimators=100, min_samples_leaf=5, random_state=seed, n_jobs=1)
    from sklearn.compose import TransformedTargetRegressor

    # the target is centred because kernel ridge has no intercept
    return TransformedTargetRegressor(make_pipeline(StandardScaler(), KernelRidge(kernel="rbf", alpha=1.0)), transformer=StandardScaler())
