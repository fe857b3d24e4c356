"""The pictures of conformal-ksos: the band, the path of the symmetry penalty, and what the band promises."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from app.dragging import is_number, moved_end
from app.pages._kernel_sos import convergence, spectrum
from app.pages._split_conformal import CENSORED, coverage_law, local_coverage, score_sides
from app.plotting import (
    Changes,
    Figure,
    Panel,
    Trace,
    View,
    alpha,
    axis,
    band,
    end_labels,
    floats,
    key_row,
    label,
    layout,
    line,
    outline,
    plain_text,
    rule,
    scatter,
)
from backends.contract import Frame
from backends.runtime.tables import split_names

TRAIN, CALIBRATION, TEST = 0, 1, 2
FEATURES = 3  # at most
PHONE_PLOT_PX = 270  # height of the band's plot area there
SHOWN_POINTS = 600  # of each kind: a file may have 100,000 rows
# The path's axis is log10 of the penalty; its two limits are stops beyond the slider's 1e-3 to 1e3.
SEPARATE, SYMMETRIC, STOP, EDGE = -4.0, 4.0, 3.5, 3.4
PATH_TICKS = {SEPARATE: "separate", -2: "0.01", 0: "1", 2: "100", SYMMETRIC: "symmetric"}


def views(frame: Frame, params: Any) -> list[View]:
    """What can be drawn of this frame, the main picture first; a picture waits until its data is there."""
    data, metrics = frame.data, frame.metrics
    if "points" not in data:
        return []
    made: list[View | None] = [
        _band(data, metrics, params),
        _columns(data, params),
        _path(data, metrics, params),
        local_coverage(data, params),
        score_sides(data, params),
        coverage_law(data, params),
        spectrum(data),
        convergence(data),
    ]
    return [view for view in made if view is not None]


def on_event(view: str, event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    """A click or a drag on the path sets the symmetry, a chip the columns, an uploaded file the data."""
    kind = event.get("type")
    if view == "path" and kind in ("click", "drag"):
        position = event.get("x") if kind == "click" else moved_end(event, _old_position(params.get("symmetry")))
        return Changes({"symmetry": symmetry_at(position)}, run=True) if is_number(position) else None
    if view == "columns" and kind == "click":
        return _chosen_columns(event, params)
    if view == "controls" and kind == "upload" and event.get("field") == "csv":
        return Changes({"data": "csv"}, run=True)
    return None


def _old_position(symmetry: Any) -> float | None:
    return position_of(symmetry) if symmetry in ("separate", "symmetric") or is_number(symmetry, limit=math.inf) else None


def position_of(symmetry: float | str) -> float:
    """Where a symmetry penalty stands on the path's axis.

    >>> position_of("separate"), position_of(100), position_of(math.inf)
    (-4.0, 2.0, 4.0)
    """
    if symmetry == "separate" or symmetry == 0:
        return SEPARATE
    if symmetry == "symmetric" or symmetry == math.inf:
        return SYMMETRIC
    return min(max(math.log10(float(symmetry)), -EDGE), EDGE)


def symmetry_at(position: float) -> float | str:
    """The symmetry penalty at a place on the path's axis, to three digits.

    >>> symmetry_at(-4.2), symmetry_at(-1.0), symmetry_at(0.3), symmetry_at(3.6)
    ('separate', 0.1, 2.0, 'symmetric')
    """
    if position <= -STOP:
        return "separate"
    if position >= STOP:
        return "symmetric"
    return float(f"{10**position:.3g}")


def _percent(share: Any) -> str:
    return "unknown" if share is None else f"{share:.1%}"


def _number(value: Any) -> str:
    return "unknown" if value is None else f"{value:.4g}" if isinstance(value, int | float) else str(value)


# ---------------------------------------------------------------------------------------------------- the band


def _band(data: Mapping[str, Any], metrics: Mapping[str, Any], params: Any) -> Figure:
    points, grid, truth = data["points"], data.get("grid", {}), data.get("truth")
    x, y, role = floats(points["x"]), floats(points["y"]), np.asarray(points["role"])
    height = 470
    traces: list[Trace] = []
    ends: list[tuple[float, str, str]] = []
    at = floats(grid["x"]) if grid else np.array([])
    peers = (("constant", "constant", "$peer-2"), ("symmetric", "symmetric", "$peer-1"))
    for key, name, colour in peers:
        if f"upper_{key}" in grid:
            lower, upper = floats(grid[f"lower_{key}"]), floats(grid[f"upper_{key}"])
            traces.append(outline(*_every_second(at, lower, upper), name, colour, width=1.5, hover="skip"))
            ends.append((upper[-1], name, colour))
    if truth is not None:
        lower, upper = floats(truth["lower"]), floats(truth["upper"])
        traces.append(outline(*_every_second(floats(truth["x"]), lower, upper), "ideal", "$truth", width=1.25, hover="ideal: %{y:.3g}"))
        ends.append((lower[-1], "ideal", "$truth"))
    has_band = "upper" in grid
    if has_band:
        lower, upper = floats(grid["lower"]), floats(grid["upper"])
        traces.append(band(at, lower, upper, "band", ghost=True))
        traces.append(outline(at, lower, upper, "this band", "$method", width=2.25, ghost=True, hover="band edge %{y:.3g} at %{x:.3g}"))
        ends.append((upper[-1], "<b>band</b>", "$method"))
    if "mean" in grid:
        mean = floats(grid["mean"])
        traces.append(line(at, mean, "prediction", alpha("$method", 0.9), width=1.25, dash="longdashdot", hover="prediction %{y:.3g} at %{x:.3g}"))
        ends.append((mean[-1], "middle", "$method"))
    traces += _points(x, y, role, (at, lower, upper) if has_band and _is_exact(data, params) else None)
    low, high = _y_range(y, [t["y"] for t in traces if t["mode"] == "lines" and t["name"] != "band"])
    # inside the plot on its ground, so that a phone's plot keeps its width; apart also at its lower height
    notes = end_labels(ends, (low, high), PHONE_PLOT_PX, anchor="right", bgcolor="$surface/0.8", borderpad=1)
    notes += key_row(("\u25cb train", "$muted"), ("\u25c6 calibration", "$muted"), ("\u25cf test", "$data"), ("\u25b2\u25bc missed", "$warning"))
    if grid and not has_band and "upper_symmetric" not in grid and metrics.get("coverage") is not None:
        notes.append(label(0.5, 0.97, CENSORED, "$warning", anchor="center", xref="x domain", yref="y domain", yanchor="top"))
    edge = 0.02 * float(np.ptp(x))
    axes = data.get("axes", {"x": "x", "y": "y"})
    plot = layout(
        axis(plain_text(axes["x"]), range=[float(x.min()) - edge, float(x.max()) + edge], showgrid=False),
        axis(plain_text(axes["y"]), range=[low, high]),
        top=34,
        annotations=notes,
    )
    return Figure("band", _band_title(metrics, params), traces, plot, _band_summary(metrics, params), "main", height=height)


def _points(x: np.ndarray, y: np.ndarray, role: np.ndarray, edges: tuple[np.ndarray, np.ndarray, np.ndarray] | None) -> list[Trace]:
    styles = ((TRAIN, "train", "$muted", "circle-open", 5), (CALIBRATION, "calibration", "$muted", "diamond", 5), (TEST, "test", "$data", "circle", 6))
    above = below = np.zeros(x.size, bool)
    if edges is not None:
        grid, lower, upper = edges
        above = (role == TEST) & (y > np.interp(x, grid, upper))
        below = (role == TEST) & (y < np.interp(x, grid, lower))
    traces = []
    kept = np.zeros(x.size, bool)
    for code, name, colour, symbol, size in styles:
        rows = np.flatnonzero(role == code)
        kept[rows[:: -(-rows.size // SHOWN_POINTS) or 1]] = True
        shown = kept & (role == code) & ~(above | below)
        traces.append(scatter(x[shown], y[shown], name, colour, symbol=symbol, size=size, hover=f"{name} %{{x:.3g}}, %{{y:.3g}}", opacity=0.8))
    for missed, side, symbol in ((above & kept, "above", "triangle-up"), (below & kept, "below", "triangle-down")):
        if missed.any():
            hover = f"{side} the band %{{x:.3g}}, %{{y:.3g}}"
            traces.append(scatter(x[missed], y[missed], "missed", "$warning", symbol=symbol, size=10, hover=hover))
    return traces


def _every_second(x: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Half the points of a curve, both ends among them: enough for what stands still."""
    kept = np.unique(np.append(np.arange(0, x.size, 2), x.size - 1))
    return x[kept], lower[kept], upper[kept]


