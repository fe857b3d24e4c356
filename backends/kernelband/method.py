"""One run of kernelband as a stream of frames: a search, a comparison of policies, or a survey where nothing can be timed.

Every frame: ``made_by``, ``mode`` (search, compare, survey), ``recorded`` (where and when the times were recorded, None for times
measured now). m kernels of the frontier (0 is the baseline), K clusters, 6 strategies, T rounds; clusters and members count from 0.

=============  =====================================================================================================
search
(a) attempts   lists by attempt: round, cluster, strategy (-1: no arm), parent, member (None: not correct), outcome (faster,
               within-noise, slower, duplicate, compile-error, wrong, timeout, crash, cheat, no-code), ms, parent_ms, best_ms
               (so far), reward, saved, text (of a failure). drift: round, ms of the baseline
(b) arms       mu, n, bonus (K, 6), open (K, 6), empty (list of clusters), chosen [i, s] or None; None for TPE
(c) kernels    ms, cv, noise, cluster, parent, strategy, round, intensity (flop/byte), gflops (m,), h (m, 3), phi (m, 5), facts
    roofline   gflops (GFLOP/s), dram, cache (GB/s)
(d) features   xy (m, 2), centroids (K, 2) or None, share of the variance, names; None below two kernels
(e) the tree   kernels.parent, kernels.strategy, attempts.parent for what failed
(f) diff       parent, child (None: a duplicate), output of the compiler, outcome (None: under way); best: member, source, naive
(g) headroom   h (K, 3) of the representatives, NaN where empty; representative (member or None), theta (3,)
(h) counters   compiled, correct, wrong, compile_errors, failed, duplicates, masked_pulls, compile_s, run_s, propose_s
    phase, round, strategies, resources; task: what a person's own program must be, None where none can run
compare        chosen, seeds, policies {name: mean, low, high (T + 1,)}, final {name: (seeds,)}, pulls {name: (K, 6)} over all
               seeds, strategies, landscape {schedules, failures, fastest (speed-up), inside (share of edits), stale, ms};
               while the table is filled only landscape.schedules
survey         strategies, rows [round, strategy, parent, outcome, facts, text], diff, counters, ptx {program, parent, before, after} of
               the newest program that is right and of the one that it was made from
=============  =====================================================================================================
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Any, cast

from backends.contract import Context, Frame, InputError, MetricValue
from backends.kernelband import landscape as landscapes
from backends.kernelband import picture, proposers
from backends.kernelband.bench import LiveBench
from backends.kernelband.card import CARD, Params
from backends.kernelband.compare import Comparison, compare, make_policy
from backends.kernelband.landscape import Landscape
from backends.kernelband.policies import Settings
from backends.kernelband.recording import Recording, find
from backends.kernelband.search import Search, measured
from backends.kernelband.substrate import STRATEGIES, Proposer, ScheduleProposer, Substrate
from backends.kernelband.survey import Survey
from backends.runtime import threads

FILLED = 60  # schedules at most that a comparison measures itself where there is no recording
FILLED_PER_ROUND = 3
FRAME_S = 0.2
FILL_SHARE = 0.6  # of the progress, where the table has to be filled first
NO_COMPILER = "recorded times, this host has no C compiler"
COMPARED_ONLY, UNTIMED = "\u2013 compare only", "\u2013 not timed"  # in the place of a figure that a mode does not measure


def run(params: Params, context: Context) -> Iterator[Frame]:
    """Raises InputError for what this host cannot do, with what it can."""
    if params.threads > threads.cores():
        raise InputError("threads", f"this host gives the lab {threads.cores()} cores", f"choose from 1 to {threads.cores()}")
    if params.code:
        proposers.require_switch("code")
    substrate = open_substrate(params, context)
    try:
        yield from _Run(params, context, substrate).frames()
    finally:
        substrate.close()


def open_substrate(params: Params, context: Context) -> Substrate:
    """The substrate of these params; ``close`` it."""
    if params.substrate == "triton":
        from backends.kernelband.triton_substrate import TritonSubstrate

        return TritonSubstrate(params.threads, context.check)
    from backends.kernelband.c import CSubstrate

    return CSubstrate(params.threads, context.check)


class _Run:
    """One run on an open substrate."""

    def __init__(self, params: Params, context: Context, substrate: Substrate) -> None:
        self.params, self.context, self.substrate = params, context, substrate
        self.began = time.perf_counter()
        if params.kernel not in substrate.kernels:
            raise InputError("kernel", f"{params.kernel} has no {substrate.name} form", "choose one of " + ", ".join(substrate.kernels))
        self.size = substrate.default_size(params.kernel) if params.size == "auto" else params.size
        self.baseline = substrate.naive(params.kernel, self.size)
        self.settings = Settings(
            clusters=params.clusters,
            exploration=params.exploration,
            recluster_every=params.recluster_every,
            theta=(params.theta_sm, params.theta_dram, params.theta_l2),
            temperature=params.temperature,
            mask=params.mask,
            profile_all=params.profile == "all",
            match_clusters=params.match_clusters,
        )

    def frames(self) -> Iterator[Frame]:
        if self.params.mode == "compare":
            return self.compared()
        if self.substrate.can_time:
            return self.searched(None)
        if self.substrate.name == "c":
            return self.searched(Landscape(self.substrate, self.recording()))
        return self.surveyed()

    def frame(self, progress: float, message: str, metrics: dict[str, MetricValue], data: dict[str, Any], machine: str, proposer: str) -> Frame:
        params = self.params
        made_by = {
            "model": f"{proposer} proposer",
            "data": f"{params.kernel}, size {self.size}, float32, random inputs",
            "size": f"{params.rounds} rounds, {params.clusters} clusters, policy {params.policy}",
            "device": machine,
        }
        metrics = {**metrics, "seconds": time.perf_counter() - self.began}
        return Frame(progress, message, metrics, {"made_by": made_by, "mode": self.params.mode, "recorded": None, **data})

    def recording(self) -> Recording:
        """The shipped recording; raises InputError where there is none and nothing can be measured."""
        found = find(self.substrate.name, self.params.kernel, self.size, self.params.threads)
        if found is not None:
            return found
        raise InputError(
            "kernel",
            "this host cannot time it, and no recording was made at this size and number of threads",
            "choose size auto and 1 thread, or use a host with gcc or clang, or with a GPU for Triton",
        )

    def proposer(self, editor: Substrate | Landscape) -> Proposer:
        if self.params.proposer == "offline":
            return ScheduleProposer(editor)
        if isinstance(editor, Landscape):
            raise InputError("proposer", "recorded times belong to the offline proposer's programs", "choose offline")
        make = proposers.endpoint_proposer if self.params.proposer == "endpoint" else proposers.local_proposer
        return make(editor, self.context)

    # --------------------------------------------------------------------------------------------------- search

    def searched(self, recorded: Landscape | None) -> Iterator[Frame]:
        """One search: on this host, or on the recorded landscape."""
        params, editor = self.params, recorded or self.substrate
        if recorded is not None and params.code:
            raise InputError("code", "this host has no compiler", "install gcc or clang")
        search = Search(
            recorded.bench if recorded else LiveBench(self.substrate),
            self.proposer(editor),
            make_policy(params.policy, self.settings, self.context.rng, editor, self.baseline),
            self.context.rng.spawn(1)[0],
            self.baseline,
            params.rounds,
            self.substrate.written(params.kernel, self.size, params.code) if params.code else None,
        )
        shown = 0.0
        for phase in search.run():
            self.context.check()
            if phase == "baseline":
                yield self.opening(search, recorded)
            elif search.frontier and (phase == "learn" or time.perf_counter() - shown > FRAME_S):
                shown = time.perf_counter()
                yield self.state(search, recorded, 0.99 * search.done / params.rounds, _doing(search))
        yield self.state(search, recorded, 1.0, f"{NO_COMPILER}: {_summary(search)}" if recorded else f"{_summary(search)}; {_drift(search)}")

    def opening(self, search: Search, recorded: Landscape | None) -> Frame:
        data = {"phase": "baseline", "round": 0, "diff": None, "best": picture.best(self.baseline, self.baseline, 0)}
        doing = f"opening {NO_COMPILER}" if recorded else "compiling, checking and timing the naive kernel"
        return self.frame(0.0, doing, {}, data | self.source(recorded), search.bench.machine, search.proposer.name)

    def state(self, search: Search, recorded: Landscape | None, progress: float, message: str) -> Frame:
        metrics: dict[str, MetricValue] = {**measured(search), "against_random": COMPARED_ONLY}
        return self.frame(progress, message, metrics, picture.search(search) | self.source(recorded), search.bench.machine, search.proposer.name)

    def source(self, recorded: Landscape | None) -> dict[str, Any]:
        """Where the times come from, and what a person's own program must be, where one can run."""
        written = recorded is None and proposers.allowed()
        task = self.substrate.describe(self.params.kernel, self.size) if written else None
        return {"recorded": recorded.recording.made if recorded else None, "task": task}

    # -------------------------------------------------------------------------------------------------- compare

    def compared(self) -> Iterator[Frame]:
        """All policies over 100 seeds, on the recording of this kernel or on a table that is filled first."""
        params = self.params
        if params.proposer != "offline":
            raise InputError("proposer", "policies are compared on edits that can be replayed", "choose offline")
        if params.code:
            raise InputError("code", "policies are compared on schedules only", "choose the mode search")
        recording = find(self.substrate.name, params.kernel, self.size, params.threads)
        made, begin = (recording.made, 0.0) if recording else (None, FILL_SHARE)
        if recording is None:
            recording = yield from self.fill()
        else:
            yield self.frame(0.0, "opening the recording", {}, {"recorded": made}, recording.made, "offline")
        landscape = Landscape(self.substrate, recording)
        chosen = "without-mask" if params.policy == "kernelband" and not params.mask else params.policy
        shown = 0.0
        for number, found in enumerate(compare(landscape, self.settings, params.rounds, params.seed, self.context.check, params.seeds), 1):
            if number == params.seeds or (number > 1 and time.perf_counter() - shown > FRAME_S):
                shown = time.perf_counter()
                metrics = self.compared_metrics(found, landscape, chosen)
                data = picture.comparison(found, landscape, chosen) | {"recorded": made}
                yield self.frame(
                    begin + (1 - begin) * number / params.seeds, _verdict(found, chosen, number), metrics, data, made or recording.machine, "offline"
                )

    def fill(self) -> Generator[Frame, None, Recording]:
        if not self.substrate.can_time:
            return self.recording()
        params = self.params
        count = min(FILLED, FILLED_PER_ROUND * params.rounds)
        filling = landscapes.fill(self.substrate, LiveBench(self.substrate), self.baseline, count, params.rounds, params.threads)
        shown = 0.0
        while True:
            try:
                number = next(filling)
            except StopIteration as end:
                return cast("Recording", end.value)
            self.context.check()
            if not shown or time.perf_counter() - shown > FRAME_S:
                shown = time.perf_counter()
                data = {"landscape": {"schedules": number}}
                message = f"measuring a table of {count} schedules on this host: {number}"
                yield self.frame(FILL_SHARE * min(1.0, number / count), message, {}, data, self.substrate.machine, "offline")

    def compared_metrics(self, found: Comparison, landscape: Landscape, chosen: str) -> dict[str, MetricValue]:
        band = found.band(chosen)
        assert band is not None, "shown from the second seed on"
        figures: dict[str, MetricValue] = {name: found.mean(chosen, name) for name in found.figures[chosen][0]}
        speedup = float(band.mean[-1])
        ends: dict[str, MetricValue] = {"speedup": speedup, "best_ms": landscape.baseline_ms / speedup, "rounds": self.params.rounds}
        return figures | ends | {"against_random": found.ratio(chosen, "random")[0]}

    # --------------------------------------------------------------------------------------------------- survey

    def surveyed(self) -> Iterator[Frame]:
        """What the compiler says of random edits, where nothing can be timed."""
        params = self.params
        survey = Survey(self.substrate, self.proposer(self.substrate), self.context.rng, self.baseline, params.rounds)
        yield self.frame(0.0, "compiling the baseline; no GPU here, so nothing is timed", {}, {"mode": "survey"}, self.substrate.machine, survey.proposer.name)
        for row in survey.run():
            self.context.check()
            counted = vars(survey.counters)
            metrics: dict[str, MetricValue] = {**dict.fromkeys(CARD.metrics, UNTIMED), "rounds": row.round}
            metrics |= {name: counted[name] for name in ("correct", "wrong", "compile_errors", "duplicates")}
            message = f"round {row.round}: {row.outcome.replace('-', ' ')}; compiled and checked only: no GPU here, so no time and no speed-up"
            data = picture.survey(survey) | {"mode": "survey"}
            yield self.frame(row.round / params.rounds, message, metrics, data, self.substrate.machine, survey.proposer.name)


