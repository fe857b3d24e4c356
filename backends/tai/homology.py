"""Persistent homology of a cloud of candidates: bars, where to cut them, and the clusters that are left.

The Vietoris-Rips filtration of a distance matrix in degree 0. Every bar is born at 0; the N - 1 finite deaths are the heights at
which single linkage merges, and the edge that ends a bar is its generator.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from backends.contract import InputError

Rule = Literal["ratio", "absolute", "bootstrap"]

FINEST = 0.10  # differences below this are never called intents
LEAST_RATIO = 3.0  # a smaller gap says that there is one intent
BOOTSTRAP_DRAWS = 100
BOOTSTRAP_LEVEL = 0.95
ROUNDING = 1e-12
NEAREST = 1e-3
TOMATO_NEIGHBOURS, TOMATO_NEIGHBOURS_OF_FEW, TOMATO_FEW = 6, 3, 30  # candidates, itself included
TOMATO_PROMINENCE = 2.0  # of the logarithm of the density


def check_distance(D: np.ndarray) -> np.ndarray:
    """D (N, N) as floats; raises InputError unless it is square, finite, symmetric, not negative, with a zero diagonal.

    >>> check_distance([[0, 1], [1, 0]]).dtype
    dtype('float64')
    """
    try:
        D = np.asarray(D, dtype=float)
    except (TypeError, ValueError):
        raise InputError("distance", "the distances are no table of numbers", "give N rows of N numbers") from None
    if D.ndim != 2 or D.shape[0] != D.shape[1] or len(D) < 1:
        raise InputError("distance", f"the distances have shape {D.shape}", "give a square matrix")
    for holds, problem, remedy in (
        (np.isfinite(D).all(), "a distance is missing or infinite", "give finite numbers"),
        ((D >= 0).all(), "a distance is negative", "give numbers from 0"),
        (not np.diagonal(D).any(), "a candidate has a distance to itself", "put zeros on the diagonal"),
        (np.allclose(D, D.T, rtol=0, atol=1e-9), "the distances are not symmetric", "give the same distance both ways"),
    ):
        if not holds:
            raise InputError("distance", problem, remedy)
    return D


def barcode(D: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The finite bars of degree 0 of the Rips filtration of D (N, N): deaths (N - 1,) ascending, merges (N - 1, 2).

    deaths are in the units of D; merges[j] is the edge whose entry merges two components and ends bar j (the generator of its
    death). One more bar never dies. Raises InputError for a matrix that is no distance matrix.

    >>> deaths, merges = barcode(np.abs(np.subtract.outer([0.0, 1.0, 5.0], [0.0, 1.0, 5.0])))
    >>> deaths.tolist(), merges.tolist()
    ([1.0, 4.0], [[1, 0], [2, 1]])
    """
    from gudhi import RipsComplex  # MIT; other parts of gudhi are not

    D = check_distance(D)
    if len(D) == 1:
        return np.zeros(0), np.zeros((0, 2), dtype=int)
    tree = RipsComplex(distance_matrix=D, max_edge_length=_radius(D)).create_simplex_tree(max_dimension=1)
    tree.compute_persistence(min_persistence=-1)  # with the default 0, bars of no length are dropped and duplicates lost
    merges = np.asarray(tree.flag_persistence_generators()[0], dtype=int)[:, 1:]
    deaths = D[merges[:, 0], merges[:, 1]]
    order = np.argsort(deaths, kind="stable")
    return deaths[order], merges[order]


def _radius(D: np.ndarray) -> float:
    """The scale from which on one candidate is joined to all others: no longer edge ends a bar, nor fills a loop."""
    return float(D.max(1).min())


