"""Where nothing can be timed, Triton on a host without a GPU: random edits are compiled and checked, and what the compiler says is kept.

No time, no reward and no bandit: facts that are static are never mixed with measured ones (section 5 of the card).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from backends.contract import InputError
from backends.kernelband.frontier import Outcome
from backends.kernelband.search import Counters
from backends.kernelband.substrate import STRATEGIES, Candidate, Failure, Proposer, Substrate


@dataclass(frozen=True)
class Row:
    """One attempt. parent: the row of the program that was edited, -1 for the baseline. facts: of a program that is right."""

    round: int
    strategy: int
    parent: int
    candidate: Candidate
    outcome: Literal["right"] | Outcome
    facts: Mapping[str, float | str]
    log: str


@dataclass
class Survey:
    """Each round edits a program that is right, drawn uniformly, by a strategy drawn uniformly. Row 0 is the baseline."""

    substrate: Substrate
    proposer: Proposer
    rng: np.random.Generator
    baseline: Candidate
    rounds: int
    rows: list[Row] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)

    def run(self) -> Iterator[Row]:
        """Yields each row once it is settled. Raises InputError when the baseline fails."""
        first = self._compile(0, -1, -1, self.baseline)
        if first.outcome != "right":
            raise InputError("kernel", f"the baseline fails on this host ({first.log.strip()[:200]})", "choose another kernel")
        yield first
        for round_ in range(1, self.rounds + 1):
            right = [place for place, row in enumerate(self.rows) if row.outcome == "right"]
            parent, strategy = int(self.rng.choice(right)), int(self.rng.integers(len(STRATEGIES)))
            # There is no time that a proposer could be told.
            child = self.proposer.propose(self.rows[parent].candidate, float("nan"), strategy, self.rng)
            yield self._compile(round_, strategy, parent, child)

    def _compile(self, round_: int, strategy: int, parent: int, child: Candidate | Failure) -> Row:
        if isinstance(child, Failure):
            self.counters.compile_errors += 1
            row = Row(round_, strategy, parent, self.rows[parent].candidate, child.kind, {}, child.text)
        elif any(child.key == r.candidate.key for r in self.rows):
            self.counters.duplicates += 1
            row = Row(round_, strategy, parent, child, "duplicate", {}, "")
        else:
            row = self._examine(round_, strategy, parent, child)
        self.rows.append(row)
        return row

    def _examine(self, round_: int, strategy: int, parent: int, child: Candidate) -> Row:
        self.counters.compiled += 1
        built = self.substrate.compile(child)
        if isinstance(built, Failure):
            self.counters.compile_errors += 1
            return Row(round_, strategy, parent, child, built.kind, {}, built.text)
        wrong = self.substrate.check(built)
        if wrong is not None:
            self.counters.wrong += 1
            return Row(round_, strategy, parent, child, wrong.kind, {}, wrong.text)
        self.counters.correct += round_ > 0
        return Row(round_, strategy, parent, child, "right", self.substrate.profile(built, None).facts, built.log)
