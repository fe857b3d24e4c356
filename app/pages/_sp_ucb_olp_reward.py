"""What the policies of sp-ucb-olp earn: reward against the two rays of the oracle, and the ratio of every policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._sp_ucb_olp_marks import policy_name, rounds
from app.plotting import Figure, Trace, alpha, axis, band, end_labels, floats, label, layout, line, rule, scatter

HEIGHT, PHONE_PLOT_PX = 460, 250
CLOSE = 0.015  # two shares nearer than this need a decimal
WIDE = 0.75  # ratio of the rays below which a label fits between them
LABEL_ROOM = 0.4  # right of the last round, as a share of the rounds
ORDER = ("oracle", "lp-duals", "uniform-over-ties", "greedy", "single", "random")


def reward(data: Mapping[str, Any], metrics: Mapping[str, Any]) -> Figure:
    """The main picture: cumulative reward of the learner between the rays of the best fixed configuration and the best mixture."""
    oracle, horizon, mine = data["oracle"], int(data["horizon"]), str(data["mine"])
    ends: list[tuple[float, str, str]] = []
    traces: list[Trace] = []
    notes: list[dict[str, Any]] = []
    top = 1.0
    if oracle is not None:
        top = horizon * oracle["v_mix"]
        at = np.array([0.0, horizon])
        traces += _rays(at, oracle)
        ends += [(top, "<b>best mix</b>", "$truth"), (horizon * oracle["v_fix"], "best fixed", "$truth")]
        if oracle["v_fix"] < WIDE * oracle["v_mix"]:
            x = 0.8 * horizon
            notes.append(label(x, x * (oracle["v_fix"] + oracle["v_mix"]) / 2, "only mixing<br>gets here", "$muted", anchor="center"))
    curves = data.get("curves")
    if curves is not None:
        done, at = int(data["done"]), floats(curves["round"])
        others = [("uniform-over-ties" if mine == "lp-duals" else "lp-duals", "$peer-2"), ("single", "$peer-1")]
        for name, colour in others:
            traces.append(_curve(at, floats(curves[name]), policy_name(name, mine), colour, width=1.5))
        now = floats(curves[mine])
        traces.append(_curve(at, now, policy_name(mine, mine), "$method", width=3.5, ghost=True))
        projected = {name: float(floats(curves[name])[-1]) * horizon / done for name, _ in others} | {mine: float(now[-1]) * horizon / done}
        ends += [(projected[name], policy_name(name, mine), colour) for name, colour in others]
        ends.append((projected[mine], f"<b>{policy_name(mine, mine)}</b>", "$method"))
        top = max(top, *projected.values())
    reach = (0.0, 1.08 * top)
    notes += [note | {"x": horizon, "xref": "x"} for note in end_labels(ends, reach, PHONE_PLOT_PX)]
    plot = layout(rounds(data, LABEL_ROOM), axis("reward so far", "units of reward", range=list(reach), nticks=6), annotations=notes)
    return Figure("reward", _title(data, metrics), traces, plot, _summary(data, metrics), "main", height=HEIGHT)


def _rays(at: np.ndarray, oracle: Mapping[str, Any]) -> list[Trace]:
    mix, fix = oracle["v_mix"], oracle["v_fix"]
    return [
        band(at, fix * at, mix * at, "what mixing adds", "$data", fillcolor=alpha("$data", 0.1)),
        line(at, mix * at, "best mixture", "$truth", width=2, hover=f"the best mixture earns {mix:.4g} a round: %{{y:.4g}}"),
        line(at, fix * at, "best fixed", "$truth", width=1.5, dash="dash", hover=f"the best fixed configuration earns {fix:.4g} a round: %{{y:.4g}}"),
    ]


def _curve(at: np.ndarray, y: np.ndarray, name: str, colour: str, **more: Any) -> Trace:
    return line(at, y, name, colour, hover=f"{name}: %{{y:.4g}} after %{{x}} rounds", **more)


def _title(data: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    ratio, oracle = metrics.get("competitive_ratio"), data["oracle"]
    if oracle is None:
        return "The learner's reward; the exact answer is hidden"
    fixed = oracle["v_fix"] / oracle["v_mix"]
    if ratio is None or int(data.get("done", 0)) == 0:
        return f"No fixed configuration can earn more than {fixed:.0%} of the best mixture"
    digits = 1 if abs(ratio - fixed) < CLOSE else 0
    return f"{ratio:.{digits}%} of the best mixture's reward; the best fixed configuration could earn {fixed:.{digits}%}"


def _summary(data: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    oracle = data["oracle"]
    if "curves" not in data:
        return "The rays are exact; the learner starts now." if oracle is not None else "The learner starts now."
    reached = f"After {data['done']} of {data['horizon']} rounds the learner has {float(floats(data['curves'][data['mine']])[-1]):.4g}"
    if oracle is None:
        return f"{reached}; all policies face the same requests."
    bound = data["done"] * oracle["v_mix"]
    return f"{reached}; the best mixture could have {bound:.4g}, the best fixed configuration {data['done'] * oracle['v_fix']:.4g}. All face the same requests."


def ratios(data: Mapping[str, Any]) -> Figure | None:
    """Every policy's reward on these requests, and the learner's on six seeds, as shares of the oracle's bound."""
    found = data.get("ratios")
    if found is None:
        return None
    oracle, mine = data["oracle"], str(data["mine"])
    order = [name for name in ORDER if name in found][::-1]
    unit = "share of T·V_mix" if oracle is not None else "reward a round"
    values = np.array([found[name] for name in order])
    traces: list[Trace] = []
    seeds = data.get("seeds")
    row = order.index(mine)
    if seeds is not None:
        spread = floats(seeds["ratio"])
        hover = [f"seed {int(seed)}: {value:.3f}" for seed, value in zip(floats(seeds["seed"]), spread, strict=True)]
        traces.append(
            scatter(spread, np.full(spread.size, row + 0.28), "seeds", "$method/0.55", symbol="line-ns-open", size=11, edge=2, hover="%{text}", text=hover)
        )
        values_seen = np.append(values, spread)
    else:
        values_seen = values
    for index, name in enumerate(order):
        colour = "$method" if name == mine else "$truth" if name == "oracle" else "$peer-2"
        symbol = "diamond" if name == mine else "circle"
        traces.append(scatter([values[index]], [index], policy_name(name, mine), colour, symbol=symbol, size=11, hover="%{x:.3f}"))
    low, high = min(0.4, float(values_seen.min()) - 0.08), max(1.05, float(values_seen.max()) + 0.05)
    if oracle is None:
        low, high = 0.0, 1.15 * float(values_seen.max())
    notes: list[dict[str, Any]] = []
    shapes = []
    if oracle is not None:
        fixed = oracle["v_fix"] / oracle["v_mix"]
        shapes = [rule(1.0, "bound", "$truth", dash="solid", width=1), rule(fixed, "best fixed", "$truth")]
        notes.append(label(fixed, 1, "best fixed", "$truth", anchor="center", yref="paper", shift=(0, 8)))
    ticks = [f"{policy_name(name, mine)}  {found[name]:.3f}" for name in order]
    ticks[row] = f"<b>{ticks[row]}</b>"
    y = axis("policy", "no unit", tickvals=list(range(len(order))), ticktext=ticks, range=[-0.6, len(order) - 0.4], showgrid=False)
    plot = layout(axis("reward", unit, range=[low, high + 0.06 * (high - low)], nticks=6), y, top=28, annotations=notes, shapes=shapes)
    return Figure("ratios", "Every policy on the same requests", traces, plot, _ratio_summary(data, unit), height=330)


def _ratio_summary(data: Mapping[str, Any], unit: str) -> str:
    seeds, mine = data.get("seeds"), str(data["mine"])
    if seeds is None or len(seeds["ratio"]) < 2:
        return f"The {unit} of each policy so far; {policy_name(mine, mine)} stands at {data['ratios'][mine]:.3f}."
    spread = floats(seeds["ratio"])
    return f"The small strokes are {policy_name(mine, mine)} on {spread.size} seeds: mean {spread.mean():.3f}, from {spread.min():.3f} to {spread.max():.3f}."
