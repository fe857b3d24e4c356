"""What the learner of sp-ucb-olp does over the rounds: its mixture, its prices, its radius and the budget it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._sp_ucb_olp_marks import DASHES, HALF_PLOT_PX, SUBSCRIPTS, names, rounds, tint
from app.plotting import Figure, Trace, axis, end_labels, floats, layout, line, message, rule

HEIGHT = 330
LABELS_PX = 138  # right of a plot
FILL = 0.72  # of a tint: areas are heavier than lines
PRICE_ROOM = 2.2  # of the largest price at the end: early prices may be many times as high


def mixture(data: Mapping[str, Any]) -> Figure | None:
    """Shares of the configurations as stacked areas, the exact ones as dashed lines across."""
    found = data.get("solves")
    if found is None:
        return None
    who, at, w = names(data, "names"), _held(found["round"], data), floats(found["w"])
    w = np.concatenate([w, w[-1:]])
    traces: list[Trace] = []
    for k, name in enumerate(who):
        drawn = line(at, w[:, k], name, tint(k), width=0, hover=f"{name}: %{{y:.0%}} from round %{{x}}", stackgroup="w", fillcolor=tint(k, FILL))
        drawn["line"]["shape"] = "hv"
        traces.append(drawn)
    shares = later_half(found, w[:-1], int(data["done"]))
    middle = np.cumsum(shares) - shares / 2
    ends = [(float(middle[k]), f"{name} {shares[k]:.0%}", "$ink") for k, name in enumerate(who) if shares[k] > 0.02]
    oracle = data["oracle"]
    shapes = []
    if oracle is not None and len(who) > 1:
        exact = floats(oracle["w"])
        shapes = [rule(float(edge), "w*", "$truth", across="y", width=2) for edge in np.cumsum(exact)[:-1]]
    y = axis("mixture w", "share of rounds", range=[0, 1], tickformat=".0%", nticks=5)
    plot = layout(rounds(data), y, right=LABELS_PX, annotations=end_labels(ends, (0.0, 1.0), HALF_PLOT_PX), shapes=shapes)
    return Figure("mixture", "How the configurations share the rounds", traces, plot, _mixture_summary(who, shares, oracle), height=HEIGHT)


def _mixture_summary(who: list[str], shares: np.ndarray, oracle: Mapping[str, Any] | None) -> str:
    said = ", ".join(f"{name} {share:.0%}" for name, share in zip(who, shares, strict=True))
    text = f"In the later half: {said}."
    if oracle is None or len(who) == 1:
        return text
    exact = " : ".join(f"{share:.0%}" for share in floats(oracle["w"]))
    return f"{text} The dashed line is the exact mixture w*, {exact}."


def later_half(found: Mapping[str, Any], values: np.ndarray, done: int) -> np.ndarray:
    """Mean of what holds from each solve on, over the rounds from done/2 to done; values: (m, n)."""
    edges = np.maximum(np.append(floats(found["round"]), done), done // 2)
    held = np.maximum(np.diff(edges), 0.0)
    mean: np.ndarray = held @ values / held.sum()
    return mean


def _held(started: Any, data: Mapping[str, Any]) -> np.ndarray:
    """The rounds from which decisions hold, and the newest round."""
    return np.append(floats(started), float(data["done"]))


def prices(data: Mapping[str, Any]) -> Figure | None:
    """One price a resource over the rounds, and the exact prices as dotted lines."""
    found = data.get("solves")
    if found is None:
        return None
    at, p = _held(found["round"], data), floats(found["p"])
    settled = later_half(found, p, int(data["done"]))
    oracle = data["oracle"]
    exact = floats(oracle["p"]) if oracle is not None else np.empty(0)
    top = PRICE_ROOM * max(float(settled.max()), float(exact.max(initial=0.0)), 1e-3)
    p = np.concatenate([p, p[-1:]])
    traces = []
    for j in range(p.shape[1]):
        drawn = line(at, p[:, j], f"p{SUBSCRIPTS[j]}", tint(j), width=2, dash=DASHES[j], hover=f"p{SUBSCRIPTS[j]}: %{{y:.3g}} from round %{{x}}", ghost=True)
        drawn["line"]["shape"] = "hv"
        traces.append(drawn)
    resources = names(data, "resources")
    ends = [(float(settled[j]), f"{name} {settled[j]:.3g}", tint(j) if j < 2 else "$ink") for j, name in enumerate(resources)]
    shapes = [rule(float(value), "p*", "$truth", across="y", dash="dot", width=2) for value in np.unique(exact.round(6))]
    y = axis("price p", "reward / unit", range=[0, top], nticks=5)
    plot = layout(rounds(data), y, right=LABELS_PX, annotations=end_labels(ends, (0.0, top), HALF_PLOT_PX), shapes=shapes)
    said = ", ".join(f"{name} {value:.3g}" for name, value in zip(resources, settled, strict=True))
    summary = f"Mean prices of the later half: {said}."
    if oracle is not None:
        summary += f" Dotted: the exact p* ({', '.join(f'{value:.3g}' for value in exact)}); the slack of {data['slack']:.1%} pulls prices up."
    return Figure("prices", "One price a resource, for all configurations", traces, plot, summary, height=HEIGHT)


def left(data: Mapping[str, Any]) -> Figure | None:
    """The share of each budget that is left, against an even pace."""
    found = data.get("left")
    if found is None:
        return None
    at, share, horizon = floats(found["round"]), floats(found["share"]), float(data["horizon"])
    resources = names(data, "resources")
    traces = [line([0, horizon], [1, 0], "even pace", "$truth", width=1.5, dash="dash", hover="even pace: %{y:.0%} left")]
    ends = []
    for j, name in enumerate(resources):
        traces.append(line(at, share[:, j], name, tint(j), width=2.5, dash=DASHES[j], hover=f"{name}: %{{y:.1%}} left after %{{x}} rounds", ghost=True))
        ends.append((float(share[-1, j]), f"{name} {share[-1, j]:.0%}", "$ink"))
    y = axis("budget left", "share", range=[0, 1.02], tickformat=".0%", nticks=5)
    plot = layout(rounds(data), y, right=LABELS_PX, annotations=end_labels(ends, (0.0, 1.02), HALF_PLOT_PX))
    return Figure("left", "What is left of each budget", traces, plot, _left_summary(at, share, resources, horizon), height=HEIGHT)


def _left_summary(at: np.ndarray, share: np.ndarray, resources: list[str], horizon: float) -> str:
    gone = [(name, at[np.argmax(share[:, j] < 0.005)]) for j, name in enumerate(resources) if (share[:, j] < 0.005).any()]
    early = [f"{name} ran out at round {int(when)}" for name, when in gone if when < 0.97 * horizon]
    if early:
        return "; ".join(early) + ": what needs it is rejected from there on."
    return f"Dashed is an even pace; the scarcest budget has {share[-1].min():.1%} left."


def radius(data: Mapping[str, Any]) -> Figure | None:
    """The confidence radius of each configuration over the rounds."""
    found = data.get("solves")
    if found is None:
        return None
    title, at, beta = "Optimism fades where a configuration is used", floats(found["round"]), floats(found["beta"])
    if not (beta > 0).any():
        return message("radius", "No optimism", "α = 0: the learner trusts its first samples", height=HEIGHT)
    who = names(data, "names")
    traces = []
    ends = []
    for k, name in enumerate(who):
        traces.append(line(at, beta[:, k], name, tint(k), width=2, dash=DASHES[k], hover=f"{name}: %{{y:.3g}} at round %{{x}}"))
        ends.append((float(np.log10(beta[-1, k])), name, "$ink"))
    low, high = float(np.log10(beta.min())), float(np.log10(beta.max()))
    pad = 0.06 * max(high - low, 0.3)
    ticks = [step * 10.0**k for k in range(-5, 3) for step in (1, 2, 5)]
    y = axis("radius β", "reward, log scale", type="log", range=[low - pad, high + pad], tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    plot = layout(rounds(data), y, right=LABELS_PX, annotations=end_labels(ends, (low - pad, high + pad), HALF_PLOT_PX))
    most, least = int(np.argmax(beta[-1])), int(np.argmin(beta[-1]))
    summary = f"The radius falls with the number of samples: {beta[-1, least]:.2g} for {who[least]}, {beta[-1, most]:.2g} for {who[most]}."
    return Figure("radius", title, traces, plot, summary, height=HEIGHT)
