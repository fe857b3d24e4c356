"""The constants of the theorems: correct in order, far too careful to be used live.

rho, omega, beta everywhere: spectral gap and 2-norm of I - W (``graphs.Spectrum``), and the compressor's share in (0, 1].
"""

from __future__ import annotations

import math

RATE = 82.0  # of the compressed-gossip theorem: each round leaves at most 1 - rho^2 omega / 82


def gossip_step(rho: float, omega: float, beta: float) -> float:
    """gamma of compressed gossip (Koloskova et al. 2019, theorem 2), at which the disagreement contracts at ``contraction``.

    Raises ValueError for rho or omega outside (0, 1] or beta outside (0, 2].
    """
    _check(rho, omega, beta)
    return rho**2 * omega / (16 * rho + rho**2 + 4 * beta**2 + 2 * rho * beta**2 - 8 * rho * omega)


def contraction(rho: float, omega: float) -> float:
    """The theorem's factor a round on ||Y - mean||^2 + ||Y - replicas||^2 at ``gossip_step``.

    >>> round(contraction(1.0, 1.0), 4)
    0.9878
    """
    _check(rho, omega)
    return 1 - rho**2 * omega / RATE


def dcdogd_step(rho: float, omega: float, beta: float) -> float:
    """gamma of DC-DOGD (Tu et al. 2022). Raises ValueError as ``gossip_step`` does."""
    _check(rho, omega, beta)
    lossy = (omega + 2) * (1 - omega)
    spread = 48 * (rho**2 + 18 * rho * beta**2 + 36 * beta**2) * beta**2 * lossy + 4 * rho**2 * (beta + 1) * beta * lossy * omega
    return 3 * rho**3 * omega**2 * (omega + 1) / (spread + 6 * rho**3 * omega)


def gossip_rounds(rho: float, omega: float, factor: float = math.e) -> int:
    """L1 = ceil(82 ln(factor) / (rho^2 omega)): rounds after which the disagreement has shrunk by ``factor`` (c n in the paper).

    Raises ValueError for a factor of at most 1.
    """
    _check(rho, omega)
    return math.ceil(RATE * _log(factor) / (rho**2 * omega) - 1e-9)


def compensation_rounds(omega: float, factor: float = math.e) -> int:
    """L2 = ceil(ln(factor) / omega): rounds after which (1 - omega)^L2 is at most 1 / factor. Raises as ``gossip_rounds``."""
    _check(1.0, omega)
    return math.ceil(_log(factor) / omega - 1e-9)


def convex_step(diameter: float, gradient_bound: float, block: int, horizon: int) -> float:
    """eta = D / (G sqrt(L T)) for convex losses; all arguments above 0, or ValueError."""
    if min(diameter, gradient_bound, block, horizon) <= 0:
        raise ValueError("diameter, gradient bound, block and horizon must be above 0")
    return diameter / (gradient_bound * math.sqrt(block * horizon))


def strongly_convex_step(curvature: float, block: int, number: int) -> float:
    """eta_b = 1 / (mu L b) of block ``number`` = b, counted from 1; all arguments above 0, or ValueError."""
    if min(curvature, block, number) <= 0:
        raise ValueError("curvature, block length and number must be above 0")
    return 1 / (curvature * block * number)


def _log(factor: float) -> float:
    if not factor > 1:
        raise ValueError(f"the factor must be above 1, not {factor}")
    return math.log(factor)


def _check(rho: float, omega: float, beta: float = 1.0) -> None:
    if not 0 < rho <= 1:
        raise ValueError(f"the spectral gap must lie in (0, 1], not {rho}")
    if not 0 < omega <= 1:
        raise ValueError(f"omega must lie in (0, 1], not {omega}")
    if not 0 < beta <= 2:
        raise ValueError(f"beta must lie in (0, 2], not {beta}")
