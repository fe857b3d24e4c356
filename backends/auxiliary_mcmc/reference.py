"""The answer that stands beside the chains: exact where a formula gives it, else all data by importance sampling, with its own error.

A truncated Gaussian posterior has independent coordinates of known law. A robust or logistic posterior is integrated on the full data: quasi-random
points of a Student-t around its mode, in mirrored pairs, weighted by the exact posterior density. The law there is close to its own Laplace
approximation, so that a few hundred looks at all rows do what a long chain would need many thousands for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import chi2, norm, qmc, truncnorm

from backends.auxiliary_mcmc.ising import GridPosterior
from backends.auxiliary_mcmc.models import FullData, Logistic, RobustRegression, TruncatedGaussian

Array = np.ndarray

LOOKS = 2e8  # rows of all points together
POINTS = (128, 2048)  # mirrored pairs counted as two
FREEDOM = 8.0  # of the Student-t
WIDER = 1.1
NEWTON_STEPS = 60
BLOCK = 16  # points that look at the data together
QUANTILES = np.linspace(0.005, 0.995, 199)


@dataclass(frozen=True, slots=True)
class Reference:
    """The posterior that the chains are held against.

    mean, sd: (d,); error: the largest standard error of a mean in sd, 0 where it is exact; points: (m, d) with weights (m,) that sum to 1, or nothing
    where ``cumulative`` is exact; quantiles: (199, d) at QUANTILES; how: in words.
    """

    mean: Array
    sd: Array
    covariance: Array
    quantiles: Array
    error: float
    how: str
    points: Array | None = None
    weights: Array | None = None

    def cumulative(self, values: Array) -> Array:
        """F_j(values[:, j]) of every coordinate, (n, d), by its quantiles and beyond them by the Gaussian tail."""
        out = np.empty_like(values)
        for j in range(values.shape[1]):
            inner = np.interp(values[:, j], self.quantiles[:, j], QUANTILES)
            tail = norm.cdf((values[:, j] - self.mean[j]) / self.sd[j])
            outside = (values[:, j] < self.quantiles[0, j]) | (values[:, j] > self.quantiles[-1, j])
            out[:, j] = np.where(outside, np.where(values[:, j] < self.mean[j], np.minimum(tail, QUANTILES[0]), np.maximum(tail, QUANTILES[-1])), inner)
        return out


def gaussian_reference(model: TruncatedGaussian) -> Reference:
    """N(mean of the rows, Sigma / (N beta)) truncated to the box: coordinates are independent, their moments known in closed form."""
    centre = model.y.mean(0).numpy()
    scale = np.sqrt((model.variances / (model.y.shape[0] * model.tempering)).numpy())
    law = truncnorm((-model.support.size - centre) / scale, (model.support.size - centre) / scale, loc=centre, scale=scale)
    sd = law.std()
    return Reference(law.mean(), sd, np.diag(sd**2), law.ppf(QUANTILES[:, None]), 0.0, "exact: truncated normal coordinates")


def grid_reference(found: GridPosterior) -> Reference:
    """A posterior by quadrature, as one coordinate."""
    mean, sd = np.array([found.mean]), np.array([found.sd])
    quantiles = np.interp(QUANTILES, found.cumulative, found.theta)[:, None]
    return Reference(mean, sd, np.diag(sd**2), quantiles, 0.0, "exact: quadrature over the coupling")


class SeparableError(ValueError):
    """Two classes that a plane separates: without a prior their posterior cannot be normalised."""


def laplace(model: RobustRegression | Logistic, check: Callable[[], None] = lambda: None) -> tuple[Array, Array]:
    """(mode (d,), covariance (d, d)) of the full-data posterior by Newton with the weights kept positive.

    Raises SeparableError for separable logistic data on an unbounded support, ValueError when the rows leave a direction undetermined.
    """
    data, d = FullData(model), model.dimension
    theta = torch.zeros((1, d), dtype=torch.float64)
    hessian = torch.eye(d, dtype=torch.float64)
    for _ in range(NEWTON_STEPS):
        check()
        gradient, hessian, slack = torch.zeros(d, dtype=torch.float64), torch.zeros((d, d), dtype=torch.float64), math.inf
        safe = hessian.clone()
        for rows in data.chunks(1):
            seen = model.look(rows, theta)
            a, curve = rows[:, :d], model.curvature(seen.z[0])
            gradient += model.gradient(rows, theta, seen, None)[0]
            hessian += a.T @ (curve[:, None] * a)
            safe += a.T @ (curve.abs()[:, None] * a)
            slack = min(slack, float(seen.z.min()))
        if isinstance(model, Logistic) and model.support.kind == "all" and slack > 0:
            raise SeparableError("a plane separates the two classes")
        move = _solve(safe, gradient)
        theta = theta - move[None]
        if float(move.abs().max()) < 1e-9 * (1 + float(theta.abs().max())):
            break
    definite = bool((torch.linalg.eigvalsh(hessian) > 0).all())
    return theta[0].numpy(), torch.linalg.inv(hessian if definite else safe).numpy()


def _solve(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    values = torch.linalg.eigvalsh(matrix)
    if not float(values[0]) > 1e-12 * float(values[-1]):
        raise ValueError("the rows leave a direction of the coefficients undetermined")
    return torch.linalg.solve(matrix, vector)


def integrated_reference(model: RobustRegression | Logistic, seed: int, check: Callable[[], None] = lambda: None) -> Reference:
    """Moments and quantiles of the full-data posterior by importance sampling: first around its mode, then around what that found.

    Raises as ``laplace`` does.
    """
    centre, covariance = laplace(model, check)
    pairs = 2 ** int(math.log2(min(max(LOOKS / model.table.shape[0], POINTS[0]), POINTS[1]) / 2))
    drawn = _weighted(model, centre, WIDER**2 * covariance, pairs // 4, seed, check)
    drawn = _weighted(model, drawn.mean, drawn.covariance, pairs, seed + 1, check)
    points, weights = drawn.points, drawn.weights
    sd = np.sqrt(np.diag(drawn.covariance))
    # Mirrored pairs share most of their error: what is left is that of the pairs' weighted sums.
    away = weights[:, None] * (points - drawn.mean)
    error = float((np.sqrt(((away[:pairs] + away[pairs:]) ** 2).sum(0)) / sd).max())
    quantiles = np.stack([_quantiles(points[:, j], weights) for j in range(points.shape[1])], axis=1)
    how = f"all rows, importance sampling with {len(points)} points, standard error of a mean {error:.3f} sd"
    return Reference(drawn.mean, sd, drawn.covariance, quantiles, error, how, points, weights)


class _Weighted(NamedTuple):
    points: Array
    weights: Array
    mean: Array
    covariance: Array


def _weighted(model: RobustRegression | Logistic, centre: Array, covariance: Array, pairs: int, seed: int, check: Callable[[], None]) -> _Weighted:
    """Points of a Student-t (centre, covariance) in mirrored pairs, quasi-random, with the weights that make them the posterior's."""
    data, d = FullData(model), model.dimension
    uniform = qmc.Sobol(d + 1, rng=np.random.default_rng(seed)).random(pairs).clip(1e-12, 1 - 1e-12)
    normal = norm.ppf(uniform[:, :d]) / np.sqrt(chi2.ppf(uniform[:, d:], FREEDOM) / FREEDOM)
    away = normal @ np.linalg.cholesky(covariance).T
    points = np.concatenate([centre + away, centre - away])
    log_proposal = -(FREEDOM + d) / 2 * np.log1p((np.concatenate([normal, normal]) ** 2).sum(1) / FREEDOM)
    energy = np.empty(len(points))
    for begin in range(0, len(points), BLOCK):
        check()
        energy[begin : begin + BLOCK] = data.energy(torch.from_numpy(points[begin : begin + BLOCK])).numpy()
    inside = model.support.holds(torch.from_numpy(points)).numpy()
    log_weight = np.where(inside, -energy - log_proposal, -np.inf)
    weights = np.exp(log_weight - log_weight.max())
    weights /= weights.sum()
    mean = weights @ points
    centred = points - mean
    return _Weighted(points, weights, mean, centred.T @ (weights[:, None] * centred))


def _quantiles(values: Array, weights: Array) -> Array:
    order = np.argsort(values)
    mass = np.cumsum(weights[order]) - weights[order] / 2
    return np.interp(QUANTILES, mass, values[order])
