"""Pictures as plain data: views, traces in the house style, and their JSON for the browser.

Traces are plain dictionaries in plotly's own words: building them costs a few microseconds, which six figures
at ten frames a second need. Colours are tokens ("$method", "$peer-1/0.5") that the browser resolves, so that one
figure serves light and dark. The same meaning has the same token everywhere: truth black, this method the
theme's hue, peers greys with distinct dashes, failures the warning colour.
"""

from __future__ import annotations

import base64
import html
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Trace = dict[str, Any]
Span = Literal["lead", "main", "wide", "half"]  # lead: a slim strip above the main picture, for what a person acts on first

TOKENS = ("$method", "$truth", "$peer-1", "$peer-2", "$peer-3", "$warning", "$data", "$ink", "$grid", "$muted")
GL_POINTS = 2_000  # above this SVG markers block the browser's main thread
SHORT = 12  # arrays up to this size stay lists: shorter and readable
FONT_PX = 12
CHARACTER_PX = 6.6  # mean width at that size
_PLOTLY_DTYPES = {"int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4", "float32": "f4", "float64": "f8"}
_PEER_DASHES = {"$peer-1": "dash", "$peer-2": "dot", "$peer-3": "dashdot"}


@dataclass(frozen=True, slots=True)
class Figure:
    """One plot. ``summary`` says in words what it shows; ``frames`` are plotly animation frames."""

    name: str
    title: str
    traces: list[Trace]
    layout: dict[str, Any]
    summary: str
    span: Span = "half"
    frames: list[dict[str, Any]] | None = None
    height: int | None = None  # px


@dataclass(frozen=True, slots=True)
class Panel:
    """A view that is not a plot: ``panel`` names its script (tokens, chat, chips, diff, table, images)."""

    name: str
    panel: str
    title: str
    data: dict[str, Any]
    summary: str
    span: Span = "half"


View = Figure | Panel


@dataclass(frozen=True, slots=True)
class Changes:
    """What a click, a drag or an answer means: new params, and whether the run starts."""

    params: Mapping[str, Any] = field(default_factory=dict)
    run: bool = False


def view_json(view: View) -> dict[str, Any]:
    """The view as strict JSON values; numpy arrays above 12 numbers become plotly typed arrays.

    >>> view_json(Panel("columns", "chips", "Columns", {"groups": []}, "None yet"))["kind"]
    'panel'
    """
    head = {"name": view.name, "title": view.title, "summary": view.summary, "span": view.span}
    if isinstance(view, Panel):
        return head | {"kind": "panel", "panel": view.panel, "data": _plain(view.data)}
    drawn = {"data": _plain(view.traces), "layout": _plain(view.layout)}
    if view.height is not None:  # the browser sets the node's height from here; the main picture's is the stylesheet's
        drawn["layout"]["meta"] = {**drawn["layout"].get("meta", {}), "height": view.height}
    if view.frames is not None:
        drawn["frames"] = _plain(view.frames)
    return head | {"kind": "figure", "figure": drawn}


def _plain(value: Any) -> Any:
    if isinstance(value, str | bool | int) or value is None:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None  # numpy.float64 is a float too
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist()) if value.size <= SHORT or value.dtype.kind not in "biuf" else typed_array(value)
    if isinstance(value, np.generic):
        return _plain(value.item())
    raise TypeError(f"a figure holds a {type(value).__name__}")


def floats(value: Any) -> np.ndarray:
    """A float array; stored frames hold short arrays as lists, with None for NaN."""
    return np.asarray(value, float)


def typed_array(array: np.ndarray) -> dict[str, Any]:
    """``{dtype, bdata, shape?}`` as plotly.js reads it: float32 where the screen cannot tell, NaN kept.

    array: any shape of bool, integer or float; above one dimension ``shape`` is the text "rows, columns".
    """
    if array.dtype.kind == "b":
        array = array.astype(np.uint8)
    elif array.dtype.kind == "f":
        array = _float32_if_enough(array)
    elif array.dtype.name not in _PLOTLY_DTYPES:
        fits = array.size == 0 or (array.min() >= -(2**31) and array.max() < 2**31)
        array = array.astype(np.int32 if fits else np.float64)
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    out: dict[str, Any] = {"dtype": _PLOTLY_DTYPES[array.dtype.name], "bdata": base64.b64encode(little.tobytes()).decode()}
    if array.ndim > 1:
        out["shape"] = ", ".join(map(str, array.shape))
    return out


