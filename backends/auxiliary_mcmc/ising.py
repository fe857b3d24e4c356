"""A doubly intractable posterior whose answer is known: the coupling of a small Ising lattice, and the exchange sampler on it.

p_theta(s) = exp(theta S(s)) / Z(theta), S = sum over bonds of s_i s_j, free boundary. S is sufficient, and the number of states with each value of S
is counted once; Z, exact draws of S and the posterior by quadrature all follow from that table (section 6 of the method card).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from scipy.integrate import simpson
from scipy.special import logsumexp
from torch import Tensor

from backends.auxiliary_mcmc.driver import Proposed
from backends.auxiliary_mcmc.models import Support
from backends.auxiliary_mcmc.proposals import Generator, standard_normal
from backends.auxiliary_mcmc.samplers import Known, above_zero

SPINS_LIMIT = 20  # a million states
GRID = 4001
LATTICE = (4, 4)


@cache
def ising_counts(rows: int, columns: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(values of S ascending, number of states with each) of the lattice with free boundary. Raises ValueError above 20 spins."""
    if rows < 1 or columns < 1 or rows * columns > SPINS_LIMIT:
        raise ValueError(f"a lattice of {rows} x {columns} spins; 1 to {SPINS_LIMIT} spins can be counted")
    states = np.arange(2 ** (rows * columns))[:, None]
    spins = (2 * (states >> np.arange(rows * columns) & 1) - 1).astype(np.int8).reshape(-1, rows, columns)
    total = (spins[:, 1:] * spins[:, :-1]).sum((1, 2), dtype=int) + (spins[:, :, 1:] * spins[:, :, :-1]).sum((1, 2), dtype=int)
    values, counts = np.unique(total, return_counts=True)
    return tuple(int(v) for v in values), tuple(int(c) for c in counts)


