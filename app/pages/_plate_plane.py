"""The main picture: what is kept of the old task against what is learned of the new one, a trail a method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._plate_marks import Mark, lost, name_of, raced
from app.plotting import Figure, Trace, alpha, axis, end_labels, floats, label, layout, line, scatter

HEIGHT, PHONE_PX = 520, 250
RIGHT_PX = 124
SOMETHING, LITTLE = 0.02, 0.2  # of the new task; of what full fine-tuning adds to a new head
Notes = list[dict[str, Any]]


def plane(data: Mapping[str, Any], *, animated: bool) -> Figure:
    """Trails of all methods; ``animated`` adds frames in which they move together, step by step."""
    traces: list[Trace] = []
    ends: list[tuple[float, str, str]] = []
    moving: list[tuple[int, Mapping[str, Any]]] = []
    is_language = data["kind"]["is_language"]
    x_name, y_name = ("new_perplexity", "old_perplexity") if is_language else ("new", "old")
    if not is_language:
        traces += _frontier(data)
    for key, mark, trail in raced(data):
        x, y = floats(trail[x_name]), floats(trail[y_name])
        name = name_of(key, data)
        moving.append((len(traces), trail))
        traces += _trail(x, y, name, mark, own=key == "plate")
        ends.append((float(y[-1]), name, mark.colour))
    axes, y_range = _language_axes(data) if is_language else _axes(data)
    # A perplexity is better when lower: its axis runs downwards, so that the best corner is the same in both.
    flipped = [(-y, text, colour) for y, text, colour in ends] if is_language else ends
    drawn = (-y_range[0], -y_range[1]) if is_language else y_range
    notes = end_labels(flipped, drawn, PHONE_PX) if ends else []
    if is_language:
        notes = [note | {"y": -note["y"]} for note in notes]
    notes.append(label(1, 1, "best: both", "$muted", anchor="right", xref="x domain", yref="y domain", yanchor="bottom", shift=(0, 6)))
    frames = _frames(moving, (x_name, y_name)) if animated else None
    plot = layout(*axes, right=RIGHT_PX, top=30, annotations=notes)
    return Figure("plane", _title(data), traces, plot, _summary(data), "main", frames=frames, height=HEIGHT)


def _trail(x: np.ndarray, y: np.ndarray, name: str, mark: Mark, *, own: bool) -> list[Trace]:
    hover = f"{name}: new %{{x:.3f}}, old %{{y:.3f}}"
    way = line(x, y, name, mark.colour if own else alpha(mark.colour, 0.7), width=3 if own else 1.5, dash=mark.dash, ghost=own, hover="skip")
    end = scatter(x[-1:], y[-1:], f"{name} now", mark.colour, symbol=mark.symbol, size=13 if own else 10, edge=2 if mark.sees_old else 0, hover=hover)
    return [way, end]


def _frontier(data: Mapping[str, Any]) -> list[Trace]:
    """Where PLATE and LoRA end at other ranks, each joined to a curve."""
    traces = []
    for group, colour, name in (("lora", "$peer-1", "LoRA ranks"), ("plate", "$method", "PLATE rows")):
        found = [p for p in data["points"] if p["group"] == group]
        if len(found) < 2:
            continue
        x, y = ([p[part] for p in found] for part in ("new", "old"))
        said = [p["text"] for p in found]
        drawn = line(x, y, name, alpha(colour, 0.45), width=6, dash="solid", hover="%{text}: new %{x:.3f}, old %{y:.3f}", text=said)
        traces.append(drawn | {"mode": "lines+markers", "marker": {"size": 7, "color": alpha(colour, 0.6)}})
    return traces


def _frames(moving: list[tuple[int, Mapping[str, Any]]], names: tuple[str, str]) -> list[dict[str, Any]]:
    """One frame a measurement: every trail as far as it had come."""
    count = max(len(trail["step"]) for _, trail in moving)
    made = []
    for index in range(count):
        parts, at = [], []
        for first, trail in moving:
            x, y = (floats(trail[name])[: index + 1] for name in names)
            parts += [{"x": x, "y": y}, {"x": x[-1:], "y": y[-1:]}]
            at += [first, first + 1]
        made.append({"name": f"step {moving[0][1]['step'][index]}", "data": parts, "traces": at})
    return made


def _axes(data: Mapping[str, Any]) -> tuple[tuple[dict[str, Any], dict[str, Any]], tuple[float, float]]:
    trails = [trail for _, _, trail in raced(data)]
    kept = np.concatenate([floats(trail["old"]) for trail in trails] + [floats([p["old"] for p in data["points"] if p["group"] != "control"]), [0.9]])
    ends = np.array([trail["new"][-1] for trail in trails if len(trail["step"]) > 2] + [0.97])
    low = float(kept.min())
    y_range = (low - 0.08 * (1 - low), 1 + 0.03 * (1 - low))
    # Trails come from far left, where the new head knows nothing; what matters is where they go.
    least = min(float(ends.min()), 0.97)
    left = max(0.0, least - 0.8 * (1 - least))
    x = axis("new task, right answers", "share of its test", range=[left, 1 + 0.06 * (1 - left)])
    return (x, axis("old task, right answers", "share of its test", range=list(y_range))), y_range


def _language_axes(data: Mapping[str, Any]) -> tuple[tuple[dict[str, Any], dict[str, Any]], tuple[float, float]]:
    trails = [trail for _, _, trail in raced(data)]
    new, old = (np.concatenate([floats(trail[name]) for trail in trails] or [np.ones(1)]) for name in ("new_perplexity", "old_perplexity"))
    reach = [_reach(values) for values in (new, old)]
    x = axis("Middle English, perplexity", "lower is better", range=[reach[0][1], reach[0][0]])
    y = axis("English, perplexity", "lower is better", range=[reach[1][1], reach[1][0]])
    return (x, y), (reach[1][1], reach[1][0])


def _reach(values: np.ndarray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    room = 0.08 * max(high - low, 0.02 * high)
    return low - room, high + room


def _title(data: Mapping[str, Any]) -> str:
    trails = data["trails"]
    if "plate" not in trails or len(trails["plate"]["step"]) < 2:
        return "Each method starts at the same place: the old task known, the new one not"
    if data["kind"]["is_language"]:
        return "Learn Middle English: how much English is lost?"
    if {"head", "full"} <= trails.keys() and _hardly_learns(trails):
        return "Too little may move: PLATE keeps the old task and learns no more than a new head does"
    if {"lora", "full"} <= trails.keys() and trails["plate"]["trainable"]:
        mine, least = lost(trails["plate"]), min(lost(trails["lora"]), lost(trails["full"]))
        less = "PLATE learns the new task and forgets less than LoRA and full fine-tuning"
        return less if mine < least else "Here PLATE does not forget less than both LoRA and full fine-tuning"
    return "Learn the new task: how much of the old one is lost?"


def _hardly_learns(trails: Mapping[str, Any]) -> bool:
    """True when PLATE adds little to a new head where full fine-tuning adds something."""
    plate, head, full = (float(trails[name]["new"][-1]) for name in ("plate", "head", "full"))
    return full - head > SOMETHING and plate - head < LITTLE * (full - head)


def _summary(data: Mapping[str, Any]) -> str:
    trails = data["trails"]
    if "plate" not in trails:
        return "The trails begin when the weights have decided what may move."
    told = []
    for key, _, trail in reversed(list(raced(data))):
        if data["kind"]["is_language"]:
            told.append(f"{name_of(key, data)} {trail['new_perplexity'][-1]:.0f} new, {trail['old_perplexity'][-1]:.1f} old")
        elif key in ("plate", "lora", "full", "head"):
            told.append(f"{name_of(key, data)} {trail['new'][-1]:.1%} new, {trail['old'][-1]:.1%} old")
    words = "Perplexity: " if data["kind"]["is_language"] else "Right answers: "
    end = "" if data["kind"]["is_language"] else " Thick pale curves: PLATE with other numbers of rows, LoRA with other ranks."
    return words + "; ".join(told) + "." + (end if len(data["points"]) > 1 else "")
