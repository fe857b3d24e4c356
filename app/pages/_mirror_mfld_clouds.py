"""The clouds of mirror-mfld: where they are, over the exact law, and where the mirror shows them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.plotting import Figure, Trace, alpha, axis, floats, heatmap, key_row, label, layout, line, scatter, stacked_when_narrow

HEIGHT = math.sqrt(3) / 2
EDGE = 0.04
DUAL_SHARE = 0.99  # of the cloud that the dual picture's axes hold
CROWDED = 1e-12
LABEL_GAP = 0.09  # between two labels of contours, in units of the picture
PRIMAL, DUAL = (0.0, 0.58), (0.67, 1.0)  # of the main picture's width
IN_MIRROR = "in the mirror"


def ring_radius(domain: str) -> float:
    """Radius of the ring around q, in units of the picture."""
    return 0.03 if domain == "simplex" else 0.06


def cloud(data: Mapping[str, Any], params: Any) -> Figure:
    """The main picture: both clouds over the exact law, with q to drag, and beside them the mirror cloud in its dual space."""
    domain, clouds = data["domain"], data["clouds"]
    wall = data["outline"]
    traces: list[Trace] = [line(floats(wall["x"]), floats(wall["y"]), "wall", "$ink", width=1.5, hover="skip")]
    if "target" in data:
        at = floats(data["target"])
        traces.append(scatter(at[:, 0], at[:, 1], "target cloud", "$truth", symbol="x-thin", size=6, edge=1.25, hover="target cloud"))
    key: list[tuple[str, str]] = []
    for name, colour, symbol, mark in (("projected", "$peer-1", "diamond", "\u25c6"), ("mirror", "$method", "circle", "\u25cf")):
        if name in clouds:
            key.insert(0, (f"{mark} {name}", colour))
            traces += _marks(data, name, colour, symbol)
    if any(np.any(c["at_wall"]) for c in clouds.values()):
        key.append(("\u25c6 wall", "$warning"))
    leading = "mirror" if "mirror" in clouds else "projected"
    if "exact" in data:
        key.append(("\u2014 exact", "$truth"))
        traces += _exact(data)
    if "network" not in data and data["size"] == 2:
        middle = floats(clouds[leading]["mean"])
        ring = scatter([middle[0]], [middle[1]], "mean of the cloud", "$surface", size=9, edge=2, hover=f"mean of the {leading} cloud")
        ring["marker"]["line"]["color"] = "$method" if leading == "mirror" else "$peer-1"
        traces.append(ring)
    shapes, notes = _handle(data, domain)
    notes += _held(data)
    title, summary = _words(data, params, leading)
    x, y = _axes(data)
    beside: dict[str, Any] = {}
    if leading == "mirror":
        drawn, beside = _in_mirror(data)
        traces += drawn
        notes.append(label(1, 1, "in the mirror: no walls", "$ink", anchor="right", xref="paper", yref="paper", yanchor="bottom", shift=(0, 8)))
        x["domain"] = list(PRIMAL)
    notes = [*key_row(*key), *notes, *_corners(domain)]
    meta = {"editable": bool(shapes)} | (stacked_when_narrow(notes, DUAL[0], upper=0.42, lower=0.26) if beside else {})
    plot = layout(x, y, top=34, annotations=notes, shapes=shapes, meta=meta, **beside)
    return Figure("cloud", title, traces, plot, summary, "main", height=520)


def _marks(data: Mapping[str, Any], name: str, colour: str, symbol: str) -> list[Trace]:
    """The points of one cloud; what is at the wall in the warning colour, neurons that count for minus as open marks."""
    places, at_wall = floats(data["clouds"][name]["places"]), np.asarray(data["clouds"][name]["at_wall"], bool)
    signs = floats(data["network"]["signs"])[: len(places)] if "network" in data else np.ones(len(places))
    traces = []
    for here, opened in ((~at_wall & (signs > 0), False), (~at_wall & (signs < 0), True)):
        if here.any():
            shape, edge = (f"{symbol}-open", 1) if opened else (symbol, 0)
            traces.append(scatter(places[here, 0], places[here, 1], name, alpha(colour, 0.6), symbol=shape, size=5, edge=edge, hover=name))
    stuck = places[at_wall]
    if len(stuck):
        hover = f"{name}, at the wall"
        traces.append(scatter(stuck[:, 0], stuck[:, 1], f"{name} at the wall", alpha("$warning", 0.75), symbol=symbol, size=6, edge=0, hover=hover))
    return traces


def _exact(data: Mapping[str, Any]) -> list[Trace]:
    traces = []
    for level in data["exact"]["contours"]:
        held = level["held"]
        colour = alpha("$truth", 1.1 - 0.5 * held)
        traces.append(line(floats(level["x"]), floats(level["y"]), f"holds {held:.0%}", colour, width=2, hover=f"{held:.0%} of the exact law inside"))
    at = floats(data["mean_place"])
    traces.append(scatter([at[0]], [at[1]], "exact mean", "$truth", symbol="cross-thin", size=17, edge=3, hover="exact mean"))
    return traces


def _held(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What each contour holds, at its rightmost place; of contours whose labels would cover each other the outer one."""
    notes: list[dict[str, Any]] = []
    taken: list[float] = []
    for level in reversed(data.get("exact", {}).get("contours", [])):
        x, y = floats(level["x"]), floats(level["y"])
        if not np.isfinite(x).any():
            continue
        last = int(np.nanargmax(x))
        if all(abs(y[last] - other) > LABEL_GAP for other in taken):
            taken.append(float(y[last]))
            notes.append(label(x[last], y[last], f"{level['held']:.0%}", "$truth", shift=(4, 0), bgcolor="$surface/0.7"))
    return notes


