"""What the pictures need of a race, as plain arrays: never a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import gaussian_kde

from backends.auxiliary_mcmc.diagnostics import kolmogorov_smirnov, marginal_quantiles, running_error, settled
from backends.auxiliary_mcmc.entrants import Plan
from backends.auxiliary_mcmc.race import Entrant
from backends.auxiliary_mcmc.reference import QUANTILES, Reference
from backends.auxiliary_mcmc.scenes import Scene
from backends.auxiliary_mcmc.theory import expected_batch, poisson_gap_bound, tuna_gap_bound

Array = np.ndarray

GRID = 45
REACH = 3.6  # sd around the mean that the posterior's picture shows
SMOOTHER = 1.25  # than Scott's rule, for contours without islands
BACKGROUND, LIT = 1_200, 700
CLOUD, CHAINS_SHOWN, TRAIL = 500, 5, 8
TRACE_POINTS = 240
SHARES = slice(0, None, 6)  # of the 199 quantiles
BINS = 36
KAPPA_GRID = np.logspace(-4, 0, 41)
CHI_GRID = np.logspace(-5, -1, 41)


def posterior(scene: Scene) -> dict[str, Any]:
    """The exact answer: a density over the first two coordinates, or over the one there is."""
    reference = scene.reference
    if scene.grid is not None:
        every = slice(None, None, 20)
        return {"names": list(scene.names), "x": scene.grid.theta[every], "density": scene.grid.density[every]}
    low, high = reference.mean - REACH * reference.sd, reference.mean + REACH * reference.sd
    x, y = (np.linspace(low[j], high[j], GRID) for j in (0, 1))
    return {"names": list(scene.names[:2]), "x": x, "y": y, "density": _density(reference, x, y)}


def _density(reference: Reference, x: Array, y: Array) -> Array:
    """(GRID, GRID) of the first two coordinates, the largest value 1; a row is one y."""
    if reference.points is None:
        away = [((v - reference.mean[j]) / reference.sd[j]) ** 2 for j, v in enumerate((x, y))]
        inside = [
            (v >= reference.quantiles[0, j] - 1.2 * reference.sd[j]) & (v <= reference.quantiles[-1, j] + 1.2 * reference.sd[j]) for j, v in enumerate((x, y))
        ]
        return np.exp(-(away[0][None, :] + away[1][:, None]) / 2) * (inside[0][None, :] & inside[1][:, None])
    law = gaussian_kde(reference.points[:, :2].T, weights=reference.weights)
    law.set_bandwidth(law.factor * SMOOTHER)
    found = law(np.stack([g.ravel() for g in np.meshgrid(x, y)])).reshape(GRID, GRID)
    return np.asarray(found / found.max())


def background(scene: Scene) -> dict[str, Any]:
    """A sample of all rows, every so many of them."""
    if scene.projection is None:
        lattice = scene.lattice
        assert lattice is not None
        return {"s": lattice.values.numpy(), "log_counts": lattice.log_counts.numpy(), "labels": ["sum over bonds S (count)", "probability"], "n": 1}
    every = slice(None, None, max(1, scene.n // BACKGROUND))
    return {"x": scene.projection.across[every], "y": scene.projection.up[every], "labels": list(scene.projection.labels), "n": scene.n}


def lit(scene: Scene, entrant: Entrant) -> dict[str, Any]:
    """The rows that the first chain read in its last step, at most LIT of them drawn, all of them counted."""
    rows = entrant.rows
    shown = rows[:: max(1, -(-len(rows) // LIT))]
    if scene.projection is None:
        return {"x": np.zeros(0), "y": np.zeros(0), "count": 1}
    return {"x": scene.projection.across[shown], "y": scene.projection.up[shown], "count": len(rows)}


def chains(entrant: Entrant) -> dict[str, Any]:
    """Where the chains are, where they just were, and a thinned cloud of all they drew, in the first two coordinates."""
    drawn = entrant.drawn[:, :, :2]
    kept = settled(drawn).reshape(-1, drawn.shape[2])
    return {"cloud": kept[:: max(1, -(-len(kept) // CLOUD))], "trail": drawn[-TRAIL:, :CHAINS_SHOWN], "now": drawn[-1]}


def moments(entrant: Entrant) -> dict[str, Any]:
    """Mean and covariance of the settled draws in the first two coordinates."""
    kept = settled(entrant.drawn)[:, :, :2]
    flat = kept.reshape(-1, kept.shape[2])
    return {"mean": flat.mean(0), "covariance": np.atleast_2d(np.cov(flat.T))}


def curve(entrant: Entrant, reference: Reference) -> dict[str, Any]:
    """The error of mean and sd after each stretch, against rows read and seconds taken."""
    at = np.array([steps for steps, _, _ in entrant.checkpoints])
    enough = at >= 2
    touches, seconds = (np.array([c[k] for c in entrant.checkpoints], float)[enough] for k in (1, 2))
    return {"touches": touches, "seconds": seconds, "error": running_error(entrant.drawn, at[enough], reference) if enough.any() else np.zeros(0)}


def marginals(entrant: Entrant, reference: Reference) -> dict[str, Any]:
    """Quantiles of every coordinate in posterior sd from the posterior mean, the reference's beside them, and the Kolmogorov-Smirnov distances."""
    found = (marginal_quantiles(entrant.drawn) - reference.mean) / reference.sd
    exact = (reference.quantiles - reference.mean) / reference.sd
    return {"share": QUANTILES[SHARES], "exact": exact[SHARES], "found": found[SHARES], "ks": kolmogorov_smirnov(entrant.drawn, reference)}


