"""What the controller is compared with: majority voting, and voting that stops early in other ways (section 4 of the paper)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from backends.parallel_probe.pools import Pool, mode

ASC_THRESHOLD = 0.95
ESC_WINDOW = 8
SAC_REPEATS = 14


@dataclass(frozen=True, slots=True)
class Vote:
    """answer: what is returned. sequential: tokens along the critical path. total: tokens of all. branches: how many were used."""

    answer: Hashable
    sequential: int
    total: int
    branches: int


def self_consistency(pool: Pool) -> Vote:
    """SC: the majority of the final answers; of equals, the one met first."""
    return Vote(pool.answers[mode(pool.finals)], int(pool.lengths.max()), int(pool.lengths.sum()), len(pool))


def adaptive_consistency(pool: Pool, threshold: float = ASC_THRESHOLD) -> Vote:
    """ASC: one branch after another, until 1 - Beta.cdf(0.5; v1 + 1, v2 + 1) of the two top counts passes the threshold."""
    top = np.sort(np.cumsum(pool.finals[:, None] == np.arange(len(pool.answers)), axis=0), axis=1)
    second = top[:, -2] if top.shape[1] > 1 else np.zeros(len(pool), int)
    sure = np.flatnonzero(beta.sf(0.5, top[:, -1] + 1, second + 1) > threshold)
    used = int(sure[0]) + 1 if sure.size else len(pool)
    spent = int(pool.lengths[:used].sum())
    return Vote(pool.answers[mode(pool.finals[:used])], spent, spent, used)


def early_consistency(pool: Pool, window: int = ESC_WINDOW) -> Vote:
    """ESC: windows of branches, until one is of one mind; windows follow each other, branches of a window run together."""
    starts = range(0, len(pool), window)
    sequential = used = 0
    for start in starts:
        part = slice(start, start + window)
        sequential += int(pool.lengths[part].max())
        used = min(start + window, len(pool))
        if len(np.unique(pool.finals[part])) == 1:
            break
    return Vote(pool.answers[mode(pool.finals[:used])], sequential, int(pool.lengths[:used].sum()), used)


def own_convergence(pool: Pool, repeats: int = SAC_REPEATS) -> Vote:
    """SC + SAC: each branch stops by itself when its own answer has come ``repeats`` times in a row; then all vote."""
    table, depths = pool.columns[:, :-1], pool.depths
    within = np.arange(table.shape[1]) < depths[:, None]
    run, answered, spent = np.zeros(len(pool), int), pool.finals.copy(), pool.lengths.copy()
    open_ = np.ones(len(pool), bool)
    for column in range(table.shape[1]):
        again = column > 0 and table[:, column] == table[:, column - 1]
        run = np.where(again, run + 1, 1)
        stops = open_ & within[:, column] & (run >= repeats)
        answered[stops] = table[stops, column]
        spent[stops] = (column + 1) * pool.interval
        open_ &= ~stops
    return Vote(pool.answers[mode(answered)], int(spent.max()), int(spent.sum()), len(pool))
