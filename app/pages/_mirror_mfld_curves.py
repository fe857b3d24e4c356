"""What is measured of the clouds of mirror-mfld: energies, wall mass, means, marginals, and how errors depend on N and eta."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.plotting import Figure, Trace, axis, bars, end_labels, floats, intervals, key_row, label, layout, line, log_axis, message, plain_text, rule

COLOURS = {"mirror": "$method", "projected": "$peer-1", "unconstrained": "$peer-2", "noise-free": "$peer-3", "frozen": "$muted"}
TIME = ("time", "steps times η")
HALF = 340
PLOT_PX = HALF - 90
MARGINALS = 3


def _series(data: Mapping[str, Any], name: str) -> np.ndarray:
    return floats(data["trace"].get(name, []))


def _range(curves: list[np.ndarray], pad: float = 0.06) -> tuple[float, float]:
    joined = np.concatenate(curves)
    joined = joined[np.isfinite(joined)]
    low, high = (float(joined.min()), float(joined.max())) if joined.size else (0.0, 1.0)
    spread = max(high - low, 1e-6)
    return low - pad * spread, high + pad * spread


def walls(data: Mapping[str, Any]) -> Figure:
    """Share of each cloud at the wall against time."""
    time = _series(data, "time")
    traces: list[Trace] = []
    ends: list[tuple[float, str, str]] = []
    for name in data["clouds"]:
        near = _series(data, f"near {name}")
        traces.append(line(time, near, name, COLOURS[name], hover=f"{name}: %{{y:.2%}} at time %{{x:.3g}}"))
        ends.append((float(near[-1]), name, COLOURS[name]))
    shapes = []
    if "exact" in data:
        mass = float(data["exact"]["wall_mass"])
        shapes.append(rule(mass, "exact law", "$truth", across="y", width=1.25))
        ends.append((mass, "exact", "$truth"))
    top = max(0.02, 1.1 * max(float(t["y"].max()) for t in traces))
    plot = layout(
        axis(*TIME, showgrid=False),
        axis("within 0.001 of a wall", "share of particles", range=[-0.04 * top, top], tickformat=".0%"),
        right=76,
        shapes=shapes,
        annotations=end_labels(ends, (-0.04 * top, top), PLOT_PX),
    )
    on = [f"{_series(data, f'on {name}')[-1]:.1%} of the {name} cloud" for name in data["clouds"]]
    return Figure("walls", "Who piles up at the wall", traces, plot, f"Exactly on the wall now: {' and '.join(on)}.", height=HALF)


def gap(data: Mapping[str, Any], params: Any) -> Figure | None:
    """Free energy above the least there is, on a log axis, with the fitted rate."""
    if "gap" not in data["trace"] or "exact" not in data:
        return None
    title = "The free energy against the least there is"
    time, values = _series(data, "time"), _series(data, "gap")
    noise = params.temperature / math.sqrt(params.particles)
    floor = noise / 10
    shown = np.where(values > floor, values, np.nan)
    if not np.isfinite(shown).any():
        return message("gap", title, "The free energy is not known: too few points, or points that coincide", height=HALF)
    drawn = line(time, shown, "mirror", "$method", hover="%{y:.2e} at time %{x:.3g}") | {"mode": "lines+markers"}
    traces: list[Trace] = [drawn | {"marker": {"color": "$method", "size": 5}}]
    found, notes = data.get("rate"), [label(0.98, math.log10(noise), "noise of the estimate", "$muted", anchor="right", xref="paper", shift=(0, 9))]
    summary = f"Gap now {values[-1]:+.4f}; the estimate wavers by about λ/√N = {noise:.4f}, and what falls below a tenth of that is not drawn."
    if found:
        until = min(float(time[-1]), (found["start"] - math.log(floor)) / found["rate"])
        at = np.array([0.0, max(until, 1e-9)])
        traces.append(line(at, np.exp(found["start"] - found["rate"] * at), "fit", "$ink", dash="dash", width=1.5, hover="skip"))
        notes.append(label(0.98, 0.96, f"fitted rate {found['rate']:.2g} per unit of time", "$ink", anchor="right", xref="paper", yref="paper"))
        summary = f"Fitted rate {found['rate']:.3g} per unit of time. {summary}"
    reach = [math.log10(floor), math.log10(max(float(np.nanmax(shown)), 2 * noise)) + 0.15]
    plot = layout(
        axis(*TIME, showgrid=False),
        log_axis("gap to the least", "nats times λ, log scale", shown, range=reach),
        shapes=[rule(noise, "noise", "$muted", across="y", dash="dot", width=1)],
        annotations=notes,
    )
    return Figure("gap", title, traces, plot, summary, height=HALF)


def energies(data: Mapping[str, Any], params: Any) -> Figure:
    """F of both clouds, the entropy term and their sum."""
    time = _series(data, "time")
    curves = [(f"energy {name}", f"F {name}", COLOURS[name], None) for name in data["clouds"]]
    if "entropy" in data["trace"]:
        curves += [("entropy", "λ Ent", "$peer-2", None), ("free energy", "F + λ Ent", "$ink", None)]
    traces: list[Trace] = []
    ends: list[tuple[float, str, str]] = []
    for key, name, colour, dash in curves:
        values = _series(data, key) * (params.temperature if key == "entropy" else 1.0)
        if np.isfinite(values).any():
            traces.append(line(time, values, name, colour, dash=dash, hover=f"{name}: %{{y:.4f}} at time %{{x:.3g}}"))
            ends.append((float(values[np.isfinite(values)][-1]), name, colour))
    shapes = []
    if "exact" in data and "entropy" in data["trace"]:
        least = float(data["exact"]["free_energy"])
        shapes.append(rule(least, "least", "$truth", across="y", width=1.25))
        ends.append((least, "least", "$truth"))
    reach = _range([t["y"] for t in traces] + [np.array([e[0] for e in ends])])
    plot = layout(
        axis(*TIME, showgrid=False),
        axis("energy", "units of F", range=list(reach)),
        right=94,
        shapes=shapes,
        annotations=end_labels(ends, reach, PLOT_PX),
    )
    summary = "The projected law has atoms: its entropy is infinite, so only its F is drawn." if "projected" in data["clouds"] else "F pulls, entropy spreads."
    if "exact" in data:
        summary += f" Least free energy {data['exact']['free_energy']:.4f}."
    return Figure("energies", "What the clouds minimise", traces, plot, summary, height=HALF)


def means(data: Mapping[str, Any]) -> Figure:
    """Mean of the first coordinate of every dynamics."""
    time, first = _series(data, "time"), data["names"][0]
    traces: list[Trace] = []
    ends: list[tuple[float, str, str]] = []
    for name, colour in COLOURS.items():
        values = _series(data, f"mean {name}")
        if values.size and np.isfinite(values[:, 0]).all():
            traces.append(line(time, values[:, 0], name, colour, width=2.25 if name == "mirror" else 1.5, hover=f"{name}: %{{y:.3f}} at time %{{x:.3g}}"))
            ends.append((float(values[-1, 0]), name, colour))
    shapes = []
    if "exact" in data:
        exact = float(data["exact"]["mean"][0])
        shapes.append(rule(exact, "exact", "$truth", across="y", width=1.25))
        ends.append((exact, "exact", "$truth"))
    reach = _range([t["y"] for t in traces] + [np.array([e[0] for e in ends])])
    kind = "share" if data["domain"] == "simplex" or data["size"] > 2 else "no unit"
    plot = layout(
        axis(*TIME, showgrid=False),
        axis(f"mean of {first}", kind, range=list(reach)),
        right=104,
        shapes=shapes,
        annotations=end_labels(ends, reach, PLOT_PX),
    )
    said = {"noise-free": "noise-free goes to the best point", "frozen": "frozen never sees the others", "unconstrained": "unconstrained knows no wall"}
    summary = "; ".join(text for name, text in said.items() if any(t["name"] == name for t in traces))
    return Figure("means", "Where each dynamics takes the mean", traces, plot, f"Mean of {first}: {summary}." if summary else f"Mean of {first}.", height=HALF)


def marginals(data: Mapping[str, Any]) -> Figure:
    """Histograms of the mirror cloud beside the exact densities."""
    title = "Marginals, and their exact densities"
    if "histograms" not in data:
        return message("marginals", title, "Marginals are drawn of the mirror cloud", span="wide", height=240)
    names, found = data["names"][:MARGINALS], data["histograms"][:MARGINALS]
    exact = data.get("exact", {}).get("marginals")
    gap_between = 0.07
    width = (1 - gap_between * (len(found) - 1)) / len(found)
    traces: list[Trace] = []
    axes: dict[str, Any] = {}
    for index, (name, one) in enumerate(zip(names, found, strict=True)):
        tag = "" if index == 0 else str(index + 1)
        edges, density = floats(one["edges"]), floats(one["density"])
        place: dict[str, Any] = {"xaxis": f"x{tag}", "yaxis": f"y{tag}"}
        step = float(edges[1] - edges[0])
        traces.append(bars((edges[:-1] + edges[1:]) / 2, density, "mirror", "$method/0.55", width=0.94 * step, hover=f"{name}: %{{y:.2f}}", **place))
        if exact is not None:
            traces.append(line(floats(exact[index]["x"]), floats(exact[index]["density"]), "exact", "$truth", hover="exact: %{y:.2f}", **place))
        left = index * (width + gap_between)
        unit = "share" if data["domain"] == "simplex" or data["size"] > 2 else "no unit"
        axes[f"xaxis{tag}"] = axis(plain_text(name), unit, showgrid=False, anchor=f"y{tag}", nticks=5) | {"domain": [left, left + width]}
        axes[f"yaxis{tag}"] = axis("density", "per unit", anchor=f"x{tag}", nticks=4, rangemode="tozero")
    key = key_row(("■ mirror cloud", "$method"), *([("— exact", "$truth")] if exact is not None else []))
    plot = layout(axes.pop("xaxis"), axes.pop("yaxis"), top=30, bargap=0, annotations=key, **axes)
    if exact is None:
        return Figure("marginals", "Marginals of the mirror cloud", traces, plot, "No quadrature reaches the exact marginals here.", "wide", height=280)
    apart = []
    for one, law in zip(found, exact, strict=False):
        edges = floats(one["edges"])
        middle = (edges[:-1] + edges[1:]) / 2
        apart.append(float(np.abs(floats(one["density"]) - np.interp(middle, floats(law["x"]), floats(law["density"]))).sum() * (edges[1] - edges[0]) / 2))
    said = ", ".join(f"{name} {share:.1%}" for name, share in zip(names, apart, strict=True))
    return Figure("marginals", title, traces, plot, f"Mass that differs from the exact marginal (about): {said}.", "wide", height=280)


def sizes(data: Mapping[str, Any]) -> Figure | None:
    """Error of the mean against the size of the cloud."""
    if "sizes" not in data:
        return None
    found = data["sizes"]
    at, error, noise = floats(found["at"]), floats(found["error"]), floats(found["noise"])
    if not np.isfinite(error).all():
        return message("sizes", "Bias against the size of the cloud", "The particles left the numbers in this sweep", height=HALF)
    bottom = max(float(error.min()) / 3, 1e-5)
    drawn = intervals(at, error, np.maximum(error - 2 * noise, bottom), error + 2 * noise, "mean error", hover="N = %{x}: %{y:.4f}")
    fall = line(at, error[0] * at[0] / at, "1/N", "$truth", dash="dash", width=1.5, hover="skip")
    x = axis("particles N", "count, log scale", type="log", tickvals=at, ticktext=[f"{v:g}" for v in at], showgrid=False)
    notes = [label(math.log10(at[2]), math.log10(error[0] * at[0] / at[2]), "falls as 1/N", "$truth", shift=(8, 8))]
    y = log_axis("distance of the mean", "distance, log scale", np.append(error, bottom))
    plot = layout(x, y, annotations=notes)
    summary = "Bars are two standard errors: below them nothing can be read." + f" N = {at[0]:g} is off by {error[0]:.3f}, N = {at[-1]:g} by {error[-1]:.3f}."
    return Figure("sizes", "Bias against the size of the cloud", [fall, drawn], plot, summary, height=HALF)


def step_sizes(data: Mapping[str, Any]) -> Figure | None:
    """Errors of mean and second moment against the step."""
    if "step_sizes" not in data:
        return None
    title, found = "Bias against the step", data["step_sizes"]
    at, error, noise = floats(found["at"]), floats(found["error"]), floats(found["noise"])
    second, second_noise = floats(found["second"]), floats(found["second_noise"])
    if not (np.isfinite(error).all() and np.isfinite(second).all()):
        return message("step_sizes", title, "The particles left the numbers in this sweep", height=HALF)
    traces = [
        intervals(at * 0.97, error, error - 2 * noise, error + 2 * noise, "mean", hover="distance of the mean %{y:.4f}"),
        intervals(
            at * 1.03, second, second - 2 * second_noise, second + 2 * second_noise, "E|x|²", "$peer-1", symbol="diamond", hover="E|x|² off by %{y:+.4f}"
        ),
    ]
    x = axis("step η", "time, log scale", type="log", tickvals=at, ticktext=[f"{v:g}" for v in at], showgrid=False)
    key = key_row(("● distance of the mean", "$method"), ("◆ E|x|² minus exact", "$peer-1"))
    plot = layout(x, axis("error", "units of x", zeroline=True), top=30, annotations=key, shapes=[rule(0, "none", "$truth", across="y", width=1.25)])
    summary = f"Bars are two standard errors. At η = {at[-1]:g}: mean off by {error[-1]:.3f}, E|x|² by {second[-1]:+.3f}."
    return Figure("step_sizes", title, traces, plot, summary, height=HALF)
