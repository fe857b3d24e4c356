"""What the draws of auxiliary-mcmc follow: marginal laws, the ratio and the batch, the bound on the gap, traces."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._auxiliary_mcmc_race import short_name, shown_name
from app.plotting import Figure, Trace, alpha, axis, bars, end_labels, floats, key_row, label, layout, line, log_axis, plain_text, rule, scatter

HEIGHT = 340
LINES = 10  # coordinates drawn


def marginal_laws(data: Mapping[str, Any]) -> Figure | None:
    """Quantiles of every coordinate against the reference's."""
    found = data.get("marginals")
    if found is None:
        return None
    exact, ours, ks = floats(found["exact"]), floats(found["found"]), floats(found["ks"])
    names = [plain_text(str(n)) for n in data["reference"]["names"]]
    reach = [float(min(exact.min(), ours.min())) - 0.2, float(max(exact.max(), ours.max())) + 0.2]
    traces = [line(reach, reach, "equal", "$truth", width=1.5, hover="skip")]
    for j in range(min(exact.shape[1], LINES)):
        hover = f"{names[j]}: %{{y:.2f}} drawn, %{{x:.2f}} exact"
        traces.append(scatter(exact[:, j], ours[:, j], names[j], alpha("$method", 0.65), size=5, edge=0, hover=hover))
    worst = int(ks.argmax())
    plot = layout(axis("exact quantile", "posterior sd", range=reach), axis("drawn quantile", "posterior sd", range=reach), top=34)
    plot["annotations"] = key_row(("equal", "$truth"), (f"{shown_name(data['light'])}, one dot a quantile", "$method"))
    summary = f"The marginals lie on the line: largest Kolmogorov-Smirnov distance {ks[worst]:.3f}, in {names[worst]}."
    return Figure("marginals", "Every marginal against the exact one", traces, plot, summary, height=HEIGHT)


def ratios_and_batches(data: Mapping[str, Any]) -> Figure | None:
    """Counts of log r and of the rows that a step read, the expected number marked."""
    found = data.get("histograms")
    if found is None:
        return None
    traces: list[Trace] = []
    for key, xaxis, yaxis in (("log_ratio", "x", "y"), ("batch", "x2", "y2")):
        edges, count = floats(found[key]["edges"]), floats(found[key]["count"])
        centre, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges) * 0.94
        traces.append(bars(centre, count, key, alpha("$method", 0.75), width=width, hover="%{y} steps at %{x:.3g}", xaxis=xaxis, yaxis=yaxis))
    expected, shapes, notes = found["batch"]["expected"], [], []
    shapes.append(rule(0.0, "always taken", "$truth", yref="y domain"))
    notes.append(label(0, 1, "taken at once right of 0", "$truth", anchor="center", yref="y domain", yanchor="bottom", shift=(0, 4)))
    if expected is not None:
        shapes.append(rule(float(expected), "expected", "$truth", xref="x2", yref="y2 domain"))
        notes.append(
            label(float(expected), 1, f"λ + L = {float(expected):,.0f}", "$truth", anchor="center", xref="x2", yref="y2 domain", yanchor="bottom", shift=(0, 4))
        )
    plot = layout(
        axis("log r", "log of a ratio", domain=(0.0, 1.0), anchor="y"),
        axis("steps", "count", domain=(0.64, 1.0), nticks=4),
        top=28,
        xaxis2=axis("rows a step reads", "count", anchor="y2"),
        yaxis2=axis("steps", "count", domain=(0.0, 0.36), anchor="x2", nticks=4),
        annotations=notes,
        shapes=shapes,
        bargap=0,
    )
    plot["xaxis"]["title"]["text"] = "log r (log of a ratio)"
    outside = int(found["log_ratio"]["outside"])
    summary = "Above: the coin's log ratio at each step. Below: how many rows a step read."
    return Figure(
        "ratio", "The coin and the batch", traces, plot, summary + (f" {outside:,} proposals left the support." if outside else ""), height=HEIGHT + 60
    )