def _is_exact(data: Mapping[str, Any], params: Any) -> bool:
    """Whether the curves hold for every point. With more features they are a slice at the medians, on which no point may be called a miss."""
    if "columns" in data:
        return len(data["columns"]["features"]) == 1 and not params.prediction_column
    return bool(params.data != "diabetes")  # its predictor sees all ten features


def _y_range(y: np.ndarray, curves: Sequence[np.ndarray]) -> tuple[float, float]:
    """All points, and the curves as far as half the points' range beyond: a wild band must not flatten the rest."""
    low, high = float(np.nanmin(y)), float(np.nanmax(y))
    spread = high - low or 1.0
    if curves:
        joined = np.concatenate(curves)
        low, high = min(low, max(float(np.nanmin(joined)), low - spread / 2)), max(high, min(float(np.nanmax(joined)), high + spread / 2))
    return low - 0.04 * spread, high + 0.04 * spread


def _band_title(metrics: Mapping[str, Any], params: Any) -> str:
    chosen = metrics.get("symmetry_chosen")
    if chosen is None:
        return "The band"
    how = "chosen from the training data" if params.symmetry == "auto" else "set by hand"
    tied = {"separate": "its sides separate", "symmetric": "its sides equal"}.get(str(chosen), f"its sides tied by {_number(chosen)}")
    return f"The band, {tied} ({how})"


