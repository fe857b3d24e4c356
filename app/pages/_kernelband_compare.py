"""The pictures of a comparison: curves of all policies with their 95 % bands, the last values, where attempts went, the table of times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._kernelband_marks import COLUMNS, counted, log_reach, log_ticks, ms, policy, recorded, round_ticks
from app.plotting import Figure, Trace, alpha, axis, band, end_labels, floats, heatmap, intervals, label, layout, line, message, rule, scatter

HEIGHT, PHONE_PLOT_PX = 540, 260
LABEL_ROOM = 0.30  # right of the last round, as a share of the rounds
DOTS = 60  # of a policy's seeds at most
# Peers in greys with dashes of their own; random choice, the one to beat, is the truth's colour.
PEERS = {
    "random": ("$truth", "solid"),
    "thompson": ("$peer-1", "dash"),
    "greedy": ("$peer-2", "dot"),
    "best-of-n": ("$peer-3", "dashdot"),
    "tpe": ("$peer-1", "longdash"),
    "without-mask": ("$peer-2", "longdashdot"),
    "one-cluster": ("$peer-3", "solid"),
    "kernelband": ("$peer-1", "solid"),
}


def curves(data: Mapping[str, Any], params: Any) -> Figure:
    """Geometric mean of the speed-up after each attempt; while the table is filled, how far that is."""
    found = data.get("policies")
    if not found:
        filled = data["landscape"]["schedules"]
        return message("curves", "First a table of measured times", f"{filled} schedules measured so far", span="main", height=HEIGHT)
    chosen = data["chosen"]
    order = sorted(found, key=lambda name: (name == chosen, name == "random"))  # drawn last, on top
    reach = log_reach(np.concatenate([floats(found[name][key]) for name in found for key in ("low", "high")]))
    traces: list[Trace] = []
    ends: list[tuple[float, str, str]] = []
    for name in order:
        mean, low, high = (floats(found[name][key]) for key in ("mean", "low", "high"))
        at = np.arange(mean.size)
        colour, dash = style(name, chosen)
        shade = band(at, low, high, f"{name}, 95 %", colour)
        traces.append(shade | {"fillcolor": alpha(colour, 0.2 if name == chosen else 0.07)})
        strong: dict[str, Any] = {"width": 3.0, "ghost": True} if name == chosen else {"width": 1.75}
        text = [f"{policy(name)}: {m:.3g} times (95 % from {a:.3g} to {b:.3g})" for m, a, b in zip(mean, low, high, strict=True)]
        traces.append(line(at, mean, name, colour, dash=dash, hover="%{text} after %{x}", text=text, **strong))
        ends.append((math.log10(mean[-1]), f"<b>{policy(name)}</b>" if name == chosen else policy(name), colour))
    plot = layout(
        axis("attempt", "number", range=[0, params.rounds * (1 + LABEL_ROOM)], showgrid=False, tickvals=round_ticks(params.rounds)),
        axis("speed-up over the naive kernel", "times", **log_ticks(reach)),
        annotations=end_labels(ends, reach, PHONE_PLOT_PX, anchor="right"),
    )
    title = f"Policies at the same budget, {counted(data['seeds'], 'seed')} each{recorded(data)}"
    return Figure("curves", title, traces, plot, _summary(data), "main", height=HEIGHT)


def style(name: str, chosen: str) -> tuple[str, str]:
    """Colour and dash of a policy's curve."""
    return ("$method", "solid") if name == chosen else PEERS[name]


def _summary(data: Mapping[str, Any]) -> str:
    found, chosen = data["policies"], data["chosen"]
    leader = max(found, key=lambda name: floats(found[name]["mean"])[-1])
    parts = [f"Bands are 95 % intervals of the geometric mean. Highest ends {policy(leader)}, at {floats(found[leader]['mean'])[-1]:.3g} times."]
    if leader == "tpe":
        parts.append("It draws whole programs, moved to the nearest measured one, which helps it here.")
    if chosen != "random":
        parts.append(_against_random(data))
    return " ".join(parts)


def _against_random(data: Mapping[str, Any]) -> str:
    """Seed by seed, as the run itself judges."""
    from backends.kernelband.compare import Comparison  # brings scipy, which the page of a search does not need

    chosen = data["chosen"]
    seen = Comparison(0, {name: [np.log([value]) for value in floats(data["final"][name])] for name in (chosen, "random")})
    ratio, low, high = seen.ratio(chosen, "random")
    judged = "within noise" if low <= 1 <= high else "a difference at this table and budget"
    return f"{policy(chosen)} reaches {ratio:.2f} times the speed-up of random choice (95 % from {low:.2f} to {high:.2f}): {judged}."


