"""What the weights decide: rows by redundancy, directions by energy, k exact and estimated; and what the choice is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._plate_change import _short
from app.pages._plate_marks import HALF_PLOT_PX, lost, name_of, raced
from app.plotting import Figure, Panel, alpha, axis, bars, end_labels, floats, heatmap, key_row, label, layout, line, rule, scatter

LEVELS = 255
BRIGHTEST = 60  # per cent of |cos| at full colour
CONTROL_COLOURS = {"PLATE": "$method", "random Q": "$peer-1", "random rows": "$peer-2", "top-energy Q": "$warning"}


def scores(data: Mapping[str, Any]) -> Figure:
    """Histogram of the rows' redundancy, those that may move in colour."""
    found = data["shown"]
    edges = floats(found["edges"])
    centre, width = (edges[:-1] + edges[1:]) / 2, np.diff(edges) * 0.94
    moving, staying = floats(found["moving"]), floats(found["staying"])
    traces = [
        bars(centre, staying, "stay", alpha("$muted", 0.55), width=width, hover="%{y} rows stay"),
        bars(centre, moving, "may move", "$method", width=width, hover="%{y} rows may move"),
    ]
    plot = layout(
        axis("redundancy, mean |cos| with all rows", "relative"),
        axis("rows", "count"),
        top=30,
        barmode="stack",
        annotations=key_row(("■ may move  ", "$method"), ("■ stay frozen", "$muted")),
    )
    summary = f"Layer {found['name']}: {found['rows']} of {found['d_out']} rows may move; the least redundant of them scores {found['cut']:.3f}."
    return Figure("scores", "Which neurons repeat others", traces, plot, summary, height=380)


def cosines(data: Mapping[str, Any]) -> Figure:
    """|cos| of all pairs of rows, the most redundant first."""
    found = data["shown"]
    matrix = np.asarray(found["cosines"])
    at = 1 + np.arange(len(matrix)) * (found["d_out"] / len(matrix))
    percent = np.round(100 * matrix.astype(float) / LEVELS).astype(np.uint8)
    drawn = heatmap(at, at, percent, "cosine", unit="|cos|, %", hover="|cos| %{z} %", zmin=0, zmax=BRIGHTEST)
    plot = layout(
        axis("row by redundancy", "rank", showgrid=False),
        axis("row by redundancy", "rank", autorange="reversed", showgrid=False),
        right=56,
    )
    upper = matrix[np.triu_indices(len(matrix), 1)] / LEVELS
    summary = f"How alike the rows of layer {found['name']} are, the most redundant first: |cos| is {upper.mean():.2f} in the mean, {upper.max():.2f} at most."
    return Figure("cosines", "How alike the rows are", [drawn], plot, summary, height=380)


def energy(data: Mapping[str, Any]) -> Figure:
    """Cumulative energy of the frozen rows with the fence τ, which can be dragged."""
    found = data["shown"]
    cumulative = floats(found["cumulative"])
    count = np.arange(len(cumulative))
    n_high, tau = found["n_high"], found["tau"]
    traces = [
        line(count[: n_high + 1], cumulative[: n_high + 1], "fenced", "$truth", width=2.5, hover="%{x} directions hold %{y:.1%}"),
        line(count[n_high:], cumulative[n_high:], "allowed", "$method", width=3, hover="%{x} directions hold %{y:.1%}"),
        scatter([n_high], [cumulative[n_high]], "n_high", "$ink", size=9, edge=0, hover=f"{n_high} directions hold %{{y:.1%}}"),
    ]
    shapes = [rule(tau, "tau", "$ink", across="y", editable=True), rule(float(n_high), "fence", "$grid", dash="solid", width=1, layer="below", editable=False)]
    notes = [
        label(0.02, tau, f"τ = {tau:.2f}, drag", "$ink", xref="x domain", yanchor="bottom", shift=(0, 3)),
        label(n_high, 0.06, f"{n_high} fenced ", "$truth", anchor="right", shift=(-6, 0)),
        label(n_high, 0.06, f"k = {found['k']}", "$method", shift=(6, 0)),
    ]
    if n_high < 0.25 * found["d_in"]:
        notes[1] |= {"x": n_high, "xanchor": "left", "xshift": 6, "y": 0.16}
    plot = layout(
        axis("input directions by energy", "count", range=[0, found["d_in"]]),
        axis("energy of the frozen rows", "share", range=[0, 1.03]),
        annotations=notes,
        shapes=shapes,
        meta={"editable": True},
    )
    summary = f"Layer {found['name']}: {n_high} of {found['d_in']} directions hold {tau:g}; PLATE may use {found['k']} of the others. Drag the line τ."
    return Figure("energy", "Which directions are hardly read", traces, plot, summary, height=380)


