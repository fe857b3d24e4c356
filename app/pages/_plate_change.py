"""What changed in the weights, and how local geometry drifted: the maps of |dW|, its profile, the drift on the moons and over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._plate_marks import HALF_PLOT_PX, MARKS, name_of, raced
from app.plotting import Figure, Trace, axis, end_labels, floats, heatmap, key_row, label, layout, line, log_axis, rule, scatter, stacked_when_narrow

PANES = ((0.0, 0.46), (0.54, 1.0))
THREE = ((0.0, 0.29), (0.355, 0.645), (0.71, 1.0))
LEVELS = 255
FLOOR = 1e-7  # relative to the largest: rounding of float32, drawn as this and called zero


def change(data: Mapping[str, Any]) -> Figure | None:
    """|dW| of PLATE and LoRA, rows by redundancy, columns by the energy of the input direction."""
    found = data.get("change")
    if found is None:
        return None
    maps = [(name, np.asarray(found["maps"][name])) for name in ("plate", "lora") if name in found["maps"]]
    traces: list[Trace] = []
    axes: dict[str, Any] = {}
    notes, shapes = [], []
    rows, columns = maps[0][1].shape
    at = 1 + found["together"] * np.arange(rows)
    for number, (name, matrix) in enumerate(maps):
        suffix = "" if number == 0 else "2"
        words, colour = name_of(name, data), MARKS[name].colour
        place: dict[str, Any] = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}", "showscale": False, "zmin": 0, "zmax": LEVELS}
        traces.append(heatmap(np.arange(1, columns + 1), at, matrix, words, colour, hover="row %{y}, direction %{x}", **place))
        axes[f"xaxis{suffix}"] = axis("input direction by energy", "rank", domain=PANES[number], anchor=f"y{suffix}", showgrid=False)
        axes[f"yaxis{suffix}"] = axis("row by redundancy", "rank", autorange="reversed", anchor=f"x{suffix}", showgrid=False)
        split = found["split"][name]
        share = _protected_share(split)
        zero = "nothing" if share < FLOOR * 10 else f"{share:.0%}"
        text = f"{words}: {zero} of its change is behind the fence"
        notes.append(label(PANES[number][0], 1, text, colour, xref="paper", yref="paper", yanchor="bottom", shift=(0, 6)))
        fence = float(found["n_high"]) + 0.5
        shapes.append(rule(fence, "fence", "$ink", dash="dash", width=1.25, xref=f"x{suffix}", yref=f"y{suffix} domain"))
    x, y = axes.pop("xaxis"), axes.pop("yaxis")
    meta = stacked_when_narrow(notes, PANES[1][0]) if len(maps) > 1 else {}
    plot = layout(x, y, top=28, annotations=notes, shapes=shapes, meta=meta, **axes)
    split = found["split"]["plate"]
    summary = f"Layer {data['shown']['name']}. Left of the dashed fence lie the {found['n_high']} directions that hold τ of the frozen rows' energy. "
    summary += f"PLATE: {split['high']:.1e} there against {split['low']:.2f} on the allowed side; only the {found['rows']} rows at the top move."
    if "lora" in found["split"]:
        other = found["split"]["lora"]
        summary += f" LoRA: {other['high']:.2f} against {other['low']:.2f}, in all rows."
    return Figure("change", "What changed in the weights", traces, plot, summary, "wide", height=380)


def _protected_share(split: Mapping[str, float]) -> float:
    whole = float(np.hypot(split["high"], split["low"]))
    return split["high"] / whole if whole > 0 else 0.0


def profile(data: Mapping[str, Any]) -> Figure | None:
    """||dW v_i|| along each input direction, log scale."""
    found = data.get("change")
    if found is None:
        return None
    curves = {name: floats(found["profile"][name]) for name in ("plate", "lora") if name in found["profile"]}
    top = max(float(curve.max()) for curve in curves.values()) or 1.0
    traces, ends = [], []
    for name, curve in curves.items():
        drawn = np.maximum(curve, FLOOR * top)
        words, mark = name_of(name, data), MARKS[name]
        traces.append(line(np.arange(1, len(curve) + 1), drawn, words, mark.colour, dash=mark.dash, hover=f"{words}, direction %{{x}}: %{{y:.2e}}"))
        ends.append((float(np.log10(drawn[-1])), words, mark.colour))
    reach = (float(np.log10(FLOOR * top)) - 0.3, float(np.log10(top)) + 0.4)
    n_high = found["n_high"]
    notes = [
        *end_labels(ends, reach, HALF_PLOT_PX),
        label(n_high + 0.5, 1, "◂ fenced  allowed ▸", "$muted", anchor="center", yref="y domain", yanchor="bottom", shift=(0, 4)),
    ]
    plot = layout(
        axis("input direction by energy", "rank"),
        log_axis("change along it", "norm, log scale", 10 ** np.array(reach), range=list(reach)),
        right=84,
        top=30,
        annotations=notes,
        shapes=[rule(n_high + 0.5, "fence", "$ink", width=1.25)],
    )
    summary = f"PLATE's change along the first {n_high} directions is zero up to float32 rounding, 1e-7 of the largest; LoRA's is not."
    return Figure("profile", "Where the change points", traces, plot, summary, height=380)


def drift(data: Mapping[str, Any]) -> Figure | None:
    """Mean change of the input Jacobian at old inputs, step by step."""
    found = [(key, mark, trail) for key, mark, trail in raced(data) if len(trail["drift"])]
    if not found:
        return None
    traces, ends = [], []
    for key, mark, trail in found:
        name, y = name_of(key, data), floats(trail["drift"])
        traces.append(line(floats(trail["step"]), y, name, mark.colour, width=3 if key == "plate" else 1.5, dash=mark.dash, hover=f"{name}: %{{y:.3g}}"))
        ends.append((float(y[-1]), name, mark.colour))
    top = 1.08 * max(max(value for value, _, _ in ends), 1e-3)
    top = max(top, 1.02 * max(float(floats(trail["drift"]).max()) for _, _, trail in found))
    plot = layout(
        axis("steps on the new task", "count"),
        axis("drift Δ at old inputs", "output per input", range=[0, top]),
        right=118,
        annotations=end_labels(ends, (0, top), HALF_PLOT_PX),
    )
    told = ", ".join(f"{name} {value:.2f}" for value, name, _ in ends if name.startswith(("PLATE", "LoRA", "full")))
    summary = f"How far the input Jacobian of the old task's function has moved, a mean over old test inputs: {told}."
    return Figure("drift", "How the old function bends", traces, plot, summary, height=380)


def moons(data: Mapping[str, Any]) -> Figure | None:
    """Drift over the plane for full fine-tuning, LoRA and PLATE, with the points of both pairs."""
    found = data.get("moons")
    if found is None:
        return None
    names = [name for name in ("full", "lora", "plate") if name in found["maps"]]
    maps = {name: floats(found["maps"][name]) for name in names}
    top = float(np.percentile(np.concatenate([values.ravel() for values in maps.values()]), 99)) or 1.0
    x, y = floats(found["x"]), floats(found["y"])
    old, new = floats(found["old"]), floats(found["new"])
    traces: list[Trace] = []
    axes: dict[str, Any] = {}
    notes = []
    means = {}
    for number, name in enumerate(names):
        suffix = "" if number == 0 else str(number + 1)
        on: dict[str, Any] = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        words = name_of(name, data)
        bar: dict[str, Any] = {"showscale": False, "zmin": 0, "zmax": top}
        traces.append(heatmap(x, y, maps[name], words, "$warning", hover=f"{words}: drift %{{z:.3g}}", **on, **bar))
        traces.append(scatter(old[:, 0], old[:, 1], "old moons", "$ink", size=3, edge=0, hover="skip", **on))
        traces.append(scatter(new[:, 0], new[:, 1], "new moons", "$data", symbol="x-thin", size=4, edge=1, hover="skip", **on))
        axes[f"xaxis{suffix}"] = axis("first input", "length", domain=THREE[number], anchor=f"y{suffix}", showgrid=False, range=[x[0], x[-1]])
        axes[f"yaxis{suffix}"] = axis("second input", "length", anchor=f"x{suffix}", showgrid=False, range=[y[0], y[-1]])
        means[name] = float(_at(maps[name], x, y, old).mean())
        colour = MARKS[name].colour
        notes.append(label(THREE[number][0], 1, f"{words}: {means[name]:.2f}", colour, xref="paper", yref="paper", yanchor="bottom", shift=(0, 6)))
    first, second = axes.pop("xaxis"), axes.pop("yaxis")
    plot = layout(first, second, top=28, annotations=notes, meta=_one_above_the_other(notes, len(names)), **axes)
    told = ", ".join(f"{name_of(name, data)} {value:.2f}" for name, value in means.items())
    summary = (
        f"Where the old task's function bends: the stronger the colour, the more. Dots: old moons, crosses: new ones. Mean drift on the old moons: {told}."
    )
    return Figure("moons", "Drift over the plane", traces, plot, summary, "wide", height=360)


def _one_above_the_other(notes: list[dict[str, Any]], count: int) -> dict[str, Any]:
    """Three maps on a narrow screen."""
    whole: dict[str, Any] = {}
    moved = []
    for number in range(count):
        top = 1 - number / count
        suffix = "" if number == 0 else str(number + 1)
        whole |= {f"xaxis{suffix}": {"domain": [0, 1]}, f"yaxis{suffix}": {"domain": [top - 1 / count + 0.09, top - 0.035]}}
        moved.append(notes[number] | {"x": 0, "y": top - 0.035})
    return {"narrow": {**whole, "annotations": moved, "meta": {"height": 300 * count}}}


def _at(values: np.ndarray, x: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The map's value at the cell nearest to each point. values: (len(y), len(x)); points: (n, 2)."""
    column = np.clip(np.round((points[:, 0] - x[0]) / (x[1] - x[0])), 0, len(x) - 1).astype(int)
    row = np.clip(np.round((points[:, 1] - y[0]) / (y[1] - y[0])), 0, len(y) - 1).astype(int)
    return values[row, column]


