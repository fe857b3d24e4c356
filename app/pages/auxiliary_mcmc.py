"""The pictures of auxiliary-mcmc: rows touched beside the chains they move, the race, and what the draws are worth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.dragging import is_number, moved_end
from app.pages._auxiliary_mcmc_laws import gap_bound, marginal_laws, ratios_and_batches, trace_lines
from app.pages._auxiliary_mcmc_race import effective_sizes, error_race, shown_name
from app.plotting import Changes, Figure, Trace, View, alpha, axis, bars, floats, label, layout, line, plain_text, scatter, stacked_when_narrow
from backends.contract import Frame

LEFT, RIGHT = (0.0, 0.44), (0.56, 1.0)
CONTOURS = (0.1, 0.5)  # of the largest density: the curves that hold 90 % and 50 % of a Gaussian in the plane
ELLIPSE = np.linspace(0, 2 * math.pi, 73)
NINETY = math.sqrt(2 * math.log(10))  # radius in sd that holds 90 % of a Gaussian in the plane
KAPPA, CHI = (1e-4, 1.0), (1e-5, 0.1)


def views(frame: Frame, params: Any) -> list[View]:
    """What can be drawn of this frame, the main picture first; a picture waits until its data is there."""
    data, metrics = frame.data, frame.metrics
    if "posterior" not in data:
        return []
    made = [
        _main(data, metrics),
        error_race(data),
        effective_sizes(data),
        marginal_laws(data),
        ratios_and_batches(data),
        gap_bound(data),
        trace_lines(data),
    ]
    return [view for view in made if view is not None]


def on_event(view: str, event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    """A click or a drag on the curve of batch and gap sets kappa, or chi where the axis is chi; an uploaded file sets the scene."""
    kind = event.get("type")
    if view == "gap" and kind in ("click", "drag"):
        name = _axis_of(params)
        position = event.get("x") if kind == "click" else moved_end(event, params.get(name))
        if not is_number(position) or position <= 0:
            return None
        low, high = KAPPA if name == "kappa" else CHI
        return Changes({name: min(max(float(f"{position:.2g}"), low), high)}, run=True)
    if view == "controls" and kind == "upload" and event.get("field") == "csv":
        return Changes({"scene": "csv"}, run=True)
    return None


def _axis_of(params: Mapping[str, Any]) -> str:
    tuna = str(params.get("sampler", "")).startswith("tuna") or (params.get("sampler") == "auto" and params.get("scene") == "logistic")
    return "chi" if tuna else "kappa"


# ------------------------------------------------------------------------------------------- rows and chains, side by side


def _main(data: Mapping[str, Any], metrics: Mapping[str, Any]) -> Figure:
    flat = "y" in data["posterior"]
    left = _rows(data) if flat else _lattice(data)
    right = _chains(data) if flat else _density(data)
    notes = [*left[1], *right[1]]
    plot = layout(
        left[2] | {"domain": list(LEFT), "anchor": "y"},
        left[3] | {"anchor": "x"},
        top=34,
        xaxis2=right[2] | {"domain": list(RIGHT), "anchor": "y2"},
        yaxis2=right[3] | {"anchor": "x2"},
        annotations=notes,
        meta=stacked_when_narrow(notes, RIGHT[0]),
    )
    return Figure("main", _title(data), [*left[0], *right[0]], plot, _summary(data, metrics), "main", height=470)


Part = tuple[list[Trace], list[dict[str, Any]], dict[str, Any], dict[str, Any]]


def _on_right(trace: Trace) -> Trace:
    return trace | {"xaxis": "x2", "yaxis": "y2"}


def _head(text: str, colour: str, *, right: bool = False, shift: float = 0) -> dict[str, Any]:
    """A label above its half of the picture."""
    return label(RIGHT[0] if right else 0, 1, text, colour, xref="paper", yref="paper", yanchor="bottom", shift=(shift, 8))


def _rows(data: Mapping[str, Any]) -> Part:
    behind, lit = data["background"], data.get("lit")
    x, y = floats(behind["x"]), floats(behind["y"])
    traces = [scatter(x, y, "rows", alpha("$muted", 0.35), size=3, edge=0, hover="skip")]
    notes = [_head(f"{behind['n']:,} rows", "$muted")]
    if lit is not None:
        style: dict[str, Any] = {"size": 6, "edge": 0, "opacity": 0.9, "hover": "read now: %{x:.3g}, %{y:.3g}"}
        traces.append(scatter(floats(lit["x"]), floats(lit["y"]), "read now", "$method", **style))
        notes = [_head(f"<b>{lit['count']:,} read now</b> of {behind['n']:,}", "$method")]
    across, up = behind["labels"]
    return traces, notes, axis(across, range=_reach(x), showgrid=False), axis(up, range=_reach(y), showgrid=False)


def _reach(values: np.ndarray) -> list[float]:
    """All but the farthest few in a thousand, so that one wild row does not flatten the rest."""
    low, high = np.quantile(values, (0.004, 0.996))
    edge = 0.12 * (high - low) or 1.0
    return [float(low - edge), float(high + edge)]


def _chains(data: Mapping[str, Any]) -> Part:
    found, own = data["posterior"], data.get("chains")
    x, y = floats(found["x"]), floats(found["y"])
    names = [plain_text(str(n)) for n in found["names"]]
    traces: list[Trace] = []
    if own is not None:
        cloud = floats(own["cloud"])
        traces.append(scatter(cloud[:, 0], cloud[:, 1], "draws", alpha("$method", 0.28), size=4, edge=0, hover="skip"))
    spacing = {"start": CONTOURS[0], "end": CONTOURS[1], "size": CONTOURS[1] - CONTOURS[0]}
    contour = {"type": "contour", "x": x, "y": y, "z": floats(found["density"]), "name": "exact", "showscale": False, "hoverinfo": "skip"}
    traces.append(contour | {"contours": {"coloring": "none", **spacing}, "line": {"color": "$truth", "width": 1.75}})
    head = [("exact 50, 90 %", "$truth")]
    if "sgld" in data:
        ring = _ellipse(floats(data["sgld"]["mean"]), floats(data["sgld"]["covariance"]))
        traces.append(line(ring[0], ring[1], "SGLD, 90 %", "$warning", width=2.25, dash="dash", hover="SGLD: 90 % of its draws"))
        head.append(("SGLD 90 %", "$warning"))
    if own is not None:
        trail = floats(own["trail"])
        gap = np.full((1, *trail.shape[1:]), np.nan)
        path = np.concatenate([trail, gap]).transpose(1, 0, 2).reshape(-1, 2)
        traces.append(line(path[:, 0], path[:, 1], "last steps", alpha("$method", 0.7), width=1.25, dash="solid", hover="skip"))
        now = floats(own["now"])
        at: dict[str, Any] = {"size": 8, "edge": 1, "hover": "chain %{x:.3g}, %{y:.3g}"}
        traces.append(scatter(now[:, 0], now[:, 1], "chains", "$method", **at))
        head.append((f"<b>{shown_name(data['light'])}</b>", "$method"))
    notes = []
    for number, (text, colour) in enumerate(head):
        notes.append(_head(text, colour, right=True, shift=(0, 104, 180)[number] if len(head) == 3 else 104 * number))
    ranges = [_span(v, data, j) for j, v in enumerate((x, y))]
    return [_on_right(t) for t in traces], notes, axis(names[0], "coefficient", range=ranges[0]), axis(names[1], "coefficient", range=ranges[1])


def _span(grid: np.ndarray, data: Mapping[str, Any], j: int) -> list[float]:
    """The posterior's own range, widened up to half for where SGLD went."""
    low, high = float(grid.min()), float(grid.max())
    if "sgld" in data:
        mean, sd = float(floats(data["sgld"]["mean"])[j]), math.sqrt(float(floats(data["sgld"]["covariance"])[j, j]))
        room = 0.5 * (high - low)
        low, high = min(low, max(mean - 2.3 * sd, low - room)), max(high, min(mean + 2.3 * sd, high + room))
    return [low, high]


