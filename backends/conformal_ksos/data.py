"""Generated data whose ideal band is known (sections 6 and 7 of the card).

x ~ U(-1, 1), y = sin(2x) + scale(x) * e, with scale(x) = 0.2 + 0.6 |x|, or 1 for the biased predictor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import norm

Array = np.ndarray
Noise = Literal["split-normal", "gaussian", "exponential", "biased"]
NOISES: tuple[Noise, ...] = ("split-normal", "gaussian", "exponential", "biased")

SIGMA_UPPER, SIGMA_LOWER = 1.5, 0.5  # of the split normal noise


def centre(x: Array) -> Array:
    """The line about which the noise is drawn."""
    return np.sin(2 * x)


def scale(x: Array, noise: Noise) -> Array:
    """Factor of the noise at x."""
    return np.ones_like(x) if noise == "biased" else 0.2 + 0.6 * np.abs(x)


def unit_noise(noise: Noise, size: int, rng: np.random.Generator) -> Array:
    """Draws before scaling: split normal (mode 0), N(0, 1), or Exp(1) - 1."""
    if noise == "split-normal":
        size_up = np.abs(rng.normal(size=size))
        up = rng.random(size) < SIGMA_UPPER / (SIGMA_UPPER + SIGMA_LOWER)
        return np.where(up, SIGMA_UPPER * size_up, -SIGMA_LOWER * size_up)
    if noise == "exponential":
        return rng.exponential(size=size) - 1.0
    return rng.normal(size=size)


def shortest_interval(noise: Noise, alpha: float) -> tuple[float, float]:
    """The shortest interval that holds 1 - alpha of the unit noise.

    >>> low, high = shortest_interval("split-normal", 0.1)
    >>> round(high - low, 3)
    3.29
    """
    if noise == "exponential":
        return -1.0, -1.0 - math.log(alpha)
    z = float(norm.ppf(1 - alpha / 2))
    return (-z * SIGMA_LOWER, z * SIGMA_UPPER) if noise == "split-normal" else (-z, z)


@dataclass(frozen=True, slots=True)
class Generated:
    """x, y: (n,); prediction: (n,) the column of predictions that comes with the data (the centre, or one sd above it)."""

    x: Array
    y: Array
    prediction: Array


def predicted(x: Array, noise: Noise) -> Array:
    """The prediction column at x: the centre, for the biased predictor one noise sd above it."""
    return centre(x) + (1.0 if noise == "biased" else 0.0)


def generate(noise: Noise, n: int, rng: np.random.Generator) -> Generated:
    """n rows of one kind of noise."""
    x = rng.uniform(-1, 1, n)
    y = centre(x) + scale(x, noise) * unit_noise(noise, n, rng)
    return Generated(x, y, predicted(x, noise))


def ideal_band(x: Array, noise: Noise, alpha: float) -> tuple[Array, Array]:
    """(lower, upper), each (m,): the shortest band with coverage 1 - alpha at every x."""
    low, high = shortest_interval(noise, alpha)
    return centre(x) + low * scale(x, noise), centre(x) + high * scale(x, noise)
