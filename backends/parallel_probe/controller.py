"""The controller: probes all branches in step, cuts those that keep disagreeing with the vote, and stops when the vote stays the same.

Parallel-Probe, arXiv 2602.03845, section 3. The semantics are those of the authors' released evaluation, which differ from the paper's equations
in three points: the first column never votes, disagreement is counted from step ``warmup`` on, and finished branches keep voting.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

import numpy as np

from backends.parallel_probe.pools import Pool, mode

MAX_STEPS = 100


@dataclass
class Outcome:
    """How far a run of the controller has come.

    answer: what it returns. sequential: tokens of the branch that spent most; total: tokens of all. spent: (N,) tokens each.
    winners: the vote after each step. active: branches that vote after each step. share: the vote's part of them.
    pruned_at: (N,) step at which a branch was cut, -1 where it was not. stopped: the step at which the vote had been the same for long enough.
    """

    answer: Hashable
    spent: np.ndarray
    pruned_at: np.ndarray
    winners: list[Hashable] = field(default_factory=list)
    active: list[int] = field(default_factory=list)
    share: list[float] = field(default_factory=list)
    stopped: int | None = None

    @property
    def sequential(self) -> int:
        return int(self.spent.max())

    @property
    def total(self) -> int:
        return int(self.spent.sum())

    @property
    def steps(self) -> int:
        return len(self.winners)


def control(pool: Pool, stable: int | None = 40, prune: int | None = 7, warmup: int = 15, max_steps: int = MAX_STEPS) -> Outcome:
    """Runs the controller on a pool to its end.

    stable: how many times in a row the vote must equal the one before (u); None never stops. prune: disagreements in a row that cut a branch
    (k); None never cuts. warmup: steps before disagreement counts (W). Published values: 40, 7, 15 at an interval of 500 tokens.
    Raises ValueError: stable or prune below 1, warmup below 0, max_steps below 1.
    """
    last = None
    for last in follow(pool, stable, prune, warmup, max_steps):
        pass
    assert last is not None  # there is at least one step
    return last


def follow(pool: Pool, stable: int | None, prune: int | None, warmup: int, max_steps: int = MAX_STEPS) -> Iterator[Outcome]:
    """The same, step by step; each time the one growing outcome is yielded. Parameters and errors as in ``control``."""
    for name, value, least in (("stable", stable, 1), ("prune", prune, 1), ("warmup", warmup, 0), ("max_steps", max_steps, 1)):
        if value is not None and value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")
    size = len(pool)
    # Column 0 is paid for but never voted on; a branch that ends before its first probe pays what it has.
    spent = np.minimum(pool.interval, pool.lengths)
    kept, finished, off = np.ones(size, bool), np.zeros(size, bool), np.zeros(size, int)
    outcome = Outcome(None, spent, np.full(size, -1))
    same, before = 0, -1
    for step in range(max_steps):
        column = step + 1
        moving = kept & ~finished
        ending = moving & (column >= pool.depths)
        spent[moving & ~ending] += pool.interval
        spent[ending] = np.maximum(spent, pool.lengths)[ending]
        finished |= ending
        codes = pool.columns[:, min(column, pool.columns.shape[1] - 1)]
        winner = mode(codes[kept])
        if prune is not None and step >= warmup and kept.sum() > 1:
            judged = kept & ~finished
            off[judged] = np.where(codes[judged] != winner, off[judged] + 1, 0)
            cut = judged & (off >= prune)
            kept &= ~cut
            outcome.pruned_at[cut] = step
            winner = mode(codes[kept])
        same = same + 1 if winner == before else 0
        before = winner
        outcome.answer = pool.answers[winner]
        outcome.winners.append(outcome.answer)
        outcome.active.append(int(kept.sum()))
        outcome.share.append(float((codes[kept] == winner).mean()))
        if stable is not None and same >= stable:
            outcome.stopped = step
            yield outcome
            return
        yield outcome
        if bool((finished | ~kept).all()):
            return