def _ellipse(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """(2, 73) the curve that holds 90 % of a Gaussian with these moments."""
    values, vectors = np.linalg.eigh(covariance)
    axes = vectors * np.sqrt(np.maximum(values, 0))
    return np.asarray(mean[:, None] + NINETY * axes @ np.stack([np.cos(ELLIPSE), np.sin(ELLIPSE)]))


def _lattice(data: Mapping[str, Any]) -> Part:
    """The law of S at the coupling where the first chain is: what an auxiliary data set is drawn from."""
    behind, own = data["background"], data.get("chains")
    s, log_counts = floats(behind["s"]), floats(behind["log_counts"])
    at = float(floats(own["now"])[0, 0]) if own is not None else 0.0
    log_law = log_counts + at * s
    law = np.exp(log_law - log_law.max())
    law /= law.sum()
    traces = [bars(s, law, "law of S", alpha("$method", 0.6), hover="S = %{x}: %{y:.3f}")]
    notes = [_head(f"law of S at coupling {at:.2f}", "$method")]
    across, up = behind["labels"]
    return traces, notes, axis(across, showgrid=False), axis(up, rangemode="tozero")


def _density(data: Mapping[str, Any]) -> Part:
    found, own = data["posterior"], data.get("chains")
    x, density = floats(found["x"]), floats(found["density"])
    traces = [line(x, density, "exact", "$truth", width=2.5, hover="exact %{y:.3g}")]
    head = [("exact", "$truth")]
    if own is not None:
        edges = np.linspace(0, 1, 31)
        drawn, _ = np.histogram(floats(own["cloud"])[:, 0], edges, density=True)
        centre = (edges[1:] + edges[:-1]) / 2
        traces.insert(0, bars(centre, drawn, "draws", alpha("$method", 0.4), width=1 / 31, hover="drawn %{y:.2f}"))
        now = floats(own["now"])[:, 0]
        traces.append(scatter(now, np.full(now.size, 0.06 * float(density.max())), "chains", "$method", size=8, hover="chain at %{x:.3g}"))
        head.append((f"<b>{shown_name(data['light'])}</b>", "$method"))
    notes = [_head(text, colour, right=True, shift=46 * number) for number, (text, colour) in enumerate(head)]
    return [_on_right(t) for t in traces], notes, axis("coupling", "no unit", range=[0, 1]), axis("posterior", "density", rangemode="tozero")


def _title(data: Mapping[str, Any]) -> str:
    if "y" not in data["posterior"]:
        return "A data set drawn at each step, and the posterior it leaves"
    return "Rows read now, and the posterior of all rows"


def _summary(data: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    if metrics.get("mean_batch") is None:
        return f"The exact answer is ready ({plain_text(str(data['reference']['how']))}); the chains follow."
    name = shown_name(data["light"])
    if "y" not in data["posterior"]:
        told = f"{name} never computes the normalising constant."
    else:
        told = f"{name} reads {metrics['mean_batch']:,.0f} of {data['background']['n']:,} rows a step."
    error, ratio = metrics.get("posterior_mean_error_sd"), metrics.get("posterior_sd_ratio")
    text = f"{told} Its means are within {error:.2f} posterior sd of the exact ones, its spread is {ratio:.2f} of the exact."
    sgld = metrics.get("sgld_sd_ratio")
    return text if sgld is None else f"{text} SGLD's spread is {sgld:.2f}."
