"""The raw signals under the index, the two ways to count side by side, the prompt in sight, and repetition."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._fatigue_index_marks import ASKED, CALIBRATED, REST, most, steps, token_axis, word
from app.pages._fatigue_index_text import times
from app.plotting import Figure, Trace, alpha, axis, bars, end_labels, floats, key_row, label, layout, line, rule, scatter, stacked_when_narrow

PLOT_PX, HEIGHT = 250, 330
RIGHT = 108
SEVERE = 0.6
LEAST = 1e-4  # share of attention at the foot of the log axis
SHARES = np.array([1e-4, 1e-3, 1e-2, 0.1, 1.0])


def compared(data: Mapping[str, Any], params: Any) -> Figure:
    """Left the paper's constants, right those calibrated on this model; each with and without token 0."""
    found = data["compared"]
    traces: list[Trace] = []
    notes: list[dict[str, Any]] = []
    places = {"paper": ("x", "y", 0.0), "calibrated": ("x2", "y2", 0.56)}
    for name, (x, y, left) in places.items():
        if name not in found:
            notes.append(label(left, 1, f"{name}: measured when the text is written", "$muted", xref="paper", yref="paper", yanchor="bottom", shift=(0, 6)))
            continue
        for key, words, colour, width in ((f"{name}_rest", "without token 0", REST, 1.75), (name, "with token 0", ASKED, 2.75)):
            values = floats(found[key]["smoothed"])
            traces.append(line(steps(values), values, words, colour, width=width, hover=f"{words}: %{{y:.3f}}", xaxis=x, yaxis=y))
        band = data["constants"][name]
        flips = found[name]["flips"]
        said = f"<b>{'Paper' if name == 'paper' else 'Calibrated here'}</b>: band {band['low']:.1f} to {band['high']:.1f}, \u03ba {band['kappa']:.0f}"
        said += f"<br>flips {flips[0]} plain, {flips[1]} alarm"
        notes.append(label(left, 1, said, "$ink", xref="paper", yref="paper", yanchor="bottom", shift=(0, 6)))
    notes += [
        label(0.02, 0.97, "thick: with token 0", ASKED, xref="x domain", yref="y domain"),
        label(0.02, 0.9, "dotted: without it", REST, xref="x domain", yref="y domain"),
    ]
    shapes = [_level(at, x, y, dash) for x, y in (("x", "y"), ("x2", "y2")) for at, dash in ((params.theta, "solid"), (params.theta_low, "dash"))]
    narrow = stacked_when_narrow(notes, 0.5)
    plot = layout(
        token_axis(data) | {"domain": [0, 0.44]},
        axis("smoothed index", "no unit", range=[0, 1.25], tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1]),
        top=52,
        xaxis2=token_axis(data, anchor="y2") | {"domain": [0.56, 1]},
        yaxis2=axis("smoothed index", "no unit", range=[0, 1.25], tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1], anchor="x2"),
        annotations=notes,
        shapes=shapes,
        meta=narrow,
    )
    return Figure("compared", "Two sets of constants, one text", traces, plot, _compared_summary(found), "wide", height=360)


def _level(at: float, x: str, y: str, dash: str) -> dict[str, Any]:
    ends = {"x0": 0, "x1": 1, "xref": f"{x} domain", "y0": at, "y1": at, "yref": y}
    return {"type": "line", "name": "threshold", **ends, "line": {"color": alpha("$ink", 0.6), "width": 1, "dash": dash}}


def _compared_summary(found: Mapping[str, Any]) -> str:
    said = f"Mean index by the paper's constants {found['paper']['mean']:.2f}, without token 0 {found['paper_rest']['mean']:.2f}"
    if "calibrated" in found:
        said += f"; calibrated on this model {found['calibrated']['mean']:.2f}, without token 0 {found['calibrated_rest']['mean']:.2f}"
    return said + ". The text is the same."


def attention(data: Mapping[str, Any]) -> Figure:
    """A over the slice, how much of it goes to token 0, and what is left without that."""
    start, stop, dropped = data["slice"]
    a, first = floats(data["signals"]["attention"]), floats(data["signals"]["attention_first"])
    at = steps(a)
    if start == 0:
        whole, rest = (a + first, a) if dropped else (a, a - first)
        curves = [
            (first, "token 0 alone", "$peer-3"),
            (rest, "without token 0", ASKED if dropped else REST),
            (whole, "whole slice", REST if dropped else ASKED),
        ]
    else:
        curves = [(first, "token 0 alone", "$peer-3"), (a, "your words", ASKED)]
    traces = [line(at, y, name, colour, width=3 if colour == ASKED else 1.75, hover=f"{name}: %{{y:.1%}}") for y, name, colour in curves]
    notes = end_labels([(float(y[-1]), name, colour) for y, name, colour in curves], (0, 1.02), PLOT_PX)
    plot = layout(token_axis(data), axis("attention received", "share", range=[0, 1.02], tickformat=".0%"), right=RIGHT, annotations=notes)
    summary = f"The last layer gives {a[-1]:.0%} to the counted slice (prompt tokens {int(start)} to {int(stop) - 1}{', token 0 left out' if dropped else ''})"
    return Figure("attention", "Attention to the prompt", traces, plot, f"{summary}, and {first[-1]:.0%} to token 0.", height=HEIGHT)