def widths(data: Mapping[str, Any]) -> Figure:
    """k of each layer: exact, and as 2, 16 and 64 probes estimate it."""
    layers = data["layers"]
    names = [_short(row["name"]) for row in layers]
    at = np.arange(len(layers))
    probes = list(layers[0]["estimates"])
    size = 11 if len(layers) < 8 else 6
    shades = ("$peer-1", "$peer-2", "$peer-3")
    symbols = ("circle-open", "square-open", "diamond-open")
    traces = [
        scatter(at, [row["estimates"][p] for row in layers], f"{p} probes", colour, symbol=sign, size=size, edge=2, hover=f"{p} probes: %{{y}}")
        for p, colour, sign in zip(probes, shades, symbols, strict=True)
    ]
    traces.append(scatter(at, [row["k_exact"] for row in layers], "exact", "$method", size=size, edge=0, hover="exact: %{y}"))
    ticks = {"tickvals": at, "ticktext": names} if len(layers) < 8 else {"showticklabels": False}
    top = max(max(row["k_exact"], *row["estimates"].values()) for row in layers)
    plot = layout(
        axis("layer", "name", range=[-0.6, len(layers) - 0.4], **ticks),
        axis("allowed directions k", "count", range=[0, 1.08 * top]),
        top=30,
        annotations=key_row(("● exact", "$method"), *((f"{s} {p}", c) for s, p, c in zip("○□◇", probes, shades, strict=True)), ("probes", "$muted")),
    )
    row = max(layers, key=lambda row: row["k_exact"])
    summary = f"{_short(row['name'])}: {row['k_exact']} directions exactly, {row['estimates'][probes[0]]} by the released code's two probes, "
    summary += f"{row['estimates'][probes[-1]]} by {probes[-1]} probes: more do not come nearer, since the rotation flattens the energies."
    return Figure("widths", "How many directions: exact and estimated", traces, plot, summary, height=380)


def ranks(data: Mapping[str, Any]) -> Figure | None:
    """New accuracy and forgetting against the number of rows; a click on a point takes it."""
    found = [p for p in data["points"] if p["group"] == "plate"]
    if len(found) < 2:
        return None
    rank = [p["rank"] for p in found]
    before = data["trails"]["plate"]["old"][0]
    wrong = [100 * (1 - p["new"]) for p in found]
    gone = [100 * (before - p["old"]) for p in found]
    marker = {"mode": "lines+markers"}
    hover = "r = %{x}: %{y:.1f} % "
    traces = [
        line(rank, wrong, "not learned", "$peer-1", hover=hover + "wrong on the new task") | marker | {"marker": {"size": 9, "color": "$peer-1"}},
        line(rank, gone, "forgotten", "$method", width=3, hover=hover + "forgotten") | marker | {"marker": {"size": 11, "color": "$method"}},
    ]
    values = [*wrong, *gone, 0.0]
    reach = (min(values) - 0.4, 1.12 * max(values) + 0.4)
    ends = [(wrong[-1], "not learned", "$peer-1"), (gone[-1], "forgotten", "$method")]
    plot = layout(
        axis("rows that may move, log scale", "count", type="log", tickvals=rank, ticktext=[str(r) for r in rank]),
        axis("of the test", "%", range=list(reach)),
        right=90,
        annotations=end_labels(ends, reach, HALF_PLOT_PX),
    )
    told = ", ".join(f"{r} rows {g:.1f} %" for r, g in zip(rank, gone, strict=True))
    summary = f"More movable rows, more plasticity: forgotten at {told}. Click a point to take its number of rows."
    return Figure("ranks", "Plasticity is a dial", traces, plot, summary, height=380)


def controls(data: Mapping[str, Any]) -> Figure | None:
    """Forgetting of PLATE and of three controls of equal cost."""
    found = [p for p in data["points"] if p["group"] == "control"]
    if not found:
        return None
    before = data["trails"]["plate"]["old"][0]
    names = [p["text"] for p in found]
    gone = [100 * (before - p["old"]) for p in found]
    colours = [CONTROL_COLOURS[name] for name in names]
    bar: dict[str, Any] = {"type": "bar", "x": names, "y": gone, "name": "forgotten", "marker": {"color": colours}}
    said = [f"{p['text']}: {g:.1f} % forgotten, {p['new']:.1%} new, {p['trainable']:,} numbers" for p, g in zip(found, gone, strict=True)]
    bar |= {
        "text": [f"{g:.1f}" for g in gone],
        "textposition": "outside",
        "hovertemplate": "%{customdata}<extra></extra>",
        "customdata": said,
        "cliponaxis": False,
    }
    low, high = min(0.0, *gone), max(0.1, *gone)
    plot = layout(axis("choice of rows and directions", "name"), axis("forgotten of the old test", "%", range=[1.2 * low - 0.1, 1.2 * high + 0.1]))
    told = ", ".join(f"{n} {g:.1f} %" for n, g in zip(names, gone, strict=True))
    summary = f"The same number of rows and directions, chosen otherwise: {told} forgotten."
    return Figure("controls", "What the choice is worth", [bar], plot, summary, height=380)


def table(data: Mapping[str, Any]) -> Panel | None:
    """All methods at their end."""
    rows = []
    for key, mark, trail in reversed(list(raced(data))):
        kept = trail["keeps"] or ("none" if trail["trainable"] or key == "head" else "")
        rows.append([name_of(key, data), trail["trainable"], 100 * trail["new"][-1], 100 * trail["old"][-1], 100 * lost(trail), kept])
        if mark.sees_old and not trail["keeps"]:
            rows[-1][-1] = "yes"
    if not rows:
        return None
    unit = "next words, %" if data["kind"]["is_language"] else "%"
    columns = [
        {"name": "method", "kind": "text"},
        {"name": "trained in the body", "kind": "number"},
        {"name": f"new task ({unit})", "kind": "number"},
        {"name": f"old task ({unit})", "kind": "number"},
        {"name": "forgotten (points)", "kind": "number"},
        {"name": "old data kept", "kind": "text"},
    ]
    summary = f"{len(rows)} methods from the same start, on the same batches."
    return Panel("methods", "table", "All methods", {"columns": columns, "rows": rows, "note": None, "marked": 0}, summary, "wide")
