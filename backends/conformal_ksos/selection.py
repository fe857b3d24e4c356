"""Choosing length-scale and symmetry from the training rows alone (section 4.7 of the card; reconstructed).

Criterion: the out-of-fold scores should carry no information about (x, side). Choice of lambda3: from the symmetric end,
the first value that is not significantly worse than the best one by a paired permutation test.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.spatial.distance import pdist, squareform
from scipy.stats import rankdata

from backends.conformal_ksos.checks import array
from backends.contract import InputError

Array = np.ndarray
CriterionName = Literal["dcov", "hsic"]

SYMMETRY_GRID = (math.inf, 100.0, 10.0, 1.0, 0.1, 0.0)  # from symmetric to separate, the order in which it is solved
LENGTH_SCALE_GRID = (0.25, 0.5, 1.0, 2.0, 4.0)  # times the median distance
FOLDS = 5
PERMUTATIONS = 200
LEVEL = 0.05


def _centred_distances(a: Array, name: str) -> Array:
    rows = array(name, a)
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.shape[0] < 1:
        raise InputError(name, f"has the shape {rows.shape}", "give numbers (n,) or (n, d), n at least 1")
    distances = squareform(pdist(rows))
    means = distances.mean(axis=0)
    return distances - means[:, None] - means[None, :] + means.mean()


def distance_covariance(a: Array, b: Array) -> float:
    """Squared sample distance covariance dCov^2 (V-statistic) of a (n,) or (n, p) and b (n,) or (n, q).

    Equals the HSIC with the energy kernel |x| + |y| - |x - y| on both sides, Tr(K1 H K2 H) / n^2.
    Raises InputError when the rows do not match or hold NaN.

    >>> distance_covariance([1, 2, 4, 8], [1, 3, 2, 5])
    2.046875
    """
    first, second = _centred_distances(a, "a"), _centred_distances(b, "b")
    if first.shape != second.shape:
        raise InputError("b", f"has {len(second)} rows, a has {len(first)}", "give the same number of rows")
    return float(np.mean(first * second))


class Dependence:
    """dCov^2 of many one-dimensional samples with one fixed partner (n, q), whose distances are centred once."""

    def __init__(self, partner: Array) -> None:
        self._centred = _centred_distances(partner, "partner")

    def __call__(self, samples: Array) -> Array:
        """(B,) values for samples (B, n). Centring one side is enough: the double-centred matrix has zero row sums."""
        return np.array([np.vdot(np.abs(sample[:, None] - sample), self._centred) for sample in samples]) / self._centred.size


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Out-of-fold results of one length-scale, one row per value of SYMMETRY_GRID.

    rows: (m,) training rows in the order of the columns; scores, widths: (6, m), width = half-width on the side of the residual.
    """

    rows: Array
    scores: Array
    widths: Array

    @classmethod
    def join(cls, parts: list[HeldOut]) -> HeldOut:
        return cls(
            np.concatenate([p.rows for p in parts]),
            np.concatenate([p.scores for p in parts], axis=1),
            np.concatenate([p.widths for p in parts], axis=1),
        )


class Criterion:
    """Both statistics on the training rows x (n, d) standardised, residuals (n,); ``loss`` is the named one, smaller = better."""

    def __init__(self, name: CriterionName, x: Array, residuals: Array) -> None:
        self.name = name
        self._situation = Dependence(np.column_stack([x, np.where(residuals > 0, 1.0, -1.0)]))
        self._size = Dependence(np.abs(residuals))

    def dcov(self, scores: Array) -> Array:
        """dCov^2(rank(s) / n, (x, side)) of scores (B, n)."""
        return self._situation(rankdata(scores, axis=1) / scores.shape[1])

    def hsic(self, widths: Array) -> Array:
        """HSIC(|r|, width on the side of the residual) of widths (B, n), with the energy kernel."""
        return self._size(widths)

    def columns(self, held: HeldOut) -> Array:
        """(6, n): what a permutation swaps, ranks of the scores or the widths."""
        return rankdata(held.scores, axis=1) if self.name == "dcov" else held.widths

    def loss(self, columns: Array) -> Array:
        """(B,) losses of columns (B, n)."""
        return self.dcov(columns) if self.name == "dcov" else -self.hsic(columns)


def paired_permutation(criterion: Criterion, candidate: Array, best: Array, rng: np.random.Generator) -> float:
    """p-value of "the candidate's loss exceeds the best one's by chance": rows swap their two values with probability 1/2.

    candidate, best: (n,) columns. p = (1 + #{permuted excess >= observed}) / (B + 1), B = 200.
    """
    observed = criterion.loss(candidate[None])[0] - criterion.loss(best[None])[0]
    swap = rng.random((PERMUTATIONS, candidate.size)) < 0.5
    excess = criterion.loss(np.where(swap, best, candidate)) - criterion.loss(np.where(swap, candidate, best))
    return float((1 + np.count_nonzero(excess >= observed)) / (PERMUTATIONS + 1))


def choose_symmetry(criterion: Criterion, held: HeldOut, rng: np.random.Generator, check: Callable[[], None] = lambda: None) -> tuple[int, Array]:
    """(index into SYMMETRY_GRID, p-values (6,)): the most symmetric value that the data do not reject at 5 %.

    The p-value of the best value itself is 1; values below the choice are tested too, for the picture.
    """
    columns = criterion.columns(held)
    best = int(np.argmin(criterion.loss(columns)))
    p_values = np.ones(len(columns))
    for index, column in enumerate(columns):
        check()
        if index != best:
            p_values[index] = paired_permutation(criterion, column, columns[best], rng)
    chosen = next(i for i in range(len(columns)) if i == best or p_values[i] > LEVEL)
    return chosen, p_values
