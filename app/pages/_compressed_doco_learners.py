"""The main picture: learners on their graph, the fan of their surrogates block by block, and the U-curve of the block length."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.plotting import Figure, Trace, alpha, axis, end_labels, floats, key_row, label, layout, line, rule, scatter
from backends.compressed_doco.card import BLOCKS

HEIGHT, PHONE_U_PX = 560, 95  # of the picture on a laptop, and of the U-curve's area on a phone
UPPER, LOWER = (0.52, 1.0), (0.0, 0.32)  # how the rows share the height
GRAPH, FAN = (0.0, 0.3), (0.46, 1.0)  # and the upper row its width
STICK = 0.3  # length of the longest stick, in widths of half a graph
FRAMES = 40  # of the animation, at most
HARDLY = 0.4  # of the distance from the mean is left: that is hardly agreement
NEVER = "never talking"
DIVERGING = [[0, "$peer-1"], [0.5, "$surface"], [1, "$method"]]
SHOWN = (3.3, 56)  # rounds of a block from where to where the U-curve's levels are drawn, at least
NAME_ROOM = 0.6  # right of them, for their names, in decades
Notes = list[dict[str, Any]]


def learners(data: Mapping[str, Any], params: Any, *, animated: bool) -> Figure:
    """Graph left, fan right, U-curve below; ``animated`` adds the frames of one block."""
    traces, notes = _graph(data)
    nodes, sticks = len(traces) - 1, len(traces) - 2
    fan_traces, fan_notes, fan_shapes, axes = _fan(data)
    u_traces, u_notes, u_shapes, u_axes = _u_curve(data, params)
    cursor = len(traces) + len(fan_traces) - 1
    frames = _frames(data, (sticks, nodes, cursor)) if animated and "fan" in data else None
    blank = {"visible": False, "fixedrange": True, "range": [-1.4, 1.4]}
    plot = layout(
        {**blank, "domain": list(GRAPH), "anchor": "y"},
        {**blank, "domain": list(UPPER)},
        top=26,
        annotations=[*notes, *fan_notes, *u_notes],
        shapes=[*fan_shapes, *u_shapes],
        meta={"editable": True},
        **axes,
        **u_axes,
    )
    return Figure("learners", _title(data), [*traces, *fan_traces, *u_traces], plot, _summary(data, params), "main", frames=frames, height=HEIGHT)


def _title(data: Mapping[str, Any]) -> str:
    if data.get("lost") is not None:
        return "The replicas are too stale: the learners fly apart"
    if "fan" not in data:
        return "Learners fan out when they move, and agree again while they whisper"
    first, stop = _last_block(data)
    plane = floats(data["fan"]["plane"])
    before, after = (float((plane[index] ** 2).sum()) for index in (first, stop - 1))
    what = "They fan out and agree again" if after < HARDLY**2 * before else "They hardly agree before they move again"
    best = data.get("u", {}).get("best")
    return what if best is None else f"{what}; blocks of {best} rounds do best"


def _last_block(data: Mapping[str, Any]) -> tuple[int, int]:
    """Where the last block that was played out begins and ends among the rounds of the fan."""
    rounds = floats(data["fan"]["round"])
    begins = np.flatnonzero(np.append(True, np.diff(rounds) == 0))  # a new block begins in the round in which the former ends
    if len(begins) < 2 or data.get("lost") is not None:
        return int(begins[-1]), len(rounds)
    return int(begins[-2]), int(begins[-1])


# ---------------------------------------------------------------------------------------------------- the graph


def _graph(data: Mapping[str, Any]) -> tuple[list[Trace], Notes]:
    """Edges, then a stick and a dot for each learner; both show how far its surrogate is from the mean."""
    graph = data["graph"]
    places, edges = floats(graph["places"]), floats(graph["edges"]).astype(int).reshape(-1, 2)
    gap = np.full(len(edges), np.nan)
    x, y = (np.stack([places[edges[:, 0], k], places[edges[:, 1], k], gap], axis=1).ravel() for k in (0, 1))
    traces = [line(x, y, "edges", alpha("$muted", 0.35), width=1, hover="skip", type="scatter")]
    plane, reach = _last_plane(data, len(places))
    size = 20 if len(places) <= 16 else 11
    said = [f"learner {i + 1}" for i in range(len(places))]
    marker = {
        "color": plane[:, 0],
        "colorscale": DIVERGING,
        "cmin": -reach,
        "cmax": reach,
        "size": size,
        "line": {"width": 1.5, "color": "$ink"},
    }
    dots = scatter(places[:, 0], places[:, 1], "learners", hover="%{text}: %{marker.color:.3g} from the mean", text=said) | {"marker": marker}
    traces += [_sticks(places, plane, reach), dots]
    words = f"{len(places)} learners"
    return traces, [label(GRAPH[0], 1, words, "$muted", xref="paper", yref="paper", yanchor="bottom", shift=(0, 6))]


def _last_plane(data: Mapping[str, Any], learners_: int) -> tuple[np.ndarray, float]:
    if "fan" not in data:
        return np.zeros((learners_, 2)), 1.0
    plane = floats(data["fan"]["plane"])
    return plane[-1], _reach(plane)


def _reach(plane: np.ndarray) -> float:
    return float(np.abs(plane).max()) or 1.0


def _sticks(places: np.ndarray, plane: np.ndarray, reach: float) -> Trace:
    ends = places + STICK * plane / reach
    gap = np.full(len(places), np.nan)
    x, y = (np.stack([places[:, k], ends[:, k], gap], axis=1).ravel() for k in (0, 1))
    return line(x, y, "deviation", "$method", width=3, hover="skip", type="scatter")


def _frames(data: Mapping[str, Any], at: tuple[int, int, int]) -> list[dict[str, Any]]:
    """One frame a round of the last block that was played out, and the next fanning out; ``at``: sticks, dots, cursor."""
    fan, places = data["fan"], floats(data["graph"]["places"])
    plane, rounds = floats(fan["plane"]), floats(fan["round"])
    reach = _reach(plane)
    begins = np.flatnonzero(np.append(True, np.diff(rounds) == 0))
    first, _ = _last_block(data)
    shown = np.unique(np.linspace(first, len(plane) - 1, FRAMES).round().astype(int))
    made = []
    for index in shown.tolist():
        name = f"{'move at' if index in begins else 'round'} {int(rounds[index])}"
        moved = _sticks(places, plane[index], reach)
        parts = [{"x": moved["x"], "y": moved["y"]}, {"marker": {"color": plane[index, :, 0]}}, {"x": [rounds[index]] * 2}]
        made.append({"name": name, "data": parts, "traces": list(at)})
    return made


# ------------------------------------------------------------------------------------------------------ the fan


def _fan(data: Mapping[str, Any]) -> tuple[list[Trace], Notes, list[dict[str, Any]], dict[str, Any]]:
    """One line a learner: its surrogate's distance from the mean along the direction of largest disagreement."""
    axes = {
        "xaxis2": axis("round", "count", anchor="y2", showgrid=False, nticks=4) | {"domain": list(FAN)},
        "yaxis2": axis("from the mean", "length", anchor="x2", nticks=4, exponentformat="power") | {"domain": list(UPPER)},
    }
    axes["xaxis2"]["title"]["standoff"] = 2  # a phone leaves little room between the rows
    if "fan" not in data:
        return [], [], [], axes
    fan = data["fan"]
    rounds, plane = floats(fan["round"]), floats(fan["plane"])[..., 0]
    n = plane.shape[1]
    gap = np.full((1, n), np.nan)
    x = np.append(rounds, np.nan)[:, None].repeat(n, axis=1).T.ravel()
    y = np.concatenate([plane, gap]).T.ravel()
    high = 1.12 * (float(np.abs(plane).max()) or 1.0)
    axes["yaxis2"]["range"] = [-high, high]
    on: dict[str, Any] = {"xaxis": "x2", "yaxis": "y2"}
    traces = [
        line(rounds[[0, -1]], [0, 0], "mean", "$truth", width=1, dash="dot", hover="the mean of all learners", **on),
        line(x, y, "surrogates", alpha("$method", 0.75), width=1.25, hover="round %{x}: %{y:.3g} from the mean", **on | {"type": "scatter"}),
        line(rounds[[-1, -1]], [-high, high], "now", "$ink", width=1.5, hover="skip", **on),
    ]
    moves = floats(fan["starts"])
    shapes = [rule(float(t), "move", "$grid", dash="solid", width=1, layer="below", xref="x2", yref="y2 domain", editable=False) for t in moves]
    notes = [label(0, 1, "one line a learner", "$muted", xref="x2 domain", yref="y2 domain", yanchor="bottom", shift=(0, 6))]
    return traces, notes, shapes, axes


