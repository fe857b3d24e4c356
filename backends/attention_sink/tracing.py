"""One forward pass watched layer by layer: attention is made in blocks of queries, reduced and dropped, so that 2,000 tokens fit in memory.

Stored whole, the attention of 2,000 tokens in 30 layers and 9 heads would be 4.3 GB. Several runs of one text (without and with a change,
and its controls) go through the layers together as one batch, so that their pictures grow side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from backends.attention_sink import attention
from backends.attention_sink.architecture import Architecture, private_view
from backends.attention_sink.attention import Asked, Reduced, map_block
from backends.attention_sink.interventions import UNCHANGED, Change, Neuron, isolate_mask
from backends.attention_sink.measures import dominance_ratio, effective_rank, nll, spread_over_width
from backends.contract import InputError

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class LayerTrace:
    """One layer of one run, T tokens, W watched positions. All is read where it enters the layer unless said otherwise.

    norm, dominance, top_channel: (T,) of the residual stream h. hidden: (W, d), h of the watched positions. effective_rank: of h (T x d).
    value_spread, output_spread: (T,) standard deviation over the width, before and after W_O. received: (T, W), the head mean of the
    attention that each query gives to the watched positions. sink: (T,), S_k of every key over the queries after it (0 for the last).
    positive_share: of the pairs of head and later query, those with q . k_0 > 0; None for a control and for one token.
    map, head_maps: (m, m) and (H, m, m) fp16, the maximum of each block. mlp_input: (W, d), activation: (W, n), of the watched positions.
    """

    norm: Array
    dominance: Array
    top_channel: Array
    hidden: Array
    effective_rank: float | None
    value_spread: Array
    output_spread: Array
    received: Array
    sink: Array
    positive_share: float | None
    map: Array | None
    head_maps: Array | None
    mlp_input: Array
    activation: Array


@dataclass(frozen=True, slots=True)
class Trace:
    """A run's layers. token_ids: (T,); watched: the W positions whose vectors are kept; nll: (T - 1,) nats, None before the end and for a control."""

    token_ids: Array
    watched: tuple[int, ...]
    layers: tuple[LayerTrace, ...]
    nll: Array | None = None
    notes: tuple[str, ...] = ()

    def stack(self, name: str) -> Array:
        """One field of ``LayerTrace`` over the layers: (L, ...)."""
        return np.stack([np.asarray(getattr(layer, name)) for layer in self.layers])

    @property
    def norm(self) -> Array:
        """||h|| entering each layer, (L, T)."""
        return self.stack("norm")

    @property
    def dominance(self) -> Array:
        """Dominance ratio of h entering each layer, (L, T)."""
        return self.stack("dominance")

    @property
    def top_channel(self) -> Array:
        """The channel with the largest |h|, (L, T)."""
        return self.stack("top_channel")

    @property
    def sink(self) -> Array:
        """S_k of every key over the queries after it, (L, T)."""
        return self.stack("sink")

    @property
    def effective_rank(self) -> Array:
        """Effective rank of h entering each layer, (L,)."""
        return self.stack("effective_rank")

    @property
    def attention(self) -> Array:
        """Head-mean attention maps (L, m, m); exact up to 160 tokens, above the maximum of blocks."""
        return self.stack("map")

    @property
    def map_positions(self) -> Array:
        """The first token of each row and column of the maps, (m,)."""
        return np.arange(0, len(self.token_ids), map_block(len(self.token_ids)))

    def hidden(self, position: int) -> Array:
        """h of a watched position entering each layer, (L, d)."""
        return self.stack("hidden")[:, self.place(position)]

    def place(self, position: int) -> int:
        """Where a watched position stands; raises InputError for one that was not watched."""
        if position not in self.watched:
            raise InputError("position", f"position {position} was not watched", "name it in watch: " + ", ".join(map(str, self.watched)) + " were")
        return self.watched.index(position)

    def sink_after(self, key: int, after: int) -> Array:
        """Mean attention to a watched key over the queries after ``after``, (L,)."""
        return np.asarray(self.stack("received")[:, after + 1 :, self.place(key)].mean(1))


@dataclass(frozen=True, slots=True)
class Run:
    """One row of a batch. full: also keep maps, effective rank and loss; a control needs none of them."""

    change: Change = UNCHANGED
    full: bool = True


