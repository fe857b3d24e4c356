"""One run of plate as a stream of frames: what the weights decide, then one method after another learns the new task."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from backends.contract import Context, Frame, InputError, MetricValue
from backends.plate import bench as benches
from backends.plate import language, learners, picture, tasks, training
from backends.plate.bench import CHOICE_DRAWS, PEER_DRAWS, Bench, Trail, Trained, generator
from backends.plate.card import Params
from backends.plate.layer import weight_of
from backends.plate.learners import Learner
from backends.plate.plans import Choice, choose
from backends.plate.redundancy import movable
from backends.plate.tasks import Data
from backends.runtime import device, language_model

FRAME_S = 0.15  # at least, between two frames
EWC_STRENGTH = 1e4
MAPPED = ("plate", "lora", "full")  # whose drift over the plane of the moons is drawn
REPLAYED = 100  # old samples that replay keeps
RANKS, LORA_RANKS = (8, 128), (4,)  # beside the person's own, so that a curve can be seen
LEARN_FIELDS = ("data", "seed", "steps", "learning_rate")
CHOICE_FIELDS = ("data", "seed", "rank", "energy", "max_rank", "q_mode", "row_rule")
CONTROLS = (  # text, row_rule, q_mode
    ("PLATE", "redundant", "exact"),
    ("random Q", "redundant", "random"),
    ("random rows", "random", "exact"),
    ("top-energy Q", "redundant", "top-energy"),
)


def run(params: Params, context: Context) -> Iterator[Frame]:
    """Streams a run: PLATE first, then its peers on the same batches."""
    yield from _Run(params, context).frames()


class _Run:
    """The stages of one run; what each knows is added to ``data`` and ``metrics``, which every frame shows whole."""

    def __init__(self, params: Params, context: Context) -> None:
        self.params, self.context = params, context
        self.began = time.perf_counter()
        self.shown_at = 0.0
        self.data: dict[str, Any] = {"trails": {}, "points": []}
        self.metrics: dict[str, MetricValue] = {}

    def frame(self, progress: float, message: str) -> Frame:
        data = self.data | {"trails": dict(self.data["trails"]), "points": list(self.data["points"])}
        return Frame(progress, message, self.metrics | {"seconds": time.perf_counter() - self.began}, data)

    @property
    def is_language(self) -> bool:
        return self.params.data == "language"

    @cached_property
    def decoder(self) -> language_model.Decoder:
        return language_model.load(self.context.models, device=self.context.device)

    @cached_property
    def bench(self) -> Bench:
        memo, check = self.context.memo, self.context.check
        if self.is_language:
            decoder = self.decoder
            self.context.say("reading both languages up to the last blocks")
            return benches.large(self.params, decoder, memo, check)
        return benches.small(self.params, memo, check)

    # --------------------------------------------------------------------------------------------- what weights decide

    def choices(self, params: Params) -> dict[str, Choice]:
        """Rows and directions of every layer, from its weights alone."""
        found = {}
        for number, (name, layer) in enumerate(learners.linears(self.bench.body).items()):
            self.context.check()
            make = partial(_choose, params, number, weight_of(layer))
            found[name] = self.context.memo("choice", (*_values(params, CHOICE_FIELDS), name), make)
        return found

    def opening(self) -> dict[str, Choice]:
        """The choice, its pictures, and what must be said of it."""
        params, bench = self.params, self.bench
        choices = self.choices(params)
        weight = weight_of(bench.body.get_submodule(bench.shown)).numpy()
        self.data["layers"] = [picture.layer(name, choice) for name, choice in choices.items()]
        self.data["shown"] = picture.shown(bench.shown, choices[bench.shown], weight, params.energy)
        self.data["evidence"] = picture.evidence(bench, choices)
        self.data["notes"] = self.notes(choices)
        self.metrics["protected_ratio"] = float(np.mean([choice.protected for choice in choices.values()]))
        return choices

    def notes(self, choices: dict[str, Choice]) -> list[str]:
        params = self.params
        said = []
        lowered = {movable(len(c.scores), params.rank) for c in choices.values() if movable(len(c.scores), params.rank) < params.rank}
        if lowered:
            said.append(f"r = {params.rank} is lowered to {_joined(lowered)}: a tenth of the rows of a layer stays frozen")
        forced = [name for name, choice in choices.items() if choice.width.forced]
        if forced:
            said.append(f"τ = {params.energy:g} leaves no direction in {_joined(forced)}: one is allowed all the same, k = 1")
        capped = [name for name, choice in choices.items() if choice.width.capped]
        if capped:
            said.append(f"k is capped at {params.max_rank} directions in {_joined(capped)}: there τ does nothing more")
        if self.is_language:
            said.append("the references that keep old data, the frontier and the controls run on digits and moons only")
        return said

    # ------------------------------------------------------------------------------------------------------- learning

    def plate(self, params: Params) -> Callable[[], Learner]:
        """A PLATE learner of these params; it asks the start's weights and nothing of the old task."""
        bench = self.bench
        return lambda: learners.plate(bench.body, bench.new_head, {name: choice.plan() for name, choice in self.choices(params).items()}, params.scale)

    def lora(self, rank: int) -> Callable[[], Learner]:
        bench = self.bench

        def make() -> Learner:
            self.library()
            return learners.lora(bench.body, bench.new_head, rank, generator(self.params.seed, PEER_DRAWS))

        return make

    def osf(self) -> Learner:
        self.library()
        return learners.osf(self.bench.body, self.bench.new_head)

    def library(self) -> None:
        """Imports the peers' library in a thread of its own, so that Stop is heard meanwhile."""
        self.context.models.load("peft", learners.library)

    def ewc(self) -> Learner:
        bench = self.bench
        fisher = learners.fisher_diagonal(bench.body, bench.old_head, bench.pair.old.train)
        return learners.ewc(bench.body, bench.new_head, fisher, EWC_STRENGTH)

    def replay(self) -> Learner:
        bench, old = self.bench, self.bench.pair.old.train
        return learners.replay(bench.body, bench.new_head, Data(old.x[:REPLAYED], old.y[:REPLAYED]), bench.old_head)

    def entries(self) -> list[tuple[str, str, tuple[Any, ...], Callable[[], Learner]]]:
        """Every method of the race: name, words, what its result depends on beside the task, and how it is made."""
        params, bench = self.params, self.bench
        found: list[tuple[str, str, tuple[Any, ...], Callable[[], Learner]]] = [
            ("plate", "PLATE", _plate_key(params), self.plate(params)),
            ("lora", "LoRA", (params.lora_rank,), self.lora(params.lora_rank)),
            ("full", "full fine-tuning", (), lambda: learners.full(bench.body, bench.new_head)),
        ]
        if not self.is_language:
            found += [
                ("head", "head only", (), lambda: learners.head_only(bench.body, bench.new_head)),
                ("ewc", "EWC", (), self.ewc),
                ("replay", "replay", (), self.replay),
                ("osf", "OSF", (), self.osf),
            ]
        return found

    def beside(self) -> list[tuple[str, str, int | None, tuple[Any, ...], Callable[[], Learner]]]:
        """What is shown by its end only: other ranks, and the controls of the choice."""
        params = self.params
        found: list[tuple[str, str, int | None, tuple[Any, ...], Callable[[], Learner]]] = []
        for rank in sorted({*RANKS, params.rank}):
            other = params.model_copy(update={"rank": rank})
            found.append(("plate", f"r = {rank}", rank, _plate_key(other), self.plate(other)))
        for rank in sorted({*LORA_RANKS, params.lora_rank}):
            found.append(("lora", f"LoRA {rank}", rank, (rank,), self.lora(rank)))
        for text, row_rule, q_mode in CONTROLS:
            other = params.model_copy(update={"row_rule": row_rule, "q_mode": q_mode})
            found.append(("control", text, None, _plate_key(other), self.plate(other)))
        return found

    def learn(self, name: str, more: tuple[Any, ...], make: Callable[[], Learner]) -> Iterator[Trail | Trained]:
        """A learner's trail as it grows, then its whole course; a stored one comes at once."""
        bench, params = self.bench, self.params
        whole: list[Trained] = []

        def compute(emit: Callable[[Trail], None]) -> Trained:
            learner, trail = make(), Trail()
            for _, trail in benches.course(bench, learner, params, self.context.check):
                emit(trail.copy())
            return benches.finish(bench, learner, trail, mapped=params.data == "moons" and name in MAPPED)

        def work(emit: Callable[[Trail], None]) -> None:
            whole.append(self.context.memo("learned", (*_values(params, LEARN_FIELDS), name, more), lambda: compute(emit)))

        yield from self.context.stream(work)
        yield whole[0]

    def is_time(self) -> bool:
        """True when the last frame is old enough for another one."""
        now = time.perf_counter()
        due = now - self.shown_at > FRAME_S
        if due:
            self.shown_at = now
        return due

    # ------------------------------------------------------------------------------------------------------ the stages

    def frames(self) -> Iterator[Frame]:
        self.described()
        yield self.frame(0.01, "the old task first; then the weights alone decide what may move")
        bench = self.bench
        choices = self.opening()
        widths = _joined([layer["k"] for layer in self.data["layers"]][:4])
        yield self.frame(0.03, f"{len(choices)} layers; directions allowed: {widths}{'' if len(choices) <= 4 else ' …'}")
        entries, beside = self.entries(), [] if self.is_language else self.beside()
        total = len(entries) + len(beside)
        ended: dict[str, Trained] = {}
        for number, (name, text, more, make) in enumerate(entries):
            for found in self.learn(name, more, make):
                if isinstance(found, Trained):
                    ended[name] = found
                    self.conclude(name, found, ended, choices)
                else:
                    self.data["trails"][name] = picture.trail(found, 0, "")
                    share = found.step[-1] / bench.steps
                    if self.is_time():
                        yield self.frame(0.03 + 0.95 * (number + share) / total, f"{text} learns the new task: step {found.step[-1]} of {bench.steps}")
            yield self.frame(0.03 + 0.95 * (number + 1) / total, f"{text}: new task {ended[name].trail.new[-1]:.1%}, old task {ended[name].trail.old[-1]:.1%}")
        for number, (group, text, rank, more, make) in enumerate(beside, len(entries)):
            for found in self.learn("lora" if group == "lora" else "plate", more, make):
                if isinstance(found, Trained):
                    self.data["points"].append(picture.point(group, text, rank, found))
                elif self.is_time():
                    share = found.step[-1] / bench.steps
                    yield self.frame(0.03 + 0.95 * (number + share) / total, f"beside it: {text}, step {found.step[-1]} of {bench.steps}")
        yield self.frame(1.0, self.summary())

    def described(self) -> None:
        """What makes the run, said from the first frame on, before the old task is learned."""
        params, bench = self.params, self.bench if self.is_language else None
        on = device.describe() if self.context.device == "cpu" else self.context.device
        pair = bench.pair if bench else tasks.make(params.data, params.seed)
        if bench:
            model = f"the last {language.BLOCKS} blocks of {self.decoder.description}"
            size = f"{bench.steps} steps of {bench.batch} x {language.LENGTH} tokens"
        else:
            model = "-".join(map(str, pair.sizes)) + " ReLU network, one head a task"
            size = f"{len(pair.new.train.y)} new samples, {params.steps} steps of {training.BATCH}"
        self.data["made_by"] = {"model": model, "data": pair.source, "size": size, "device": on}
        self.data["kind"] = {"data": params.data, "is_language": self.is_language, "lora_rank": params.lora_rank}

    def conclude(self, name: str, found: Trained, ended: dict[str, Trained], choices: dict[str, Choice]) -> None:
        """Metrics and pictures of a learner that has ended."""
        trail = found.trail
        self.data["trails"][name] = picture.trail(trail, found.trainable, found.keeps)
        lost = trail.old[0] - trail.old[-1]
        if name == "plate":
            self.metrics |= {
                "new_task_accuracy": trail.new[-1],
                "old_task_accuracy_before": trail.old[0],
                "old_task_accuracy_after": trail.old[-1],
                "forgetting": lost,
                "trainable_parameters": found.trainable,
            }
        elif name in ("lora", "full"):
            self.metrics[f"forgetting_{name}"] = lost
        if name in ("plate", "lora"):
            changed = ended["plate"].change
            if changed is not None:
                self.data["change"] = picture.change(choices[self.bench.shown], changed, ended["lora"].change if "lora" in ended else None)
        if found.drift_map is not None:
            self.data["moons"] = picture.moons(self.bench, {key: ended[key] for key in MAPPED if key in ended})

    def summary(self) -> str:
        found = self.metrics
        text = f"PLATE: new task {found['new_task_accuracy']:.1%}, old task {found['old_task_accuracy_before']:.1%} to {found['old_task_accuracy_after']:.1%}; "
        text += f"forgetting {found['forgetting']:.3f}, LoRA {found['forgetting_lora']:.3f}, full {found['forgetting_full']:.3f}"
        return "; ".join([text, *self.data["notes"]])


def _choose(params: Params, number: int, weight: torch.Tensor) -> Choice:
    rng = np.random.default_rng([params.seed, CHOICE_DRAWS, number])
    try:
        return choose(weight.numpy(), params.rank, params.energy, max_rank=params.max_rank, q_mode=params.q_mode, row_rule=params.row_rule, rng=rng)
    except ValueError as error:
        raise InputError("rank", str(error), "choose other data, or another seed") from None


def _values(params: Params, fields: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(getattr(params, name) for name in fields)


def _plate_key(params: Params) -> tuple[Any, ...]:
    return (*_values(params, CHOICE_FIELDS), params.scale)


def _joined(parts: Any) -> str:
    return ", ".join(map(str, parts))