# -------------------------------------------------------------------------------------------------- the U-curve


def _u_curve(data: Mapping[str, Any], params: Any) -> tuple[list[Trace], Notes, list[dict[str, Any]], dict[str, Any]]:
    """Regret against the length of a block; peers as levels, the best fixed decision at zero, this run as a line to drag."""
    length = params.gossip_rounds + params.compensation_rounds
    across = [math.log10(min(SHOWN[0], 0.9 * length)), math.log10(max(SHOWN[1], 1.1 * length))]
    ticks = [sum(pair) for pair in BLOCKS] + [100]
    axes = {
        "xaxis3": axis("block length L", "rounds, log scale", range=[across[0], across[1] + NAME_ROOM], showgrid=False, anchor="y3"),
        "yaxis3": axis("regret", "loss per sample", domain=LOWER, anchor="x3", nticks=4),
    }
    axes["xaxis3"] |= {"tickvals": [math.log10(t) for t in ticks], "ticktext": ticks}
    on: dict[str, Any] = {"xaxis": "x3", "yaxis": "y3"}
    here = math.log10(length)
    shapes = [rule(here, "block", "$method", dash="dash", width=2, xref="x3", yref="y3 domain", editable=True)]
    words = f"this run: {length} rounds"
    notes = [label(here, 1, words, "$method", anchor="center", xref="x3", yref="y3 domain", yanchor="bottom", shift=(0, 2))]
    if "u" not in data:
        return [], notes, shapes, axes
    u, own, peers = data["u"], _own(data), _peers(data)
    regret, place = floats(u["regret"]), np.log10(floats(u["gossip"]) + floats(u["compensation"]))
    known = [*regret[np.isfinite(regret)], *([own] if own is not None else [])]
    top = 1.2 * max([*known, *(value for name, value, _ in peers if name != NEVER)], default=1.0)
    peers = [(name, value, colour) for name, value, colour in peers if value < top]
    axes["yaxis3"]["range"] = [-0.09 * top, top]
    traces = [line(across, [value] * 2, name, colour, width=1.5, hover=f"{name}: {value:.4f}", **on) for name, value, colour in peers]
    traces.append(line(across, [0, 0], "best fixed", "$truth", hover="the best fixed decision", **on))
    said = [f"blocks of {g + c} rounds" for g, c in zip(u["gossip"], u["compensation"], strict=True)]
    curve = line(place, regret, "U-curve", "$method", width=2.5, ghost=True, hover="%{text}: %{y:.4f}", text=said, **on)
    traces.append(curve | {"mode": "lines+markers", "marker": {"color": "$method", "size": 9, "line": {"width": 0}}})
    lost = [i for i, stopped in enumerate(u["diverged"]) if stopped is not None]
    if lost:
        text = [f"{said[i]}: diverged in round {u['diverged'][i]}" for i in lost]
        traces.append(scatter(place[lost], [0.93 * top] * len(lost), "diverged", "$warning", symbol="x", size=10, hover="%{text}", text=text, **on))
        notes.append(label(float(place[lost[0]]), 0.93 * top, "diverged", "$warning", anchor="right", shift=(-9, 0), xref="x3", yref="y3"))
    if own is not None:
        traces.append(scatter([here], [own], "this run", "$method", symbol="circle-open", size=16, edge=2, hover=f"this run: {own:.4f}", **on))
    named = [(value, name, colour) for name, value, colour in [*peers, ("best fixed", 0.0, "$truth")]]
    notes += [note | {"x": across[1], "xref": "x3"} for note in end_labels(named, (-0.09 * top, top), PHONE_U_PX, yref="y3")]
    return traces, notes, shapes, axes


