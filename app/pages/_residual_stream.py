"""What happens to a token's vector on its way through the layers: length, few large channels, spread, rank."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._sink_tokens import FIRST, OTHERS, TARGET, before_after, changed, decades, finite, in_decades, log_ticks, name, tag, whole
from app.plotting import Figure, Trace, axis, downsample_minmax, end_labels, floats, key_row, label, layout, line, log_axis, rule, scatter

HEIGHT, TOP, BOTTOM, RIGHT = 320, 16, 48, 116  # px
CHANNELS = 240  # points of a vector's profile
SHOWN = 100  # points of a curve over positions
FLOOR = 1e-3  # below this a channel's value is not drawn: it would stretch the log axis to no end
FELL = 0.8  # of the first word's spread: below this the others' has fallen
LAYER = ("layer", "index")


def norms(data: Mapping[str, Any]) -> Figure | None:
    found = data.get("norm")
    if not found:
        return None
    who = (("others", "others", OTHERS), ("first", "first word", FIRST), ("target", _chosen(data), TARGET))
    figure = _over_layers(data, "norm", "How long the vectors get", who, ("length of h", "norm, log scale"))
    last = finite([t for t in figure.traces if t["name"].startswith("first word")])
    figure.layout["shapes"] = _read_layer(data)
    tallest = f" The first word\u2019s vector reaches {last.max():,.0f}." if last.size else ""
    return _with(figure, f"The length of each word\u2019s vector as it enters a layer.{tallest}")


def dominance(data: Mapping[str, Any]) -> Figure | None:
    found = data.get("dominance")
    if not found:
        return None
    who = (("first", "first word", FIRST), ("target", _chosen(data), TARGET))
    figure = _over_layers(data, "dominance", "One channel takes over", who, ("largest / mean channel", "ratio, log scale"))
    figure.layout["shapes"] = _read_layer(data)
    top = finite(figure.traces).max(initial=0)
    return _with(figure, f"How much the largest channel of a vector exceeds the mean one: up to {top:.0f} times; 1 would mean all alike.")


def effective_rank(data: Mapping[str, Any]) -> Figure | None:
    found = data.get("rank")
    if not found:
        return None
    drawn, ends = before_after({"layer": found["layer"], "text_before": found["effective_rank_before"], **_after(found)}, "text", "effective rank", TARGET)
    ends = [(y, text.replace("effective rank, ", "").replace("effective rank", "after"), colour) for y, text, colour in ends]
    reach = (0.0, 1.06 * float(finite(drawn).max(initial=1)))
    plot = layout(
        axis(*LAYER, showgrid=False, nticks=8),
        axis("effective rank", "number of directions", range=list(reach)),
        right=RIGHT,
        annotations=end_labels(ends, reach, HEIGHT - TOP - BOTTOM),
        shapes=_read_layer(data),
    )
    known = finite(drawn)
    newest = floats(drawn[-1]["y"])
    low = f" The lowest is {np.nanmin(newest):.1f}, at layer {int(np.nanargmin(newest))}." if known.size else ""
    summary = f"The effective rank of all words\u2019 vectors as they enter a layer.{low}"
    return Figure("rank", "How many directions the words still use", drawn, plot, summary, height=HEIGHT)


def _after(found: Mapping[str, Any]) -> dict[str, Any]:
    return {"text_after": found["effective_rank_after"]} if "effective_rank_after" in found else {}


def _over_layers(data: Mapping[str, Any], group: str, title: str, who: tuple[tuple[str, str, str], ...], y: tuple[str, str]) -> Figure:
    """Tokens over the layers on a log axis, each before and after."""
    traces: list[Trace] = []
    ends = []
    for key, words, colour in who:
        drawn, places = before_after(data[group], key, words, colour)
        traces += drawn
        ends += places
    values = finite(traces)
    reach = decades(values)
    plot = layout(axis(*LAYER, showgrid=False, nticks=8), log_axis(*y, values, range=list(reach), **log_ticks(reach)), right=RIGHT)
    plot["annotations"] = end_labels(in_decades(ends), reach, HEIGHT - TOP - BOTTOM)
    return Figure(group, title, traces, plot, "", height=HEIGHT)


def _with(figure: Figure, summary: str) -> Figure:
    return Figure(figure.name, figure.title, figure.traces, figure.layout, summary, figure.span, height=figure.height)


def _chosen(data: Mapping[str, Any]) -> str:
    return tag(data["tokens"], data["tokens"].get("target"))


def _read_layer(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [rule(float(data["layer"]), "layer", "$muted", dash="dot", width=1)] if "layer" in data else []


def profile(data: Mapping[str, Any]) -> Figure | None:
    found = data.get("profile")
    if not found:
        return None
    who = name(data["tokens"], int(found["position"]))
    traces: list[Trace] = []
    for key, colour, symbol in (("before", OTHERS, "circle-open"), ("after", TARGET, "circle")):
        if f"channel_value_{key}" not in found:
            continue
        values = np.abs(floats(found[f"channel_value_{key}"]))
        channel, values = downsample_minmax(np.arange(values.size), values, CHANNELS)
        shown = np.where(values >= FLOOR, values, np.nan)
        traces.append(scatter(whole(channel), shown, key, colour, symbol=symbol, size=4, hover=f"channel %{{x}}: %{{y:.3g}} {key}"))
    values = finite(traces)
    reach = decades(values)
    newest = np.abs(floats(found["channel_value_after" if "channel_value_after" in found else "channel_value_before"]))
    top = int(found["top_channel"])
    tallest = float(newest[top])
    notes = key_row(("\u25cb before", OTHERS), ("\u25cf after", TARGET)) if len(traces) > 1 else []
    if tallest > 0:
        anchor = "left" if top < 0.6 * newest.size else "right"
        shift = (10 if anchor == "left" else -10, 0)
        notes.append(label(top, math.log10(tallest), f"<b>channel {top}</b>: {tallest:,.0f}", TARGET, anchor=anchor, shift=shift))
    plot = layout(
        axis("channel", "index", showgrid=False, nticks=7),
        log_axis("|h|", "size, log scale", values, range=list(reach), **log_ticks(reach)),
        top=34,
        annotations=notes,
    )
    summary = f"All {newest.size} channels of {who} as it enters layer {data['layer']}; channel {top} stands out."
    return Figure("profile", f"Inside the vector of {who}", traces, plot, summary, height=HEIGHT)


def spread(data: Mapping[str, Any]) -> Figure | None:
    """The standard deviation of the attention's output o against the position, on two log axes: averaging makes it fall."""
    found = data.get("variance")
    if not found:
        return None
    at = floats(found["position"]) + 1  # a log axis has no place for position 0
    traces: list[Trace] = []
    ends = []
    for key, words, colour, dash in (
        ("theory", "theory 1/\u221at", "$truth", "dash"),
        ("width_before", "before", OTHERS, "solid"),
        ("width_after", "after", TARGET, "solid"),
    ):
        if key not in found:
            continue
        values = floats(found[key])
        kept = _kept(values.size, floats(found["position"]), changed(data["tokens"]))
        x, y = at[kept], values[kept]
        traces.append(line(x, y, words, colour, hover=f"{words}: %{{y:.3g}} for word number %{{x}}", width=1.75, dash=dash))
        if np.isfinite(y).any():
            ends.append((float(y[np.isfinite(y)][-1]), words, colour))
    values = finite(traces)
    reach = decades(values)
    notes = end_labels(in_decades(ends), reach, HEIGHT - TOP - BOTTOM)
    notes += _marked(data, found, traces)
    across = decades(at, pad=0.02)
    plot = layout(
        axis("number of words it can see", "count, log scale", type="log", range=list(across), showgrid=False, **log_ticks(across)),
        log_axis("spread of o", "standard deviation, log scale", values, range=list(reach), **log_ticks(reach)),
        right=RIGHT,
        annotations=notes,
    )
    return Figure("spread", "Does averaging take the spread away?", traces, plot, _spread_summary(data, found), height=HEIGHT)


