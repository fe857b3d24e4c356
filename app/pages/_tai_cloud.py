"""The cloud of solutions of tai and its topology: map, barcode, persistence diagram, distances."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._tai_marks import colour_of, letter, symbol_of
from app.plotting import Figure, Trace, alpha, axis, floats, heatmap, key_row, label, layout, line, message, plain_text, rule, scatter

HULLS = 24  # of the most believed; more would cover each other
CIRCLE = np.stack([np.cos(t := np.linspace(0, 2 * np.pi, 16, endpoint=False)), np.sin(t)], axis=1)
PAD, STEP = 0.035, 0.011  # of the map's width: around a hull, between solutions that behave alike
GOLDEN = math.pi * (3 - math.sqrt(5))  # turn between neighbours of a sunflower
FAINTEST = 0.12
HANDLE = "tau"  # the shape's name carries the threshold, so that a drag can be read without the run
DISTANCE = "share that differs"


def cloud(data: Mapping[str, Any], answered: int) -> Figure:
    """The main picture: every solution, as far from the others as it behaves differently; hulls are meanings, opacity is weight."""
    title = "The cloud of solutions"
    if "map" not in data:
        arrived = data.get("arrived")
        done = f"{arrived['done']} of {arrived['total']} solutions are executed" if arrived else "The solutions are compared"
        return message("map", title, done, span="main", height=420)
    raw = floats(data["map"])
    width = float(np.ptp(raw, axis=0).max()) or 1.0
    places = spread(raw, STEP * width)
    captions = [plain_text(text) for text in data["candidates"]["captions"]]
    if "labels" not in data:
        marks: list[Trace] = [_marks(places, captions, np.ones(len(places)), -1, alpha("$data", 0.7))]
        return _map(title, marks, [], places, width, f"{len(places)} solutions, each where its behaviour puts it; the meanings follow.")
    labels, weights = np.asarray(data["labels"], int), floats(data["weights"])
    number = {row["cluster"]: row["colour"] for row in data["belief"]}
    share = weights / (weights.max(initial=0) or 1.0)
    traces: list[Trace] = []
    notes: list[dict[str, Any]] = []
    for row in reversed(data["belief"][:HULLS]):
        edge = hull(places[labels == row["cluster"]], PAD * width)
        most = data["belief"][0]["belief"] or 1.0
        token = colour_of(row["colour"])
        fill = {
            "mode": "lines",
            "line": {"width": 1, "color": alpha(token, 0.55)},
            "fill": "toself",
            "fillcolor": alpha(token, 0.05 + 0.25 * row["belief"] / most),
        }
        traces.append({"type": "scatter", "x": edge[:, 0], "y": edge[:, 1], "name": letter(row["colour"]), "hoverinfo": "skip", **fill})
        top = edge[edge[:, 1].argmax()]
        notes.append(label(top[0], top[1], f"<b>{letter(row['colour'])}</b>", token, anchor="center", yanchor="bottom"))
    of_mark = np.array([number.get(cluster, -1) for cluster in labels.tolist()])
    for colour in sorted(set(of_mark.tolist())):
        here = of_mark == colour
        traces.append(_marks(places[here], [captions[i] for i in np.flatnonzero(here)], share[here], colour, colour_of(colour), weights[here]))
    return _map(_title(data, answered), traces, notes, places, width, _cloud_summary(data))


def _marks(places: np.ndarray, captions: list[str], share: np.ndarray, number: int, colour: str, weights: np.ndarray | None = None) -> Trace:
    said = captions if weights is None else [f"{text}<br>weight {w:.1%}" for text, w in zip(captions, weights.tolist(), strict=True)]
    drawn = scatter(places[:, 0], places[:, 1], "solutions", colour, symbol=symbol_of(number), size=8, hover="%{text}", text=said)
    drawn["marker"]["opacity"] = FAINTEST + (1 - FAINTEST) * share
    drawn["marker"]["line"] = {"width": 0.75, "color": "$surface"} if number >= 0 else {"width": 1, "color": colour}
    return drawn


def _map(title: str, traces: list[Trace], notes: list[dict[str, Any]], places: np.ndarray, width: float, summary: str) -> Figure:
    low, high = places.min(0) - 1.5 * PAD * width, places.max(0) + 2.5 * PAD * width
    plot = layout(
        axis("first direction", DISTANCE, range=[low[0], high[0]], showgrid=False, nticks=6),
        axis("second direction", "same unit", range=[low[1], high[1]], showgrid=False, scaleanchor="x", nticks=5),
        annotations=notes,
    )
    return Figure("map", title, traces, plot, summary, "main", height=440)


def _title(data: Mapping[str, Any], answered: int) -> str:
    left = sum(row["belief"] >= 0.01 for row in data["belief"])
    found = round(2 ** data["log2_k"])
    if not answered:
        return f"{data['candidates']['total']} solutions, {found} islands: what it could mean"
    return f"{left} of {found} islands are left" if left != 1 else f"One island of {found} is left"


def _cloud_summary(data: Mapping[str, Any]) -> str:
    shown = f"; hulls of the {HULLS} most believed" if len(data["belief"]) > HULLS else ""
    return f"A mark is a solution, opacity its weight, an island with a letter a meaning{shown}. What behaves alike is fanned out around one place."


def spread(places: np.ndarray, step: float) -> np.ndarray:
    """Places (N, 2) with those that coincide fanned out as the seeds of a sunflower, ``step`` times the root of their rank apart."""
    _, group = np.unique(places.round(6), axis=0, return_inverse=True)
    group = group.reshape(-1)
    order = np.argsort(group, kind="stable")
    first = np.searchsorted(group[order], group[order])
    rank = np.empty(len(places))
    rank[order] = np.arange(len(places)) - first
    angle = GOLDEN * rank
    return places + step * np.sqrt(rank)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def hull(points: np.ndarray, pad: float) -> np.ndarray:
    """The closed outline (v, 2) of what lies within ``pad`` of the convex hull of points (n, 2), n >= 1."""
    from scipy.spatial import ConvexHull

    around = (points[:, None] + pad * CIRCLE[None]).reshape(-1, 2)
    corners = around[ConvexHull(around).vertices]
    return np.concatenate([corners, corners[:1]])


# ------------------------------------------------------------------------------------------------------- topology


def barcode(data: Mapping[str, Any]) -> Figure | None:
    """Bars of the components, shortest below, and the threshold as a line to drag."""
    if "barcode" not in data:
        return None
    found = data["barcode"]
    deaths, numbers, tau = floats(found["deaths"]), np.asarray(found["bar_colours"], int), found["tau"]
    if not deaths.size:
        return None
    reach = max(float(deaths.max()) * 1.15, (tau or 0) * 1.1, 0.05)
    at = np.arange(deaths.size)
    traces: list[Trace] = []
    for number in sorted(set(numbers.tolist())):
        here = numbers == number
        x, y = _segments(deaths[here], at[here])
        traces.append(line(x, y, "bar", colour_of(number), width=_thickness(deaths.size), hover="skip"))
    ends = scatter(deaths, at, "ends", "$ink", size=4, hover="ends at %{x:.3f}; click: cut here", customdata=cuts(deaths), cliponaxis=False)
    ends["marker"]["color"] = [colour_of(n) for n in numbers.tolist()]
    forever = line([0, reach], [deaths.size] * 2, "the last component", "$truth", width=2, hover="the last component never ends")
    handle = min(tau, reach) if tau is not None else reach
    notes = [label(handle, 1, _cut_text(found), "$method", anchor="right" if handle > 0.6 * reach else "left", yref="paper", yanchor="bottom")]
    plot = layout(
        axis("scale \u03b5", DISTANCE, range=[0, reach], showgrid=False),
        axis("component", "rank, shortest bar first", range=[-1, deaths.size + 1], showgrid=False, nticks=5),
        top=28,
        annotations=notes,
        shapes=[rule(handle, f"{HANDLE} {handle:.6f}", "$method", width=3, editable=True)],
        meta={"editable": True},
    )
    above = int(np.count_nonzero(deaths > tau)) if tau is not None else 0
    summary = f"{above + 1} of {found['alive']} bars are longer than the cut. Drag the dashed line, or click the end of a bar, to cut elsewhere."
    if found["clustering"] == "tomato":
        summary = "Sentences are grouped by density (ToMATo), which needs no cut. Drag the dashed line, or click the end of a bar, to cut instead."
    return Figure("barcode", "Short bars are style, long bars are meanings", [*traces, ends, forever], plot, summary, height=400)


def _thickness(count: int) -> float:
    return float(np.clip(240 / count, 1, 5))


def _cut_text(found: Mapping[str, Any]) -> str:
    if found["clustering"] == "tomato":
        return "no cut: grouped by density"
    return "no cut: one meaning" if found["tau"] is None else f"cut \u03c4 = {found['tau']:.3f}"


def _segments(deaths: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each bar from 0 to its death as one line, a gap after each."""
    x = np.stack([np.zeros(deaths.size), deaths, np.full(deaths.size, np.nan)], axis=1)
    return x.reshape(-1), np.repeat(at.astype(float), 3)


