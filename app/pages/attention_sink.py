"""The pictures of attention-sink: who receives the attention, layer by layer, before and after a word is changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.dragging import is_number, moved_end
from app.pages._attention_map import attention_map
from app.pages._headwise_norm import block_experiment, pretraining, pretraining_layers
from app.pages._residual_stream import dominance, effective_rank, norms, profile, sample_spread, spread
from app.pages._sink_tokens import FIRST, OTHERS, TARGET, End, before_after, blocks, changed, finite, name, page_start, panel, tag, whole
from app.pages._super_neurons import down_column, neurons, sweep
from app.plotting import Changes, Figure, Trace, View, alpha, axis, band, bars, end_labels, floats, key_row, label, layout, line, rule
from backends.contract import Frame

HEIGHT, TOP, BOTTOM = 540, 30, 48  # px of the main picture on a laptop
CURVES, WORDS = (0.0, 0.57), (0.76, 1.0)  # how its two plots share the height
DEPTH = 30  # layers of the bundled model: the axis stands still while they stream in
# Whom a control watches: scaling must not make the chosen word a sink, silencing random neurons must not end the first one.
CONTROLS = (
    ("norm_only", "target_norm_only", "only longer", "$peer-1"),
    ("random_direction", "target_random_direction", "random direction", "$peer-3"),
    ("random_neurons", "first_random_neurons", "random neurons off", "$peer-2"),
)
TITLES = {
    "none": "Untouched: which word receives the attention?",
    "isolate": "Switch off a word\u2019s view of the past: does it become a second sink?",
    "amplify": "Give a word the variance of a first word: does it become a sink?",
    "scale": "Make a word\u2019s vector longer, same direction: does it become a sink?",
    "ablate": "Silence the two super neurons: does the sink go?",
}


def views(frame: Frame, params: Any) -> list[View]:
    """What can be drawn of this frame, the words and the main picture first; a picture waits until its data is there."""
    data = frame.data
    if "tokens" not in data:
        return []
    made: list[View | None] = [
        panel(data, params),
        _sink(data, params),
        attention_map(data),
        norms(data),
        dominance(data),
        spread(data),
        sample_spread(data),
        profile(data),
        neurons(data),
        down_column(data),
        sweep(data, params),
        effective_rank(data),
        block_experiment(data),
        pretraining(data),
        pretraining_layers(data),
    ]
    return [view for view in made if view is not None]


def on_event(view: str, event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    """A click on a word, its column or its row chooses it; the line (or a click on a layer) sets the layer that is read."""
    kind = event.get("type")
    if view == "tokens" and kind == "click":
        index = event.get("index")
        target = params.get("target")
        return _set("target", index + page_start(target if isinstance(target, int) else 0)) if is_number(index) else None
    if view == "sink" and kind == "click":
        return _set("target" if event.get("trace") == "words" else "layer", event.get("x"))
    if view == "sink" and kind == "drag":
        return _set("layer", moved_end(event, params.get("layer")))
    if view == "map" and kind == "click":
        return _set("target", event.get("x"))
    return None


def _set(field: str, value: Any) -> Changes | None:
    return Changes({field: max(0, round(value))}, run=True) if is_number(value) else None


# ---------------------------------------------------------------------------------------------------- the main picture


def _sink(data: Mapping[str, Any], params: Any) -> Figure:
    """Above, what each word receives at the read layer; below, the first and the chosen word over the layers."""
    tokens, curves = data["tokens"], data.get("sink", {})
    layer = int(data.get("layer", params.layer))
    words, word_notes = _words(data)
    traces, ends = _curves(curves, tokens, "first" if params.intervention == "ablate" else "target")
    seen = finite([*traces, *words[:-1]])
    top = min(1.0, max(0.5, math.ceil(10.5 * float(seen.max(initial=0))) / 10))
    if words:
        words[-1]["y"] = np.full(np.size(words[-1]["x"]), top)
    deepest = max(DEPTH - 1, layer, int(floats(curves.get("layer", [0])).max(initial=0)))
    plot_px = (HEIGHT - TOP - BOTTOM) * (CURVES[1] - CURVES[0])
    threshold = params.onset_threshold
    notes = end_labels(ends, (0, top), plot_px) if ends else []
    notes.append(label(layer, CURVES[1], f"layer {layer}", "$ink", anchor="center", yref="paper", yanchor="bottom"))
    notes.append(label(0, threshold, "onset", "$muted", yanchor="bottom", shift=(-6, 0)))
    notes += word_notes
    if words:
        notes += key_row(("wide: before", "$muted"), ("narrow: after", TARGET))
    shapes = [
        rule(layer, "layer", "$ink", dash="solid", width=3, y1=CURVES[1], editable=True),
        {"type": "line", "name": "threshold", "x0": 0, "x1": 1, "xref": "x domain", "y0": threshold, "y1": threshold, "line": _hairline(), "editable": False},
    ]
    length = len(tokens["text"])
    plot = layout(
        axis("layer", "index; drag the line", range=[-0.5, deepest + 0.5], showgrid=False, anchor="y", nticks=8),
        axis("attention received", "share", domain=CURVES, range=[0, top], tickformat=".0%", nticks=5),
        right=128,
        top=TOP,
        xaxis2=axis("word", "position; click a column to choose it", range=[-0.9, length - 0.1], showgrid=False, anchor="y2", nticks=9),
        yaxis2=axis(f"at layer {layer}", "share", domain=WORDS, range=[0, top * 1.12], tickformat=".0%", nticks=3),
        barmode="overlay",
        bargap=0,
        annotations=notes,
        shapes=shapes,
        meta={"editable": True},
    )
    return Figure("sink", TITLES[params.intervention], [*traces, *words], plot, _summary(data, params), "main", height=HEIGHT)


def _hairline() -> dict[str, Any]:
    return {"color": "$muted", "width": 1, "dash": "dot"}


def _curves(curves: Mapping[str, Any], tokens: Mapping[str, Any], asked: str) -> tuple[list[Trace], list[End]]:
    """The controls, then both words before and after; ``asked`` names the word whose fate is the question."""
    traces: list[Trace] = []
    ends: list[End] = []
    if not curves:
        return traces, ends
    at = whole(curves["layer"])
    for _, key, words, colour in CONTROLS:
        values = floats(curves.get(key, []))
        if not np.isfinite(values).any():
            continue
        traces.append(line(at[: values.size], values, words, colour, width=1.5, hover=f"{words}: %{{y:.1%}} at layer %{{x}}"))
        ends.append((float(values[np.isfinite(values)][-1]), words, colour))
    for who, words, colour in (("first", "first word", FIRST), ("target", tag(tokens, tokens.get("target")), TARGET)):
        drawn, places = before_after(curves, who, words, colour)
        if who == asked and f"{who}_after" in curves:  # the answer: it stands out, and stays as a ghost
            drawn[-1] |= {"meta": {"ghost": True}, "line": {**drawn[-1]["line"], "width": 3.5}}
            known = np.isfinite(drawn[-1]["y"])
            under, height = drawn[-1]["x"][known], drawn[-1]["y"][known]
            traces.append(band(under, np.zeros(height.size), height, "below", colour))
        traces += drawn
        ends += places
    return traces, ends


def _words(data: Mapping[str, Any]) -> tuple[list[Trace], list[dict[str, Any]]]:
    """Bars for each word (or stretch of words), and last an invisible column over each that takes the click."""
    found, tokens = data.get("received"), data["tokens"]
    if not found:
        return [], []
    old, at = blocks(found["before"])
    wide = int(at[1]) if at.size > 1 else 1
    centre = at + (wide - 1) / 2
    on_second: dict[str, Any] = {"xaxis": "x2", "yaxis": "y2"}
    traces = [bars(centre, old, "before", alpha(FIRST, 0.28), width=0.92 * wide, hover="skip", **on_second)]
    new = blocks(found["after"])[0] if "after" in found else old
    watched = [int(np.searchsorted(at, i, side="right")) - 1 for i in changed(tokens)]
    if "after" in found:
        colours = [TARGET if i in watched else FIRST if i == 0 else OTHERS for i in range(at.size)]
        traces.append(bars(centre, new, "after", TARGET, width=0.5 * wide, hover="skip", **on_second) | {"marker": {"color": colours, "line": {"width": 0}}})
    starts = [int(i) for i in at]
    said = [f"{tag(tokens, i)} {i}: {b:.1%} before, {a:.1%} after" for i, b, a in zip(starts, old, new, strict=True)]
    # Most columns are too low to be hit by a pointer: this one is as high as the plot.
    traces.append(bars(at, np.ones(at.size), "words", alpha(FIRST, 0), width=wide, hover="%{text}", text=said, textposition="none", **on_second))
    notes = [_word_label(tokens, centre[0], max(old[0], new[0]), 0, FIRST)]
    notes += [_word_label(tokens, centre[w], max(old[w], new[w]), i, TARGET) for i, w in zip(changed(tokens), watched, strict=True) if w > 0]
    return traces, notes


def _word_label(tokens: Mapping[str, Any], x: float, y: float, position: int, colour: str) -> dict[str, Any]:
    anchor = "left" if position < 0.8 * len(tokens["text"]) else "right"
    return label(x, y, f"<b>{tag(tokens, position)}</b>", colour, anchor=anchor, xref="x2", yref="y2", yanchor="bottom")


def _summary(data: Mapping[str, Any], params: Any) -> str:
    tokens, layer = data["tokens"], int(data.get("layer", params.layer))
    target = tokens.get("target")
    curves = data.get("sink", {})
    first, rest, old, new = (_at(curves, key, layer) for key in ("first_before", "first_after", "target_before", "target_after"))
    who = f"{name(tokens, target)} (position {target})"
    if first is None or old is None:
        return f"The layers are being read one by one; what {who} receives at layer {layer} follows."
    of = "of the attention of later words"
    if params.intervention == "ablate" and rest is not None:
        return f"At layer {layer} the first word receives {first:.0%} {of}, {rest:.0%} once the super neurons are silent."
    if new is None:
        return f"At layer {layer} the first word receives {first:.0%} {of}, {who} {old:.1%}."
    return f"At layer {layer} {who} receives {new:.1%} {of}; untouched it receives {old:.1%}, and the first word {first:.0%}."


def _at(curves: Mapping[str, Any], key: str, layer: int) -> float | None:
    """The value of a curve at a layer; None where it is not known."""
    values = floats(curves.get(key, []))
    places = np.flatnonzero(floats(curves.get("layer", [])) == layer)
    if not places.size or places[0] >= values.size or not np.isfinite(values[places[0]]):
        return None
    return float(values[places[0]])
