"""The main picture of a search: the fastest kernel so far, attempt by attempt, and below it what the bandit knows of its arms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._kernelband_marks import COLUMNS, RESOURCES, TIMED, UNTIMED, log_reach, log_ticks, ms, plain, recorded, roof_ms, round_ticks, strategy, whole
from app.plotting import Figure, Trace, alpha, axis, end_labels, floats, heatmap, key_row, label, layout, line, plain_text, scatter
from backends.kernelband.substrate import TARGET

HEIGHT, PHONE_CURVE_PX = 540, 130  # of the plot on a laptop, and of the curve's area on a phone
CURVE, ARMS = (0.49, 1.0), (0.0, 0.25)  # how the two plots share the height
STRIP = 0.07  # above the curve, as a share of the decades: attempts that have no time
LABEL_ROOM = 0.28  # right of the last round, as a share of the rounds
FAINT, FULL = 0.05, 0.55  # tint of a mean reward of 0 and of 1: ink stays readable on both


def best_so_far(data: Mapping[str, Any], metrics: Mapping[str, Any], params: Any) -> Figure:
    """Steps of the best time on a log axis with a mark for each attempt; a heat map of all arms below (TPE has none)."""
    attempts, drift = data["attempts"], data["drift"]
    rounds, times = whole(attempts["round"]), floats(attempts["ms"])
    naive = float(floats(drift["ms"])[0])
    roof = roof_ms(data)
    reach = log_reach([naive, roof, *times, *floats(drift["ms"]), metrics.get("best_ms") or naive], above=2 * STRIP)
    strip = 10 ** (reach[1] - STRIP * (reach[1] - reach[0]))
    best = floats([naive, *floats(attempts["best_ms"])])
    last = float(max(1, data["round"]))
    traces = _references(drift, roof, params.rounds)
    now = float(metrics.get("best_ms") or best[-1])  # in the end the best is timed once more, which may find it faster
    traces.append(_steps(np.append(0, rounds), best, last, now))
    traces += _marks(data, rounds, times, strip)
    ends = [
        (math.log10(now), f"<b>best {plain(now)}</b>", "$method"),
        (math.log10(float(floats(drift["ms"])[-1])), "naive", "$peer-1"),
        (math.log10(roof), f"roof {plain(roof)}", "$truth"),
    ]
    notes = end_labels(ends, reach, PHONE_CURVE_PX, anchor="right")
    shown = set(attempts["outcome"])
    notes += _key(TIMED, shown, 22, "") + _key(UNTIMED, shown, 5, "no time: ")
    arms = data["arms"]
    x = axis("attempt", "number", range=[-0.4, params.rounds * (1 + LABEL_ROOM)], showgrid=False, anchor="y", tickvals=round_ticks(params.rounds))
    x["title"]["standoff"] = 2  # a phone leaves little room between the two plots
    y = axis("time", "ms", domain=None if arms is None else CURVE, **log_ticks(reach))
    more: dict[str, Any] = {}
    if arms is not None:
        heat, heat_notes, shapes, axes = _arms(data, arms)
        traces += heat
        notes += heat_notes
        more = {"shapes": shapes, **axes}
    plot = layout(x, y, top=46, annotations=notes, **more)
    plot["margin"]["b"] = 58
    return Figure("best", _title(data, metrics, params), traces, plot, _summary(data, metrics, params), "main", height=HEIGHT)


def _references(drift: Mapping[str, Any], roof: float, rounds: int) -> list[Trace]:
    """The naive kernel, timed again each five rounds, and the roofline's bound."""
    again = line(drift["round"], drift["ms"], "naive", "$peer-1", width=1.5, hover="naive kernel, timed again: %{y:.3g} ms")
    again |= {"mode": "lines+markers", "marker": {"color": "$peer-1", "symbol": "line-ns-open", "size": 8, "line": {"width": 1.5, "color": "$peer-1"}}}
    bound = line([0, rounds], [roof, roof], "roofline", "$truth", width=1, dash="dot", hover="the measured roofline allows %{y:.3g} ms")
    return [bound, again]