@dataclass(frozen=True, slots=True)
class Watch:
    """What is followed in a pass. positions: whose vectors are kept. last_layer: where the pass may end, the end of the model without one.

    on_layer(number, traces so far): called after each layer. check: called several times a layer. Both may raise to end the pass.
    """

    positions: tuple[int, ...] = (0,)
    last_layer: int | None = None
    on_layer: Callable[[int, list[Trace]], None] = lambda *_: None
    check: Callable[[], None] = lambda: None


FIRST_TOKEN = Watch()


class PassEnded(BaseException):
    """Ends a forward pass after the last layer that is asked for; no library's ``except Exception`` can swallow it."""


class Recorder:
    """Hooks on a private view that apply each run's change and keep what is read.

    ``watch.on_layer(number, traces so far)`` and ``watch.check()`` are called in the computing thread and may raise to end the pass.
    """

    def __init__(self, parts: Architecture, token_ids: Array, runs: Sequence[Run], watch: Watch) -> None:
        self.parts, self.token_ids, self.runs, self.watch = parts, token_ids, tuple(runs), watch
        self.watched = list(watch.positions)
        self.layers: list[list[LayerTrace]] = [[] for _ in runs]
        self._open: list[dict[str, Any]] = []
        asked = [Asked(self.watched, maps=run.full) for run in self.runs]
        attention.reduce_in(parts, asked, self._attention, watch.check)
        self._hooks = [hook for number, layer in enumerate(parts.layers) for hook in self._hook(number, layer)]

    def _hook(self, number: int, layer: Any) -> list[Any]:
        return [
            layer.register_forward_pre_hook(lambda _, args, kwargs: self._entering(args[0] if args else kwargs["hidden_states"]), with_kwargs=True),
            layer.self_attn.o_proj.register_forward_pre_hook(lambda _, args: self._values(number, args[0])),
            layer.self_attn.register_forward_hook(lambda _module, _args, result: self._projected(result[0])),
            layer.mlp.register_forward_pre_hook(lambda _, args: self._keep("mlp_input", args[0])),
            layer.mlp.down_proj.register_forward_pre_hook(lambda _, args: self._activation(number, args[0])),
            layer.register_forward_hook(lambda *_: self._leaving(number)),
        ]

    def close(self) -> None:
        """Removes the hooks, so that what was kept is freed at once and not by the next full garbage collection."""
        for hook in self._hooks:
            hook.remove()

    def traces(self) -> list[Trace]:
        """What is known so far, one trace a run."""
        return [Trace(ids, self.watch.positions, tuple(layers), notes=self.parts.notes) for ids, layers in zip(self.token_ids, self.layers, strict=True)]

    def _keep(self, name: str, vectors: torch.Tensor) -> None:
        """The watched positions of each run."""
        for kept, row in zip(self._open, vectors[:, self.watched], strict=True):
            kept[name] = row.float().cpu().numpy()

    def _entering(self, h: torch.Tensor) -> None:
        self._open = [{} for _ in self.runs]
        self._keep("hidden", h)
        for run, kept, row in zip(self.runs, self._open, h.float(), strict=True):
            self.watch.check()
            kept["norm"] = row.norm(dim=-1).cpu().numpy()
            kept["dominance"] = dominance_ratio(row)
            kept["top_channel"] = row.abs().argmax(-1).int().cpu().numpy()
            kept["effective_rank"] = effective_rank(row) if run.full else None

    def _values(self, number: int, o: torch.Tensor) -> tuple[torch.Tensor] | None:
        self.watch.check()
        changed = None
        for index, run in enumerate(self.runs):
            stretch = run.change.stretch
            if stretch is None or number not in stretch.centres:
                continue
            changed = o.clone() if changed is None else changed
            changed[index, stretch.position] = stretch.of(number, o[index, stretch.position])
        for kept, row in zip(self._open, o if changed is None else changed, strict=True):
            kept["value_spread"] = spread_over_width(row)
        return None if changed is None else (changed,)

    def _attention(self, index: int, found: Reduced) -> None:
        run, kept = self.runs[index], self._open[index]
        kept |= {"received": found.received, "sink": found.sink, "positive_share": found.positive_share if run.full else None}
        kept |= {"map": found.map, "head_maps": found.head_maps}

    def _projected(self, output: torch.Tensor) -> None:
        for kept, row in zip(self._open, output, strict=True):
            kept["output_spread"] = spread_over_width(row)

    def _activation(self, number: int, values: torch.Tensor) -> tuple[torch.Tensor] | None:
        self.watch.check()
        self._keep("activation", values)
        changed = None
        for index, run in enumerate(self.runs):
            neurons = [neuron for layer, neuron in run.change.ablate if layer == number]
            if neurons:
                changed = values.clone() if changed is None else changed
                changed[index, :, neurons] = 0  # the same as zero columns of W_down, and the shared weights stay as they are
        return None if changed is None else (changed,)

    def _leaving(self, number: int) -> None:
        for layers, kept in zip(self.layers, self._open, strict=True):
            layers.append(LayerTrace(**kept))
        self.watch.on_layer(number, self.traces())
        if number == self.watch.last_layer and number + 1 < len(self.parts.layers):
            raise PassEnded


