"""The pictures of all correct kernels of a search: under the roofline, in the space of features, as a family, and the headroom that is left."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._kernelband_marks import RESOURCES, UNTIMED, cluster_style, counted, log_reach, log_ticks, ms, strategy, way_to, whole
from app.plotting import Figure, Trace, alpha, axis, bars, floats, key_row, label, layout, line, plain_text, scatter

THETA_FIELDS = ("theta_sm", "theta_dram", "theta_l2")
SIDE, BESIDE = 0.36, 0.42  # of a resource's group of bars to each side of its middle, and of the best kernel's mark beside them
Notes = list[dict[str, Any]]


def _clusters(data: Mapping[str, Any], x: np.ndarray, y: np.ndarray, size: float = 9) -> list[Trace]:
    """One trace a cluster; what is known of a kernel stands in the hover text."""
    labels = whole(data["kernels"]["cluster"])
    said = [_said(data, k) for k in range(labels.size)]
    traces = []
    for cluster in np.unique(labels).tolist():
        places = np.flatnonzero(labels == cluster)
        colour, symbol = cluster_style(cluster)
        text = [said[k] for k in places]
        traces.append(scatter(x[places], y[places], f"cluster {cluster + 1}", colour, symbol=symbol, size=size, hover="%{text}", text=text, cliponaxis=False))
    return traces


def _said(data: Mapping[str, Any], k: int) -> str:
    kernels = data["kernels"]
    made = "the naive kernel" if k == 0 else f"{strategy(data['strategies'], int(whole(kernels['strategy'])[k]))} of kernel {int(whole(kernels['parent'])[k])}"
    lines = [f"<b>kernel {k}</b>: {made}", f"{ms(floats(kernels['ms'])[k])}, {floats(kernels['gflops'])[k]:.3g} GFLOP/s"]
    facts = ((name, f"{value:.3g}" if isinstance(value, int | float) else value) for name, value in kernels["facts"][k].items())
    lines.append(plain_text(", ".join(f"{name} {value}" for name, value in facts)))
    return "<br>".join(part for part in lines if part)


def _cluster_key(data: Mapping[str, Any]) -> Notes:
    signs = ("\u25cf", "\u25a0", "\u25c6", "\u25b2", "\u25bc", "\u2b1f", "\u2605", "\u2b22")
    seen = np.unique(whole(data["kernels"]["cluster"])).tolist()
    words = "{} cluster {}" if len(seen) < 4 else "{} {}"
    return key_row(*((words.format(signs[c % len(signs)], c + 1), cluster_style(c)[0]) for c in seen))


def _ends(data: Mapping[str, Any], x: np.ndarray, y: np.ndarray, *, below: bool = False) -> Notes:
    """The naive and the best kernel by name, left of their marks or below them; x and y as annotations take them."""
    best = int(data["best"]["member"])
    side: dict[str, Any] = {"anchor": "center", "shift": (0, -14)} if below else {"anchor": "right", "shift": (-9, 0)}
    notes = [label(x[0], y[0], "naive", "$muted", **side)]
    if best:
        notes.append(label(x[best], y[best], "<b>best</b>", "$ink", **side))
    return notes


def roofline(data: Mapping[str, Any]) -> Figure:
    """Speed against arithmetic intensity, both on log axes, below what the host's measured peaks allow."""
    kernels, roof = data["kernels"], data["roofline"]
    x, y = floats(kernels["intensity"]), floats(kernels["gflops"])
    ridge = roof["gflops"] / roof["dram"]
    across = log_reach([*x, ridge, ridge / 8, x.min() / 3, x.max() * 3], below=0.02, above=0.02)
    at = np.logspace(*across, 60)
    memory, cache = np.minimum(roof["gflops"], at * roof["dram"]), np.minimum(roof["gflops"], at * roof["cache"])
    up = log_reach([*y, *memory])
    traces = [
        line(at, cache, "cache", "$peer-2", width=1.25, hover="cache allows %{y:.3g} GFLOP/s at %{x:.3g} flop/byte"),
        line(at, memory, "memory", "$truth", width=1.75, hover="memory allows %{y:.3g} GFLOP/s at %{x:.3g} flop/byte"),
        *_clusters(data, x, y),
    ]
    notes = [note | {"yshift": 24} for note in _cluster_key(data)] + _ends(data, np.log10(x), np.log10(y))
    notes += key_row((f"\u2500 memory {roof['dram']:.3g} GB/s", "$truth"), (f"\u254c cache {roof['cache']:.3g} GB/s", "$peer-2"))
    peak = f"peak {roof['gflops']:.3g} GFLOP/s"
    notes.append(label(across[1], math.log10(roof["gflops"]), peak, "$truth", anchor="right", yanchor="bottom", shift=(0, 2)))
    plot = layout(
        axis("intensity", "flop/byte", **log_ticks(across)),
        axis("speed", "GFLOP/s", **log_ticks((up[0], up[1] + 0.12 * (up[1] - up[0])))),
        top=46,
        annotations=notes,
    )
    best = int(data["best"]["member"])
    allowed = min(roof["gflops"], x[best] * roof["dram"])
    summary = (
        f"The best kernel runs at {y[best]:.3g} GFLOP/s, the roofline allows {allowed:.3g} at its intensity. The peaks were measured on this host; "
        "bytes are the compulsory ones, so that equal storage gives equal intensity."
    )
    if data.get("recorded"):
        summary = summary.replace("on this host", "where the times were recorded")
    return Figure("roofline", "How far below the roof", traces, plot, summary, height=380)


