"""How sp-ucb-olp admits: requests against the price, what is spent against the budget, and the objective that sets the price."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._sp_ucb_olp_marks import names
from app.plotting import Figure, Trace, axis, bars, floats, heatmap, key_row, label, layout, line, plain_text, scatter

HEIGHT = 330
FATES = ((0, "rejected", "$muted", "circle-open", "○"), (1, "accepted", "$method", "circle", "●"), (2, "did not fit", "$warning", "x", "✕"))
HANDLE = "budget-"  # the shape's name carries which budget it is
BAR = 0.32
LOW_SHARE = 0.35  # of the objective's range over the map: what lies higher is not told apart


def spending(data: Mapping[str, Any]) -> Figure | None:
    """Use a round of every resource by the learner and by the best fixed configuration, and the budget as a line to drag."""
    found = data.get("spending")
    if found is None:
        return None
    resources, used, budget = names(data, "resources"), floats(found["used"]), floats(found["budget"])
    at = np.arange(used.size)
    traces = [bars(at - BAR / 2, used, "this run", "$method", width=BAR * 0.94, hover="this run: %{y:.3g} a round")]
    top = max(float(budget.max()), float(used.max()))
    key = [("■ this run", "$method")]
    fixed = found["fixed"]
    if fixed is not None:
        traces.append(bars(at + BAR / 2, floats(fixed), "best fixed", "$peer-3", width=BAR * 0.94, hover="best fixed configuration: %{y:.3g} a round"))
        top = max(top, float(floats(fixed).max()))
        key.append(("■ best fixed", "$peer-3"))
    key.append(("━ budget, drag it", "$ink"))
    shapes: list[dict[str, Any]] = []
    notes = key_row(*key)
    for j, amount in enumerate(budget):
        place = {"x0": j - 0.44, "x1": j + 0.44, "y0": float(amount), "y1": float(amount)}
        shapes.append({"type": "line", "name": f"{HANDLE}{j}", **place, "line": {"color": "$ink", "width": 4}, "editable": True})
        notes.append(label(j, float(amount), f"b = {amount:.3g}", "$ink", anchor="center", shift=(0, 11)))
    x = axis("resource", "no unit", tickvals=at, ticktext=resources, range=[-0.6, used.size - 0.4], showgrid=False)
    y = axis("use", "units a round", range=[0, 1.25 * top], nticks=5)
    plot = layout(x, y, top=34, annotations=notes, shapes=shapes, meta={"editable": True})
    return Figure("spending", "Where the budget goes", traces, plot, _spending_summary(data, resources, used, fixed, budget), height=HEIGHT)


def _spending_summary(data: Mapping[str, Any], resources: list[str], used: np.ndarray, fixed: Any, budget: np.ndarray) -> str:
    share = ", ".join(f"{u / b:.0%} of {name}" for name, u, b in zip(resources, used, budget, strict=True))
    text = f"This run uses {share}."
    if fixed is None:
        return text
    lost = [name for name, use, b in zip(resources, floats(fixed), budget, strict=True) if use < 0.9 * b]
    if not lost:
        return f"{text} The best fixed configuration uses its budget too."
    who = plain_text(str(data["names"][int(data["oracle"]["fixed"])])) if data["oracle"] else "the best fixed configuration"
    return f"{text} The best fixed one ({who}) leaves {', '.join(lost)} unused."


def requests(data: Mapping[str, Any]) -> Figure | None:
    """The newest requests: reward against price, accepted above the diagonal."""
    found = data.get("requests")
    if found is None or not len(found["price"]):
        return None
    price, reward, fate = floats(found["price"]), floats(found["reward"]), floats(found["fate"])
    who, chosen = names(data, "names"), floats(found["chosen"]).astype(int)
    top = 1.06 * max(float(reward.max()), 1e-9)
    reach = min(1.3 * float(price.max()) + 0.02, 1.5 * top)
    traces: list[Trace] = [line([0, min(reach, top)], [0, min(reach, top)], "r = p·a", "$truth", width=1.5, hover="skip")]
    key = []
    for code, name, colour, symbol, sign in FATES:
        mine = fate == code
        if mine.any():
            text = [f"{name}, {who[k]}" for k in chosen[mine]]
            drawn = scatter(price[mine], reward[mine], name, colour, symbol=symbol, size=6, hover="%{text}: r %{y:.3g}, p·a %{x:.3g}", text=text)
            drawn["marker"]["opacity"] = 0.75
            traces.append(drawn)
            key.append((f"{sign} {name}", colour))
    x = axis("price of the request p·a", "units of reward", range=[0, reach], nticks=6)
    y = axis("its reward r", "units of reward", range=[0, top], nticks=5)
    plot = layout(x, y, top=34, annotations=[*key_row(*key, ("─ r = p·a", "$truth"))])
    counts = [int((fate == code).sum()) for code, *_ in FATES]
    summary = f"Of the last {fate.size} requests {counts[1]} were accepted, {counts[0]} paid less than their price"
    summary += f" and {counts[2]} did not fit what was left." if counts[2] else ": above the line is accepted."
    return Figure("requests", "A request is accepted if it is worth its price", traces, plot, summary, height=HEIGHT)


def objective(data: Mapping[str, Any]) -> Figure | None:
    """What the prices minimise: a curve with its cuts for one resource, a map for two."""
    found = data.get("objective")
    if found is None:
        return None
    return _curve(data, found) if len(found["grids"]) == 1 else _map(data, found)


def _curve(data: Mapping[str, Any], found: Mapping[str, Any]) -> Figure:
    grid, z, best = floats(found["grids"][0]), floats(found["z"]), float(floats(found["best"])[0])
    traces = [line(grid, cut, "cut", "$peer-3/0.6", width=1, dash="solid", hover="skip") for cut in floats(found["cuts"])]
    traces.append(line(grid, z, "learner's", "$method", width=2.5, hover="the learner's objective at price %{x:.3g}: %{y:.4g}"))
    key = [("━ learner's", "$method"), ("─ cuts", "$peer-3")]
    low, high = float(z.min()), float(z.max())
    if "exact" in found:
        exact = floats(found["exact"])
        traces.append(line(grid, exact, "exact", "$truth", width=1.5, dash="dash", hover="the exact objective at price %{x:.3g}: %{y:.4g}"))
        key.append(("┅ exact", "$truth"))
        low = min(low, float(exact.min()))
    traces.append(scatter([best], [float(found["value"])], "minimum", "$method", symbol="diamond", size=11, hover="minimum at price %{x:.4g}: %{y:.5g}"))
    key.append(("◆ minimum", "$method"))
    pad = 0.12 * (high - low)
    x = axis("price", "reward / unit", range=[0, float(grid[-1])], nticks=6)
    y = axis("objective", "reward a round", range=[low - pad, high + 0.3 * pad], nticks=5)
    plot = layout(x, y, top=34, annotations=key_row(*key))
    summary = f"The cuts hold the objective up from below; the learner's minimum is at price {best:.3g}"
    summary += f", the exact one {float(floats(data['oracle']['p'])[0]):.3g}." if data["oracle"] is not None else "."
    return Figure("objective", "The price is where the objective is lowest", traces, plot, summary, height=HEIGHT)


def _map(data: Mapping[str, Any], found: Mapping[str, Any]) -> Figure:
    first, second = (floats(grid) for grid in found["grids"])
    z, best, tried = floats(found["z"]), floats(found["best"]), floats(found["tried"]).reshape(-1, 2)
    excess = z - float(found["value"])
    shown = np.minimum(excess, LOW_SHARE * float(excess.max()))
    heat = heatmap(first, second, shown, "objective", "$method", unit="above<br>minimum", hover="%{customdata:.3g} above the minimum at %{x:.3g}, %{y:.3g}")
    heat |= {"customdata": excess, "zsmooth": "best"}
    inside = (tried[:, 0] <= first[-1]) & (tried[:, 1] <= second[-1])
    traces = [
        heat,
        scatter(tried[inside, 0], tried[inside, 1], "tried", "$ink/0.5", symbol="circle-open", size=6, hover="cut at %{x:.3g}, %{y:.3g}"),
        scatter([best[0]], [best[1]], "minimum", "$method", symbol="diamond", size=12, hover="the learner's prices %{x:.3g}, %{y:.3g}"),
    ]
    key = [("○ cuts so far", "$muted"), ("◆ minimum", "$method")]
    if data["oracle"] is not None:
        exact = floats(data["oracle"]["p"])
        traces.append(scatter([exact[0]], [exact[1]], "exact", "$truth", symbol="x-thin-open", size=12, edge=3, hover="exact p* %{x:.3g}, %{y:.3g}"))
        key.append(("✕ exact p*", "$truth"))
    resources = names(data, "resources")
    x = axis(f"price of {resources[0]}", "reward / unit", range=[0, float(first[-1])], nticks=6, showgrid=False)
    y = axis(f"price of {resources[1]}", "reward / unit", range=[0, float(second[-1])], nticks=5, showgrid=False)
    plot = layout(x, y, top=34, annotations=key_row(*key))
    summary = f"Faint is low. The cuts of all solves gather where it is lowest; the newest prices are ({best[0]:.3g}, {best[1]:.3g})."
    return Figure("objective", "Prices are where the objective is lowest", traces, plot, summary, height=HEIGHT)
