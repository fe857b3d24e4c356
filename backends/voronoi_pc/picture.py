"""What the pictures need, as plain arrays: the plane with its cells, boxes, curves of bounds, intervals of test points."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backends.voronoi_pc.answers import Curve, Hard
from backends.voronoi_pc.card import Params
from backends.voronoi_pc.hierarchical import FactorisedVoronoi
from backends.voronoi_pc.refinement import Bounds, Refinement
from backends.voronoi_pc.rows import Rows
from backends.voronoi_pc.slices import cell_polygons

Array = np.ndarray
WIDE, HIGH = 96, 64  # pixels of the density
ASPECT = 1.5  # of the plane, which the main picture's place on a page has too
SHOWN_POINTS = 300
SHOWN_BOXES = 700  # of each kind
SHOWN_MASS = 0.99  # of the mass of each kind
SHOWN_SD = 2.5  # standard deviations as far as a box is drawn: its far part holds next to nothing and would cover everything
SHOWN_TESTS = 120
SHOWN_HISTORY = 150
PAD = 0.08  # of the points' range, around the plane


def made_by(params: Params, rows: Rows, trained: bool) -> dict[str, str]:
    kind = {"voronoi": "Voronoi sum, hard gate", "hfv": "factorised Voronoi circuit", "constant": "mixture, no cells"}[params.gate]
    size = f"{params.cells} cells, {rows.dimension} variables, {len(rows.train)} training points" if trained else f"{rows.dimension} variables, experts given"
    return {"model": kind, "data": rows.source, "size": size, "device": "cpu, float64"}


def window(rows: Rows) -> tuple[Array, Array]:
    """Lower and upper corner (2,) of the plane that is shown: the first two variables."""
    points = np.concatenate([rows.train, rows.test])[:, :2]
    low, high = points.min(0), points.max(0)
    low, high = low - PAD * (high - low), high + PAD * (high - low)
    width, height = high - low
    more = np.maximum([ASPECT * height - width, width / ASPECT - height], 0) / 2
    return low - more, high + more


def opening(rows: Rows) -> dict[str, Any]:
    """The points and the frame of the plane."""
    low, high = window(rows)
    shown = rows.train[:: max(1, len(rows.train) // SHOWN_POINTS)][:SHOWN_POINTS, :2]
    return {"points": shown.astype(np.float32), "low": low, "high": high, "dimension": rows.dimension}


def pixels(rows: Rows) -> tuple[Array, Array, Tensor]:
    """Places of the density's pixels along both axes, and all of them (HIGH * WIDE, 2)."""
    low, high = window(rows)
    x, y = (np.linspace(low[i], high[i], count) for i, count in enumerate((WIDE, HIGH)))
    across, up = np.meshgrid(x, y)
    return x, y, torch.from_numpy(np.stack([across.reshape(-1), up.reshape(-1)], 1))


def density(rows: Rows, log_density: Callable[[Tensor], Tensor]) -> dict[str, Array]:
    """The density (HIGH, WIDE) over the plane."""
    x, y, places = pixels(rows)
    return {"x": x, "y": y, "z": torch.exp(log_density(places)).numpy().reshape(HIGH, WIDE).astype(np.float32)}


def marginal_density(model: FactorisedVoronoi, rows: Rows) -> dict[str, Array]:
    """The exact density of the first two variables, all others integrated out."""
    z = model.partition()
    return density(rows, lambda at: torch.log(model.marginal({0: at[:, 0].contiguous(), 1: at[:, 1].contiguous()}, {}) / z))