def _steps(x: np.ndarray, best: np.ndarray, last: float, now: float) -> Trace:
    """Both ends of every step, so that whatever draws the line draws steps."""
    corners, heights = np.repeat(np.append(x, max(last, x[-1])), 2)[1:], np.append(np.repeat(best, 2), now)
    return line(corners, heights, "best so far", "$method", width=3, ghost=True, hover="best so far: %{y:.3g} ms")


def _marks(data: Mapping[str, Any], rounds: np.ndarray, times: np.ndarray, strip: float) -> list[Trace]:
    attempts = data["attempts"]
    said = [_said(data, i) for i in range(rounds.size)]
    outcomes = np.array(attempts["outcome"], dtype=object)
    traces = []
    for mark in (*TIMED, *UNTIMED):
        places = np.flatnonzero(np.isin(outcomes.astype(str), mark.outcomes))
        if places.size:
            height = times[places] if mark in TIMED else np.full(places.size, strip)
            text = [said[i] for i in places]
            traces.append(scatter(rounds[places], height, mark.words, mark.colour, symbol=mark.symbol, size=9, edge=1.5, hover="%{text}", text=text))
    return traces


def _said(data: Mapping[str, Any], i: int) -> str:
    """The hover text of an attempt."""
    attempts = data["attempts"]
    what = strategy(data["strategies"], attempts["strategy"][i])
    lines = [f"<b>attempt {attempts['round'][i]}: {what}</b>, parent {attempts['parent'][i]} ({ms(attempts['parent_ms'][i])})"]
    outcome = str(attempts["outcome"][i]).replace("-", " ")
    took = attempts["ms"][i]
    lines.append(f"{outcome}, {ms(took)}, reward {attempts['reward'][i]:.2f}" if took is not None else f"{outcome}, reward 0")
    if attempts["text"][i]:
        lines.append(plain_text(attempts["text"][i].strip().splitlines()[0][:90]))
    if attempts["saved"][i]:
        lines.append("a mask closed the arm of the highest score")
    return "<br>".join(lines)


def _key(marks: Any, shown: set[str], height: float, head: str) -> list[dict[str, Any]]:
    """Those signs that occur, in one row above the plot."""
    parts = [(f"{mark.sign} {mark.words}", mark.colour) for mark in marks if shown & set(mark.outcomes)]
    if not parts:
        return []
    row = key_row(*([(head.strip(), "$muted")] if head else []), *parts)
    return [note | {"yshift": height} for note in row]


# ---------------------------------------------------------------------------------------------------- the arms


