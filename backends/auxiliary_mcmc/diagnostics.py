"""How good the draws of a sampler are: effective sample size and R-hat by arviz, errors against the reference, laws of the marginals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backends.auxiliary_mcmc.reference import QUANTILES, Reference

Array = np.ndarray

WARM_UP = 0.2  # share of a chain that is left out
FEWEST_DRAWS = 4  # of a chain, below which arviz gives nothing


@dataclass(frozen=True, slots=True)
class Quality:
    """Of one sampler. ess, rhat: (d,), NaN where there are too few draws or a chain never moved; mean, sd: (d,)."""

    ess: Array
    rhat: Array
    mean: Array
    sd: Array


def effective(draws: Array) -> tuple[Array, Array]:
    """(ESS, R-hat) of each coordinate, by arviz: the bulk ESS and the rank-normalised split R-hat. draws: (T, C, d).

    NaN below four draws a chain, or where a chain never moved.
    """
    from arviz_stats.base import array_stats

    steps, _, d = draws.shape
    moved = (np.ptp(draws, axis=0) > 0).all(0)
    ess, rhat = np.full(d, np.nan), np.full(d, np.nan)
    if steps >= FEWEST_DRAWS and moved.any():
        with np.errstate(divide="ignore", invalid="ignore"):  # half a chain that never moved has no variance
            ess[moved] = array_stats.ess(draws[:, :, moved], chain_axis=1, draw_axis=0)
            rhat[moved] = array_stats.rhat(draws[:, :, moved], chain_axis=1, draw_axis=0)
    return ess, rhat


def settled(draws: Array) -> Array:
    """The draws (T, C, d) without their warm-up."""
    return draws[int(WARM_UP * len(draws)) :]


def quality(draws: Array) -> Quality:
    """Of draws (T, C, d), the warm-up left out."""
    kept = settled(draws)
    ess, rhat = effective(kept)
    flat = kept.reshape(-1, kept.shape[2])
    return Quality(ess, rhat, flat.mean(0), flat.std(0))


def running_error(draws: Array, at: Array, reference: Reference) -> Array:
    """The error of mean and sd after each number of steps in ``at`` (m,), each with its own first fifth left out; (m,) in posterior sd.

    sqrt of the mean over coordinates of ((mean - mu)/sigma)^2 + (s/sigma - 1)^2, by running sums. draws: (T, C, d).
    """
    scaled = (draws - reference.mean) / reference.sd
    zero = np.zeros((1, draws.shape[2]))
    first = np.concatenate([zero, np.cumsum(scaled.mean(1), axis=0)])
    second = np.concatenate([zero, np.cumsum((scaled**2).mean(1), axis=0)])
    begin = (WARM_UP * at).astype(int)
    number = (at - begin)[:, None]
    mean, square = (first[at] - first[begin]) / number, (second[at] - second[begin]) / number
    sd = np.sqrt(np.maximum(square - mean**2, 0))
    return np.sqrt((mean**2 + (sd - 1) ** 2).mean(1))


def marginal_quantiles(draws: Array) -> Array:
    """(199, d) quantiles of the settled draws, at the same shares as the reference's."""
    kept = settled(draws)
    return np.quantile(kept.reshape(-1, kept.shape[2]), QUANTILES, axis=0)


def kolmogorov_smirnov(draws: Array, reference: Reference) -> Array:
    """(d,) the largest distance between the distribution functions of the settled draws and of the reference, over the reference's quantiles."""
    kept = settled(draws)
    flat = np.sort(kept.reshape(-1, kept.shape[2]), axis=0)
    found = [np.searchsorted(flat[:, j], reference.quantiles[:, j], side="right") / len(flat) for j in range(flat.shape[1])]
    return np.abs(np.stack(found, axis=1) - QUANTILES[:, None]).max(0)
