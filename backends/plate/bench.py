"""What all methods share: the trained start, the two tasks, the heads, and how a learner is measured on its way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from backends.plate import geometry, language, tasks, training
from backends.plate.card import STEPS_A_LANGUAGE_STEP, Params
from backends.plate.layer import PlateLinear, weight_of
from backends.plate.learners import Learner
from backends.plate.networks import Net, accuracy, linear, loss_of, weights, with_weights
from backends.plate.tasks import Pair
from backends.runtime.language_model import Decoder

PRETRAIN_DRAWS, BATCH_DRAWS, HEAD_DRAWS, PEER_DRAWS, CHOICE_DRAWS = range(5)  # each kind of draw has a generator of its own
DRIFT_POINTS = 40  # old inputs at which drift is measured
GRID, GRID_LOW, GRID_HIGH = 60, (-2.4, -1.7), (2.4, 2.8)  # of the moons' drift map
OLD_STEPS = {"digits": 600, "moons": 300}  # until the old task is known
SHOWN = {"digits": "l2", "moons": "l2", "language": "layers.3.self_attn.v_proj"}  # the layer of the pictures


def generator(seed: int, kind: int) -> torch.Generator:
    """A torch generator of this kind of draw."""
    return torch.Generator().manual_seed(int(np.random.default_rng([seed, kind]).integers(2**62)))


@dataclass(frozen=True, slots=True)
class Bench:
    """The start of every learner. steps, batch, each: of training and of measuring. before: Jacobians at the old inputs, or None."""

    pair: Pair
    body: nn.Module
    old_head: nn.Module
    new_head: nn.Module
    steps: int
    batch: int
    each: int
    shown: str
    drift_at: torch.Tensor | None
    before: torch.Tensor | None

    @property
    def is_language(self) -> bool:
        return self.drift_at is None


@dataclass(frozen=True, slots=True)
class Trail:
    """What was measured on the way; each list has one entry a measurement. drift and the perplexities may be empty."""

    step: list[int] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    old: list[float] = field(default_factory=list)
    drift: list[float] = field(default_factory=list)
    new_perplexity: list[float] = field(default_factory=list)
    old_perplexity: list[float] = field(default_factory=list)

    def copy(self) -> Trail:
        return Trail(*(list(getattr(self, name)) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Trained:
    """One learner's whole course. change: W' - W of the shown layer, or None; drift_map: (g, g) of the moons' grid, or None."""

    trail: Trail
    trainable: int
    keeps: str
    change: np.ndarray | None
    drift_map: np.ndarray | None


def small(params: Params, memo: Callable[..., Any], check: Callable[[], None]) -> Bench:
    """Digits or moons: the old task is learned here, all weights free, and stored for whoever asks next."""
    pair = tasks.make(params.data, params.seed)
    net = Net(pair.sizes, pair.outputs, generator(params.seed, PRETRAIN_DRAWS))

    def fit() -> dict[str, np.ndarray]:
        training.fit(net, pair.old.train, OLD_STEPS[params.data], np.random.default_rng([params.seed, PRETRAIN_DRAWS]), check)
        return weights(net)

    start: Any = with_weights(net, memo("start", (params.data, params.seed), fit)).requires_grad_(False)
    head = linear(pair.sizes[-1], pair.outputs, generator(params.seed, HEAD_DRAWS))
    at = pair.old.test.x[:DRIFT_POINTS]
    before = geometry.jacobians(start.body, start.head, at)
    return Bench(pair, start.body, start.head, head, params.steps, training.BATCH, training.EACH, SHOWN[params.data], at, before)


def large(params: Params, decoder: Decoder, memo: Callable[..., Any], check: Callable[[], None]) -> Bench:
    """The last blocks of the language model; its words are old and new head in one."""
    pair = language.pair(decoder, memo, check)
    head = language.WordHead(decoder.model)
    steps = max(1, params.steps // STEPS_A_LANGUAGE_STEP)
    each = max(1, training.EACH * 4 // STEPS_A_LANGUAGE_STEP)
    return Bench(pair, language.Tail(decoder.model), head, head, steps, language.BATCH, each, SHOWN["language"], None, None)


def course(bench: Bench, learner: Learner, params: Params, check: Callable[[], None]) -> Iterator[tuple[int, Trail]]:
    """Trains a learner and measures it: the number of steps done and the trail so far, which grows."""
    trail = Trail()
    rng = np.random.default_rng([params.seed, BATCH_DRAWS])
    for step in training.adapt(learner, bench.pair.new.train, bench.steps, params.learning_rate, rng, check, bench.batch, bench.each):
        measure(bench, learner, step, trail)
        yield step, trail


def measure(bench: Bench, learner: Learner, step: int, trail: Trail) -> None:
    """Adds one measurement: the new task with the new head, the old task with the old head, both through the adapted body."""
    trail.step.append(step)
    parts = (bench.pair.new.test, learner.head, trail.new, trail.new_perplexity), (bench.pair.old.test, bench.old_head, trail.old, trail.old_perplexity)
    for test, head, scores, perplexities in parts:
        logits = training.answers(learner.body, head, test.x)
        scores.append(accuracy(logits, test.y))
        if bench.is_language:
            perplexities.append(float(loss_of(logits, test.y).exp()))
    if bench.drift_at is not None and bench.before is not None:
        trail.drift.append(float(geometry.drift(geometry.jacobians(learner.body, bench.old_head, bench.drift_at), bench.before).mean()))


def finish(bench: Bench, learner: Learner, trail: Trail, mapped: bool) -> Trained:
    """What the pictures need of a learner at its end."""
    return Trained(trail.copy(), learner.trainable, learner.keeps, change_of(bench, learner), drift_map(bench, learner) if mapped else None)


@torch.no_grad()
def change_of(bench: Bench, learner: Learner) -> np.ndarray | None:
    """W' - W (d_out, d_in) of the shown layer; None where the learner leaves it alone."""
    layer = learner.adapted.get(bench.shown)
    if layer is None:
        return None
    if isinstance(layer, PlateLinear):
        return layer.delta().numpy()
    merged: Any = layer
    if hasattr(layer, "get_delta_weight"):
        return merged.get_delta_weight("default").numpy()
    return (weight_of(layer) - weight_of(bench.body.get_submodule(bench.shown))).numpy()


def drift_map(bench: Bench, learner: Learner) -> np.ndarray:
    """(g, g) drift of the old task's function over the plane of the moons."""
    at = geometry.grid(GRID_LOW, GRID_HIGH, GRID)
    now, before = (geometry.jacobians(body, bench.old_head, at) for body in (learner.body, bench.body))
    return geometry.drift(now, before).reshape(GRID, GRID).numpy()
