"""From traces to the data that the pictures draw; arrays are thinned for long texts, with the positions that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from backends.attention_sink.headnorm import BlockSpread
from backends.attention_sink.locking import Locking
from backends.attention_sink.measures import theory
from backends.attention_sink.neurons import SuperNeurons
from backends.attention_sink.tracing import Trace
from backends.attention_sink.variance import Sweep

Array = np.ndarray
Data = dict[str, Any]
CURVE_POINTS = 512  # of a curve over positions; above, each block keeps its lowest and its highest value
CONTROLS = ("norm_only", "random_direction", "random_neurons")


def layers(traces: Mapping[str, Trace], target: int, also: Sequence[int]) -> Data:
    """The curves over the layers done so far. traces: "before", where there is one "after", and the controls."""
    before = traces["before"]
    at = np.arange(len(before.layers))
    others = np.setdiff1d(np.arange(len(before.token_ids)), [0, target, *also])
    sink: Data = {"layer": at}
    norm: Data = {"layer": at}
    dominance: Data = {"layer": at}
    rank: Data = {"layer": at}
    for name, trace in traces.items():
        sink[f"first_{name}"] = trace.sink_after(0, target)
        sink[f"target_{name}"] = trace.sink_after(target, target)
        if name in CONTROLS:
            continue
        norm |= {f"first_{name}": trace.norm[:, 0], f"target_{name}": trace.norm[:, target]}
        if others.size:
            norm[f"others_{name}"] = trace.norm[:, others].mean(1)
        dominance |= {f"first_{name}": trace.dominance[:, 0], f"target_{name}": trace.dominance[:, target]}
        rank[f"effective_rank_{name}"] = trace.effective_rank
    return {"layers": at.tolist(), "sink": sink, "norm": norm, "dominance": dominance, "rank": rank}


def at_layer(traces: Mapping[str, Trace], target: int, layer: int, head: int | None) -> Data:
    """What is drawn of the read layer: map, received attention, spread over positions, and the chosen word's channels."""
    pictured = {name: trace for name, trace in traces.items() if name not in CONTROLS}
    before = pictured["before"]
    chosen: Data = {"positions": before.map_positions}
    received: Data = {}
    profile: Data = {"position": target}
    for name, trace in pictured.items():
        found = trace.layers[layer]
        assert found.map is not None
        assert found.head_maps is not None
        chosen[name] = found.map if head is None else found.head_maps[head].astype(np.float32)
        received[name] = found.sink
        profile[f"channel_value_{name}"] = np.abs(found.hidden[trace.place(target)])
        profile["top_channel"] = int(found.top_channel[target])
    return {"map": chosen, "received": received, "profile": profile, "variance": spread(pictured, layer)}


def spread(traces: Mapping[str, Trace], layer: int) -> Data:
    """The spread over the width before W_O (width) and after it (output), and sigma / sqrt(t + 1) from the first word's."""
    pictured = {name: trace for name, trace in traces.items() if name not in CONTROLS}
    first = pictured["before"].layers[layer].value_spread
    kept = _thinned([trace.layers[layer].value_spread for trace in pictured.values()])
    drawn: Data = {"layer": layer, "position": kept, "theory": theory(float(first[0]), kept)}
    for name, trace in pictured.items():
        drawn |= {f"width_{name}": trace.layers[layer].value_spread[kept], f"output_{name}": trace.layers[layer].output_spread[kept]}
    return drawn


def _thinned(curves: Sequence[Array]) -> Array:
    """Positions that keep the lowest and highest value of each block of each curve, and the ends."""
    length = len(curves[0])
    if length <= CURVE_POINTS:
        return np.arange(length)
    blocks = np.array_split(np.arange(length), CURVE_POINTS // (2 * len(curves)))
    extremes = [block[pick(curve[block])] for curve in curves for block in blocks for pick in (np.argmin, np.argmax)]
    return np.unique([0, length - 1, *extremes])


def neurons(found: SuperNeurons, before: Trace | None, target: int) -> Data:
    """The layer of the super neurons; what the chosen word does there once it is known, before a change."""
    drawn: Data = {
        "layer": found.layer,
        "gate_norm": found.gate_norm,
        "up_norm": found.up_norm,
        "activation_first": found.activation_first,
        "super": [found.first, found.second],
        "down_column": found.down_column,
        "kurtosis": found.kurtosis,
    }
    if before is not None and len(before.layers) > found.layer:
        layer = before.layers[found.layer]
        place = before.place(target)
        drawn |= {
            "activation_target": layer.activation[place],
            "gate_cosine_first": found.gate_cosine(layer.mlp_input[before.place(0)]),
            "gate_cosine_target": found.gate_cosine(layer.mlp_input[place]),
        }
    return drawn


def locking(before: Trace, found: Locking) -> Data:
    """Queries that point at the first word's key, and how little that key depends on the text."""
    return {
        "layer": np.arange(len(before.layers)),
        "positive_share": np.array([np.nan if layer.positive_share is None else layer.positive_share for layer in before.layers]),
        "key_cosine": found.key_cosine,
        "singular_alignment": found.alignment,
    }


def sweep(found: Sweep) -> Data:
    """Mean and dots of the strength sweep."""
    return {
        "strength": found.strength,
        "layer": found.layer,
        "position": found.position,
        "variance_mean": found.variance.mean(1),
        "norm_only_mean": found.norm_only.mean(1),
        "random_direction_mean": found.random_direction.mean(1),
        "variance_dots": found.variance,
        "norm_only_dots": found.norm_only,
        "random_direction_dots": found.random_direction,
    }


def sample_spread(layer: int, found: Array) -> Data:
    """Version (b) of the spread beside the law of independent values."""
    position = np.arange(len(found))
    return {"layer": layer, "position": position, "samples": found, "theory": theory(float(found[0]), position)}


def headnorm(found: BlockSpread) -> Data:
    """The exact block with and without head-wise RMSNorm."""
    plain, normalised, expected = (np.asarray(v) for v in (found.plain, found.normalised, found.theory))
    return {"position": np.arange(len(plain)), "plain": plain, "normalised": normalised, "theory": expected}
