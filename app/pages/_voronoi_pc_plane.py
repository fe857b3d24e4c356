"""The main picture of voronoi-pc: cells, boxes and density in the plane, and beside them the bounds of Z on the exact value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.plotting import Figure, Trace, alpha, axis, end_labels, floats, heatmap, key_row, label, layout, line, scatter

INSIDE, STRADDLING = "$method", "$muted"
PLANE, GAUGE = (0.0, 0.9), (0.95, 1.0)  # shares of the picture's width
HANDLE = "centroid"  # a shape's name carries its number and all coordinates, so that a drag can be read without the run
PHONE_PLOT_PX = 230
LEAST_GAP = 1e-6  # shown as no gap


def plane(data: Mapping[str, Any], params: Any) -> Figure:
    """The plane of the first two variables; walls and boxes only where these are all."""
    here = data["plane"]
    low, high = floats(here["low"]), floats(here["high"])
    boxes, bounds = data.get("boxes", {}), data.get("bounds")
    traces: list[Trace] = []
    key: list[tuple[str, str]] = []
    density = here.get("density")
    if density is not None:
        shade = heatmap(floats(density["x"]), floats(density["y"]), np.asarray(density["z"]), "density", "$ink", hover="density %{z:.3g}")
        traces.append(shade | {"showscale": False, "zsmooth": "best", "zmin": 0, "opacity": 0.45})
    points = floats(here["points"]).reshape(-1, 2)
    traces.append(scatter(points[:, 0], points[:, 1], "points", alpha("$data", 0.55), size=3, edge=0, hover="skip"))
    for name, colour, opacity in (("straddling", STRADDLING, 0.3), ("inside", INSIDE, 0.22)):
        if len(boxes.get(name, ())):
            traces.append(_rectangles(floats(boxes[name]), name, colour, opacity))
            key.append((f"\u25a0 {'inside' if name == 'inside' else 'crossed'}", colour))
    outline = floats(here.get("outline", ())).reshape(-1, 2)
    if outline.size:
        traces.append(line(outline[:, 0], outline[:, 1], "walls", "$ink", width=1.5, hover="skip"))
    centroids = floats(here.get("centroids", ())).reshape(-1, 2)
    movable = params.gate == "voronoi" and here["dimension"] == 2 and data["stage"] == "bounds"
    if len(centroids) and (here["dimension"] == 2 or params.gate == "voronoi") and params.gate != "constant":
        said = [f"centroid {k + 1}" + (": drag it" if movable else "") for k in range(len(centroids))]
        marks = scatter(centroids[:, 0], centroids[:, 1], "centroids", "$ink", symbol="cross", size=11, hover="%{text}", text=said)
        marks["marker"]["line"] = {"width": 1.5, "color": "$surface"}
        traces.append(marks)
        key.append(("\u271a centroid", "$ink"))
    notes = key_row(*key) if key else []
    shapes = _handles(centroids) if movable else []
    more: dict[str, Any] = {}
    if bounds is not None:
        gauge, names, ticks = _gauge(bounds)
        traces += gauge
        notes += names
        more = {"xaxis2": ticks[0], "yaxis2": ticks[1]}
    plot = layout(
        axis("x1", unit(params), range=[low[0], high[0]], domain=PLANE, showgrid=False, constrain="domain", nticks=7),
        axis("x2", unit(params), range=[low[1], high[1]], showgrid=False, scaleanchor="x", constrain="domain", nticks=6),
        right=58,
        top=30,
        annotations=notes,
        shapes=shapes,
        meta={"editable": movable},
        **more,
    )
    plot["xaxis"]["title"]["text"] = f"x1 ({unit(params)})"  # one line: the domain here is for the gauge beside it, not for a plot above
    return Figure("plane", _title(data, params), traces, plot, _summary(data, params), "main", height=470)


def unit(params: Any) -> str:
    """The unit of the variables."""
    return "standard deviations" if params.data in ("iris", "diabetes", "wine", "csv") else "no unit"


def _rectangles(corners: np.ndarray, name: str, colour: str, opacity: float) -> Trace:
    """Boxes (b, 4) of x0, y0, x1, y1 as one filled outline with gaps."""
    gap = np.full(len(corners), np.nan)
    x = np.stack([corners[:, i] for i in (0, 2, 2, 0, 0)] + [gap], 1).reshape(-1)
    y = np.stack([corners[:, i] for i in (1, 1, 3, 3, 1)] + [gap], 1).reshape(-1)
    style = {"mode": "lines", "line": {"width": 0.75, "color": alpha(colour, 0.7)}, "fill": "toself", "fillcolor": alpha(colour, opacity)}
    return {"type": "scatter", "x": x, "y": y, "name": name, "hoverinfo": "skip", **style}


def _handles(centroids: np.ndarray) -> list[dict[str, Any]]:
    """A line without length over each centroid: its ends are what a hand takes hold of, at any size of the plot."""
    places = ";".join(f"{x:.3f},{y:.3f}" for x, y in centroids.tolist())
    return [
        {
            "type": "line",
            "name": f"{HANDLE} {k} {places}",
            "x0": x,
            "x1": x,
            "y0": y,
            "y1": y,
            "line": {"color": "$warning", "width": 2, "dash": "dot"},
            "editable": True,
        }
        for k, (x, y) in enumerate(centroids.tolist())
    ]


def _gauge(bounds: Mapping[str, Any]) -> tuple[list[Trace], list[dict[str, Any]], tuple[dict[str, Any], dict[str, Any]]]:
    """A bar from Z- to Z+ on a scale from 0 to 1, with the exact value as a black line across it."""
    lower, upper, exact = float(bounds["lower"][-1]), float(bounds["upper"][-1]), bounds["exact"]
    upper = min(upper, 1.0)
    shape = {"xaxis": "x2", "yaxis": "y2", "hoverinfo": "skip", "mode": "lines", "type": "scatter"}
    bar = {**shape, "name": "bounds", "x": [0, 1, 1, 0, 0], "y": [lower, lower, upper, upper, lower], "fill": "toself", "cliponaxis": False}
    frame = {**shape, "name": "scale", "x": [0, 1, 1, 0, 0], "y": [0, 0, 1, 1, 0], "line": {"width": 1, "color": "$grid"}, "cliponaxis": False}
    traces: list[Trace] = [frame, {**bar, "fillcolor": alpha("$method", 0.3), "line": {"width": 1.5, "color": "$method"}}]
    ends = [(lower, f"<b>{lower:.3f}</b>", "$method"), (upper, f"<b>{upper:.3f}</b>", "$method")]
    if upper - lower < LEAST_GAP:
        ends = [(lower, "<b>gap 0</b>", "$method")]
    if exact is not None:
        traces.append({**shape, "name": "exact", "x": [-0.35, 1.35], "y": [exact, exact], "line": {"width": 2, "color": "$truth"}})
        ends.append((exact, f"= {exact:.3f}", "$truth"))
    names = [{**note, "xref": "x2 domain"} for note in end_labels(ends, (0, 1), PHONE_PLOT_PX, yref="y2")]
    scale: dict[str, Any] = {"xref": "x2 domain", "yref": "y2", "anchor": "right", "shift": (-5, 0)}
    names += [label(0, 0, "0", "$muted", **scale), label(0, 1, "1", "$muted", **scale)]
    names.append(label(0.5, 0, "Z", "$ink", xref="x2 domain", yref="y2", anchor="center", shift=(0, -16)))
    # The two ends of its scale and its name stand beside it: ticks and titles of its own would cover the plane on a phone.
    bare = {"visible": False, "fixedrange": True}
    return traces, names, ({**bare, "domain": list(GAUGE), "range": [-0.35, 1.35], "anchor": "y2"}, {**bare, "range": [0, 1], "anchor": "x2"})


def _title(data: Mapping[str, Any], params: Any) -> str:
    if data["stage"] == "opening":
        return "The points"
    if data["stage"] == "training":
        return "Soft cells harden while they are trained"
    if params.gate == "hfv":
        return "Upright walls: every integral is exact"
    if params.gate == "constant":
        return "One cell: a mixture, exact from the start"
    lower, upper = float(data["bounds"]["lower"][-1]), float(data["bounds"]["upper"][-1])
    return "The boxes end at the walls: no gap is left" if upper - lower < LEAST_GAP else "Boxes shrink onto the walls and squeeze Z"


def _summary(data: Mapping[str, Any], params: Any) -> str:
    here = data["plane"]
    if data["stage"] == "opening":
        return f"Points of {data['made_by']['data']}; the cells follow."
    if data["stage"] == "training":
        return "Shade is the density under the soft gate, not yet normalised; lines are the walls that the hard gate would have."
    more = "" if here["dimension"] == 2 else f" The plane shows the first two of {here['dimension']} variables"
    if here["dimension"] > 2:
        more += ", the others integrated out." if params.gate == "hfv" else "; walls and boxes of the others cannot be drawn in it."
    lower, upper, exact = float(data["bounds"]["lower"][-1]), float(data["bounds"]["upper"][-1]), data["bounds"]["exact"]
    if params.gate == "hfv":
        return f"Z = {lower:.4f}, a sum of products of intervals.{more}"
    if params.gate == "constant":
        return f"A mixture integrates to 1 by itself.{more}"
    boxes = data["boxes"]
    counts = f"{boxes['inside_count']:,} boxes lie inside a cell and count; {boxes['straddling_count']:,} are crossed by a wall and only may."
    counts += " The heaviest are drawn, as far as 2.5 sd of their expert." if here["dimension"] == 2 else ""
    truth = "" if exact is None else f" The exact {exact:.4f} lies between." if upper - lower >= LEAST_GAP else f" It is the exact {exact:.4f}."
    drag = " Drag a centroid." if here["dimension"] == 2 else ""
    return f"Z is between {lower:.4f} and {upper:.4f}.{truth} {counts}{drag}{more}"