def features(data: Mapping[str, Any]) -> Figure | None:
    """The first two principal components of the features, with the centroids of the clusters."""
    found = data["features"]
    if found is None:
        return None
    xy = floats(found["xy"])
    traces = _clusters(data, xy[:, 0], xy[:, 1])
    notes = _cluster_key(data) + _ends(data, xy[:, 0], xy[:, 1], below=True)
    clustered = found["centroids"] is not None
    if clustered:
        centroids = floats(found["centroids"])
        said = [f"centroid of cluster {i + 1}" for i in range(len(centroids))]
        cross = scatter(centroids[:, 0], centroids[:, 1], "centroids", "$ink", symbol="x-thin", size=13, edge=2, hover="%{text}", text=said)
        traces.append(cross | {"cliponaxis": False})
        notes += [label(cx, cy, str(i + 1), "$ink", shift=(9, 9)) for i, (cx, cy) in enumerate(centroids.tolist())]
    share = floats(found["share"])
    plot = layout(
        axis("first component", f"{share[0]:.0%} of the variance"),
        axis("second component", f"{share[1]:.0%} of the variance"),
        top=30,
        annotations=notes,
    )
    names = ", ".join(plain_text(str(name)) for name in found["names"])
    clusters = counted(len(np.unique(whole(data["kernels"]["cluster"]))), "cluster")
    state = f"{clusters}; crosses are their centroids." if clustered else "Not clustered yet: that needs twice as many kernels as clusters."
    return Figure("features", "Kernels that behave alike", traces, plot, f"{state} Features: {names}.", height=380)


def family(data: Mapping[str, Any], rounds: int) -> Figure:
    """Every kernel at its attempt (across) and its number of edits from the naive one (down), joined to its parent."""
    kernels, attempts = data["kernels"], data["attempts"]
    parent, made = whole(kernels["parent"]), whole(kernels["round"])
    depth = np.zeros(parent.size, int)
    for k in range(1, parent.size):  # a parent stands before its children, and there are at most 60
        depth[k] = depth[parent[k]] + 1
    born = np.arange(1, parent.size)
    joints = np.stack([made[parent[born]], made[born], np.full(born.size, -1)], axis=1).astype(float)
    levels = np.stack([depth[parent[born]], depth[born], np.full(born.size, -1)], axis=1).astype(float)
    joints[:, 2] = levels[:, 2] = np.nan
    path = way_to(parent, int(data["best"]["member"]))
    traces = [line(joints.ravel(), levels.ravel(), "edits", alpha("$peer-3", 0.55), width=1.5, dash="solid", hover="skip")]
    traces.append(line(made[path], depth[path], "way to the best", alpha("$method", 0.6), width=4, hover="skip"))
    for mark in UNTIMED:
        places = [i for i, outcome in enumerate(attempts["outcome"]) if outcome in mark.outcomes]
        if places:
            x, y = [attempts["round"][i] for i in places], [int(depth[attempts["parent"][i]]) + 1 for i in places]
            text = [
                f"attempt {attempts['round'][i]}: {strategy(data['strategies'], attempts['strategy'][i])} of kernel {attempts['parent'][i]}, {mark.words}"
                for i in places
            ]
            traces.append(scatter(x, y, mark.words, mark.colour, symbol=mark.symbol, size=7, hover="%{text}", text=text))
    traces += _clusters(data, made, depth, size=10)
    edits = [strategy(data["strategies"], int(whole(kernels["strategy"])[k])) for k in path[1:]]
    deepest = max([int(depth.max()), 1, *(int(depth[p]) + 1 for p in attempts["parent"])])
    plot = layout(
        axis("attempt", "number", range=[-0.03 * rounds - 0.4, rounds + 0.6], showgrid=False),
        axis("edits from the naive kernel", "count", range=[deepest + 0.5, -0.5], dtick=max(1, math.ceil(deepest / 6))),
        top=30,
        annotations=_cluster_key(data),
    )
    way = f"The way to the best kernel (thick): {', '.join(edits)}." if edits else "No child is faster than the naive kernel yet."
    used = [int(p) for p in attempts["parent"]]
    naive = used.count(0)
    summary = f"{way} The naive kernel was the parent of {naive} of {counted(len(used), 'attempt')}." if used else "The naive kernel; its children follow."
    return Figure("family", "Who was made from whom", traces, plot, summary, height=380)


