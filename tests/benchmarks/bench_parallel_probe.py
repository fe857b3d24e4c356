"""The controller with many settings side by side against one branch at a time, and what it saves: tokens of plain voting over ours.

Both ways must end alike, or the benchmark fails. The token ratios count no seconds: above 1 is a saving.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from backends.parallel_probe import Pool, sweep
from backends.parallel_probe.analysis import compare, grid
from backends.parallel_probe.generator import pool as synthetic
from backends.parallel_probe.sources import LONG

SIZES = (16, 32, 64)
QUESTIONS, EFFECTS = 3, 100
SETTINGS = grid(*LONG.grid)
Ended = tuple[Any, int, int]


def by_branch(pool: Pool, stable: int, prune: float, warmup: int) -> Ended:
    """One setting, branch by branch."""
    size = len(pool)
    spent = [min(pool.interval, branch.tokens) for branch in pool.branches]
    said: list[Any] = [None] * size
    off, gone, over = [0] * size, [False] * size, [False] * size
    same, before = 0, None
    for step in range(100):
        for i, branch in enumerate(pool.branches):
            if gone[i] or over[i]:
                continue
            over[i] = step + 1 >= len(branch.probes)
            said[i] = branch.final if over[i] else branch.probes[step + 1]
            spent[i] = max(spent[i], branch.tokens) if over[i] else spent[i] + pool.interval
        winner = Counter(said[i] for i in range(size) if not gone[i]).most_common(1)[0][0]
        if step >= warmup and size - sum(gone) > 1:
            for i in range(size):
                if not (gone[i] or over[i]):
                    off[i] = off[i] + 1 if said[i] != winner else 0
                    gone[i] = off[i] >= prune
            winner = Counter(said[i] for i in range(size) if not gone[i]).most_common(1)[0][0]
        same = same + 1 if winner == before else 0
        before = winner
        if same >= stable or all(a or b for a, b in zip(gone, over, strict=True)):
            break
    return before, max(spent), sum(spent)


def sweeps() -> Iterator[dict[str, Any]]:
    former: tuple[int, float] | None = None
    for size in SIZES:
        pools = [synthetic(np.random.default_rng([1, number]), size) for number in range(QUESTIONS)]
        began = time.perf_counter()
        ran = [sweep(pool, SETTINGS) for pool in pools]
        ours_s = time.perf_counter() - began
        began = time.perf_counter()
        slow = [[by_branch(pool, u or 0, math.inf if k is None else k, w) for u, k, w in SETTINGS] for pool in pools]
        peer_s = time.perf_counter() - began
        for pool, mine, other in zip(pools, ran, slow, strict=True):
            ends = [(pool.answers[code], int(s), int(t)) for code, s, t in zip(mine.answers, mine.sequential, mine.total, strict=True)]
            if ends != other:
                raise AssertionError(f"{size} branches: the two ways end differently")
        growth = math.log(ours_s / former[1]) / math.log(size / former[0]) if former else None
        former = (size, ours_s)
        yield row(f"{len(SETTINGS)} settings, {QUESTIONS} questions", size, ours_s, "branch by branch", peer_s, peer_s / ours_s, growth, "equal ends")


def savings() -> Iterator[dict[str, Any]]:
    began = time.perf_counter()
    found = [compare(synthetic(np.random.default_rng([2, number]), 64), (40, 7, 15)) for number in range(EFFECTS)]
    ours_s = time.perf_counter() - began
    means = {name: np.array([one[name] for one in found], float).mean(0) for name in found[0]}
    for place, kind in ((1, "sequential"), (2, "total")):
        for peer in ("sc", "esc", "sac"):
            right = f"right {means['parallel-probe'][0]:.2f}, {peer.upper()} {means[peer][0]:.2f}"
            note = f"{right}; {EFFECTS} synthetic questions, every method in ours_s"
            ratio = float(means[peer][place] / means["parallel-probe"][place])
            yield row(f"{kind} tokens: {peer.upper()} over ours", 64, ours_s, peer.upper(), None, ratio, None, note)


def row(work: str, size: int, ours_s: float, peer: str, peer_s: float | None, ratio: float, growth: float | None, note: str) -> dict[str, Any]:
    figures = {"ours_s": ours_s, "peer": peer, "peer_s": peer_s, "ratio": ratio, "growth": growth, "note": note}
    return {"method": "parallel-probe", "work": work, "size": size, **figures}


def rows() -> Iterator[dict[str, Any]]:
    yield from sweeps()
    yield from savings()