def _band_summary(metrics: Mapping[str, Any], params: Any) -> str:
    if metrics.get("coverage") is None:
        return "The points; the band follows."
    target = f"{_percent(metrics['coverage'])} of the test points lie inside (target {1 - params.alpha:.0%})."
    if metrics.get("mean_width") is None:
        return f"{target} The band is infinite: the calibration set is too small for this error rate."
    width = f" Mean width {_number(metrics['mean_width'])}, symmetric band {_number(metrics.get('mean_width_symmetric'))}."
    return f"{target}{width} Missed above {_percent(metrics.get('miss_above'))}, below {_percent(metrics.get('miss_below'))}."


# ---------------------------------------------------------------------------------------------------- the path


def _path(data: Mapping[str, Any], metrics: Mapping[str, Any], params: Any) -> Figure | None:
    path = data.get("path")
    if path is None:
        return None
    labels = path["labels"]
    x = np.array([position_of(word if word in ("separate", "symmetric") else value) for word, value in zip(labels, path["symmetry"], strict=True)])
    order = np.argsort(x)
    names = [labels[i] for i in order]
    height, top = 460, 24
    traces: list[Trace] = []
    notes: list[dict[str, Any]] = []
    # Bottom, middle, top: what chose the penalty, whom the band misses, what the band costs.
    rows = (
        ("y3", (0.0, 0.27), (("dcov", "D", "$method", "circle"), ("hsic", "HSIC", "$peer-1", "square"))),
        ("y2", (0.36, 0.63), (("miss_above", "above", "$warning", "triangle-up"), ("miss_below", "below", "$warning/0.6", "triangle-down"))),
        ("y", (0.72, 1.0), (("width", "width", "$method", "circle"),)),
    )
    for axis_name, domain, curves in rows:
        ends = []
        for key, name, colour, symbol in curves:
            values = floats(path[key])[order] if key in path else np.full(x.size, np.nan)
            if axis_name == "y3":  # D and HSIC have no common unit: each is shown against its largest value
                values = values / np.nanmax(values) if np.nanmax(values, initial=0) > 0 else values
            hover = f"{name} %{{y:.3g}} at %{{text}}"
            dash = "dot" if symbol in ("triangle-down", "square") else "solid"
            style = {"yaxis": axis_name, "text": names, "cliponaxis": False}
            drawn = line(x[order], values, name, colour, width=1.75, dash=dash, ghost=key == "width", hover=hover, **style)
            drawn |= {"mode": "lines+markers", "marker": {"color": colour, "symbol": symbol, "size": 7}}
            traces.append(drawn)
            last = values[np.isfinite(values)]
            if last.size:
                ends.append((float(last[-1]), name, colour))
        finite = np.concatenate([floats(t["y"]) for t in traces if t["yaxis"] == axis_name])
        finite = finite[np.isfinite(finite)]
        if len(ends) > 1 and finite.size:
            reach = (float(finite.min()), float(finite.max()) + 1e-9)
            notes += end_labels(ends, reach, (height - top - 48) * (domain[1] - domain[0]) * 0.9, yref=axis_name)
    current = metrics.get("symmetry_chosen") if params.symmetry == "auto" else params.symmetry
    shapes = []
    if current is not None:
        shapes.append(rule(position_of(current), "symmetry", "$method", dash="solid", width=3, editable=True))
        notes.append(label(position_of(current), 1, _number(current), "$method", anchor="center", yref="paper", shift=(0, 8)))
    ticks: dict[str, Any] = {"tickvals": list(PATH_TICKS), "ticktext": list(PATH_TICKS.values()), "tickangle": 0}
    x_axis = axis("symmetry penalty \u03bb\u2083", "log scale", range=[SEPARATE - 0.4, SYMMETRIC + 0.4], showgrid=False, anchor="y3", **ticks)
    plot = layout(
        x_axis,
        axis("width", _unit(data), domain=rows[2][1], rangemode="normal", nticks=4),
        right=48,
        top=top,
        yaxis2=axis("misses", "share", domain=rows[1][1], rangemode="tozero", nticks=4, tickformat=".0%"),
        yaxis3=axis("D, HSIC", "of largest", domain=rows[0][1], nticks=4),
        annotations=notes,
        shapes=shapes,
        meta={"editable": True},
    )
    return Figure("path", "From two separate sides to one symmetric width", traces, plot, _path_summary(path), height=height)


