"""Bipartitions of the clusters, and the hyperplane of a weighted ridge logistic regression for each of them."""

from __future__ import annotations

import numpy as np

RIDGE = 1.0  # of the penalty ||w||^2 / 2 beside N times the mean loss, as scikit-learn's C = 1
STEPS = 6  # of Newton's method, enough for 1e-6 at this ridge
UNIONS = 16


def bipartitions(labels: np.ndarray, merges: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Sides of the clusters (S, K) bool: one for each edge of the merge tree between clusters, then unions near half of the belief.

    labels (N,): cluster of each candidate; merges (N - 1, 2): of their barcode, from below; mass (K,): belief. The unions are those of
    two parts of the tree (a part: what a cut leaves on one side, or what one merge joins), at most 16, nearest to 1/2.
    """
    k = len(mass)
    edges = labels[merges]
    edges = edges[(edges[:, 0] != edges[:, 1]) & (edges >= 0).all(1)]
    joined = list(np.eye(k, dtype=bool))
    group = np.arange(k)
    for a, b in edges:  # upwards, K - 1 of them
        group[group == group[b]] = group[a]
        joined.append(group == group[a])
    cuts = [_side(k, edges, i) for i in range(len(edges))]
    parts = np.unique(np.array([*joined, *cuts]), axis=0)
    first, second = np.triu_indices(len(parts), 1)
    unions = parts[first] | parts[second]
    sizes = unions.sum(1)
    unions = unions[(sizes > 0) & (sizes < k)]
    nearest = np.argsort(np.abs(unions @ mass - mass.sum() / 2), kind="stable")
    found = np.array([*cuts, *_first_of_each(unions[nearest])[:UNIONS]]).reshape(-1, k)
    return _first_of_each(found)


def _side(k: int, edges: np.ndarray, cut: int) -> np.ndarray:
    """The clusters (K,) bool on one side when this edge of the merge tree is cut."""
    reached = np.zeros(k, dtype=bool)
    reached[edges[cut, 0]] = True
    left = np.delete(edges, cut, axis=0)
    for _ in range(k):
        touching = reached[left].any(1)
        if reached[left[touching]].all():
            break
        reached[left[touching].ravel()] = True
    return reached


def _first_of_each(sides: np.ndarray) -> np.ndarray:
    """Drops the repeats, a set and its complement being the same bipartition; the order stays."""
    if not len(sides):
        return sides
    canonical = sides ^ sides[:, :1]
    _, first = np.unique(canonical, axis=0, return_index=True)
    return canonical[np.sort(first)]


def hyperplanes(features: np.ndarray, weights: np.ndarray, sides: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Separators of S bipartitions: normals (S, F) and offsets (S,), such that features @ normal + offset > 0 on the True side.

    features (N, F); weights (N,): of the candidates, summing to 1; sides (S, N) bool: the class of each candidate. Minimises
    N sum_i w_i log(1 + exp(-y_i (x_i . v + c))) + RIDGE ||v||^2 / 2 by Newton's method, all S problems at once: a hundred times
    faster than one solver call for each, and there are thirty problems a turn.
    """
    n, f = features.shape
    x = np.concatenate([features, np.ones((n, 1))], 1)
    target = sides.astype(float)
    penalty = np.append(np.full(f, RIDGE), 1e-6)  # the offset is free; the trace of it keeps the matrix regular where one side has no mass
    solution = np.zeros((len(sides), f + 1))
    loads = n * weights
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-np.clip(solution @ x.T, -30, 30)))
        gradient = (loads * (chance - target)) @ x + penalty * solution
        curvature = loads * np.maximum(chance * (1 - chance), 1e-6)
        hessian = (curvature[:, None, :] * x.T) @ x + np.diag(penalty)
        solution = solution - np.linalg.solve(hessian, gradient[..., None])[..., 0]
    return solution[:, :-1], solution[:, -1]
