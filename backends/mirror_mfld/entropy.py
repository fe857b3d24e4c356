"""Entropy of a cloud from the distances to nearest neighbours, and how fast the free energy falls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy.spatial import cKDTree
from scipy.special import digamma, gammaln

from backends.mirror_mfld.domains import Ball, Box, Domain, Simplex
from backends.mirror_mfld.spectraplex import Spectraplex

Array = np.ndarray
NEIGHBOURS = 4
MIRRORED_WIDTH = 0.2  # points this near to a wall get an image beyond it
MOST_POINTS = 4000  # that an entropy is estimated from
LEAST_POINTS = 16
ATOM = 1e-15  # squared radius below which points coincide
FIT_NOISES = 4.0  # a rate is fitted while the gap is above this many standard deviations of its noise
FIT_POINTS = 4  # at least


def knn_entropy(points: Any, k: int = NEIGHBOURS, images: Any = None, owners: Any = None) -> float | None:
    """Ent = E log density in nats (the negative of Shannon's entropy) by Kozachenko and Leonenko.

    points: (N, d) with N > k; images: (M, d) reflections of points at a wall, owners: (M,) whose they are. Images count as neighbours,
    but not of their owner: without them the estimate takes the far side of a wall for thin air. None where more than k points coincide:
    a law with atoms has no finite entropy. Raises ValueError for a wrong shape or NaN.
    """
    x = np.asarray(points, float)
    if k < 1 or x.ndim != 2 or len(x) <= k or not np.isfinite(x).all():
        raise ValueError("points must be (N, d) with more than k rows, all finite")
    n, d = x.shape
    beyond = np.empty((0, d)) if images is None else np.asarray(images, float)
    most = int(np.bincount(np.asarray(owners, int)).max()) if len(beyond) else 0
    distance, index = cKDTree(np.concatenate([x, beyond])).query(x, min(k + 1 + most, n + len(beyond)))
    whose = np.concatenate([np.arange(n), np.asarray(owners, int) if len(beyond) else np.empty(0, int)])
    counted = np.cumsum(whose[index] != np.arange(n)[:, None], axis=1) >= k
    radius = np.take_along_axis(distance, counted.argmax(1)[:, None], axis=1)[:, 0]
    if radius.min() <= ATOM:
        return None
    unit_ball = d / 2 * math.log(math.pi) - gammaln(d / 2 + 1)
    return float(digamma(k) - digamma(n) - unit_ball - d * np.log(radius).mean())


def cloud_entropy(domain: Domain, x: torch.Tensor, k: int = NEIGHBOURS) -> float | None:
    """Ent of a cloud (N, *shape) with respect to the chart's Lebesgue measure, walls mirrored, from at most 4,000 of its points.

    None below 16 points, on matrices above 2 x 2 and for a law with atoms.
    """
    if len(x) < LEAST_POINTS or (isinstance(domain, Spectraplex) and domain.size > 2):
        return None
    points = x[:MOST_POINTS]
    if isinstance(domain, Simplex):
        shares = points.numpy()
        basis = np.linalg.svd(np.eye(domain.shares) - 1 / domain.shares)[0][:, : domain.dimension]  # of the plane that holds the simplex
        near, which = np.nonzero(shares < MIRRORED_WIDTH)
        away = np.full((domain.shares, domain.shares), 1 / (domain.shares - 1)) - np.eye(domain.shares) * domain.shares / (domain.shares - 1)
        images = shares[near] + 2 * shares[near, which][:, None] * away[which]
        found = knn_entropy(shares @ basis, k, images @ basis, near)
        return None if found is None else found + math.log(domain.shares) / 2  # the plane has sqrt(m) of the chart's area
    flat = domain.chart(points).numpy()
    if isinstance(domain, Box):
        near, which = np.nonzero(np.abs(flat) > 1 - MIRRORED_WIDTH)
        images = flat[near].copy()
        images[np.arange(len(near)), which] = 2 * np.sign(flat[near, which]) - flat[near, which]
        return knn_entropy(flat, k, images, near)
    assert isinstance(domain, Ball | Spectraplex)
    radius = np.linalg.norm(flat, axis=1)
    near = np.flatnonzero(radius > 1 - MIRRORED_WIDTH)
    return knn_entropy(flat, k, flat[near] * (2 / radius[near] - 1)[:, None], near)


def fitted_rate(time: Any, gap: Any) -> tuple[float, float] | None:
    """(rate, log of the gap at time 0) of the exponential that fits the fall of the gap, by least squares on its logarithm.

    time, gap: (T,), NaN counts as absent. Only the first stretch above four standard deviations of the last third is fitted; None
    where it has fewer than four points or does not fall.
    """
    t, g = np.asarray(time, float), np.asarray(gap, float)
    t, g = t[np.isfinite(g)], g[np.isfinite(g)]
    tail = g[-max(len(g) // 3, 1) :]
    if len(g) < 2 * FIT_POINTS:
        return None
    low = max(abs(float(tail.mean())), 0.0) + FIT_NOISES * float(tail.std())
    below = np.flatnonzero(g <= low)
    count = int(below[0]) if len(below) else len(g)
    if count < FIT_POINTS:
        return None
    slope, start = np.polyfit(t[:count], np.log(g[:count]), 1)
    return (float(-slope), float(start)) if slope < 0 else None