def last_values(data: Mapping[str, Any]) -> Figure:
    """The final speed-up of each seed as a dot, with the geometric mean and its interval."""
    found, final, chosen = data["policies"], data["final"], data["chosen"]
    order = sorted(found, key=lambda name: -floats(found[name]["mean"])[-1])
    traces: list[Trace] = []
    for place, name in enumerate(order):
        values = np.sort(floats(final[name]))
        shown = values[:: -(-values.size // DOTS)]
        colour, _ = style(name, chosen)
        beside = place + np.linspace(0.12, 0.38, shown.size)  # in order of their value, so that equal ones lie side by side
        traces.append(scatter(beside, shown, f"seeds of {name}", alpha(colour, 0.45), size=4, edge=0, hover=f"{policy(name)}: %{{y:.3g}} times"))
        low, mean, high = ([float(floats(found[name][key])[-1])] for key in ("low", "mean", "high"))
        traces.append(intervals([place], mean, low, high, name, colour, size=9, hover=f"{policy(name)}: %{{y:.3g}} times"))
    names = [policy(name).replace(" ", "<br>", 1).replace("KernelBand", "Kernel-<br>Band") for name in order]
    everything = np.concatenate([floats(final[name]) for name in order])
    plot = layout(
        axis("policy", "no unit", range=[-0.4, len(order) - 0.4], tickvals=list(range(len(order))), ticktext=names, showgrid=False),
        axis("final speed-up", "times", **log_ticks(log_reach(everything))),
    )
    spread = max(order, key=lambda name: float(np.ptp(np.log(floats(final[name])))))
    least, most = float(floats(final[spread]).min()), float(floats(final[spread]).max())
    summary = (
        f"Dots are single searches: with {policy(spread)} they end between {least:.3g} and {most:.3g} times. Bars are 95 % intervals of the geometric mean."
    )
    return Figure("final", "One search tells little", traces, plot, summary, height=360)


def spent(data: Mapping[str, Any]) -> Figure:
    """Share of each policy's attempts by strategy, over all seeds; the clusters stand in the hover text."""
    pulls = {name: floats(found) for name, found in data["pulls"].items()}
    names = list(pulls)
    totals = np.array([pulls[name].sum(axis=0) for name in names])
    share = totals / np.maximum(1, totals.sum(axis=1, keepdims=True))
    strategies = data["strategies"]
    hover = [[_pulls_said(policy(name), strategies[s], pulls[name][:, s]) for s in range(len(strategies))] for name in names]
    cells: dict[str, Any] = {
        "text": [[f"{100 * v:.0f}" for v in row] for row in share],
        "texttemplate": "%{text}",
        "customdata": hover,
        "textfont": {"color": "$ink"},
    }
    reach = {"zmin": 0, "zmax": max(0.3, float(share.max())), "xgap": 3, "ygap": 3, "showscale": False}
    tints = [[0, alpha("$method", 0.04)], [1, alpha("$method", 0.55)]]
    at, rows = np.arange(len(strategies)), np.arange(len(names))
    trace = heatmap(at, rows, share, "attempts", hover="%{customdata}", **{**cells, **reach, "colorscale": tints})
    plot = layout(
        axis(
            "strategy",
            "no unit; numbers are % of a policy\u2019s attempts",
            tickvals=at,
            ticktext=[COLUMNS.get(s, s) for s in strategies],
            tickangle=0,
            showgrid=False,
        ),
        axis("policy", "no unit", range=[len(names) - 0.5, -0.5], tickvals=rows, ticktext=[policy(name) for name in names], showgrid=False),
    )
    widest = int(np.argmax(np.ptp(share, axis=1)))
    most, least = int(share[widest].argmax()), int(share[widest].argmin())
    top, bottom = (f"{share[widest, s]:.0%} on {_word(strategies[s])}" for s in (most, least))
    summary = f"The least even is {policy(names[widest])}: {top}, {bottom}. TPE draws whole schedules and has no strategies."
    return Figure("spent", "Where each policy spent its attempts", [trace], plot, summary, height=360)


def _word(strategy: str) -> str:
    return strategy.replace("_", " ")


def _pulls_said(name: str, strategy: str, by_cluster: np.ndarray) -> str:
    split = ", ".join(f"cluster {i + 1}: {n:,.0f}" for i, n in enumerate(by_cluster))
    return f"<b>{name}, {_word(strategy)}</b><br>{by_cluster.sum():,.0f} attempts<br>{split}"


def table(data: Mapping[str, Any]) -> Figure:
    """The measured times of all schedules that the replays draw from, in order."""
    found = data["landscape"]
    took = floats(found["ms"])
    traces = [line(np.arange(1, took.size + 1), took, "schedules", "$data", hover="schedule %{x} in order of speed: %{y:.3g} ms")]
    naive = float(took.min()) * found["fastest"]
    note = label(0.02, math.log10(naive), f"naive {ms(naive)}", "$muted", xref="x domain", yanchor="bottom", shift=(0, 2))
    plot = layout(
        axis("schedules, fastest first", "rank", rangemode="tozero"),
        axis("time", "ms", **log_ticks(log_reach([*took, naive], above=0.14))),
        annotations=[note],
        shapes=[rule(naive, "naive", "$peer-1", across="y")],
    )
    stale = f" {counted(found['stale'], 'program')} changed since the recording." if found["stale"] else ""
    summary = (
        f"{counted(found['schedules'], 'schedule')}, {found['failures']} of which fail; the fastest is {found['fastest']:.3g} times faster than the naive one. "
        f"{found['inside']:.0%} of all their edits lead to another measured one, and only those can be drawn.{stale}"
    )
    return Figure("table", f"The table of times{recorded(data)}", traces, plot, summary, span="wide", height=300)
