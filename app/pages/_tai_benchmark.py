"""The benchmark of tai: forty dialogues for each way to choose questions, with right answers and with wrong ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from app.pages._tai_marks import wrapped
from app.plotting import Figure, Trace, View, alpha, axis, floats, key_row, label, layout, scatter

LOOKS = {"right answers": ("circle", 0.0), "wrong answers": ("diamond-open", 0.26)}
SIGNS = {"right answers": "\u25cf", "wrong answers": "\u25c7"}
COLOURS = {"teig": "$method", "eig": "$truth", "k-means": "$peer-1", "hdbscan": "$peer-1", "fixed cut": "$peer-1", "one by one": "$peer-2", "random": "$peer-3"}
NAME_CHARS = 50  # in one line, also on a phone
NAME_ROOM = 0.2  # of a row above its first mark
FAN = 0.08  # height over which the dialogues of a row are strewn


def benchmark(data: Mapping[str, Any]) -> list[View]:
    """Turns, right answers and style questions of each strategy."""
    rows = data["benchmark"]
    drawn = _rows(rows, "questions until the end", "count", None, {key: f"{name}: {_rights(rows, key)} right" for key, name in _names(rows).items()})
    shape = _intervals(rows, "turns")
    strewn = _dialogues(data["benchmark_turns"], [row["strategy"] for row in rows])
    done = int(rows[0]["dialogues"])
    first = {row["strategy"]: row for row in rows if row["condition"] == "right answers"}
    summary = (
        f"Mean of {done} simulated dialogues each, with 95 % intervals; a faint mark is one dialogue. "
        + ", ".join(f"{_short(key)} {first[key]['turns']:.1f}" for key in first)
        + " with right answers."
    )
    turns = Figure("benchmark", f"Questions until the end, {done} of 40 wishes", [*strewn, *shape], drawn, summary, "main", height=460)
    return [turns, _right(rows), _style(rows)]


def _short(strategy: str) -> str:
    return strategy.upper() if strategy in ("teig", "eig") else strategy


def _order(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["strategy"] for row in rows))


def _place(row: Mapping[str, Any], order: Sequence[str]) -> float:
    return order.index(row["strategy"]) + LOOKS[row["condition"]][1]


def _intervals(rows: Sequence[Mapping[str, Any]], key: str) -> list[Trace]:
    """Means with their 95 % intervals, one trace a strategy and condition."""
    order, drawn = _order(rows), []
    for row in rows:
        symbol, _ = LOOKS[row["condition"]]
        bar = None
        if f"{key}_low" in row:
            bar = {"type": "data", "symmetric": False, "array": [row[f"{key}_high"] - row[key]], "arrayminus": [row[key] - row[f"{key}_low"]]}
            bar |= {"color": COLOURS[row["strategy"]], "thickness": 2, "width": 5}
        made = scatter(
            [row[key]],
            [_place(row, order)],
            row["condition"],
            COLOURS[row["strategy"]],
            symbol=symbol,
            size=9,
            edge=2,
            hover=f"{row['name']}, {row['condition']}: %{{x:.3g}}",
            cliponaxis=False,
        )
        drawn.append(made if bar is None else made | {"error_x": bar})
    return drawn


def _dialogues(found: Mapping[str, Mapping[str, Sequence[int]]], strategies: Sequence[str]) -> list[Trace]:
    """Each dialogue as a faint mark; equal ones are strewn over a small height."""
    order, drawn = list(dict.fromkeys(strategies)), []
    for condition, of_strategy in found.items():
        symbol, offset = LOOKS[condition]
        for strategy, turns in of_strategy.items():
            x = floats(turns)
            y = order.index(strategy) + offset + FAN * np.linspace(-1, 1, max(x.size, 2))[: x.size]
            drawn.append(scatter(x, y, "dialogues", alpha(COLOURS[strategy], 0.3), symbol=symbol, size=4, edge=1, hover="skip"))
    return drawn


def _names(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {row["strategy"]: row["name"] for row in rows}


def _rights(rows: Sequence[Mapping[str, Any]], strategy: str) -> str:
    """Shares with the right meaning, a condition after the other: few questions are no merit where the end is wrong."""
    return ", ".join(f"{row['right']:.0%}" for row in rows if row["strategy"] == strategy)


def _rows(rows: Sequence[Mapping[str, Any]], title: str, unit: str, reach: float | None, names: Mapping[str, str]) -> dict[str, Any]:
    order = _order(rows)
    notes = [label(0, i - NAME_ROOM, wrapped(names[s], NAME_CHARS), COLOURS[s], xref="paper", yanchor="bottom", shift=(4, 0)) for i, s in enumerate(order)]
    rates = {row["condition"]: row["true_error_rate"] for row in rows}
    notes += key_row(*((f"{SIGNS[c]} {c}" + (f" ({rate:.0%})" if rate else ""), "$muted") for c, rate in rates.items()))
    limits = {"range": [0, reach]} if reach else {"rangemode": "tozero"}
    down = {"visible": False, "range": [len(order) - 0.45, -0.75], "fixedrange": True}
    return layout(axis(title, unit, nticks=8, **limits), down, top=32, annotations=notes)


def _right(rows: Sequence[Mapping[str, Any]]) -> Figure:
    plot = _rows(rows, "dialogues with the right meaning", "share", 1.04, _names(rows))
    plot["xaxis"]["tickformat"] = ".0%"
    worst = min(rows, key=lambda row: row["right"])
    summary = f"Share with the right meaning and its 95 % interval; the lowest is {worst['right']:.0%}, {worst['name']}, {worst['condition']}."
    return Figure("right", "How often the meaning is the right one", _intervals(rows, "right"), plot, summary, height=500)


def _style(rows: Sequence[Mapping[str, Any]]) -> Figure:
    plot = _rows(rows, "questions about style", "mean count of a dialogue", None, _names(rows))
    most = max(rows, key=lambda row: row["style"])
    summary = f"Questions about how it is made, not what it does; most of them, {most['style']:.1f} a dialogue, {most['name']}, {most['condition']}."
    return Figure("style", "How many questions were about style", _intervals(rows, "style"), plot, summary, height=500)
