"""Who looks at whom: the attention of one layer as a map, before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._sink_tokens import TARGET, changed, coarse, tag
from app.plotting import Figure, Trace, alpha, axis, heatmap, label, layout

# Most shares are a few percent: a colour in proportion to the root keeps them visible beside a sink.
ROOT_SCALE = [[0, alpha(TARGET, 0)], [0.01, alpha(TARGET, 0.1)], [0.09, alpha(TARGET, 0.3)], [0.36, alpha(TARGET, 0.6)], [1, TARGET]]
SIDES = ((0.0, 0.46), (0.54, 1.0))


def attention_map(data: Mapping[str, Any]) -> Figure | None:
    found, tokens = data.get("map"), data["tokens"]
    if not found:
        return None
    kinds = [key for key in ("before", "after") if key in found]
    length, layer, head = len(tokens["text"]), data["layer"], data.get("head")
    traces: list[Trace] = []
    shapes: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    for number, key in enumerate(kinds):
        suffix = "" if number == 0 else "2"
        matrix, at = coarse(found[key], found["positions"])
        wide = float(np.diff(at).min()) if at.size > 1 else 1.0
        centre = at + (wide - 1) / 2
        # Whole percents in one byte each: two maps of floats would be most of a frame.
        percent = np.round(100 * matrix).clip(0, 100).astype(np.uint8)
        bar = {"title": {"text": "%"}, "thickness": 10, "outlinewidth": 0}
        drawn = heatmap(centre, centre, percent, key, hover=f"%{{y:.0f}} looks at %{{x:.0f}}: %{{z}}% {key}", colorscale=ROOT_SCALE, colorbar=bar)
        traces.append(drawn | {"zmin": 0, "zmax": 100, "showscale": number == len(kinds) - 1, "xaxis": f"x{suffix}", "yaxis": f"y{suffix}"})
        for position in changed(tokens):
            shapes += _outline(position, length, wide, suffix)
        for position in changed(tokens)[:1]:
            # Above the diagonal nothing is drawn: the name stands where the row of the word ends.
            notes.append(label(position + wide, position, f"<b>{tag(tokens, position)}</b>", "$ink", xref=f"x{suffix}", yref=f"y{suffix}", shift=(4, 0)))
        side = SIDES[number] if len(kinds) > 1 else (0.0, 1.0)
        notes.append(label(sum(side) / 2, 1, key, "$ink", anchor="center", xref="paper", yref="paper", yanchor="bottom", shift=(0, 4)))
        edge = [-0.5, length - 0.5]
        axes[f"xaxis{suffix}"] = axis("attended", "position", range=edge, showgrid=False, anchor=f"y{suffix}", nticks=5) | {"domain": list(side)}
        axes[f"yaxis{suffix}"] = axis("attending", "position", range=edge[::-1], showgrid=False, anchor=f"x{suffix}", nticks=5)
    if "yaxis2" in axes:
        axes["yaxis2"] |= {"showticklabels": False, "title": {"text": "attending (position)", "font": {"size": 1, "color": alpha("$ink", 0)}}}
    plot = layout(axes.pop("xaxis"), axes.pop("yaxis"), right=72, top=28, shapes=shapes, annotations=notes, **axes)
    which = "mean of all heads" if head is None else f"head {head}"
    blocks = "" if len(traces[0]["x"]) == length else " Long texts are drawn in blocks, each with its largest share."
    summary = f"Each row shares out one word\u2019s attention at layer {layer}, {which}: a sink is a full column.{blocks}"
    return Figure("map", f"Who looks at whom at layer {layer}", traces, plot, summary, "wide", height=420)


def _outline(position: int, length: int, wide: float, suffix: str) -> list[dict[str, Any]]:
    """Frames around the row and the column of one token."""
    style = {"type": "rect", "xref": f"x{suffix}", "yref": f"y{suffix}", "line": {"color": "$ink", "width": 1.25}, "editable": False}
    low, high = position - 0.5, position - 0.5 + wide
    row = {"name": "row", "x0": -0.5, "x1": high, "y0": low, "y1": high}
    column = {"name": "column", "x0": low, "x1": high, "y0": low, "y1": length - 0.5}
    return [style | row, style | column]