def loops(D: np.ndarray) -> np.ndarray:
    """Bars of degree 1 of the same filtration, (L, 2) births and deaths, longest first; those of no length are left out.

    A diagnostic: a loop is a round of candidates each near the next and far from the opposite one; no cluster hangs on it. The
    edges that change no homology are taken away first (edge collapse), since the triangles grow with the third power of N.
    Raises InputError for a matrix that is no distance matrix.

    >>> square = np.array([[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0]])
    >>> loops(square).tolist()
    [[1.0, 2.0]]
    """
    from gudhi import RipsComplex

    D = check_distance(D)
    first = np.unique(D, axis=0, return_index=True)[1]  # duplicates fill no loop and make none
    D = D[np.ix_(first, first)]
    tree = RipsComplex(distance_matrix=D, max_edge_length=_radius(D)).create_simplex_tree(max_dimension=1)
    tree.collapse_edges()
    tree.expansion(2)
    tree.compute_persistence(min_persistence=ROUNDING)
    found = np.asarray(tree.persistence_intervals_in_dimension(1), dtype=float).reshape(-1, 2)
    return found[np.argsort(found[:, 0] - found[:, 1], kind="stable")]


def cut(deaths: np.ndarray, rule: Rule | float = "ratio", floor: float = 0.0, finest: float = FINEST) -> float:
    """Where to cut bars with these deaths (any order): a filtration value tau, or inf where one intent is left (K = 1).

    "ratio": between the two neighbours e_j, e_j+1 of the largest ratio, at their geometric mean, with e = max(death, floor); only
    e_j+1 >= finest is considered, and a ratio below 3 gives inf. "absolute": in the middle of the largest gap, which finds the
    coarsest split only. A number is the cut itself. floor: half of the smallest difference that D can tell. Raises InputError for
    a death, number or floor that is negative or not finite, and for "bootstrap", which needs the distances (``bootstrap_cut``).

    >>> round(cut([0.03, 0.04, 0.04, 0.05, 0.05, 0.41, 0.43]), 5)
    0.14318
    >>> cut([0.01, 0.02, 0.03])
    inf
    """
    deaths = np.sort(np.asarray(deaths, dtype=float))
    if deaths.size and not (np.isfinite(deaths).all() and deaths[0] >= 0):
        raise InputError("deaths", "a death is negative, missing or infinite", "give the finite deaths of a barcode")
    if not 0 <= floor < np.inf:
        raise InputError("floor", f"{floor} is out of range", "choose a finite number from 0")
    if not isinstance(rule, str):
        if not 0 <= rule < np.inf:
            raise InputError("threshold", f"{rule} is out of range", "choose a filtration value from 0")
        return float(rule)
    if rule not in ("ratio", "absolute"):
        raise InputError("threshold", f"{rule!r} is no rule for deaths alone", "choose ratio, absolute or a number")
    heights = np.maximum(deaths, floor)
    low, high = heights[:-1], heights[1:]
    if rule == "absolute":
        if not low.size or (high - low).max() <= ROUNDING:
            return np.inf
        widest = int(np.argmax(high - low))
        return float(low[widest] + high[widest]) / 2
    ratios = np.divide(high, low, out=np.full(low.shape, np.inf), where=low > 0)
    ratios[high < finest - ROUNDING] = 0.0
    if not ratios.size or ratios.max() < LEAST_RATIO:
        return np.inf
    best = int(np.argmax(ratios))
    return float(np.sqrt(low[best] * high[best]))


def bootstrap_cut(D: np.ndarray, rng: np.random.Generator) -> float:
    """The 95 % quantile of the bottleneck distance between the diagram of D (N, N) and those of resampled candidates.

    Bars below it are within what another sample would have changed (Fasy et al. 2014). inf where no bar is longer.
    """
    from gudhi.hera import bottleneck_distance  # the one under a BSD licence

    deaths, _ = barcode(D)

    def diagram(values: np.ndarray) -> np.ndarray:
        values = values[values > 0]  # points on the diagonal match at no cost, and hera does not take them
        return np.stack([np.zeros_like(values), values], 1)

    apart = []
    for _ in range(BOOTSTRAP_DRAWS):
        drawn = rng.integers(len(D), size=len(D))
        apart.append(bottleneck_distance(diagram(deaths), diagram(barcode(D[np.ix_(drawn, drawn)])[0]), 1e-3))
    tau = float(np.quantile(apart, BOOTSTRAP_LEVEL))
    return tau if (deaths > tau).any() else np.inf


