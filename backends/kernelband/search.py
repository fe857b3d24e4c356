"""The search loop: choose, propose, compile, check, time, learn; one attempt a round (section 4 of the card)."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np

from backends.contract import InputError
from backends.kernelband import bench as benches
from backends.kernelband.bandit import reward
from backends.kernelband.bench import Bench, Entry
from backends.kernelband.frontier import Attempt, Frontier, Outcome
from backends.kernelband.policies import Choice, Policy
from backends.kernelband.substrate import Candidate, Failure, Proposer

BASELINE_EVERY = 5  # rounds between two timings of the baseline, which show how much the host drifts
Phase = Literal["baseline", "propose", "compile", "check", "time", "learn", "drift", "confirm"]


@dataclass
class Counters:
    """What the attempts cost and gave. compiled: calls of the compiler. seconds: wall time."""

    compiled: int = 0
    correct: int = 0
    wrong: int = 0  # wrong output, time-out, crash or cheat
    compile_errors: int = 0  # also an answer without code
    duplicates: int = 0
    masked_pulls: int = 0
    compile_s: float = 0.0
    run_s: float = 0.0
    propose_s: float = 0.0


@dataclass
class Now:
    """The attempt under way: its round, what was chosen and, once it is written, the child."""

    round: int = 0
    phase: Phase = "baseline"
    choice: Choice | None = None
    child: Candidate | None = None


@dataclass
class Search:
    """One search from k0 with a budget of rounds. ``run`` may be called once.

    rng: draws of the proposer. given: a candidate that a person wrote; it is measured before round 1 and joins the frontier when it
    is right. drift: (round, ms) of the baseline, re-timed each 5 rounds; baseline_ms and best_ms are minima over all their timings.
    """

    bench: Bench
    proposer: Proposer
    policy: Policy
    rng: np.random.Generator
    baseline: Candidate
    rounds: int
    given: Candidate | None = None
    frontier: Frontier = field(default_factory=Frontier)
    attempts: list[Attempt] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    drift: list[tuple[int, float]] = field(default_factory=list)
    now: Now = field(default_factory=Now)
    _seen: set[str] = field(default_factory=set)

    @property
    def baseline_ms(self) -> float:
        return min(ms for _, ms in self.drift)

    @property
    def best_ms(self) -> float:
        """Of the fastest correct kernel, which may be the baseline itself."""
        best = self.frontier.best()
        return self.baseline_ms if best == 0 else self.frontier.timings[best].ms

    def run(self) -> Iterator[Phase]:
        """Yields each phase before it begins, "learn" after each round. Raises InputError when the baseline itself fails."""
        yield from self._measure_baseline()
        if self.given is not None:
            yield from self._attempt(0, Choice(-1, -1, 0, self.given))
        for round_ in range(1, self.rounds + 1):
            self.policy.prepare(self.frontier, round_)
            yield from self._attempt(round_, self.policy.choose(self.frontier))
            if round_ % BASELINE_EVERY == 0:
                yield self._enter("drift")
                self._retime_baseline(round_)
        yield self._enter("confirm")
        self._confirm()

    @property
    def done(self) -> int:
        """Rounds that are settled."""
        return sum(a.round > 0 for a in self.attempts)

    def _enter(self, phase: Phase) -> Phase:
        self.now.phase = phase
        return phase

    def _measure_baseline(self) -> Iterator[Phase]:
        yield self._enter("baseline")
        self._seen.add(self.baseline.key)
        entry = benches.result(self.bench.measure(self.baseline, None))
        self._count(entry)
        if entry.failure is not None or entry.timing is None or entry.profile is None:
            said = entry.failure.text.strip().splitlines() if entry.failure else []
            raise InputError("kernel", f"the baseline fails on this host ({said[0][:200] if said else 'no time'})", "choose another kernel or substrate")
        self.frontier.add(self.baseline, entry.timing, entry.profile, known=self.policy.settings.profile_all)
        self.drift.append((0, entry.timing.ms))

    def _attempt(self, round_: int, choice: Choice) -> Iterator[Phase]:
        parent = self.frontier.candidates[choice.parent]
        self.now = Now(round_, "propose", choice)
        yield "propose"
        began = time.perf_counter()
        child = choice.candidate or self.proposer.propose(parent, self.frontier.timings[choice.parent].ms, choice.strategy, self.rng)
        self.counters.propose_s += time.perf_counter() - began
        entry: Entry | None
        if isinstance(child, Failure):
            entry, child = Entry(child), dataclasses.replace(parent, schedule=None, source="", key="")
        elif child.key in self._seen:
            entry = None
        else:
            self._seen.add(child.key)
            self.now.child = child
            entry = yield from self._measure(child, self.frontier.timings[choice.parent].ms)
        self._settle(choice, child, entry)
        yield self._enter("learn")

    def _measure(self, child: Candidate, parent_ms: float) -> Generator[Phase, None, Entry]:
        measuring = self.bench.measure(child, parent_ms)
        while True:
            try:
                yield self._enter(next(measuring))
            except StopIteration as end:
                return cast("Entry", end.value)

    def _settle(self, choice: Choice, child: Candidate, entry: Entry | None) -> None:
        """Reward, frontier, statistics and counters of one attempt; entry None is a duplicate."""
        gained = 0.0
        member = None
        outcome: Outcome = "duplicate"
        timing = entry.timing if entry else None
        parent_timing = self.frontier.timings[choice.parent]
        if entry is not None and entry.failure is not None:
            outcome = entry.failure.kind
        elif entry is not None and timing is not None and entry.profile is not None:
            gained = reward(parent_timing.ms, timing.ms)
            change = 1 - timing.ms / parent_timing.ms
            outcome = "within-noise" if abs(change) < max(timing.noise, parent_timing.noise) else "faster" if change > 0 else "slower"
            place = {"parent": choice.parent, "strategy": choice.strategy, "round_": self.now.round}
            member = self.frontier.add(child, timing, entry.profile, **place, known=self.policy.settings.profile_all)
        if self.now.round > 0:
            self.policy.learn(choice, gained, child, entry)
        self._count(entry, outcome, choice.saved)
        ms = timing.ms if timing else None
        self.attempts.append(
            Attempt(self.now.round, choice.cluster, choice.strategy, choice.parent, child, outcome, ms, gained, member, entry or Entry(), choice.saved)
        )

    def _count(self, entry: Entry | None, outcome: Outcome | None = None, saved: bool = False) -> None:
        counters = self.counters
        counters.masked_pulls += saved
        counters.duplicates += outcome == "duplicate"
        counters.compile_errors += outcome in ("compile-error", "no-code")
        counters.wrong += outcome in ("wrong", "timeout", "crash", "cheat")
        counters.correct += outcome in ("faster", "within-noise", "slower")
        if entry is not None:
            counters.compiled += outcome != "no-code"
            counters.compile_s += entry.compile_s
            counters.run_s += entry.run_s

    def _retime_baseline(self, round_: int) -> None:
        self.drift.append((round_, self.bench.again(self.baseline).ms))

    def _confirm(self) -> None:
        """The best kernel is timed once more beside the baseline: the least of many noisy times is an optimistic one, and so both get a second."""
        best = self.frontier.best()
        if best:
            again = self.bench.again(self.frontier.candidates[best])
            self.frontier.timings[best] = min(self.frontier.timings[best], again, key=lambda t: t.ms)
        if self.rounds % BASELINE_EVERY:
            self._retime_baseline(self.rounds)


def measured(search: Search) -> dict[str, float]:
    """What a search found, in numbers.

    roofline_fraction: arithmetic of the fastest kernel over what the roofline allows at its intensity; above 1 where its data stay in cache.
    noise_cv: of the fastest kernel's runs.
    """
    best, roof, counters = search.frontier.best(), search.bench.roofline, search.counters
    profile = search.frontier.profiles[best]
    allowed = min(roof.gflops, profile.flops / profile.bytes * roof.dram)
    return {
        "speedup": search.baseline_ms / search.best_ms,
        "best_ms": search.best_ms,
        "baseline_ms": search.baseline_ms,
        "rounds": search.done,
        "correct": counters.correct,
        "wrong": counters.wrong,
        "compile_errors": counters.compile_errors,
        "duplicates": counters.duplicates,
        "masked_pulls": counters.masked_pulls,
        "roofline_fraction": profile.flops / search.best_ms / 1e6 / allowed,
        "noise_cv": search.frontier.timings[best].cv,
    }
