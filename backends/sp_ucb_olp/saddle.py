"""The saddle point of the fluid problem, min over prices of max over mixtures: Kelley's cutting planes, and one linear program as reference.

    V(b) = min_{0 <= p <= P_max}  b.p + max_k ( g_k(p) + bonus_k )

The mixture is the vector of dual multipliers of the rows "z >= g_k + bonus_k": it is what makes a tie between configurations feasible,
and it is not uniform.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from backends.sp_ucb_olp.highs import Master
from backends.sp_ucb_olp.surplus import Array, Surplus, checked_budget, checked_requests, surplus_of_samples

TOLERANCE = 1e-6  # relative gap at which a live solve stops
EXACT = 1e-10  # and one of the fluid oracle: as exact as the rows of the LP are
MAX_CUTS = 400  # rounds of cutting planes; 8 to 14 are usual


@dataclass(frozen=True, slots=True)
class Saddle:
    """A saddle point.

    value: b.p + max_k(g_k(p) + bonus_k) at prices (d,), in units of reward a round; mixture: (K,), not negative, sums to 1; bound: a proven
    lower bound of the optimum; tried: (m, d) prices of the cuts, in order; weights: (m, K) dual multiplier of configuration k's cut there.
    """

    value: float
    prices: Array
    mixture: Array
    bound: float
    tried: Array
    weights: Array

    @property
    def gap(self) -> float:
        """Relative duality gap: value against the proven bound."""
        return (self.value - self.bound) / max(1.0, abs(self.value))

    def restart(self) -> Array:
        """(m, d) prices to begin the next solve with: cuts die when samples are added, but where they carried weight new ones are wanted."""
        return np.vstack([self.tried[self.weights.any(axis=1)], self.prices])


def saddle_point(
    rewards: Sequence[Array],
    use: Sequence[Array],
    budget: Array,
    *,
    price_max: float,
    bonus: Array | float = 0.0,
    start: Array | None = None,
    tolerance: float = EXACT,
) -> Saddle:
    """The optimistic saddle point of observed requests, exact by cutting planes on HiGHS.

    rewards: K arrays (N_k,); use: K arrays (N_k, d); budget: (d,) units a round; price_max: upper end of every price; bonus: confidence
    radius (K,) or one for all, in units of reward; start: (d,) or (m, d) prices to cut at first; tolerance: relative gap at which it
    stops. Raises ValueError when an input is negative, not finite or of another shape.
    """
    rewards, use, budget = _checked(rewards, use, budget, price_max)
    bonus = _checked_bonus(bonus, len(rewards))
    if start is not None:
        start = np.atleast_2d(np.asarray(start, dtype=float))
        if start.shape[1] != budget.size or not np.isfinite(start).all():
            raise ValueError(f"start must hold prices of {budget.size} resources")
    return cutting_planes(surplus_of_samples(rewards, use), budget, bonus, price_max, start=start, tolerance=tolerance)


def cutting_planes(surplus: Surplus, budget: Array, bonus: Array, price_max: float, *, start: Array | None = None, tolerance: float = TOLERANCE) -> Saddle:
    """Kelley's method for any convex surplus: g_k above its tangents, one a configuration and tried price, and a small LP over (z, p).

    surplus: prices (d,) -> g (K,) and h = -dg/dp (K, d); budget: (d,); bonus: (K,); start: (m, d). Stops when the best value found is
    within ``tolerance`` max(1, |value|) of the LP's, which is a lower bound.
    """
    resources, configurations = budget.size, bonus.size
    master = Master(budget, price_max)
    queue = list(np.clip(np.zeros((1, resources)) if start is None else start, 0.0, price_max))
    best, best_prices, bound = np.inf, queue[0], -np.inf
    tried: list[Array] = []
    duals = np.empty(0)
    while True:
        slopes, offsets = [], []
        for prices in queue:
            g, h = surplus(prices)
            height = g + bonus
            value = float(budget @ prices + height.max())
            if value < best:
                best, best_prices = value, prices
            slopes.append(h)
            offsets.append(height + h @ prices)
        master.cut(np.concatenate(slopes), np.concatenate(offsets))
        tried += queue
        if best - bound <= tolerance * max(1.0, abs(best)) or len(tried) >= MAX_CUTS:
            break
        bound_now, prices, duals = master.solve()
        bound = max(bound, bound_now)
        queue = [prices]
        if best - bound <= tolerance * max(1.0, abs(best)):
            break
    weights = np.zeros((len(tried), configurations))
    weights.flat[: duals.size] = np.maximum(duals, 0.0)  # the last price's cuts may not be in the LP that gave the duals
    weights /= weights.sum()
    return Saddle(best, best_prices, weights.sum(axis=0), min(bound, best), np.array(tried), weights)


def linear_program(rewards: Sequence[Array], use: Sequence[Array], budget: Array, *, price_max: float, bonus: Array | float = 0.0) -> Saddle:
    """The same saddle point as one linear program over (p, z, u), with a variable a request: slow, and the reference of the fast one.

    min b.p + z  subject to  z >= bonus_k + mean_i u_ki,  u_ki >= r_ki - p.a_ki,  u >= 0,  0 <= p <= P_max. Arguments and errors as
    ``saddle_point``.
    """
    rewards, use, budget = _checked(rewards, use, budget, price_max)
    bonus = _checked_bonus(bonus, len(rewards))
    d, counts = budget.size, np.array([len(r) for r in rewards])
    owner = np.repeat(np.arange(counts.size), counts)
    n = owner.size
    mean = sparse.csr_array((1.0 / counts[owner], (owner, np.arange(n))), shape=(counts.size, n))
    envelope = sparse.hstack([sparse.csr_array((counts.size, d)), np.full((counts.size, 1), -1.0), mean])
    worth = sparse.hstack([-np.concatenate(use), sparse.csr_array((n, 1)), -sparse.eye_array(n)])
    costs = np.concatenate([budget, [1.0], np.zeros(n)])
    limits = np.concatenate([-bonus, -np.concatenate(rewards)])
    bounds = [(0.0, price_max)] * d + [(None, None)] + [(0.0, None)] * n
    found = linprog(costs, A_ub=sparse.vstack([envelope, worth]).tocsr(), b_ub=limits, bounds=bounds, method="highs")
    if found.x is None:
        raise RuntimeError(f"the linear program ended with: {found.message}")
    mixture = np.maximum(-found.ineqlin.marginals[: counts.size], 0.0)
    prices = found.x[:d]
    return Saddle(float(found.fun), prices, mixture / mixture.sum(), float(found.fun), prices[None], (mixture / mixture.sum())[None])


def _checked(rewards: Sequence[Array], use: Sequence[Array], budget: Array, price_max: float) -> tuple[list[Array], list[Array], Array]:
    if not len(rewards) or len(rewards) != len(use):
        raise ValueError(f"rewards and use must have one entry a configuration; they have {len(rewards)} and {len(use)}")
    budget = checked_budget(budget)
    pairs = [checked_requests(r, a) for r, a in zip(rewards, use, strict=True)]
    if any(a.shape[1] != budget.size for _, a in pairs):
        raise ValueError(f"use must be (N, {budget.size}), as the budget has {budget.size} resources")
    if not (np.isfinite(price_max) and price_max > 0):
        raise ValueError(f"price_max must be finite and positive, it is {price_max}")
    return [r for r, _ in pairs], [a for _, a in pairs], budget


def _checked_bonus(bonus: Array | float, configurations: int) -> Array:
    given = np.asarray(bonus, dtype=float)
    if given.shape not in ((), (configurations,)) or not (np.isfinite(given).all() and (given >= 0).all()):
        raise ValueError(f"bonus must be one number, or {configurations}, finite and not negative")
    return np.broadcast_to(given, configurations).astype(float)
