"""One run of attention-sink as a stream of frames: the layers fill in one by one, before and after side by side."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np

from backends.attention_sink import picture
from backends.attention_sink.architecture import Architecture, inspect
from backends.attention_sink.card import CONTROLS_LIMIT, Params
from backends.attention_sink.headnorm import BlockSpread, block_spread
from backends.attention_sink.interventions import Change, Stretch, random_directions, random_neurons, scaling
from backends.attention_sink.locking import Locking, first_keys, locking
from backends.attention_sink.neurons import SuperNeurons, find_super_neurons
from backends.attention_sink.passages import passage_ids, random_ids
from backends.attention_sink.pretrained import pretraining
from backends.attention_sink.tokens import Tokens, read_tokens
from backends.attention_sink.tracing import Run, Trace, Watch, forward
from backends.attention_sink.variance import sample_spread, sweeping, value_centres
from backends.contract import Context, Frame, InputError, MetricValue
from backends.runtime import device, language_model, model_files

LIVE = ("layer", "head", "onset_threshold")
FRAME_S = 0.1  # at least, between two frames of the layers
SWEEP_PASSAGES, SWEEP_LAST, SWEEP_AFTER = 8, 95, 32  # texts of the sweep, its last position, tokens after the position
BLOCK_POSITIONS = 64
ABLATED = 2  # neurons


def run(params: Params, context: Context) -> Iterator[Frame]:
    """Streams a run; a live one gives its last frame only, from stored traces."""
    started = _Run(params, context)
    for frame in started.frames():
        if context.live not in LIVE or frame.progress == 1.0:
            yield frame


class _Run:
    """The stages of one run; what each knows is added to ``data`` and ``metrics``, which every frame shows whole."""

    def __init__(self, params: Params, context: Context) -> None:
        self.params, self.context = params, context
        self.began = time.perf_counter()
        self.data: dict[str, Any] = {}
        self.metrics: dict[str, MetricValue] = {}

    def frame(self, progress: float, message: str) -> Frame:
        return Frame(progress, message, dict(self.metrics), dict(self.data))

    @cached_property
    def decoder(self) -> language_model.Decoder:
        return language_model.load(self.context.models, self.params.model, self.context.device)

    @cached_property
    def parts(self) -> Architecture:
        return inspect(self.decoder.model)

    @cached_property
    def tokens(self) -> Tokens:
        limit = int(getattr(self.decoder.model.config, "max_position_embeddings", 0) or 0)
        return read_tokens(self.params, self.decoder.tokenizer, self.parts.vocabulary, limit)

    @property
    def also(self) -> tuple[int, ...]:
        """Positions that are isolated with the chosen one."""
        given = self.params.also_isolate if self.params.intervention == "isolate" else []
        return tuple(sorted(set(given) - {0, self.params.target}))

    @property
    def layer(self) -> int:
        """The layer that is read."""
        return min(self.params.layer, len(self.parts.layers) - 1)

    @property
    def head(self) -> int | None:
        """The head that is shown; None is the mean."""
        return None if self.params.head == "mean" else min(self.params.head, self.parts.heads - 1)

    def clipped(self) -> list[str]:
        """Layer and head live on sliders that are wider than a small model; what was read instead is said."""
        said = []
        if self.layer != self.params.layer:
            said.append(f"the model has {len(self.parts.layers)} layers: its last one, {self.layer}, is read")
        if self.head is not None and self.head != self.params.head:
            said.append(f"the model has {self.parts.heads} heads: its last one, {self.head}, is shown")
        return said

    def frames(self) -> Iterator[Frame]:
        params = self.params
        _check(params, self.parts, len(self.tokens.ids))
        self.opening()
        yield self.frame(0.02, f"{len(self.tokens.ids)} tokens read by {self.decoder.name.removeprefix('bundled:')}")
        alone = self.context.memo("alone", (params.model, [int(self.tokens.ids[p]) for p in self.isolated]), self.alone)
        found = find_super_neurons(self.parts, alone[0])
        self.metrics |= {"super_neuron_layer": found.layer, "super_neuron_1": found.first, "super_neuron_2": found.second}
        self.data["neurons"] = picture.neurons(found, None, params.target)
        yield self.frame(0.05, f"layer {found.layer} makes the first word a sink; its neurons {found.first} and {found.second} write most")
        plan = self.plan(found)
        traces: dict[str, Trace] = {}
        for traces in self.traced(plan):
            done = len(traces["before"].layers)
            self.show(traces, found)
            yield self.frame(0.05 + 0.75 * done / len(self.parts.layers), f"layer {done - 1} of {len(self.parts.layers) - 1}: " + ", ".join(_words(plan)))
        self.measure(traces, alone)
        self.data["locking"] = picture.locking(traces["before"], self.locked())
        early = params.amplify_layers - 1
        over_samples = self.context.memo("sample spread", (params.model, early), lambda: sample_spread(self.decoder.model, early, self.context.check))
        self.data["variance_samples"] = picture.sample_spread(early, over_samples)
        if self.stretches:
            yield from self.sweep()
        spread = self.context.memo("block", (params.gamma, params.seed), self.block)
        self.data["headnorm"] = picture.headnorm(spread)
        trained = pretraining()
        self.data |= {"pretraining": trained} if trained else {}
        self.metrics["seconds"] = time.perf_counter() - self.began
        yield self.frame(1.0, self.summary())

    def opening(self) -> None:
        tokens, params = self.tokens, self.params
        on = device.describe() if self.context.device == "cpu" else self.context.device
        self.data |= {
            "made_by": {"model": self.decoder.description, "data": tokens.source, "size": f"{len(tokens.ids)} tokens", "device": on},
            "tokens": {"text": list(tokens.text), "ids": tokens.ids, "target": params.target, "also": list(self.also), "first": 0},
            "layer": self.layer,
            "head": self.head,
            "notes": [*tokens.notes, *self.clipped()],
        }
        self.metrics["tokens"] = len(tokens.ids)

    @property
    def isolated(self) -> tuple[int, ...]:
        """Positions that see only themselves: the first one always."""
        return (0, *((self.params.target, *self.also) if self.params.intervention == "isolate" else ()))

    def alone(self) -> list[Trace]:
        """Each isolated token as a text of one word, its layers read: token 0 of a text never differs from it."""
        ids = self.tokens.ids[list(self.isolated), None]
        return forward(self.decoder.model, ids, [Run(full=False)] * len(ids), Watch(check=self.context.check))

    def plan(self, found: SuperNeurons) -> dict[str, Run]:
        """The runs of the batch by name: before, after the change, and the controls."""
        params, rng = self.params, self.context.rng
        plan = {"before": Run()}
        change = self.change(found)
        if change is not None:
            plan["after"] = Run(change)
        if params.controls == "on" or (params.controls == "auto" and len(self.tokens.ids) <= CONTROLS_LIMIT):
            drawn = random_neurons(self.parts.neurons, found.layer, (found.first, found.second), ABLATED, rng)
            plan["norm_only"] = Run(Change(stretch=self.scaled()), full=False)
            if self.stretches:
                plan["random_direction"] = Run(Change(stretch=Stretch(params.target, params.strength, self.centres, self.directions)), full=False)
            plan["random_neurons"] = Run(Change(ablate=drawn), full=False)
            numbers = " and ".join(str(n) for _, n in drawn)
            self.data["notes"] = [*self.data["notes"], f"controls: the word scaled by {params.strength:g}, and neurons {numbers} of layer {found.layer} silent"]
        elif params.controls == "auto":
            self.data["notes"] = [*self.data["notes"], f"above {CONTROLS_LIMIT} tokens the controls run when they are switched on"]
        return plan

    def change(self, found: SuperNeurons) -> Change | None:
        params = self.params
        if params.intervention == "isolate":
            return Change(isolate=(params.target, *self.also))
        if params.intervention == "amplify":
            return Change(stretch=Stretch(params.target, params.strength, self.centres))
        if params.intervention == "scale":
            return Change(stretch=self.scaled())
        if params.intervention == "ablate":
            return Change(ablate=((found.layer, found.first), (found.layer, found.second)))
        return None

    def scaled(self) -> Stretch:
        return scaling(self.params.target, self.params.strength, range(self.params.amplify_layers), self.parts.width)

    @cached_property
    def centres(self) -> dict[int, np.ndarray]:
        layers = self.params.amplify_layers
        return self.context.memo("centres", (self.params.model, layers), lambda: value_centres(self.decoder.model, layers, self.context.check))

    @property
    def stretches(self) -> bool:
        """True when the change is one of the value's length or variance, which the strength sweep and its controls are about."""
        return self.params.intervention in ("amplify", "scale")

    @cached_property
    def directions(self) -> dict[int, np.ndarray]:
        """Of the random control: from the seed alone, so that the run and the sweep share them whatever else is drawn."""
        return random_directions(range(self.params.amplify_layers), self.parts.width, np.random.default_rng(self.params.seed))

    def traced(self, plan: dict[str, Run]) -> Iterator[dict[str, Trace]]:
        """All runs in one batch, layer by layer; the last item is whole. Stored traces come at once."""
        watched = tuple(dict.fromkeys((0, self.params.target, *self.also)))
        key = (self.params.model, self.tokens.ids, list(plan.items()), watched)
        whole: list[list[Trace]] = []

        def compute(emit: Callable[[list[Trace]], None]) -> list[Trace]:
            watch = Watch(watched, on_layer=lambda _, traces: emit(traces), check=self.context.check)
            return forward(self.decoder.model, self.tokens.ids, list(plan.values()), watch)

        def work(emit: Callable[[list[Trace]], None]) -> None:
            # A layer of a long text takes seconds: the line below the bar says that it goes on.
            long = len(self.tokens.ids) > CONTROLS_LIMIT
            with model_files.ticking(self.context.say, "reading a long text") if long else contextlib.nullcontext():
                whole.append(self.context.memo("traces", key, partial(compute, emit)))

        shown = 0.0
        for traces in self.context.stream(work):
            if time.perf_counter() - shown > FRAME_S:
                shown = time.perf_counter()
                yield dict(zip(plan, traces, strict=True))
        yield dict(zip(plan, whole[0], strict=True))

    def show(self, traces: dict[str, Trace], found: SuperNeurons) -> None:
        """What the layers done so far say; the read layer's pictures appear when it is reached."""
        params = self.params
        self.data |= picture.layers(traces, params.target, self.also)
        self.data["neurons"] = picture.neurons(found, traces["before"], params.target)
        early = params.amplify_layers - 1  # before a sink has formed: later its own values are small, and the spread says nothing of its cause
        if len(traces["before"].layers) > early:
            self.data["variance_early"] = picture.spread(traces, early)
        if len(traces["before"].layers) > self.layer:
            self.data |= picture.at_layer(traces, params.target, self.layer, self.head)

    def measure(self, traces: dict[str, Trace], alone: list[Trace]) -> None:
        """All metrics, from whole traces."""
        params, before, after = self.params, traces["before"], traces.get("after")
        layer, target = self.layer, params.target
        curve = before.sink_after(0, target)
        above = np.flatnonzero(curve > params.onset_threshold)
        checked = after if params.intervention == "isolate" and after is not None else before
        apart = [_apart(checked.hidden(p), one.hidden(0)) for p, one in zip(self.isolated, alone, strict=True)]
        self.metrics |= {
            "sink_first": float(curve[layer]),
            "sink_target_before": float(before.sink_after(target, target)[layer]),
            "sink_target_after": float(after.sink_after(target, target)[layer]) if after else None,
            "norm_first": float(before.norm[layer, 0]),
            "norm_target_before": float(before.norm[layer, target]),
            "norm_target_after": float(after.norm[layer, target]) if after else None,
            "dominance_first": float(before.dominance[layer, 0]),
            "top_channel": int(before.top_channel[layer, 0]),
            "onset_layer": int(above[0]) if above.size else None,
            "nll_before": _mean(before.nll),
            "nll_after": _mean(after.nll) if after else None,
            "oracle_error": max(apart),
        }
        self.data["notes"] = [*self.data["notes"], *before.notes]

    def locked(self) -> Locking:
        """The first word's keys beside those of other texts."""
        model, check = self.decoder.model, self.context.check
        first = int(self.tokens.ids[0])
        own = self.context.memo("keys", (self.params.model, [first]), lambda: first_keys(model, [first], check))
        texts = passage_ids(self.decoder.tokenizer, SWEEP_PASSAGES, 1)[:, 0]
        others = self.context.memo("keys", (self.params.model, texts), lambda: first_keys(model, texts, check))
        return locking(own, others)

    def sweep(self) -> Iterator[Frame]:
        """Mean score over eight texts against the strength: variance amplified, norm scaled only, a random direction added."""
        model, tokenizer, position = self.decoder.model, self.decoder.tokenizer, min(self.params.target, SWEEP_LAST)
        length, english = position + 1 + SWEEP_AFTER, self.params.sweep_texts == "english"
        texts = passage_ids(tokenizer, SWEEP_PASSAGES, length) if english else random_ids(self.parts.vocabulary, SWEEP_PASSAGES, length)
        if position != self.params.target:
            self.data["notes"] = [*self.data["notes"], f"the sweep's passages are short: it changes position {position}"]
        whole: list[list[Any]] = []

        def compute(emit: Callable[[Any], None]) -> list[Any]:
            steps = []
            for step in sweeping(model, texts, position, self.centres, self.directions, self.context.check):
                steps.append(step)
                emit(step)
            return steps[-1:]

        def work(emit: Callable[[Any], None]) -> None:
            key = (self.params.model, texts, position, self.params.amplify_layers, self.params.seed)
            whole.append(self.context.memo("sweep", key, partial(compute, emit)))

        for number, step in enumerate(self.context.stream(work), 1):
            self.data["sweep"] = picture.sweep(step)
            yield self.frame(0.8 + 0.17 * (1 - 1 / (1 + number)), f"sweep: strength {step.strength[-1]:g} on {len(texts)} passages")
        self.data["sweep"] = picture.sweep(whole[0][0])

    def block(self) -> BlockSpread:
        return block_spread(BLOCK_POSITIONS, shared=self.params.gamma == "shared", seed=self.params.seed)

    def summary(self) -> str:
        metrics, params = self.metrics, self.params
        word = self.tokens.text[params.target].strip() or "space"
        text = f"layer {self.layer}: the first word receives {metrics['sink_first']:.1%} of later attention"
        text += f", \u201c{word}\u201d {metrics['sink_target_before']:.1%}"
        text += "; nothing was changed, so nothing stands after it" if metrics["sink_target_after"] is None else f", changed {metrics['sink_target_after']:.1%}"
        text += "" if metrics["onset_layer"] is not None else f"; no layer passes the threshold of {params.onset_threshold:g}"
        return " ".join("; ".join([text, *self.clipped()]).split())