def _float32_if_enough(array: np.ndarray) -> np.ndarray:
    finite = array[np.isfinite(array)]
    if finite.size == 0:
        return array.astype(np.float32)
    largest, spread = float(np.abs(finite).max()), float(np.ptp(finite))
    # A float32 has 7 digits: enough unless the values sit far from zero in a narrow range (years, timestamps).
    enough = largest < 1e38 and (spread == 0 or largest / spread < 1e3)
    return array.astype(np.float32 if enough else np.float64)


def downsample_minmax(x: np.ndarray, y: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """At most ``n`` of the points (in order), with the smallest and largest y of each of n/2 stretches kept.

    x, y: (m,), x ascending; NaN in y counts as absent. Raises ValueError when n < 4 or the shapes differ.
    """
    if n < 4 or x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"cannot downsample shapes {x.shape} and {y.shape} to {n} points")
    if x.size <= n:
        return x, y
    edges = np.linspace(1, x.size - 1, (n - 2) // 2 + 1).astype(int)  # the first and last point are always kept
    low, high = np.where(np.isnan(y), np.inf, y), np.where(np.isnan(y), -np.inf, y)
    keep = [0, x.size - 1]
    for left, right in itertools.pairwise(edges):
        if right > left:
            keep += [left + int(low[left:right].argmin()), left + int(high[left:right].argmax())]
    kept = np.unique(keep)
    return x[kept], y[kept]


def alpha(colour: str, opacity: float) -> str:
    """The colour token at this opacity.

    >>> alpha("$method", 0.2)
    '$method/0.2'
    """
    return f"{colour}/{opacity:g}"


def line(
    x: Any, y: Any, name: str, colour: str = "$method", *, width: float = 2, dash: str | None = None, ghost: bool = False, hover: str | None = None, **more: Any
) -> Trace:
    """A line; a peer's token brings its own dash. x, y: (n,), NaN breaks the line."""
    style = {"color": colour, "width": width, "dash": dash or _PEER_DASHES.get(colour.split("/")[0], "solid")}
    kind = "scattergl" if np.size(x) > GL_POINTS else "scatter"
    return _finish({"type": kind, "mode": "lines", "x": x, "y": y, "name": name, "line": style}, ghost, hover, more)


def band(x: np.ndarray, lower: np.ndarray, upper: np.ndarray, name: str, colour: str = "$method", *, ghost: bool = False, **more: Any) -> Trace:
    """The filled region between two curves over x; each (n,)."""
    outline = {"x": np.concatenate([x, x[::-1]]), "y": np.concatenate([upper, lower[::-1]])}
    style = {"mode": "lines", "line": {"width": 0, "color": colour}, "fill": "toself", "fillcolor": alpha(colour, 0.18)}
    return _finish({"type": "scatter", **outline, **style, "name": name}, ghost, "skip", more)


def outline(x: np.ndarray, lower: np.ndarray, upper: np.ndarray, name: str, colour: str, **more: Any) -> Trace:
    """Both edges of a band as one trace without fill; each (n,)."""
    gap = np.array([np.nan])
    return line(np.concatenate([x, gap, x]), np.concatenate([lower, gap, upper]), name, colour, **more)


def scatter(
    x: Any,
    y: Any,
    name: str,
    colour: str = "$data",
    *,
    symbol: str = "circle",
    size: float = 6,
    edge: float = 1,
    ghost: bool = False,
    hover: str | None = None,
    **more: Any,
) -> Trace:
    """Markers; open symbols ("circle-open") are drawn by their ``edge`` in px. x, y: (n,)."""
    kind = "scattergl" if np.size(x) > GL_POINTS else "scatter"
    marker = {"color": colour, "symbol": symbol, "size": size, "line": {"width": edge, "color": colour}}
    return _finish({"type": kind, "mode": "markers", "x": x, "y": y, "name": name, "marker": marker}, ghost, hover, more)


def intervals(x: Any, y: Any, low: Any, high: Any, name: str, colour: str = "$method", *, symbol: str = "circle", size: float = 8, **more: Any) -> Trace:
    """Points with vertical bars from ``low`` to ``high`` (values, not offsets); each (n,)."""
    y = np.asarray(y, float)
    bar = {"type": "data", "symmetric": False, "array": np.asarray(high) - y, "arrayminus": y - np.asarray(low), "color": colour, "thickness": 1.5, "width": 4}
    return scatter(x, y, name, colour, symbol=symbol, size=size, error_y=bar, **more)


def bars(x: Any, height: Any, name: str, colour: str = "$method", *, width: Any = None, ghost: bool = False, hover: str | None = None, **more: Any) -> Trace:
    """Bars centred at x. x, height: (n,); width: number or (n,) in units of x."""
    trace = {"type": "bar", "x": x, "y": height, "name": name, "marker": {"color": colour, "line": {"width": 0}}}
    return _finish(trace if width is None else trace | {"width": width}, ghost, hover, more)


def histogram(values: Any, edges: np.ndarray, name: str, colour: str = "$method", *, down: bool = False, **more: Any) -> Trace:
    """Counts of ``values`` between ``edges`` ((k+1,)) as bars, counted here so that the browser gets k numbers.

    ``down`` draws them below the axis; the hover text shows the count either way.
    """
    count, _ = np.histogram(np.asarray(values, float), edges)
    centre, width = (edges[:-1] + edges[1:]) / 2, np.diff(edges) * 0.94
    return bars(centre, -count if down else count, name, colour, width=width, customdata=count, hover="%{customdata} of " + name, **more)


def heatmap(x: Any, y: Any, z: np.ndarray, name: str, colour: str = "$method", *, unit: str = "", hover: str | None = None, **more: Any) -> Trace:
    """A matrix as colour, from transparent to ``colour``. x: (c,), y: (r,), z: (r, c)."""
    scale = [[0, alpha(colour, 0)], [1, colour]]
    bar = {"title": {"text": unit}, "thickness": 10, "outlinewidth": 0}
    return _finish({"type": "heatmap", "x": x, "y": y, "z": z, "name": name, "colorscale": scale, "colorbar": bar}, False, hover, more)


def _finish(trace: Trace, ghost: bool, hover: str | None, more: Mapping[str, Any]) -> Trace:
    if ghost:
        trace["meta"] = {"ghost": True}
    if hover == "skip":
        trace["hoverinfo"] = "skip"
    else:
        trace["hovertemplate"] = (hover or "%{x:.3g}, %{y:.3g}") + f"<extra>{trace['name'] if hover is None else ''}</extra>"
    trace.update(more)
    return trace


def plain_text(text: str) -> str:
    """A text from outside (a column's name) for titles and labels: neither markup nor a colour token.

    >>> plain_text("$cost <USD>")
    '&#36;cost &lt;USD&gt;'
    """
    return html.escape(text, quote=False).replace("$", "&#36;")


def axis(title: str, unit: str = "", *, domain: tuple[float, float] | None = None, **more: Any) -> dict[str, Any]:
    """An axis with its title and unit; ``unit`` stays empty only where the title holds it already.

    >>> axis("coverage", "share")["title"]["text"]
    'coverage (share)'
    """
    text = f"{title}{'<br>' if domain else ' '}({unit})" if unit else title  # stacked plots are low: their titles take two lines
    out = {"title": {"text": text, "standoff": 8}, "zeroline": False, "automargin": True}
    return out | ({} if domain is None else {"domain": list(domain)}) | more


def log_axis(title: str, unit: str, values: np.ndarray, **more: Any) -> dict[str, Any]:
    """A log axis whose labels stay few: decades where ``values`` span several, else 1, 2, 5."""
    seen = values[np.isfinite(values) & (values > 0)]
    decades = math.log10(seen.max() / seen.min()) if seen.size else 0.0
    return axis(title, unit, type="log", dtick=math.ceil(decades / 5) if decades > 1.5 else "D2", exponentformat="power", **more)


def layout(x: dict[str, Any], y: dict[str, Any], *, right: int = 16, top: int = 16, **more: Any) -> dict[str, Any]:
    """A layout of the house style: transparent ground, small margins (px), no legend: labels stand beside what they name."""
    return {
        "xaxis": x,
        "yaxis": y,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 56, "r": right, "t": top, "b": 48},
        "hovermode": "closest",
        "showlegend": False,
        "uirevision": "keep",
        **more,
    }


