"""Whether a trained reasoner is fit to be shown: it must err often enough for a vote to matter, and agree early enough for a stop to pay."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from backends.parallel_probe import expressions, reasoner
from backends.parallel_probe.analysis import compare
from backends.parallel_probe.forking import think
from backends.parallel_probe.pools import Pool, onset_ratio

SINGLE_BRANCH = (0.5, 0.8)  # share of branches that must come out right
ONSET = 0.5  # the mean onset ratio must lie below
BRANCHES, INTERVAL, SETTING, REPEATS = 32, 16, (8, 4, 4), 3


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Measured on some questions. single_branch: share of right branches. onset: mean ratio. The rest: means, Parallel-Probe beside voting."""

    questions: int
    leaves: int
    temperature: float
    single_branch: float
    onset: float
    accuracy: float
    accuracy_sc: float
    sequential: float
    sequential_sc: float
    total: float
    total_sc: float

    @property
    def accepted(self) -> bool:
        return SINGLE_BRANCH[0] <= self.single_branch <= SINGLE_BRANCH[1] and self.onset < ONSET


def measure(model: Any, questions: int, leaves: int, temperature: float, seed: int = 0, branches: int = BRANCHES) -> Acceptance:
    """Asks the reasoner new questions with so many digits; the controller has the defaults of the page."""
    pools = [ask(model, seed, number, leaves, temperature, branches) for number in range(questions)]
    found = [compare(pool, SETTING, REPEATS) for pool in pools]
    ours, voting = (np.array([one[name] for one in found], float).mean(0) for name in ("parallel-probe", "sc"))
    single = float(np.mean([pool.finals == pool.gold_code for pool in pools]))
    means = [float(value) for pair in zip(ours, voting, strict=True) for value in pair]
    return Acceptance(questions, leaves, temperature, single, float(np.mean([onset_ratio(pool) for pool in pools])), *means)


def ask(model: Any, seed: int, number: int, leaves: int, temperature: float, branches: int) -> Pool:
    """The pool of one drawn question."""
    import torch

    question = expressions.expression(leaves, np.random.default_rng([seed, number]))
    generator = torch.Generator().manual_seed(number)
    thinking = think(model, reasoner.speech(question), branches, INTERVAL, temperature, expressions.BLOCK_TOKENS, generator)
    return deque(thinking, maxlen=1).pop().pool()
