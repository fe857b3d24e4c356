"""Where a candidate gets its result: measured now on a substrate, or looked up in what was recorded."""

from __future__ import annotations

import time
from collections.abc import Generator, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, cast

from backends.contract import InputError
from backends.kernelband.substrate import Built, Candidate, Failure, Profile, Roofline, Substrate, Timing

T = TypeVar("T")
Phase = Literal["compile", "check", "time"]


@dataclass(frozen=True)
class Entry:
    """The result of one candidate: a failure, or a time with a profile.

    log: what the compiler said. compile_s, run_s: wall time spent now; 0 for what was recorded.
    """

    failure: Failure | None = None
    timing: Timing | None = None
    profile: Profile | None = None
    log: str = ""
    compile_s: float = 0.0
    run_s: float = 0.0


class Bench(Protocol):
    """Gives results. machine, roofline: of the host whose times these are."""

    machine: str

    @property
    def roofline(self) -> Roofline: ...

    def measure(self, candidate: Candidate, parent_ms: float | None) -> Generator[Phase, None, Entry]:
        """The result; yields each phase before it begins."""

    def again(self, candidate: Candidate) -> Timing:
        """Another time of a candidate that was measured before, to see drift."""


class LiveBench:
    """Compiles, checks and times on this host. The bench keeps what it built, so that a second timing compiles nothing."""

    def __init__(self, substrate: Substrate) -> None:
        self.machine = substrate.machine
        self._substrate = substrate
        self._built: dict[str, Built] = {}

    @property
    def roofline(self) -> Roofline:
        return self._substrate.roofline()

    def measure(self, candidate: Candidate, parent_ms: float | None) -> Generator[Phase, None, Entry]:
        substrate = self._substrate
        yield "compile"
        began = time.perf_counter()
        built = substrate.compile(candidate)
        compile_s = time.perf_counter() - began
        if isinstance(built, Failure):
            return Entry(built, log=built.text, compile_s=compile_s)
        yield "check"
        began = time.perf_counter()
        wrong = substrate.check(built)
        run_s = time.perf_counter() - began
        if wrong is not None:
            return Entry(wrong, log=built.log, compile_s=compile_s, run_s=run_s)
        yield "time"
        began = time.perf_counter()
        timing = substrate.time(built, parent_ms)
        run_s += time.perf_counter() - began
        if isinstance(timing, Failure):
            return Entry(timing, log=built.log, compile_s=compile_s, run_s=run_s)
        self._built[candidate.key] = built
        return Entry(None, timing, substrate.profile(built, timing), built.log, compile_s, run_s)

    def again(self, candidate: Candidate) -> Timing:
        timing = self._substrate.time(self._built[candidate.key], None)
        if isinstance(timing, Failure):
            raise InputError("kernel", f"a kernel that ran before fails now ({timing.text})", "run again; other work may have taken the memory")
        return timing


class RecordedBench:
    """Results that were measured before, by schedule. machine: where and when, in words."""

    def __init__(self, machine: str, roofline: Roofline, entries: Mapping[Hashable, Entry]) -> None:
        self.machine, self.roofline = machine, roofline
        self._entries = entries

    def measure(self, candidate: Candidate, parent_ms: float | None) -> Generator[Phase, None, Entry]:
        yield "time"
        return self._entries[candidate.schedule]

    def again(self, candidate: Candidate) -> Timing:
        timing = self._entries[candidate.schedule].timing
        assert timing is not None, "only candidates that have a time are timed again"
        return timing


def result(steps: Generator[Any, None, T]) -> T:
    """What a generator returns at its end, what it yields unseen."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)
