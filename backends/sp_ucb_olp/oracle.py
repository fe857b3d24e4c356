"""The fluid oracle: what a policy that knows every law can earn a round, with and without mixing configurations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backends.sp_ucb_olp.saddle import EXACT, TOLERANCE, Saddle, cutting_planes
from backends.sp_ucb_olp.surplus import Array, Surplus, checked_budget


@dataclass(frozen=True, slots=True)
class Oracle:
    """The saddle point of the true law.

    v_mix, v_fix: reward a round of the best mixture and of the best fixed configuration; prices: p* (d,); mixture: w* (K,); use: (d,) of the
    mixture at p*; fixed: number of the best fixed configuration; fixed_prices (d,) and fixed_use (d,): its own.
    """

    v_mix: float
    v_fix: float
    prices: Array
    mixture: Array
    use: Array
    fixed: int
    fixed_prices: Array
    fixed_use: Array


def fluid_oracle(surplus: Surplus, budget: Array, *, configurations: int, price_max: float) -> Oracle:
    """V_mix(b) = min_p b.p + max_k g_k(p), the mixture from its dual multipliers, and V_fix(b) = max_k min_p b.p + g_k(p).

    surplus: prices (d,) -> g (K,) and h (K, d), exact; budget: (d,) units a round; price_max: upper end of every price, large enough that
    it does not bind. Raises ValueError for a budget that is not positive.
    """
    budget = checked_budget(budget)
    none = np.zeros(configurations)
    mixed = cutting_planes(surplus, budget, none, price_max, tolerance=EXACT)
    value, prices = _centred(surplus, budget, mixed)
    alone = [_centred(_alone(surplus, k), budget, fixed_saddle(surplus, k, budget, 0.0, price_max, tolerance=EXACT)) for k in range(configurations)]
    fixed = int(np.argmax([v for v, _ in alone]))
    fixed_value, fixed_prices = alone[fixed]
    use = mixed.mixture @ surplus(prices)[1]
    return Oracle(value, fixed_value, prices, mixed.mixture, use, fixed, fixed_prices, surplus(fixed_prices)[1][fixed])


def _centred(surplus: Surplus, budget: Array, found: Saddle) -> tuple[float, Array]:
    """(value, prices) of the better of the best price tried and the mean of the tried prices under their weights.

    Where the surplus is smooth the prices tried lie around the optimum, and the mean is nearer to it by orders of magnitude.
    """
    mean = found.weights.sum(axis=1) @ found.tried
    value = float(budget @ mean + surplus(mean)[0].max())
    return (value, mean) if value <= found.value else (found.value, found.prices)


def fixed_saddle(
    surplus: Surplus, k: int, budget: Array, bonus: float, price_max: float, *, start: Array | None = None, tolerance: float = TOLERANCE
) -> Saddle:
    """min_p b.p + g_k(p) + bonus for configuration k alone; options as ``cutting_planes``."""
    return cutting_planes(_alone(surplus, k), budget, np.array([bonus]), price_max, start=start, tolerance=tolerance)


def _alone(surplus: Surplus, k: int) -> Surplus:
    def of_one(prices: Array) -> tuple[Array, Array]:
        g, h = surplus(prices)
        return g[k : k + 1], h[k : k + 1]

    return of_one
