"""All correct kernels so far, and every attempt at one; both only grow (section 3 of the card)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from backends.kernelband.bench import Entry
from backends.kernelband.substrate import Candidate, FailureKind, Profile, Timing

Outcome = Literal["faster", "within-noise", "slower", "duplicate"] | FailureKind


@dataclass(frozen=True)
class Attempt:
    """One pull. member: the child's place in the frontier, None when it has none. ms: None without a time.

    strategy -1 and cluster -1: the sampler chose no arm (TPE), or the candidate is a person's own text.
    """

    round: int
    cluster: int
    strategy: int
    parent: int
    candidate: Candidate
    outcome: Outcome
    ms: float | None
    reward: float
    member: int | None
    entry: Entry
    saved: bool  # the mask turned the bandit away from an arm of a higher score


@dataclass
class Frontier:
    """Correct kernels by place, k0 at 0. Arrays are made anew from the lists at each call.

    label: cluster. parent: place of the parent, -1 for k0. known: whether the bandit may read h, which the "representatives only"
    setting withholds until a kernel has represented its cluster.
    """

    candidates: list[Candidate] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    profiles: list[Profile] = field(default_factory=list)
    label: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    strategy: list[int] = field(default_factory=list)
    round: list[int] = field(default_factory=list)
    known: list[bool] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.candidates)

    def add(self, candidate: Candidate, timing: Timing, profile: Profile, *, parent: int = -1, strategy: int = -1, round_: int = 0, known: bool = True) -> int:
        """The place of a new member, which takes its parent's cluster."""
        self.label.append(self.label[parent] if parent >= 0 else 0)
        self.candidates.append(candidate)
        self.timings.append(timing)
        self.profiles.append(profile)
        self.parent.append(parent)
        self.strategy.append(strategy)
        self.round.append(round_)
        self.known.append(known)
        return len(self) - 1

    @property
    def ms(self) -> np.ndarray:
        """(m,)"""
        return np.array([t.ms for t in self.timings])

    @property
    def phi(self) -> np.ndarray:
        """(m, 5)"""
        return np.array([p.phi for p in self.profiles])

    @property
    def h(self) -> np.ndarray:
        """(m, 3), percent of peak; every member's."""
        return np.array([p.h for p in self.profiles])

    @property
    def h_known(self) -> np.ndarray:
        """(m, 3), a row of NaN where the bandit has no profile."""
        return np.where(np.array(self.known)[:, None], self.h, np.nan)

    @property
    def labels(self) -> np.ndarray:
        """(m,)"""
        return np.array(self.label)

    def best(self) -> int:
        """The place of the fastest."""
        return int(self.ms.argmin())
