"""What one pool, or many, say of the methods: comparison, frontier over settings, accuracy over width and depth."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from backends.parallel_probe.controller import MAX_STEPS, Setting, sweep
from backends.parallel_probe.peers import SAC_REPEATS, Vote, adaptive_consistency, early_consistency, own_convergence, self_consistency
from backends.parallel_probe.pools import Pool, votes

METHODS = ("parallel-probe", "sc", "asc", "esc", "sac")
ABLATIONS = ("no-pruning", "no-stopping", "no-warm-up")
DEPTHS = 24  # at most so many columns of the surface


@dataclass(frozen=True, slots=True)
class Figures:
    """Means over questions. accuracy: share, None where no right answer is known. sequential, total: tokens a question."""

    accuracy: float | None
    sequential: float
    total: float


def figures(right: Sequence[bool | None] | np.ndarray, sequential: Sequence[int] | np.ndarray, total: Sequence[int] | np.ndarray) -> Figures:
    """The means; questions without a known answer are left out of the accuracy."""
    known = [bool(value) for value in right if value is not None]
    return Figures(float(np.mean(known)) if known else None, float(np.mean(sequential)), float(np.mean(total)))


def steps_of(pool: Pool) -> int:
    """Steps after which every branch has ended: the released limit of 100 is for an interval of 500 tokens, shorter ones need more."""
    return max(MAX_STEPS, pool.columns.shape[1])


def compare(pool: Pool, setting: Setting, repeats: int = SAC_REPEATS) -> dict[str, tuple[bool | None, int, int]]:
    """Every method on one pool: (right, sequential tokens, total tokens). repeats: of the branches that stop by themselves."""
    stable, prune, warmup = setting
    names = (METHODS[0], *ABLATIONS)
    ran = sweep(pool, [setting, (stable, None, warmup), (None, prune, warmup), (stable, prune, 0)], steps_of(pool))
    found = {name: (pool.right(pool.answers[code]), int(s), int(t)) for name, code, s, t in zip(names, ran.answers, ran.sequential, ran.total, strict=True)}
    peers: dict[str, Vote] = {
        "sc": self_consistency(pool),
        "asc": adaptive_consistency(pool),
        "esc": early_consistency(pool),
        "sac": own_convergence(pool, repeats),
    }
    return found | {name: (pool.right(vote.answer), vote.sequential, vote.total) for name, vote in peers.items()}


def grid(stable: Sequence[int], prune: Sequence[int], warmup: Sequence[int]) -> list[Setting]:
    """All (u, k, W) of these, and for each u no pruning at all."""
    return [*itertools.product(stable, prune, warmup), *((u, None, 0) for u in stable)]


def frontier(pools: Sequence[Pool], settings: Sequence[Setting], check: Callable[[], None] = lambda: None) -> list[Figures]:
    """The controller's figures at each setting, over all pools. check: called before each pool."""
    ends, right = [], []
    for pool in pools:
        check()
        ran = sweep(pool, settings, steps_of(pool))
        ends.append((ran.sequential, ran.total))
        right.append([pool.right(pool.answers[code]) for code in ran.answers])
    sequential, total = np.array(ends).transpose(1, 2, 0)
    return [figures([row[i] for row in right], sequential[i], total[i]) for i in range(len(settings))]


@dataclass(frozen=True, slots=True)
class Surface:
    """Accuracy (share) of a plain vote of the first ``widths`` branches at ``probes`` (1 is the first): (W, D)."""

    widths: np.ndarray
    probes: np.ndarray
    accuracy: np.ndarray


def surface(pools: Sequence[Pool], check: Callable[[], None] = lambda: None) -> Surface:
    """How accuracy grows with width and depth; a branch that has ended votes with its own answer. Raises ValueError for a pool without right answer."""
    size = min(len(pool) for pool in pools)
    widths = np.unique([*(2**power for power in range(1, 8) if 2**power < size), size])
    deepest = max(pool.columns.shape[1] - 1 for pool in pools)
    probes = np.unique(np.linspace(1, max(1, deepest), DEPTHS).round().astype(int))
    right = np.zeros((widths.size, probes.size))
    for pool in pools:
        check()
        if pool.gold_code is None:
            raise ValueError("the right answer of a question is not known")
        columns = pool.columns[:, np.minimum(probes - 1, pool.columns.shape[1] - 1)].T  # (D, N)
        taking = np.arange(len(pool)) < widths[:, None]
        ballots = np.tile(columns, (widths.size, 1))
        won = votes(ballots, np.repeat(taking, probes.size, axis=0)).reshape(right.shape)
        right += won == pool.gold_code
    return Surface(widths, probes, right / len(pools))
