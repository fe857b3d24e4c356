"""Vectorised gossip against messages handed over one by one, the U-curve of the page, and what patience buys: DC-DOGD's regret over ours.

Both ways of gossip must agree to 1e-12, or the benchmark fails. The regret ratios count no seconds: ratio is DC-DOGD's average
regret, the best of nine settings, over that of the best block length, so above 1 is a win.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from backends.compressed_doco import Feedback, Plan, Replicas, TopK, dc_dogd, max_regret, top_dogd, weights_of
from backends.compressed_doco.card import BLOCKS
from backends.compressed_doco.data import make_stream
from backends.compressed_doco.dogd import Settings, theory_offset
from backends.compressed_doco.graphs import spectrum
from backends.compressed_doco.streams import Best, Stream

SIZES = (9, 18, 36)
ROUNDS, DIMENSION, K = 60, 65, 7
AGREE = 1e-12
HORIZON, RADIUS = 2000, 5.0
SHARES = ((33, 0.7, (0.8, 1.0)), (7, 0.3, (0.2, 0.25, 0.3)), (3, 0.15, (0.1, 0.125, 0.15)))  # k, gamma of ours, gammas of DC-DOGD
ETAS = (2.0, 3.5, 6.0)
GRADIENT = Feedback("gradient", 0.5, np.random.default_rng(0))


def by_message(y: np.ndarray, weights: np.ndarray, step: float) -> np.ndarray:
    """The surrogates after ``ROUNDS``, every message handed over one by one."""
    n, compress = len(y), TopK(K)
    neighbours = [[j for j in range(n) if j != i and weights[i, j]] for i in range(n)]
    kept = [{j: np.zeros(y.shape[1]) for j in [i, *neighbours[i]]} for i in range(n)]
    for _ in range(ROUNDS):
        messages = [compress(y[i] - kept[i][i]) for i in range(n)]
        for i in range(n):
            for j in [i, *neighbours[i]]:
                kept[j][i] = kept[j][i] + messages[i]
        y = np.array([y[i] + step * sum(weights[i, j] * (kept[i][j] - kept[i][i]) for j in neighbours[i]) for i in range(n)])
    return y


def gossip() -> Iterator[dict[str, Any]]:
    before: tuple[int, float] | None = None
    for n in SIZES:
        weights, y = weights_of("gnm", n)[1], np.random.default_rng(0).normal(size=(n, DIMENSION))
        began = time.perf_counter()
        ours, replicas, compress = y, Replicas(weights, y.shape), TopK(K)
        for _ in range(ROUNDS):
            replicas.receive(compress(ours - replicas.own))
            ours = ours + 0.1 * replicas.pull()
        ours_s = time.perf_counter() - began
        began = time.perf_counter()
        slow = by_message(y, weights, 0.1)
        peer_s = time.perf_counter() - began
        apart = float(np.abs(slow - ours).max())
        if apart > AGREE:
            raise AssertionError(f"{n} learners: the surrogates are {apart:.1e} apart")
        growth = math.log(ours_s / before[1]) / math.log(n / before[0]) if before else None
        before = (n, ours_s)
        yield row("sixty rounds of compressed gossip", n, ours_s, "message by message", peer_s, peer_s / ours_s, growth, f"{apart:.0e} apart")


def final(losses: np.ndarray, best: Best) -> float:
    return float(max_regret(losses, best.losses)[-1])


def play(stream: Stream, weights: np.ndarray, k: int, plan: Plan) -> np.ndarray:
    blocks = top_dogd(stream, weights, TopK(k), plan, GRADIENT)
    return np.concatenate([np.broadcast_to(b.losses, (b.stop - b.start, b.losses.shape[1])) for b in blocks])


def regrets() -> Iterator[dict[str, Any]]:
    stream, _ = make_stream("digits", 9, HORIZON, 1.0, np.random.default_rng(0))
    best, (_, weights) = stream.best(RADIUS), weights_of("gnm", 9)
    gap = spectrum(weights).gap
    for k, gamma, gammas in SHARES:
        began = time.perf_counter()
        ours = {sum(pair): final(play(stream, weights, k, Plan(*pair, gamma, 1.0, RADIUS)), best) for pair in BLOCKS}
        ours_s = time.perf_counter() - began
        steps, etas = (grid.ravel() for grid in np.meshgrid(gammas, ETAS, indexing="ij"))
        settings = Settings(steps, etas, np.array([theory_offset(float(step), gap, 0.0) for step in steps]))
        began = time.perf_counter()
        losses = dc_dogd(stream, weights, TopK(k), settings, RADIUS, GRADIENT).losses
        peer_s = time.perf_counter() - began
        peer, block = min(final(losses[:, i], best) for i in range(len(steps))), min(ours, key=lambda length: ours[length])
        note = f"regret {ours[block]:.4f} at blocks of {block}, DC-DOGD {peer:.4f}; five block lengths in ours_s"
        yield row(f"U-curve, {k} of 65 numbers a message: regret ratio", HORIZON, ours_s, "DC-DOGD", peer_s, peer / ours[block], None, note)


def row(work: str, size: int, ours_s: float, peer: str, peer_s: float, ratio: float, growth: float | None, note: str) -> dict[str, Any]:
    figures = {"ours_s": ours_s, "peer": peer, "peer_s": peer_s, "ratio": ratio, "growth": growth, "note": note}
    return {"method": "compressed-doco", "work": work, "size": size, **figures}


def rows() -> Iterator[dict[str, Any]]:
    yield from gossip()
    yield from regrets()
