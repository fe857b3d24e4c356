"""One run of parallel-probe as a stream of frames: the first question column by column, then all of them, then the sweeps."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from backends.contract import Context, Frame, MetricValue
from backends.parallel_probe import analysis, generator
from backends.parallel_probe.card import Params
from backends.parallel_probe.controller import Outcome, Setting, control, follow
from backends.parallel_probe.pools import Pool, onset_ratio
from backends.parallel_probe.sources import LONG, Source, Thought, source_of

ENOUGH = 8  # questions of the person's own from which sweeps are made; fewer would show accuracies of 0 and 1 only
COMPANIONS = 60  # synthetic questions that are swept in their place
STREAMED, ASKED = 0.5, 0.8  # progress after the first question, and after all
EACH_S = 0.3  # between the frames of many questions
CONTROLLER = ("stable", "prune", "warmup", "method")  # params that change nothing about the branches
Compared = dict[str, tuple[bool | None, int, int]]


def run(params: Params, context: Context) -> Iterator[Frame]:
    """Branches are probed, cut and stopped; the same branches are then given to all other methods."""
    frames = _Run(params, context).frames()
    if context.live is None:
        yield from frames
        return
    yield deque(frames, maxlen=1).pop()


class _Run:
    """The state of one run; each frame is made of ``data`` and ``metrics`` as they stand."""

    def __init__(self, params: Params, context: Context) -> None:
        self.params, self.context, self.start = params, context, time.perf_counter()
        self.source: Source = source_of(params, context)
        self.setting: Setting = self.source.defaults.setting(params)
        stable, prune, warmup = self.setting
        self.data: dict[str, Any] = {
            "setting": {"stable": stable, "prune": prune, "warmup": warmup},
            "interval": self.source.interval,
            "questions": self.source.questions,
            "notes": [],
            "made_by": self.source.made_by(),
        }
        self.metrics: dict[str, MetricValue] = {}

    def frame(self, progress: float, message: str) -> Frame:
        metrics = {**self.metrics, "seconds": time.perf_counter() - self.start}
        return Frame(progress, message, metrics, dict(self.data))

    def frames(self) -> Iterator[Frame]:
        first = yield from self.first()
        pools = yield from self.ask(first)
        yield from self.sweeps(pools)
        yield self.frame(1.0, self.summary())

    # ------------------------------------------------------------------------------------------ the first question

    def first(self) -> Generator[Frame, None, list[Thought]]:
        """The first question, column by column; branches that are alive go on after the stop, for the comparison with voting."""
        if self.context.live is None:
            for thought in self.source.stream(0):
                columns = int(thought.pool.depths.max(initial=0))
                outcome = self.follow(thought.pool, columns - 1)
                self.show(thought, outcome, columns)
                yield self.frame(STREAMED * min(1.0, columns * self.source.interval / self.source.longest), self.told(outcome, columns))
        thoughts = self.source.thoughts(0)
        shown = thoughts[0]
        widest, most = shown.pool.columns.shape[1], analysis.steps_of(shown.pool)
        if not shown.pieces and self.context.live is None:
            for outcome in follow(shown.pool, *self.setting, most):
                columns = min(outcome.steps + 1, widest)
                self.show(shown, outcome, columns)
                yield self.frame(STREAMED * columns / widest, self.told(outcome, columns))
                self.context.check()
        outcome = control(shown.pool, *self.setting, most)
        self.show(shown, outcome, None)
        yield self.frame(STREAMED, self.told(outcome, None))
        return thoughts

    def follow(self, pool: Pool, steps: int) -> Outcome | None:
        """The controller on the columns that are there: none before the second one, since the first is not voted on."""
        return control(pool, *self.setting, steps) if steps >= 1 else None

    def show(self, thought: Thought, outcome: Outcome | None, columns: int | None) -> None:
        """What the matrix needs. columns: how many are there; None for a question that is over."""
        pool = thought.pool
        table = pool.columns if columns is None else pool.columns[:, :columns]
        width = table.shape[1] if columns is not None else max(1, table.shape[1] - 1)
        ended = np.arange(width) >= pool.depths[:, None]
        names = [str(answer) for answer in pool.answers]
        cut = np.full(len(pool), -1) if outcome is None else outcome.pruned_at.copy()
        code = {answer: i for i, answer in enumerate(pool.answers)}
        self.data["matrix"] = {
            "codes": table[:, :width].astype(np.int16),
            "ended": ended,
            "names": names,
            "gold": pool.gold_code,
            "gold_name": None if pool.gold is None else str(pool.gold),
            "final": pool.finals.astype(np.int16),
            "tokens": pool.lengths.copy(),
            "pruned_at": cut,
            "stopped": None if outcome is None else outcome.stopped,
            "over": columns is None,
            "room": max(width, self.source.longest // self.source.interval if columns is not None and thought.pieces else int(pool.depths.max(initial=0))),
            "question": pool.question,
        }
        steps = outcome.winners if outcome is not None else []
        self.data["vote"] = {
            "winner": [code[answer] for answer in steps],
            "share": [] if outcome is None else list(outcome.share),
            "active": [] if outcome is None else list(outcome.active),
        }
        spent = np.zeros(len(pool), int) if outcome is None else outcome.spent
        self.data["spent"] = {"ours": spent.copy(), "voting": pool.lengths.copy(), "cut": cut >= 0}
        if thought.pieces:
            self.data["branch"] = _told_branch(thought, cut, steps)

    def told(self, outcome: Outcome | None, columns: int | None) -> str:
        if outcome is None:
            return "the first column: recorded, never voted on"
        cut = int((outcome.pruned_at >= 0).sum())
        state = f"the vote says {outcome.answer}, {outcome.share[-1]:.0%} of {outcome.active[-1]} branches agree, {cut} cut"
        if outcome.stopped is None:
            return f"probe {outcome.steps + 1}: {state}"
        rest = "; branches that still think go on for the comparison with voting" if columns is not None else ""
        return f"stopped at probe {outcome.stopped + 2}: {state}{rest}"

    # --------------------------------------------------------------------------------------------- all the questions

    def ask(self, first: list[Thought]) -> Generator[Frame, None, list[Pool]]:
        """Every question, given to every method."""
        pools: list[Pool] = []
        found: list[Compared] = []
        yielded = time.perf_counter()
        for number in range(self.source.questions):
            self.context.check()
            new = [thought.pool for thought in (first if number == 0 else self.source.thoughts(number))]
            pools += new
            found += [analysis.compare(pool, self.setting, self.source.defaults.repeats) for pool in new]
            is_last = number + 1 == self.source.questions
            if is_last or time.perf_counter() - yielded > EACH_S:
                self.count(pools, found)
                yielded = time.perf_counter()
                done = (number + 1) / self.source.questions
                yield self.frame(STREAMED + (ASKED - STREAMED) * done, f"{number + 1} of {self.source.questions} questions")
        return pools

    def count(self, pools: list[Pool], found: list[Compared]) -> None:
        """Means so far, for every method and every ablation."""
        means = self.data["methods"] = _means(found)
        ours, voting = means[self.params.method], means["sc"]
        singles = [float((pool.finals == pool.gold_code).mean()) for pool in pools if pool.gold_code is not None]
        self.metrics.update(
            accuracy=ours["accuracy"],
            accuracy_sc=voting["accuracy"],
            sequential_tokens=ours["sequential"],
            sequential_tokens_sc=voting["sequential"],
            total_tokens=ours["total"],
            total_tokens_sc=voting["total"],
            saved_sequential_pct=100 * (1 - ours["sequential"] / voting["sequential"]),
            saved_total_pct=100 * (1 - ours["total"] / voting["total"]),
            onset_ratio=float(np.mean([onset_ratio(pool) for pool in pools])),
            single_branch_accuracy=float(np.mean(singles)) if singles else None,
        )

    # ----------------------------------------------------------------------------------------------------- the sweeps

    def sweeps(self, pools: list[Pool]) -> Iterator[Frame]:
        """Frontier, surface and onsets: over the run's own questions where they are many and their answers known, else over synthetic ones."""
        own = len(pools) >= ENOUGH and all(pool.gold_code is not None for pool in pools)
        grid = analysis.grid(*(self.source.defaults if own else LONG).grid)
        key, check = self._swept_key(own), self.context.check
        swept = pools if own else self.context.memo("companions", key, lambda: _companions(self.params.branches))
        self.data["swept"] = {"own": own, "questions": len(swept), "interval": swept[0].interval}
        ends = self.context.memo("frontier", key, lambda: analysis.frontier(swept, grid, check))
        self.data["frontier"] = {
            "setting": [list(setting) for setting in grid],
            "accuracy": np.array([end.accuracy for end in ends], float),
            "sequential": np.array([end.sequential for end in ends]),
            "total": np.array([end.total for end in ends]),
            "methods": self.data["methods"] if own else self.context.memo("companion methods", key, lambda: _published(swept)),
        }
        yield self.frame(ASKED + 0.1, "accuracy against tokens")
        grown = self.context.memo("surface", key, lambda: analysis.surface(swept, check))
        self.data["surface"] = {"widths": grown.widths, "probes": grown.probes, "accuracy": grown.accuracy}
        self.data["onsets"] = np.array([onset_ratio(pool) for pool in swept])
        yield self.frame(ASKED + 0.15, "accuracy over width and depth")

    def _swept_key(self, own: bool) -> tuple[Any, ...]:
        """What the sweeps depend on: all but the controller's own params, or the number of synthetic branches alone."""
        return tuple((name, value) for name, value in self.params if name not in CONTROLLER) if own else (self.params.branches,)

    def summary(self) -> str:
        m = self.metrics
        if m["accuracy"] is None:
            right = "no right answer is known, so accuracy is undefined"
        else:
            right = f"{m['accuracy']:.0%} right, voting {m['accuracy_sc']:.0%}"
        return f"{right}; {m['saved_sequential_pct']:.0f}% fewer sequential and {m['saved_total_pct']:.0f}% fewer total tokens than voting"


