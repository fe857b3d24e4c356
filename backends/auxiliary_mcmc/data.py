"""The generated data of the scenes, drawn in the order that the reference figures of the method card were computed with."""

from __future__ import annotations

import numpy as np
import torch

from backends.auxiliary_mcmc.models import Logistic, RobustRegression, TruncatedGaussian

LOGISTIC_TRUTH = (1.0, -1.0, 0.5, 0.0, 2.0)
ROBUST_DIMENSION = 10
FLAT_VARIANCES = (1.0, 0.05)  # of the two-dimensional Gaussian
TALL_DIMENSION = 20


def robust_regression(n: int, seed: int, tempering: float = 1e-4, dimension: int = ROBUST_DIMENSION) -> RobustRegression:
    """x, noise ~ N(0, 1), every true coefficient 1: the paper's setting at n = 100,000 rows and tempering 1e-4."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, dimension))
    y = x.sum(1) + rng.normal(size=n)
    return RobustRegression(torch.from_numpy(x), torch.from_numpy(y), tempering=tempering)


def truncated_gaussian(n: int, seed: int, variances: np.ndarray, tempering: float = 1e-5) -> TruncatedGaussian:
    """Rows y ~ N(0, diag(variances)), the mean sought in the box of half-width 3."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(n, len(variances))) * np.sqrt(variances)
    return TruncatedGaussian(torch.from_numpy(y), torch.from_numpy(np.asarray(variances, float)), tempering=tempering)


def falling_variances(dimension: int = TALL_DIMENSION) -> np.ndarray:
    """(dimension,) from 1 down to 0.05 in equal steps: the paper's setting at 20."""
    return np.linspace(1.0, 0.05, dimension)


def tall_logistic(n: int, seed: int, tempering: float = 1e-3) -> Logistic:
    """Five features ~ N(0, 1), coefficients (1, -1, 0.5, 0, 2), outcomes drawn by them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, len(LOGISTIC_TRUTH)))
    y = rng.uniform(size=n) < 1 / (1 + np.exp(-x @ np.array(LOGISTIC_TRUTH)))
    return Logistic(torch.from_numpy(x), torch.from_numpy(y.astype(float)), tempering=tempering)