def walls(model: Hard, rows: Rows) -> dict[str, Any]:
    """The cells' outlines as one line with gaps, and the centroids that a hand may move; without walls where a plane cannot show them."""
    low, high = window(rows)
    if isinstance(model, FactorisedVoronoi):
        lines = [_across(i, at, low, high) for i in range(2) for at in model.walls[i][0][1:].numpy()]
        return {"outline": _joined(lines)} if lines else {}
    centroids = model.centroids.numpy()
    if model.dimension > 2:
        return {"centroids": centroids[:, :2]}
    outlines = [np.concatenate([corners, corners[:1]]) for corners in cell_polygons(centroids, low, high) if len(corners)]
    return {"outline": _joined(outlines), "centroids": centroids} if len(centroids) > 1 else {"centroids": centroids}


def _across(axis: int, at: float, low: Array, high: Array) -> Array:
    ends = np.stack([low, high])
    ends[:, axis] = at
    return ends


def _joined(lines: list[Array]) -> Array:
    gap = np.full((1, 2), np.nan)
    return np.concatenate([part for line in lines for part in (line, gap)])


def boxes(made: Refinement, rows: Rows) -> dict[str, Any]:
    """The heaviest boxes of each kind, as far as their expert reaches in the plane: (b, 4) of x0, y0, x1, y1; and how many there are."""
    low, high, owner, mass = made.inside()
    found: dict[str, Any] = {"inside_count": len(low), "straddling_count": len(made.mass)}
    if rows.dimension != 2:
        return found
    frame_low, frame_high = (torch.from_numpy(end) for end in window(rows))
    kinds = (("inside", low, high, owner, mass), ("straddling", made.low, made.high, made.owner, made.mass))
    for name, lower, upper, expert, weights in kinds:
        heaviest = torch.argsort(weights, descending=True)[:SHOWN_BOXES]
        kept = heaviest[torch.cumsum(weights[heaviest], 0) <= SHOWN_MASS * weights.sum()]
        mean, reach = made.mean[expert[kept]], SHOWN_SD * made.sd[expert[kept]]
        start, end = torch.maximum(frame_low, mean - reach), torch.minimum(frame_high, mean + reach)
        corners = torch.cat([torch.maximum(lower[kept], start), torch.minimum(upper[kept], end)], 1)
        visible = (corners[:, :2] < corners[:, 2:]).all(-1)
        if bool(visible.any()):
            found[name] = corners[visible].numpy().astype(np.float32)
    return found


def bounds(found: Bounds, exact: float | None) -> dict[str, Any]:
    """Splits, lower and upper bound so far, thinned evenly on the log scale."""
    history = found.history.numpy()
    spread = np.unique(np.geomspace(1, len(history), SHOWN_HISTORY).astype(int) - 1)
    kept = history[spread]
    return {"splits": kept[:, 0], "lower": kept[:, 1], "upper": kept[:, 2], "exact": exact}


def likelihood(log_f: Array, log_mixture: Array, lower: float, upper: float) -> dict[str, Array]:
    """Test points in the order of log f: the interval of log p of each, and the mixture's value. log_f, log_mixture: (m,)."""
    order = np.argsort(log_f)
    kept = order[np.unique(np.linspace(0, len(order) - 1, min(SHOWN_TESTS, len(order))).astype(int))]
    shown = log_f[kept]
    low, high = shown - math.log(upper), shown - math.log(lower) if lower > 0 else np.full(shown.size, np.nan)
    return {"lower": np.where(np.isfinite(low), low, np.nan), "upper": np.where(np.isfinite(high), high, np.nan), "mixture": log_mixture[kept]}


def curve(found: Curve) -> dict[str, Any]:
    """A density's band; an upper end that is not finite becomes NaN."""
    upper = np.where(np.isfinite(found.upper), found.upper, np.nan)
    return {"at": found.at, "lower": found.lower, "upper": upper, "exact": found.exact}


def training(losses: Mapping[str, tuple[float, ...]], alpha: tuple[float, float], score: float) -> dict[str, Any]:
    """Mean loss of each epoch, of the circuit and of the mixture."""
    return {"losses": {name: np.array(values) for name, values in losses.items()}, "alpha": list(alpha), "score": score}
