"""Where requests come from: laws whose surplus is known in closed form or by quadrature, and finite pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import special, stats

from backends.sp_ucb_olp.surplus import Array, checked_budget, checked_prices

# Reward per unit of processor and of memory under each of the three configurations of the authors' trace experiment.
COEFFICIENTS = np.array([[2.0, 0.5], [0.5, 2.0], [1.2, 1.2]])
COEFFICIENT_NAMES = ("processor pays", "memory pays", "balanced")
NOISE = 0.1  # standard deviation of a reward around its formula
LEAST_REWARD = 0.01
LINEAR_R_MAX = 3.0  # 2.5 and five standard deviations
LEAST_USE = 0.01  # of processor and memory, as a share of the machine
QUADRATURE = 48  # Gauss-Legendre nodes a resource


@dataclass(frozen=True, slots=True)
class Requests:
    """What each of T rounds would bring under each configuration; a policy sees only the entry it chose.

    rewards: (T, K); use: (T, K, d).
    """

    rewards: Array
    use: Array


class Instance(Protocol):
    """An environment. names: of the K configurations; resources: of the d resources with their unit; r_max and a_max: what the method is told."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def resources(self) -> tuple[str, ...]: ...
    @property
    def r_max(self) -> float: ...
    @property
    def a_max(self) -> float: ...
    @property
    def source(self) -> str: ...

    def surplus(self, prices: Array) -> tuple[Array, Array]:
        """Exact g (K,) and h (K, d) at prices (d,)."""

    def requests(self, horizon: int, rng: np.random.Generator) -> Requests:
        """The requests of ``horizon`` rounds."""


@dataclass(frozen=True, slots=True)
class UniformRewards:
    """Configuration k: reward uniform on [0, high_k], fixed use of each resource. high: (K,); use: (K, d)."""

    high: Array
    use: Array
    names: tuple[str, ...]
    resources: tuple[str, ...]
    source: str

    @property
    def r_max(self) -> float:
        return float(self.high.max())

    @property
    def a_max(self) -> float:
        return float(self.use.max())

    def surplus(self, prices: Array) -> tuple[Array, Array]:
        return uniform_surplus(self.high, self.use, prices)

    def requests(self, horizon: int, rng: np.random.Generator) -> Requests:
        rewards = rng.uniform(size=(horizon, self.high.size)) * self.high
        return Requests(rewards, np.broadcast_to(self.use, (horizon, *self.use.shape)))


def uniform_surplus(high: Array, use: Array, prices: Array) -> tuple[Array, Array]:
    """Closed form for r ~ U[0, R_k] and fixed use a_k: g_k = (R_k - s)_+^2 / (2 R_k), h_k = a_k (1 - s / R_k)_+ with s = p.a_k.

    high: (K,); use: (K, d); prices: (d,). Returns g (K,) in units of reward and h (K, d) in units of resource a round. Raises ValueError
    when a number is not finite or has the wrong sign.
    """
    high, use = np.asarray(high, dtype=float), np.asarray(use, dtype=float)
    if high.ndim != 1 or use.ndim != 2 or len(use) != high.size or not (np.isfinite(high).all() and (high > 0).all()):
        raise ValueError("high must be (K,) finite and positive, and use (K, d)")
    if not (np.isfinite(use).all() and (use >= 0).all()):
        raise ValueError("use must be finite and not negative")
    left = np.maximum(high - use @ checked_prices(prices, use.shape[1]), 0.0)
    return left**2 / (2 * high), use * (left / high)[:, None]


def separate_resources(configurations: int) -> UniformRewards:
    """Instance A: configuration k takes one unit of resource k alone, rewards uniform on [0, 1]; K = d."""
    if configurations < 1 or configurations != int(configurations):
        raise ValueError(f"there must be at least 1 configuration, not {configurations}")
    names = tuple(f"configuration {k + 1}" for k in range(configurations))
    resources = tuple(f"resource {k + 1}" for k in range(configurations))
    return UniformRewards(np.ones(configurations), np.eye(configurations), names, resources, "generated, rewards uniform on 0 to 1")


def separate_resources_saddle(budget: Array) -> tuple[float, float, Array, Array]:
    """Closed form of instance A for sum b = S <= 1: (V_mix, V_fix, p* (d,), w* (K,)) = (S - S^2/2, max_k b_k - b_k^2/2, 1 - S, b/S).

    Raises ValueError for S above 1, where p* = 0 and w* is not unique.

    >>> v_mix, v_fix, p, w = separate_resources_saddle(np.array([0.1, 0.4]))
    >>> round(v_mix, 9), round(v_fix, 9), p.tolist(), w.tolist()
    (0.375, 0.32, [0.5, 0.5], [0.2, 0.8])
    """
    budget = checked_budget(budget)
    total = float(budget.sum())
    if total > 1:
        raise ValueError(f"the closed form needs budgets that add up to at most 1, not {total}")
    return total - total**2 / 2, float((budget - budget**2 / 2).max()), np.full(budget.size, 1 - total), budget / total


def crossing_surpluses(configurations: int = 2) -> UniformRewards:
    """Instance B: one resource; A earns U[0, 1] for one unit, B earns U[0, 1/2] for a quarter. The first of the two, or both."""
    high, use, names = np.array([1.0, 0.5]), np.array([[1.0], [0.25]]), ("A, dear", "B, cheap")
    source = "generated, A: U[0, 1] for 1 unit, B: U[0, 1/2] for 1/4 unit"
    return UniformRewards(high[:configurations], use[:configurations], names[:configurations], ("resource 1",), source)


