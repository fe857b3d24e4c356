"""Solutions of tai side by side, as what they are: source as a comparison of lines, charts drawn, routes on the map, sentences."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from app.pages._tai_marks import colour_of, letter, wrapped
from app.plotting import Figure, Panel, Trace, View, alpha, axis, bars, key_row, label, layout, line, plain_text, scatter

ROUTES = 40  # of the other solutions that are drawn faintly
SENTENCE = 72  # characters of a line
PIE_SHADES = (1.0, 0.65, 0.35)
SERIES = (("$method", "solid"), ("$truth", "dash"), ("$muted", "dot"))
FIELDS = {"year": ("year", "calendar"), "source": ("source", "kind of fuel")}
CHART_PX = 230


class Solution(NamedTuple):
    """A solution with its place in the picture: its name, what is shown of it, and its colour."""

    name: str
    shown: Mapping[str, Any]
    colour: str


def leading(data: Mapping[str, Any]) -> View | None:
    """The two leading meanings, each by its most central solution."""
    rows = data.get("leading")
    if not rows:
        return None
    pair = [Solution(f"{letter(row['colour'])}  {row['name']} ({row['belief']:.0%})", row["shown"], colour_of(row["colour"])) for row in rows]
    title = "The two leading meanings" if len(pair) > 1 else "The solution"
    return _side_by_side("leading", title, pair, data)


def choices(data: Mapping[str, Any]) -> View | None:
    """The options of the open question, where solutions stand for them."""
    question = data.get("question")
    if question is None or any(option["candidate"] is None for option in question["options"]):
        return None
    found = data["candidates"]
    colours = ("$truth", "$method", *("$muted",) * len(question["options"]))
    pair = [
        Solution(option["text"], found["shown"][int(found["of"][option["candidate"]])], colour)
        for option, colour in zip(question["options"], colours, strict=False)
    ]
    return _side_by_side("choices", "The options of the question", pair, data)


def _side_by_side(name: str, title: str, pair: Sequence[Solution], data: Mapping[str, Any]) -> View:
    kind = pair[0].shown["kind"]
    if kind == "chart":
        return _charts(name, title, pair)
    if kind == "path":
        return _routes(name, title, pair, data)
    return _lines(name, title, pair)


def _lines(name: str, title: str, pair: Sequence[Solution]) -> Panel:
    def text(shown: Mapping[str, Any]) -> str:
        return str(shown["source"]) if shown["kind"] == "source" else "\n".join(textwrap.wrap(shown["text"], SENTENCE))

    first, last = pair[0], pair[-1]
    data = {"before": text(first.shown), "after": text(last.shown), "language": "python" if first.shown["kind"] == "source" else None}
    summary = f"Only in the first (\u2212): {first.name}. Only in the second (+): {last.name}." if len(pair) > 1 else first.name
    return Panel(name, "diff", title, data, summary)


# ----------------------------------------------------------------------------------------------------------- charts


def _charts(name: str, title: str, pair: Sequence[Solution]) -> Figure:
    """The charts one above the other, each drawn from its own cells."""
    traces: list[Trace] = []
    notes: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    room = 1 / len(pair)
    series = list(dict.fromkeys(cell["series"] for s in pair for cell in s.shown["cells"] if cell["series"]))
    look = {key: SERIES[i % len(SERIES)] for i, key in enumerate(series)}
    for number, solution in enumerate(pair):
        shown, end = solution.shown, "" if number == 0 else str(number + 1)
        high = 1 - number * room
        domain = (high - 0.74 * room, high - 0.1 * room)
        notes.append(label(0, domain[1], f"<b>{wrapped(solution.name, 56)}</b>", solution.colour, xref="paper", yref="paper", yanchor="bottom", shift=(0, 2)))
        if shown["mark"] == "pie":
            traces.append(_pie(shown, domain))
            continue
        words, unit = FIELDS[shown["x"]]
        x_axis = axis(words, unit, anchor=f"y{end}", type="category", showgrid=False, nticks=7, tickangle=0)
        value = {"type": "log", "dtick": 1} if shown["scale"] == "log" else {"nticks": 4}
        axes |= {f"xaxis{end}": x_axis, f"yaxis{end}": axis("value", shown["y"], domain=domain, anchor=f"x{end}", **value)}
        traces += _chart(shown, look, f"x{end}", f"y{end}")
    notes += key_row(*(("\u25a0 " + plain_text(key), look[key][0]) for key in series))
    first = {"visible": False}
    plot = layout(axes.pop("xaxis", first), axes.pop("yaxis", dict(first)), top=34, annotations=notes, barmode="stack", **axes)
    summary = "; ".join(f"{'above' if i == 0 else 'below'}: {s.name}" for i, s in enumerate(pair)) + ". Drawn from the solution's own table."
    return Figure(name, title, traces, plot, summary, height=CHART_PX * len(pair) + 60)


def _chart(shown: Mapping[str, Any], look: Mapping[str, tuple[str, str]], x_name: str, y_name: str) -> list[Trace]:
    drawn: list[Trace] = []
    place: dict[str, Any] = {"xaxis": x_name, "yaxis": y_name}
    hover = "%{x}: %{y:,.5~g}"
    for key in dict.fromkeys(cell["series"] for cell in shown["cells"]):
        colour, dash = look.get(key, SERIES[0])
        x = [plain_text(cell["x"]) for cell in shown["cells"] if cell["series"] == key]
        y = np.array([cell["value"] for cell in shown["cells"] if cell["series"] == key], dtype=float)
        named = plain_text(key) or "all sources"
        if shown["mark"] == "bar":
            drawn.append(bars(x, y, named, colour, hover=f"{named}, {hover}", **place))
        elif shown["mark"] == "point":
            drawn.append(scatter(x, y, named, colour, hover=f"{named}, {hover}", **place))
        else:
            area: dict[str, Any] = {"stackgroup": y_name, "fillcolor": alpha(colour, 0.35)} if shown["mark"] == "area" else {}
            drawn.append(line(x, y, named, colour, dash=dash, hover=f"{named}, {hover}", **place, **area))
    return drawn


def _pie(shown: Mapping[str, Any], domain: tuple[float, float]) -> Trace:
    cells = shown["cells"]
    shades = [alpha("$method", shade) for shade in PIE_SHADES]
    return {
        "type": "pie",
        "name": "pie",
        "labels": [plain_text(cell["x"]) for cell in cells],
        "values": [cell["value"] for cell in cells],
        "sort": False,
        "direction": "clockwise",
        "domain": {"x": [0, 1], "y": list(domain)},
        "marker": {"colors": [shades[i % len(shades)] for i in range(len(cells))], "line": {"color": "$ink", "width": 1}},
        "textinfo": "label+percent",
        "textposition": "outside",
        "hovertemplate": "%{label}: %{value:.1f} %<extra></extra>",
    }


# ----------------------------------------------------------------------------------------------------------- routes


def _routes(name: str, title: str, pair: Sequence[Solution], data: Mapping[str, Any]) -> Figure:
    """The routes on the map, over those of the other solutions, whose opacity is their weight."""
    place = pair[0].shown["map"]
    traces = _other_routes(data)
    for solution, width, dash in zip(pair, (5, 3), ("solid", "dash"), strict=False):
        x, y = np.array(solution.shown["cells"], dtype=float).T
        traces.append(line(x, y, plain_text(solution.name), solution.colour, width=width, dash=dash, hover="%{x}, %{y}"))
    shops = place["shops"]
    x, y = np.array([shop["at"] for shop in shops], dtype=float).T
    traces.append(scatter(x, y, "shops", "$ink", symbol="square", size=9, hover="skip"))
    traces.append(scatter([place["start"][0]], [place["start"][1]], "you", "$ink", symbol="circle", size=10, hover="skip"))
    notes = [
        label(shop["at"][0], shop["at"][1], plain_text(shop["name"]), "$ink", anchor="right", yanchor="top" if i == 0 else "bottom", shift=(6, (-8, 8)[i > 0]))
        for i, shop in enumerate(shops)
    ]
    notes.append(label(place["start"][0], place["start"][1], "you", "$ink", anchor="right", shift=(-8, 0)))
    shapes = []
    for found in place["obstacles"]:
        edges = {"x0": found["x0"] - 0.5, "x1": found["x1"] + 0.5, "y0": found["y0"] - 0.5, "y1": found["y1"] + 0.5}
        shapes.append({"type": "rect", "name": found["name"], **edges, "fillcolor": "$grid", "line": {"width": 0}, "layer": "below"})
        middle = ((found["x0"] + found["x1"]) / 2, (found["y0"] + found["y1"]) / 2)
        notes.append(label(middle[0], middle[1], plain_text(found["name"]), "$muted", anchor="center"))
    notes += [
        label(0, 1, f"{sign} {wrapped(s.name, 60, 1)}", s.colour, xref="paper", yref="paper", yanchor="bottom", shift=(0, 6 + 17 * (len(pair) - 1 - i)))
        for i, (s, sign) in enumerate(zip(pair, ("\u2501", "\u254d"), strict=False))
    ]
    size = place["size"]
    plot = layout(
        axis("to the east", "cells", range=[-2.0, size - 0.5], showgrid=False, nticks=7),
        axis("to the north", "cells", range=[-0.5, size - 0.5], showgrid=False, scaleanchor="x", constrain="domain", nticks=7),
        top=14 + 18 * len(pair),
        annotations=notes,
        shapes=shapes,
    )
    summary = "; ".join(f"{word}: {s.name}" for word, s in zip(("solid", "dashed"), pair, strict=False)) + ". Thin lines are the other solutions."
    return Figure(name, title, traces, plot, summary, height=440)


def _other_routes(data: Mapping[str, Any]) -> list[Trace]:
    found = data["candidates"]
    load = np.bincount(np.asarray(found["of"], int), np.asarray(data["weights"], float), len(found["shown"]))
    heaviest = np.argsort(-load, kind="stable")[:ROUTES]
    most = float(load.max()) or 1.0
    drawn = []
    for number in heaviest[load[heaviest] > 0.01 * most].tolist():
        x, y = np.array(found["shown"][number]["cells"], dtype=float).T
        drawn.append(line(x, y, "other solutions", alpha("$data", round(0.1 + 0.4 * load[number] / most, 2)), width=1, hover="skip"))
    return drawn