def _peers(data: Mapping[str, Any]) -> list[tuple[str, float, str]]:
    """Name, regret in the end and colour of those that are known."""
    found = (("dc-dogd", "DC-DOGD", "$peer-1"), ("uncompressed", "uncompressed", "$peer-2"), ("alone", NEVER, "$peer-3"))
    return [(name, float(floats(data["curves"][key]["regret"])[-1]), colour) for key, name, colour in found if key in data["curves"]]


def _own(data: Mapping[str, Any]) -> float | None:
    own = data["curves"].get("top-dogd")
    return None if own is None or data.get("lost") is not None else float(floats(own["regret"])[-1])


def _summary(data: Mapping[str, Any], params: Any) -> str:
    graph = data["graph"]
    if data.get("lost") is not None:
        return f"The surrogates flew apart and the run stopped in round {data['lost']}: their replicas are too stale for this gossip step."
    if "u" not in data:
        return f"{len(floats(graph['places']))} learners on a graph; sticks and colours show how far each is from the mean of all."
    found = [(value, g + c) for value, g, c in zip(data["u"]["regret"], data["u"]["gossip"], data["u"]["compensation"], strict=True) if value is not None]
    least = f"Of the block lengths tried {min(found)[1]} rounds is best, with regret {min(found)[0]:.4f}." if found else "No block length tried stays finite."
    peer = data["curves"].get("dc-dogd")
    beside = f" DC-DOGD, tuned and moving every round: {float(floats(peer['regret'])[-1]):.4f}." if peer else ""
    return f"{least}{beside} Drag the dashed line or click a point to choose a block; below, a block can be played."


