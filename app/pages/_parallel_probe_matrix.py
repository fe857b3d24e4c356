"""The probing matrix: branches by probes, one colour an answer, with cut rows, the stop line and the strip of the vote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.plotting import Figure, Trace, alpha, axis, key_row, label, layout, plain_text, rule

RIGHT, UNREAD, MANY = "$warning", "$peer-3", "$data"
THEMES = ("uncertainty", "agents", "decisions", "code", "worlds", "adapt", "look-inside")  # hues that keep apart from the red
HUES = (*(f"$theme-{name}" for name in THEMES), *(alpha(f"$theme-{name}", 0.5) for name in THEMES))
FADED = 0.22  # what the stop saves
CUT = alpha("$muted", 0.22)
WRITTEN_ROWS, WRITTEN_COLUMNS = 40, 30  # a larger matrix has no room for words in its cells
WARM_UP = "warm-up"  # name of the line that can be dragged
LINE_AFTER = 1.5  # probes from W to the line: columns count from 1, and it stands between two
ERROR = "ERR"


def palette(found: Mapping[str, Any]) -> list[str]:
    """A colour for each answer code: the right one red, the unreadable grey, the rest by how many branches end with it.

    Digits keep one colour each while the matrix grows.
    """
    names, gold = list(found["names"]), found["gold"]
    others = [code for code, name in enumerate(names) if code != gold and name != ERROR]
    if all(name.isdigit() and len(name) == 1 for name in (names[code] for code in others)):
        order = {code: int(names[code]) for code in others}
        if gold is not None and gold >= 0:
            order = {code: digit - (digit > int(names[gold])) for code, digit in order.items()}
    else:
        ends = np.bincount(np.asarray(found["final"], int), minlength=len(names))
        order = {code: place for place, code in enumerate(sorted(others, key=lambda code: (-ends[code], code)))}
    chosen = [MANY] * len(names)
    for code, name in enumerate(names):
        if code == gold:
            chosen[code] = RIGHT
        elif name == ERROR:
            chosen[code] = UNREAD
        elif order[code] < len(HUES):
            chosen[code] = HUES[order[code]]
    return chosen


def right_name(found: Mapping[str, Any]) -> str | None:
    """The right answer, safe to draw; None where it is not known."""
    return None if found["gold_name"] is None else plain_text(str(found["gold_name"]))


def matrix(data: Mapping[str, Any]) -> Figure | None:
    found = data.get("matrix")
    if found is None:
        return None
    codes, ended = np.asarray(found["codes"], int), np.asarray(found["ended"], bool)
    tokens, cut = np.asarray(found["tokens"], int), np.asarray(found["pruned_at"], int)
    size, columns = codes.shape
    rank = np.lexsort((np.arange(size), tokens))
    codes, ended, cut, depths = codes[rank], ended[rank], cut[rank], (~ended[rank]).sum(1)
    column = np.arange(columns)
    stopped = found["stopped"]
    last = columns if stopped is None else stopped + 2
    is_cut = (cut[:, None] >= 0) & (column > cut[:, None] + 1) & ~ended
    after = ~is_cut & (column >= last) & ~ended
    live = ~is_cut & ~after & ~ended
    colours, names = palette(found), [plain_text(str(name)) for name in found["names"]]
    place = {"x": column + 1, "y": np.arange(1, size + 1)}
    words = size <= WRITTEN_ROWS and columns <= WRITTEN_COLUMNS and max(map(len, names)) <= 2
    texts = np.array(names, dtype=object)[codes]
    traces = [
        _cells(codes, live, colours, "answer", texts, place, written=words),
        _cells(codes, after, [alpha(colour.split("/")[0], FADED) for colour in colours], "after the stop", texts, place),
        _cells(np.zeros_like(codes), is_cut, [CUT], "cut, would say", texts, place),
        *_finals(found, rank, depths, columns, cut, colours, names),
    ]
    shapes, notes = [], key_row(*_key(found))
    vote = data["vote"]
    winners = np.asarray(vote["winner"], int)
    if winners.size:
        notes.append(label(0, 0.0375, "vote", "$ink", anchor="right", xref="paper", yref="paper", shift=(-8, 0)))
        strip = {"x": np.arange(2, winners.size + 2), "y": ["vote"], "xaxis": "x", "yaxis": "y2"}
        traces.append(
            _cells(winners[None], np.ones((1, winners.size), bool), colours, "vote", np.array(names, dtype=object)[winners[None]], strip, written=words)
        )
    if stopped is not None:
        shapes.append(rule(stopped + 2.5, "stop", "$method", dash="solid", width=3, editable=False))
        notes.append(label(stopped + 2.5, 0.0375, "stop", "$method", yref="paper", shift=(6, 0)))
    warmup = data["setting"]["warmup"]
    widest = int(found["room"]) + 1
    if data["setting"]["prune"] is not None and warmup + LINE_AFTER < widest:
        shapes.append(rule(warmup + LINE_AFTER, WARM_UP, "$ink", dash="dot", width=2, editable=True))
        notes.append(label(warmup + LINE_AFTER, 0.112, "judged from here", "$ink", yref="paper", shift=(5, 0), bgcolor="$surface/0.85"))
    plot = layout(
        axis("probe", f"number, one each {data['interval']} tokens", range=[0.5, widest + 0.5], showgrid=False, anchor="y2"),
        axis("branch", "rank, shortest first", domain=(0.15, 1.0), range=[size + 0.5, 0.5], showgrid=False, nticks=6),
        top=30,
        yaxis2={"visible": False, "domain": [0.0, 0.075], "fixedrange": True, "anchor": "x"},
        annotations=notes,
        shapes=shapes,
        meta={"editable": True},
    )
    return Figure("matrix", _title(found), traces, plot, _summary(found, data, cut), span="main")


def _cells(codes: np.ndarray, shown: np.ndarray, colours: list[str], name: str, texts: np.ndarray, place: Mapping[str, Any], *, written: bool = False) -> Trace:
    """A heatmap of these cells only, one colour a code."""
    steps = len(colours)
    scale = [[edge, colours[code]] for code in range(steps) for edge in (code / steps, (code + 1) / steps)]
    trace: Trace = {
        "type": "heatmap",
        **place,
        "z": np.where(shown, codes + 0.5, np.nan),
        "zmin": 0,
        "zmax": steps,
        "colorscale": scale,
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
        "name": name,
        "customdata": np.where(shown, texts, "").tolist(),
        "hoverongaps": False,
        "hovertemplate": f"{name} %{{customdata}}, probe %{{x}}<extra></extra>",
    }
    if written:
        trace |= {"text": trace["customdata"], "texttemplate": "%{text}", "textfont": {"color": "$surface", "size": 9}}
    return trace


def _finals(found: Mapping[str, Any], rank: np.ndarray, depths: np.ndarray, columns: int, cut: np.ndarray, colours: list[str], names: list[str]) -> list[Trace]:
    """A dot behind each branch that ended by itself: its own answer."""
    final = np.asarray(found["final"], int)[rank]
    done = np.flatnonzero((depths < columns) | found["over"])
    hollow = [CUT if cut[row] >= 0 else colours[final[row]] for row in done]
    trace: Trace = {
        "type": "scatter",
        "mode": "markers",
        "x": depths[done] + 1,
        "y": done + 1,
        "name": "own answer",
        "marker": {"color": hollow, "size": 6, "line": {"width": 0}},
        "customdata": [names[final[row]] for row in done],
        "hovertemplate": "ended with %{customdata}<extra></extra>",
    }
    return [trace] if done.size else []


def _key(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    right = right_name(found)
    first = [] if right is None else [(f"\u25a0 right: {right}" if right != "right" else "\u25a0 right", RIGHT)]
    return [*first, ("\u25a0 cut", "$muted"), ("\u25cf its end", "$ink"), ("faded: saved", "$muted")]


def _title(found: Mapping[str, Any]) -> str:
    question = plain_text(str(found["question"]))
    short = question if len(question) <= 60 else question[:57] + "..."
    return f"{short}: when do they agree?" if short else "When do they agree?"


def _summary(found: Mapping[str, Any], data: Mapping[str, Any], cut: np.ndarray) -> str:
    vote, gone = data["vote"], int((cut >= 0).sum())
    if not vote["winner"]:
        return "The first probe of each branch: recorded, never voted on."
    says = plain_text(str(found["names"][int(vote["winner"][-1])]))
    right = right_name(found)
    verdict = "" if right is None else ", which is right" if says == right else f", but {right} is right"
    text = f"Each cell is what a branch answered when it was asked. The vote says {says}{verdict}."
    if found["stopped"] is not None:
        text += f" It held still long enough at probe {found['stopped'] + 2}, and all stopped."
    elif found["over"]:
        text += " It never held still long enough, so nobody was stopped."
    text += f" {gone} branches were cut"
    if not found["over"] or found["gold"] is None or not gone:
        return text + "."
    lost = int(((np.asarray(found["pruned_at"], int) >= 0) & (np.asarray(found["final"], int) == found["gold"])).sum())
    return text + f", {lost} of which would have come out right."