def _in_mirror(data: Mapping[str, Any]) -> tuple[list[Trace], dict[str, Any]]:
    """The mirror cloud in the dual space, and its axes; they hold 99 % of each coordinate."""
    y, at_wall = floats(data["clouds"]["mirror"]["dual"]), np.asarray(data["clouds"]["mirror"]["at_wall"], bool)
    low, high = np.quantile(y, [(1 - DUAL_SHARE) / 2, (1 + DUAL_SHARE) / 2], axis=0)
    pad = 0.08 * np.maximum(high - low, CROWDED)
    traces = []
    for here, colour in ((~at_wall, "$method"), (at_wall, "$warning")):
        if here.any():
            drawn = scatter(y[here, 0], y[here, 1], IN_MIRROR, alpha(colour, 0.6), size=4, edge=0, hover="y = %{x:.3g}, %{y:.3g}", xaxis="x2", yaxis="y2")
            traces.append(drawn)
    names = {
        "simplex": ("log x\u2083 against x\u2082", "log x\u2081 against both"),
        "spectraplex": ("log S, first direction", "log S, second direction"),
    }.get(data["domain"], ("y, first entry", "y, second entry"))
    if data["size"] > 2:
        names = ("log of the largest eigenvalue", "log of the smallest")
    left, right = ([float(a), float(b)] for a, b in zip(low - pad, high + pad, strict=True))
    return traces, {
        "xaxis2": axis(names[0], "no unit", range=left, nticks=6, anchor="y2") | {"domain": list(DUAL)},
        "yaxis2": axis(names[1], "no unit", range=right, nticks=6, anchor="x2"),
    }


