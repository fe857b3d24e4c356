"""Policies: how a mixture of configurations and one vector of prices are chosen from what has been observed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from backends.sp_ucb_olp.oracle import fixed_saddle
from backends.sp_ucb_olp.radius import confidence_radius, safe_budget
from backends.sp_ucb_olp.saddle import Saddle, cutting_planes
from backends.sp_ucb_olp.surplus import Array, Samples, Surplus, checked_budget

Rule = Literal["lp-duals", "uniform-over-ties"]

TIE = 1e-8  # the authors' code calls configurations tied within this


@dataclass(frozen=True, slots=True)
class Terms:
    """What a policy is told before round 0. budget: (d,) units a round; r_max, a_max: bounds of a reward and of a use; slack: epsilon."""

    configurations: int
    budget: Array
    horizon: int
    r_max: float
    a_max: float
    price_max: float
    slack: float

    def __post_init__(self) -> None:
        checked_budget(self.budget)
        if self.configurations < 1:
            raise ValueError(f"there must be at least 1 configuration, not {self.configurations}")
        if self.horizon < self.configurations + 1:
            raise ValueError(f"the horizon must be at least {self.configurations + 1} rounds, one more than there are configurations; it is {self.horizon}")
        safe_budget(self.budget, self.slack)

    @property
    def safe(self) -> Array:
        """b_safe (d,)."""
        return safe_budget(self.budget, self.slack)

    def radii(self, counts: Array, alpha: float) -> Array:
        """beta (K,) after these counts (K,)."""
        bounds = {"r_max": self.r_max, "a_max": self.a_max, "price_max": self.price_max}
        return confidence_radius(counts, alpha=alpha, horizon=self.horizon, resources=self.budget.size, **bounds)


@dataclass(frozen=True, slots=True)
class Decision:
    """Held until the next solve. mixture: (K,); prices: (d,); radii: (K,) where the policy has any; saddle: where it solved for one."""

    mixture: Array
    prices: Array
    radii: Array | None = None
    saddle: Saddle | None = None


class Policy(Protocol):
    """learns: whether it starts with one request of each configuration, all rejected, and decides anew as requests come in."""

    @property
    def learns(self) -> bool: ...

    def decide(self, samples: Samples) -> Decision: ...


@dataclass(slots=True)
class SaddlePointUCB:
    """SP-UCB-OLP: the optimistic saddle point, the mixture from its dual multipliers. alpha 0 is the greedy policy.

    rule "uniform-over-ties" is the shortcut of the authors' code: equal weight on every configuration within 1e-8 of the best at the prices.
    """

    terms: Terms
    alpha: float
    rule: Rule = "lp-duals"
    learns: bool = True
    _start: Array | None = None

    def decide(self, samples: Samples) -> Decision:
        radii, surplus = self.terms.radii(samples.counts, self.alpha), samples.surplus()
        found = cutting_planes(surplus, self.terms.safe, radii, self.terms.price_max, start=self._start)
        self._start = found.restart()
        mixture = found.mixture if self.rule == "lp-duals" else _uniform_over_ties(surplus(found.prices)[0] + radii)
        return Decision(mixture, found.prices, radii, found)


def _uniform_over_ties(heights: Array) -> Array:
    tied = heights >= heights.max() - TIE
    return tied / tied.sum()


@dataclass(slots=True)
class SingleConfigurationUCB:
    """Learns the best fixed configuration: the largest of min_p b.p + g_k(p) + beta_k, with the prices of that one. It never mixes."""

    terms: Terms
    alpha: float
    learns: bool = True
    _starts: dict[int, Array] = field(default_factory=dict)

    def decide(self, samples: Samples) -> Decision:
        terms = self.terms
        radii, surplus = terms.radii(samples.counts, self.alpha), samples.surplus()
        found = [self._alone(surplus, k, float(radii[k])) for k in range(terms.configurations)]
        best = int(np.argmax([s.value for s in found]))
        return Decision(np.eye(terms.configurations)[best], found[best].prices, radii)

    def _alone(self, surplus: Surplus, k: int, radius: float) -> Saddle:
        found = fixed_saddle(surplus, k, self.terms.safe, radius, self.terms.price_max, start=self._starts.get(k))
        self._starts[k] = found.restart()
        return found


@dataclass(frozen=True, slots=True)
class Known:
    """A decision that never changes: the oracle (w*, p*), or random choice that accepts whatever fits (equal weights, prices 0)."""

    decision: Decision
    learns: bool = False

    def decide(self, samples: Samples) -> Decision:
        return self.decision


def known(mixture: Array, prices: Array) -> Known:
    """mixture: (K,); prices: (d,). Raises ValueError unless the mixture is a distribution and the prices are finite and not negative."""
    mixture, prices = np.asarray(mixture, dtype=float), np.asarray(prices, dtype=float)
    if mixture.ndim != 1 or mixture.size == 0 or not ((mixture >= 0).all() and abs(mixture.sum() - 1) <= 1e-9):
        raise ValueError("the mixture must be a distribution: not negative, and its sum 1")
    if prices.ndim != 1 or not (np.isfinite(prices).all() and (prices >= 0).all()):
        raise ValueError("prices must be finite and not negative")
    return Known(Decision(mixture / mixture.sum(), prices))


def random_choice(configurations: int, resources: int) -> Known:
    """Every configuration as often, and whatever fits is accepted."""
    return known(np.full(configurations, 1.0 / configurations), np.zeros(resources))