def sample_spread(data: Mapping[str, Any]) -> Figure | None:
    """The spread over samples at each position, on random token ids: here the values come closest to independent ones."""
    found = data.get("variance_samples")
    if not found:
        return None
    kept = _kept(len(found["samples"]), floats(found["position"]), [])
    at = floats(found["position"])[kept] + 1
    traces: list[Trace] = []
    ends = []
    for key, words, colour, dash in (("theory", "theory 1/\u221at", "$truth", "dash"), ("samples", "measured", TARGET, "solid")):
        values = floats(found[key])[kept]
        traces.append(line(whole(at), values, words, colour, hover=f"{words}: %{{y:.3g}} for word number %{{x}}", width=1.75, dash=dash))
        ends.append((float(values[-1]), words, colour))
    values = finite(traces)
    reach, across = decades(values), decades(at, pad=0.02)
    plot = layout(
        axis("number of words it can see", "count, log scale", type="log", range=list(across), showgrid=False, **log_ticks(across)),
        log_axis("spread over samples", "standard deviation, log scale", values, range=list(reach), **log_ticks(reach)),
        right=RIGHT,
        annotations=end_labels(in_decades(ends), reach, HEIGHT - TOP - BOTTOM),
    )
    measured = floats(found["samples"])
    text = f"In layer {found['layer']}, over 16 sequences of evenly spread token ids: {measured[0]:.3g} for the first word, {measured[-1]:.3g} for the last"
    return Figure("spread_samples", "And on words without meaning?", traces, plot, f"{text}.", height=HEIGHT)


