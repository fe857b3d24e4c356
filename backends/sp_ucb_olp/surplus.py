"""Surplus of a configuration at a price: empirical over observed requests, and of several configurations at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Array = np.ndarray
# At prices (d,): surplus (K,) of each configuration, and what it uses of each resource when all worth their price are accepted (K, d).
Surplus = Callable[[Array], tuple[Array, Array]]


def empirical_surplus(rewards: Array, use: Array, prices: Array) -> tuple[float, Array]:
    """Mean surplus of N observed requests of one configuration and the use that earns it (section 3 of the paper).

    rewards: (N,); use: (N, d) units of each resource; prices: (d,) reward per unit. Returns g = mean (r - p.a)_+ in units of reward
    and h (d,) = mean a 1{r > p.a} = -dg/dp where no request is tied. Raises ValueError when shapes, signs or numbers do not fit.

    >>> g, h = empirical_surplus(np.array([0.2, 0.8]), np.array([[1.0], [1.0]]), np.array([0.5]))
    >>> round(float(g), 9), h.tolist()
    (0.15, [0.5])
    """
    rewards, use = checked_requests(rewards, use)
    prices = checked_prices(prices, use.shape[1])
    return _surplus(rewards, use, prices)


def _surplus(rewards: Array, use: Array, prices: Array) -> tuple[float, Array]:
    margin = rewards - use @ prices
    worth = margin > 0
    n = len(rewards)
    return float(margin @ worth) / n, worth @ use / n


def surplus_of_samples(rewards: Sequence[Array], use: Sequence[Array]) -> Surplus:
    """The empirical surplus of K configurations as a function of the price; entry k: (N_k,) rewards and (N_k, d) use."""

    def at(prices: Array) -> tuple[Array, Array]:
        found = [_surplus(r, a, prices) for r, a in zip(rewards, use, strict=True)]
        return np.array([g for g, _ in found]), np.array([h for _, h in found])

    return at


def checked_requests(rewards: Array, use: Array) -> tuple[Array, Array]:
    """float64 copies; raises ValueError unless (N,) and (N, d), N and d at least 1, finite and not negative."""
    rewards, use = np.asarray(rewards, dtype=float), np.asarray(use, dtype=float)
    if rewards.ndim != 1 or use.ndim != 2 or len(rewards) != len(use) or 0 in use.shape:
        raise ValueError(f"rewards must be (N,) and use (N, d), N and d at least 1; they are {rewards.shape} and {use.shape}")
    if not (np.isfinite(rewards).all() and np.isfinite(use).all() and (rewards >= 0).all() and (use >= 0).all()):
        raise ValueError("rewards and use must be finite and not negative")
    return rewards, use


def checked_prices(prices: Array, resources: int) -> Array:
    """float64 (d,); raises ValueError unless finite and not negative."""
    prices = np.asarray(prices, dtype=float)
    if prices.shape != (resources,) or not (np.isfinite(prices).all() and (prices >= 0).all()):
        raise ValueError(f"prices must be {resources} finite numbers that are not negative")
    return prices


def checked_budget(budget: Array, resources: int | None = None) -> Array:
    """float64 (d,); raises ValueError unless finite and positive."""
    budget = np.asarray(budget, dtype=float)
    if budget.ndim != 1 or budget.size == 0 or (resources is not None and budget.size != resources):
        raise ValueError(f"the budget must be {resources or 'd'} numbers, one a resource; its shape is {budget.shape}")
    if not (np.isfinite(budget).all() and (budget > 0).all()):
        raise ValueError("the budget per round must be finite and positive in every resource")
    return budget


class Samples:
    """What a policy has observed, by configuration; requests are kept whether or not they were accepted.

    rewards and use of configuration k are the first ``counts[k]`` rows of buffers that grow by doubling.
    """

    def __init__(self, configurations: int, resources: int) -> None:
        self.counts = np.zeros(configurations, dtype=int)
        self._rewards = [np.empty(64) for _ in range(configurations)]
        self._use = [np.empty((64, resources)) for _ in range(configurations)]

    def add(self, chosen: Array, rewards: Array, use: Array) -> None:
        """chosen: (n,) configuration of each request; rewards: (n,); use: (n, d)."""
        for k in range(len(self.counts)):
            mine = chosen == k
            new = int(np.count_nonzero(mine))
            if not new:
                continue
            start, end = self.counts[k], self.counts[k] + new
            while end > len(self._rewards[k]):
                self._rewards[k] = np.concatenate([self._rewards[k], np.empty_like(self._rewards[k])])
                self._use[k] = np.concatenate([self._use[k], np.empty_like(self._use[k])])
            self._rewards[k][start:end], self._use[k][start:end] = rewards[mine], use[mine]
            self.counts[k] = end

    def first(self, counts: Array) -> tuple[list[Array], list[Array]]:
        """The first ``counts`` (K,) samples of the configurations: rewards (n_k,) and use (n_k, d) each."""
        return [r[:n] for r, n in zip(self._rewards, counts, strict=True)], [a[:n] for a, n in zip(self._use, counts, strict=True)]

    def surplus(self) -> Surplus:
        """The empirical surplus of all configurations; each has at least one sample."""
        return surplus_of_samples(*self.first(self.counts))
