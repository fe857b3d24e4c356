"""What split conformal prediction promises and keeps: coverage in stretches of x, calibration scores, the law of coverage.

Shared by the pages whose bands come from one calibration quantile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import betaln, gammaln

from app.plotting import Figure, Trace, axis, band, floats, histogram, intervals, key_row, label, layout, line, message, plain_text, rule, scatter

ABOVE, BELOW = "$method", "$peer-1"  # the two sides of a band, wherever both are compared
BINS = 20  # about, in the histogram of scores
FAR = 4  # quantiles from zero; scores beyond are counted, not drawn
CENSORED = "The calibration set is too small for this error rate:<br>the quantile, and so the band, is infinite"


def local_coverage(data: Mapping[str, Any], params: Any) -> Figure | None:
    local = data.get("local")
    if local is None:
        return None
    left, right, coverage = floats(local["left"]), floats(local["right"]), floats(local["coverage"])
    low, high, count = floats(local["low"]), floats(local["high"]), floats(local["count"])
    centre, offset = (left + right) / 2, 0.14 * (right - left)
    target = 1 - params.alpha
    here = intervals(centre - offset / 2, coverage, low, high, "this band", customdata=count, hover="%{y:.0%} of %{customdata} points", ghost=True)
    symmetric = floats(local["coverage_symmetric"])
    there = scatter(centre + offset, symmetric, "symmetric", "$peer-1", symbol="diamond-open", size=8, edge=1.5, hover="symmetric: %{y:.0%}")
    floor = max(0.0, float(np.nanmin([np.nanmin(low, initial=1), np.nanmin(symmetric, initial=1), target])) - 0.05)
    edges = [rule(float(e), "bin", "$grid", dash="solid", width=1, layer="below") for e in left[1:]]
    key = key_row(("\u25cf this band", "$method"), ("\u25c7 symmetric", "$peer-1"), (f"\u254c target {target:.0%}", "$truth"))
    plot = layout(
        axis(plain_text(data["axes"]["x"]), range=[float(left[0]), float(right[-1])], showgrid=False),
        axis("coverage", "share of test points", range=[floor, 1.02], tickformat=".0%", nticks=6),
        top=34,
        shapes=[*edges, rule(target, "target", "$truth", across="y", width=1.25)],
        annotations=key,
    )
    holds = int(((low <= target) & (target <= high)).sum())
    summary = f"Coverage in five stretches of x with 95% Clopper-Pearson bars: {holds} of {left.size} bars hold the target {target:.0%}."
    return Figure("local", "Does it hold everywhere?", [here, there], plot, summary, height=460)


def score_sides(data: Mapping[str, Any], params: Any) -> Figure | None:
    scores = data.get("scores")
    if scores is None:
        return None
    above, below, quantile = floats(scores["above"]), floats(scores["below"]), scores["quantile"]
    everything = np.concatenate([above, below])
    drawn = everything if quantile is None else everything[everything <= FAR * quantile]  # one wild score must not flatten the rest
    longest, far = float(drawn.max(initial=1e-9)), everything.size - drawn.size
    # The quantile is an edge of the bins, so that no bar mixes scores inside and outside the band.
    step = longest / BINS if quantile is None else quantile / max(1, round(BINS * quantile / max(longest, quantile)))
    edges = np.arange(0, math.ceil(longest / step - 1e-9) + 1) * step
    traces = [histogram(above, edges, "above the prediction", ABOVE), histogram(below, edges, "below the prediction", BELOW, down=True)]
    most = max(int(np.abs(t["y"]).max()) for t in traces)
    ticks = sorted({t for k in range(3) for t in (-k * max(1, math.ceil(most / 2)), k * max(1, math.ceil(most / 2)))})
    notes = [
        label(1, 1, "above the prediction", ABOVE, anchor="right", xref="paper", yref="paper", yanchor="top"),
        label(1, 0, "below the prediction", BELOW, anchor="right", xref="paper", yref="paper", yanchor="bottom"),
    ]
    shapes = []
    if quantile is None:
        summary = f"{everything.size} calibration scores; too few for this error rate, so the quantile is infinite."
    else:
        shapes.append(rule(quantile, "quantile", "$ink", width=2))
        notes.append(label(quantile, 1, f"q = {quantile:.3g}", "$ink", yref="paper", yanchor="bottom", anchor="center"))
        over, under = int((above > quantile).sum()), int((below > quantile).sum())
        summary = f"q = {quantile:.3g} covers {1 - params.alpha:.0%}; beyond it lie {over} of {above.size} scores above and {under} of {below.size} below."
    if far:
        summary += f" {far} lie beyond the picture, the largest at {everything.max():.3g}."
        notes.append(label(1, 0.5, f"{far} beyond", "$muted", anchor="right", xref="paper", yref="paper", shift=(0, 9)))
    plot = layout(
        axis("calibration score", "half-widths", range=[0, float(edges[-1]) * 1.02], showgrid=False),
        axis("points", "count", tickvals=ticks, ticktext=[str(abs(t)) for t in ticks], range=[-1.15 * most, 1.15 * most], zeroline=True),
        top=28,
        barmode="overlay",
        shapes=shapes,
        annotations=notes,
    )
    return Figure("scores", "One quantile serves both sides", traces, plot, summary, height=320)


def coverage_law(data: Mapping[str, Any], params: Any) -> Figure | None:
    law = data.get("law")
    if law is None:
        return None
    k, n_cal, observed, n_test = int(law["k"]), int(law["n_calibration"]), law["observed"], int(law["n_test"])
    title = "What the calibration size promises"
    if k > n_cal:
        return message("law", title, CENSORED, height=320)
    a, b = float(k), float(n_cal + 1 - k)
    mean, sd = a / (a + b), math.sqrt(a * b / (a + b + 1)) / (a + b)
    sd_seen = math.sqrt(mean * (1 - mean) / max(n_test, 1) + sd**2)
    shown = mean if observed is None else observed  # also where it fell far from what was promised
    low, high = max(1e-6, min(mean - 4 * sd_seen, shown - sd)), min(1 - 1e-6, max(mean + 4 * sd_seen, shown + sd))
    x = np.linspace(low, high, 120)
    density = np.exp((a - 1) * np.log(x) + (b - 1) * np.log1p(-x) - betaln(a, b))
    traces: list[Trace] = [band(x, np.zeros_like(x), density, "Beta", "$method"), line(x, density, "true coverage", "$method", hover="true coverage %{x:.1%}")]
    flank = int(np.argmax(density > 0.8 * density.max()))  # on the left, where no line crosses the text
    notes = [label(x[flank], density[flank], f"true coverage:<br>Beta({k}, {n_cal + 1 - k})", "$method", anchor="right", shift=(-8, 0))]
    summary = f"Given the calibration part, the true coverage follows Beta({k}, {n_cal + 1 - k}), mean {mean:.1%}."
    shapes = [rule(1 - params.alpha, "target", "$truth", width=1.25)]
    if n_test:
        seen = np.unique(np.linspace(max(0, math.floor(low * n_test)), min(n_test, math.ceil(high * n_test)), 120).round())
        # Beta-binomial: what a test part of this size can show of that coverage.
        log_pmf = gammaln(n_test + 1) - gammaln(seen + 1) - gammaln(n_test - seen + 1) + betaln(seen + a, n_test - seen + b) - betaln(a, b)
        traces.append(line(seen / n_test, np.exp(log_pmf) * n_test, "seen on the test part", "$peer-1", width=1.5, hover="seen on the test part %{x:.1%}"))
        share = float(((np.exp(log_pmf) * (seen <= observed * n_test)).sum()) / np.exp(log_pmf).sum()) if observed is not None else None
        shoulder = int(np.argmax(log_pmf > log_pmf.max() - 1))  # on the left flank, at a third of the height
        notes.append(label(seen[shoulder] / n_test, math.exp(log_pmf[shoulder]) * n_test, f"seen on {n_test} points", "$peer-1", anchor="right", shift=(-6, 0)))
        if observed is not None:
            traces.append(scatter([observed], [0], "observed", "$ink", symbol="triangle-up", size=13, hover="observed %{x:.1%}", cliponaxis=False))
            shapes.append(rule(observed, "observed", "$ink", dash="solid", width=1))
            sides = ("left", "right") if observed >= 1 - params.alpha else ("right", "left")
            for at, text, side in ((observed, f"observed {observed:.1%}", sides[0]), (1 - params.alpha, f"target {1 - params.alpha:.0%}", sides[1])):
                notes.append(label(at, 1, text, "$ink", yref="paper", yanchor="bottom", anchor=side))
            summary += f" Observed on {n_test} test points: {observed:.1%}; {share:.0%} of such test parts show this or less."
    plot = layout(
        axis("coverage", "share of points", range=[low, high], tickformat=".0%", showgrid=False),
        axis("density", "per unit of coverage", rangemode="tozero", range=[0, float(density.max()) * 1.18], nticks=5),
        top=28,
        shapes=shapes,
        annotations=notes,
    )
    return Figure("law", title, traces, plot, summary, height=320)
