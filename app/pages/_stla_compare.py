"""The other pictures of stla: all methods side by side, the order, bits, perplexity, and the example by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._stla_sweep import HALF_PX, LOCAL, NEAREST, REMAINS
from app.plotting import Figure, Panel, Trace, alpha, axis, bars, end_labels, floats, heatmap, key_row, label, layout, line, log_axis

NAMES = {
    "full": "as it is",
    "rtn": "nearest",
    "adaround": "AdaRound",
    "gptq": "GPTQ",
    "gptq-act": "GPTQ, act order",
    "decoupled": "GPTQ, then AdaRound",
    "stla": "STLA",
    "stla-local": "STLA, judged locally",
}
# The authors' own table: 3 bits, OPT-125M, C4 and WikiText-2, from the repository's README.
PAPER = (
    ("decoupled, whole rows", 34.52),
    ("local, whole rows", 35.82),
    ("STLA, whole rows", 33.45),
    ("decoupled, groups of 256", 33.59),
    ("local, spin, groups of 256", 33.39),
    ("STLA, groups of 256", 32.00),
    ("STLA, spin, groups of 256", 31.01),
)
SCALE = [[0, alpha("$method", 0)], [1, "$method"]]


def losses(data: Mapping[str, Any], params: Any) -> Figure | None:
    """One bar a method, on a log axis."""
    found = data["losses"]
    if not found:
        return None
    names = [name for name in NAMES if name in found][::-1]
    values = floats([found[name] for name in names])
    low = 10 ** np.floor(np.log10(values.min()) - 0.15)
    colours = [REMAINS if name == "stla" else LOCAL if name == "stla-local" else NEAREST for name in names]
    drawn: Trace = {"type": "bar", "orientation": "h", "x": values, "y": [NAMES[n] for n in names], "name": "loss", "marker": {"color": colours}}
    drawn |= {"hovertemplate": "%{y}: %{x:.4g}<extra></extra>", "text": [f"{v:.3g}" for v in values], "textposition": "outside", "cliponaxis": False}
    reach = [float(np.log10(low)), float(np.log10(values.max()) + 0.25)]
    plot = layout(log_axis("loss of the layer", "squared output", 10 ** np.array(reach), range=reach), axis("method (name)"), right=40, bargap=0.3)
    plot["yaxis"] |= {"title": {"text": "method (name)", "font": {"color": alpha("$ink", 0), "size": 1}}}
    best = min(found, key=lambda name: found[name])
    where = "summed over the seven matrices" if params.mode == "block" else "on this matrix"
    return Figure("losses", "Who loses least?", [drawn], plot, f"Least loss {where}: {NAMES[best]}, {found[best]:.4g}. Shorter is better.", height=HALF_PX)


def judged(data: Mapping[str, Any]) -> Figure | None:
    """Local and remaining error of each cluster under three rules."""
    found = data.get("judged", {})
    if not found:
        return None
    curves: list[tuple[str, str, np.ndarray, np.ndarray]] = []
    for method, words, colour in (("stla", "STLA", REMAINS), ("stla-local", "judged locally", LOCAL)):
        if method in found:
            curves.append((words, colour, floats(found[method]["local"]), floats(found[method]["remaining"])))
    first = found[next(iter(found))]
    curves.append(("nearest", NEAREST, floats(first["local_nearest"]), floats(first["remaining_nearest"])))
    traces: list[Trace] = []
    for name, colour, local, remaining in curves:
        number = np.arange(1, local.size + 1)
        mode = "lines+markers" if local.size < 30 else "lines"
        traces.append(line(number, local, name, colour, mode=mode, hover=f"{name}, locally: %{{y:.4g}}", yaxis="y2"))
        traces.append(line(number, remaining, name, colour, mode=mode, hover=f"{name}, remains: %{{y:.4g}}"))
    plot = layout(
        axis("cluster", "number", nticks=8, tickformat="d"),
        axis("remains", "sq. output", domain=(0, 0.44), rangemode="tozero", nticks=4),
        top=30,
        yaxis2=axis("seen locally", "sq. output", domain=(0.56, 1), rangemode="tozero", nticks=4, anchor="x"),
        annotations=key_row(*((name, colour) for name, colour, *_ in curves)),
    )
    sums = {name: (float(local.sum()), float(remaining.sum())) for name, _, local, remaining in curves}
    seen, left = min(sums, key=lambda n: sums[n][0]), min(sums, key=lambda n: sums[n][1])
    summary = f"Least error as seen locally: {seen}, {sums[seen][0]:.4g}. Least that remains: {left}, {sums[left][1]:.4g}."
    return Figure("judged", "Small now, or small in the end?", traces, plot, summary, height=HALF_PX + 40)


def orders(data: Mapping[str, Any]) -> Figure | None:
    """How columns depend on each other, before and after the order, with a box around each cluster."""
    found = data.get("orders")
    if found is None:
        return None
    columns, side, cluster = (int(found[name]) for name in ("columns", "side", "cluster"))
    traces, shapes = [], []
    for number, name in enumerate(("before", "after")):
        suffix = "" if number == 0 else "2"
        matrix = np.asarray(found[name], np.uint8)
        at = side * np.arange(matrix.shape[0]) + (side - 1) / 2
        drawn = heatmap(at, at, matrix, name, hover="columns %{x:.0f} and %{y:.0f}: %{z}%", colorscale=SCALE)
        traces.append(drawn | {"zmin": 0, "zmax": 100, "showscale": False, "xaxis": f"x{suffix}", "yaxis": f"y{suffix}"})
    if columns // cluster <= 40:
        for start in range(0, columns, cluster):
            ends = {"x0": start - 0.5, "x1": min(start + cluster, columns) - 0.5, "y0": start - 0.5, "y1": min(start + cluster, columns) - 0.5}
            shapes.append({"type": "rect", **ends, "xref": "x2", "yref": "y2", "line": {"color": "$ink", "width": 1.5}})
    edge = [-0.5, columns - 0.5]
    notes = [
        label(0, 1, "columns as they stand", "$ink", xref="paper", yref="paper", yanchor="bottom", shift=(0, 4)),
        label(0.55, 1, f"in {found['order']} order; boxes are clusters", "$ink", xref="paper", yref="paper", yanchor="bottom", shift=(0, 4)),
    ]
    upper, lower = {"domain": [0.57, 1]}, {"domain": [0, 0.4]}
    moved = [notes[0], notes[1] | {"x": 0, "y": 0.4}]
    whole = {"domain": [0, 1]}
    plot = layout(
        axis("column", "index", range=edge, showgrid=False, nticks=5) | {"domain": [0, 0.45]},
        axis("column", "index", range=edge[::-1], showgrid=False, nticks=5),
        top=28,
        xaxis2=axis("column, as rounded", "index", range=edge, showgrid=False, nticks=5, anchor="y2") | {"domain": [0.55, 1]},
        yaxis2=axis("column, as rounded", "index", range=edge[::-1], showgrid=False, nticks=5, anchor="x2"),
        shapes=shapes,
        annotations=notes,
        meta={"narrow": {"xaxis": whole, "xaxis2": whole, "yaxis": upper, "yaxis2": lower, "annotations": moved, "meta": {"height": 720}}},
    )
    said = {"spin": "gathers inputs that move together", "act": "takes the strongest inputs first", "none": "leaves them as they stand"}
    summary = f"Colour is how much two inputs move together; the order {found['order']} {said[found['order']]}."
    return Figure("orders", "Which columns share a cluster?", traces, plot, summary, "wide", height=420)


def bits(data: Mapping[str, Any]) -> Figure | None:
    """Loss against the bits of a weight."""
    found = data.get("bits")
    if not found or len(found) < 2:
        return None
    number = np.array([int(b) for b in found])
    traces, ends, every = [], [], []
    for method, colour in (("rtn", "$peer-2"), ("gptq-act", "$peer-1"), ("stla", REMAINS)):
        values = floats([found[b][method] for b in found])
        every.append(values)
        width = 3 if method == "stla" else 1.75
        traces.append(line(number, values, NAMES[method], colour, width=width, mode="lines+markers", hover=f"{NAMES[method]}: %{{y:.4g}}"))
        ends.append((float(np.log10(values[-1])), NAMES[method], colour))
    reach = [float(np.log10(np.min(every)) - 0.1), float(np.log10(np.max(every)) + 0.1)]
    plot = layout(
        axis("bits of a weight", "count", tickvals=number),
        log_axis("loss of the layer", "squared output", 10 ** np.array(reach), range=reach),
        right=116,
        annotations=end_labels(ends, (reach[0], reach[1]), HALF_PX - 64),
    )
    return Figure("bits", "What a bit is worth", traces, plot, "Each bit more cuts the loss to about a quarter, whatever the method.", height=HALF_PX)


def example(data: Mapping[str, Any]) -> Figure:
    """Three weights of 0.4 on the grid {0, 1}: what both objectives say of each rounding of the first two."""
    found = data["example"]
    names, chosen = [str(n) for n in found["candidates"]], str(found["chosen"])
    at = np.arange(len(names))
    traces, shown = [], (("local", "seen locally", LOCAL), ("global", "looking ahead", REMAINS), ("final", "final loss", "$truth"))
    for number, (key, words, colour) in enumerate(shown):
        values = floats(found[key])
        drawn = bars(at + 0.27 * (number - 1), values, words, colour, width=0.25, hover=f"{words}: %{{y:.4f}}")
        faded = [colour if name == chosen else alpha(colour, 0.4) for name in names]
        traces.append(drawn | {"marker": {"color": faded, "line": {"width": 0}}})
    here = names.index(chosen)
    plot = layout(
        axis("columns 0 and 1", "share of a step", tickvals=at, ticktext=[n.replace("-", ", ") for n in names], range=[-0.6, 3.6]),
        axis("error", "squared output", rangemode="tozero"),
        top=30,
        barmode="overlay",
        annotations=key_row(*((words, colour) for _, words, colour in shown)),
    )
    local, ahead, final = (float(floats(found[key])[here]) for key in ("local", "global", "final"))
    summary = f"Three weights of 0.4 on the grid 0, 1. You round the first two to {chosen.replace('-', ', ')}: locally {local:.4f}, looking ahead {ahead:.4f}; "
    summary += f"column 2 then wants {float(floats(found['wanted'])[here]):.2f}, becomes {int(floats(found['last'])[here])}, and the loss is {final:.3f}. "
    summary += "Click a group to round them so."
    return Figure("example", "By hand: three weights", traces, plot, summary, "wide", height=HALF_PX)


def perplexity(data: Mapping[str, Any]) -> Figure | None:
    """Perplexity on another text, with one block rounded."""
    found = data.get("perplexity")
    if not found:
        return None
    names = [name for name in NAMES if name in found]
    values = floats([found[name] for name in names])
    colours = {"full": "$truth", "stla": REMAINS, "stla-local": LOCAL}
    drawn = bars(np.arange(len(names)), values, "perplexity", REMAINS, width=0.6, hover="%{y:.3f}", text=[f"{v:.2f}" for v in values], textposition="outside")
    drawn |= {"marker": {"color": [colours.get(n, NEAREST) for n in names]}, "cliponaxis": False}
    room = max(0.3, float(np.ptp(values)))
    reach = [max(0.0, float(values.min()) - 0.6 * room), float(values.max()) + 0.3 * room]
    plot = layout(
        axis("method (name)", tickvals=np.arange(len(names)), ticktext=[NAMES[n] for n in names], showgrid=False),
        axis("perplexity", "per token", range=reach),
        top=24,
    )
    summary = "On another text than the calibration's; the axis does not begin at zero: one block moves perplexity little."
    return Figure("perplexity", "What one block costs the model", [drawn], plot, summary, height=HALF_PX)


def whole(data: Mapping[str, Any]) -> Panel:
    """Our measured table of many blocks beside the authors' figures on another model."""
    measured = data.get("whole")
    rows: list[list[Any]] = []
    note = "The whole model has not been measured on this host; python -m backends.stla.whole_model does it."
    if measured:
        for row in measured["rows"]:
            took = "not timed" if row["seconds"] is None else f"{row['seconds']:.0f} s"
            rows.append([f"here: {NAMES[row['method']]}", row["perplexity"], f"{row['blocks']} of 30 blocks", took, row["date"]])
        note = f"Here: {measured['model']}; {measured['setting']}; calibrated on {measured['calibration']}, judged on {measured['evaluation']}. "
        note += f"{measured['rows'][-1]['device']}, shared with other work. "
    rows += [[f"paper: {name}", value, "OPT-125M, 12 blocks", "", "README"] for name, value in PAPER]
    note += " The paper's rows: 3 bits, WikiText-2, another model and 128 times 2,048 tokens; they cannot be compared with ours."
    columns = [{"name": name, "kind": "number" if name == "perplexity" else "text"} for name in ("method", "perplexity", "rounded", "time", "date")]
    summary = "Perplexity after rounding many blocks, ours and the paper's."
    return Panel("whole", "table", "Many blocks at once", {"columns": columns, "rows": rows, "note": note}, summary, "wide")