@dataclass(frozen=True, slots=True)
class LinearRewards:
    """Every configuration sees the same job of (processor, memory) = x; r = max(c_k.x + N(0, 0.1^2), 0.01) and the job uses x.

    coefficients: (K, 2); jobs: (n, 2) with weights (n,), the law of x or quadrature nodes of it; ``law`` draws the jobs of a run, and
    without one the jobs come in their own order (a trace).
    """

    coefficients: Array
    jobs: Array
    weights: Array
    names: tuple[str, ...]
    source: str
    law: JobLaw | None = None
    resources: tuple[str, ...] = ("processor", "memory")
    r_max: float = LINEAR_R_MAX
    a_max: float = 1.0

    def surplus(self, prices: Array) -> tuple[Array, Array]:
        return linear_surplus(self.coefficients, self.jobs, self.weights, prices)

    def requests(self, horizon: int, rng: np.random.Generator) -> Requests:
        jobs = self.law.draw(horizon, rng) if self.law else self.jobs[:horizon]
        rewards = jobs @ self.coefficients.T + rng.normal(0.0, NOISE, size=(len(jobs), 1))
        use = np.broadcast_to(jobs[:, None], (len(jobs), len(self.coefficients), 2))
        return Requests(np.clip(rewards, LEAST_REWARD, self.r_max), use)


def linear_surplus(coefficients: Array, jobs: Array, weights: Array, prices: Array, noise: float = NOISE) -> tuple[Array, Array]:
    """Surplus of r = max(c_k.x + N(0, noise^2), 0.01) with use x, exact in the noise, over the jobs x with their weights.

    coefficients: (K, d) reward per unit; jobs: (n, d); weights: (n,), sums to 1; prices: (d,). With s = p.x, m = c.x and z = (m - s)/noise
    the mean of (r - s)_+ is noise (phi(z) + z Phi(z)) where s is at least 0.01; below, every request is worth its price.
    Returns g (K,) in units of reward and h (K, d) in units of resource a round.
    """
    mean, price = coefficients @ jobs.T, np.maximum(jobs @ checked_prices(prices, jobs.shape[1]), 0.0)
    floor = np.maximum(price, LEAST_REWARD)
    z = (mean - floor) / noise
    above = special.ndtr(z)
    g = noise * (np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) + z * above) + (floor - price)
    worth = np.where(price < LEAST_REWARD, 1.0, above)
    return g @ weights, (worth * weights) @ jobs


@dataclass(frozen=True, slots=True)
class JobLaw:
    """Independent processor and memory use: a gamma law each, as a share of a machine, moved into [0.01, 1]. mean and sd: before that."""

    mean: tuple[float, float]
    sd: tuple[float, float]

    def _laws(self) -> list[tuple[float, float]]:
        return [((m / s) ** 2, s**2 / m) for m, s in zip(self.mean, self.sd, strict=True)]

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """(n, 2) jobs."""
        columns = [rng.gamma(shape, scale, n) for shape, scale in self._laws()]
        return np.clip(np.column_stack(columns), LEAST_USE, 1.0)

    def nodes(self) -> tuple[Array, Array]:
        """Jobs (n, 2) and weights (n,): Gauss-Legendre between the ends, and the mass that was moved to each end as a node of its own."""
        points, measure = np.polynomial.legendre.leggauss(QUADRATURE)
        inner = LEAST_USE + (1.0 - LEAST_USE) * (points + 1) / 2
        x = np.concatenate([[LEAST_USE], inner, [1.0]])
        each = []
        for shape, scale in self._laws():
            law = stats.gamma(shape, scale=scale)
            dense = law.pdf(inner) * measure * (1.0 - LEAST_USE) / 2
            low, high = law.cdf(LEAST_USE), law.sf(1.0)
            each.append(np.concatenate([[low], dense * (1.0 - low - high) / dense.sum(), [high]]))
        jobs = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2)
        return jobs, np.outer(*each).ravel()


CLUSTER = JobLaw((0.836, 0.349), (0.635, 0.299))  # the moments of the trace's planned use
SMALL_JOBS = JobLaw((0.20, 0.25), (0.20, 0.25))  # exponential laws


def synthetic_cluster(law: JobLaw, configurations: int) -> LinearRewards:
    """Jobs of a generated cluster under the first of the three configurations."""
    jobs, weights = law.nodes()
    m, s = law.mean, law.sd
    source = f"synthetic cluster, not the Alibaba data: processor {m[0]:g} ± {s[0]:g}, memory {m[1]:g} ± {s[1]:g} of a machine"
    return LinearRewards(COEFFICIENTS[:configurations], jobs, weights, COEFFICIENT_NAMES[:configurations], source, law)


@dataclass(frozen=True, slots=True)
class Pool:
    """A finite pool from which each round draws one request at random. rewards: (n, K); use: (n, K, d): the law is uniform over the pool."""

    rewards: Array
    use: Array
    names: tuple[str, ...]
    resources: tuple[str, ...]
    source: str
    r_max: float = 1.0
    a_max: float = 1.0

    def surplus(self, prices: Array) -> tuple[Array, Array]:
        margin = self.rewards - self.use @ prices
        worth = margin > 0
        return np.where(worth, margin, 0.0).mean(axis=0), np.einsum("nk,nkd->kd", worth, self.use) / len(margin)

    def requests(self, horizon: int, rng: np.random.Generator) -> Requests:
        drawn = rng.integers(len(self.rewards), size=horizon)
        return Requests(self.rewards[drawn], self.use[drawn])