def _arms(data: Mapping[str, Any], arms: Mapping[str, Any]) -> tuple[list[Trace], list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
    """Traces, notes, shapes and axes of the heat map: mean reward as tint, pulls as number, a stroke through what is masked."""
    mu, n, bonus, is_open = floats(arms["mu"]), whole(arms["n"]), floats(arms["bonus"]), floats(arms["open"]) > 0
    empty = set(arms["empty"])
    clusters, columns = mu.shape
    filled = np.array([i not in empty for i in range(clusters)])[:, None] & np.ones(mu.shape, bool)
    masked = ~is_open & filled
    at, rows = np.arange(columns), np.arange(clusters)
    hover = [[_arm_said(data, i, s, mu, n, bonus, bool(masked[i, s]), i in empty) for s in range(columns)] for i in range(clusters)]
    cells: dict[str, Any] = {
        "text": n.astype(str).tolist(),
        "texttemplate": "%{text}",
        "customdata": hover,
        "xgap": 3,
        "ygap": 3,
        "showscale": False,
        "zmin": 0,
        "zmax": 1,
        "xaxis": "x2",
        "yaxis": "y2",
    }
    tints = [[0, alpha("$method", FAINT)], [1, alpha("$method", FULL)]]
    ink, grey = {"color": "$ink", "size": 12}, {"color": "$muted", "size": 12}
    said = "%{customdata}"
    traces = [heatmap(at, rows, np.where(is_open, mu, np.nan), "arms", hover=said, **{**cells, "colorscale": tints, "textfont": ink})]
    closed = np.where(is_open, np.nan, np.where(filled, 1.0, 0.0))
    shut = [[0, alpha("$muted", 0.08)], [1, alpha("$muted", 0.3)]]
    traces.append(heatmap(at, rows, closed, "closed arms", hover=said, **{**cells, "colorscale": shut, "textfont": grey}))
    on = {"xref": "x2", "yref": "y2"}
    shapes = [
        {"type": "line", "name": "masked", **on, "x0": s - 0.45, "x1": s + 0.45, "y0": i + 0.42, "y1": i - 0.42, "line": {"color": "$muted", "width": 1}}
        for i, s in np.argwhere(masked).tolist()
    ]
    if arms["chosen"] is not None:
        i, s = arms["chosen"]
        frame = {"color": "$ink", "width": 2.5}
        shapes.append({"type": "rect", "name": "chosen", **on, "x0": s - 0.48, "x1": s + 0.48, "y0": i - 0.47, "y1": i + 0.47, "line": frame})
    key = "tint: mean \u00b7 number: pulls \u00b7 <s>struck</s>: masked"
    notes = [label(0, ARMS[1], key, "$muted", xref="paper", yref="paper", yanchor="bottom", shift=(0, 3))]
    names = [COLUMNS.get(name, name) for name in data["strategies"]]
    axes = {
        "xaxis2": axis("strategy", "of the edit; no unit", range=[-0.5, columns - 0.5], tickvals=at, ticktext=names, tickangle=0, showgrid=False, anchor="y2"),
        "yaxis2": axis(
            "cluster", "no.", domain=ARMS, range=[clusters - 0.5, -0.5], tickvals=rows, ticktext=[str(i + 1) for i in rows], showgrid=False, anchor="x2"
        ),
    }
    return traces, notes, shapes, axes


def _arm_said(data: Mapping[str, Any], i: int, s: int, mu: np.ndarray, n: np.ndarray, bonus: np.ndarray, masked: bool, empty: bool) -> str:
    """The hover text of an arm: what it promises and what is not known of it."""
    relieved = RESOURCES[data["resources"][TARGET[s]]]
    score = f"{mu[i, s]:.3f} mean reward + {bonus[i, s]:.3f} for what is not known = {mu[i, s] + bonus[i, s]:.3f}"
    state = "closed: no kernel here yet" if empty else f"masked: {relieved} counts as saturated" if masked else f"open; relieves {relieved}"
    return f"<b>cluster {i + 1}, {strategy(data['strategies'], s)}</b><br>{score}<br>N = {n[i, s]}, of which 1 imagined<br>{state}"


# ---------------------------------------------------------------------------------------------------- words


def _title(data: Mapping[str, Any], metrics: Mapping[str, Any], params: Any) -> str:
    speedup, rounds = metrics.get("speedup"), metrics.get("rounds") or 0
    if speedup is None or not rounds:
        return f"The naive kernel is the one to beat{recorded(data)}"
    done = f"After {rounds} of {params.rounds} attempts" if rounds < params.rounds else "In the end"
    found = "nothing is faster than the naive kernel" if speedup <= 1 else f"the best kernel is {plain(speedup)} times faster than the naive one"
    return f"{done} {found}{recorded(data)}"


def _summary(data: Mapping[str, Any], metrics: Mapping[str, Any], params: Any) -> str:
    attempts, arms = data["attempts"], data["arms"]
    if not len(attempts["round"]):
        return f"The naive kernel takes {ms(metrics['baseline_ms'])}; the first attempt is under way."
    parts = [f"{metrics['correct']} right, {metrics['wrong']} wrong, {metrics['compile_errors']} not compiled, {metrics['duplicates']} seen before."]
    if arms is not None and arms["chosen"] is not None:
        i, s = arms["chosen"]
        verb = "now goes" if data["phase"] not in ("learn", "drift", "confirm") else "last went"
        n, mu = whole(arms["n"]), floats(arms["mu"])
        parts.append(f"The attempt {verb} to {strategy(data['strategies'], s)} in cluster {i + 1} (mean reward {mu[i, s]:.2f}, N {n[i, s]}), framed.")
    elif arms is None:
        parts.append("TPE draws whole schedules and has no arms.")
    expected = " With random edits expect no more than random choice gives." if params.proposer == "offline" and params.policy != "random" else ""
    parts.append(f"One search cannot tell policies apart; the comparison can.{expected}")
    return " ".join(parts)
