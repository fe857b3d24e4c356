"""PLATE's forward against the released code's dense product, its choice of directions against a full decomposition, and what it forgets.

Both forwards and both decompositions must agree, or the benchmark fails. The forgetting ratios count no seconds: ratio is the peer's
forgetting over PLATE's, so above 1 is a win; all methods learn the new task on the same batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from backends.contract import ContextSpec
from backends.plate import Plan, PlateLinear, low_energy
from backends.plate.card import Params
from backends.plate.method import _Run
from backends.runtime.context import RunContext

TOKENS, ROWS, DIRECTIONS = 256, 64, 256
WIDTHS = (576, 1152, 2304)
DECOMPOSED = (256, 576)
REPEATS = 20
AGREE = 1e-3
SEEDS = 3


def seconds(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """The median of so many calls."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return float(np.median(times))


@torch.no_grad()
def forward() -> Iterator[dict[str, Any]]:
    """Adding into r columns of the output against a product with the dense one-hot B."""
    for width in WIDTHS:
        rng = np.random.default_rng(0)
        base = nn.utils.skip_init(nn.Linear, width, width, bias=False)
        base.weight.copy_(torch.from_numpy(rng.normal(size=(width, width)) / width**0.5))
        Q = torch.from_numpy(np.linalg.qr(rng.normal(size=(width, DIRECTIONS)))[0]).float()
        layer = PlateLinear(base, Plan(torch.from_numpy(rng.permutation(width)[:ROWS]), Q))
        layer.A.copy_(torch.from_numpy(rng.normal(size=(ROWS, DIRECTIONS))))
        B = nn.functional.one_hot(layer.rows, width).T.float()
        x = torch.from_numpy(rng.normal(size=(TOKENS, width))).float()

        def dense(base: nn.Module = base, layer: PlateLinear = layer, B: torch.Tensor = B, x: torch.Tensor = x) -> torch.Tensor:
            return base(x) + ((x @ layer.Q) @ layer.A.T) @ B.T

        apart = float((layer(x) - dense()).abs().max())
        if apart > AGREE:
            raise AssertionError(f"width {width}: the outputs are {apart:.1e} apart")
        ours_s, peer_s = seconds(lambda layer=layer, x=x: layer(x)), seconds(dense)
        yield row(f"forward of {TOKENS} tokens, {ROWS} rows", width, ours_s, "dense B", peer_s, peer_s / ours_s, f"{apart:.0e} apart")


def decompose() -> Iterator[dict[str, Any]]:
    """Directions by the Gram matrix in float64 against numpy's full singular value decomposition."""
    for width in DECOMPOSED:
        W = np.random.default_rng(0).normal(size=(width - ROWS, width))
        Q, k = low_energy(W, 0.8)
        peer = np.linalg.svd(W, full_matrices=True)[2][width - k :].T
        apart = float(np.linalg.norm(Q - peer @ (peer.T @ Q), 2))
        if apart > AGREE:
            raise AssertionError(f"width {width}: the spaces are {apart:.1e} apart")
        ours_s = seconds(lambda W=W: low_energy(W, 0.8), 3)
        peer_s = seconds(lambda W=W: np.linalg.svd(W, full_matrices=True), 3)
        yield row("directions of least energy", width, ours_s, "full SVD", peer_s, peer_s / ours_s, f"{apart:.0e} apart")


def forgetting() -> Iterator[dict[str, Any]]:
    """Old accuracy lost on digits, a mean over seeds; the seconds are those of learning."""
    lost: dict[str, list[float]] = {}
    spent: dict[str, float] = {}
    new: dict[str, list[float]] = {}
    for seed in range(SEEDS):
        race = _Run(Params(seed=seed), RunContext(ContextSpec(seed=seed)))
        for name, _, more, make in race.entries():
            began = time.perf_counter()
            *_, whole = race.learn(name, more, make)
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - began
            lost.setdefault(name, []).append(whole.trail.old[0] - whole.trail.old[-1])
            new.setdefault(name, []).append(whole.trail.new[-1])
    mine = float(np.mean(lost["plate"]))
    for name in ("lora", "full", "osf"):
        theirs = float(np.mean(lost[name]))
        note = f"forgotten {mine:.3f} against {theirs:.3f}, new task {np.mean(new['plate']):.3f} against {np.mean(new[name]):.3f}; mean of {SEEDS} seeds"
        yield row("digits: forgetting ratio", SEEDS, spent["plate"], name, spent[name], theirs / mine, note)


def row(work: str, size: int, ours_s: float, peer: str, peer_s: float, ratio: float, note: str) -> dict[str, Any]:
    figures = {"ours_s": ours_s, "peer": peer, "peer_s": peer_s, "ratio": ratio, "growth": None, "note": note}
    return {"method": "plate", "work": work, "size": size, **figures}


def rows() -> Iterator[dict[str, Any]]:
    yield from forward()
    yield from decompose()
    yield from forgetting()
