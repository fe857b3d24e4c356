"""One policy on a stream of requests: choose a configuration, see the request, accept it or not, never overdraw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from backends.sp_ucb_olp.instances import Requests
from backends.sp_ucb_olp.policies import Decision, Policy, Terms
from backends.sp_ucb_olp.surplus import Array, Samples

ACCEPT_TOLERANCE = 1e-9  # a request worth its price up to this is accepted
_OVERDRAFT = 1e-12  # rounding of a running sum, as a share of the budget


def admit(worth: Array, use: Array, remaining: Array) -> Array:
    """Which of n requests, in their order, are accepted: worth their price and within what is left of every resource.

    worth: (n,) bool; use: (n, d); remaining: (d,). A request that does not fit is passed over, and a later, smaller one may still fit.

    >>> admit(np.array([True, True, True]), np.array([[0.6], [0.6], [0.3]]), np.array([1.0])).tolist()
    [True, False, True]
    """
    accepted = np.zeros(len(worth), dtype=bool)
    left = np.array(remaining, dtype=float)
    open_ = np.flatnonzero(worth)
    while open_.size:
        open_ = open_[(use[open_] <= left).all(axis=1)]  # what is left only falls: these are the ones that may fit
        fits = (np.cumsum(use[open_], axis=0) <= left).all(axis=1)
        stop = open_.size if fits.all() else int(np.argmin(fits))
        accepted[open_[:stop]] = True
        left = left - use[open_[:stop]].sum(axis=0)
        open_ = open_[stop + 1 :]
    return accepted


@dataclass(slots=True)
class Solve:
    """A decision, the round from which it holds, and how many samples of each configuration (K,) it was made from."""

    round: int
    decision: Decision
    counts: Array


@dataclass
class Play:
    """A policy at work. All policies of a run face the same requests and the same uniform numbers (T,) that pick from a mixture.

    After ``advance(t)`` the first t entries hold: chosen (T,) configuration, accepted (T,), price (T,) p.a of the request, reward (T,)
    earned; left: (T, d) units left after the round; remaining: (d,) now; solves: one entry a solve. check: called before each solve.
    """

    terms: Terms
    policy: Policy
    requests: Requests
    picks: Array
    resolve_every: int
    check: Callable[[], None] = lambda: None
    done: int = 0
    solves: list[Solve] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.resolve_every < 1:
            raise ValueError(f"resolve_every must be at least 1 round, it is {self.resolve_every}")
        rounds, configurations, resources = self.requests.use.shape
        if (configurations, resources) != (self.terms.configurations, self.terms.budget.size) or rounds < self.terms.horizon:
            raise ValueError("the requests must hold a reward and a use for each round, configuration and resource")
        used, earned = self.requests.use, self.requests.rewards
        if not (np.isfinite(earned).all() and np.isfinite(used).all() and earned.min() >= 0 and used.min() >= 0):
            raise ValueError("rewards and use must be finite and not negative")
        if earned.max() > self.terms.r_max or used.max() > self.terms.a_max:
            raise ValueError(f"a reward exceeds r_max = {self.terms.r_max:g} or a use exceeds a_max = {self.terms.a_max:g}, which the radius builds on")
        horizon = self.terms.horizon
        self.chosen = np.zeros(horizon, dtype=int)
        self.accepted = np.zeros(horizon, dtype=bool)
        self.price, self.reward = np.zeros(horizon), np.zeros(horizon)
        self.left = np.zeros((horizon, resources))
        self.total = self.terms.budget * horizon
        self.remaining = self.total.copy()
        self.samples = Samples(configurations, resources)
        if self.policy.learns:
            self._warm_start()

    def _warm_start(self) -> None:
        """One request of each configuration is seen and rejected."""
        rounds = np.arange(self.terms.configurations)
        self._observe(rounds, rounds, np.full(self.terms.budget.size, self.terms.price_max), np.zeros(rounds.size, dtype=bool))

    @property
    def earned(self) -> float:
        """Reward so far."""
        return float(self.reward[: self.done].sum())

    def advance(self, until: int) -> None:
        """Plays the rounds up to ``until``; between two solves mixture and prices stand still, so all their rounds are one operation."""
        first = self.terms.configurations if self.policy.learns else 0
        while self.done < min(until, self.terms.horizon):
            due = not self.solves or (self.policy.learns and (self.done - first) % self.resolve_every == 0)
            if due:
                self.check()
                self.solves.append(Solve(self.done, self.policy.decide(self.samples), self.samples.counts.copy()))
            end = min(until, self.terms.horizon)
            if self.policy.learns:
                end = min(end, self.done + self.resolve_every - (self.done - first) % self.resolve_every)
            self._rounds(np.arange(self.done, end), self.solves[-1].decision)

    def _rounds(self, rounds: Array, decision: Decision) -> None:
        edges = np.cumsum(decision.mixture)
        chosen = np.searchsorted(edges / edges[-1], self.picks[rounds], side="right")
        self._observe(rounds, chosen, decision.prices, None)

    def _observe(self, rounds: Array, chosen: Array, prices: Array, worth: Array | None) -> None:
        rewards, use = self.requests.rewards[rounds, chosen], self.requests.use[rounds, chosen]
        price = use @ prices
        if worth is None:
            worth = rewards >= price - ACCEPT_TOLERANCE
        accepted = admit(worth, use, self.remaining + _OVERDRAFT * self.total)
        spent = np.cumsum(use * accepted[:, None], axis=0)
        self.chosen[rounds], self.accepted[rounds], self.price[rounds] = chosen, accepted, price
        self.reward[rounds] = rewards * accepted
        self.left[rounds] = self.remaining - spent
        self.remaining = self.remaining - spent[-1]
        if self.policy.learns:
            self.samples.add(chosen, rewards, use)
        self.done = int(rounds[-1]) + 1
