"""Head-wise RMSNorm: one block with and without it, and the small models that were trained either way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._sink_tokens import decades, finite, in_decades, log_ticks
from app.plotting import Figure, Trace, axis, downsample_minmax, end_labels, floats, layout, line, log_axis

HEIGHT = 320  # px
SHOWN = 100  # points of a curve
ARM_COLOURS = {"headnorm": "$method", "baseline": "$peer-1", "sigmoid": "$peer-2"}
ROWS = (
    ("sink", "attention on<br>first word (share)", (0.72, 1.0)),
    ("rank", "effective<br>rank (count)", (0.36, 0.64)),
    ("dominance", "largest /<br>mean (ratio)", (0.0, 0.28)),
)


def block_experiment(data: Mapping[str, Any]) -> Figure | None:
    found = data.get("headnorm")
    if not found:
        return None
    at = floats(found["position"]) + 1
    traces: list[Trace] = []
    ends = []
    for key, words, colour, dash in (
        ("theory", "theory \u03c3/\u221at", "$truth", "dash"),
        ("plain", "plain", "$peer-1", "solid"),
        ("normalised", "head-wise norm", "$method", "solid"),
    ):
        x, y = downsample_minmax(at, floats(found[key]), SHOWN)
        traces.append(line(x, y, words, colour, hover=f"{words}: %{{y:.3g}} for word number %{{x}}", dash=dash))
        if np.isfinite(y).any():
            ends.append((float(y[np.isfinite(y)][-1]), words, colour))
    values = finite(traces)
    reach, across = decades(values), decades(at, pad=0.02)
    plot = layout(
        axis("number of words it can see", "count, log scale", type="log", range=list(across), showgrid=False, **log_ticks(across)),
        log_axis("spread of o", "standard deviation, log scale", values, range=list(reach), **log_ticks(reach)),
        right=116,
        annotations=end_labels(in_decades(ends), reach, HEIGHT - 64),
    )
    plain, normalised = (floats(found[key]) for key in ("plain", "normalised"))
    falls = f"from word 1 to word {at.size} the plain spread falls to {plain[-1] / plain[0]:.0%}"
    summary = f"A random block: {falls}, with head-wise RMSNorm {normalised[-1] / normalised[0]:.0%} of it remains."
    return Figure("headnorm", "The remedy: normalise each head", traces, plot, summary, height=HEIGHT)


def _arms(data: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any], str]]:
    arms = data.get("pretraining", {}).get("arms", {})
    return [(arm, found, ARM_COLOURS.get(arm, "$peer-3")) for arm, found in arms.items()]


def pretraining(data: Mapping[str, Any]) -> Figure | None:
    traces: list[Trace] = []
    ends = []
    for arm, found, colour in _arms(data):
        step, loss = downsample_minmax(floats(found["step"]), floats(found["loss"]), SHOWN)
        traces.append(line(step, loss, arm, colour, width=1.75, hover=f"{arm}: %{{y:.3f}} at step %{{x}}"))
        ends.append((float(loss[-1]), arm, colour))
    if not traces:
        return None
    values = finite(traces)
    low, high = float(values.min()), float(np.quantile(values, 0.97))
    reach = (low - 0.04 * (high - low), high + 0.04 * (high - low))  # the first steps would flatten the rest
    plot = layout(
        axis("training step", "count", showgrid=False, nticks=6),
        axis("loss", "nats a token", range=list(reach)),
        right=88,
        annotations=end_labels(ends, reach, HEIGHT - 64),
    )
    said = ", ".join(f"{arm} {y:.3f}" for y, arm, _ in ends)
    return Figure("pretraining", "Trained with and without it", traces, plot, f"Small models that we trained; last loss: {said}.", height=HEIGHT)


def pretraining_layers(data: Mapping[str, Any]) -> Figure | None:
    arms = _arms(data)
    rows = [row for row in ROWS if any(row[0] in found for _, found, _ in arms)]
    if not rows:
        return None
    traces: list[Trace] = []
    notes: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    height = 400
    for number, (key, title, domain) in enumerate(rows):
        suffix = "" if number == 0 else str(number + 1)
        ends = []
        for arm, found, colour in arms:
            values = floats(found.get(key, []))
            if not np.isfinite(values).any():
                continue
            drawn = line(np.arange(values.size), values, arm, colour, width=1.75, yaxis=f"y{suffix}", hover=f"{arm}: %{{y:.3g}} at layer %{{x}}")
            traces.append(drawn | {"mode": "lines+markers", "marker": {"color": colour, "size": 6, "symbol": "circle"}})
            ends.append((float(values[np.isfinite(values)][-1]), arm, colour))
        seen = finite(t for t in traces if t["yaxis"] == f"y{suffix}")
        reach = (min(0.0, float(seen.min(initial=0))), 1.1 * float(seen.max(initial=1e-3)))
        axes[f"yaxis{suffix}"] = axis(title, domain=domain, range=list(reach), nticks=4)
        notes += end_labels(ends, reach, (height - 64) * (domain[1] - domain[0]), yref=f"y{suffix}")
    deepest = max((int(t["x"][-1]) for t in traces), default=0)
    last = "y" if len(rows) == 1 else f"y{len(rows)}"
    plot = layout(
        axis("layer", "index", showgrid=False, anchor=last, dtick=max(1, math.ceil(deepest / 8))),
        axes.pop("yaxis"),
        right=88,
        annotations=notes,
        **axes,
    )
    said = _said(arms)
    return Figure("pretraining_layers", "What became of sink, rank and large channels", traces, plot, said, height=height)


def _said(arms: list[tuple[str, Mapping[str, Any], str]]) -> str:
    parts = [f"{arm} {float(np.nanmax(floats(found['sink']))):.1%}" for arm, found, _ in arms if "sink" in found and len(found["sink"])]
    if not parts:
        return "The trained models, layer by layer."
    return f"In the models we trained, the largest share that the first word receives in any layer: {', '.join(parts)}."
