"""The race of auxiliary-mcmc: error against rows read and against time, and what each sampler's draws are worth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.plotting import Figure, Trace, axis, end_labels, floats, layout, line, log_axis, scatter

NAMES = {
    "poisson-mh": "PoissonMH",
    "poisson-barker": "Poisson-Barker",
    "poisson-mala": "Poisson-MALA",
    "tuna-mh": "TunaMH",
    "tuna-sgld": "Tuna-SGLD",
    "exchange": "exchange",
    "sgld": "SGLD",
    "full-mh": "MH, all rows",
    "full-barker": "Barker, all rows",
    "full-mala": "MALA, all rows",
    "full-hmc-5": "HMC, all rows",
}
SHORT = {
    "full-mh": "full MH",
    "full-barker": "full Barker",
    "full-mala": "full MALA",
    "full-hmc-5": "full HMC",
    "poisson-barker": "P-Barker",
    "poisson-mala": "P-MALA",
}
RACED = ("full-mala", "full-mh", "poisson-mh", "tuna-mh")  # beside the sampler in the light and SGLD: more lines than these cannot be told apart
HEIGHT = 380


def shown_name(name: str) -> str:
    """A sampler's name as people write it.

    >>> shown_name("tuna-sgld"), shown_name("full-mala")
    ('Tuna-SGLD', 'MALA, all rows')
    """
    return NAMES.get(name, name)


def short_name(name: str) -> str:
    """The same for a narrow margin.

    >>> short_name("poisson-mala")
    'P-MALA'
    """
    return SHORT.get(name, shown_name(name))


def colour_of(name: str, light: str) -> str:
    """The colour token of a sampler: the method's for the one in the light, the warning for the biased one, greys for peers."""
    if name == light:
        return "$method"
    return {"sgld": "$warning", "full-mala": "$peer-1", "full-mh": "$peer-2"}.get(name, "$peer-3")


def error_race(data: Mapping[str, Any]) -> Figure | None:
    """The error of mean and sd against rows read and against processor time, both log."""
    curves, light = data.get("curves"), data.get("light", "")
    if not curves:
        return None
    shown = [name for name in (*RACED, "sgld") if name in curves and name != light] + [light]
    traces: list[Trace] = []
    ends: list[tuple[float, str, str]] = []
    seen: dict[str, list[np.ndarray]] = {"touches": [], "seconds": [], "error": []}
    for name in shown:
        found = {key: floats(curves[name][key]) for key in seen}
        if not found["error"].size:
            continue
        colour, width = colour_of(name, light), 2.75 if name == light else 1.75
        text = short_name(name)
        for key, xaxis, yaxis in (("touches", "x", "y"), ("seconds", "x2", "y2")):
            kept = found[key] > 0
            style = {"xaxis": xaxis, "yaxis": yaxis, "hover": f"{text}: error %{{y:.3g}} at %{{x:.3g}}"}
            traces.append(line(found[key][kept], found["error"][kept], text, colour, width=width, ghost=name == light, **style))
        for key in seen:
            seen[key].append(found[key])
        ends.append((math.log10(max(float(found["error"][-1]), 1e-6)), f"<b>{text}</b>" if name == light else text, colour))
    if not ends:
        return None
    errors = np.concatenate(seen["error"])
    low, high = math.log10(float(errors[errors > 0].min())) - 0.08, math.log10(float(errors.max())) + 0.08
    notes = end_labels(ends, (low, high), HEIGHT - 82, yref="y2")
    for note in notes:
        note["xref"] = "paper"
    error = "error of mean and sd"
    plot = layout(
        log_axis("rows read", "count, log scale", np.concatenate(seen["touches"]), domain=(0.0, 0.46)),
        log_axis(error, "posterior sd, log scale", errors, range=[low, high]),
        right=84,
        xaxis2=log_axis("processor time", "s, log scale", np.concatenate(seen["seconds"]), domain=(0.56, 1.0), anchor="y2"),
        yaxis2=log_axis(error, "posterior sd, log scale", errors, range=[low, high], anchor="x2", matches="y", showticklabels=True),
        annotations=notes,
    )
    plot["yaxis2"]["title"] = {"text": "the same (posterior sd)", "standoff": 8}
    last = {name: float(floats(curves[name]["error"])[-1]) for name in (light, "sgld") if name in curves and len(curves[name]["error"])}
    told = f"{shown_name(light)} is at error {last[light]:.3g}" if light in last else "The race has begun"
    summary = f"{told}; SGLD stays at {last['sgld']:.3g}, whatever it reads." if "sgld" in last else f"{told}, in posterior sd."
    return Figure("race", "Error against rows read, and against time", traces, plot, summary, "wide", height=HEIGHT)


def effective_sizes(data: Mapping[str, Any]) -> Figure | None:
    """Effective draws a second and a million rows: the slowest, middle and fastest coordinate of every sampler, SGLD marked as biased."""
    race = [row for row in data.get("race", []) if "ess" in row]
    if not race:
        return None
    light = data.get("light", "")
    race = sorted(race, key=lambda row: float(row["ess"]["second"][0]))
    names = [short_name(r["name"]) + (" (biased)" if r["biased"] else "") for r in race]
    traces: list[Trace] = []
    ranges = []
    for unit, xaxis, yaxis in (("second", "x", "y"), ("million", "x2", "y2")):
        values = np.maximum(np.array([[float(v) for v in r["ess"][unit]] for r in race]), 1e-3)
        ranges.append(values)
        for number, row in enumerate(race):
            colour = colour_of(row["name"], light)
            span = line(values[number, [0, 2]], [names[number]] * 2, names[number], colour, width=9 if row["name"] == light else 6, dash="solid", hover="skip")
            traces.append(span | {"xaxis": xaxis, "yaxis": yaxis})
        hover = "slowest coordinate: %{x:.3g}"
        mark = scatter(values[:, 0], names, "slowest coordinate", "$ink", symbol="line-ns-open", size=13, edge=2, hover=hover)
        middle = scatter(values[:, 1], names, "middle coordinate", "$ink", symbol="circle", size=5, hover="middle coordinate: %{x:.3g}")
        traces += [mark | {"xaxis": xaxis, "yaxis": yaxis}, middle | {"xaxis": xaxis, "yaxis": yaxis}]
    kind: dict[str, Any] = {"type": "category", "categoryorder": "array", "categoryarray": names, "showgrid": False}
    plot = layout(
        log_axis("a processor second", "draws, log scale", ranges[0], domain=(0.0, 0.46)),
        axis("sampler (no unit)", **kind) | {"title": {"text": "sampler (no unit)", "standoff": 4}},
        xaxis2=log_axis("a million rows", "draws, log scale", ranges[1], domain=(0.54, 1.0), anchor="y2"),
        yaxis2=axis("the same samplers (no unit)", **kind, anchor="x2", showticklabels=False)
        | {"title": {"text": "the same samplers (no unit)", "font": {"size": 1}}},
    )
    own = next((row for row in race if row["name"] == light), None)
    text = "Bar: slowest to fastest coordinate; stroke: the slowest, dot: the middle one."
    if own is not None:
        text += f" {shown_name(light)}: {own['ess']['second'][0]:,.0f} effective draws a second in its slowest coordinate."
    return Figure("effective", "Effective draws, by time and by rows", traces, plot, text, "wide", height=360)
