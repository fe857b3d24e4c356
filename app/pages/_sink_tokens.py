"""The tokens of a text as the pictures of attention-sink name and colour them, and curves before and after an intervention."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from app.plotting import Panel, Trace, alpha, floats, line, plain_text

# Whom a colour means, on each picture of the page: the first token, the chosen one, all others.
FIRST, TARGET, OTHERS = "$ink", "$method", "$data"
NAME_LETTERS = 12  # of a token, in a label
PAGE = 240  # tokens of the panel at a time: thousands of buttons are slow to draw and heavy to send
CELLS = 64  # at most, along one side of a map: more would be neither seen nor quick to send
TINTED = 0.005  # a share below this has no visible tint, so it is not sent
End = tuple[float, str, str]


def name(tokens: Mapping[str, Any], position: int | None) -> str:
    """A token as sentences write it.

    >>> name({"text": ["The", " fox"]}, 1)
    '\u201cfox\u201d'
    """
    text = tokens["text"]
    if position is None or not 0 <= position < len(text):
        return "the chosen word"
    shown = text[position].strip() or "space"
    if len(shown) > NAME_LETTERS:
        shown = shown[:NAME_LETTERS] + "\u2026"
    return f"\u201c{shown}\u201d"


def tag(tokens: Mapping[str, Any], position: int | None) -> str:
    """A token as labels in a figure write it: its text is neither markup nor a colour."""
    return plain_text(name(tokens, position))


def isolated(tokens: Mapping[str, Any], params: Any) -> list[int]:
    """The positions whose view of the past is switched off."""
    if params.intervention != "isolate" or tokens.get("target") is None:
        return []
    return [int(tokens["target"]), *(int(i) for i in tokens.get("also", []))]


def changed(tokens: Mapping[str, Any]) -> list[int]:
    """The positions that the pictures watch: the chosen token and those isolated with it."""
    target = tokens.get("target")
    return [] if target is None else [int(target), *(int(i) for i in tokens.get("also", []))]


def coarse(matrix: Any, positions: Any, cells: int = CELLS) -> tuple[np.ndarray, np.ndarray]:
    """The map in at most ``cells`` rows and columns, each the largest of its block, so that a narrow column stays visible.

    matrix: (m, m); positions: (m,). Returns (k, k) and the first position of each of the k blocks.

    >>> coarse(np.eye(4), [0, 1, 2, 3], 2)[1]
    array([0., 2.])
    """
    full, at = floats(matrix), floats(positions)
    step = max(1, math.ceil(at.size / cells))
    starts = np.arange(0, at.size, step)
    return np.maximum.reduceat(np.maximum.reduceat(np.nan_to_num(full), starts, axis=0), starts, axis=1), at[starts]


def blocks(scores: Any, cells: int = CELLS) -> tuple[np.ndarray, np.ndarray]:
    """The scores in at most ``cells`` blocks, each with its largest, and the first position of each; scores: (T,).

    >>> [part.tolist() for part in blocks([0.1, 0.9, 0.2], 2)]
    [[0.9, 0.2], [0, 2]]
    """
    full = floats(scores)
    starts = np.arange(0, full.size, max(1, math.ceil(full.size / cells)))
    return np.maximum.reduceat(full, starts), starts


def newest(data: Mapping[str, Any]) -> np.ndarray:
    """The sink score of every token at the read layer, (T,): after the change where there is one; empty before that layer is reached."""
    found = data.get("received", {})
    return floats(found.get("after", found.get("before", [])))


def panel(data: Mapping[str, Any], params: Any) -> Panel:
    """The text itself: click a word to choose it; the tint is the attention it receives, a line through it says isolated."""
    tokens, scores = data["tokens"], newest(data)
    watched, struck = changed(tokens), isolated(tokens, params)
    chips: list[dict[str, Any]] = []
    start, length = page_start(tokens.get("target")), len(tokens["text"])
    for i, text in enumerate(tokens["text"][start : start + PAGE], start):
        chip: dict[str, Any] = {"text": text}
        if i < scores.size and scores[i] >= TINTED:
            chip["value"] = round(float(scores[i]), 3)
            if i == 0:
                chip["color"] = FIRST
        if i in watched:
            chip["selected"] = True
        if i in struck:
            chip["struck"] = True
        chips.append(chip)
    legend = f"Tint: share of attention received at layer {data['layer']}. Underlined: the chosen word." if "layer" in data else ""
    legend += " Struck through: it cannot see what stands before it." if struck else ""
    shown = (
        f"{length} tokens."
        if length <= PAGE
        else f"Tokens {start} to {start + len(chips) - 1} of {length}; the columns of the picture below lead to the others."
    )
    summary = f"{shown} Click one to choose it; the first sees nothing but itself already."
    return Panel("tokens", "tokens", "The text, as the model reads it", {"tokens": chips, "legend": legend}, summary, "lead")


def page_start(target: int | None) -> int:
    """The first token of the page of the panel on which ``target`` stands.

    >>> page_start(9), page_start(240), page_start(1999)
    (0, 240, 1920)
    """
    return PAGE * ((target or 0) // PAGE)


def before_after(group: Mapping[str, Any], who: str, label: str, colour: str, **more: Any) -> tuple[list[Trace], list[End]]:
    """Two curves of one token over the layers, before (thin, dotted) and after (solid), and where their labels belong.

    group: "layer" and f"{who}_before", f"{who}_after" as in the frame's data; a curve that is not there is left out.
    """
    traces: list[Trace] = []
    ends: list[End] = []
    at = whole(group["layer"])
    has_after = f"{who}_after" in group
    for key, words in (("before", f"{label}, before" if has_after else label), ("after", label)):
        if f"{who}_{key}" not in group:
            continue
        values = floats(group[f"{who}_{key}"])
        faint = key == "before" and has_after
        style: dict[str, Any] = {"width": 1.75, "dash": "dot"} if faint else {"width": 2.5, "dash": "solid"}
        drawn = line(at[: values.size], values, words, alpha(colour, 0.7) if faint else colour, hover=f"{words}: %{{y:.3g}} at %{{x}}", **style, **more)
        traces.append(drawn)
        known = np.flatnonzero(np.isfinite(values))
        if known.size:
            ends.append((float(values[known[-1]]), words, colour))
    return traces, ends


def whole(values: Any) -> np.ndarray:
    """Positions, layers and channels in two bytes each: as floats they would be half of a frame."""
    return floats(values).astype(np.uint16)


def finite(traces: Iterable[Trace], key: str = "y") -> np.ndarray:
    """All finite numbers of these traces, (n,)."""
    values = np.concatenate([np.asarray(t[key], float).ravel() for t in traces] or [np.array([])])
    return values[np.isfinite(values)]


def in_decades(ends: Sequence[End]) -> list[End]:
    """Label places for a log axis, whose annotations are placed by the exponent."""
    return [(math.log10(y), text, colour) for y, text, colour in ends if y > 0]


def log_ticks(reach: tuple[float, float]) -> dict[str, Any]:
    """Full numbers as ticks of a log axis: 1, 2, 5 of each decade, over more than two decades 1 alone; reach in decades."""
    steps = (1, 2, 5) if reach[1] - reach[0] <= 2 else (1,)
    values = [step * 10.0**k for k in range(math.floor(reach[0]), math.ceil(reach[1]) + 1) for step in steps]
    shown = [v for v in values if reach[0] <= math.log10(v) <= reach[1]]
    return {"tickvals": shown, "ticktext": [f"{v:,.0f}" if v >= 1 else f"{v:g}" for v in shown]}


def decades(values: np.ndarray, pad: float = 0.06) -> tuple[float, float]:
    """The range of a log axis around these values, in decades."""
    positive = values[values > 0]
    if not positive.size:
        return 0.0, 1.0
    low, high = math.log10(float(positive.min())), math.log10(float(positive.max()))
    room = max(0.1, pad * (high - low))
    return low - room, high + room
