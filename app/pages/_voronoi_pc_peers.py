"""Training curves, samples and peers of voronoi-pc, and the table of centroids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from app.pages._voronoi_pc_plane import unit
from app.plotting import Figure, Panel, Trace, alpha, axis, end_labels, floats, intervals, key_row, layout, line, scatter

HEIGHT = 320
PLOT_PX = 220


def training(data: Mapping[str, Any], params: Any) -> Figure | None:
    found = data.get("training")
    if found is None:
        return None
    traces: list[Trace] = []
    ends = []
    names = {"voronoi": ("soft cells", "$method"), "hfv": ("soft cells", "$method"), "constant": ("mixture", "$peer-1")}
    for kind, losses in found["losses"].items():
        values = floats(losses)
        if not values.size:
            continue
        name, colour = names[kind]
        traces.append(line(np.arange(1, values.size + 1), values, name, colour, hover=f"{name} %{{y:.4g}} in epoch %{{x}}"))
        ends.append((float(values[-1]), name, colour))
    if not traces:
        return None
    every = np.concatenate([floats(t["y"]) for t in traces])
    low, high = float(every.min()), float(every.max())
    pad = 0.06 * (high - low) + 1e-9
    plot = layout(
        axis("epoch", "count", range=[0, params.epochs + 1], showgrid=False),
        axis("loss", "nats a point", range=[low - pad, high + pad]),
        right=76,
        annotations=end_labels(ends, (low - pad, high + pad), PLOT_PX),
    )
    start, end = found["alpha"]
    which = "-log f" if params.loss == "log-f" else "-log f + log Z of the soft gate"
    alphas = "" if params.gate == "constant" else f" \u03b1 grows from {start:g} to {end:g}; then the walls are hard."
    return Figure("training", "Training", traces, plot, f"Mean of {which} on the training points.{alphas}", height=HEIGHT)


def samples(data: Mapping[str, Any], params: Any) -> Figure | None:
    found = data.get("samples")
    if found is None:
        return None
    drawn, points, here = floats(found["points"]).reshape(-1, 2), floats(data["plane"]["points"]).reshape(-1, 2), data["plane"]
    low, high = floats(here["low"]), floats(here["high"])
    traces = [
        scatter(points[:, 0], points[:, 1], "training points", alpha("$data", 0.5), symbol="circle-open", size=4, hover="skip"),
        scatter(drawn[:, 0], drawn[:, 1], "draws", alpha("$method", 0.8), size=4, edge=0, hover="skip"),
    ]
    plot = layout(
        axis("x1", unit(params), range=[low[0], high[0]], showgrid=False, nticks=6),
        axis("x2", unit(params), range=[low[1], high[1]], showgrid=False, nticks=6),
        top=30,
        annotations=key_row(("\u25cf draws", "$method"), ("\u25cb training points", "$data")),
    )
    how = "cell by cell, then inside its intervals"
    if params.gate != "hfv":
        how = f"{found['kept']:.0%} of the proposals fell into their own cell"
    return Figure("samples", "Draws from the circuit", traces, plot, f"{len(drawn)} exact draws: {how}.", height=HEIGHT)


def peers(data: Mapping[str, Any], metrics: Mapping[str, Any]) -> Figure | None:
    found = data.get("peers")
    if found is None:
        return None
    low, high, same = (metrics.get(name) for name in ("log_likelihood_lower", "log_likelihood_upper", "log_likelihood_mixture"))
    names = ["this circuit", "mixture,<br>same training", "diagonal<br>mixture (EM)", "full<br>mixture (EM)"]
    traces: list[Trace] = []
    values = []
    if low is not None and high is not None:
        traces.append(intervals([0], [(low + high) / 2], [low], [high], "this circuit", "$method", size=9, hover="%{y:.3f}"))
        values += [low, high]
    others = ((1, same, "$peer-1", "square"), (2, found["diag"], "$peer-2", "diamond"), (3, found["full"], "$peer-3", "triangle-up"))
    for place, value, colour, symbol in others:
        if value is not None:
            traces.append(scatter([place], [value], names[place], colour, symbol=symbol, size=10, hover="%{y:.3f}"))
            values.append(value)
    spread = max(values) - min(values) or 1.0
    plot = layout(
        axis("circuit of the same size", "kind, no unit", tickvals=[0, 1, 2, 3], ticktext=names, range=[-0.5, 3.5], showgrid=False),
        axis("test log-likelihood", "nats a point", range=[min(values) - 0.15 * spread, max(values) + 0.15 * spread]),
    )
    named = ((low, "this circuit"), (same, "the mixture trained alike"), (found["diag"], "the diagonal mixture"), (found["full"], "the full mixture"))
    best = max((value, name) for value, name in named if value is not None)
    return Figure("peers", "Beside mixtures of the same size", traces, plot, f"Higher is better. Best here: {best[1]}, {best[0]:.3f}.", height=HEIGHT)


def hold(data: Mapping[str, Any], params: Any) -> Panel | None:
    """Chips that hold the centroids where they are, for typing, or give them back to k-means."""
    here = data["plane"]
    if params.gate != "voronoi" or here["dimension"] != 2 or data["stage"] != "bounds":
        return None
    now = [round(v, 3) for v in floats(here["centroids"]).reshape(-1).tolist()]
    held = bool(params.centroids)
    free = "k-means" if params.data not in ("two-centroids", "random-centroids") else "the scene"
    chips = [
        {"id": orjson.dumps({"hold": now}).decode(), "text": "Held by hand", "pressed": held, "disabled": held},
        {"id": orjson.dumps({"hold": []}).decode(), "text": f"Left to {free}", "pressed": not held, "disabled": not held},
    ]
    text = "Type the coordinates below, or drag the crosses." if held else "Drag a cross in the main picture, or hold all to type them."
    return Panel("hold", "chips", "Where the centroids stand", {"groups": [{"title": "Centroids", "chips": chips}]}, text, "wide")


def table(data: Mapping[str, Any], params: Any) -> Panel | None:
    """The held centroids, to be typed."""
    if not params.centroids or params.gate != "voronoi" or data["stage"] != "bounds":
        return None
    columns = [{"name": "centroid", "kind": "number"}, {"name": "x1", "kind": "number", "editable": True}, {"name": "x2", "kind": "number", "editable": True}]
    places = np.asarray(params.centroids, float).reshape(-1, 2)
    rows = [[k + 1, x, y] for k, (x, y) in enumerate(places.tolist())]
    return Panel("centroids", "table", "The centroids", {"columns": columns, "rows": rows, "note": None}, f"{len(rows)} centroids, each can be typed.", "wide")
