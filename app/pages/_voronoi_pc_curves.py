"""Bounds over splits, likelihood intervals, marginal and conditional densities as certified bands, and what dimensions do to the gap."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._voronoi_pc_plane import unit
from app.plotting import Figure, Trace, axis, band, end_labels, floats, key_row, label, layout, line, log_axis, message, outline, rule, scatter
from backends.voronoi_pc.conditions import EVERYTHING, parse

HEIGHT = 320
PLOT_PX = 220
KNOWN, LOW_END, HIGH_END = "evidence", "event-low", "event-high"  # names of what can be dragged; the place follows


def bounds(data: Mapping[str, Any], params: Any) -> Figure | None:
    found = data.get("bounds")
    if found is None:
        return None
    title = "The certificate closes"
    splits, lower, upper = (floats(found[name]) for name in ("splits", "lower", "upper"))
    exact = found["exact"]
    if splits.size < 2:
        return message("bounds", title, "Nothing to close: the integral is exact without boxes", height=HEIGHT)
    at = np.maximum(splits, 1)
    upper = np.minimum(upper, 1.0)
    traces = [
        band(at, lower, upper, "between the bounds"),
        line(at, upper, "upper bound", hover="Z at most %{y:.4f} after %{x} splits"),
        line(at, lower, "lower bound", hover="Z at least %{y:.4f} after %{x} splits"),
    ]
    ends = [(float(upper[-1]), "Z\u207a", "$method"), (float(lower[-1]), "Z\u207b", "$method")]
    shapes = []
    if exact is not None:
        shapes.append(rule(exact, "exact", "$truth", across="y", dash="solid", width=1.5))
        ends.append((exact, "exact", "$truth"))
    reach = (max(0.0, float(lower.min()) - 0.02), 1.02)
    plot = layout(
        log_axis("splits", "count, log scale", at, showgrid=False),
        axis("Z", "share of mass", range=list(reach)),
        right=52,
        annotations=end_labels(ends, reach, PLOT_PX),
        shapes=shapes,
    )
    gap = float(upper[-1] - lower[-1])
    summary = f"After {int(splits[-1]):,} splits the gap is {gap:.2g}."
    half = float(np.interp(splits[-1] / 2, splits, upper - lower))
    if gap > 1e-6 and half > 0:
        summary += f" At half as many it was {half:.2g}: {half / gap:.2g} times as wide."
    return Figure("bounds", title, traces, plot, summary, height=HEIGHT)


def likelihood(data: Mapping[str, Any], metrics: Mapping[str, Any]) -> Figure | None:
    found = data.get("likelihood")
    if found is None:
        return None
    lower, upper, mixture = (floats(found[name]) for name in ("lower", "upper", "mixture"))
    rank = np.linspace(0, 100, lower.size)
    known = np.isfinite(lower) & np.isfinite(upper)
    traces: list[Trace] = [scatter(rank, mixture, "mixture", "$peer-1", symbol="circle-open", size=4, hover="mixture %{y:.3g}")]
    if known.any():
        traces.append(band(rank[known], lower[known], upper[known], "between the bounds"))
    traces.append(outline(rank, lower, upper, "this circuit", "$method", width=1.5, hover="log p bound %{y:.4g}"))
    shown = np.concatenate([lower, upper, mixture])
    shown = shown[np.isfinite(shown)]
    low_end, high_end = (float(np.quantile(shown, q)) for q in (0.04, 1.0))
    floor = low_end - 0.6 * (high_end - low_end)  # one point far from all cells must not flatten the rest
    below = float(shown.min()) < floor
    reach = [floor if below else float(shown.min()) - 0.2, high_end + 0.2]
    plot = layout(
        axis("test points, least likely first", "percent", showgrid=False),
        axis("log-likelihood", "nats a point", range=reach),
        top=30,
        annotations=key_row(("\u25ac this circuit, both bounds", "$method"), ("\u25cb mixture", "$peer-1")),
    )
    low, high, peer = (metrics.get(name) for name in ("log_likelihood_lower", "log_likelihood_upper", "log_likelihood_mixture"))
    if low is None or high is None or peer is None:
        summary = "The mean is not known from both sides: a test point has density 0, or the lower bound of Z is still 0."
    else:
        verdict = "the mixture wins" if peer > high else "this circuit wins" if peer < low else "the bounds do not decide"
        summary = f"Mean between {low:.3f} and {high:.3f}, the mixture of the same size {peer:.3f}: {verdict}."
    if below:
        summary += f" The least likely points, down to {float(shown.min()):.3g}, lie below the picture."
    return Figure("likelihood", "Every test point gets an interval", traces, plot, summary, height=HEIGHT)


def marginal(data: Mapping[str, Any], params: Any) -> Figure | None:
    found = data.get("marginal")
    if found is None:
        return None
    traces, top, summary = _density_band(found, "x1")
    shapes, notes = [], _band_key(found)
    fixed = parse(params.evidence, data["plane"]["dimension"]).fixed
    if 0 in fixed:
        shapes.append(rule(fixed[0], f"{KNOWN} {fixed[0]:.6g}", "$ink", width=2.5, dash="solid", editable=True))
        notes.append(label(fixed[0], 0.97, f"given {fixed[0]:.3g}", "$ink", yref="paper", yanchor="top", shift=(6, 0), bgcolor="$surface/0.8"))
        summary += " Drag the line: it is what the conditional is given."
    plot = layout(
        axis("x1", unit(params), showgrid=False, range=_reach(found)),
        axis("density", f"per {_per(params)}", range=[0, 1.15 * top], nticks=5),
        top=30,
        annotations=notes,
        shapes=shapes,
        meta={"editable": bool(shapes)},
    )
    return Figure("marginal", "Marginal of x1, all else integrated out", traces, plot, summary, height=HEIGHT)


def conditional(data: Mapping[str, Any], params: Any) -> Figure | None:
    found, query = data.get("conditional"), data.get("query")
    if found is None or query is None:
        return None
    name = f"x{found['variable'] + 1}"
    traces, top, summary = _density_band(found, name)
    shapes: list[dict[str, Any]] = []
    span = parse(query["event"], data["plane"]["dimension"]).between.get(found["variable"], EVERYTHING)
    reach = _reach(found)
    if span != EVERYTHING:
        start, end = max(span[0], reach[0]), min(span[1], reach[1])
        place = {"type": "rect", "x0": start, "x1": end, "y0": 0, "y1": 1, "yref": "paper", "line": {"width": 0}, "layer": "below", "editable": False}
        shapes.append({"name": "event", **place, "fillcolor": "$warning/0.10"})
        for side, value in ((LOW_END, span[0]), (HIGH_END, span[1])):
            if math.isfinite(value):
                shapes.append(rule(value, f"{side} {found['variable']} {value:.6g}", "$warning", width=2.5, dash="solid", editable=True))
    given = query["evidence"] or "nothing"
    if "lower" in query:
        low, high, exact = query["lower"], query["upper"], query["exact"]
        truth = "" if exact is None else f", exactly {exact:.4f}"
        summary = f"P({query['event']} | {given}) is between {low:.4f} and {high:.4f}{truth}. {summary} Drag the edge of the shaded event."
    plot = layout(
        axis(name, unit(params), showgrid=False, range=list(reach)),
        axis("density", f"per {_per(params)}", range=[0, 1.15 * top], nticks=5),
        top=30,
        annotations=[*_band_key(found), *([label(1, 0.97, "event", "$warning", anchor="right", xref="paper", yref="paper")] if shapes else [])],
        shapes=shapes,
        meta={"editable": bool(shapes)},
    )
    return Figure("conditional", f"Density of {name}, given {given}", traces, plot, summary, height=HEIGHT)


def _density_band(found: Mapping[str, Any], name: str) -> tuple[list[Trace], float, str]:
    """Traces of a certified density, its highest value worth showing, and how wide the band is."""
    at, lower, upper = (floats(found[key]) for key in ("at", "lower", "upper"))
    known = np.isfinite(upper)
    traces: list[Trace] = []
    if known.any():
        traces.append(band(at[known], lower[known], upper[known], "between the bounds"))
    traces.append(outline(at, lower, upper, "bounds", "$method", width=1.5, hover=f"bound %{{y:.4g}} at {name} = %{{x:.3g}}"))
    exact = found["exact"]
    tallest = float(lower.max(initial=0.0))
    if exact is not None:
        values = floats(exact)
        traces.append(line(at, values, "exact", "$truth", width=1.25, dash="dot", hover="exact %{y:.4g}"))
        tallest = max(tallest, float(values.max(initial=0.0)))
    top = min(max(2 * tallest, 1e-9), float(np.nanmax(upper, initial=tallest))) if tallest > 0 else float(np.nanmax(upper, initial=1.0))
    widest = float(np.nanmax(upper - lower, initial=0.0))
    inside = exact is not None and bool(((floats(exact) >= lower - 1e-9) & (floats(exact) <= upper + 1e-9))[known].all())
    summary = f"The band is at most {widest:.2g} wide" + (", and the exact curve lies in it." if inside else ".")
    return traces, max(top, 1e-9), summary


def _band_key(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    parts = [("\u25ac certified bounds", "$method")]
    return key_row(*parts, *([("\u22ef exact", "$truth")] if found["exact"] is not None else []))


def _reach(found: Mapping[str, Any]) -> tuple[float, float]:
    at = floats(found["at"])
    return float(at[0]), float(at[-1])


def _per(params: Any) -> str:
    return "standard deviation" if unit(params) != "no unit" else "unit of x"


def curse(data: Mapping[str, Any]) -> Figure | None:
    found = data.get("curse")
    if found is None:
        return None
    dimension, gap = floats(found["dimension"]), floats(found["gap"])
    draws = gap.shape[1]
    middle = np.median(gap, axis=1)
    traces = [
        line([dimension[0], dimension[-1]], [0, 0], "upright walls", "$peer-1", hover="upright walls: 0"),
        line(dimension, middle, "slanted walls", "$method", hover="median gap %{y:.3g}"),
        scatter(np.repeat(dimension, draws), gap.reshape(-1), "draws", "$method", symbol="circle-open", size=6, hover="gap %{y:.3g}"),
    ]
    notes = [
        label(dimension[-1], 0, "upright walls: exact", "$peer-1", anchor="right", shift=(0, 9)),
        label(dimension[-1], 1, "slanted walls", "$method", anchor="right", shift=(0, 12)),
    ]
    plot = layout(
        axis("variables", "count", dtick=1, showgrid=False, range=[1.8, 6.2]),
        axis("gap of the bounds", "share of mass", range=[-0.04, 1.15], nticks=6),
        annotations=notes,
    )
    summary = f"Four random cells, {found['splits']} splits: the gap is {middle[0]:.2g} in two variables and {middle[-1]:.2g} in six, the most it can be is 1."
    return Figure("curse", "The same boxes in more variables", traces, plot, summary, height=HEIGHT)