def evidence(data: Mapping[str, Any]) -> Figure | None:
    """How much of old inputs the allowed directions see, layer by layer, beside what random ones would."""
    found = data.get("evidence")
    if not found:
        return None
    names = [_short(row["name"]) for row in found]
    seen, random = ([row[part] for row in found] for part in ("seen", "random"))
    at = np.arange(len(names))
    size = 11 if len(names) < 8 else 6
    traces = [
        scatter(at, random, "random directions", "$peer-1", symbol="line-ew", size=2 * size, edge=2.5, hover="%{text}: a random Q sees %{y:.2f}", text=names),
        scatter(at, seen, "PLATE's directions", "$method", size=size, edge=0, hover="%{text}: Q sees %{y:.2f}", text=names),
    ]
    ticks = {"tickvals": at, "ticktext": names} if len(names) < 8 else {"showticklabels": False}
    plot = layout(
        axis("layer", "name", range=[-0.6, len(names) - 0.4], **ticks),
        axis("‖Qᵀx‖ / ‖x‖ of old inputs", "share", range=[0, 1.02]),
        top=30,
        annotations=key_row(("● these directions", "$method"), ("— random ones", "$peer-1")),
    )
    less = sum(s < r for s, r in zip(seen, random, strict=True))
    summary = f"In {less} of {len(names)} layers the allowed directions see less of the old inputs than random ones would. "
    summary += "Weights are protected exactly; activations only so far."
    return Figure("evidence", "What the directions see of old inputs", traces, plot, summary, height=380)


def _short(name: str) -> str:
    """A layer's name without what they all share.

    >>> _short("layers.3.self_attn.v_proj"), _short("l2")
    ('block 3 v_proj', 'l2')
    """
    parts = name.split(".")
    return f"block {parts[1]} {parts[-1]}" if len(parts) > 2 else name