def _check(params: Params, parts: Architecture, length: int) -> None:
    """What only the model and the text can tell. Raises InputError."""
    target, layers = params.target, len(parts.layers)
    if params.intervention == "isolate" and target == 0:
        raise InputError("target", "token 0 is already isolated: it sees only itself", f"choose a position from 1 to {max(length - 2, 1)}")
    if length < target + 2:
        remedy = f"choose a position from 0 to {length - 2}, or a longer text" if length > 1 else "give a longer text"
        raise InputError("target", f"the text has {length} tokens, so no word comes after position {target} to look at it", remedy)
    if params.amplify_layers > layers:
        raise InputError("amplify_layers", f"the model has {layers} layers", f"choose from 1 to {layers}")
    if params.intervention == "isolate":
        outside = [p for p in params.also_isolate if p >= length]
        if outside:
            raise InputError("also_isolate", f"position {outside[0]} is not among the {length} tokens", f"choose positions from 1 to {length - 1}")
        if len({target, *params.also_isolate} - {0}) > length / 2:
            raise InputError("also_isolate", f"more than half of the {length} tokens would be isolated", "isolate fewer, or give a longer text")


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    """The largest relative difference over the layers; a, b: (L, d)."""
    return float((np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)).max())


def _mean(losses: np.ndarray | None) -> float | None:
    return float(losses.mean()) if losses is not None and losses.size else None


def _words(plan: dict[str, Run]) -> list[str]:
    return [name.replace("_", " ") for name in plan]
