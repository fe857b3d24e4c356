"""The other pictures of compressed-doco: regret over rounds and bits, agreement, the theorem's constants, compensation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.plotting import Figure, Panel, Trace, alpha, axis, end_labels, floats, key_row, layout, line, log_axis

HALF_PLOT_PX = 300
ALGORITHMS = (  # key, name, colour, dash
    ("alone", "never talking", "$peer-3", "dashdot"),
    ("dc-dogd", "DC-DOGD", "$peer-1", "dash"),
    ("top-dogd", "Top-DOGD", "$method", "solid"),
    ("uncompressed", "uncompressed", "$peer-2", "dot"),
    ("central", "central", "$peer-2", "longdash"),
)
Notes = list[dict[str, Any]]


def _log_range(values: np.ndarray, margin: float = 0.06) -> list[float]:
    seen = np.log10(values[np.isfinite(values) & (values > 0)])
    if not seen.size:
        return [-3.0, 0.0]
    room = margin * max(0.5, float(np.ptp(seen)))
    return [float(seen.min()) - room, float(seen.max()) + room]


def _positive(values: Any) -> np.ndarray:
    """A curve for a log axis: what is not above zero is a gap."""
    found = floats(values)
    return np.where(found > 0, found, np.nan)


def _labelled(data: Mapping[str, Any], against: str) -> tuple[list[Trace], Notes, list[float], np.ndarray]:
    """A line an algorithm with its name at its end, the range of regret (decades), and all x."""
    found = [(*style, data["curves"][style[0]]) for style in ALGORITHMS if style[0] in data["curves"]]
    found = [item for item in found if against == "round" or floats(item[4]["bits"])[-1] > 0]
    late = np.concatenate([_positive(c["regret"])[floats(c["round"]) >= 3] for *_, c in found])
    reach = _log_range(late)
    traces, ends = [], []
    for key, name, colour, dash, curve in found:
        x, y = floats(curve[against]), _positive(curve["regret"])
        traces.append(line(x, y, name, colour, width=3 if key == "top-dogd" else 1.75, dash=dash, ghost=key == "top-dogd", hover=f"{name}: %{{y:.3g}}"))
        if np.isfinite(y[-1]):
            ends.append((math.log10(y[-1]), name, colour))
    every = np.concatenate([floats(c[against]) for *_, c in found])
    return traces, end_labels(ends, (reach[0], reach[1]), HALF_PLOT_PX), reach, every


def regret(data: Mapping[str, Any]) -> Figure | None:
    """Average regret of the worst learner against rounds, both log, with the guide of the theorem's rate."""
    if not data["curves"]:
        return None
    traces, notes, reach, rounds = _labelled(data, "round")
    last = float(rounds.max())
    own = _positive(data["curves"]["top-dogd"]["regret"])
    level = float(own[np.isfinite(own)][-1]) if np.isfinite(own).any() else 1.0
    guide = np.array([3.0, last])
    traces.insert(0, line(guide, level * np.sqrt(last / guide), "rate", alpha("$muted", 0.8), width=1, dash="dot", hover="falls as 1/√t"))
    plot = layout(
        log_axis("round t", "count", rounds, range=[math.log10(3), math.log10(last)]),
        log_axis("regret of the worst learner", "loss per sample", 10 ** np.array(reach), range=reach),
        right=96,
        annotations=[*notes, *key_row(("dotted: falls as 1/√t", "$muted"))],
        top=30,
    )
    loss = data["best"]["loss"]
    summary = f"Average excess over the best fixed decision, whose loss is {loss:.4f} a sample (certified to {max(data['best']['gap'], 1e-12):.0e})."
    if "dc-dogd" in data["curves"]:
        peer = data["curves"]["dc-dogd"]
        summary += f" Peers have the best of their settings; DC-DOGD took γ = {peer['gossip_step']:.2g}, η = {peer['eta']:.3g}."
    return Figure("regret", "Regret, round by round", traces, plot, summary, height=380)


def regret_by_bits(data: Mapping[str, Any]) -> Figure | None:
    """The same against the bits that a learner has sent."""
    if "dc-dogd" not in data["curves"]:
        return None
    traces, notes, reach, bits = _labelled(data, "bits")
    plot = layout(
        log_axis("sent by a learner", "bits", bits, range=_log_range(bits, 0.0)),
        log_axis("regret of the worst learner", "loss per sample", 10 ** np.array(reach), range=reach),
        right=96,
        annotations=notes,
    )
    sent = {key: float(floats(found["bits"])[-1] / floats(found["round"])[-1]) for key, found in data["curves"].items()}
    summary = f"A learner sent {sent['top-dogd']:,.0f} bits a round over all its edges, numbers counted as 32 bits."
    if "uncompressed" in sent:
        factor = sent["uncompressed"] / sent["top-dogd"]
        summary += f" Without compression it would be {factor:.3g} times as many; the central learner counts one message a round to the centre."
    return Figure("bits", "Regret for what was sent", traces, plot, summary, height=380)