def gap_bound(data: Mapping[str, Any]) -> Figure | None:
    """The share of the spectral gap that is surely kept, and the batch it costs; the value in use is a line to drag."""
    found = data.get("gap")
    if found is None:
        return None
    kappa = found["name"] == "kappa"
    sign = "κ" if kappa else "χ"
    grid, bound, at = floats(found["grid"]), np.maximum(floats(found["bound"]), 1e-30), float(found["at"])
    drawn = bound > 1e-20
    traces = [line(grid[drawn], bound[drawn], "gap kept, at least", "$method", width=2.5, hover=f"{sign} %{{x:.2g}}: at least %{{y:.2g}}")]
    shapes = [rule(at, sign, "$method", dash="solid", width=3, editable=True)]
    notes = [label(math.log10(at), 1, f"{sign} = {at:.2g}", "$method", anchor="center", yref="paper", yanchor="bottom", shift=(0, 4))]
    x = log_axis(sign, "no unit, log scale", grid, range=[math.log10(grid[0]), math.log10(grid[-1])])
    more: dict[str, Any] = {}
    y_domain = (0.56, 1.0) if kappa else (0.0, 1.0)
    y = log_axis("gap kept, at least" if not kappa else "gap kept", "share, log", bound[drawn], domain=y_domain)
    if kappa:
        batch = floats(found["batch"])
        traces.append(line(grid, batch, "rows a step", "$ink", width=2, yaxis="y2", hover=f"{sign} %{{x:.2g}}: %{{y:,.0f}} rows"))
        more["yaxis2"] = log_axis("rows a step", "count, log", batch, domain=(0.0, 0.42))
        x["anchor"] = "y2"
        here = float(np.interp(at, grid, batch))
        summary = f"Drag the line or click to set κ. At {at:.2g} a step reads about {here:,.0f} rows, κ L² + L with L = {float(found['total']):.4g}."
    else:
        summary = "Drag the line or click to set χ. The bound exp(-1/(2χ)) says little for small χ, though the chain works."
    plot = layout(x, y, top=30, right=20, annotations=notes, shapes=shapes, meta={"editable": True}, **more)
    return Figure(
        "gap",
        f"What {sign} buys: rows against a sure share of the gap" if kappa else f"What {sign} surely keeps of the gap",
        traces,
        plot,
        summary,
        height=HEIGHT + 60,
    )


def trace_lines(data: Mapping[str, Any]) -> Figure | None:
    """The first coordinate of a few chains over their steps, SGLD's beside them."""
    found = data.get("traces")
    if found is None:
        return None
    mean, sd = float(floats(data["reference"]["mean"])[0]), float(floats(data["reference"]["sd"])[0])
    name = plain_text(str(data["reference"]["names"][0]))
    step, theta = floats(found["light"]["step"]), floats(found["light"]["theta"])
    traces: list[Trace] = []
    ends: list[tuple[float, str, str]] = []
    if "sgld" in found:
        at, other = floats(found["sgld"]["step"]), floats(found["sgld"]["theta"])
        traces.append(line(at, other[:, 0], "SGLD", alpha("$warning", 0.55), width=1, dash="solid", hover="SGLD %{y:.3g}"))
        ends.append((float(other[-1, 0]), "SGLD", "$warning"))
    for chain in range(theta.shape[1]):
        traces.append(
            line(step, theta[:, chain], f"chain {chain + 1}", alpha("$method", (1.0, 0.6, 0.35)[chain]), width=1.25, dash="solid", hover="chain %{y:.3g}")
        )
    ends.append((float(theta[-1, 0]), f"<b>{short_name(data['light'])}</b>", "$method"))
    shapes = [rule(mean + side * 2 * sd, "two sd", "$truth", across="y", dash="dot", width=1.25) for side in (-1, 1)]
    shapes.append(rule(mean, "exact mean", "$truth", across="y", width=1.5))
    drawn = np.concatenate([np.asarray(t["y"]) for t in traces])
    low, high = min(float(drawn.min()), mean - 2.5 * sd), max(float(drawn.max()), mean + 2.5 * sd)
    reach = (low - 0.05 * (high - low), high + 0.05 * (high - low))
    plot = layout(
        axis("step of a chain", "count", showgrid=False),
        axis(name, "coefficient" if "y" in data["posterior"] else "no unit", range=list(reach)),
        right=84,
        annotations=end_labels(ends, reach, HEIGHT - 64),
        shapes=shapes,
    )
    return Figure(
        "traces", "The chains over their steps", traces, plot, f"Three chains in {name}; the lines are the exact mean and two sd around it.", height=HEIGHT
    )
