"""Bipartitions of the clusters, and the hyperplane of a weighted ridge logistic regression for each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RIDGE = 1.0  # of the penalty ||w||^2 / 2 beside N times the mean loss, as scikit-learn's C = 1
STEPS = 6  # of Newton's method, enough for 1e-6 at this ridge
UNIONS = 16
PARTS = 32  # of the merge tree that are paired, the most even ones


@dataclass(frozen=True, slots=True)
class MergeTree:
    """cuts (K - 1, K) bool: the clusters on one side of each edge; parts (P, K) bool: what a cut leaves on either side, or what one merge joins."""

    cuts: np.ndarray
    parts: np.ndarray


def merge_tree(labels: np.ndarray, merges: np.ndarray, k: int) -> MergeTree:
    """The edges of a barcode that lie between clusters. labels (N,): cluster of each candidate; merges (N - 1, 2): from below."""
    edges = labels[merges]
    edges = edges[(edges[:, 0] != edges[:, 1]) & (edges >= 0).all(1)]
    joined = []
    group = np.arange(k)
    for a, b in edges:  # upwards, K - 1 of them
        group[group == group[b]] = group[a]
        joined.append(group == group[a])
    cuts = _cuts(k, edges)
    return MergeTree(cuts, _distinct(np.array([*np.eye(k, dtype=bool), *joined, *cuts, *~cuts])))


def bipartitions(tree: MergeTree, mass: np.ndarray) -> np.ndarray:
    """Sides of the clusters (S, K) bool: one for each edge of the merge tree, then unions near half of the belief.

    mass (K,): belief. The unions are those of two parts of the tree, at most 16, nearest to 1/2.
    """
    share = tree.parts @ mass / mass.sum()
    parts = tree.parts[np.argsort(-np.minimum(share, 1 - share), kind="stable")[:PARTS]]
    first, second = np.triu_indices(len(parts), 1)
    unions = parts[first] | parts[second]
    unions = unions[~unions.all(1)]
    unions = _canonical(unions[np.argsort(np.abs(unions @ mass / mass.sum() - 0.5), kind="stable")])
    return _distinct(np.concatenate([_canonical(tree.cuts), _distinct(unions, UNIONS)]))


def _cuts(k: int, edges: np.ndarray) -> np.ndarray:
    """(K - 1, K) the clusters on the far side of each edge of the merge tree, seen from cluster 0."""
    beside: list[list[int]] = [[] for _ in range(k)]
    for a, b in edges.tolist():
        beside[a].append(b)
        beside[b].append(a)
    above, order = {0: 0}, [0]
    for here in order:  # grows while it is read: breadth first
        for there in beside[here]:
            if there not in above:
                above[there] = here
                order.append(there)
    below = np.eye(k, dtype=bool)
    for here in reversed(order[1:]):
        below[above[here]] |= below[here]
    return below[order[1:]]


def _canonical(sides: np.ndarray) -> np.ndarray:
    """Of a set of clusters and its complement, the one without cluster 0: they are the same bipartition."""
    return sides ^ sides[:, :1]


def _distinct(rows: np.ndarray, most: int | None = None) -> np.ndarray:
    """The rows without repeats, in their order, at most so many."""
    first: dict[bytes, int] = {}
    for place, row in enumerate(rows):
        if len(first) == most:
            break
        first.setdefault(row.tobytes(), place)
    return rows[list(first.values())]


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
