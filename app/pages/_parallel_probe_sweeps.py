"""Accuracy against tokens over many settings, accuracy over width and depth, and when votes settle."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.plotting import Figure, alpha, axis, end_labels, floats, histogram, label, layout, line, log_axis, rule, scatter

HEIGHT = 360
NAMES = {"parallel-probe": "Parallel-Probe", "sc": "SC", "asc": "ASC", "esc": "ESC", "sac": "SAC"}
SYMBOLS = {"sc": "square", "asc": "diamond", "esc": "triangle-up", "sac": "x"}
BUDGETS = (0.03, 0.1, 0.3)  # of the widest and deepest corner
SETTINGS = "settings"  # the dots that can be clicked
EDGES = np.linspace(0, 1, 21)


def of_what(data: Mapping[str, Any]) -> str:
    """Which questions the sweeps are over."""
    found = data["swept"]
    return f"this run's {found['questions']} questions" if found["own"] else f"{found['questions']} synthetic questions"


def told(setting: Any) -> str:
    """A setting in words."""
    stable, prune, warmup = setting
    return f"u {'off' if stable is None else stable}, k {'off' if prune is None else prune}, W {warmup}"


def told_setting(text: str) -> dict[str, Any] | None:
    """The params of such words; None for others.

    >>> told_setting("u 40, k off, W 15")
    {'stable': 40, 'prune': 'off', 'warmup': 15}
    """
    found = re.fullmatch(r"u (\d{1,3}|off), k (\d{1,3}|off), W (\d{1,3})", text)
    if found is None:
        return None
    stable, prune, warmup = (value if value == "off" else int(value) for value in found.groups())
    return {"stable": stable, "prune": prune, "warmup": warmup}


def frontier(data: Mapping[str, Any]) -> Figure | None:
    found = data.get("frontier")
    if found is None:
        return None
    total, accuracy = floats(found["total"]), 100 * floats(found["accuracy"])
    settings = [told(setting) for setting in found["setting"]]
    name = SETTINGS if data["swept"]["own"] else "synthetic settings"
    swept = scatter(total, accuracy, name, alpha("$method", 0.5), size=7, edge=0, customdata=settings, hover="%{customdata}: %{y:.0f}% at %{x:,.0f} tokens")
    best = _undominated(total, accuracy)
    traces = [line(total[best], accuracy[best], "best", "$method", width=1.5, hover="skip"), swept]
    notes, every = [], [accuracy]
    methods = {name: value for name, value in found["methods"].items() if name in NAMES and value["accuracy"] is not None}
    for name, value in methods.items():
        mine = name == "parallel-probe"
        at, right = value["total"], 100 * value["accuracy"]
        every.append(np.array([right]))
        colour = "$method" if mine else "$ink"
        symbol = "star" if mine else SYMBOLS[name]
        traces.append(
            scatter([at], [right], NAMES[name], colour, symbol=symbol, size=14 if mine else 9, hover=f"{NAMES[name]}: %{{y:.0f}}% at %{{x:,.0f}} tokens")
        )
    low, high = float(np.min(np.concatenate(every))), float(np.max(np.concatenate(every)))
    room = max(2.0, 0.12 * (high - low))
    reach = [low - room, high + room]
    notes += _named(methods, reach)
    spent = np.concatenate([total, [value["total"] for value in methods.values()]])
    decades = np.log10([spent.min(), spent.max()])
    plot = layout(
        log_axis("total tokens a question", "count, log scale", spent, range=[decades[0] - 0.08, decades[1] + 0.16]),
        axis("right", "percent", range=reach),
        annotations=notes,
    )
    star = "this run's setting" if data["swept"]["own"] else "the published setting"
    text = f"Each dot is a setting of u, k and W over {of_what(data)}; the star is {star}."
    if data["swept"]["own"]:
        text += " Click a dot to take its setting."
    return Figure("frontier", "Accuracy for its tokens", traces, plot, text, height=HEIGHT)


def _named(methods: Mapping[str, Any], reach: list[float]) -> list[dict[str, Any]]:
    """A name beside each method, those that would cover each other apart."""
    notes: list[dict[str, Any]] = []
    taken: list[tuple[float, float]] = []
    per_px = (reach[1] - reach[0]) / 240
    for name, value in sorted(methods.items(), key=lambda item: item[1]["total"]):
        x, y = float(np.log10(value["total"])), 100 * value["accuracy"]
        shift = next(up for up in (14, -14, 28, -28, 42, -42) if all(abs(x - a) > 0.14 or abs(y + up * per_px - b) > 13 * per_px for a, b in taken))
        taken.append((x, y + shift * per_px))
        colour = "$method" if name == "parallel-probe" else "$ink"
        notes.append(label(x, y, NAMES[name], colour, anchor="center", shift=(0, shift), bgcolor="$surface/0.7"))
    return notes


def _undominated(cost: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """Places of the points that no other beats at its cost or less, by cost."""
    order = np.lexsort((-gain, cost))
    best = np.maximum.accumulate(gain[order])
    keep = gain[order] > np.concatenate([[-np.inf], best[:-1]])
    return order[keep]


def surface(data: Mapping[str, Any]) -> Figure | None:
    found = data.get("surface")
    if found is None:
        return None
    widths, depth = floats(found["widths"]), floats(found["probes"]) * data["swept"]["interval"]
    accuracy = 100 * np.atleast_2d(floats(found["accuracy"]))
    if widths.size < 2 or depth.size < 2:
        return None
    ground = {
        "type": "contour",
        "x": depth,
        "y": widths,
        "z": accuracy,
        "name": "accuracy",
        "colorscale": [[0, alpha("$method", 0.03)], [1, alpha("$method", 0.85)]],
        "contours": {"coloring": "heatmap", "showlabels": True, "labelfont": {"size": 11, "color": "$ink"}},
        "line": {"width": 1, "color": alpha("$ink", 0.35)},
        "ncontours": 9,
        "showscale": False,
        "hovertemplate": "%{z:.0f}% right with %{y} branches of %{x:,.0f} tokens<extra></extra>",
    }
    traces, notes = [ground], []
    corner = float(widths[-1] * depth[-1])
    for share in BUDGETS:
        budget = share * corner
        x = np.geomspace(max(depth[0], budget / widths[-1]), min(depth[-1], budget / widths[0]), 40)
        if x[0] >= x[-1]:
            continue
        traces.append(line(x, budget / x, f"{budget:,.0f} tokens", "$warning", width=1.5, dash="dash", hover=f"{budget:,.0f} tokens in all"))
        middle = float(np.sqrt(x[0] * x[-1]))
        notes.append(label(np.log10(middle), np.log10(budget / middle), _short(budget), "$warning", anchor="center", bgcolor="$surface/0.8"))
    plot = layout(
        log_axis("depth: tokens of a branch", "count, log scale", depth, range=np.log10(depth[[0, -1]]).tolist()),
        axis(
            "width: branches", "count, log scale", type="log", range=np.log10(widths[[0, -1]]).tolist(), tickvals=widths, ticktext=[f"{w:.0f}" for w in widths]
        ),
        annotations=notes,
    )
    last = accuracy[-1, -1]
    text = f"Right answers of a plain vote, in percent, over {of_what(data)}: {last:.0f}% in the corner. Along a dashed line the budget is the same."
    return Figure("surface", "Wide or deep?", traces, plot, text, height=HEIGHT)


def _short(tokens: float) -> str:
    return f"{tokens / 1e3:,.0f}k" if tokens >= 1e4 else f"{tokens:,.0f}"


def onsets(data: Mapping[str, Any], *, alone: bool) -> Figure | None:
    """When votes settle. alone: nothing stands beside it."""
    found = data.get("onsets")
    if found is None:
        return None
    ratios = floats(found)
    mean = float(ratios.mean())
    count = np.histogram(ratios, EDGES)[0]
    plot = layout(
        axis("onset ratio", "tokens until the vote is settled / longest branch", range=[0, 1]),
        axis("questions", "count", range=[0, 1.15 * float(count.max())]),
        shapes=[rule(mean, "mean", "$ink", dash="solid", width=2)],
        annotations=[label(mean, 0.96, f"mean {mean:.2f}", "$ink", yref="paper", shift=(6, 0), bgcolor="$surface/0.8")],
        bargap=0.05,
    )
    text = f"After {mean:.0%} of the longest branch, on average, the vote never changes again ({of_what(data)}; the paper says 31%)."
    return Figure("onsets", "How early the vote is settled", [histogram(ratios, EDGES, "questions")], plot, text, "wide" if alone else "half", height=HEIGHT)


def crowd(data: Mapping[str, Any]) -> Figure | None:
    """Who still votes, and how many of them agree, step by step."""
    vote = data.get("vote")
    if vote is None or len(vote["share"]) < 2:
        return None
    active, share = floats(vote["active"]) / len(data["spent"]["cut"]), floats(vote["share"])
    probe = np.arange(2, share.size + 2)
    ends = [(float(share[-1]), "agree", "$method"), (float(active[-1]), "vote", "$ink")]
    plot = layout(
        axis("probe", "number", range=[2, max(3, int(probe[-1]))]),
        axis("share", "of those who vote; of all", range=[0, 1.05]),
        right=56,
        annotations=end_labels(ends, (0, 1.05), HEIGHT - 64),
    )
    hover = "%{y:.0%} at probe %{x}"
    traces = [
        line(probe, active, "vote", "$ink", dash="dot", hover="still vote: " + hover),
        line(probe, share, "agree", "$method", width=3, hover="agree: " + hover),
    ]
    text = f"Branches that still vote fell to {active[-1]:.0%}; of these {share[-1]:.0%} agree with the vote."
    return Figure("crowd", "Fewer voters, more agreement", traces, plot, text, height=HEIGHT)
