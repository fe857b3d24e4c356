"""Mixtures of the same size beside the circuit: scikit-learn's Gaussian mixtures with diagonal and with full covariance."""

from __future__ import annotations

import warnings

import numpy as np


def gaussian_mixtures(train: np.ndarray, test: np.ndarray, components: int, seed: int) -> dict[str, float]:
    """Mean test log-likelihood (nats a point) of each kind. train: (n, d), test: (m, d), n >= components."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 100 rounds are what a peer gets, converged or not
        for kind in ("diag", "full"):
            mixture = GaussianMixture(components, covariance_type=kind, random_state=seed, reg_covar=4e-4).fit(train)
            found[kind] = float(mixture.score(test))
    return found
