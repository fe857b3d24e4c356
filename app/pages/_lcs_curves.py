"""What the subspace reads over the steps: how near to the finished colour, by which schedule, and as pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._lcs_images import cells, smooth
from app.plotting import Figure, Trace, alpha, axis, end_labels, floats, key_row, label, layout, line, rule, scatter

READER = (("lcs", "<b>subspace</b>", "$method"), ("affine", "affine map", "$peer-1"), ("decoder", "decoder", "$peer-2"), ("cells", "per token", "$data"))
TOP_DELTA_E = 50.0  # the axis stands still between runs; two colours seldom differ by more
FIFTH = 0.2
VISIBLE = 1.0  # CIEDE2000: a smaller difference is not seen
PLOT_PX = 250  # height of a half figure's plot area, for the labels' distances
BETA, ALPHA = (0.6, 1.0), (0.0, 0.44)  # how the two plots of the schedule share the height
DASHES = ("solid", "dash", "dot")
TILE_PX = 64  # of a picture in the film


# ------------------------------------------------------------------------------------------------- predicted and final


def prediction(data: Mapping[str, Any], params: Any) -> Figure | None:
    """How far each reader's colour is from the finished picture's, step by step; the line is where colour is set."""
    table = data.get("prediction")
    if table is None:
        return None
    at = floats(table["step"])
    traces: list[Trace] = []
    for key, name, colour in reversed(READER):
        x = floats(table["decoder_step"]) if key == "decoder" else at
        values = floats(table[key])
        style = {"width": 3.0} if key == "lcs" else {"width": 1.5, "dash": "longdashdot"} if key == "cells" else {"width": 1.75}
        plain = name.removeprefix("<b>").removesuffix("</b>")
        traces.append(line(x, values, plain, colour, ghost=key == "lcs", hover=f"{plain}: %{{y:.1f}} after step %{{x}}", **style))
    level = float(table["random_level"])
    ends = [(float(traces[-1 - i]["y"][-1]), name, colour) for i, (_, name, colour) in enumerate(READER)]
    top = max(TOP_DELTA_E, 1.1 * level)
    notes = end_labels(ends, (0.0, top), PLOT_PX)
    notes.append(label(0.99, level, "two named colours", "$muted", anchor="right", xref="x domain", yanchor="bottom", shift=(0, 2)))
    shapes = [rule(level, "level", "$muted", across="y", dash="dot", width=1, editable=False)]
    steer = data.get("steer")
    if steer is not None:
        shapes.append(rule(steer["step"], "steer", "$method", dash="dot" if params.kind == "off" else "solid", width=3, editable=True))
        notes.append(label(steer["step"], 1, f"step {steer['step']}", "$method", anchor="center", yref="paper", shift=(0, 8)))
    plot = layout(
        axis("completed steps", "count", range=[0, float(at[-1])], showgrid=False),
        axis("to the finished colour", "CIEDE2000", range=[0, top]),
        right=76,
        top=26,
        annotations=notes,
        shapes=shapes,
        meta={"editable": True},
    )
    return Figure("prediction", "How early is the finished colour known?", traces, plot, _prediction_summary(table, at), height=360)


def _prediction_summary(table: Mapping[str, Any], at: np.ndarray) -> str:
    early, last = round(FIFTH * (at.size - 1)), at.size - 1
    cone, affine = floats(table["lcs"]), floats(table["affine"])
    said = f"After step {early} the cone reads the mean colour to {cone[early]:.1f}, an affine map of the same numbers to {affine[early]:.1f}"
    said += f"; at the end to {cone[last]:.1f} and {affine[last]:.1f}."
    better = float((affine < cone).mean())
    who = "The affine map predicts better" if better > 0.5 else "The cone predicts better"
    share = max(better, 1 - better)
    return f"{said} {who} at {share:.0%} of the steps; the cone is what steers. Click a step, or drag the line, to set the colour there."


# ------------------------------------------------------------------------------------------------------- the schedule


def schedule(data: Mapping[str, Any]) -> Figure | None:
    """Alpha and beta in closed form against 1 - sigma, with this sampling's own mean as dots."""
    table = data.get("schedule")
    if table is None:
        return None
    x = floats(table["one_minus_sigma"])
    offsets, means = floats(table["alpha"]), floats(table["run_mean"])
    traces: list[Trace] = [
        line(x, floats(table["beta"]), "beta", "$method", hover="\u03b2 %{y:.2f} at %{x:.2f}", yaxis="y2"),
        scatter(x, floats(table["run_beta"]), "this run", "$data", symbol="circle-open", size=5, hover="this run %{y:.2f} at %{x:.2f}", yaxis="y2"),
    ]
    ends = []
    for k, dash in enumerate(DASHES):
        name = f"axis {k + 1}"
        traces.append(line(x, offsets[:, k], name, "$method", width=2, dash=dash, hover=f"\u03b1 on {name}: %{{y:.2f}} at %{{x:.2f}}"))
        hover = f"this run on {name}: %{{y:.2f}} at %{{x:.2f}}"
        traces.append(scatter(x, means[:, k], f"this run, {name}", "$data", symbol="circle-open", size=4, hover=hover))
        ends.append((float(means[-1, k]), name, "$data"))
    both = np.concatenate([offsets, means]).ravel()
    room = 0.08 * float(np.ptp(both)) or 1.0
    reach = (float(both.min()) - room, float(both.max()) + room)
    notes = end_labels(ends, reach, PLOT_PX * (ALPHA[1] - ALPHA[0]))
    notes += key_row(("\u2014 closed form", "$method"), ("\u25cb this run\u2019s mean", "$data"))
    plot = layout(
        axis("1 \u2212 sigma", "share of picture", range=[0, 1.0], anchor="y"),
        axis("\u03b1", "latent units", domain=ALPHA, range=list(reach), nticks=5),
        right=52,
        top=30,
        yaxis2=axis("\u03b2", "share", domain=BETA, range=[-0.05, 1.08], nticks=4),
        annotations=notes,
    )
    apart = float(np.abs(floats(table["run_beta"]) - floats(table["beta"])).max())
    said = f"\u03b2 is 1 \u2212 \u03c3: this run\u2019s mean is at most {apart:.2f} off. \u03b1 starts where the noise is; the run leaves for its own colour."
    return Figure("schedule", "What undoes the noise: alpha and beta", traces, plot, said, height=360)