@dataclass(frozen=True, slots=True)
class Lattice:
    """The law of S on a lattice. values, log_counts: (m,) float64."""

    values: Tensor
    log_counts: Tensor

    @classmethod
    def of(cls, rows: int, columns: int) -> Lattice:
        values, counts = ising_counts(rows, columns)
        return cls(torch.tensor(values, dtype=torch.float64), torch.tensor(counts, dtype=torch.float64).log())

    def log_partition(self, theta: Tensor) -> Tensor:
        """log Z(theta) of theta (...,), float64."""
        return torch.logsumexp(torch.as_tensor(theta, dtype=torch.float64)[..., None] * self.values + self.log_counts, -1)

    def draw(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        """One exact draw of S for each theta (C,), float64."""
        chance = torch.softmax(theta[:, None] * self.values + self.log_counts, -1)
        return self.values[torch.multinomial(chance, 1, generator=generator)[:, 0]]


@dataclass(frozen=True, slots=True)
class GridPosterior:
    """A one-dimensional posterior on a grid. theta, density, cumulative: (m,); mean and sd by Simpson's rule."""

    theta: np.ndarray
    density: np.ndarray
    cumulative: np.ndarray
    mean: float
    sd: float


def ising_posterior(observed: float, rows: int = LATTICE[0], columns: int = LATTICE[1], upper: float = 1.0, points: int = GRID) -> GridPosterior:
    """The coupling's posterior given S = observed with a flat prior on [0, upper].

    points: of the grid, odd and at least 3. Raises ValueError when no state of the lattice has this S.
    """
    values, counts = ising_counts(rows, columns)
    if observed not in values:
        raise ValueError(f"no state has S = {observed}; possible are {values[0]} to {values[-1]}")
    if upper <= 0 or points < 3 or points % 2 == 0:
        raise ValueError(f"upper {upper} must be above 0 and points {points} odd, at least 3")
    theta = np.linspace(0, upper, points)
    log_density = theta * observed - logsumexp(theta[:, None] * np.array(values) + np.log(np.array(counts)), axis=1)
    density = np.exp(log_density - log_density.max())
    density /= simpson(density, x=theta)
    mean = float(simpson(theta * density, x=theta))
    sd = float(np.sqrt(simpson((theta - mean) ** 2 * density, x=theta)))
    steps = (density[1:] + density[:-1]) / 2 * np.diff(theta)
    cumulative = np.concatenate([[0.0], np.cumsum(steps)])
    return GridPosterior(theta, density, cumulative / cumulative[-1], mean, sd)


class Exchange:
    """The exchange sampler (4.3): omega_2 ~ p_theta' drawn exactly, so that both normalising constants cancel; a symmetric random walk proposes.

    log_f(theta (C, d), x): log of the unnormalised likelihood, (C,), where x is the data or one auxiliary data set a chain. draw(theta, generator): those
    data sets. The prior is flat on the support. A step counts as one touch: one auxiliary data set.
    """

    def __init__(
        self,
        log_f: Callable[[Tensor, Tensor], Tensor],
        draw: Callable[[Tensor, Generator], Tensor],
        observed: Tensor,
        support: Support,
        *,
        step: float,
    ) -> None:
        self.name, self.step = "exchange", above_zero("the step", step)
        self.log_f, self.draw, self.observed, self.support = log_f, draw, observed, support

    def start(self, theta: Tensor) -> Known:
        return ()

    def first(self, theta: Tensor, known: Known, generator: Generator) -> None:
        return None

    def propose(self, theta: Tensor, known: Known, first: None, generator: Generator) -> Proposed:
        return Proposed(theta + self.step * standard_normal(theta, generator))

    def second(self, theta: Tensor, proposed: Tensor, first: None, generator: Generator) -> Tensor:
        return self.draw(proposed, generator)

    def log_ratio(self, theta: Tensor, proposed: Proposed, known: Known, first: None, second: Tensor) -> Tensor:
        new = proposed.theta
        return self.log_f(new, self.observed) - self.log_f(theta, self.observed) + self.log_f(theta, second) - self.log_f(new, second)

    def touched(self, first: None, second: Tensor) -> int:
        return 1

    def rows(self, first: None, second: Tensor) -> None:
        return None


def ising_exchange(observed: float, *, step: float, lattice: Lattice | None = None, upper: float = 1.0) -> Exchange:
    """The exchange sampler for the coupling (C, 1) on [0, upper] given S = observed. Raises ValueError when no state has this S."""
    known = lattice or Lattice.of(*LATTICE)
    if not bool((known.values == observed).any()):
        raise ValueError(f"no state has S = {observed}")
    return Exchange(
        lambda theta, x: theta[:, 0] * x,
        lambda theta, generator: known.draw(theta[:, 0], generator),
        torch.tensor(float(observed), dtype=torch.float64),
        Support("interval", upper),
        step=step,
    )


class IdealIsing:
    """The peer that knows Z: random-walk Metropolis on the exact posterior of the coupling, which no exchange chain can beat per step (4.7)."""

    def __init__(self, observed: float, *, step: float, lattice: Lattice | None = None, upper: float = 1.0) -> None:
        self.name, self.step, self.support = "full-mh", above_zero("the step", step), Support("interval", upper)
        self.observed, self.lattice = float(observed), lattice or Lattice.of(*LATTICE)

    def start(self, theta: Tensor) -> Known:
        return (theta[:, 0] * self.observed - self.lattice.log_partition(theta[:, 0]),)

    def first(self, theta: Tensor, known: Known, generator: Generator) -> None:
        return None

    def propose(self, theta: Tensor, known: Known, first: None, generator: Generator) -> Proposed:
        moved = theta + self.step * standard_normal(theta, generator)
        return Proposed(moved, self.start(moved))

    def second(self, theta: Tensor, proposed: Tensor, first: None, generator: Generator) -> None:
        return None

    def log_ratio(self, theta: Tensor, proposed: Proposed, known: Known, first: None, second: None) -> Tensor:
        return proposed.known[0] - known[0]

    def touched(self, first: None, second: None) -> int:
        return 1

    def rows(self, first: None, second: None) -> None:
        return None
