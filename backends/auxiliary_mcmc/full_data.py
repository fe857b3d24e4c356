"""The peers that read every row at every step: random-walk Metropolis, Barker, MALA and HMC on the exact posterior."""

from __future__ import annotations

import torch
from torch import Tensor

from backends.auxiliary_mcmc.driver import Proposed
from backends.auxiliary_mcmc.models import FullData, FullLook, TallModel
from backends.auxiliary_mcmc.proposals import Generator, Proposal, RandomWalk, standard_normal
from backends.auxiliary_mcmc.samplers import Known, above_zero


class FullSampler:
    """Metropolis-Hastings with the whole posterior: both auxiliary variables absent. It remembers energy and gradient of where it is."""

    def __init__(self, model: TallModel, proposal: Proposal, *, step: float) -> None:
        self.name = "full-mh" if isinstance(proposal, RandomWalk) else f"full-{proposal.name}"
        self.data, self.proposal, self.support, self.step = FullData(model), proposal, model.support, above_zero("the step", step)

    def start(self, theta: Tensor) -> FullLook:
        return self.data.look(theta) if self.proposal.uses_gradient else FullLook(self.data.energy(theta), torch.zeros_like(theta))

    def first(self, theta: Tensor, known: Known, generator: Generator) -> None:
        return None

    def propose(self, theta: Tensor, known: Known, first: None, generator: Generator) -> Proposed:
        theta = self.proposal.draw(theta, -known[1], self.step, generator)
        return Proposed(theta, self.start(theta))

    def second(self, theta: Tensor, proposed: Tensor, first: None, generator: Generator) -> None:
        return None

    def log_ratio(self, theta: Tensor, proposed: Proposed, known: Known, first: None, second: None) -> Tensor:
        (energy, gradient), (energy_new, gradient_new) = known, proposed.known
        return energy - energy_new + self.proposal.log_ratio(proposed.theta - theta, -gradient, -gradient_new, self.step)

    def touched(self, first: None, second: None) -> int:
        return self.data.n

    def rows(self, first: None, second: None) -> None:
        return None


class Hmc:
    """Hamiltonian Monte Carlo with ``leaps`` leapfrog steps and unit mass; the momentum is omega_1. Reads leaps * N rows a step."""

    def __init__(self, model: TallModel, *, step: float, leaps: int = 5) -> None:
        if leaps < 1:
            raise ValueError(f"{leaps} leapfrog steps were asked for; at least 1 is needed")
        self.name, self.leaps = f"full-hmc-{leaps}", leaps
        self.data, self.support, self.step = FullData(model), model.support, above_zero("the step", step)

    def start(self, theta: Tensor) -> Known:
        return (*self.data.look(theta), torch.zeros_like(theta))

    def first(self, theta: Tensor, known: Known, generator: Generator) -> Tensor:
        return standard_normal(theta, generator)

    def propose(self, theta: Tensor, known: Known, first: Tensor, generator: Generator) -> Proposed:
        momentum, gradient = first, known[1]
        energy = known[0]
        for _ in range(self.leaps):
            momentum = momentum - self.step / 2 * gradient
            theta = theta + self.step * momentum
            energy, gradient = self.data.look(theta)
            momentum = momentum - self.step / 2 * gradient
        return Proposed(theta, (energy, gradient, momentum))

    def second(self, theta: Tensor, proposed: Tensor, first: Tensor, generator: Generator) -> None:
        return None

    def log_ratio(self, theta: Tensor, proposed: Proposed, known: Known, first: Tensor, second: None) -> Tensor:
        energy_new, _, momentum_new = proposed.known
        return known[0] - energy_new + ((first**2).sum(1) - (momentum_new**2).sum(1)) / 2

    def touched(self, first: Tensor, second: None) -> int:
        return self.leaps * self.data.n

    def rows(self, first: Tensor, second: None) -> None:
        return None
