"""Split-conformal calibration with one exact finite-sample quantile (section 4.6 of the card)."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from backends.conformal_ksos.checks import array, number
from backends.contract import InputError

Array = np.ndarray


def rank_needed(n_calibration: int, alpha: float) -> int:
    """k = ceil((1 - alpha)(n_c + 1)), at least 1; above n_c the quantile is infinite.

    >>> rank_needed(9, 0.1), rank_needed(8, 0.1)
    (9, 9)
    """
    # (1 - 0.1) * 10 may come out above 9: the rank must not jump by the rounding of alpha, of 1 - alpha and of the product
    rounding = 4 * sys.float_info.epsilon * (n_calibration + 1)
    return max(1, math.ceil((1 - alpha) * (n_calibration + 1) - rounding))


def conformal_quantile(scores: Array, alpha: float) -> float:
    """The k-th smallest score, k = ceil((1 - alpha)(n_c + 1)), or +inf when k > n_c.

    scores: (n_c,) finite or +inf; alpha in (0, 1). With exchangeable scores a new one is at most this value with
    probability >= 1 - alpha. Raises InputError for bad scores or alpha.

    >>> conformal_quantile(np.arange(1.0, 10.0), 0.1), conformal_quantile(np.arange(8.0), 0.1)
    (9.0, inf)
    """
    values = array("scores", scores, infinite=True)
    if values.ndim != 1:
        raise InputError("scores", f"has the shape {values.shape}", "give one row of numbers (n_c,)")
    level = number("alpha", alpha, "choose a value between 0 and 1, such as 0.1", 0, 1, open_low=True, open_high=True)
    k = rank_needed(values.size, level)
    return math.inf if k > values.size else float(np.partition(values, k - 1)[k - 1])


@dataclass(frozen=True, slots=True)
class Interval:
    """A band at some rows: lower and upper edge, (m,) each, in the units of y; infinite where the quantile is."""

    lower: Array
    upper: Array

    def report(self, y: Array) -> BandReport:
        """Coverage, one-sided misses and mean width on the rows y (m,)."""
        above, below = y > self.upper, y < self.lower
        width = float(np.mean(self.upper - self.lower))
        inside = float(np.mean(~(above | below)))
        return BandReport(inside, float(above.mean()), float(below.mean()), width if math.isfinite(width) else None)


@dataclass(frozen=True, slots=True)
class BandReport:
    """What a band does on the test rows; mean_width is None when the band is infinite."""

    coverage: float
    miss_above: float
    miss_below: float
    mean_width: float | None


@dataclass(frozen=True, slots=True)
class HalfWidths:
    """Half-widths before calibration: sqrt(f + delta) times the residual sd, (m,) each, in the units of y."""

    upper: Array
    lower: Array

    @classmethod
    def of(cls, f_upper: Array, f_lower: Array, residual_sd: float, delta: float) -> HalfWidths:
        """From squared half-widths of standardised residuals."""
        return cls(residual_sd * np.sqrt(f_upper + delta), residual_sd * np.sqrt(f_lower + delta))

    def scores(self, residuals: Array) -> Array:
        """S = r / upper where r > 0, else -r / lower; (m,)."""
        return np.abs(residuals) / np.where(residuals > 0, self.upper, self.lower)

    def band(self, mean: Array, quantile: float) -> Interval:
        """[m - q lower, m + q upper]."""
        return Interval(mean - quantile * self.lower, mean + quantile * self.upper)


def clopper_pearson(hits: Array, counts: Array, level: float = 0.95) -> tuple[Array, Array]:
    """Exact binomial interval of each proportion hits / counts; NaN where the count is 0."""
    tail = (1 - level) / 2
    with np.errstate(invalid="ignore"):
        low = np.where(hits > 0, beta.ppf(tail, hits, counts - hits + 1), 0.0)
        high = np.where(hits < counts, beta.ppf(1 - tail, hits + 1, counts - hits), 1.0)
    return np.where(counts > 0, low, np.nan), np.where(counts > 0, high, np.nan)
