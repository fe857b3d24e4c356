"""The constants of the method: confidence radius, price bound, slack (the authors' defaults)."""

from __future__ import annotations

import math

import numpy as np

from backends.sp_ucb_olp.surplus import Array, checked_budget

CAP = 10.0  # a radius is at most so many times the largest reward
C_GRADIENT = C_NET = 1.0  # c_g and c_0: unknown in the paper, 1 in its code


def price_bound(r_max: float, budget: Array) -> float:
    """P_max = R_max / min_j b_j + 1: above it no request is worth its price. budget: (d,) units a round."""
    return _positive("r_max", r_max) / float(checked_budget(budget).min()) + 1.0


def default_slack(horizon: int) -> float:
    """epsilon = sqrt(ln T / T), the share of the budget that is kept back.

    >>> round(default_slack(1000), 3)
    0.083
    """
    return math.sqrt(math.log(_whole("horizon", horizon)) / horizon)


def safe_budget(budget: Array, slack: float) -> Array:
    """b_safe = (1 - epsilon) b, (d,) units a round. Raises ValueError unless 0 <= epsilon < 1."""
    if not 0 <= slack < 1:
        raise ValueError(f"the slack must be at least 0 and below 1, it is {slack}")
    return (1.0 - slack) * checked_budget(budget)


def confidence_radius(counts: Array, *, alpha: float, horizon: int, resources: int, r_max: float, a_max: float, price_max: float) -> Array:
    """beta_k = alpha R_max sqrt( [d ln max(d P_max A_max T / R_max, 2) + ln(2 K T / delta)] / max(1, N_k) ), at most 10 R_max.

    counts: (K,) requests seen of each configuration; delta = 1/T^2. The logarithms hold T, not t: beta falls with N_k alone. In units of
    reward, (K,) float64. Raises ValueError for a negative alpha or count, and for bounds that are not positive.

    >>> confidence_radius(np.array([25, 25]), alpha=0.1, horizon=1000, resources=2, r_max=1, a_max=1, price_max=11).round(6).tolist()
    [0.12978, 0.12978]
    """
    counts = np.asarray(counts)
    if counts.ndim != 1 or counts.size == 0 or not np.isfinite(counts).all() or (counts < 0).any():
        raise ValueError("counts must be one number a configuration, none negative")
    if not (np.isfinite(alpha) and alpha >= 0):
        raise ValueError(f"alpha must be finite and not negative, it is {alpha}")
    horizon, resources = _whole("horizon", horizon), _whole("resources", resources)
    r_max, a_max, price_max = _positive("r_max", r_max), _positive("a_max", a_max), _positive("price_max", price_max)
    net = resources * math.log(max(C_NET * resources * price_max * a_max * horizon / r_max, 2.0))
    confidence = math.log(2.0 * counts.size) + 3.0 * math.log(horizon)  # ln(2 K T / delta), delta = 1 / T^2
    raw: Array = alpha * C_GRADIENT * r_max * np.sqrt((net + confidence) / np.maximum(1, counts))
    return np.minimum(raw, CAP * r_max)


def _positive(name: str, value: float) -> float:
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be finite and positive, it is {value}")
    return float(value)


def _whole(name: str, value: int) -> int:
    if value != int(value) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, it is {value}")
    return int(value)
