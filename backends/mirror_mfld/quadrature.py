"""Quadrature over a domain with its logarithmic barrier as weight: Gauss-Jacobi in the directions that meet a wall."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from scipy.special import gammaln

from backends.mirror_mfld.domains import Ball, Box, Domain, Simplex, whole_number
from backends.mirror_mfld.spectraplex import Spectraplex

Array = np.ndarray
ANGLES_PER_NODE = 3
LARGEST_RULE = 600_000  # nodes


@dataclass(frozen=True)
class Quadrature:
    """nodes: (G, *shape) float64 tensor; weights: (G,) of the law with density exp(-exponent B) / Z, which sum to 1; log_volume: log Z."""

    nodes: torch.Tensor
    weights: Array
    log_volume: float


def gauss_jacobi(n: int, left: float, right: float) -> tuple[Array, Array]:
    """Nodes (n,) in (0, 1) and weights (n,) that sum to 1 for the Beta law with density u^left (1 - u)^right.

    By the eigenvalues of the Jacobi matrix, which stay accurate for exponents of many hundreds. Raises ValueError for n < 1 or an exponent
    of at most -1.
    """
    n = whole_number(n, 1, "n")
    if not (left > -1 and right > -1):
        raise ValueError(f"the exponents must be above -1, not {left} and {right}")
    k = np.arange(1, n)
    total = left + right
    diagonal = np.empty(n)
    diagonal[0] = (left - right) / (total + 2)
    diagonal[1:] = (left**2 - right**2) / ((2 * k + total) * (2 * k + total + 2))
    beside = 4 * k * (k + left) * (k + right) * (k + total) / ((2 * k + total) ** 2 * (2 * k + total + 1) * np.where(k == 1, 1, 2 * k + total - 1))
    if n > 1:  # for k = 1 the factors k + total and 2 k + total - 1 cancel; both vanish at total = -1
        beside[0] = 4 * (1 + left) * (1 + right) / ((2 + total) ** 2 * (3 + total))
    values, vectors = eigh_tridiagonal(diagonal, np.sqrt(beside))
    weights = vectors[0] ** 2
    return (1 + values) / 2, weights / weights.sum()


def quadrature(domain: Domain, exponent: float = 0.0, nodes: int = 64) -> Quadrature:
    """A product rule with about ``nodes`` nodes a direction for the density exp(-exponent B(x)) with respect to the chart's Lebesgue measure.

    Simplex and box of any dimension, ball of dimension 1 or 2, spectraplex of 2 x 2. Raises ValueError elsewhere, for a negative
    exponent, and above 600,000 nodes.
    """
    nodes = whole_number(nodes, 2, "nodes")
    if not (math.isfinite(exponent) and exponent >= 0):
        raise ValueError(f"the exponent must be at least 0, not {exponent}")
    if isinstance(domain, Simplex):
        points, weights = _sticks(domain.shares, exponent, nodes)
        volume = domain.shares * gammaln(exponent + 1) - gammaln(domain.shares * (exponent + 1))
    elif isinstance(domain, Box):
        _bounded(nodes**domain.dimension)
        side, weight = gauss_jacobi(nodes, exponent, exponent)
        points = np.stack(np.meshgrid(*[2 * side - 1] * domain.dimension, indexing="ij"), -1).reshape(-1, domain.dimension)
        weights = np.prod(np.stack(np.meshgrid(*[weight] * domain.dimension, indexing="ij"), -1).reshape(-1, domain.dimension), axis=1)
        volume = domain.dimension * _ball_volume(1, exponent)
    elif isinstance(domain, Ball) and domain.dimension == 1:
        side, weights = gauss_jacobi(nodes, exponent, exponent)
        points, volume = (2 * side - 1)[:, None], _ball_volume(1, exponent)
    elif isinstance(domain, Ball) and domain.dimension == 2:
        points, weights = _disc(exponent, nodes)
        volume = _ball_volume(2, exponent)
    elif isinstance(domain, Spectraplex) and domain.size == 2:
        points, weights = _disc(exponent, nodes)
        volume = _ball_volume(2, exponent) - exponent * math.log(4)  # det S = (1 - r^2) / 4
        return Quadrature(domain.from_chart(torch.from_numpy(points)), weights, volume)
    else:
        raise ValueError(f"there is no quadrature on the {domain.name} of dimension {domain.dimension}")
    return Quadrature(torch.from_numpy(np.ascontiguousarray(points)), weights, float(volume))


def _ball_volume(dimension: int, exponent: float) -> float:
    """log of the integral of (1 - r^2)^exponent over the ball."""
    return float(dimension / 2 * math.log(math.pi) + gammaln(exponent + 1) - gammaln(exponent + 1 + dimension / 2))


def _bounded(count: int) -> None:
    if count > LARGEST_RULE:
        raise ValueError(f"the rule would have {count:,} nodes, above {LARGEST_RULE:,}; choose fewer a direction")


def _sticks(shares: int, exponent: float, nodes: int) -> tuple[Array, Array]:
    """Stick breaking: each share takes a part u of what is left, u ~ Beta, so a product of Gauss-Jacobi rules is a rule of the simplex."""
    _bounded(nodes ** (shares - 1))
    points, weights, left = np.zeros((1, 0)), np.ones(1), np.ones(1)
    for rest in range(shares - 1, 0, -1):
        part, weight = gauss_jacobi(nodes, exponent, rest * (exponent + 1) - 1)
        points = np.concatenate([np.repeat(points, nodes, 0), (left[:, None] * part).reshape(-1, 1)], axis=1)
        left = (left[:, None] * (1 - part)).reshape(-1)
        weights = (weights[:, None] * weight).reshape(-1)
    return np.concatenate([points, left[:, None]], axis=1), weights


def _disc(exponent: float, nodes: int) -> tuple[Array, Array]:
    """Gauss-Jacobi in the squared radius, equal steps in the angle."""
    square, weight = gauss_jacobi(nodes, 0.0, exponent)
    angle = 2 * math.pi * (np.arange(ANGLES_PER_NODE * nodes) + 0.5) / (ANGLES_PER_NODE * nodes)
    radius = np.sqrt(square)[:, None]
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).reshape(-1, 2)
    return points, np.repeat(weight / angle.size, angle.size)
