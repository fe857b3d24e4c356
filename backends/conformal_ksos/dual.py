"""The duals of the penalised kernel sum-of-squares problem (section 4.4 of the card).

Primal, over A_u, A_l >= 0 with f_A(x_i) = v_i^T A v_i:

    (b/n) sum_i [f_u(x_i) + f_l(x_i)] + l1 (Tr A_u + Tr A_l) + l2 (|A_u|_F^2 + |A_l|_F^2) + l3 * coupling
    subject to f_u(x_i) >= r_i^2 where r_i > 0 and f_l(x_i) >= r_i^2 where r_i <= 0,

coupling = (1/n) sum_i (f_u(x_i) - f_l(x_i))^2 (pointwise) or |A_u - A_l|_F^2 (operator). The multiplier of row i
is held in one vector ``alpha`` (n,), whichever side the row is on; the coupling's multiplier is z (n,) or Z (r, r).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

Array = np.ndarray
Penalty = Literal["pointwise", "operator"]


@dataclass(frozen=True, slots=True)
class Multipliers:
    """Dual variables in a form that does not depend on lambda3, so that one solution can start another.

    alpha: (n,); coupling: (n,) for pointwise, (r, r) symmetric for operator, None where there is none.
    """

    alpha: Array
    coupling: Array | None

    def times(self, factor: float) -> Multipliers:
        """Both multiplied: those of a problem whose four weights are multiplied."""
        return Multipliers(factor * self.alpha, None if self.coupling is None else factor * self.coupling)


@dataclass(frozen=True, slots=True)
class Point:
    """One evaluation of a dual: x packed variables, value D(x), its gradient, and the primal operators A = C C^T it implies.

    c_upper (r, p), c_lower (r, q); f_upper, f_lower: (n,) envelopes at the anchor rows.
    """

    x: Array
    value: float
    gradient: Array
    c_upper: Array
    c_lower: Array
    f_upper: Array
    f_lower: Array


@dataclass(frozen=True, slots=True)
class Problem:
    """The data of one problem: v (r, n) features, residuals (n,), weights b, lambda1, lambda2, lambda3 in [0, inf]."""

    v: Array
    residuals: Array
    b: float
    lambda1: float
    lambda2: float
    lambda3: float
    penalty: Penalty = "pointwise"

    @property
    def n(self) -> int:
        return self.v.shape[1]

    def dual(self) -> Dual:
        """The dual of this problem: one envelope at lambda3 = inf, two independent ones at 0, else coupled."""
        if math.isinf(self.lambda3):
            return SymmetricDual(self)
        if self.lambda3 == 0:
            return Dual(self)
        return PointwiseDual(self) if self.penalty == "pointwise" else OperatorDual(self)


@dataclass
class Dual:
    """Dual of the two independent one-sided problems (lambda3 = 0), and what all duals share. Concave; maximised over alpha >= 0."""

    problem: Problem
    _floor: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.squares = self.problem.residuals**2
        self.above = self.problem.residuals > 0
        self.sign = np.where(self.above, 1.0, -1.0)
        self._floor = self.problem.lambda1 * np.eye(self.problem.v.shape[0])

    @property
    def bounded(self) -> int:
        """How many leading entries of x must stay >= 0."""
        return self.problem.n

    def start(self) -> Array:
        """alpha_i = b/n and no coupling, packed."""
        return self.pack(Multipliers(np.full(self.problem.n, self.problem.b / self.problem.n), None))

    def pack(self, multipliers: Multipliers) -> Array:
        """The variables x of these multipliers."""
        return multipliers.alpha.copy()

    def multipliers(self, x: Array) -> Multipliers:
        """The multipliers that x stands for."""
        return Multipliers(x.copy(), None)

    def evaluate(self, x: Array) -> Point:
        """Value, gradient and implied primal at x."""
        upper, lower, psd_square = self._envelopes(self._weights(x), None)
        value = float(x @ self.squares) - psd_square / (4 * self.problem.lambda2)
        return Point(x.copy(), value, self.squares - np.where(self.above, upper[1], lower[1]), upper[0], lower[0], upper[1], lower[1])

    def primal(self, point: Point) -> tuple[float, float, float]:
        """(feasible primal value, scale of A_u, scale of A_l): the certificate of section 4.5.

        Each operator is scaled until its constraints hold. Scaling both by the larger factor is feasible too and does not
        blow up f_u - f_l, which matters for large lambda3, so the better of the two is taken.
        """
        own = self._needed(point.f_upper, self.above), self._needed(point.f_lower, ~self.above)
        larger = max(own)
        return min((self._objective(point, *scales), *scales) for scales in (own, (larger, larger)))

    def _needed(self, f: Array, rows: Array) -> float:
        needed = self.squares[rows] > 0
        if not needed.any():
            return 1.0
        with np.errstate(divide="ignore", over="ignore"):
            return max(1.0, float((self.squares[rows][needed] / f[rows][needed]).max()))

    def _objective(self, point: Point, scale_upper: float, scale_lower: float) -> float:
        if not (math.isfinite(scale_upper) and math.isfinite(scale_lower)):
            return math.inf
        p = self.problem
        trace = scale_upper * float(np.sum(point.c_upper**2)) + scale_lower * float(np.sum(point.c_lower**2))
        square_upper = scale_upper**2 * float(np.sum((point.c_upper.T @ point.c_upper) ** 2))
        square_lower = scale_lower**2 * float(np.sum((point.c_lower.T @ point.c_lower) ** 2))
        mean = float(scale_upper * point.f_upper.mean() + scale_lower * point.f_lower.mean())
        value = p.b * mean + p.lambda1 * trace + p.lambda2 * (square_upper + square_lower)
        if p.lambda3 == 0 or math.isinf(p.lambda3):
            return value
        if p.penalty == "pointwise":
            return value + p.lambda3 * float(np.mean((scale_upper * point.f_upper - scale_lower * point.f_lower) ** 2))
        cross = scale_upper * scale_lower * float(np.sum((point.c_upper.T @ point.c_lower) ** 2))
        return value + p.lambda3 * max(0.0, square_upper + square_lower - 2 * cross)

    def _weights(self, alpha: Array) -> Array:
        """(2, n): alpha on its own side minus b/n."""
        weights = np.full((2, self.problem.n), -self.problem.b / self.problem.n)
        weights[0] += np.where(self.above, alpha, 0.0)
        weights[1] += np.where(self.above, 0.0, alpha)
        return weights

    def _envelopes(self, weights: Array, shift: Array | None) -> tuple[tuple[Array, Array], tuple[Array, Array], float]:
        """((C_u, f_u), (C_l, f_l), |[G_u]_+|^2 + |[G_l]_+|^2) for G = V diag(w) V^T - l1 I -/+ shift; weights (2, n) or (1, n)."""
        v, lambda2 = self.problem.v, self.problem.lambda2
        g = (v * weights[:, None, :]) @ v.T - self._floor
        if shift is not None:
            g[0] -= shift
            g[1] += shift
        eigenvalues, eigenvectors = np.linalg.eigh(g)
        sides, psd_square = [], 0.0
        for values, vectors in zip(eigenvalues, eigenvectors, strict=True):
            first = int(np.searchsorted(values, 0.0, side="right"))
            positive = values[first:]
            c = vectors[:, first:] * np.sqrt(positive / (2 * lambda2))
            sides.append((c, np.sum((c.T @ v) ** 2, axis=0)))
            psd_square += float(positive @ positive)
        return sides[0], sides[-1], psd_square


class SymmetricDual(Dual):
    """Twice the dual of the symmetric parent problem (section 4.1, m fixed): A_u = A_l, lambda3 = inf."""

    def evaluate(self, x: Array) -> Point:
        p = self.problem
        (c, f), _, psd_square = self._envelopes((x - p.b / p.n)[None], None)
        value = 2 * (float(x @ self.squares) - psd_square / (4 * p.lambda2))
        return Point(x.copy(), value, 2 * (self.squares - f), c, c, f, f)

    def primal(self, point: Point) -> tuple[float, float, float]:
        scale = self._needed(point.f_upper, np.ones(self.problem.n, dtype=bool))
        return self._objective(point, scale, scale), scale, scale

    def pack(self, multipliers: Multipliers) -> Array:
        return multipliers.alpha / 2

    def multipliers(self, x: Array) -> Multipliers:
        # the limit of the coupled duals: alpha - z and z (or their mirror image) both equal the symmetric multiplier
        return Multipliers(2 * x, self.sign * x)


class CoupledDual(Dual):
    """What the two coupled duals share: x = (alpha, t) with coupling multiplier z = scale * t + shear * sign * alpha.

    The card's substitution z = sqrt(2 l3/n) t makes small l3 well scaled; the shear also decouples alpha from z for large
    l3, where the optimum is z = sign * alpha / 2 (208 to 64 iterations at n = 150, l3 = 1000). The problem is the same.
    """

    curvature: float  # mu: the coupling's term of the dual is -(mu / 2) |z|^2

    def __post_init__(self) -> None:
        super().__post_init__()
        envelope = 1 / (2 * self.problem.lambda2)  # curvature of |[G]_+|^2 / (4 l2) along one unit direction
        self.shear = envelope / (2 * envelope + self.curvature)
        self.scale = 1 / math.sqrt(2 * envelope + self.curvature)


class PointwiseDual(CoupledDual):
    """Coupling l3/n sum (f_u - f_l)^2; t is (n,)."""

    def __post_init__(self) -> None:
        self.curvature = self.problem.n / (2 * self.problem.lambda3)
        super().__post_init__()

    def pack(self, multipliers: Multipliers) -> Array:
        alpha = multipliers.alpha
        z = np.zeros_like(alpha) if multipliers.coupling is None else multipliers.coupling
        return np.concatenate([alpha, (z - self.shear * self.sign * alpha) / self.scale])

    def multipliers(self, x: Array) -> Multipliers:
        alpha, t = x[: self.problem.n], x[self.problem.n :]
        return Multipliers(alpha.copy(), self.scale * t + self.shear * self.sign * alpha)

    def evaluate(self, x: Array) -> Point:
        alpha = x[: self.problem.n]
        z = self.scale * x[self.problem.n :] + self.shear * self.sign * alpha
        weights = self._weights(alpha)
        weights[0] -= z
        weights[1] += z
        (c_u, f_u), (c_l, f_l), psd_square = self._envelopes(weights, None)
        value = float(alpha @ self.squares) - psd_square / (4 * self.problem.lambda2) - self.curvature / 2 * float(z @ z)
        gradient_z = f_u - f_l - self.curvature * z
        gradient_alpha = self.squares - np.where(self.above, f_u, f_l) + self.shear * self.sign * gradient_z
        return Point(x.copy(), value, np.concatenate([gradient_alpha, self.scale * gradient_z]), c_u, c_l, f_u, f_l)


class OperatorDual(CoupledDual):
    """Coupling l3 |A_u - A_l|_F^2; t is the upper triangle (r(r+1)/2,) of a symmetric matrix, off-diagonals times sqrt(2)."""

    def __post_init__(self) -> None:
        self.curvature = 1 / (2 * self.problem.lambda3)
        super().__post_init__()
        self._triangle = np.triu_indices(self.problem.v.shape[0])
        self._isometry = np.where(self._triangle[0] == self._triangle[1], 1.0, math.sqrt(2.0))

    @cached_property
    def _sheared(self) -> Array:
        """(r, n): shear * sign_i * v_i, so that the shear of alpha is V diag(alpha) S^T."""
        return self.shear * self.sign * self.problem.v

    def _coupling(self, x: Array) -> Array:
        z = np.zeros_like(self._floor)
        z[self._triangle] = self.scale / self._isometry * x[self.problem.n :]
        z = z + z.T - np.diag(np.diag(z))
        return z + (self.problem.v * x[: self.problem.n]) @ self._sheared.T

    def pack(self, multipliers: Multipliers) -> Array:
        alpha, v = multipliers.alpha, self.problem.v
        z = multipliers.coupling
        if z is None:
            z = np.zeros_like(self._floor)
        elif z.ndim == 1:  # from the symmetric limit
            z = (v * z) @ v.T
        z = z - (v * alpha) @ self._sheared.T
        return np.concatenate([alpha, self._isometry * z[self._triangle] / self.scale])

    def multipliers(self, x: Array) -> Multipliers:
        return Multipliers(x[: self.problem.n].copy(), self._coupling(x))

    def evaluate(self, x: Array) -> Point:
        alpha, v = x[: self.problem.n], self.problem.v
        z = self._coupling(x)
        (c_u, f_u), (c_l, f_l), psd_square = self._envelopes(self._weights(alpha), z)
        value = float(alpha @ self.squares) - psd_square / (4 * self.problem.lambda2) - self.curvature / 2 * float(np.sum(z**2))
        gradient_z = c_u @ c_u.T - c_l @ c_l.T - self.curvature * z
        along_rows = np.sum(v * (gradient_z @ self._sheared), axis=0)
        gradient_alpha = self.squares - np.where(self.above, f_u, f_l) + along_rows
        gradient_t = self.scale * self._isometry * gradient_z[self._triangle]
        return Point(x.copy(), value, np.concatenate([gradient_alpha, gradient_t]), c_u, c_l, f_u, f_l)