def threshold(D: np.ndarray, deaths: np.ndarray, rule: Rule | float, resolution: float, rng: np.random.Generator) -> float:
    """tau for a fresh sample with distances D (N, N) and its deaths (N - 1,); resolution: the smallest difference D can tell.

    The floor is half the resolution, and low enough that a difference of an intent's worth stands out from none at all: with one
    or two probes the coarse resolution alone would say that everything means the same. Beside the rules of ``cut``: where even the
    two closest candidates differ by an intent's worth, the ratio rule has no short bar to compare with, and each candidate is an
    intent of its own.
    """
    least = FINEST - ROUNDING
    floor = min(resolution / 2, least / LEAST_RATIO)
    if rule == "bootstrap":
        return bootstrap_cut(D, rng)
    if rule == "ratio" and deaths.size and deaths.min() >= least:
        return float(np.sqrt(floor * deaths.min()))
    return cut(deaths, rule, floor)


def components(n: int, deaths: np.ndarray, merges: np.ndarray, tau: float) -> np.ndarray:
    """Labels (n,) of the components of the merge edges with death <= tau, from 0 in the order of their first candidate."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = merges[deaths <= tau]
    graph = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n, n))
    return in_order(connected_components(graph, directed=False)[1])


def clusters(D: np.ndarray, tau: float) -> np.ndarray:
    """The persistent clusters of D (N, N) at tau: labels (N,) from 0, in the order of each cluster's first candidate.

    Exact where each intent is connected at a scale below tau and different intents lie further apart than tau. Raises InputError
    for a matrix that is no distance matrix, and for a tau that is negative or not a number (inf gives one cluster).

    >>> clusters(np.abs(np.subtract.outer([0.0, 9.0, 1.0], [0.0, 9.0, 1.0])), 2.0).tolist()
    [0, 1, 0]
    """
    if not tau >= 0:
        raise InputError("threshold", f"{tau} is out of range", "choose a filtration value from 0")
    deaths, merges = barcode(D)
    return components(len(check_distance(D)), deaths, merges, tau)


def tomato(D: np.ndarray) -> np.ndarray:
    """Density-based labels (N,) of D (N, N): the peaks of density that stand e^2 times above the saddle to the next one.

    Below 30 candidates the density is too coarse for such a bar, and every peak counts. ToMATo (Chazal, Guibas, Oudot, Skraba) is not
    fooled by a few candidates that bridge two clusters. Every candidate gets a label.
    """
    from gudhi.clustering.tomato import Tomato

    D = np.maximum(check_distance(D), NEAREST) * ~np.eye(len(D), dtype=bool)  # duplicates would have an endless density
    few = len(D) < TOMATO_FEW
    neighbours = min(TOMATO_NEIGHBOURS_OF_FEW if few else TOMATO_NEIGHBOURS, len(D))
    model = Tomato(graph_type="knn", density_type="logDTM", metric="precomputed", k=neighbours, symmetrize_graph=True).fit(D)
    peaks = np.asarray(model.diagram_, dtype=float).reshape(-1, 2)
    model.n_clusters_ = int(model.max_weight_per_cc_.size + np.count_nonzero(peaks[:, 0] - peaks[:, 1] >= (0 if few else TOMATO_PROMINENCE)))
    return in_order(np.asarray(model.labels_))


def in_order(labels: np.ndarray) -> np.ndarray:
    """The same partition with labels from 0 in the order of first appearance.

    >>> in_order(np.array([7, 2, 7, 5])).tolist()
    [0, 1, 0, 2]
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]
