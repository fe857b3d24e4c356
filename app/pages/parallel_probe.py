"""The pictures of parallel-probe: the probing matrix, what it saves, and what settings, widths and depths do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.dragging import is_number, moved_end
from app.pages._parallel_probe_matrix import LINE_AFTER, WARM_UP, matrix
from app.pages._parallel_probe_sweeps import HEIGHT, NAMES, SETTINGS, crowd, frontier, onsets, surface, told_setting
from app.plotting import Changes, Figure, Panel, View, axis, bars, label, layout, stacked_when_narrow
from backends.contract import Frame

LATEST = 100  # no warm-up is longer
SHOWN = {**NAMES, "no-pruning": "without cutting", "no-stopping": "without stopping", "no-warm-up": "without warm-up"}
PUBLISHED = {  # accuracy in percent, sequential and total thousands of tokens; mean of three benchmarks
    "parallel-probe": (68.5, 21.6, 824.9),
    "sc": (68.6, 31.9, 1100.7),
    "asc": (68.6, 399.1, 399.1),
    "esc": (68.6, 133.9, 771.5),
    "sac": (63.2, 27.4, 889.5),
}


def views(frame: Frame, params: Any) -> list[View]:
    """What can be drawn of this frame, the matrix first; a picture waits until its data is there."""
    data = frame.data
    made: list[View | None] = [
        matrix(data),
        crowd(data),
        _tokens(data),
        frontier(data),
        surface(data),
        onsets(data, alone="branch" not in data),
        _branch(data),
        _peers(data, params),
    ]
    return [view for view in made if view is not None]


def on_event(view: str, event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    """The warm-up line dragged sets the warm-up; a click on a setting of the frontier takes it."""
    kind = event.get("type")
    if view == "matrix" and kind == "drag" and event.get("shape") == WARM_UP:
        warmup = params.get("warmup")
        place = moved_end(event, warmup + LINE_AFTER if is_number(warmup) else None)
        return None if place is None else Changes({"warmup": min(LATEST, max(0, round(place - LINE_AFTER)))}, run=True)
    if view == "frontier" and kind == "click" and event.get("trace") == SETTINGS:
        setting = told_setting(str(event.get("customdata")))
        return None if setting is None else Changes(setting, run=True)
    return None


def _tokens(data: Mapping[str, Any]) -> Figure | None:
    """How long one waits and what one pays, beside voting, on the question that is shown."""
    found = data.get("spent")
    if found is None or not data["matrix"]["over"]:
        return None
    ours, voting = np.asarray(found["ours"], int), np.asarray(found["voting"], int)
    pairs = ((int(ours.max()), int(voting.max())), (int(ours.sum()), int(voting.sum())))
    names, colours = ["Parallel-Probe", "voting"], ["$method", "$peer-2"]
    traces, notes = [], []
    for number, (title, pair) in enumerate(zip(("longest branch", "all branches"), pairs, strict=True)):
        on = {"marker": {"color": colours}} | ({} if number == 0 else {"xaxis": "x2", "yaxis": "y2"})
        traces.append(bars(names, list(pair), title, width=0.6, hover="%{x}: %{y:,} tokens") | on)
        saved = f"{1 - pair[0] / pair[1]:.0%} saved" if pair[0] < pair[1] else "nothing saved"
        notes.append(label(0 if number == 0 else 0.58, 1, f"{title}: {saved}", "$ink", xref="paper", yref="paper", yanchor="bottom", shift=(0, 6)))
    plot = layout(
        axis("method", "name") | {"domain": [0, 0.42]},
        axis("sequential tokens", "count", rangemode="tozero", nticks=5),
        xaxis2=axis("method", "name") | {"domain": [0.58, 1], "anchor": "y2"},
        yaxis2=axis("total tokens", "count", rangemode="tozero", nticks=5) | {"anchor": "x2"},
        top=34,
        annotations=notes,
        meta=stacked_when_narrow(notes, 0.5),
    )
    text = f"On this question: {pairs[0][0]:,} tokens in sequence instead of {pairs[0][1]:,}, {pairs[1][0]:,} in all instead of {pairs[1][1]:,}."
    return Figure("tokens", "What is saved", traces, plot, text, height=HEIGHT)


def _branch(data: Mapping[str, Any]) -> Panel | None:
    """One branch in its own words, and what it said when it was asked."""
    found = data.get("branch")
    if found is None or not found["rows"]:
        return None
    columns = [
        {"name": "probe", "kind": "number"},
        {"name": "it wrote", "kind": "text"},
        {"name": "asked, it said", "kind": "text"},
        {"name": "the vote", "kind": "text"},
    ]
    end = "the first that was cut" if found["cut"] is not None else "the longest"
    note = "What is asked and said is forgotten: the branch writes on as if nothing had been."
    summary = f"Branch {found['number'] + 1}, {end}: what it wrote before each probe, what it said, and the vote."
    shown = {"columns": columns, "rows": [list(row) for row in found["rows"]], "note": note}
    return Panel("branch", "table", "One branch, asked again and again", shown, summary)


def _peers(data: Mapping[str, Any], params: Any) -> Panel | None:
    """Every method on the same branches, beside what the paper reports."""
    found = data.get("methods")
    if found is None:
        return None
    columns = [
        {"name": "method", "kind": "text"},
        *({"name": name, "kind": "number"} for name in ("right (%)", "sequential", "total", "paper: right (%)", "sequential (k)", "total (k)")),
    ]
    rows = []
    for name, words in SHOWN.items():
        value = found[name]
        right = None if value["accuracy"] is None else round(100 * value["accuracy"], 1)
        rows.append([words, right, round(value["sequential"]), round(value["total"]), *PUBLISHED.get(name, (None, None, None))])
    asked = f"{data['questions']} question{'s' * (data['questions'] != 1)}"
    note = "Paper: Qwen3-8B, 64 branches, mean of AIME24, AIME25 and HMMT25, in thousands of tokens."
    summary = f"Right answers and tokens a question, mean over {asked}, and what the paper reports for a far larger model."
    chosen = list(SHOWN).index(params.method)
    return Panel("peers", "table", "All methods on the same branches", {"columns": columns, "rows": rows, "note": note, "marked": chosen}, summary, "wide")
