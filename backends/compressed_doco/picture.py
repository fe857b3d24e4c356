"""What the pictures of compressed-doco need: the fan of the surrogates, curves thinned for the screen, the table of constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import networkx as nx
import numpy as np

from backends.compressed_doco import graphs, theory
from backends.compressed_doco.topdogd import Block

WINDOW_ROUNDS, WINDOW_BLOCKS = 75, 6  # shown of the newest blocks, at most
CURVE_POINTS = 120


def drawn_graph(graph: nx.Graph, weights: np.ndarray) -> dict[str, Any]:
    """Places of the learners (n, 2), edges (m, 2) and the share that each learner keeps of its own, w_ii (n,)."""
    edges = np.array(sorted(tuple(sorted(edge)) for edge in graph.edges), dtype=int).reshape(-1, 2)
    return {"places": graphs.positions(graph), "edges": edges, "own_weight": np.diag(weights)}


def window_length(block: int) -> int:
    """How many blocks the fan shows."""
    return int(np.clip(WINDOW_ROUNDS // block, 1, WINDOW_BLOCKS))


def fan(blocks: Sequence[Block]) -> dict[str, Any]:
    """Deviations of the surrogates from their mean in the plane of largest disagreement, over the newest blocks.

    blocks: consecutive ones that kept their surrogates, at least two; of the last only the beginning is shown, so that the picture
    ends as the learners fan out. Returns round (S,), plane (S, n, 2), share (2,) of the squared deviation that each direction
    holds, and starts: the rounds in which a block begins.
    """
    kept = [block for block in blocks if block.surrogates is not None]
    pieces = [np.asarray(block.surrogates, dtype=float) for block in kept]
    if not kept[-1].diverged:
        pieces[-1] = pieces[-1][:1]
    rounds = [block.start + np.arange(len(piece)) for block, piece in zip(kept, pieces, strict=True)]
    y = np.concatenate(pieces)
    apart = y - y.mean(axis=1, keepdims=True)
    flat = apart.reshape(-1, apart.shape[-1])
    values, vectors = np.linalg.eigh(flat.T @ flat)
    plane = vectors[:, ::-1][:, :2] if vectors.shape[1] > 1 else np.hstack([vectors, np.zeros((1, 1))])
    plane = plane * np.where(plane[np.abs(plane).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)  # so that no frame mirrors the one before
    total = max(float(values.sum()), np.finfo(float).tiny)
    share = np.maximum(values[::-1][:2], 0.0) / total
    return {"round": np.concatenate(rounds), "plane": apart @ plane, "share": share, "starts": np.array([block.start for block in kept])}


def curve(regret: np.ndarray, bits: np.ndarray) -> dict[str, np.ndarray]:
    """A regret curve, (T,), and the bits sent until then, (T,), at rounds spread evenly on a log scale."""
    rounds = np.unique(np.geomspace(1, regret.size, CURVE_POINTS).round().astype(int))
    return {"round": rounds, "regret": regret[rounds - 1], "bits": bits[rounds - 1]}


def course(blocks: Sequence[Block]) -> dict[str, np.ndarray]:
    """Per block: its last round, how far decisions are apart, and the distance of surrogates from replicas at its start and end."""
    shown = sorted(set(np.linspace(0, len(blocks) - 1, min(len(blocks), 4 * CURVE_POINTS)).round().astype(int).tolist()))
    kept = [blocks[i] for i in shown]
    names = ("stop", "consensus", "residual_start", "residual_end")
    return {name: np.array([getattr(block, name) for block in kept], dtype=float) for name in names}


def constants(spectrum: graphs.Spectrum, omega: float, radius: float, horizon: int, used: Mapping[str, float]) -> list[list[Any]]:
    """Rows of name, what the theorem asks, what was used; used: gossip_step, gossip, compensation, eta, dcdogd_step."""
    gossip = theory.gossip_rounds(spectrum.gap, omega)
    compensation = theory.compensation_rounds(omega)
    eta = theory.convex_step(2 * radius, 1.0, gossip + compensation, horizon)
    return [
        ["gossip step γ", theory.gossip_step(spectrum.gap, omega, spectrum.beta), used["gossip_step"]],
        ["gossip rounds L1, without the log factor", gossip, used["gossip"]],
        ["compensation rounds L2, without the log factor", compensation, used["compensation"]],
        ["step η of a block", eta, used["eta"]],
        ["gossip step γ of DC-DOGD", theory.dcdogd_step(spectrum.gap, omega, spectrum.beta), used["dcdogd_step"]],
    ]