def course(data: Mapping[str, Any]) -> Figure | None:
    """Disagreement of the decisions, and how stale replicas are at the start and at the end of a block."""
    found = data.get("course")
    if found is None:
        return None
    t = floats(found["stop"])
    parts = (
        ("residual_start", "stale at start", "$peer-1", 1.75),
        ("consensus", "decisions apart", "$method", 2.5),
        ("residual_end", "stale at end", "$peer-2", 1.75),
    )
    kept = {name: _positive(found[name]) for name, *_ in parts}
    every = np.concatenate(list(kept.values()))
    reach = _log_range(every[np.isfinite(every)] if np.isfinite(every).any() else every)
    traces, ends = [], []
    for name, words, colour, width in parts:
        y = kept[name]
        traces.append(line(t, y, words, colour, width=width, ghost=name == "consensus", hover=f"{words}: %{{y:.3g}}"))
        if np.isfinite(y[-1]):
            ends.append((math.log10(y[-1]), words, colour))
    plot = layout(
        axis("round", "count", range=[0, float(t.max())]),
        log_axis("distance, rms", "length of a decision", 10 ** np.array(reach), range=reach),
        right=104,
        annotations=end_labels(ends, (reach[0], reach[1]), HALF_PLOT_PX),
    )
    last = kept["consensus"][np.isfinite(kept["consensus"])]
    apart = f"{last[-1]:.3g}" if last.size else "0"
    summary = f"Block by block: decisions end {apart} from their mean; stale is the distance of surrogates from the replicas that neighbours keep."
    return Figure("course", "Do they agree?", traces, plot, summary, height=380)


def contraction(data: Mapping[str, Any]) -> Figure | None:
    """Disagreement of gossip alone from a random start: the step in use, the theorem's step, the theorem's bound."""
    found = data.get("contraction")
    if found is None:
        return None
    rounds = np.arange(len(floats(found["bound"])))
    used, theory, bound = (_positive(found[name]) for name in ("used", "theory", "bound"))
    reach = _log_range(np.concatenate([used, theory, bound]))
    reach[0] = max(reach[0], -12.0)
    hover = "%{y:.3g} left after %{x} rounds"
    traces = [
        line(rounds, bound, "bound", "$truth", width=1.5, hover=hover),
        line(rounds, theory, "theory step", "$peer-1", width=1.75, hover=hover),
        line(rounds, used, "this step", "$method", width=3, ghost=True, hover=hover),
    ]
    pairs = (
        (bound, "bound", "$truth"),
        (theory, "theorem's γ", "$peer-1"),
        (used, f"γ = {found['step_used']:.2g}", "$method"),
    )
    ends = [(math.log10(values[-1]), words, colour) for values, words, colour in pairs if np.isfinite(values[-1])]
    plot = layout(
        axis("gossip round", "count", range=[0, len(rounds) - 1]),
        log_axis("disagreement left", "share of the start", 10 ** np.array(reach), range=reach),
        right=104,
        annotations=end_labels(ends, (reach[0], reach[1]), HALF_PLOT_PX),
    )
    factor = found["factor_used"]
    judged = "overflows" if factor is None else f"leaves {factor:.3f} a round" + (" and so diverges" if factor > 1 else "")
    summary = f"Gossip alone from a random start: γ = {found['step_used']:.2g} {judged}, the theorem's step {found['factor_theory']:.4f}, "
    summary += f"its bound {found['factor_bound']:.5f}."
    return Figure("contraction", "How fast gossip alone agrees", traces, plot, summary, height=380)


def ablation(data: Mapping[str, Any]) -> Figure | None:
    """How stale replicas are at the start of each block: with compensation, gossiping instead, and without these rounds."""
    found = data.get("ablation")
    if found is None:
        return None
    styles = (("on", "compensating", "$method"), ("off", "gossiping", "$peer-1"), ("none", "without", "$peer-2"))
    curves = {name: (floats(found[name]["stop"]), _positive(found[name]["residual"])) for name, *_ in styles}
    every = np.concatenate([y for _, y in curves.values()])
    reach, title = _log_range(every), ("stale at a block's start", "length of a decision")
    is_log = reach[1] - reach[0] > 1
    if is_log:
        y_axis = log_axis(*title, 10 ** np.array(reach), range=reach)
    else:
        reach = [0.0, 1.05 * float(np.nanmax(every, initial=1e-9))]
        y_axis = axis(*title, range=reach)
    traces, ends, told = [], [], []
    for name, words, colour in styles:
        t, y = curves[name]
        traces.append(line(t, y, words, colour, width=1.5, hover=f"{words}: %{{y:.3g}}"))
        if np.isfinite(y[-1]):
            ends.append((math.log10(y[-1]) if is_log else float(y[-1]), words, colour))
        value = found[name]["regret"]
        told.append(f"{words} {'diverged' if value is None else f'{value:.4f}'}")
    plot = layout(
        axis("round", "count", range=[0, max(float(t.max()) for t, _ in curves.values())]),
        y_axis,
        right=104,
        annotations=end_labels(ends, (reach[0], reach[1]), HALF_PLOT_PX),
    )
    summary = f"What the L2 rounds are used for, and the regret: {', '.join(told)}. No gain is claimed for compensation here."
    return Figure("ablation", "Is compensation worth its rounds?", traces, plot, summary, height=380)


def constants(data: Mapping[str, Any]) -> Panel | None:
    """The theorem's constants beside those in use."""
    rows = data.get("constants")
    if rows is None:
        return None
    columns = [{"name": "constant", "kind": "text"}, {"name": "theorem", "kind": "number"}, {"name": "used", "kind": "number"}]
    graph = data["graph"]
    note = f"Gap ρ = {graph['gap']:.4g}, β = {graph['beta']:.4g}, ω = {data['omega']:.3g}. The theorem's values are right in order and useless live."
    summary = "The theorem's constants beside those used in this run."
    return Panel("constants", "table", "Theory and practice", {"columns": columns, "rows": [list(row) for row in rows], "note": note}, summary, "wide")
