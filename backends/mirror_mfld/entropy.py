"""Entropy of a cloud from the distances to nearest neighbours, and how fast the free energy falls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import digamma, gammaln

Array = np.ndarray
NEIGHBOURS = 4


def knn_entropy(points: Any, k: int = NEIGHBOURS, mirrored: Array | None = None) -> float | None:
    """Ent = E log density in nats (the negative of Shannon's entropy) by Kozachenko and Leonenko.

    points: (N, d) with N > k; mirrored: (M, d) images of points beyond a wall, which count as neighbours: without them the estimate
    takes the empty side of a wall for thin air. None where more than k points coincide: a law with atoms has no finite entropy.
    Raises ValueError for a wrong shape or NaN.
    """
    x = np.asarray(points, float)
    if x.ndim != 2 or len(x) <= k or k < 1 or not np.isfinite(x).all():
        raise ValueError("points must be (N, d) with more than k rows, all finite")
    n, d = x.shape
    tree = cKDTree(x if mirrored is None else np.concatenate([x, mirrored]))
    radius = tree.query(x, [k + 1])[0][:, 0]
    if radius.min() <= 0:
        return None
    unit_ball = d / 2 * math.log(math.pi) - gammaln(d / 2 + 1)
    return float(digamma(k) - digamma(n) - unit_ball - d * np.log(radius).mean())