def _axes(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    domain = data["domain"]
    if domain == "simplex":
        x = axis("corner: share of 1, opposite side: share of 0", showgrid=False, showticklabels=False, ticks="", fixedrange=True, range=[-0.1, 1.1])
        return x, {"visible": False, "range": [-0.04, HEIGHT + 0.08], "scaleanchor": "x", "fixedrange": True}
    if data["size"] > 2:
        return (
            axis("overlap with the even state", "share", range=[-0.02, 1.02], showgrid=False),
            axis("smallest eigenvalue", "share of the trace", showgrid=False, zeroline=True, rangemode="tozero"),
        )
    unit = "no unit"
    names = ("S\u2081\u2081 \u2212 S\u2082\u2082", "2 S\u2081\u2082") if domain == "spectraplex" else ("x", "y")
    reach = [-1 - EDGE, 1 + EDGE]
    return axis(names[0], unit, range=reach, showgrid=False, nticks=5), axis(names[1], unit, range=reach, showgrid=False, nticks=5, scaleanchor="x")


def _corners(domain: str) -> list[dict[str, Any]]:
    if domain != "simplex":
        return []
    return [
        label(0.5, HEIGHT, "x₁", "$ink", anchor="center", shift=(0, 12)),
        label(0, 0, "x₂", "$ink", anchor="right", shift=(-8, 0)),
        label(1, 0, "x₃", "$ink", shift=(8, 0)),
    ]


def _handle(data: Mapping[str, Any], domain: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    if "handle" not in data:
        return [], []
    x, y = floats(data["handle"])
    r = ring_radius(domain)
    ends = {"x0": x - r, "x1": x + r, "y0": y - r, "y1": y + r}
    ring = {"type": "circle", "name": "q", **ends, "line": {"color": "$truth", "width": 3}, "fillcolor": "$truth/0.08", "editable": True}
    return [ring], [label(x + r, y, "<b>q</b>", "$truth", shift=(4, 8), bgcolor="$surface/0.8")]


def _words(data: Mapping[str, Any], params: Any, leading: str) -> tuple[str, str]:
    trace = data["trace"]
    at_wall = {name: float(floats(trace[f"near {name}"])[-1]) for name in data["clouds"]}
    said = " and ".join(f"{share:.1%} of the {name} cloud" for name, share in at_wall.items())
    summary = f"Time {data['time']:.3g}: {said} within 0.001 of the wall."
    exact = data.get("exact")
    if exact is not None:
        summary += f" The exact law has {exact['wall_mass']:.1%} there."
        if "inside" in data:
            shares = ", ".join(f"{share:.0%}" for share in data["inside"])
            summary += f" Contours hold 25, 50, 75 and 95 % of it; of the mirror cloud {shares}."
    if "network" in data:
        summary += " Filled marks are neurons that count for plus, open ones for minus."
    if "handle" in data:
        summary += " Drag the ring q, or click, to move the target."
    if leading == "mirror" and at_wall["mirror"] > 0.2:
        return "The trap: plain noise has thrown the cloud into the corners" if data["domain"] == "simplex" else "The mirror cloud at the wall", summary
    return {
        "simplex": "Two clouds in a triangle" if len(at_wall) == 2 else "A cloud in a triangle",
        "ball": "Neurons in a disc" if "network" in data else "In a disc",
        "box": "In a square",
        "spectraplex": "Density matrices" if data["size"] > 2 else "Density matrices in their disc",
    }[data["domain"]], summary


def decision(data: Mapping[str, Any]) -> Figure | None:
    """What the network of all neurons says over the plane of its inputs."""
    if "network" not in data:
        return None
    net = data["network"]
    at, output, inputs, labels = floats(net["at"]), floats(net["output"]), floats(net["inputs"]), floats(net["labels"])
    ground = heatmap(at, at, (output > 0).astype(np.uint8), "output above 0", opacity=0.25, hover="skip", showscale=False, zmin=0, zmax=1)
    traces = [ground]
    for sign, name, symbol in ((1.0, "label +1", "circle"), (-1.0, "label -1", "circle-open")):
        here = labels == sign
        traces.append(scatter(inputs[here, 0], inputs[here, 1], name, "$data", symbol=symbol, size=6, hover=name))
    key = key_row(("● label +1", "$data"), ("○ label −1", "$data"), ("■ output above 0", "$method"))
    plot = layout(axis("first input", "no unit", showgrid=False), axis("second input", "no unit", showgrid=False, scaleanchor="x"), top=30, annotations=key)
    return Figure("decision", "What the neurons say together", traces, plot, f"{net['accuracy']:.1%} of the points are on the right side.", height=360)
