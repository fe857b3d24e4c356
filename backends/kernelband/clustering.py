"""Clusters of kernels by their behaviour: K-means++ and Lloyd on standardised features (section 4, steps 2 and 3 of the card).

Written out instead of taken from a library because the paper's own rules are checked: plain K-means++ draws, at most 50 steps, an
empty centroid that restarts at a random member, and a clustering relative to the last one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from backends.contract import InputError
from backends.kernelband.bandit import MOST_CLUSTERS

LLOYD_STEPS = 50
FLAT = 1e-8  # a feature with a smaller standard deviation does not vary: it is divided by 1


class Clustering:
    """When to cluster, the clusters, and their representatives.

    k: clusters, 1 to 8. every: rounds (tau) between two clusterings, at least 1. centroids: (k, d) in standardised features, None
    before the first clustering; last: its round. Raises InputError for values outside.
    """

    def __init__(self, k: int, every: int) -> None:
        if not 1 <= k <= MOST_CLUSTERS:
            raise InputError("clusters", f"{k} clusters cannot be kept", f"choose from 1 to {MOST_CLUSTERS}")
        if every < 1:
            raise InputError("recluster_every", f"{every} rounds is no interval", "choose at least 1")
        self.k, self.every = k, every
        self.last: int | None = None
        self.centroids: np.ndarray | None = None
        self._mean, self._scale = np.zeros(1), np.ones(1)

    def due(self, members: int, round_: int) -> bool:
        """True when there are 2k members, and none was made yet or the last one is ``every`` rounds back."""
        return members >= 2 * self.k and (self.last is None or round_ - self.last >= self.every)

    def fit(self, phi: np.ndarray, round_: int, rng: np.random.Generator) -> np.ndarray:
        """Clusters phi (m, d), m >= k, at this round and returns each member's label, (m,)."""
        points = np.asarray(phi, float)
        if points.ndim != 2 or len(points) < self.k or not np.isfinite(points).all():
            raise InputError("phi", f"{self.k} clusters need as many rows of finite numbers", "give one row of features a kernel")
        self._mean, spread = points.mean(axis=0), points.std(axis=0)
        self._scale = np.where(spread < FLAT, 1.0, spread)
        self.centroids, labels = _lloyd(self.standardised(points), self.k, rng)
        self.last = round_
        return labels

    def standardised(self, phi: np.ndarray) -> np.ndarray:
        """phi (m, d) in the units of the last clustering."""
        return (np.asarray(phi, float) - self._mean) / self._scale

    def representatives(self, phi: np.ndarray, labels: np.ndarray, ms: np.ndarray) -> list[int | None]:
        """Each cluster's member nearest to its centroid, before the first clustering its fastest; None for an empty cluster.

        phi: (m, d). labels: (m,). ms: (m,). The paper's code measures this distance in raw features; here both use standardised ones.
        """
        far = np.asarray(ms, float)[None].repeat(self.k, axis=0) if self.centroids is None else _squared(self.centroids, self.standardised(phi))
        far = np.where(labels[None] == np.arange(self.k)[:, None], far, np.inf)
        return [int(row.argmin()) if np.isfinite(row).any() else None for row in far]

    def match(self, before: np.ndarray) -> Sequence[int]:
        """For each new cluster the old one (centroids ``before``, in raw features, (k, d)) whose place it takes: the least total distance."""
        assert self.centroids is not None, "there is no clustering to match yet"
        new, old = linear_sum_assignment(_squared(self.centroids, self.standardised(before)))
        return [int(o) for _, o in sorted(zip(new, old, strict=True))]

    def raw_centroids(self) -> np.ndarray | None:
        """The centroids in raw features, (k, d)."""
        return None if self.centroids is None else self.centroids * self._scale + self._mean


def _squared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Squared distances of the rows of a (k, d) to those of b (m, d), (k, m)."""
    return ((a[:, None] - b[None]) ** 2).sum(axis=2)


def _lloyd(points: np.ndarray, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    centroids = _plus_plus(points, k, rng)
    for _ in range(LLOYD_STEPS):
        belongs = _squared(centroids, points).argmin(axis=0) == np.arange(k)[:, None]
        counts = belongs.sum(axis=1)
        moved = (belongs @ points) / np.maximum(counts, 1)[:, None]
        alone = counts == 0
        moved[alone] = points[rng.integers(len(points), size=int(alone.sum()))]
        if np.allclose(centroids, moved, atol=1e-6):
            break
        centroids = moved
    return centroids, _squared(centroids, points).argmin(axis=0)


def _plus_plus(points: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """K-means++: each further centroid is a member drawn with probability proportional to its squared distance to the nearest one."""
    chosen = [int(rng.integers(len(points)))]
    for _ in range(1, k):
        nearest = _squared(points[chosen], points).min(axis=0)
        total = nearest.sum()
        # Members that all lie on a centroid already leave nothing to weigh by.
        chosen.append(int(rng.choice(len(points), p=nearest / total if total > 0 else None)))
    return points[chosen]
