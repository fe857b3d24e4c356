"""One run of tai as a stream of frames: candidates arrive, their barcode is cut, and a dialogue contracts the belief over what is left.

With answerer "me" a run plays the answers of the params and ends at the next open question; "simulated" goes on to the end.
Whoever wants the next turn appends [question id, option id] (or "not-sure", "none") to ``answers``.

Layout of ``frame.data`` in a dialogue; entries appear in this order as the run gets to them, and stay. N candidates are those of
the current draw, which a fresh draw replaces; K clusters of the living ones. Colour: a whole number from 0, one for each name.

    made_by       {model, data, size, device}
    mode, task    as in the params; request: the words that are ambiguous; notes: list of texts
    arrived       {done, total, caption}: while candidates come
    candidates    {shown: unique forms {"kind": "source" | "chart" | "path" | "text", ...}, of (N,): form of each candidate,
                  captions: N texts, quirk (N,), failed (N,), total}
    axis_coverage {semantic axis: share of the probes that tell its values apart}
    meanings      [{name, candidate, candidates}]: what the request could mean, of the first draw ("candidate" shows it in that draw)
    dealt         {name, candidate}: a wish that may be dealt secretly, of the first draw; first_shown: forms of the first draw by "candidate"
    distance      (N, N) float32, rows and columns ordered by ``order`` (N,)
    map           (N, 2) metric scaling of the distance; loops: (L, 2) births and deaths in degree 1, of all N, up to 128 candidates
    labels        (N,) cluster 0 to K - 1 of each candidate, -1 where it is out; weights (N,): summing to 1
    barcode       {deaths (M - 1,), bar_colours (M - 1,), tau or None (no cut), clustering ("components", "tomato"), alive M, ess}: of the living;
                  the persistence diagram is (0, deaths), and the bar of the last component never ends
    belief        [{cluster, name, colour, belief, size, candidate (its medoid)}], most believed first; outside: mass of none of these
    leading       the first two of ``belief``, each with "shown"
    questions     [{id, text, source (probe, hyperplane, style), options, teig, eig, waste, chosen}] in bits, best first
    question      {id, text, source, options: [{id, text, candidate or None}]} that is open, or None; candidate: shows the option
    transcript    [{id, text, source, options, reply: {id, text}, teig, eig, explanation}]
    entropy       [H(b) before question 1, 2, ..., now] in bits; log2_k: log2 of the clusters of the first draw
    stop          why the dialogue is over, or None
    baselines     {"teig" | "eig" | "random": {entropy: [...], turns, style, right}} for the same wish, answered without a fault;
                  appears at the end
    solution      {name, candidate, shown, belief, runner_up: {...} or None}; appears at the end

In benchmark mode instead of what follows ``notes``:

    benchmark     [{condition ("right answers" | "wrong answers"), true_error_rate, error_rate, strategy, name, turns, turns_low,
                  turns_high, style, right, right_low, right_high, dialogues}]: means with 95 % intervals
    benchmark_turns {condition: {strategy: [turns of each dialogue]}}
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from backends.contract import Context, Frame, InputError, MetricValue
from backends.runtime import device
from backends.tai import benchmark, picture
from backends.tai.benchmark import Condition, Played
from backends.tai.candidates import Candidates
from backends.tai.card import DRAWN_BY, TEXT_LIMIT, Params
from backends.tai.dialogue import Dialogue, Look, Rules
from backends.tai.distances import embed
from backends.tai.draws import Draw, Geometry, Reply, analyse, redraw
from backends.tai.homology import loops
from backends.tai.pool import Pool
from backends.tai.simulation import Person, hidden, is_right, person, play
from backends.tai.tasks import open_task

FIRST_STREAM, FRESH_STREAM = 1, 2
FRAME_S = 0.1
HEAT_LIMIT = 128  # candidates up to which the distance matrix is sent whole and its loops are found
UNDEFINED = ("clusters", "true_intents", "partition_recovered", "turns", "entropy_bits", "winner_belief")  # in the benchmark
OTHER_VERSION = "this link was made by another version"
BEGIN_ANEW = "begin without answers: press one of the examples"


def run(params: Params, context: Context) -> Iterator[Frame]:
    """Streams a dialogue or a benchmark; a live run gives its last frame only."""
    started = _Run(params, context)
    for frame in started.forty() if params.mode == "benchmark" else started.dialogue():
        if context.live is None or frame.progress == 1.0:
            yield frame


class _Run:
    """The stages of one run; what each knows is added to ``data`` and ``metrics``, which every frame shows whole."""

    def __init__(self, params: Params, context: Context) -> None:
        self.params, self.context = params, context
        self.began = time.perf_counter()
        self.names = picture.Names()
        self.data: dict[str, Any] = {"mode": params.mode, "task": params.task}
        self.metrics: dict[str, MetricValue] = {}

    def frame(self, progress: float, message: str) -> Frame:
        return Frame(progress, message, dict(self.metrics), dict(self.data))

    @property
    def rules(self) -> Rules:
        p = self.params
        return Rules(p.error_rate, p.selector, p.options == "binary", p.stop_at, seed=p.seed, cost=p.cost)

    @cached_property
    def geometry(self) -> Geometry:
        p = self.params
        if p.task != "text":
            return Geometry(p.threshold, p.text_weight)
        # Sentences have no behaviour that is exact: density decides, and a sentence that stands alone is no meaning.
        return Geometry(p.threshold, p.text_weight, "components" if isinstance(p.threshold, float | int) else "tomato", least_size=2)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        return tuple(getattr(self.params, name) for name in DRAWN_BY)

    @cached_property
    def task(self) -> Any:
        return open_task(self.params, self.context)

    # ------------------------------------------------------------------------------------------------------ draws

    def first_candidates(self) -> Iterator[Frame]:
        """The first draw, one frame at most each tenth of a second while candidates arrive; the last item is whole."""
        count = min(self.params.candidates, TEXT_LIMIT) if self.params.task == "text" else self.params.candidates
        found: list[Candidates] = []

        def make(emit: Callable[[tuple[int, str]], None]) -> Candidates:
            rng = np.random.default_rng([self.params.seed, FIRST_STREAM])
            shown = time.perf_counter()

            def arrive(done: int, caption: str) -> None:
                nonlocal shown
                self.context.check()
                if time.perf_counter() - shown > FRAME_S:
                    shown = time.perf_counter()
                    emit((done, caption))

            return self.task.draw(count, rng, arrive)  # type: ignore[no-any-return]

        def work(emit: Callable[[tuple[int, str]], None]) -> None:
            found.append(self.context.memo("candidates", self.key, lambda: make(emit)))

        for done, caption in self.context.stream(work):
            self.data["arrived"] = {"done": done, "total": count, "caption": caption}
            yield self.frame(0.02 + 0.3 * min(done / count, 1), f"candidate {done} of {count}: {caption}")
        self.data.pop("arrived", None)
        self.describe(found[0])
        yield self.frame(0.35, f"{len(found[0])} candidates executed")
        self.first = found[0]

    def describe(self, found: Candidates) -> None:
        on = device.describe() if self.context.device == "cpu" else self.context.device
        self.data |= {
            "made_by": {"model": found.model, "data": found.data, "size": f"{len(found)} candidates", "device": on},
            "request": found.request,
            "candidates": picture.candidates(found),
            "axis_coverage": dict(found.axis_coverage),
            "notes": list(found.notes),
        }

    def analysed(self, found: Candidates, key: tuple[Any, ...], stream: int) -> Draw:
        rng = np.random.default_rng([self.params.seed, stream, 0])
        return self.context.memo("homology", (*key, self.geometry), lambda: analyse(found, self.geometry, rng))

    def fresh(self, replies: list[Reply], error_rate: float, number: int) -> Draw:
        """A draw that fits the replies, remembered by them: another visitor who says the same gets the same."""
        told = [(r.question.id, r.said if isinstance(r.said, str) else r.question.option_ids[r.said]) for r in replies]
        key = (*self.key, told, error_rate, number)

        def make() -> Candidates:
            rng = np.random.default_rng([self.params.seed, FRESH_STREAM, number])
            return redraw(self.task, self.params.candidates, replies, error_rate, rng, lambda done, caption: self.context.check())

        return self.analysed(self.context.memo("redraw", key, make), key, FRESH_STREAM)

    @cached_property
    def pool(self) -> Pool:
        """That of the first draw, which the baselines share."""
        return Pool(self.first_draw, self.rules.binary)

    def lead(self, rules: Rules) -> Dialogue:
        return Dialogue(self.first_draw, rules, self.fresh if self.task.redraws else None, self.pool)

    # --------------------------------------------------------------------------------------------------- dialogue

    def dialogue(self) -> Iterator[Frame]:
        params = self.params
        self.data["made_by"] = {"model": "candidates are drawn", "data": params.task, "size": f"{params.candidates} candidates", "device": self.context.device}
        yield self.frame(0.01, "drawing candidates")
        yield from self.first_candidates()
        draw = self.analysed(self.first, self.key, FIRST_STREAM)
        who = person(self.first, hidden(self.first, params.seed), params.true_error_rate, params.seed)
        self.opening(draw)
        yield self.frame(0.4, "distances of what the candidates do")
        led = self.lead(self.rules)
        look = led.look()
        self.show(led, look)
        yield self.frame(0.45, f"{len(look.belief)} meanings in {len(draw.candidates)} candidates")
        for look in self.turns(led, who):
            self.show(led, look)
            yield self.frame(0.5 + 0.4 * min(len(led.turns) / led.rules.most_turns, 1), self.summary(led, look))
        over = look.question is None
        if over and len(look.belief):
            self.finish(led, look, who)
        self.metrics |= {"seconds": time.perf_counter() - self.began}
        yield self.frame(1.0, self.summary(led, look))

    def opening(self, draw: Draw) -> None:
        """What the first draw fixes."""
        from sklearn.metrics import adjusted_rand_score

        found = draw.candidates
        self.first_draw = draw
        known = found.intents is not None
        count = int(draw.labels.max(initial=-1)) + 1
        place = hidden(found, self.params.seed)
        name = found.captions[place] if found.intents is None else found.intent_names[found.intents[place]]
        order = np.argsort(draw.labels, kind="stable")
        self.data |= {
            "meanings": picture.meanings(draw),
            "dealt": {"name": name, "candidate": place},
            "first_shown": {str(m["candidate"]): dict(found.shown[m["candidate"]]) for m in [*picture.meanings(draw), {"candidate": place}]},
            "log2_k": float(np.log2(max(count, 1))),
            **self.geometry_of(draw, order),
        }
        self.metrics |= {
            "clusters": count,
            "true_intents": len(np.unique(found.intents)) if found.intents is not None else None,
            "partition_recovered": bool(adjusted_rand_score(found.intents, draw.labels) == 1.0) if known else None,
            **dict.fromkeys(("teig_turns_mean", "eig_turns_mean", "random_turns_mean", "right")),
        }

    def geometry_of(self, draw: Draw, order: np.ndarray) -> dict[str, Any]:
        places = self.context.memo("map", (draw.distance,), lambda: embed(draw.distance))
        if len(order) > HEAT_LIMIT:
            return {"map": places}
        heat = draw.distance[np.ix_(order, order)].astype(np.float32)
        return {"map": places, "distance": heat, "order": order, "loops": self.context.memo("loops", (draw.distance,), lambda: loops(draw.distance))}

    def turns(self, led: Dialogue, who: Person) -> Iterator[Look]:
        """Plays the answers of the params, then the simulated person where one answers; a look after each turn."""
        for question_id, option_id in self.params.answers:
            self.context.check()
            look = led.look()
            question = led.find(look, question_id)
            if question is None:
                raise InputError("answers", OTHER_VERSION, BEGIN_ANEW)
            led.answer(look, question, _option(question.option_ids, option_id))
            yield led.look()
        while self.params.answerer == "simulated":
            self.context.check()
            look = led.look()
            if look.question is None:
                return
            led.answer(look, look.question, who.reply(look.question, len(led.turns)))
            yield led.look()

    def show(self, led: Dialogue, look: Look) -> None:
        """The state of the dialogue after a turn."""
        draw, found = led.draw, led.draw.candidates
        if draw is not self.first_draw:
            self.describe(found)
            self.data |= self.geometry_of(draw, np.argsort(draw.labels, kind="stable"))
        colours = self.names.of(found, look.partition.labels)
        rows = picture.belief(led, look, colours)
        self.data |= {
            "labels": look.partition.labels,
            "weights": led.weights,
            "barcode": picture.homology(draw, led, look, colours),
            "belief": rows,
            "outside": float(led.outside),
            "leading": [{**row, "shown": dict(found.shown[row["candidate"]])} for row in rows[:2]],
            "questions": picture.questions(look, led.rules.selector),
            "question": None if look.question is None else look.question.to_dict(),
            "transcript": picture.transcript(led.turns),
            "entropy": picture.entropies(led, look),
            "stop": look.stop,
            "notes": [*found.notes, *draw.notes, *led.notes, *self.remarks(found)],
        }
        self.metrics |= {"turns": len(led.turns), "entropy_bits": look.entropy, "winner_belief": float(look.belief.max(initial=0.0))}

    def remarks(self, found: Candidates) -> list[str]:
        blind = [axis for axis, share in found.axis_coverage.items() if share == 0]
        notes = [f"no probe tells the values of {axis} apart: such intents are invisible" for axis in blind]
        if self.params.request and self.params.task not in ("text", "own"):
            notes.append("a request in words is taken by the text task and by your own")
        return notes

    def finish(self, led: Dialogue, look: Look, who: Person) -> None:
        """The solution, and what other ways to choose questions would have needed for the same wish."""
        found, rows = led.draw.candidates, self.data["belief"]
        if self.params.answerer == "simulated":
            self.metrics["right"] = is_right(led, look, who)
            wish = who.wish
        else:
            wish = person(found, rows[0]["candidate"]).wish
        entries = [{**row, "shown": dict(found.shown[row["candidate"]])} for row in rows[:2]]
        self.data["solution"] = {**entries[0], "runner_up": entries[1] if len(entries) > 1 else None}
        self.data["baselines"] = {name: self.baseline(name, Person(wish)) for name in ("teig", "eig", "random")}

    def baseline(self, selector: Literal["teig", "eig", "random"], who: Person) -> dict[str, Any]:
        self.context.check()
        led = self.lead(replace(self.rules, selector=selector))
        look = play(led, who)
        style = sum(turn.reply.question.source == "style" for turn in led.turns)
        return {"entropy": picture.entropies(led, look), "turns": len(led.turns), "style": style, "right": is_right(led, look, who)}

    def summary(self, led: Dialogue, look: Look) -> str:
        asked = f"{len(led.turns)} question{'' if len(led.turns) == 1 else 's'} answered"
        if look.question is not None:
            return f"{asked}, {look.entropy:.1f} bits left among {len(look.belief)} meanings; next: {look.question.text}"
        if not len(look.belief):
            return f"{asked}; {look.stop}"
        text = f"{asked}; {look.stop}: {self.data['belief'][0]['name']}"
        known = [] if self.params.answerer == "simulated" else ["whether it is right, you know"]
        return "; ".join([text, *known])

    # -------------------------------------------------------------------------------------------------- benchmark

    def forty(self) -> Iterator[Frame]:
        params, check = self.params, self.context.check
        self.data |= {
            "made_by": {"model": "simulated dialogues", "data": params.task, "size": f"{benchmark.DIALOGUES} dialogues", "device": self.context.device}
        }
        yield self.frame(0.01, "the first dialogues are played")
        self.metrics |= dict.fromkeys(UNDEFINED)
        wrong = params.true_error_rate or benchmark.WRONG
        conditions = {"right answers": Condition(0.0, 0.0), "wrong answers": Condition(wrong, params.error_rate)}
        read = "wrong answers" if params.true_error_rate else "right answers"
        self.data["notes"] = [
            f"right answers: the lab assumes none is wrong; wrong answers: {wrong:.0%} are, and it assumes {params.error_rate:.0%}",
            f"the figures below the bar are those with {read}; every dialogue keeps its first candidates",
        ]
        for number, results in enumerate(benchmark.run(self.task, params.candidates, self.geometry, self.rules, conditions, check=check), 1):
            self.tabulate(results, conditions, read)
            self.metrics["seconds"] = time.perf_counter() - self.began
            yield self.frame(0.01 + 0.99 * number / benchmark.DIALOGUES, self.score(number))

    def score(self, number: int) -> str:
        means = ", ".join(f"{name.upper() if name != 'random' else name} {self.metrics[f'{name}_turns_mean']:.1f}" for name in ("teig", "eig", "random"))
        return f"{number} of {benchmark.DIALOGUES} wishes; mean questions: {means}"

    def tabulate(self, results: dict[str, dict[str, list[Played]]], conditions: dict[str, Condition], read: str) -> None:
        rows: list[dict[str, Any]] = []
        for name, of_strategy in results.items():
            rates = {"true_error_rate": conditions[name].true_error_rate, "error_rate": conditions[name].error_rate}
            for strategy, played in of_strategy.items():
                rows.append({"condition": name, **rates, "strategy": strategy, "name": benchmark.STRATEGIES[strategy], **benchmark.summary(played)})
        self.data["benchmark"] = rows
        self.data["benchmark_turns"] = {name: {s: [p.turns for p in played] for s, played in of.items()} for name, of in results.items()}
        self.metrics |= {f"{name}_turns_mean": benchmark.summary(results[read][name])["turns"] for name in ("teig", "eig", "random")}
        self.metrics["right"] = benchmark.summary(results[read]["teig"])["right"]


def _option(option_ids: tuple[str, ...], option_id: str) -> int | Literal["not-sure", "none"]:
    """What an option id says. Raises InputError for one that does not occur."""
    if option_id == "not-sure":
        return "not-sure"
    if option_id == "none":
        return "none"
    if option_id not in option_ids:
        raise InputError("answers", OTHER_VERSION, BEGIN_ANEW)
    return option_ids.index(option_id)
