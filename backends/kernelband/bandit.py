"""The masked UCB bandit of KernelBand: scores, reward, masks from the profiler, and which parent is edited (section 4 of the card).

Everything here is exact for given rewards and profiles. Arms are pairs (cluster i, strategy s); resources are columns of h in the
order of ``substrate.RESOURCES``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from backends.contract import InputError
from backends.kernelband.substrate import RESOURCES, STRATEGIES, TARGET

MOST_CLUSTERS = 8
PRIOR_MEAN, PRIOR_COUNT = 0.5, 1  # a pseudo-observation of every arm that counts like a real one
LEAST_TEMPERATURE = 1e-6


class Bandit:
    """Upper confidence bounds over clusters x strategies: ``mu + exploration * sqrt(ln(max(t, 1)) / n)``, t = updates so far.

    clusters: 1 to 8. exploration: the constant c, not negative. mu, n: (clusters, strategies), means and counts, which begin at one
    pseudo-observation of 0.5. Raises InputError for values outside.

    >>> bandit = Bandit(clusters=1, exploration=2.0)
    >>> bandit.select()
    (0, 0)
    >>> bandit.update(0, 0, 0.0)
    >>> float(bandit.mu[0, 0]), int(bandit.n[0, 0]), bandit.select()
    (0.25, 2, (0, 1))
    """

    def __init__(self, clusters: int, exploration: float, strategies: int = len(STRATEGIES)) -> None:
        if not 1 <= clusters <= MOST_CLUSTERS:
            raise InputError("clusters", f"{clusters} clusters cannot be kept", f"choose from 1 to {MOST_CLUSTERS}")
        if not 0 <= exploration < float("inf"):
            raise InputError("exploration", f"{exploration} is not a weight", "choose 0 or more")
        if strategies < 1:
            raise InputError("strategies", f"{strategies} strategies leave no arm", "choose at least 1")
        self.exploration = float(exploration)
        self.mu = np.full((clusters, strategies), PRIOR_MEAN)
        self.n = np.full((clusters, strategies), PRIOR_COUNT)
        self.t = 0

    def bonus(self) -> np.ndarray:
        """The exploration terms of all arms, (clusters, strategies)."""
        return self.exploration * np.sqrt(np.log(max(self.t, 1)) / self.n)

    def scores(self) -> np.ndarray:
        """What ``select`` maximises, (clusters, strategies)."""
        return self.mu + self.bonus()

    def select(self, mask: np.ndarray | Sequence[Sequence[float]] | None = None) -> tuple[int, int]:
        """The open arm (i, s) of the highest score, the first in row-major order on ties. mask: (clusters, strategies), 1 = open; None opens all."""
        scores = self.scores()
        return _argmax(scores, np.ones(scores.shape, bool) if mask is None else _as_mask(mask, scores.shape))

    def update(self, i: int, s: int, r: float) -> None:
        """Adds the reward of one attempt, also of a failed one (r = 0)."""
        if not 0 <= i < self.mu.shape[0] or not 0 <= s < self.mu.shape[1]:
            raise InputError("arm", f"there is no arm ({i}, {s})", f"choose a cluster below {self.mu.shape[0]} and a strategy below {self.mu.shape[1]}")
        if not np.isfinite(r):
            raise InputError("reward", f"{r} is not a reward", "give a finite number")
        self.n[i, s] += 1
        self.mu[i, s] += (r - self.mu[i, s]) / self.n[i, s]
        self.t += 1

    def permute(self, order: Sequence[int]) -> None:
        """Moves the statistics so that new cluster j takes those of old cluster ``order[j]``."""
        self.mu, self.n = self.mu[list(order)], self.n[list(order)]


class ThompsonBandit(Bandit):
    """Thompson sampling on the same statistics: an arm's score is a draw from Beta(1/2 + n mu, 1/2 + n (1 - mu)).

    The pseudo-observation of 0.5 makes the untouched arm's law uniform. rng: draws the scores anew at each call.
    """

    def __init__(self, clusters: int, rng: np.random.Generator) -> None:
        super().__init__(clusters, exploration=0.0)
        self._rng = rng

    def scores(self) -> np.ndarray:
        won = np.clip(self.mu, 0, 1) * self.n
        return self._rng.beta(0.5 + won, 0.5 + self.n - won)


def _as_mask(mask: np.ndarray | Sequence[Sequence[float]], shape: tuple[int, ...]) -> np.ndarray:
    given = np.asarray(mask) > 0
    if given.shape != shape:
        raise InputError("mask", f"its shape {given.shape} is not that of the arms", f"give {shape[0]} x {shape[1]} zeros and ones")
    return given


def _argmax(scores: np.ndarray, open_arms: np.ndarray) -> tuple[int, int]:
    if not open_arms.any():
        raise InputError("mask", "no arm is open", "leave at least one arm open")
    best = int(np.argmax(np.where(open_arms, scores, -np.inf)))
    return best // scores.shape[1], best % scores.shape[1]


def reward(parent_ms: float, child_ms: float | None) -> float:
    """``max(0, (T(parent) - T(child)) / T(parent))``; child_ms None is a child without a time: it failed.

    >>> reward(100, 50), reward(50, 60), reward(50, None)
    (0.5, 0.0, 0.0)
    """
    if not (np.isfinite(parent_ms) and parent_ms > 0):
        raise InputError("parent_ms", f"{parent_ms} is not a time", "give milliseconds above 0")
    if child_ms is None:
        return 0.0
    if not np.isfinite(child_ms):
        raise InputError("child_ms", f"{child_ms} is not a time", "give milliseconds, or None for a child that failed")
    return max(0.0, (parent_ms - child_ms) / parent_ms)


def strategy_targets(mapping: Mapping[str, str]) -> tuple[int, ...]:
    """The resource index of each strategy from names, as ``{"tiling": "l2", ...}``. Raises InputError that names what is valid or missing."""
    for strategy, resource in mapping.items():
        if strategy not in STRATEGIES:
            raise InputError("strategy", f"there is no strategy {strategy!r}", "choose from " + ", ".join(STRATEGIES))
        if resource not in RESOURCES:
            raise InputError("resource", f"there is no resource {resource!r}", "choose from " + ", ".join(RESOURCES))
    missing = [s for s in STRATEGIES if s not in mapping]
    if missing:
        raise InputError("strategy", f"the map leaves out {', '.join(missing)}", "give a resource for all six strategies")
    return tuple(RESOURCES.index(mapping[s]) for s in STRATEGIES)


def thresholds(theta: float | Sequence[float] | np.ndarray) -> np.ndarray:
    """Saturation thresholds as (3,), in percent of peak; one number stands for all three. Raises InputError outside (0, 100]."""
    given = np.broadcast_to(np.asarray(theta, float), (len(RESOURCES),))
    for name, value in zip(RESOURCES, given, strict=True):
        if not 0 < value <= 100:
            raise InputError(f"theta_{name}", f"{value:g} is not a threshold", "choose above 0, at most 100 percent")
    return given


def mask(h: np.ndarray, theta: float | Sequence[float] | np.ndarray, empty: Sequence[int] = (), target: Sequence[int] = TARGET) -> np.ndarray:
    """Which arms are open, (K, strategies) of bool: ``h(representative)[target(s)] < theta[target(s)]``, strictly.

    h: (K, 3), percent of peak of each cluster's representative; a row of NaN was not profiled and masks nothing. A row that would
    close altogether keeps the one strategy of the largest headroom theta - h, the first on ties. empty: clusters without a member;
    their rows close after that.

    >>> mask(np.array([[10.0, 76.0, 20.0]]), 75).astype(int).tolist()
    [[1, 0, 0, 1, 1, 0]]
    """
    headroom = (thresholds(theta) - np.asarray(h, float).reshape(-1, len(RESOURCES)))[:, list(target)]
    open_arms = np.isnan(headroom) | (headroom > 0)
    closed = ~open_arms.any(axis=1)
    open_arms[closed, headroom[closed].argmax(axis=1)] = True
    open_arms[list(empty)] = False
    return open_arms


def parent_weights(h: np.ndarray, strategy: int, theta: float | Sequence[float] | np.ndarray, temperature: float, target: Sequence[int] = TARGET) -> np.ndarray:
    """Probability of each member of a cluster to be the parent, (m,): ``softmax(V / temperature)`` with V = theta - h of the target.

    h: (m, 3), percent of peak; a row of NaN was not profiled and has V = 0. V is in percentage points, so that temperature 1 is
    almost an argmax. Where no member is profiled the search takes the fastest instead (section 4, step 5).

    >>> parent_weights(np.array([[30.0, 0, 0], [35.0, 0, 0]]), 3, 75, 1.0).round(5)
    array([0.99331, 0.00669])
    """
    if not 0 <= strategy < len(target):
        raise InputError("strategy", f"there is no strategy {strategy}", f"choose from 0 ({STRATEGIES[0]}) to {len(target) - 1} ({STRATEGIES[-1]})")
    if not temperature > 0:
        raise InputError("temperature", f"{temperature} is not a temperature", "choose above 0")
    profiles = np.asarray(h, float).reshape(-1, len(RESOURCES))
    if not len(profiles):
        raise InputError("h", "there is no member", "give at least one row")
    resource = target[strategy]
    value = np.nan_to_num(thresholds(theta)[resource] - profiles[:, resource], nan=0.0) / max(temperature, LEAST_TEMPERATURE)
    weight = np.exp(value - value.max())
    return weight / weight.sum()
