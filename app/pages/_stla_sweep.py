"""The main picture of stla, and what goes on inside the cluster that is being learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.plotting import Figure, Trace, alpha, axis, bars, floats, heatmap, key_row, label, layout, line, rule

REMAINS, LOCAL, NEAREST = "$method", "$peer-1", "$peer-2"
COLUMNS = 576  # of most matrices of the bundled model
PER_STEP = 50  # int8 units of one step of the grid
# Up and down in two hues from nothing; errors beyond half a step are compensation.
ERROR_SCALE = [[0, "$ink"], [0.5, alpha("$ink", 0)], [0.5, alpha("$method", 0)], [1, "$method"]]
HEAT, BARS, STACK = (0.0, 0.46), (0.57, 0.82), (0.91, 1.0)
HALF_PX = 360


def sweep(data: Mapping[str, Any], params: Any) -> Figure:
    """The error matrix filling from the left, two bars a cluster beside it, and the bar that the remaining errors add up to."""
    heat, found = data.get("heat"), data.get("clusters")
    title = {
        "global": "Rounding by what will remain, cluster after cluster",
        "local": "Rounding by what is seen now, cluster after cluster",
    }[params.objective]
    # Before the first cluster the axes stand already: the last run's ghosts lie on them.
    done, columns = (int(heat["done"]), int(heat["columns"])) if heat else (0, COLUMNS)
    local, remaining = (floats(found[name]) if found else np.array([]) for name in ("local", "remaining"))
    traces = [*([_error(heat, columns)] if heat else []), *_two_bars(local, remaining), *_stack(remaining)]
    total = float(remaining.sum())
    top = 1.1 * max(float(np.max(np.r_[local, remaining], initial=0)), 1e-12)
    count = -(-columns // int(params.cluster))
    measured = floats(data["cumulative"]["measured"]) if "cumulative" in data else np.array([])
    height = 1.15 * max(total, float(measured[-1]) if measured.size else 0.0, 1e-12)
    matrix = f"{data['matrix']}: " if "matrix" in data else ""
    notes = [
        label(0, 1, f"{matrix}error in steps of the grid", "$ink", xref="paper", yref="paper", yanchor="bottom", shift=(0, 6)),
        label(BARS[0], 1, "seen locally", LOCAL, xref="paper", yref="paper", yanchor="bottom", shift=(0, 22)),
        label(BARS[0], 1, "truly remains", REMAINS, xref="paper", yref="paper", yanchor="bottom", shift=(0, 6)),
        label(STACK[0], 1, "adds up", REMAINS, xref="paper", yref="paper", yanchor="bottom", shift=(-24, 22)),
        label(STACK[0], 1, "measured", "$truth", xref="paper", yref="paper", yanchor="bottom", shift=(-24, 6)),
    ]
    shapes = []
    if 0 < done < columns:
        shapes.append(rule(done - 0.5, "done", "$ink", dash="solid", width=2))
    if measured.size and remaining.size:
        ends = {"x0": -0.75, "x1": 0.75, "y0": float(measured[-1]), "y1": float(measured[-1]), "xref": "x3", "yref": "y3"}
        shapes.append({"type": "line", "name": "measured", **ends, "line": {"color": "$truth", "width": 2.5}})
    plot = layout(
        axis("column, as rounded", "index", range=[-0.5, columns - 0.5], showgrid=False, nticks=6) | {"domain": list(HEAT)},
        axis("row of the matrix", "index", showgrid=False, nticks=6),
        right=20,
        top=48,
        xaxis2=axis("cluster", "number", range=[0.4, count + 0.6], showgrid=False, anchor="y2", nticks=7, tickformat="d") | {"domain": list(BARS)},
        yaxis2=axis("error", "squared output", range=[0, top], anchor="x2", nticks=6),
        xaxis3={"title": {"text": "sum (count 1)", "font": {"color": alpha("$ink", 0)}}, "domain": list(STACK), "range": [-0.75, 0.75], "showticklabels": False}
        | {"showgrid": False, "zeroline": False, "anchor": "y3"},
        yaxis3=axis("loss", "squared output", range=[0, height], anchor="x3", nticks=6),
        barmode="overlay",
        shapes=shapes,
        annotations=notes,
        meta=_narrow(notes),
    )
    summary = _summary(data, params, count) if found else "The text is being read; no cluster is rounded yet."
    return Figure("sweep", title, traces, plot, summary, "main", height=520)


def _narrow(notes: list[dict[str, Any]]) -> dict[str, Any]:
    """On a phone the matrix stands above, both bar charts below it side by side."""
    moved = [notes[0]]
    for note, x, dx in zip(notes[1:], (0, 0, 0.8, 0.8), (0, 0, -24, -24), strict=True):
        moved.append(note | {"x": x, "y": 0.4, "xshift": dx})
    axes = {"xaxis": {"domain": [0, 1]}, "yaxis": {"domain": [0.62, 1]}, "xaxis2": {"domain": [0, 0.6]}, "yaxis2": {"domain": [0, 0.4]}}
    axes |= {"xaxis3": {"domain": [0.82, 1]}, "yaxis3": {"domain": [0, 0.4]}}
    return {"narrow": {**axes, "annotations": moved, "meta": {"height": 640}}}


def _error(heat: Mapping[str, Any], columns: int) -> Trace:
    rows = np.asarray(heat["rows"])
    error = np.asarray(heat["error"], np.int8)
    drawn = heatmap(np.arange(columns), rows, error, "error", hover="row %{y}, column %{x}: %{z} / 50 of a step", colorscale=ERROR_SCALE)
    return drawn | {"zmin": -PER_STEP, "zmax": PER_STEP, "showscale": False}


def _two_bars(local: np.ndarray, remaining: np.ndarray) -> list[Trace]:
    number = np.arange(1, local.size + 1)
    on: dict[str, Any] = {"xaxis": "x2", "yaxis": "y2"}
    return [
        bars(number - 0.2, local, "local", LOCAL, width=0.38, hover="seen locally: %{y:.4g}", **on),
        bars(number + 0.2, remaining, "remaining", REMAINS, width=0.38, ghost=True, hover="truly remains: %{y:.4g}", **on),
    ]


def _stack(remaining: np.ndarray) -> list[Trace]:
    """One bar of all clusters, alternately lighter, so that each can be told from the next."""
    base = np.r_[0.0, remaining.cumsum()[:-1]] if remaining.size else remaining
    shades = [alpha(REMAINS, 0.95 if i % 2 else 0.6) for i in range(remaining.size)]
    drawn = bars(np.zeros(remaining.size), remaining, "sum", REMAINS, width=1, hover="%{y:.4g} of a cluster", base=base, xaxis="x3", yaxis="y3")
    return [drawn | {"marker": {"color": shades, "line": {"width": 0}}}]


def _summary(data: Mapping[str, Any], params: Any, count: int) -> str:
    found = data["clusters"]
    local, remaining = floats(found["local"]), floats(found["remaining"])
    what = f" of {data['matrix']}" if "matrix" in data else ""
    if not remaining.size:
        return f"The first of {count} clusters{what} is being learned."
    text = f"{remaining.size} of {count} clusters{what} are rounded; "
    text += f"as seen locally their errors sum to {local.sum():.4g}, what remains of them to {remaining.sum():.4g}."
    apart = data["cumulative"]["measured"] if "cumulative" in data else []
    if len(apart) and not params.asymmetric_correction:
        text += f" The loss measured is {floats(apart)[-1]:.4g}: the bars add up to it."
    return text


def learning(data: Mapping[str, Any]) -> Figure | None:
    """Both terms of the objective in the newest cluster, step by step."""
    found = data.get("learning")
    if found is None or not len(found["iteration"]):
        return None
    step, recon, penalty = (floats(found[name]) for name in ("iteration", "recon", "penalty"))
    traces = [
        line(step, penalty, "regulariser", "$peer-1", hover="λ times the penalty: %{y:.4g}"),
        line(step, np.maximum(recon, 1e-12), "error", REMAINS, width=3, yaxis="y2", hover="error: %{y:.4g}"),
    ]
    plot = layout(
        axis("step", "iteration"),
        axis("regulariser", "λ × open weights", rangemode="tozero", nticks=5),
        right=64,
        top=30,
        yaxis2=axis("error", "squared output", overlaying="y", side="right", anchor="x", rangemode="tozero", showgrid=False, nticks=5),
        annotations=key_row(("error", REMAINS), ("regulariser", "$peer-1")),
    )
    summary = f"Cluster {int(found['cluster']) + 1}: the regulariser sets in after a fifth of the steps; the error ends at {recon[-1]:.4g}."
    return Figure("learning", "The regulariser pushes, the metric steers", traces, plot, summary, height=HALF_PX)


def soft(data: Mapping[str, Any]) -> Figure | None:
    """How far the newest cluster is decided."""
    found = data.get("learning")
    if found is None or not len(found["iteration"]):
        return None
    count, edges = floats(found["soft"]), floats(found["edges"])
    centre = (edges[:-1] + edges[1:]) / 2
    traces = [bars(centre, count, "weights", REMAINS, width=0.9 * float(np.diff(edges)[0]), hover="%{y} weights at %{x:.2f}")]
    plot = layout(axis("h(V): 0 is down, 1 is up", "share of a step", range=[0, 1]), axis("weights", "count", rangemode="tozero"))
    decided = (count[0] + count[-1]) / max(1.0, count.sum())
    return Figure("soft", "Soft roundings become decisions", traces, plot, f"{decided:.0%} of the newest cluster\u2019s weights are decided.", height=HALF_PX)


def cumulative(data: Mapping[str, Any], params: Any) -> Figure | None:
    """The sum of what each cluster leaves beside the loss of the weights as they stand."""
    found = data.get("cumulative")
    if found is None or not len(found["measured"]):
        return None
    predicted, measured = floats(found["predicted"]), floats(found["measured"])
    number = np.arange(1, measured.size + 1)
    traces = [
        line(number, measured, "measured", alpha("$truth", 0.35), width=9, hover="measured: %{y:.6g}"),
        line(number, predicted, "predicted", REMAINS, mode="lines+markers", hover="predicted: %{y:.6g}"),
    ]
    plot = layout(
        axis("clusters rounded", "count", nticks=8, tickformat="d"),
        axis("loss", "squared output", rangemode="tozero"),
        top=30,
        annotations=key_row(("predicted by telescoping", REMAINS), ("measured", "$truth")),
    )
    if params.asymmetric_correction:
        summary = "With the asymmetric correction weights move for another reason too: sum and loss are not equal."
    else:
        off = float(np.max(np.abs(predicted - measured) / np.maximum(measured, 1e-300)))
        summary = f"Predicted and measured loss differ by at most {off:.0e} of it."
    return Figure("cumulative", "Predicted and measured loss", traces, plot, summary, height=HALF_PX)