# ---------------------------------------------------------------------------------------------------- the plane


def plane(data: Mapping[str, Any]) -> Figure | None:
    """Each learner's way through the last block, in the plane of largest disagreement."""
    fan = data.get("fan")
    if fan is None:
        return None
    share = floats(fan["share"])
    block = floats(fan["plane"])[slice(*_last_block(data))]
    n = block.shape[1]
    gap = np.full((1, n, 2), np.nan)
    x, y = np.moveaxis(np.concatenate([block, gap]), 1, 0).reshape(-1, 2).T
    said = [f"learner {i + 1}" for i in range(n)]
    traces = [
        line(x, y, "way", alpha("$method", 0.5), width=1.25, hover="skip", type="scatter"),
        scatter(block[0, :, 0], block[0, :, 1], "start", "$peer-1", symbol="circle-open", size=9, edge=1.5, hover="%{text} at the start", text=said),
        scatter(block[-1, :, 0], block[-1, :, 1], "end", "$method", size=8, hover="%{text} at the end", text=said),
        scatter([0], [0], "mean", "$truth", symbol="x-thin", size=14, edge=2, hover="mean of all learners"),
    ]
    reach = 1.1 * _reach(block)
    plot = layout(
        axis("first direction", f"{share[0]:.0%} of the spread", range=[-reach, reach]),
        axis("second direction", f"{share[1]:.0%} of the spread", range=[-reach, reach]),
        top=30,
        annotations=key_row(("○ start of the block", "$peer-1"), ("● end", "$method"), ("× mean", "$truth")),
    )
    before, after = (float(np.sqrt((part**2).sum(axis=1).mean())) for part in (block[0], block[-1]))
    summary = f"In the last block drawn the learners' distance from their mean goes from {before:.3g} to {after:.3g} in this plane."
    return Figure("plane", "One block, in the plane", traces, plot, summary, height=380)