def forward(model: Any, token_ids: Array, runs: Sequence[Run], watch: Watch = FIRST_TOKEN) -> list[Trace]:
    """Traces of several runs in one batch. token_ids: (T,) of one text for all runs, or (runs, T).

    Raises InputError for ids outside the vocabulary, positions and neurons that are not there, and models that are not supported.
    """
    parts = private_view(model)
    ids = np.atleast_2d(np.asarray(token_ids, np.int64))
    ids = np.repeat(ids, len(runs), axis=0) if len(ids) == 1 else ids
    dtype = parts.model.get_input_embeddings().weight.dtype
    masks = torch.cat([_mask(ids.shape[1], run.change.isolate) for run in runs]).clamp(min=torch.finfo(dtype).min).to(parts.device, dtype)
    _check(parts, ids, runs, watch.positions)
    given = torch.as_tensor(ids, device=parts.device)
    recorder = Recorder(parts, ids, runs, watch)
    with torch.inference_mode():
        try:
            final = parts.base(input_ids=given, attention_mask=masks, use_cache=False).last_hidden_state
        except PassEnded:
            return recorder.traces()
        finally:
            recorder.close()
        losses = [nll(row, parts.head, tokens, watch.check) if run.full else None for run, row, tokens in zip(runs, final, given, strict=True)]
    return [replace(trace, nll=loss) for trace, loss in zip(recorder.traces(), losses, strict=True)]


def _mask(length: int, positions: tuple[int, ...]) -> torch.Tensor:
    try:
        return isolate_mask(length, positions)
    except InputError as error:
        raise InputError("isolate", error.problem, error.remedy) from None


def _check(parts: Architecture, ids: Array, runs: Sequence[Run], watched: Sequence[int]) -> None:
    length = ids.shape[1]
    if ids.min() < 0 or ids.max() >= parts.vocabulary:
        wrong = int(ids.min() if ids.min() < 0 else ids.max())
        raise InputError("token_ids", f"id {wrong} is not in the vocabulary", f"give ids from 0 to {parts.vocabulary - 1}")
    for position in watched:
        if not 0 <= position < length:
            raise InputError("watch", f"position {position} is not among {length} tokens", f"choose positions from 0 to {length - 1}")
    for layer, neuron in (pair for run in runs for pair in run.change.ablate):
        if not (0 <= layer < len(parts.layers) and 0 <= neuron < parts.neurons):
            problem = f"there is no neuron {neuron} in layer {layer}"
            raise InputError("ablate", problem, f"choose a layer below {len(parts.layers)} and a neuron below {parts.neurons}")


def _neurons(ablate: Sequence[Any]) -> tuple[Neuron, ...]:
    try:
        return tuple((int(layer), int(neuron)) for layer, neuron in ablate)
    except (TypeError, ValueError):
        raise InputError("ablate", "an entry is not a pair of layer and neuron", "give pairs, such as (11, 1229)") from None


def trace(model: Any, token_ids: Sequence[int], isolate: Sequence[int] = (), ablate: Sequence[Neuron] = (), watch: Sequence[int] = ()) -> Trace:
    """Reads every layer of one forward pass of a loaded decoder (Llama, Qwen2, Mistral and others of their shape).

    token_ids: (T,). isolate: positions that see only themselves, in all layers and heads (section 4.2). ablate: pairs (layer, neuron) whose
    W_down columns are taken as zero. watch: positions whose vectors are kept, besides token 0 and the isolated ones. The model is not
    changed and may serve other threads meanwhile. Raises InputError, for a model that is not supported with the name of the part.
    """
    ids = np.asarray(token_ids)
    if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu":
        raise InputError("token_ids", "this is not a list of token ids", "give whole numbers, at least one")
    isolated = tuple(int(p) for p in isolate)
    watched = tuple(dict.fromkeys((0, *isolated, *(int(p) for p in watch))))
    change = Change(isolate=isolated, ablate=_neurons(ablate))
    return forward(model, ids, [Run(change)], Watch(watched))[0]
