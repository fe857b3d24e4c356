"""The few neurons that make the sink: how large they are, whom they answer, where they write; and the sweep of the strength."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._sink_tokens import FIRST, TARGET, decades, finite, log_ticks, tag, whole
from app.plotting import Figure, Trace, alpha, axis, bars, end_labels, floats, key_row, label, layout, line, log_axis, scatter

HEIGHT = 340  # px
SHOWN = 180  # neurons of a cloud: those that answer most, and every so many of the rest
FLOOR = 1e-3  # a smaller answer is drawn here
COLUMNS = 288  # bars of the down column: it is drawn in blocks, each with its largest weight


def neurons(data: Mapping[str, Any]) -> Figure | None:
    found = data.get("neurons")
    if not found:
        return None
    gate = floats(found["gate_norm"])
    chosen = tag(data["tokens"], data["tokens"].get("target")) + " untouched"
    clouds = [("activation_first", "first word", FIRST, "circle-open"), ("activation_target", chosen, TARGET, "circle")]
    traces: list[Trace] = []
    answers = {}
    for key, words, colour, symbol in clouds:
        if key not in found:
            continue
        answer = np.maximum(np.abs(floats(found[key])), FLOOR)
        answers[key] = answer
        kept = _kept(answer, [int(n) for n in found["super"]])
        hover = f"neuron %{{customdata}}, {words}: %{{y:.3g}}"
        traces.append(scatter(gate[kept], answer[kept], words, colour, symbol=symbol, size=5, hover=hover, customdata=whole(kept), opacity=0.75))
    if not traces:
        return None
    values = finite(traces)
    reach = decades(values)
    notes = key_row(*((("\u25cb " if symbol.endswith("open") else "\u25cf ") + words, colour) for key, words, colour, symbol in clouds if key in answers))
    middle = (float(gate.min()) + float(gate.max())) / 2
    strongest = max(answers.values(), key=lambda a: float(a.max()))
    for neuron in found["super"]:
        anchor = "right" if gate[neuron] > middle else "left"
        height = max(float(a[neuron]) for a in answers.values())
        notes.append(label(float(gate[neuron]), math.log10(height), f"<b>{int(neuron)}</b>", "$ink", anchor=anchor, shift=(-9 if anchor == "right" else 9, 0)))
    plot = layout(
        axis("length of the gate weights", "norm", showgrid=False),
        log_axis("|activation|", "size, log scale", values, range=list(reach), **log_ticks(reach)),
        top=34,
        annotations=notes,
    )
    named = " and ".join(f"number {int(n)} answers {strongest[int(n)]:,.0f}" for n in found["super"])
    summary = f"Of the {gate.size} neurons of layer {found['layer']}, {named}; half of all answer less than {np.median(strongest):.2g}."
    return Figure("neurons", f"Super neurons of layer {found['layer']}", traces, plot, summary, height=HEIGHT)


def _kept(answer: np.ndarray, always: list[int]) -> np.ndarray:
    """The neurons that are drawn, ascending."""
    strong = np.argsort(answer)[-SHOWN // 2 :]
    thinned = np.arange(0, answer.size, max(1, 2 * answer.size // SHOWN))
    return np.unique(np.concatenate([strong, thinned, np.asarray(always, int)]))


def down_column(data: Mapping[str, Any]) -> Figure | None:
    found = data.get("neurons")
    if not found or "down_column" not in found or not len(found["super"]):
        return None
    weight = floats(found["down_column"])
    step = math.ceil(weight.size / COLUMNS)
    starts = np.arange(0, weight.size, step)
    largest = np.unique([start + int(np.abs(weight[start : start + step]).argmax()) for start in starts])
    neuron, kurtosis = int(found["super"][0]), found.get("kurtosis")
    top = int(np.abs(weight).argmax())
    peak = float(weight[top])
    anchor = "left" if top < 0.6 * weight.size else "right"
    note = label(top, peak, f"<b>channel {top}</b>: {peak:.2f}", TARGET, anchor=anchor, shift=(8 if anchor == "left" else -8, 0))
    low, high = min(1.2 * float(weight.min()), 0.0), max(1.2 * float(weight.max()), 0.0)
    drawn = bars(whole(largest), weight[largest], "weight", TARGET, width=max(1.0, 1.6 * step), hover="channel %{x}: %{y:.3g}")
    plot = layout(
        axis("channel", "index", showgrid=False, range=[-0.01 * weight.size, 1.01 * weight.size], nticks=7),
        axis("weight of W_down", "number", zeroline=True, range=[low, high]),
        bargap=0,
        annotations=[note],
    )
    heavy = f" Excess kurtosis {kurtosis:.0f}; a normal law has 0." if kurtosis is not None else ""
    summary = f"Neuron {neuron} writes most into channel {top}.{heavy}"
    return Figure("down_column", f"Where neuron {neuron} writes", [drawn], plot, summary, height=HEIGHT)


def sweep(data: Mapping[str, Any], params: Any) -> Figure | None:
    """Mean sink score over passages against the strength, with a dot for each passage."""
    found = data.get("sweep")
    if not found:
        return None
    strength = floats(found["strength"])
    traces: list[Trace] = []
    ends = []
    for key, words, colour, symbol in (
        ("norm_only", "only longer", "$peer-1", "diamond-open"),
        ("random_direction", "random direction", "$peer-2", "square-open"),
        ("variance", "more variance", TARGET, "circle"),
    ):
        dots = floats(found[f"{key}_dots"]).reshape(strength.size, -1)
        mean = floats(found[f"{key}_mean"])
        size = 5 if symbol == "circle" else 6
        spread = np.repeat(strength, dots.shape[1])
        traces.append(scatter(spread, dots.ravel(), words, alpha(colour, 0.4), symbol=symbol, size=size, hover=f"{words}, one passage: %{{y:.2%}} at %{{x}}"))
        traces.append(line(strength, mean, f"{words}, mean", colour, width=2.5, hover=f"{words}, mean: %{{y:.2%}} at %{{x}}"))
        ends.append((float(mean[np.isfinite(mean)][-1]) if np.isfinite(mean).any() else 0.0, words, colour))
    reach = (0.0, 1.08 * float(finite(traces).max(initial=0.01)))
    plot = layout(
        axis("strength \u03bb", "factor", showgrid=False),
        axis("attention received", "share", range=list(reach), tickformat=".0%", nticks=6),
        right=120,
        annotations=end_labels(ends, reach, HEIGHT - 64),
    )
    passages = floats(found["variance_dots"]).reshape(strength.size, -1).shape[1]
    mean = floats(found["variance_mean"])
    grown = f" from {mean[0]:.1%} to {mean[-1]:.1%}" if np.isfinite(mean[[0, -1]]).all() else ""
    control = floats(found["norm_only_mean"])
    only = f", a longer vector alone to {control[-1]:.1%}" if np.isfinite(control[-1]) else ""
    turned = floats(found["random_direction_mean"])
    only += f", a random direction to {turned[-1]:.1%}" if np.isfinite(turned[-1]) else ""
    text = f"At layer {found['layer']}, over {passages} texts, more variance moves the mean{grown}{only}. Single texts (dots) vary widely."
    return Figure("sweep", "A direction or a length: what does the detector read?", traces, plot, text, "wide", height=HEIGHT)