def stacked_when_narrow(notes: Sequence[dict[str, Any]], right_from: float, *, upper: float = 0.58, lower: float = 0.36, height: int = 520) -> dict[str, Any]:
    """``meta`` of two plots side by side (x and y, x2 and y2) that stand one above the other on a narrow screen.

    notes: the layout's annotations; those above the right plot, from ``right_from`` (share of the width) on, move above the lower one.
    upper: where the upper plot begins, lower: where the lower one ends (shares of the height). height: px of the whole on a phone.
    """
    moved = [
        note | {"x": 0, "y": lower, "xanchor": "left", "align": "left"} if note.get("xref") == "paper" and note["x"] >= right_from else note for note in notes
    ]
    whole = {"domain": [0, 1]}
    axes = {"xaxis": whole, "xaxis2": whole, "yaxis": {"domain": [upper, 1]}, "yaxis2": {"domain": [0, lower]}}
    return {"narrow": {**axes, "annotations": moved, "meta": {"height": height}}}


def label(x: Any, y: Any, text: str, colour: str = "$ink", *, anchor: str = "left", shift: tuple[float, float] = (0, 0), **more: Any) -> dict[str, Any]:
    """A text beside what it names, without arrow; shift in px."""
    place = {"x": x, "y": y, "xanchor": anchor, "yanchor": "middle", "xshift": shift[0], "yshift": shift[1]}
    return {**place, "text": text, "showarrow": False, "font": {"color": colour, "size": FONT_PX}, "align": anchor, **more}


