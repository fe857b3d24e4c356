"""How the next point is proposed, given a gradient: random walk, Barker, MALA (section 4.5 of the method card).

Each has ``draw`` and ``log_ratio`` = log q(theta', theta) - log q(theta, theta'). The gradient is that of a log density: of the full posterior, or
of the surrogate that one minibatch gives; the reverse density reads the same minibatch at theta'. All tensors are float64, chains first.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Generator, Tensor


def standard_normal(like: Tensor, generator: Generator) -> Tensor:
    """Standard normal numbers of the shape of ``like``."""
    return torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=generator)


class Proposal(Protocol):
    """A family of proposal kernels q, driven by a gradient or not."""

    name: str
    uses_gradient: bool

    def draw(self, theta: Tensor, gradient: Tensor, step: float, generator: Generator) -> Tensor:
        """theta' (C, d) from theta (C, d) and the gradient there (C, d)."""

    def log_ratio(self, moved: Tensor, gradient: Tensor, gradient_new: Tensor, step: float) -> Tensor:
        """log q(theta', theta) - log q(theta, theta'), (C,), for moved = theta' - theta (C, d) and the gradients at both ends (C, d)."""


class RandomWalk:
    """theta' = theta + step xi; symmetric."""

    name, uses_gradient = "random-walk", False

    def draw(self, theta: Tensor, gradient: Tensor, step: float, generator: Generator) -> Tensor:
        return theta + step * standard_normal(theta, generator)

    def log_ratio(self, moved: Tensor, gradient: Tensor, gradient_new: Tensor, step: float) -> Tensor:
        return moved.new_zeros(moved.shape[0])


class Barker:
    """eta_j ~ N(0, step^2); theta'_j = theta_j + eta_j with probability 1/(1 + exp(-eta_j g_j)), else theta_j - eta_j.

    The balancing function is t/(1+t): the coin leans uphill, the size of the step does not depend on the gradient.
    """

    name, uses_gradient = "barker", True

    def draw(self, theta: Tensor, gradient: Tensor, step: float, generator: Generator) -> Tensor:
        eta = step * standard_normal(theta, generator)
        coin = torch.rand(theta.shape, dtype=theta.dtype, device=theta.device, generator=generator)
        return torch.where(coin < torch.sigmoid(eta * gradient), theta + eta, theta - eta)

    def log_ratio(self, moved: Tensor, gradient: Tensor, gradient_new: Tensor, step: float) -> Tensor:
        zero = torch.zeros((), dtype=moved.dtype, device=moved.device)
        return (torch.logaddexp(zero, -moved * gradient) - torch.logaddexp(zero, moved * gradient_new)).sum(1)


class Mala:
    """theta' = theta + step^2 g + sqrt 2 step xi; the balancing function is sqrt t."""

    name, uses_gradient = "mala", True

    def draw(self, theta: Tensor, gradient: Tensor, step: float, generator: Generator) -> Tensor:
        return theta + step**2 * gradient + math.sqrt(2) * step * standard_normal(theta, generator)

    def log_ratio(self, moved: Tensor, gradient: Tensor, gradient_new: Tensor, step: float) -> Tensor:
        back, forth = -moved - step**2 * gradient_new, moved - step**2 * gradient
        return ((forth**2).sum(1) - (back**2).sum(1)) / (4 * step**2)


PROPOSALS: dict[str, Proposal] = {proposal.name: proposal for proposal in (RandomWalk(), Barker(), Mala())}