def headroom(data: Mapping[str, Any], params: Any) -> Figure:
    """What each cluster's representative uses of each resource, against the thresholds, which can be dragged."""
    found = data["headroom"]
    theta, resources = floats(found["theta"]), data["resources"]
    h = floats(found["h"]).reshape(-1, len(resources))
    clusters = len(h)
    width = 2 * SIDE / max(1, clusters)
    traces: list[Trace] = []
    notes: Notes = []
    for c in range(clusters):
        x = np.arange(len(resources)) - SIDE + (c + 0.5) * width
        known = np.isfinite(h[c])
        if not known.any():
            continue
        full = h[c] >= theta
        hover = [f"cluster {c + 1}, {RESOURCES[r]}: {value:.3g} % of peak, threshold {t:.3g} %" for r, value, t in zip(resources, h[c], theta, strict=True)]
        drawn = bars(x, h[c], f"cluster {c + 1}", "$method", width=0.86 * width, hover="%{text}", text=hover, textposition="none")
        drawn["marker"] = {"color": ["$muted" if f else "$method" for f in full], "line": {"width": 0}}
        traces.append(drawn)
        notes += [label(at, value, str(c + 1), "$muted", anchor="center", yanchor="bottom") for at, value in zip(x.tolist(), h[c].tolist(), strict=True)]
    best = floats(data["kernels"]["h"])[int(data["best"]["member"])]
    used = [f"the best kernel, {RESOURCES[r]}: {value:.3g} % of peak" for r, value in zip(resources, best, strict=True)]
    beside = np.arange(len(resources)) + BESIDE
    traces.append(scatter(beside, best, "best kernel", "$ink", symbol="diamond-open", size=9, edge=1.75, hover="%{text}", text=used))
    shapes = [
        {
            "type": "line",
            "name": THETA_FIELDS[r],
            "x0": r - 0.46,
            "x1": r + 0.46,
            "y0": float(theta[r]),
            "y1": float(theta[r]),
            "line": {"color": "$ink", "width": 3},
            "editable": True,
        }
        for r in range(len(resources))
    ]
    notes += [label(r, 1, f"\u03b8 {theta[r]:.3g} %", "$ink", anchor="center", yref="paper", yanchor="bottom", shift=(0, 4)) for r in range(len(resources))]
    plot = layout(
        axis("resource", "no unit", range=[-0.5, len(resources) - 0.5], tickvals=list(range(len(resources))), ticktext=[RESOURCES[r] for r in resources]),
        axis("used by the representative", "% of peak", range=[0, 108], nticks=6),
        top=26,
        barmode="overlay",
        annotations=notes,
        shapes=shapes,
        meta={"editable": True},
    )
    plot["xaxis"]["showgrid"] = False
    masked = int(np.sum(h >= theta))
    full = f"{counted(masked, 'bar')} at or above the threshold (grey): the strategies for that resource are closed there, but never all six."
    closed = full if masked else "No bar reaches its threshold, so that no arm is masked."
    off = closed if params.mask else "The mask is off: no arm is closed by it."
    summary = (
        f"{off} Drag a threshold to search anew. A representative is the member nearest to its centroid, so a typical one; the best kernel (diamond) "
        "often uses more. Shares are bounds from a measured roofline, not hardware counters; the number on a bar is its cluster."
    )
    return Figure("headroom", "What the profiler sees of each cluster", traces, plot, summary, height=380)
