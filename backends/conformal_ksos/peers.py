"""The peers that run beside the method: constant width, and MAPIE's split conformal and conformalised quantile regression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from backends.conformal_ksos.conformal import Interval, conformal_quantile

Array = np.ndarray


def constant_width(residuals_calibration: Array, mean: Array, alpha: float) -> Interval:
    """m -/+ the conformal quantile of |r|."""
    quantile = conformal_quantile(np.abs(residuals_calibration), alpha)
    return Interval(mean - quantile, mean + quantile)


class _Given(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A fitted predictor whose "features" are row numbers: gives the predictions that the method itself uses to MAPIE."""

    is_fitted = True  # the sign that MAPIE looks for

    def __init__(self, predictions: Array) -> None:
        self.predictions = predictions

    def fit(self, x: Array, y: Array) -> _Given:
        return self

    def predict(self, x: Array) -> Array:
        return self.predictions[np.asarray(x)[:, 0]]


@dataclass(frozen=True, slots=True)
class Rows:
    """What the peers may see. x: (N, p); y, mean: (N,); train, calibration, test: row numbers."""

    x: Array
    y: Array
    mean: Array
    train: Array
    calibration: Array
    test: Array


def mapie_split(rows: Rows, alpha: float) -> Interval | None:
    """MAPIE's split conformal band around the same m on the test rows; None when it refuses so few calibration rows."""
    from mapie.regression import SplitConformalRegressor

    def band() -> Interval:
        model = SplitConformalRegressor(_Given(rows.mean), confidence_level=1 - alpha, prefit=True)
        # without it MAPIE draws a seed for folds that a fitted predictor does not have, from numpy's global state
        model._mapie_regressor.random_state = 0
        model.conformalize(rows.calibration[:, None], rows.y[rows.calibration])
        return _interval(model.predict_interval(rows.test[:, None])[1])

    return _or_none(band)


def mapie_cqr(rows: Rows, alpha: float, check: Callable[[], None] = lambda: None) -> Interval | None:
    """MAPIE's conformalised quantile regression with linear quantile regression on quadratic splines; None when it refuses.

    The three quantiles are sorted at each row (Chernozhukov, Fernandez-Val and Galichon 2010), so that they never cross.
    """
    from mapie.regression import ConformalizedQuantileRegressor
    from sklearn.linear_model import QuantileRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import SplineTransformer

    quantiles = []
    for level in (alpha / 2, 0.5, 1 - alpha / 2):
        check()
        splines = SplineTransformer(n_knots=4, degree=2, extrapolation="linear")
        fitted = make_pipeline(splines, QuantileRegressor(quantile=level, alpha=1e-3)).fit(rows.x[rows.train], rows.y[rows.train])
        quantiles.append(fitted.predict(rows.x))
    lower, median, upper = np.sort(quantiles, axis=0)

    def band() -> Interval:
        given = [_Given(lower), _Given(upper), _Given(median)]  # the order that MAPIE asks for
        model = ConformalizedQuantileRegressor(given, confidence_level=1 - alpha, prefit=True)
        model.conformalize(rows.calibration[:, None], rows.y[rows.calibration])
        return _interval(model.predict_interval(rows.test[:, None])[1])

    return _or_none(band)


def _interval(edges: Array) -> Interval:
    return Interval(edges[:, 0, 0], edges[:, 1, 0])


def _or_none(band: Callable[[], Interval]) -> Interval | None:
    try:
        return band()
    except ValueError as error:
        if "Number of samples of the score is too low" in str(error):  # MAPIE's way of saying: infinite band
            return None
        raise