def _doing(search: Search) -> str:
    """One line on the attempt under way."""
    now = search.now
    if now.choice is None:
        return f"the naive kernel takes {search.baseline_ms:.3g} ms"
    what = "your program" if now.round == 0 else STRATEGIES[now.choice.strategy].replace("_", " ") if now.choice.strategy >= 0 else "a whole schedule"
    said = f"round {now.round}: {what}"
    if now.phase == "learn":
        last = search.attempts[-1]
        return f"{said}, {last.outcome.replace('-', ' ')}" + (f", {last.ms:.3g} ms" if last.ms else "") + f"; best {search.best_ms:.3g} ms"
    return f"{said}, {now.phase}"


def _drift(search: Search) -> str:
    return f"the baseline drifted by {search.drift[-1][1] / search.drift[0][1] - 1:+.0%}; against random choice only a comparison tells"


def _summary(search: Search) -> str:
    counters = search.counters
    return (
        f"{search.baseline_ms / search.best_ms:.3g} times faster than the naive kernel: {search.baseline_ms:.3g} to {search.best_ms:.3g} ms; "
        f"{counters.correct} right, {counters.wrong} wrong, {counters.compile_errors} not compiled, {counters.duplicates} seen before"
    )


def _verdict(found: Comparison, chosen: str, number: int) -> str:
    """What the seeds so far say, and no more."""
    if chosen == "random":
        return f"{number} seeds; counts are means over them"
    mean, low, high = found.ratio(chosen, "random")
    judged = "within noise of random choice" if low <= 1 <= high else "faster than random choice" if low > 1 else "slower than random choice"
    return f"{number} seeds: {chosen} is {judged} ({mean:.2f} times its speed-up, 95 % from {low:.2f} to {high:.2f}); counts are means over the seeds"
