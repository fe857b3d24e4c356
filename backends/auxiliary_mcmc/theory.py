"""What is proved about speed: the spectral gap kept by a minibatch, as a share of the ideal chain's (section 4.7 of the method card)."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def poisson_gap_bound(total: float, kappa: Array | float) -> Array:
    """Gap(aux) / Gap(ideal) is at least max{exp(-L^2/(lambda+L))/2, exp(-1/e) exp(-L^2/(2 lambda))}, lambda = kappa L^2; total is L. Shape of kappa.

    Raises ValueError unless L and every kappa are above 0.
    """
    kappa = np.asarray(kappa, float)
    if not total > 0 or not (kappa > 0).all():
        raise ValueError("L and kappa must be above 0")
    lam = kappa * total**2
    return np.maximum(0.5 * np.exp(-(total**2) / (lam + total)), np.exp(-np.exp(-1.0) - total**2 / (2 * lam)))


def tuna_gap_bound(chi: Array | float) -> Array:
    """Gap(aux) / Gap(ideal) is at least exp(-1/(2 chi)). Shape of chi. Raises ValueError unless every chi is above 0."""
    chi = np.asarray(chi, float)
    if not (chi > 0).all():
        raise ValueError("chi must be above 0")
    return np.exp(-1 / (2 * chi))


def expected_batch(total: float, kappa: Array | float) -> Array:
    """lambda + L = kappa L^2 + L: the rows that a Poisson step is expected to touch."""
    return np.asarray(kappa, float) * total**2 + total
