"""One driver for every chain of the framework: Algorithm 1 of the paper (section 4.2 of the method card).

omega_1 ~ P_theta; theta' ~ q_omega1(theta, .); omega_2 ~ P_theta,theta'(. | omega_1); accept with min(1, r),

    r = [pi(theta'|x) P_theta',theta(omega_1, omega_2)] / [pi(theta|x) P_theta,theta'(omega_1, omega_2)] * q_omega1(theta', theta) / q_omega1(theta, theta').

A sampler is these four hooks: ``first``, ``propose``, ``second``, ``log_ratio``. Both variables absent is Metropolis-Hastings, omega_1 absent is
exchange or TunaMH, one variable for both is Poisson-Barker or Poisson-MALA, two independent ones are Tuna-SGLD. All chains of a sampler take a step
together, as tensors whose first axis is the chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from backends.auxiliary_mcmc.models import Support


class Proposed(NamedTuple):
    """theta: (C, d) the point proposed; known: what the sampler knows of it (tensors, chains first), kept when it is accepted."""

    theta: Tensor
    known: tuple[Tensor, ...] = ()


class Sampler(Protocol):
    """What a sampler supplies. ``known`` is what it remembers of the current point: a full-data chain its energy and gradient, others nothing."""

    name: str
    support: Support
    step: float

    def start(self, theta: Tensor) -> tuple[Tensor, ...]:
        """What is known of theta (C, d)."""

    def first(self, theta: Tensor, known: tuple[Tensor, ...], generator: torch.Generator) -> Any:
        """omega_1, or None."""

    def propose(self, theta: Tensor, known: tuple[Tensor, ...], first: Any, generator: torch.Generator) -> Proposed:
        """theta' given omega_1."""

    def second(self, theta: Tensor, proposed: Tensor, first: Any, generator: torch.Generator) -> Any:
        """omega_2, or None."""

    def log_ratio(self, theta: Tensor, proposed: Proposed, known: tuple[Tensor, ...], first: Any, second: Any) -> Tensor:
        """log r, (C,) float64."""

    def touched(self, first: Any, second: Any) -> Tensor | int:
        """Data rows that the step read: (C,) int64, or one number for all chains."""

    def rows(self, first: Any, second: Any) -> Tensor | None:
        """Row numbers that chain 0 read, for the picture; None where that is all rows or none."""


@dataclass(frozen=True, slots=True)
class State:
    """Where C chains are. theta: (C, d) float64; known: see Sampler."""

    theta: Tensor
    known: tuple[Tensor, ...] = ()


class Step(NamedTuple):
    """One step of C chains. accepted: (C,) bool; log_ratio: (C,), -inf outside the support; touched: (C,) int64."""

    state: State
    accepted: Tensor
    log_ratio: Tensor
    touched: Tensor
    rows: Tensor | None


def start(sampler: Sampler, theta: Tensor) -> State:
    """Chains at theta (C, d). Raises ValueError where one of them starts outside the support."""
    theta = torch.as_tensor(theta, dtype=torch.float64)
    if theta.ndim != 2 or theta.shape[0] == 0 or not bool(sampler.support.holds(theta).all()):
        raise ValueError(f"the chains start at shape {tuple(theta.shape)}; (C, d) inside the support is needed")
    return State(theta, sampler.start(theta))


def advance(sampler: Sampler, state: State, generator: torch.Generator) -> Step:
    """One step of every chain."""
    theta, known = state.theta, state.known
    first = sampler.first(theta, known, generator)
    proposed = sampler.propose(theta, known, first, generator)
    inside = sampler.support.holds(proposed.theta)
    # Rejected at once; the ratio is then read at a point where the bounds hold, and not used.
    proposed = proposed._replace(theta=torch.where(inside[:, None], proposed.theta, theta))
    second = sampler.second(theta, proposed.theta, first, generator)
    ratio = torch.where(inside, sampler.log_ratio(theta, proposed, known, first, second), -torch.inf)
    coin = torch.rand(ratio.shape, dtype=ratio.dtype, device=ratio.device, generator=generator)
    accepted = torch.log(coin) < ratio
    touched = sampler.touched(first, second)
    moved = State(_chosen(accepted, proposed.theta, theta), tuple(_chosen(accepted, new, old) for new, old in zip(proposed.known, known, strict=True)))
    counted = touched if isinstance(touched, Tensor) else torch.full_like(ratio, touched, dtype=torch.int64)
    return Step(moved, accepted, ratio, counted, sampler.rows(first, second))


def _chosen(accepted: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(accepted.view(-1, *[1] * (new.ndim - 1)), new, old)


class Chains(NamedTuple):
    """Draws of C chains over T steps. draws: (T, C, d); log_ratio: (T, C); accepted: (T, C) bool; touched: (T, C) int64."""

    draws: Tensor
    log_ratio: Tensor
    accepted: Tensor
    touched: Tensor


def run_chains(sampler: Sampler, theta: Tensor, steps: int, generator: torch.Generator, on_step: Callable[[], None] = lambda: None) -> Chains:
    """T steps of C chains from theta (C, d); ``on_step`` is called before each and may raise. Raises ValueError for a start outside the support."""
    if steps < 1:
        raise ValueError(f"{steps} steps were asked for; at least 1 is needed")
    state, taken = start(sampler, theta), []
    for _ in range(steps):
        on_step()
        step = advance(sampler, state, generator)
        state = step.state
        taken.append((state.theta, step.log_ratio, step.accepted, step.touched))
    return Chains(*(torch.stack(column) for column in zip(*taken, strict=True)))