def entropy(data: Mapping[str, Any]) -> Figure:
    """E with both bands; the drawn tokens' own surprise beside it."""
    e, nll = floats(data["signals"]["entropy"]), floats(data["signals"]["nll"])
    at, used = steps(e), data["constants"]["asked"]
    top = max(7.0, float(e.max()) * 1.08)
    shapes = [_band(used, alpha("$method", 0.16), "band")]
    notes = [label(1, (used["low"] + used["high"]) / 2, "healthy band", ASKED, xref="paper", shift=(6, 0))]
    if "calibrated" in data["constants"]:
        own = data["constants"]["calibrated"]
        shapes.append(_band(own, "rgba(0,0,0,0)", "calibrated") | {"line": {"color": CALIBRATED, "width": 1, "dash": "dot"}})
        notes.append(label(1, own["low"], "dotted: calibrated", CALIBRATED, xref="paper", shift=(6, 0)))
    traces = [
        scatter(at, np.minimum(nll, top), "surprise", alpha("$peer-3", 0.6), size=4, edge=0, hover="surprise of the drawn token: %{y:.2f} nats"),
        line(at, e, "entropy", ASKED, width=2, hover="entropy: %{y:.2f} nats"),
    ]
    inside = float(((e >= used["low"]) & (e <= used["high"])).mean())
    below = float((e < used["low"]).mean())
    notes += key_row(("line: entropy", ASKED), ("dots: surprise of the drawn token", "$peer-3"))
    plot = layout(token_axis(data), axis("uncertainty", "nats", range=[0, top]), right=RIGHT + 6, top=30, annotations=notes, shapes=shapes)
    summary = f"{inside:.0%} of the tokens lie in the healthy band and {below:.0%} below it; mean entropy {e.mean():.2f} nats, mean surprise {nll.mean():.2f}."
    return Figure("entropy", "Entropy of the next token", traces, plot, summary, height=HEIGHT)


def _band(found: Mapping[str, Any], fill: str, name: str) -> dict[str, Any]:
    ends = {"x0": 0, "x1": 1, "xref": "paper", "y0": found["low"], "y1": found["high"], "yref": "y"}
    return {"type": "rect", "name": name, **ends, "fillcolor": fill, "line": {"width": 0}, "layer": "below"}


def drift(data: Mapping[str, Any], params: Any) -> Figure:
    """D with the scales at which its penalty is full."""
    d = floats(data["signals"]["drift"])
    used = float(data["constants"]["asked"]["kappa"])
    ends = [(used, f"\u03ba = {used:.0f}", ASKED)]
    shapes = [rule(used, "kappa", alpha("$method", 0.8), across="y")]
    if "calibrated" in data["constants"]:
        own = float(data["constants"]["calibrated"]["kappa"])
        ends.append((own, f"calibrated {own:.0f}", CALIBRATED))
        shapes.append(rule(own, "calibrated", CALIBRATED, across="y", dash="dot"))
    top = 1.12 * max(float(d.max()), *(y for y, *_ in ends))
    traces = [line(steps(d), d, "drift", ASKED, width=2.5, hover="drift: %{y:.1f}")]
    plot = layout(
        token_axis(data),
        axis("drift from the prompt's end", "distance", range=[0, top]),
        right=RIGHT,
        annotations=end_labels(ends, (0, top), PLOT_PX),
        shapes=shapes,
    )
    full = float((d >= used).mean())
    summary = f"The state {params.state} the final norm stands {d[-1]:.0f} from where it was; its penalty is full at {full:.0%} of the tokens."
    return Figure("drift", "Drift of the hidden state", traces, plot, summary, height=HEIGHT)


