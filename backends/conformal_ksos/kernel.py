"""Matern-5/2 kernel and the finite-dimensional features of the representer theorem (section 4.3 of the card).

With K = V^T V every operator of the problem is an r x r matrix: f(x_i) = v_i^T A v_i, and at a new point
f(x) = Phi(x)^T A Phi(x) with Phi(x) = L^{-1/2} U^T k(X, x) for K = U L U^T.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist, pdist

from backends.contract import InputError

Array = np.ndarray

TRACE_SHARE = 0.9999  # of the kernel's trace that the low-rank features keep
MAX_RANK = 64  # bounds one eigen-decomposition to about 0.4 ms
NUMERICAL_RANK = 1e-9  # share of the trace below which eigenvalues change no optimum by more than 1e-8 of itself


def matern52(x: Array, z: Array, length_scale: float) -> Array:
    """Matern-5/2 kernel matrix k(x, z) of shape (n, m) for x (n, d) and z (m, d); k(x, x) = 1.

    >>> matern52(np.zeros((1, 1)), np.zeros((1, 1)), 1.0)
    array([[1.]])
    """
    scaled = np.sqrt(5.0) / length_scale * cdist(x, z)
    return (1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)


def median_distance(x: Array) -> float:
    """Median of the positive pairwise distances of the rows of x (n, d); 1 when all rows coincide."""
    distances = pdist(x)
    positive = distances[distances > 0]
    return float(np.median(positive)) if positive.size else 1.0


def factor(gram: Array, *, tail: float = NUMERICAL_RANK, max_rank: int | None = None) -> tuple[Array, Array]:
    """(eigenvalues (r,), eigenvectors (n, r)) of a kernel matrix, descending, cut where the rest is below ``tail`` of the trace.

    Raises InputError for field ``K`` when the matrix is not positive semi-definite.
    """
    values, vectors = np.linalg.eigh(gram)
    values, vectors = values[::-1], vectors[:, ::-1]
    if values[0] <= 0 or values[-1] < -1e-8 * values[0]:
        raise InputError("K", f"has the eigenvalue {values[-1]:.3g} and is not a kernel matrix", "give a positive semi-definite matrix")
    values = np.maximum(values, 0.0)
    rest = np.cumsum(values[::-1])[::-1]
    # a subnormal or zero eigenvalue would divide by zero in Phi
    rank = max(1, int(np.count_nonzero((rest > tail * rest[0]) & (values > NUMERICAL_RANK * 1e-3 * rest[0]))))
    rank = min(rank, max_rank or rank)
    return values[:rank], vectors[:, :rank]


@dataclass(frozen=True, slots=True)
class Features:
    """Low-rank features of a set of anchor rows.

    anchors: (n, d) rows; v: (r, n), column i is v_i; projection: (n, r) = U L^{-1/2}; share: kept part of the trace.
    """

    anchors: Array
    length_scale: float
    v: Array
    projection: Array
    share: float

    @classmethod
    def of(cls, x: Array, length_scale: float) -> Features:
        """The features of the rows x (n, d) for this length scale (same unit as x)."""
        values, vectors = factor(matern52(x, x, length_scale), tail=1.0 - TRACE_SHARE, max_rank=MAX_RANK)
        return cls(x, length_scale, np.sqrt(values)[:, None] * vectors.T, vectors / np.sqrt(values), float(values.sum() / len(x)))

    def __call__(self, x: Array) -> Array:
        """Phi(x) of shape (r, m) for rows x (m, d)."""
        return self.projection.T @ matern52(self.anchors, x, self.length_scale)
