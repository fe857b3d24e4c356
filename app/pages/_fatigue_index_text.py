"""The text coloured by the index, the stacked contributions, and the alarm against the plain threshold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._fatigue_index_marks import KEY, PARTS, bar_runs, said, steps, token_axis
from app.plotting import CHARACTER_PX, Figure, Panel, Trace, axis, bars, floats, key_row, label, layout, line, rule

HEIGHT, TOP, BOTTOM = 500, 30, 48
CURVES, STRIPS = (0.27, 1.0), (0.0, 0.17)


def tokens(data: Mapping[str, Any], name: str, title: str, span: Any) -> Panel:
    """Each written token tinted by the index at which it was drawn; where the alarm was on, in the warning colour."""
    fi, on = floats(data["index"]["fi"]), floats(data["index"]["alarm"]) > 0.5
    newest = len(data["tokens"]) - 1
    chips = []
    for i, text in enumerate(data["tokens"]):
        chip: dict[str, Any] = {"text": text, "value": round(float(fi[i]), 2)}
        if on[i]:
            chip["color"] = "$warning"
        if i == newest and span == "lead":
            chip["selected"] = True  # keeps the newest one in sight
        chips.append(chip)
    count = int(on.sum())
    summary = f"{len(chips)} tokens, tinted by their index; the alarm was on at {count} of them, which stand in the warning colour."
    legend = "Tint: Fatigue Index of the state in which the token was drawn. Warning colour: the alarm was on."
    return Panel(name, "tokens", title, {"tokens": chips, "legend": legend}, summary, span)


def contributions(data: Mapping[str, Any], params: Any) -> Figure:
    """Above, the three contributions stacked with the smoothed index; below, when the alarm and the plain threshold were on."""
    found = data["index"]
    parts, smoothed = floats(found["parts"]), floats(found["smoothed"])
    at, words = steps(smoothed), said(data)
    traces: list[Trace] = []
    for row, (name, colour) in zip(parts, PARTS, strict=True):
        shown = [f"{word}: {name} adds {value:.2f}" for word, value in zip(words, row, strict=True)]
        traces.append(bars(at, row, name, colour, hover="%{text}", text=shown, textposition="none", width=1.0))
    traces.append(line(at, smoothed, "smoothed index", "$truth", width=2.5, ghost=True, hover="mean of %{meta}: %{y:.3f}", meta=f"{params.smoothing} tokens"))
    traces.append(bar_runs(found["alarm"], 2, "$warning", "alarm"))
    traces.append(bar_runs(found["threshold"], 1, "$peer-1", "plain threshold"))
    flips = data["flips"]
    notes = [
        *key_row(*((f"\u25a0 {name}", colour) for name, colour in KEY), ("line: smoothed sum", "$truth")),
        label(1, params.theta, f"on at {params.theta:.2f}", "$ink", xref="paper", shift=(6, 0)),
        label(1, _clear(params), f"off at {params.theta_low:.2f}", "$ink", xref="paper", shift=(6, 0)),
        label(1, 2, f"alarm: {_flips(flips['hysteresis'])}", "$warning", xref="paper", yref="y2", shift=(6, 0)),
        label(1, 1, f"plain: {_flips(flips['threshold'])}", "$peer-1", xref="paper", yref="y2", shift=(6, 0)),
    ]
    shapes = [
        rule(params.theta, "theta", "$ink", across="y", dash="solid", width=2.5, editable=True),
        rule(params.theta_low, "theta_low", "$ink", across="y", width=2.5, editable=True),
        *[rule(int(step) + 0.5, "acted", "$muted", dash="dot", width=1.5, editable=False, y0=CURVES[0]) for step, _ in data["acted"]],
    ]
    if data["acted"]:
        step = int(data["acted"][0][0])
        notes.append(label(step + 0.5, 1, f"{params.treatment.upper()} (companion paper)", "$muted", yref="paper", yanchor="top", shift=(4, 0)))
    plot = layout(
        token_axis(data, anchor="y2"),
        axis("contribution to the index", "no unit; drag a line", domain=CURVES, range=[0, 1], nticks=6),
        right=int(CHARACTER_PX * 16),
        top=TOP,
        yaxis2=axis("on", "no unit", domain=STRIPS, range=[0.4, 2.6], showgrid=False, showticklabels=False, ticks="", fixedrange=True),
        barmode="stack",
        bargap=0,
        annotations=notes,
        shapes=shapes,
        meta={"editable": True},
    )
    title = "Looking away, drifting, leaving the band: does the model tire?"
    return Figure("fatigue", title, traces, plot, _summary(data, params), "main", height=HEIGHT)


def _clear(params: Any) -> float:
    """Where the lower line's label stands: beside it, but never on that of the upper one."""
    return float(min(params.theta_low, params.theta - 0.055))


def _flips(count: int) -> str:
    return f"{int(count)} flip" + ("" if count == 1 else "s")


def _summary(data: Mapping[str, Any], params: Any) -> str:
    found = data["index"]
    fi, smoothed = floats(found["fi"]), floats(found["smoothed"])
    parts = floats(found["parts"]).mean(1)
    most = PARTS[int(np.argmax(parts))][0]
    flips = data["flips"]
    state = "on" if floats(found["alarm"])[-1] > 0.5 else "off"
    return (
        f"Index {fi[-1]:.2f} at token {fi.size}, {smoothed[-1]:.2f} smoothed; {most} adds most ({parts.max():.2f} on average). "
        f"The alarm is {state} after {_flips(flips['hysteresis'])}; the plain threshold at {params.theta:.2f} flipped {times(flips['threshold'])}."
    ) + "".join(f" {note[0].upper()}{note[1:]}." for note in data["notes"])


def times(count: int) -> str:
    """A count in a sentence.

    >>> times(1), times(3)
    ('once', '3 times')
    """
    return "once" if count == 1 else f"{int(count)} times"