def cuts(deaths: np.ndarray) -> list[float]:
    """Where a click on the end of each bar cuts: half way to the next longer bar, so that rounding cannot move a bar over it.

    >>> cuts(np.array([0.0, 0.0, 0.2, 0.6]))
    [0.1, 0.1, 0.4, 0.66]
    """
    levels = np.unique(deaths)
    beyond = np.append(levels[1:], min(1.2 * levels[-1], 1.0))
    return [round(float(v), 6) for v in ((levels + beyond) / 2)[np.searchsorted(levels, deaths)]]


def diagram(data: Mapping[str, Any]) -> Figure | None:
    """Births and deaths: of the components, all born at 0, where there is nothing but the solutions; and of the loops, which are a diagnostic."""
    if "barcode" not in data or not np.size(data["barcode"]["deaths"]):
        return None
    found = data["barcode"]
    levels, count = np.unique(floats(found["deaths"]).round(9), return_counts=True)
    tau = found["tau"]
    rounds, times = np.unique(floats(data.get("loops", ())).reshape(-1, 2).round(9), axis=0, return_counts=True)
    reach = max(1.2 * max(float(levels[-1]), *rounds[:, 1].tolist(), 0.0), (tau or 0) * 1.1, 0.05)
    kept = levels > (tau if tau is not None else math.inf)
    traces: list[Trace] = [line([0, reach], [0, reach], "birth = death", "$peer-2", width=1, hover="skip")]
    for here, name, colour in ((~kept, "joined below the cut", "$muted"), (kept, "kept apart", "$method")):
        said = [f"{n} component{'' if n == 1 else 's'}" for n in count[here].tolist()]
        drawn = scatter(np.zeros(int(here.sum())), levels[here], name, colour, hover="%{text} until %{y:.3f}", text=said, cliponaxis=False)
        drawn["marker"] |= {"size": 6 + 3 * np.sqrt(count[here]), "opacity": 0.75}
        traces.append(drawn)
    if times.size:
        said = [f"{n} loop{'' if n == 1 else 's'}" for n in times.tolist()]
        hover = "%{text} from %{x:.3f} to %{y:.3f}"
        traces.append(scatter(rounds[:, 0], rounds[:, 1], "loops", "$ink", symbol="diamond-open", size=8, edge=1.5, hover=hover, text=said))
    traces.append(scatter([0], [0.96 * reach], "the last component", "$truth", symbol="triangle-up", size=11, hover="the last component never ends"))
    edge = -0.06 * reach
    named = [("\u25cf kept apart", "$method"), ("\u25cf joined", "$muted"), ("\u25b2 never ends", "$truth")]
    notes = [*key_row(*named, *([("\u25c7 loop", "$ink")] if times.size else []))]
    shapes = []
    if tau is not None:
        shapes.append(rule(tau, "tau", "$method", across="y"))
        notes.append(label(1, tau, _cut_text(found), "$method", anchor="right", xref="paper", yanchor="bottom"))
    plot = layout(
        axis("birth", DISTANCE, range=[edge, reach], showgrid=False, nticks=5),
        axis("death", DISTANCE, range=[edge, reach], nticks=6),
        top=30,
        annotations=notes,
        shapes=shapes,
    )
    outlive = "" if tau is None else f"; {int(count[kept].sum()) + 1} outlive the cut"
    summary = f"All {found['alive']} components are born at scale 0{outlive}. A larger dot stands for several."
    if times.size:
        summary += f" {times.sum()} loop{'' if times.sum() == 1 else 's'} (degree 1) among all {data['candidates']['total']} solutions: shown, not used."
    return Figure("diagram", "Persistence diagram", traces, plot, summary, height=400)


def distances(data: Mapping[str, Any]) -> Figure | None:
    """The distance matrix, solutions of one meaning beside each other."""
    if "distance" not in data:
        return None
    percent = (100 * floats(data["distance"])).round().astype(np.uint8)
    at = np.arange(len(percent))
    drawn = heatmap(at, at, percent, "distance", unit="%", zmin=0, zmax=100, hover="%{z} % differs")
    ticks = axis("solution", "index, ordered by meaning", showgrid=False, nticks=6)
    plot = layout(ticks, axis("solution", "index", showgrid=False, nticks=6, autorange="reversed"))
    nothing = float((floats(data["distance"])[np.triu_indices(len(at), 1)] == 0).mean()) if len(at) > 1 else 0.0
    summary = f"Blank is no difference: {nothing:.0%} of the pairs do exactly the same. Blank squares on the diagonal are meanings."
    return Figure("distances", "How far apart any two solutions are", [drawn], plot, summary, height=400)
