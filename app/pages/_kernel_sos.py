"""How kernel sums of squares were fitted: the spectra of their operators, and the certificate of the optimum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._split_conformal import ABOVE, BELOW
from app.plotting import Figure, axis, end_labels, floats, label, layout, line, log_axis


def spectrum(data: Mapping[str, Any]) -> Figure | None:
    found = data.get("spectrum")
    if found is None:
        return None
    traces, notes, ranks, width = [], [], [], len(found["upper"])
    shown = min(width, 1.6 * max(_rank(floats(found[key])) for key in ("upper", "lower")) + 2)  # zeros need no place
    for key, name, colour, symbol in (("upper", "upper side", ABOVE, "circle"), ("lower", "lower side", BELOW, "diamond-open")):
        values = floats(found[key])
        ranks.append(_rank(values))
        alive = np.arange(values.size) < ranks[-1]
        index = np.arange(1, values.size + 1)[alive]
        drawn = line(index, values[alive], name, colour, width=1.25, dash="solid", hover=f"{name}: %{{y:.3g}}")
        traces.append(drawn | {"mode": "lines+markers", "marker": {"color": colour, "symbol": symbol, "size": 8}})
        if alive.any():
            flip = index[-1] > 0.6 * shown
            place: dict[str, Any] = {"anchor": "right" if flip else "left", "shift": (-10 if flip else 10, 8 if key == "upper" else -8)}
            notes.append(label(int(index[-1]), math.log10(values[alive][-1]), f"{name}, rank {ranks[-1]}", colour, **place))
    plot = layout(
        axis("eigenvalue number", "count", range=[0.5, shown + 0.5], showgrid=False),
        log_axis("eigenvalue", "squared residual sd, log scale", np.concatenate([t["y"] for t in traces])),
        annotations=notes,
    )
    summary = f"The upper side is a sum of {ranks[0]} squares, the lower side of {ranks[1]}, of {width} possible."
    return Figure("spectrum", "How many squares each side needs", traces, plot, summary, height=320)


def _rank(values: np.ndarray) -> int:
    """How many of the eigenvalues, in descending order, are not rounding."""
    return int((values > 1e-8 * max(float(values.max(initial=0)), 1e-300)).sum())


def convergence(data: Mapping[str, Any]) -> Figure | None:
    found = data.get("convergence")
    if found is None or not len(found["iteration"]):
        return None
    step = floats(found["iteration"])
    dual, primal, gap = (_positive(found[key]) for key in ("dual", "primal", "gap"))
    traces = [
        line(step, primal, "feasible primal", "$peer-1", hover="primal %{y:.5g}"),
        line(step, dual, "dual", "$method", hover="dual %{y:.5g}"),
        line(step, gap, "relative gap", "$ink", width=1.5, yaxis="y2", hover="gap %{y:.2g}"),
    ]
    ends = [(math.log10(c[-1]), name, colour) for c, name, colour in ((primal, "primal", "$peer-1"), (dual, "dual", "$method")) if c[-1] > 0]
    objective = np.log10(np.concatenate([primal, dual]))
    notes = end_labels(ends, (float(np.nanmin(objective)), float(np.nanmax(objective)) + 1e-9), 120) if ends else []
    plot = layout(
        axis("iteration", "count", showgrid=False, anchor="y2"),
        log_axis("objective", "log scale", np.concatenate([dual, primal]), domain=(0.46, 1.0)),
        right=48,
        yaxis2=log_axis("gap", "relative, log", gap, domain=(0.0, 0.38)),
        annotations=notes,
    )
    last = float(found["gap"][-1])
    summary = f"After {int(step[-1])} iterations the optimum is known to a relative gap of {last:.1e}: a certificate, not a guess."
    return Figure("convergence", "The certificate closes", traces, plot, summary, height=320)


def _positive(values: Any) -> np.ndarray:
    array = floats(values)
    return np.where(array > 0, array, np.nan)  # a log axis has no place for the rest
