"""Box refinement in two variables: 10,000 splits as tensor operations, against the same best-first search one box at a time.

The bar is 10,000 splits within a second on one core. The peer is the pseudo-code of the method as it stands: a heap, one box popped, two
pushed, each weighed by itself. Both bounds must hold the exact mass, and the gaps must agree to a tenth, or the benchmark fails.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import torch
from scipy.special import ndtr

from backends.voronoi_pc import VoronoiSum, exact_mass, refine
from backends.voronoi_pc.scenes import random_centroids

SPLITS = (1000, 10_000)
CELLS = 16
REPEATS = 3
BAR_S = 1.0
AGREE = 0.1


def one_at_a_time(node: VoronoiSum, splits: int) -> tuple[float, float]:
    """Bounds by a heap of single boxes, in numpy."""
    centroids, weights = node.centroids.numpy(), node.weights.numpy()
    mean, sd = node.experts.location[:, 0].numpy(), node.experts.scale[:, 0].numpy()
    square = (centroids**2).sum(1)
    order = count()
    heap: list[tuple[float, int, int, np.ndarray, np.ndarray]] = []
    lower = waiting = 0.0

    def push(k: int, low: np.ndarray, high: np.ndarray) -> tuple[float, float]:
        a, b = 2 * (np.delete(centroids, k, 0) - centroids[k]), square[k] - np.delete(square, k)
        with np.errstate(invalid="ignore"):
            top = np.where(a > 0, a * high, np.where(a < 0, a * low, 0)).sum(1) + b
            bottom = np.where(a > 0, a * low, np.where(a < 0, a * high, 0)).sum(1) + b
        mass = float(weights[k] * (ndtr((high - mean[k]) / sd[k]) - ndtr((low - mean[k]) / sd[k])).prod())
        if (top <= 0).all():
            return mass, 0.0
        if (bottom >= 0).any():
            return 0.0, 0.0
        heapq.heappush(heap, (-mass, next(order), k, low, high))
        return 0.0, mass

    for k in range(len(weights)):
        more, wait = push(k, np.full(2, -math.inf), np.full(2, math.inf))
        lower, waiting = lower + more, waiting + wait
    for _ in range(splits):
        mass, _, k, low, high = heapq.heappop(heap)
        waiting += mass
        near, far = np.maximum(low, mean[k] - 6 * sd[k]), np.minimum(high, mean[k] + 6 * sd[k])
        axis = int(((far - near) / sd[k]).argmax())
        left_high, right_low = high.copy(), low.copy()
        left_high[axis] = right_low[axis] = (near[axis] + far[axis]) / 2
        for ends in ((low, left_high), (right_low, high)):
            more, wait = push(k, *ends)
            lower, waiting = lower + more, waiting + wait
    return lower, lower + waiting


def rows() -> Iterator[dict[str, Any]]:
    """One row a number of splits; growth is the exponent from the row before."""
    torch.set_num_threads(1)
    node = random_centroids(CELLS, 2, 0)
    exact = exact_mass(node)
    before: tuple[int, float] | None = None
    for splits in SPLITS:
        times = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            ours = refine(node.region(), splits)
            times.append(time.perf_counter() - began)
        ours_s = min(times)  # the host may be busy
        began = time.perf_counter()
        low, high = one_at_a_time(node, splits)
        peer_s = time.perf_counter() - began
        if not (ours.lower <= exact <= ours.upper and low <= exact + 1e-9 and exact <= high + 1e-9):
            raise AssertionError(f"{splits} splits: the exact {exact} lies outside of the bounds")
        if abs(ours.gap - (high - low)) > AGREE * (high - low):
            raise AssertionError(f"{splits} splits: the gaps {ours.gap} and {high - low} differ")
        growth = math.log(ours_s / before[1]) / math.log(splits / before[0]) if before else None
        before = (splits, ours_s)
        yield {
            "method": "voronoi-pc",
            "work": f"certified bounds, {CELLS} cells in 2 variables",
            "size": splits,
            "ours_s": ours_s,
            "peer": "one box at a time, numpy",
            "peer_s": peer_s,
            "ratio": peer_s / ours_s,
            "growth": growth,
            "note": f"gap {ours.gap:.4f}" + (f", bar {BAR_S:g} s " + ("kept" if ours_s <= BAR_S else "missed") if splits == SPLITS[-1] else ""),
        }