def _companions(branches: int) -> list[Pool]:
    """The same synthetic questions for everybody: the sweeps of a run with few questions of its own."""
    return [generator.pool(np.random.default_rng([0, number]), branches) for number in range(COMPANIONS)]


def _published(pools: list[Pool]) -> dict[str, dict[str, Any]]:
    """All methods at the published setting."""
    return _means([analysis.compare(pool, (LONG.stable, LONG.prune, LONG.warmup), LONG.repeats) for pool in pools])


def _means(found: list[Compared]) -> dict[str, dict[str, Any]]:
    return {name: asdict(analysis.figures(*zip(*(one[name] for one in found), strict=True))) for name in found[0]}


def _told_branch(thought: Thought, cut: np.ndarray, winners: list[Any]) -> dict[str, Any]:
    """One branch in words: the first that was cut, else the longest. rows: probe, what it wrote before it, its answer, the vote."""
    pool = thought.pool
    gone = np.flatnonzero(cut >= 0)
    number = int(gone[np.argmin(cut[gone])]) if gone.size else int(np.argmax(pool.lengths))
    branch = pool.branches[number]
    rows = []
    for probe, piece in enumerate(thought.pieces[number]):
        answer = str(branch.probes[probe]) if probe < len(branch.probes) else str(branch.final)
        vote = str(winners[probe - 1]) if 1 <= probe <= len(winners) else None
        rows.append([probe + 1, piece, answer, vote])
    return {"number": number, "rows": rows, "cut": int(cut[number]) if cut[number] >= 0 else None}
