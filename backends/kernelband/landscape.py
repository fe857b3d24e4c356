"""A closed game over measured schedules: only edits that lead to another measured schedule can be drawn.

So that many policies can be replayed over many seeds from one table: schedule to result. The table is a recording, or it is filled
now by searches of all policies in turn.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from backends.kernelband.bench import Bench, Entry, Phase, RecordedBench
from backends.kernelband.policies import BestOfN, Greedy, KernelBand, Settings, Thompson, UniformRandom
from backends.kernelband.recording import Recorded, Recording
from backends.kernelband.search import Search
from backends.kernelband.substrate import STRATEGIES, Candidate, Roofline, ScheduleProposer, Substrate, Timing

EXPLORERS = (UniformRandom, KernelBand, Greedy, Thompson, BestOfN)
EXPLORED = 1 / 3  # of a table that is filled: what the first searches measure
IDLE_SEARCHES = 10  # searches in a row that found nothing new: the part of the space that edits reach is exhausted


class Landscape:
    """The recorded part of a substrate; it proposes and renders as the substrate does, and runs no compiler.

    A schedule's key is that of its program as it is rendered today; stale counts the recorded ones whose program has changed since.
    Raises ValueError for a recording without its baseline.
    """

    def __init__(self, substrate: Substrate, recording: Recording) -> None:
        self._substrate, self.recording = substrate, recording
        self.kernel, self.size = recording.kernel, recording.size
        schedules = [substrate.at(self.kernel, r.values) for r in recording.schedules]
        self.entries: dict[Hashable, Entry] = {s: r.entry for s, r in zip(schedules, recording.schedules, strict=True)}
        self.candidates = {s: substrate.render(self.kernel, self.size, s) for s in schedules}
        self.stale = sum(self.candidates[s].key != r.key for s, r in zip(schedules, recording.schedules, strict=True))
        self.baseline = substrate.naive(self.kernel, self.size)
        if self.baseline.schedule not in self.entries:
            raise ValueError(f"the recording of {self.kernel} lacks its baseline")
        self.bench = RecordedBench(recording.made, recording.roofline, self.entries)
        self._schedules = schedules
        self._space = substrate.space(self.kernel)
        self._places = np.array([self._places_of(r.values) for r in recording.schedules])
        self._edits: dict[tuple[Hashable, int], tuple[Sequence[Hashable], int]] = {}

    @property
    def baseline_ms(self) -> float:
        return self.bench.again(self.baseline).ms

    def _places_of(self, values: Mapping[str, Any]) -> list[int]:
        return [self._space[name].index(values[name]) for name in self._space]

    def _inside(self, candidate: Candidate, strategy: int) -> tuple[Sequence[Hashable], int]:
        """The edits that lead to a measured schedule, and the number of all edits."""
        key = (candidate.schedule, strategy)
        if key not in self._edits:
            every = self._substrate.edits(candidate, strategy)
            self._edits[key] = [s for s in every if s in self.entries], len(every)
        return self._edits[key]

    def edits(self, candidate: Candidate, strategy: int) -> Sequence[Hashable]:
        return self._inside(candidate, strategy)[0]

    def render(self, kernel: str, size: int, schedule: Hashable) -> Candidate:
        return self.candidates[schedule]

    def space(self, kernel: str) -> Mapping[str, tuple[Any, ...]]:
        return self._space

    def values(self, schedule: Hashable) -> Mapping[str, Any]:
        return self._substrate.values(schedule)

    def at(self, kernel: str, values: Mapping[str, Any]) -> Hashable:
        """The measured schedule that differs in the fewest fields, the first on ties."""
        return self._schedules[int((self._places != self._places_of(values)).sum(axis=1).argmin())]

    def share_inside(self) -> float:
        """Of all edits of the measured correct schedules, the share that leads to a measured schedule."""
        timed = [self.candidates[s] for s, e in self.entries.items() if e.timing is not None]
        counts = [self._inside(c, s) for c in timed for s in range(len(STRATEGIES))]
        return sum(len(inside) for inside, _ in counts) / max(1, sum(every for _, every in counts))


class _Remembering:
    """A bench that measures each schedule once."""

    def __init__(self, bench: Bench) -> None:
        self.machine = bench.machine
        self.found: dict[Hashable, tuple[Candidate, Entry]] = {}
        self._bench = bench

    @property
    def roofline(self) -> Roofline:
        return self._bench.roofline

    def measure(self, candidate: Candidate, parent_ms: float | None) -> Generator[Phase, None, Entry]:
        if candidate.schedule not in self.found:
            entry = yield from self._bench.measure(candidate, parent_ms)
            self.found[candidate.schedule] = candidate, entry
        return self.found[candidate.schedule][1]

    def again(self, candidate: Candidate) -> Timing:
        timing = self.found[candidate.schedule][1].timing
        assert timing is not None, "only candidates that have a time are timed again"
        return timing


def fill(substrate: Substrate, bench: Bench, baseline: Candidate, count: int, rounds: int, threads: int) -> Generator[int, None, Recording]:
    """Measures up to ``count`` schedules and returns the recording; yields the number of schedules measured so far.

    Searches of ``rounds`` rounds, of all policies in turn, measure the first third. Then comes a grid, so that edits lead from most
    schedules to others: every combination of each field's naive value, its value in the fastest schedule found, and some values drawn at
    random. Further searches measure the rest. There are fewer than ``count`` when edits reach no more.
    """
    remembering = _Remembering(bench)
    yield from _explore(substrate, remembering, baseline, round(EXPLORED * count), rounds)
    for schedule in _grid(substrate, remembering.found, baseline, count - len(remembering.found)):
        if len(remembering.found) < count:
            measuring = remembering.measure(substrate.render(baseline.kernel, baseline.size, schedule), remembering.again(baseline).ms)
            yield from (len(remembering.found) for _ in measuring)
    yield from _explore(substrate, remembering, baseline, count, rounds)
    schedules = tuple(Recorded(substrate.values(s), c.key, e) for s, (c, e) in remembering.found.items())
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Recording(substrate.name, baseline.kernel, baseline.size, threads, bench.machine, today, bench.roofline, schedules)


def _explore(substrate: Substrate, bench: _Remembering, baseline: Candidate, count: int, rounds: int) -> Iterator[int]:
    """Searches, each with another seed, until so many schedules are known or none is new any more."""
    idle, seed = 0, len(bench.found)
    while len(bench.found) < count and idle < IDLE_SEARCHES:
        before = len(bench.found)
        policy = EXPLORERS[seed % len(EXPLORERS)](Settings(temperature=10.0), np.random.default_rng([seed, 0]))
        search = Search(bench, ScheduleProposer(substrate), policy, np.random.default_rng([seed, 1]), baseline, rounds)
        for _ in search.run():
            yield len(bench.found)
            if len(bench.found) >= count:
                break
        idle = idle + 1 if len(bench.found) == before else 0
        seed += 1


def _grid(substrate: Substrate, found: Mapping[Hashable, tuple[Candidate, Entry]], baseline: Candidate, most: int) -> list[Hashable]:
    """At most ``most`` schedules, or two for each field in which the fastest one found differs from the baseline."""
    space, rng = substrate.space(baseline.kernel), np.random.default_rng(most)
    fastest = min((e.timing.ms, place) for place, (_, e) in enumerate(found.values()) if e.timing is not None)[1]
    naive, best = substrate.values(baseline.schedule), substrate.values(list(found)[fastest])
    kept = {name: list(dict.fromkeys([naive[name], best[name]])) for name in space}
    spare = [(name, value) for name, values in space.items() for value in values if value not in kept[name]]
    for place in rng.permutation(len(spare)):
        name, value = spare[place]
        if math.prod(map(len, kept.values())) // len(kept[name]) * (len(kept[name]) + 1) <= most:
            kept[name].append(value)
    return [substrate.at(baseline.kernel, dict(zip(kept, values, strict=True))) for values in itertools.product(*kept.values())]
