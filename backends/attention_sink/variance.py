"""The centre about which a value's variance is amplified, and the strength sweep over several texts (section 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from backends.attention_sink.architecture import private_view
from backends.attention_sink.interventions import Change, Stretch, scaling
from backends.attention_sink.measures import spread_over_samples
from backends.attention_sink.tracing import PassEnded, Run, Watch, forward
from backends.contract import InputError

Array = np.ndarray
SEQUENCES, LENGTH, STRIDE = 16, 64, 7919  # ids of the centre: ((64 b + i) 7919) mod vocabulary
STRENGTHS = (1.0, 5.0, 10.0, 20.0, 30.0, 40.0)
LAYERS_AFTER = 3  # the sweep reads this many layers after the last amplified one: entering layer 5 for layers 0 and 1 (hidden size 576)


def spread_ids(vocabulary: int) -> Array:
    """Token ids spread evenly over the vocabulary, (16, 64), the same each time."""
    count = np.arange(SEQUENCES * LENGTH, dtype=np.int64)
    return (count * STRIDE % vocabulary).reshape(SEQUENCES, LENGTH)


def value_centres(model: Any, layers: int, check: Callable[[], None] = lambda: None) -> dict[int, Array]:
    """mu of layers 0 to ``layers`` - 1: the mean output of v_proj over 1,024 evenly spread token ids, one entry a channel of o.

    With grouped heads each key-value head's part is repeated for its query heads: layer -> (H d_k,).
    """
    parts = private_view(model)
    if not 0 < layers <= len(parts.layers):
        raise InputError("amplify_layers", f"the model has {len(parts.layers)} layers, not {layers}", f"choose from 1 to {len(parts.layers)}")
    centres: dict[int, Array] = {}

    def keep(number: int, values: torch.Tensor) -> None:
        check()
        mean = values.float().mean((0, 1)).reshape(parts.heads // parts.groups, -1)
        centres[number] = mean.repeat_interleave(parts.groups, 0).reshape(-1).cpu().numpy()
        if number + 1 == layers:
            raise PassEnded

    hooks = [
        layer.self_attn.v_proj.register_forward_hook(lambda _module, _args, out, number=number: keep(number, out))
        for number, layer in enumerate(parts.layers[:layers])
    ]
    try:
        with torch.inference_mode():
            parts.base(input_ids=torch.as_tensor(spread_ids(parts.vocabulary), device=parts.device), use_cache=False)
    except PassEnded:
        pass
    finally:
        for hook in hooks:
            hook.remove()
    return centres


def sample_spread(model: Any, layer: int, check: Callable[[], None] = lambda: None) -> Array:
    """Version (b) of the spread of o in one layer: over 16 sequences of evenly spread token ids at each of 64 positions, (64,)."""
    parts = private_view(model)
    found: list[Array] = []

    def keep(o: torch.Tensor) -> None:
        check()
        found.append(spread_over_samples(o))
        raise PassEnded

    hooks = [parts.layers[layer].self_attn.o_proj.register_forward_pre_hook(lambda _, args: keep(args[0]))]
    hooks += [block.register_forward_pre_hook(lambda *_: check()) for block in parts.layers[: layer + 1]]
    try:
        with torch.inference_mode():
            parts.base(input_ids=torch.as_tensor(spread_ids(parts.vocabulary), device=parts.device), use_cache=False)
    except PassEnded:
        pass
    finally:
        for hook in hooks:
            hook.remove()
    return found[0]


@dataclass(frozen=True, slots=True)
class Sweep:
    """S_k entering one layer for each strength and text: (s,), and (s, texts) with the variance amplified, with the norm scaled only, and
    with a random direction of the length that the amplification adds."""

    strength: Array
    layer: int
    position: int
    variance: Array
    norm_only: Array
    random_direction: Array


def sweeping(
    model: Any, texts: Array, position: int, centres: Mapping[int, Array], directions: Mapping[int, Array], check: Callable[[], None]
) -> Iterator[Sweep]:
    """Yields the sweep so far after each strength; at strength 1 all three are the unchanged text, which is run once.

    texts: (passages, T) token ids with T > position + 1. directions: layer -> (H d_k,), of the random control.
    """
    layers = list(centres)
    width = len(next(iter(centres.values())))
    read = _read_layer(model, layers)
    rows: list[list[Array]] = []
    for number, strength in enumerate(STRENGTHS, 1):
        changes = [Stretch(position, strength, centres), scaling(position, strength, layers, width), Stretch(position, strength, centres, directions)]
        scores = [_scores(model, texts, position, change, read, check) for change in (changes[:1] if strength == 1 else changes)]
        rows.append(scores if len(scores) > 1 else scores * len(changes))
        yield Sweep(np.array(STRENGTHS[:number]), read, position, *(np.stack(column) for column in zip(*rows, strict=True)))


def _read_layer(model: Any, layers: Sequence[int]) -> int:
    return min(max(layers) + 1 + LAYERS_AFTER, len(model.model.layers) - 1)


def _scores(model: Any, texts: Array, position: int, change: Stretch, read: int, check: Callable[[], None]) -> Array:
    runs = [Run(Change(stretch=change), full=False)] * len(texts)
    traces = forward(model, texts, runs, Watch((position,), read, check=check))
    return np.array([t.sink_after(position, position)[read] for t in traces])