def _spread_summary(data: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """What this layer shows beside the theory, which is one of independent values."""
    values = floats(found["width_before"])
    kept = f"In layer {data['layer']} the output for the first word, which averages nothing, has spread {values[0]:.3g}"
    if values.size < 2:
        return f"{kept}."
    rest = float(np.median(values[1:]))
    expected = f"independent values would give {float(np.median(floats(found['theory'])[1:])):.2g}"
    fate = "averaging takes spread away" if rest < FELL * values[0] else "here it takes none; read one of the first layers"
    return f"{kept}, for the others {rest:.3g} in the median ({expected}): {fate}."


def _kept(size: int, positions: np.ndarray, watched: list[int]) -> np.ndarray:
    """Places evenly spaced on a log axis, and each watched position with its neighbours."""
    wanted = np.concatenate([np.geomspace(1, positions[-1] + 1, SHOWN) - 1, [i + step for i in watched for step in (-1, 0, 1)]])
    return np.unique(np.searchsorted(positions, wanted.round()).clip(max=size - 1))


def _marked(data: Mapping[str, Any], found: Mapping[str, Any], traces: list[Trace]) -> list[dict[str, Any]]:
    """A point on the chosen word, on the newest curve."""
    newest = "width_after" if "width_after" in found else "width_before"
    positions, values = floats(found["position"]), floats(found.get(newest, []))
    notes: list[dict[str, Any]] = []
    for target in changed(data["tokens"])[:1]:
        at = int(np.searchsorted(positions, target, side="right")) - 1
        if 0 <= at < values.size and values[at] > 0:
            x, y = positions[at] + 1, float(values[at])
            traces.append(scatter([x], [y], "chosen word", TARGET, size=9, hover=f"{_chosen(data)}: %{{y:.3g}}"))
            above = y > float(np.median(values))  # on the side where the curve is not
            place: dict[str, Any] = {"yanchor": "bottom" if above else "top", "shift": (0, 8 if above else -8)}
            notes.append(label(math.log10(x), math.log10(y), _chosen(data), TARGET, anchor="center", **place))
    return notes
