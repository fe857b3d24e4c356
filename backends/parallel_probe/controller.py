"""The controller: probes all branches in step, cuts those that keep disagreeing with the vote, and stops when the vote stays the same.

Parallel-Probe, arXiv 2602.03845, section 3. The semantics are those of the authors' released evaluation, which differ from the paper's equations
in three points: the first column never votes, disagreement is counted from step ``warmup`` on, and finished branches keep voting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from backends.parallel_probe.pools import Pool, votes

MAX_STEPS = 100
STABLE, PRUNE, WARM_UP = 40, 7, 15  # of the published table, at an interval of 500 tokens
_NEVER = np.iinfo(np.int64).max
Setting = tuple[int | None, int | None, int]  # stable, prune, warmup


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


@dataclass(frozen=True, slots=True)
class Swept:
    """Where each of S settings ends. answers: (S,) codes of ``Pool.answers``. sequential, total: (S,) tokens."""

    answers: np.ndarray
    sequential: np.ndarray
    total: np.ndarray


def control(pool: Pool, stable: int | None = STABLE, prune: int | None = PRUNE, warmup: int = WARM_UP, max_steps: int = MAX_STEPS) -> Outcome:
    """Runs the controller on a pool to its end.

    stable: how many times in a row the vote must equal the one before (u); None never stops. prune: disagreements in a row that cut a branch
    (k); None never cuts. warmup: steps before disagreement counts (W). Published values: 40, 7, 15 at an interval of 500 tokens.
    Raises ValueError: stable or prune below 1, warmup below 0, max_steps below 1.

    >>> from backends.parallel_probe import TRACE
    >>> found = control(TRACE, stable=3, prune=2, warmup=2)
    >>> found.answer, found.sequential, found.total
    ('c', 3000, 13750)
    """
    return deque(follow(pool, stable, prune, warmup, max_steps), maxlen=1).pop()


def follow(pool: Pool, stable: int | None, prune: int | None, warmup: int, max_steps: int = MAX_STEPS) -> Iterator[Outcome]:
    """The same, step by step; each time the one growing outcome is yielded. Parameters and errors as in ``control``."""
    outcome: Outcome | None = None
    for state in _steps(pool, [(stable, prune, warmup)], max_steps):
        if outcome is None:
            outcome = Outcome(None, state.spent[0], np.full(len(pool), -1))
        kept = state.kept[0]
        outcome.pruned_at[~kept & (outcome.pruned_at < 0)] = state.step
        outcome.answer = pool.answers[state.winner[0]]
        outcome.winners.append(outcome.answer)
        outcome.active.append(int(kept.sum()))
        outcome.share.append(float((state.codes[kept] == state.winner[0]).mean()))
        if state.stable[0]:
            outcome.stopped = state.step
        yield outcome


def sweep(pool: Pool, settings: Sequence[Setting], max_steps: int = MAX_STEPS) -> Swept:
    """Runs the controller with many settings side by side; each (stable, prune, warmup) as in ``control``, errors too. Raises ValueError for none."""
    state = deque(_steps(pool, settings, max_steps), maxlen=1).pop()
    return Swept(state.winner, state.spent.max(1), state.spent.sum(1))


@dataclass
class _State:
    """S runs on one pool after a step. codes: (N,) what each branch says. kept: (S, N). winner: (S,). stable: (S,) stopped by agreement."""

    step: int
    codes: np.ndarray
    kept: np.ndarray
    spent: np.ndarray
    winner: np.ndarray
    stable: np.ndarray


def _steps(pool: Pool, settings: Sequence[Setting], max_steps: int) -> Iterator[_State]:
    """All settings in step; one that has stopped keeps its state. The state that is yielded is the same object each time."""
    for given in settings:
        for name, value, least in zip(("stable", "prune", "warmup"), given, (1, 1, 0), strict=True):
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}; it must be at least {least}")
    if not settings or max_steps < 1:
        raise ValueError("there is no setting" if not settings else f"max_steps is {max_steps}; it must be at least 1")
    stable, prune, warmup = np.array([[_NEVER if value is None else value for value in given] for given in settings]).T[..., None]
    shape = (len(settings), len(pool))
    # Column 0 is paid for but never voted on; a branch that ends before its first probe pays what it has.
    spent = np.tile(np.minimum(pool.interval, pool.lengths), (shape[0], 1))
    off, finished, live = np.zeros(shape, int), np.zeros(shape[1], bool), np.ones((shape[0], 1), bool)
    same, before = np.zeros(shape[0], int), np.full(shape[0], -1)
    state = _State(0, pool.finals, np.ones(shape, bool), spent, before, np.zeros(shape[0], bool))
    for step in range(max_steps):
        column = step + 1
        moving = live & state.kept & ~finished
        ending = moving & (column >= pool.depths)
        spent[moving & ~ending] += pool.interval
        spent[ending] = np.maximum(spent, pool.lengths)[ending]
        finished |= column >= pool.depths
        codes = pool.columns[:, min(column, pool.columns.shape[1] - 1)]
        table = np.broadcast_to(codes, shape)
        winner = votes(table, state.kept)
        judged = live & state.kept & ~finished & (step >= warmup) & (state.kept.sum(1, keepdims=True) > 1)
        off[judged] = np.where(table != winner[:, None], off + 1, 0)[judged]
        cut = judged & (off >= prune)
        if cut.any():
            state.kept &= ~cut
            winner = votes(table, state.kept)
        winner = np.where(live[:, 0], winner, before)
        same = np.where(winner == before, same + 1, 0)
        before = winner
        state.step, state.codes, state.winner = step, codes, winner
        state.stable |= live[:, 0] & (same >= stable[:, 0])
        live = live & ~state.stable[:, None] & (state.kept & ~finished).any(1, keepdims=True)
        yield state
        if not live.any():
            return