def flips(data: Mapping[str, Any]) -> Figure:
    """How often each alarm changed its state."""
    counts = [int(data["flips"]["threshold"]), int(data["flips"]["hysteresis"])]
    names, colours = ["plain threshold", "alarm with hysteresis"], ["$peer-1", "$warning"]
    trace = bars(names, counts, "flips", "$peer-1", width=0.5, hover="%{y} flips at %{x}") | {"marker": {"color": colours, "line": {"width": 0}}}
    notes = [
        label(name, count, f"<b>{count}</b>", colour, anchor="center", yanchor="bottom", shift=(0, 2))
        for name, count, colour in zip(names, counts, colours, strict=True)
    ]
    plot = layout(
        axis("alarm (no unit)", type="category"), axis("changes of state", "count", range=[0, max(4, 1.2 * max(counts))], nticks=6), annotations=notes
    )
    summary = f"On the same index the plain threshold changed {times(counts[0])}, the alarm with two levels {times(counts[1])}."
    return Figure("flips", "How often does the alarm flicker?", [trace], plot, summary, height=HEIGHT)


def prompt(data: Mapping[str, Any]) -> Figure:
    """What the newest token's attention gives to each prompt token; the sink and the counted slice are marked."""
    row, texts = floats(data["row"]), data["prompt"]["text"]
    start, stop, dropped = (int(x) for x in data["slice"])
    at = np.arange(row.size).astype(np.uint16)
    counted = (at >= start + (dropped and start == 0)) & (at < stop)
    colours = ["$ink" if i == 0 else ASKED if inside else "$peer-3" for i, inside in enumerate(counted)]
    shown = [f"{word(text)} ({i}): {value:.1%}" for i, (text, value) in enumerate(zip(texts, row, strict=True))]
    trace = bars(at, row, "attention", ASKED, width=0.9, hover="%{text}", text=shown, textposition="none") | {
        "marker": {"color": colours, "line": {"width": 0}}
    }
    notes = [label(0, math.log10(max(float(row[0]), LEAST)), "sink: token 0", "$ink", yanchor="bottom", shift=(-4, 2))]
    own = data["prompt"]
    words = {"type": "rect", "name": "words", "x0": own["start"] - 0.5, "x1": own["stop"] - 0.5, "xref": "x", "y0": 0, "y1": 1, "yref": "paper"}
    shapes = [words | {"fillcolor": alpha("$method", 0.07), "line": {"width": 0}, "layer": "below"}]
    notes.append(label((own["start"] + own["stop"] - 1) / 2, 1, "your words", "$muted", anchor="center", yref="paper", yanchor="bottom", shift=(0, 2)))
    plot = layout(
        axis("prompt token", "position", range=[-0.9, row.size - 0.1], showgrid=False),
        axis("attention received", "share, log scale", type="log", range=[math.log10(LEAST), 0], tickvals=SHARES, ticktext=[f"{x:.4g}%" for x in 100 * SHARES]),
        top=24,
        annotations=notes,
        shapes=shapes,
    )
    inside = float(row[own["start"] : own["stop"]].sum())
    newest = data["tokens"][-1].strip() or "space"
    summary = f"Before \u201c{newest}\u201d the model gave {row[0]:.0%} to token 0 and {inside:.0%} to your own words."
    return Figure("prompt", "What the newest token still sees of the prompt", [trace], plot, summary, height=HEIGHT)


def repetition(data: Mapping[str, Any]) -> Figure:
    """The text-only alarm: the share of 4-grams that had stood earlier."""
    ratio = floats(data["signals"]["repetition"])
    top = max(0.7, 1.1 * float(ratio.max()))
    notes = end_labels([(float(ratio[-1]), f"{ratio[-1]:.0%}", ASKED), (SEVERE, "severe", "$warning")], (0, top), PLOT_PX)
    trace = line(steps(ratio), ratio, "repetition", ASKED, width=2.5, hover="%{y:.1%} at token %{x}")
    plot = layout(
        token_axis(data),
        axis("4-grams seen before", "share", range=[0, top], tickformat=".0%"),
        right=64,
        annotations=notes,
        shapes=[rule(SEVERE, "severe", "$warning", across="y")],
    )
    summary = f"{ratio[-1]:.0%} of the 4-grams had stood earlier in the text; the paper calls 60 % severe."
    return Figure("repetition", "Does the text repeat itself?", [trace], plot, summary, height=HEIGHT)


def temperature(data: Mapping[str, Any]) -> Figure:
    """ERD at work: the temperature with which each token was drawn."""
    t = floats(data["signals"]["temperature"])
    plot = layout(token_axis(data), axis("temperature", "no unit", range=[0, 1.6]))
    trace = line(steps(t), t, "temperature", ASKED, width=2.5, hover="T = %{y:.2f} at token %{x}")
    summary = f"ERD, companion paper: the temperature goes from {t[0]:.2f} to {t[-1]:.2f}, towards an entropy of 4.4 nats. Room for {most(data)} tokens."
    return Figure("temperature", "The steered temperature (companion paper)", [trace], plot, summary, height=HEIGHT)
