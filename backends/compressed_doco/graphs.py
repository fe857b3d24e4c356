"""Graphs of learners, their mixing weights W, and the two numbers of W that the theory needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import networkx as nx
import numpy as np

GraphKind = Literal["ring", "path", "grid", "complete", "gnm"]
PAPER_SEED = 42  # gnm_random_graph(9, 18, seed=42) is the graph of the DC-DOGD paper
TOLERANCE = 1e-10  # of sums and symmetry of W
NO_GAP = 1e-9  # below this |lambda_2| is 1: the learners never agree


@dataclass(frozen=True, slots=True)
class Spectrum:
    """gap: rho = 1 - |lambda_2(W)|, in [0, 1], larger is better connected; beta: the 2-norm of I - W, in [0, 2]."""

    gap: float
    beta: float


def build_graph(kind: GraphKind, learners: int) -> nx.Graph:
    """A connected graph on nodes 0 to learners - 1; gnm has twice as many edges as nodes, or all there are.

    Raises ValueError for fewer than one learner or an unknown kind.
    """
    if learners < 1:
        raise ValueError(f"a graph needs at least one learner, not {learners}")
    if kind == "ring":
        return nx.cycle_graph(learners) if learners > 2 else nx.path_graph(learners)
    if kind == "path":
        return nx.path_graph(learners)
    if kind == "grid":
        side = math.ceil(math.sqrt(learners))
        wide = nx.grid_2d_graph(math.ceil(learners / side), side)
        return nx.convert_node_labels_to_integers(wide.subgraph(sorted(wide)[:learners]), ordering="sorted")
    if kind == "complete":
        return nx.complete_graph(learners)
    if kind != "gnm":
        raise ValueError(f"there is no graph {kind!r}")
    edges = min(2 * learners, learners * (learners - 1) // 2)
    seed = PAPER_SEED
    while not nx.is_connected(drawn := nx.gnm_random_graph(learners, edges, seed=seed)):
        seed += 1
    return drawn


def mixing_weights(graph: nx.Graph, *, lazy: bool = True) -> np.ndarray:
    """Symmetric doubly stochastic W, (n, n): off the diagonal 1 / (1 + max degree), or 1 / max degree when not ``lazy``.

    Lazy weights are 1/3 on a ring and 1/n on a complete graph. The others, of the DC-DOGD paper, can have a spectral gap of
    zero (an even ring, two learners). Raises ValueError for a graph that is not connected or has loops.
    """
    if nx.number_of_selfloops(graph):
        raise ValueError("the graph has an edge from a learner to itself")
    if not nx.is_connected(graph):
        raise ValueError("the graph is not connected, so its learners can never agree")
    linked = nx.to_numpy_array(graph, nodelist=sorted(graph), weight=None)
    degree = linked.sum(axis=0)
    weights = linked / np.maximum(1.0, np.maximum.outer(degree, degree) + lazy)
    return weights + np.diag(1 - weights.sum(axis=1))


def weights_of(kind: GraphKind, learners: int) -> tuple[nx.Graph, np.ndarray]:
    """The graph and its weights: 1 / max degree for gnm as in the DC-DOGD paper where that has a gap, lazy otherwise."""
    graph = build_graph(kind, learners)
    weights = mixing_weights(graph, lazy=kind != "gnm")
    return graph, weights if spectrum(weights).gap > NO_GAP else mixing_weights(graph)


def check_weights(weights: np.ndarray, graph: nx.Graph | None = None) -> np.ndarray:
    """W as floats, (n, n), when it can mix; ``graph``: no weight may stand off its edges.

    Raises ValueError for a W that is not finite, square, symmetric, doubly stochastic (to 1e-10) or non-negative off the
    diagonal, or that falls into parts that never hear of each other.
    """
    w = np.asarray(weights, dtype=float)
    if w.ndim != 2 or w.shape[0] != w.shape[1] or w.size == 0:
        raise ValueError(f"the weights must be a square matrix, not of shape {w.shape}")
    if not np.isfinite(w).all():
        raise ValueError("the weights must be finite numbers")
    if np.abs(w - w.T).max() > TOLERANCE:
        raise ValueError("the weights are not symmetric")
    if np.abs(w.sum(axis=1) - 1).max() > TOLERANCE:
        raise ValueError("the weights are not doubly stochastic: each row and column must sum to 1")
    linked = np.abs(w) > 0
    np.fill_diagonal(linked, False)
    if w[linked].min(initial=0.0) < 0:
        raise ValueError("a weight between two learners is negative")
    if graph is not None:
        allowed = nx.to_numpy_array(graph, nodelist=sorted(graph), weight=None) > 0
        if allowed.shape != w.shape:
            raise ValueError(f"the graph has {len(allowed)} learners, the weights {len(w)}")
        if (linked & ~allowed).any():
            raise ValueError("a weight stands between two learners that no edge joins")
    if not nx.is_connected(nx.from_numpy_array(linked)):
        raise ValueError("the weights join the learners only in parts that never hear of each other")
    return w


def spectrum(weights: np.ndarray) -> Spectrum:
    """Gap and beta of a symmetric W, (n, n); one learner has gap 1. Raises ValueError as ``check_weights`` does."""
    values = np.linalg.eigvalsh(check_weights(weights))
    second = np.sort(np.abs(values))[-2] if values.size > 1 else 0.0
    return Spectrum(gap=float(max(0.0, 1 - second)), beta=float(np.abs(1 - values).max()))


def positions(graph: nx.Graph) -> np.ndarray:
    """(n, 2) places in [-1, 1] for a drawing: regular graphs on a circle, others by stress (Kamada-Kawai)."""
    nodes = sorted(graph)
    regular = len({degree for _, degree in graph.degree}) == 1
    placed = nx.circular_layout(graph) if regular or len(nodes) < 3 else nx.kamada_kawai_layout(graph)
    xy = np.array([placed[node] for node in nodes])
    middle, half = (xy.max(axis=0) + xy.min(axis=0)) / 2, np.ptp(xy, axis=0) / 2
    return (xy - middle) / np.where(half > 1e-9, half, 1.0)