def key_row(*parts: tuple[str, str]) -> list[dict[str, Any]]:
    """Signs and their names (text, colour) in one row above the plot; shorter than a legend, which takes a column on a phone."""
    placed, left = [], 0.0
    for text, colour in parts:
        placed.append(label(0, 1, text, colour, xref="paper", yref="paper", yanchor="bottom", shift=(left, 8)))
        left += CHARACTER_PX * len(text) + 14
    return placed


def end_labels(ends: Sequence[tuple[float, str, str]], y_range: tuple[float, float], plot_px: float, **more: Any) -> list[dict[str, Any]]:
    """Labels at the right edge of a plot, pushed apart so that none covers another.

    ends: (y, text, colour) each, y in axis units; plot_px: height of the plot's area.
    """
    line_px, per_px = FONT_PX + 3, plot_px / (y_range[1] - y_range[0])
    ordered = sorted(ends, key=lambda e: e[0])
    wanted = [(min(max(y, y_range[0]), y_range[1]) - y_range[0]) * per_px for y, _, _ in ordered]
    placed = list(wanted)
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + line_px)
    for i in range(len(placed) - 1, -1, -1):  # what was pushed over the top comes back down
        ceiling = plot_px if i == len(placed) - 1 else placed[i + 1] - line_px
        placed[i] = min(placed[i], ceiling)
    return [
        label(1, y_range[0] + want / per_px, text, colour, shift=(6, put - want), xref="x domain", **more)
        for (_, text, colour), want, put in zip(ordered, wanted, placed, strict=True)
    ]


def rule(
    value: float, name: str, colour: str = "$ink", *, across: Literal["x", "y"] = "x", dash: str = "dash", width: float = 1.5, **more: Any
) -> dict[str, Any]:
    """A straight line over the whole plot at one x (or, with ``across="y"``, one y), as a layout shape."""
    ends = {"x0": value, "x1": value, "y0": 0, "y1": 1, "xref": "x", "yref": "paper"}
    if across == "y":
        ends = {"x0": 0, "x1": 1, "y0": value, "y1": value, "xref": "paper", "yref": "y"}
    return {"type": "line", "name": name, **ends, "line": {"color": colour, "width": width, "dash": dash}, **more}


def message(name: str, title: str, text: str, *, span: Span = "half", height: int = 300) -> Figure:
    """A figure that says in words why there is nothing to draw."""
    blank = {"visible": False, "fixedrange": True}
    note = label(0.5, 0.5, text, "$muted", anchor="center", xref="paper", yref="paper")
    return Figure(name, title, [], layout(blank, dict(blank), annotations=[note]), text, span, height=height)
