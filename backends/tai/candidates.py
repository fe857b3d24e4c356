"""What a task hands to the dialogue: executed candidates, what they did, and how far apart they are.

Every array has the same first axis, the N candidates of one draw. Two draws of one task have the same probes, nuisance axes and
features (by name), so that a question asked about one can be answered for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from backends.contract import InputError

REQUEST_LIMIT = 2000  # characters
FEWEST = 4  # candidates

Arrive = Callable[[int, str], None]


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing that every candidate was made to do, and what can come of it.

    question: the open question, "For f([3, 1], 1) which result do you expect?". yes_no: the same with one outcome in it, which
    stands where "{outcome}" is: "Should f([3, 1], 1) give {outcome}?". outcomes: readable, by code; all different.
    """

    question: str
    yes_no: str
    outcomes: tuple[str, ...]

    def ask(self, outcome: int) -> str:
        """The yes/no question about one outcome.

        >>> Probe("f([])?", "Should f([]) give {outcome}?", ("None", "-1")).ask(1)
        'Should f([]) give -1?'
        """
        return self.yes_no.replace("{outcome}", self.outcomes[outcome])


@dataclass(frozen=True, slots=True)
class Nuisance:
    """A property that changes nothing of what a candidate does: "Which loop do you prefer?". codes (N,): index into labels."""

    question: str
    labels: tuple[str, ...]
    codes: np.ndarray


@dataclass(frozen=True, slots=True)
class Candidates:
    """N executed candidates.

    request: the words that were ambiguous. shown: what the page draws of each, {"kind": "source" | "chart" | "path" | "text",
    ...}; equal candidates may share one object. captions: one short line each, by what it does ("index, -1 when absent"); a
    cluster is named by the caption of its medoid. texts: what the text distance compares (the source, the specification).
    codes (N, P): outcome of probe p as an index into probes[p].outcomes. distance (N, N): behavioural, in [0, 1], symmetric, zero
    diagonal. resolution: the smallest difference that the distance can tell (code: 1 / P). features (N, F): what the candidate
    does in numbers, for the separating hyperplanes, each column about in [0, 1]; feature_names: F readable ones. intents (N,):
    the true intent as an index into intent_names, None where nobody knows it. quirk (N,) bool: has an edge-case fault on purpose.
    failed (N,) bool: could not be run at all (its outcomes are errors; it is kept and shown as failed). axis_coverage: semantic
    axis -> share of the probes that tell its values apart; an axis at 0 is invisible. model, data: what made the candidates and
    what they ran on, in words. notes: for the person.
    """

    request: str
    shown: tuple[Mapping[str, Any], ...]
    captions: tuple[str, ...]
    texts: tuple[str, ...]
    probes: tuple[Probe, ...]
    codes: np.ndarray
    distance: np.ndarray
    resolution: float
    nuisance: tuple[Nuisance, ...]
    features: np.ndarray
    feature_names: tuple[str, ...]
    intents: np.ndarray | None
    intent_names: tuple[str, ...]
    quirk: np.ndarray
    failed: np.ndarray
    axis_coverage: Mapping[str, float]
    model: str
    data: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.captions)


class Task(Protocol):
    """One ambiguous request, from which candidates are drawn.

    redraws: whether a fresh draw can be made within a turn; where not (pasted candidates, a slow model), the dialogue goes on with
    the candidates it has. Made from the params once: the prior over intents, the probes and the data do not change between draws.
    """

    redraws: bool

    def draw(self, count: int, rng: np.random.Generator, arrive: Arrive = lambda done, caption: None) -> Candidates:
        """``count`` candidates (all that there are where they were pasted). arrive(done, caption): called as they come.

        Raises InputError: nothing can be made, or every candidate fails.
        """


def check(candidates: Candidates) -> None:
    """Raises InputError where no dialogue can be led: fewer than 4 candidates, all failing, a request that is too long."""
    if len(candidates.request) > REQUEST_LIMIT:
        raise InputError("request", f"the request has {len(candidates.request):,} characters", f"shorten it to {REQUEST_LIMIT:,}")
    if len(candidates) < FEWEST:
        raise InputError("candidates", f"there are {len(candidates)} candidates", f"give at least {FEWEST}")
    if candidates.failed.all():
        raise InputError("candidate_sources", "every candidate fails on every probe", "give candidates that run")