# ----------------------------------------------------------------------------------------------------------- the film


def film(data: Mapping[str, Any]) -> Figure | None:
    """The drawn steps side by side, each as the decoder and as the subspace sees it, without steering and with it."""
    runs = [(name, data[key]) for key, name in (("sampling", ""), ("steering", "steered ")) if key in data]
    if not runs:
        return None
    columns = sorted({int(step) for _, run in runs for step in run["step"]})
    rows: list[tuple[str, str, Mapping[str, Any]]] = []
    for name, run in runs:
        rows += [(f"{name}decoder", "decoded", run), (f"{name}subspace", "lcs", run)]
    pictures, notes = [], []
    for number, (name, key, run) in enumerate(rows):
        y = len(rows) - 1 - number
        notes.append(label(0, y, name.replace(" ", "<br>"), "$method" if name.startswith("steered") else "$ink", anchor="right", xref="paper", shift=(-8, 0)))
        for step, picture in zip(run["step"], run[key], strict=True):
            source = smooth(picture, TILE_PX) if key == "decoded" else cells(picture, TILE_PX)
            pictures.append(_tile(source, columns.index(int(step)), y))
    across, down = np.tile(np.arange(len(columns)), len(rows)), np.repeat(np.arange(len(rows)), len(columns))
    steps = columns * len(rows)
    # Pictures take no clicks: these points, which nobody sees, do.
    traces = [scatter(across, down, "steps", alpha("$method", 0), symbol="square", size=30, customdata=steps, hover="after step %{customdata}")]
    ticks: dict[str, Any] = {"tickvals": list(range(len(columns))), "ticktext": [str(step) for step in columns]}
    plot = layout(
        axis("completed steps", "count", range=[-0.5, len(columns) - 0.5], showgrid=False, fixedrange=True, **ticks),
        {"visible": False, "range": [-0.5, len(rows) - 0.5], "fixedrange": True},
        top=8,
        right=8,
        annotations=notes,
        images=pictures,
    )
    plot["margin"]["l"] = 76
    settled = _settled(data)
    said = "Above what the decoder makes of the noisy latents, below what three numbers a token say." + ("" if settled is None else f" {settled}")
    return Figure("film", "The same steps, decoded and read", traces, plot, said + " Click a step to set the colour there.", "wide", height=70 + 96 * len(rows))


def _tile(source: str, x: int, y: int) -> dict[str, Any]:
    place = {"x": x, "y": y, "sizex": 0.94, "sizey": 0.94, "xref": "x", "yref": "y", "xanchor": "center", "yanchor": "middle"}
    return {"source": source, "sizing": "contain", "layer": "above", **place}


def _settled(data: Mapping[str, Any]) -> str | None:
    """From when on the mean is read about as well as at the end, and how far off one token still is then."""
    table = data.get("prediction")
    if table is None:
        return None
    mean, single = floats(table["lcs"]), floats(table["cells"])
    worst_from = np.maximum.accumulate(mean[::-1])[::-1]
    first = int(np.argmax(worst_from <= mean[-1] + VISIBLE))
    return f"From step {first} on the mean is at most {worst_from[first]:.1f} CIEDE2000 off; a single token still is by {single[first]:.0f} then."