def _unit(data: Mapping[str, Any]) -> str:
    """The unit of the target: what stands in brackets at the end of its axis label, or the label itself."""
    text = str(data.get("axes", {}).get("y", "y"))
    unit = text[text.rindex("(") + 1 : -1] if text.endswith(")") and "(" in text else f"units of {text}"
    return plain_text(unit)


def _path_summary(path: Mapping[str, Any]) -> str:
    labels, width = path["labels"], floats(path["width"]) if "width" in path else np.array([np.nan])
    text = "Drag the line or click a point to set the penalty. Misses and width are measured on the test part; only D, from the training part, chooses."
    if np.isfinite(width).all():
        text += f" Width {_number(float(width[0]))} at {labels[0]}, {_number(float(width[-1]))} at {labels[-1]}."
    chosen = path.get("chosen")
    return text if chosen is None else f"{text} Automatic choice: {labels[int(chosen)]}."


# ------------------------------------------------------------------------------------------------- the person's file


def _columns(data: Mapping[str, Any], params: Any) -> Panel | None:
    columns = data.get("columns")
    if params.data != "csv" or columns is None:
        return None
    target, used = columns["target"], list(columns["features"])
    # While the features are automatic, each chip also carries which they are: params alone do not say it.
    automatic = {} if params.features else {"used": join_names(used)}
    targets, features = [], []
    for column in columns["table"]:
        name, usable = column["name"], column["kind"] == "number"
        targets.append(_chip({"target": name}, name, name == target, not usable))
        features.append(_chip({"feature": name, **automatic}, name, name in used, not usable or name == target))
    size = f"{columns['rows']} rows, {columns['used']} used"
    summary = f"{size}. Read as {columns['encoding']}, separated by {columns['delimiter']}, decimal {columns['decimal']}."
    groups = [{"title": "Target (one)", "chips": targets}, {"title": "Features (up to three)", "chips": features}]
    return Panel("columns", "chips", "Your columns", {"groups": groups}, summary, "wide")


def _chip(choice: Mapping[str, str], text: str, pressed: bool, disabled: bool) -> dict[str, Any]:
    return {"id": orjson.dumps(choice).decode(), "text": text, "pressed": pressed, "disabled": disabled}


def _chosen_columns(event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    try:
        choice = orjson.loads(event.get("id", ""))
    except (orjson.JSONDecodeError, TypeError):
        return None
    if not isinstance(choice, dict) or not all(isinstance(v, str) for v in choice.values()):
        return None
    now = split_names(str(params.get("features") or choice.get("used", "")))
    if "target" in choice:
        changes = {"target": choice["target"]}
        return Changes(changes | ({"features": join_names(n for n in now if n != choice["target"])} if now else {}), run=True)
    if "feature" not in choice:
        return None
    others = [n for n in now if n != choice["feature"]]
    chosen = [*others, choice["feature"]][-FEATURES:] if event.get("pressed") else others
    return Changes({"features": join_names(chosen)}, run=True)


def join_names(names: Iterable[str]) -> str:
    """Column names as one comma-separated line.

    >>> join_names(["age", "income, net"])
    'age,"income, net"'
    """
    line_text = io.StringIO()
    csv.writer(line_text, lineterminator="").writerow(list(names))
    return line_text.getvalue()
