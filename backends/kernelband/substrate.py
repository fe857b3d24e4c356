"""What the bandit sees of the world: a substrate that renders, compiles, checks and times candidates, and a proposer that edits them.

Two substrates stand behind this: C compiled by the host's compiler (``backends.kernelband.c``) and Triton
(``backends.kernelband.triton_substrate``). Sections 4 and 5 of the method's card.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

# In the paper's order; TARGET names for each strategy the resource that it relieves, as an index into RESOURCES.
STRATEGIES = ("tiling", "vectorization", "fusion", "pipeline", "reordering", "access_layout")
RESOURCES = ("sm", "dram", "l2")
TARGET = (2, 1, 1, 0, 0, 1)

FailureKind = Literal["compile-error", "wrong", "timeout", "cheat", "crash", "no-code"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One program.

    size: the kernel's leading extent (matmul: n; row kernels: rows; stencil: n; attention: length). schedule: frozen and hashable;
    None for text that a person or a model wrote. key: sha256 of source and compiler flags; equal keys are duplicates.
    """

    kernel: str
    size: int
    schedule: Hashable | None
    source: str
    key: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a candidate has no time: the compiler's own words, the first wrong element, the limit that it ran into."""

    kind: FailureKind
    text: str


@dataclass(frozen=True)
class Built:
    """A compiled candidate. handle: whatever the substrate needs to load it; log: what the compiler said; seconds: of the compiler, 0 from a cache."""

    candidate: Candidate
    handle: Any
    log: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Timing:
    """ms: the minimum over the runs (the median on a GPU). cv: standard deviation of the runs over their mean."""

    ms: float
    runs: int
    cv: float

    @property
    def noise(self) -> float:
        """Relative improvement below which a child is "within noise": max(2 %, 2 cv / sqrt(runs))."""
        return max(0.02, 2 * self.cv / self.runs**0.5)


@dataclass(frozen=True)
class Profile:
    """phi (5,): behaviour, for clustering. h (3,): percent of peak of RESOURCES, 0 to 100. flops, bytes: of one call, bytes compulsory.

    facts: what else can be said of it, by name (registers, spills, lanes, working set ...).
    """

    phi: np.ndarray
    h: np.ndarray
    flops: float
    bytes: float
    facts: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Roofline:
    """Measured peaks of this host at the threads in use."""

    gflops: float  # GFLOP/s
    dram: float  # GB/s
    cache: float  # GB/s


class Substrate(Protocol):
    """Where candidates are made and measured. Its constructor takes ``(threads, check)``.

    check: the run's ``context.check``; every wait of more than half a second calls it, and what it raises (a stop) ends the child process.
    ``close()`` ends whatever still runs; the search calls it in a ``finally``.
    """

    name: Literal["c", "triton"]
    kernels: tuple[str, ...]

    @property
    def can_time(self) -> bool:
        """False on a host without a compiler, or for Triton without a GPU: then nothing is timed, and ``time`` is never called."""

    @property
    def machine(self) -> str:
        """Processor, threads and compiler in words."""

    def default_size(self, kernel: str) -> int:
        """The card's size of this kernel."""

    def describe(self, kernel: str, size: int) -> str:
        """Task, exact signature and tolerance in words, for the prompt of a model and for the page."""

    def naive(self, kernel: str, size: int) -> Candidate:
        """k0. Raises InputError for an unknown kernel (names the valid ones) and for a size whose buffers exceed memory (says the MB)."""

    def render(self, kernel: str, size: int, schedule: Hashable) -> Candidate:
        """The program of a schedule."""

    def written(self, kernel: str, size: int, source: str) -> Candidate:
        """A candidate of text that a model or a person wrote: schedule None."""

    def edits(self, candidate: Candidate, strategy: int) -> Sequence[Hashable]:
        """Every schedule that one edit of this strategy gives, in a fixed order; may be empty, may hold illegal ones. Needs no compiler."""

    def space(self, kernel: str) -> Mapping[str, tuple[Any, ...]]:
        """The schedule's fields and the values of each, for samplers that know no edits (TPE)."""

    def at(self, kernel: str, values: Mapping[str, Any]) -> Hashable:
        """The schedule with these values of ``space``."""

    def values(self, schedule: Hashable) -> Mapping[str, Any]:
        """The values of a schedule, the inverse of ``at``; also how a recording writes it to JSON."""

    def compile(self, candidate: Candidate) -> Built | Failure: ...

    def check(self, built: Built) -> Failure | None:
        """None when the output is right on every input set."""

    def time(self, built: Built, parent_ms: float | None) -> Timing | Failure:
        """parent_ms None: the baseline itself."""

    def profile(self, built: Built, timing: Timing | None) -> Profile:
        """timing None, where nothing can be timed: only the static facts count, phi begins with 0 and h is NaN."""

    def roofline(self) -> Roofline: ...

    def close(self) -> None: ...


class Proposer(Protocol):
    """Writes a child: one edit of this strategy to the parent. It knows nothing of timings that the search did not tell it."""

    name: str

    def propose(self, parent: Candidate, parent_ms: float, strategy: int, rng: np.random.Generator) -> Candidate | Failure: ...


class Editor(Protocol):
    """What an offline proposer needs: a substrate, or the recorded part of one."""

    def edits(self, candidate: Candidate, strategy: int) -> Sequence[Hashable]: ...
    def render(self, kernel: str, size: int, schedule: Hashable) -> Candidate: ...


class ScheduleSpace(Protocol):
    """Schedules as values of named fields: a substrate, or the recorded part of one."""

    def space(self, kernel: str) -> Mapping[str, tuple[Any, ...]]: ...
    def at(self, kernel: str, values: Mapping[str, Any]) -> Hashable: ...
    def values(self, schedule: Hashable) -> Mapping[str, Any]: ...
    def render(self, kernel: str, size: int, schedule: Hashable) -> Candidate: ...


class ScheduleProposer:
    """The offline proposer: one of the editor's edits, drawn uniformly. Without an edit the parent itself comes back, a duplicate."""

    name = "offline"

    def __init__(self, editor: Editor) -> None:
        self._editor = editor

    def propose(self, parent: Candidate, parent_ms: float, strategy: int, rng: np.random.Generator) -> Candidate:
        edits = self._editor.edits(parent, strategy)
        if not edits:
            return parent
        return self._editor.render(parent.kernel, parent.size, edits[int(rng.integers(len(edits)))])
