"""Plain data for the pictures of one run: what ``frame.data`` holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backends.conformal_ksos import data as generated
from backends.conformal_ksos.card import Params
from backends.conformal_ksos.conformal import BandReport, HalfWidths, Interval, clopper_pearson, conformal_quantile, rank_needed
from backends.conformal_ksos.cross_validation import Curves
from backends.conformal_ksos.kernel import Features
from backends.conformal_ksos.rows import GRID_POINTS, Prepared, Rows
from backends.conformal_ksos.selection import SYMMETRY_GRID
from backends.conformal_ksos.solver import Operators

Array = np.ndarray

MAX_POINTS = 2000  # drawn of each part
BINS = 5
ASCENDING = slice(None, None, -1)  # the path is solved from inf to 0 and drawn from 0 to inf
SLIDER_ENDS = (1e-3, 1e3)  # where 0 and inf are drawn


def in_words(lambda3: float) -> float | str:
    """The symmetry as the metric says it."""
    return "separate" if lambda3 == 0 else "symmetric" if math.isinf(lambda3) else lambda3


@dataclass(frozen=True, slots=True)
class Calibrated:
    """One band after calibration. scores: (n_c,); test and grid: its edges there; report: on the test rows."""

    quantile: float
    scores: Array
    test: Interval
    grid: Interval
    report: BandReport


@dataclass(frozen=True, slots=True)
class Places:
    """Features Phi of all rows that a band is evaluated on: calibration (r, n_c), test (r, n_t), grid (r, 200)."""

    features: Features
    calibration: Array
    test: Array
    grid: Array

    @classmethod
    def of(cls, prepared: Prepared, multiplier: float) -> Places:
        features, rows = prepared.training.features(multiplier), prepared.rows
        parts = (rows.x[rows.calibration], rows.x[rows.test], prepared.grid)
        return cls(features, *(features(prepared.training.standardise(part)) for part in parts))


@dataclass(frozen=True, slots=True)
class Shape:
    """Half-widths of one fit at the calibration, test and grid rows, before calibration."""

    calibration: HalfWidths
    test: HalfWidths
    grid: HalfWidths

    @classmethod
    def of(cls, operators: Operators, places: Places, residual_sd: float, delta: float) -> Shape:
        parts = [operators.envelopes(phi) for phi in (places.calibration, places.test, places.grid)]
        return cls(*(HalfWidths.of(f_upper, f_lower, residual_sd, delta) for f_upper, f_lower in parts))

    def calibrated(self, prepared: Prepared, alpha: float) -> Calibrated:
        """Sets q from the calibration rows and reports on the test rows."""
        rows, mean = prepared.rows, prepared.mean
        scores = self.calibration.scores(rows.y[rows.calibration] - mean[rows.calibration])
        quantile = conformal_quantile(scores, alpha)
        test = self.test.band(mean[rows.test], quantile)
        return Calibrated(quantile, scores, test, self.grid.band(prepared.grid_mean, quantile), test.report(rows.y[rows.test]))


def points(rows: Rows) -> dict[str, Any]:
    """The rows as points with their role; of large parts the first 2,000, which are a random sample."""
    parts = [part[:MAX_POINTS] for part in (rows.train, rows.calibration, rows.test)]
    shown = np.concatenate(parts)
    role = np.repeat(np.arange(3, dtype=np.uint8), [len(part) for part in parts])
    return {"x": rows.x[shown, 0], "y": rows.y[shown], "role": role}


def opening(rows: Rows, params: Params) -> dict[str, Any]:
    """What is known before anything is fitted."""
    axes = {"x": rows.labels[0], "y": rows.labels[1]}
    found: dict[str, Any] = {"made_by": made_by(rows, params), "axes": axes, "points": points(rows), "notes": list(rows.notes)}
    if rows.columns:
        found["columns"] = dict(rows.columns)
    if params.data in generated.NOISES:
        x = np.linspace(rows.x[:, 0].min(), rows.x[:, 0].max(), GRID_POINTS)
        lower, upper = generated.ideal_band(x, params.data, params.alpha)
        found["truth"] = {"x": x, "lower": lower, "upper": upper}
    return found


def made_by(rows: Rows, params: Params, predictor: str = "", features: Features | None = None) -> dict[str, str]:
    """What made a frame; the predictor and the rank are added once they are known."""
    size = f"{len(rows.train)} train, {len(rows.calibration)} calibration, {len(rows.test)} test"
    rank = f"; rank {features.v.shape[0]}" if features is not None else ""
    model = (predictor and f"{predictor} + ") + f"kernel sums of squares (Matérn-5/2, {params.penalty} penalty)"
    return {"model": model, "data": rows.source, "size": size + rank, "device": "cpu"}


def grid(prepared: Prepared, now: Calibrated | None, symmetric: Calibrated, constant: Interval) -> dict[str, Any]:
    """Middle line and bands along the first feature; edges at infinity are left out."""
    found: dict[str, Any] = {"x": prepared.grid[:, 0], "mean": prepared.grid_mean}
    for suffix, band in (("", now.grid if now else None), ("_symmetric", symmetric.grid), ("_constant", constant)):
        if band is not None and np.isfinite(band.upper).all() and np.isfinite(band.lower).all():
            found |= {"lower" + suffix: band.lower, "upper" + suffix: band.upper}
    return found


def selection_curves(found: Curves) -> dict[str, Any]:
    """Both statistics along the path, from separate to symmetric."""
    ascending = tuple(reversed(SYMMETRY_GRID))
    labels = [str(in_words(v)) if v in (0.0, math.inf) else f"{v:g}" for v in ascending]
    drawn = np.clip(np.array(ascending), *SLIDER_ENDS)
    return {"symmetry": drawn, "labels": labels, "dcov": found.dcov[ASCENDING], "hsic": found.hsic[ASCENDING]}


def measured_path(bands: Sequence[Calibrated]) -> dict[str, Array]:
    """Widths, misses and coverage on the test rows of all bands of the path (given from inf to 0)."""
    reports = [band.report for band in reversed(bands)]
    found = {"width": np.array([math.nan if r.mean_width is None else r.mean_width for r in reports])}
    return found | {name: np.array([getattr(r, name) for r in reports]) for name in ("miss_above", "miss_below", "coverage")}


def local(rows: Rows, now: Calibrated, symmetric: Calibrated) -> dict[str, Array]:
    """Test coverage in five bins of the first feature with as many rows each, with 95 % Clopper-Pearson bars."""
    x, y = rows.x[rows.test, 0], rows.y[rows.test]
    edges = np.quantile(x, np.linspace(0, 1, BINS + 1))
    which = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, BINS - 1)
    count = np.bincount(which, minlength=BINS)
    hits = np.bincount(which[(y >= now.test.lower) & (y <= now.test.upper)], minlength=BINS)
    hits_symmetric = np.bincount(which[(y >= symmetric.test.lower) & (y <= symmetric.test.upper)], minlength=BINS)
    low, high = clopper_pearson(hits, count)
    with np.errstate(invalid="ignore"):
        coverage, coverage_symmetric = hits / count, hits_symmetric / count
    found = {"left": edges[:-1], "right": edges[1:], "count": count, "coverage": coverage, "low": low, "high": high}
    return found | {"coverage_symmetric": coverage_symmetric}


def calibration(prepared: Prepared, now: Calibrated, alpha: float) -> dict[str, Any]:
    """Scores by side with q, and the law of coverage given the calibration rows."""
    rows = prepared.rows
    above = rows.y[rows.calibration] > prepared.mean[rows.calibration]
    quantile = now.quantile if math.isfinite(now.quantile) else None
    n_calibration = len(rows.calibration)
    law = {"k": rank_needed(n_calibration, alpha), "n_calibration": n_calibration, "observed": now.report.coverage, "n_test": len(rows.test)}
    return {"scores": {"above": now.scores[above], "below": now.scores[~above], "quantile": quantile}, "law": law}


def convergence(trace: Sequence[tuple[float, float, float]]) -> Mapping[str, Array]:
    """(dual, feasible primal, gap) per iteration; an infinite primal (no operator yet) is NaN."""
    values = np.array(trace)
    dual, primal, gap = np.where(np.isfinite(values), values, np.nan).T
    return {"iteration": np.arange(len(values)), "dual": dual, "primal": primal, "gap": gap}