def traces(entrant: Entrant) -> dict[str, Any]:
    """The first coordinate of the first three chains over their steps."""
    drawn = entrant.drawn[:, :3, 0]
    every = max(1, -(-len(drawn) // TRACE_POINTS))
    return {"step": np.arange(1, len(drawn) + 1)[::every], "theta": drawn[::every]}


def histograms(entrant: Entrant, plan: Plan) -> dict[str, Any]:
    """Counts of log r, and of the rows a step read; the expected number where a formula gives it."""
    ratio = np.concatenate(entrant.ratios).ravel()
    finite = ratio[np.isfinite(ratio)]
    low, high = np.quantile(finite, (0.002, 0.998)) if finite.size else (-1.0, 1.0)
    edges = np.linspace(min(low, -0.1), max(high, 0.1), BINS + 1)
    batch = np.concatenate(entrant.batches).ravel()
    width = max(1, int(np.ceil((np.ptp(batch) + 1) / BINS)))
    batch_edges = np.arange(batch.min(), batch.max() + width + 1, width) - 0.5
    return {
        "log_ratio": {"edges": edges, "count": np.histogram(finite, edges)[0], "outside": int(ratio.size - finite.size)},
        "batch": {"edges": batch_edges, "count": np.histogram(batch, batch_edges)[0], "expected": plan.batch if plan.name.startswith("poisson") else None},
    }


def gap(scene: Scene, plan: Plan, kappa: float, chi: float) -> dict[str, Any]:
    """The bound on the spectral gap that is kept, and the expected batch, over the values of kappa (of chi for TunaMH)."""
    if plan.name.startswith("poisson") and scene.model is not None:
        total = float(scene.model.bounds.sum())
        bound, batch = poisson_gap_bound(total, KAPPA_GRID), expected_batch(total, KAPPA_GRID)
        return {"name": "kappa", "at": kappa, "grid": KAPPA_GRID, "bound": bound, "batch": batch, "total": total}
    return {"name": "chi", "at": chi, "grid": CHI_GRID, "bound": tuna_gap_bound(CHI_GRID)}


def summary(entrants: Sequence[Entrant], rates: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a sampler: what it did so far, and its rates where they are known."""
    return [
        {
            "name": e.sampler.name,
            "full": e.full,
            "step": e.sampler.step,
            "steps": e.steps * e.chains,
            "acceptance": e.acceptance,
            "batch": e.mean_batch,
            "touches": e.touched,
            "seconds": e.seconds,
            **rates.get(e.sampler.name, {}),
        }
        for e in entrants
    ]
