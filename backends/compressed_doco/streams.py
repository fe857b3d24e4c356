"""Streams of losses f_{t,i}: what each of n learners meets in each of T rounds, and the best fixed decision in hindsight.

Points are (..., L or 1, n, d): one decision for each round of a stretch of L, or one for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.special import expit

GAP = 1e-9  # certified excess loss a sample at which the search for the best decision ends
ITERATIONS = 20_000


@dataclass(frozen=True, slots=True)
class Best:
    """The best fixed decision: point (d,); losses (T,), the sum over learners in each round; gap, its certified excess a sample."""

    point: np.ndarray
    losses: np.ndarray
    gap: float


class Stream(Protocol):
    """The losses of n learners in T rounds and d dimensions; curvature mu is 0 where they are merely convex."""

    @property
    def learners(self) -> int: ...
    @property
    def horizon(self) -> int: ...
    @property
    def dimension(self) -> int: ...
    @property
    def curvature(self) -> float: ...

    def local_losses(self, start: int, stop: int, points: np.ndarray) -> np.ndarray:
        """f_{t,i}(point_i), (..., L, n), for rounds start to stop - 1."""

    def local_gradients(self, start: int, stop: int, points: np.ndarray) -> np.ndarray:
        """Gradients of the same, (..., L, n, d)."""

    def global_losses(self, start: int, stop: int, points: np.ndarray) -> np.ndarray:
        """sum_j f_{t,j}(point_i), (..., L, n): every learner is judged on all data."""

    def best(self, radius: float) -> Best:
        """The minimiser of the sum of all losses over the ball of this radius."""


def project_ball(points: np.ndarray, radius: float) -> np.ndarray:
    """The nearest points, (..., d), of the ball of this radius about the origin. Raises ValueError for a radius of at most 0."""
    if not radius > 0:
        raise ValueError(f"the radius must be above 0, not {radius}")
    norm = np.linalg.norm(points, axis=-1, keepdims=True)
    return points * np.minimum(1.0, radius / np.maximum(norm, np.finfo(float).tiny))


@dataclass(frozen=True)
class LogisticStream:
    """f_{t,i}(x) = ln(1 + exp(-<row, x>)) with the row that learner i draws in round t.

    rows: (N, d), each multiplied by its label +1 or -1; picks: (T, n) of row numbers. Raises ValueError for rows that are not
    finite or picks outside them.
    """

    rows: np.ndarray
    picks: np.ndarray
    curvature: float = 0.0

    def __post_init__(self) -> None:
        if self.rows.ndim != 2 or self.picks.ndim != 2 or not self.picks.size:
            raise ValueError(f"rows {self.rows.shape} must be (N, d) and picks {self.picks.shape} (T, n), neither empty")
        if not np.isfinite(self.rows).all():
            raise ValueError("the rows must be finite numbers")
        if self.picks.min() < 0 or self.picks.max() >= len(self.rows):
            raise ValueError("a pick names a row that is not there")

    @property
    def horizon(self) -> int:
        return int(self.picks.shape[0])

    @property
    def learners(self) -> int:
        return int(self.picks.shape[1])

    @property
    def dimension(self) -> int:
        return int(self.rows.shape[1])

    def local_losses(self, start: int, stop: int, points: np.ndarray) -> np.ndarray:
        return np.logaddexp(0.0, -self._margins(start, stop, points)[1])

    def local_gradients(self, start: int, stop: int, points: np.ndarray) -> np.ndarray:
        rows, margins = self._margins(start, stop, points)
        return -expit(-margins)[..., None] * rows

    def global_losses(self, start: int, stop: int, points: np.ndarray) -> np.ndarray:
        margins = self.rows[self.picks[start:stop]] @ np.swapaxes(points, -1, -2)  # (..., L, sample, decision)
        return np.logaddexp(0.0, -margins).sum(axis=-2)

    def best(self, radius: float) -> Best:
        """By accelerated projected gradient on the distinct rows, until the Frank-Wolfe gap certifies an excess of 1e-9 a sample."""
        share = np.bincount(self.picks.ravel(), minlength=len(self.rows)) / self.picks.size
        rows, share = self.rows[share > 0], share[share > 0]
        smoothness = 0.25 * float(np.linalg.eigvalsh((rows * share[:, None]).T @ rows)[-1])
        point, gap = _accelerated(rows, share, smoothness, radius)
        each = np.logaddexp(0.0, -self.rows @ point)
        return Best(point, each[self.picks].sum(axis=1), gap)

    def _margins(self, start: int, stop: int, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = self.rows[self.picks[start:stop]]
        return rows, (rows * points).sum(axis=-1)


def _accelerated(rows: np.ndarray, share: np.ndarray, smoothness: float, radius: float) -> tuple[np.ndarray, float]:
    """Nesterov's method, started anew whenever it turns uphill (O'Donoghue and Candes), for the weighted mean logistic loss."""
    point = np.zeros(rows.shape[1])
    ahead, pace, gap = point, 1.0, np.inf

    def gradient(at: np.ndarray) -> np.ndarray:
        return -(share * expit(-(rows @ at))) @ rows

    for _ in range(ITERATIONS):
        after = project_ball(ahead - gradient(ahead) / smoothness, radius)
        slope = gradient(after)
        # The largest decrease that the linear model allows in the ball bounds the excess of a convex loss.
        gap = float(slope @ after + radius * np.linalg.norm(slope))
        if gap <= GAP:
            return after, max(gap, 0.0)
        uphill = (ahead - after) @ (after - point) > 0
        faster = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        ahead = after if uphill else after + (pace - 1) / faster * (after - point)
        point, pace = after, 1.0 if uphill else faster
    return point, gap


@dataclass(frozen=True)
class QuadraticStream:
    """f_{t,i}(x) = curvature / 2 ||x - target_{t,i}||^2, whose best decision has a closed form: the mean target, projected.

    targets: (T, n, d). Raises ValueError for targets that are not finite or a curvature of at most 0.
    """

    targets: np.ndarray
    curvature: float = 1.0

    def __post_init__(self) -> None:
        if self.targets.ndim != 3 or not self.targets.size or not np.isfinite(self.targets).all():
            raise ValueError(f"the targets {self.targets.shape} must be (T, n, d), finite and not empty")
        if not self.curvature > 0:
            raise ValueError(f"the curvature must be above 0, not {self.curvature}")

    @property
    def horizon(self) -> int:
        return int(self.targets.shape[0])

    @property
    def learners(self) -> int:
        return int(self.targets.shape[1])

    @property
    def dimension(self) -> int:
        return int(self.targets.shape[2])

    def local_losses(self, start: int, stop: int, points: np.ndarray) -> np.ndarray:
        return self.curvature / 2 * ((points - self.targets[start:stop]) ** 2).sum(axis=-1)

    def local_gradients(self, start: int, stop: int, points: np.ndarray) -> np.ndarray:
        return self.curvature * (points - self.targets[start:stop])

    def global_losses(self, start: int, stop: int, points: np.ndarray) -> np.ndarray:
        centre, spread = (part[start:stop] for part in self._moments)
        near = ((points - centre[:, None]) ** 2).sum(axis=-1)
        return self.curvature / 2 * (self.learners * near + spread[:, None])

    def best(self, radius: float) -> Best:
        point = project_ball(self.targets.mean(axis=(0, 1)), radius)
        losses = self.global_losses(0, self.horizon, np.broadcast_to(point, (1, self.learners, self.dimension)))[:, 0]
        return Best(point, losses, 0.0)

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean target (T, d) and the targets' squared distance from it (T,) of each round."""
        centre = self.targets.mean(axis=1)
        return centre, ((self.targets - centre[:, None]) ** 2).sum(axis=(1, 2))


def max_regret(losses: np.ndarray, best: np.ndarray) -> np.ndarray:
    """max_i R_i(t) / (n t) after each of t = 1 ... T rounds, (T,): the worst learner's excess loss a sample.

    losses: (T, n), each learner's loss on all data of a round; best: (T,), that of the best fixed decision.
    """
    if losses.ndim != 2 or best.shape != losses.shape[:1]:
        raise ValueError(f"losses {losses.shape} must be (T, n) and best {best.shape} (T,)")
    rounds, learners = losses.shape
    return np.cumsum(losses - best[:, None], axis=0).max(axis=1) / (learners * np.arange(1, rounds + 1))
