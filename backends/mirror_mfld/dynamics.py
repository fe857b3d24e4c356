"""Mirror mean-field Langevin dynamics (Algorithm 1) and the dynamics it is compared with, one step at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from backends.mirror_mfld.diffusion import euler_maruyama, floored_step, wright_fisher_step
from backends.mirror_mfld.domains import Domain, Simplex, whole_number
from backends.mirror_mfld.functionals import Functional

Kind = Literal["mirror", "noise-free", "projected", "unconstrained"]
Diffusion = Literal["exact", "em-floor", "em"]

BARRIER_CAP = 1.0  # of one barrier drift, in log units
PROJECTED_FLOOR = 1e-2  # in the barrier drift of the projected peer; 1e-6 throws all particles to the wall (section 11 of the card)


class NotFiniteError(ArithmeticError):
    """A particle left the numbers. step: from 1; particle: from 1."""

    def __init__(self, step: int, particle: int) -> None:
        super().__init__(f"step {step} gave particle {particle} a coordinate that is not a number")
        self.step, self.particle = step, particle


@dataclass(frozen=True)
class Settings:
    """How the particles move.

    step: eta > 0; temperature: lambda > 0; barrier: beta >= 0; diffusion, inner: scheme and sub-steps of the diffusion; floor: of shares
    or eigenvalues in ``em-floor``, lambda * eta where None; frozen: the drift keeps the statistics of the first cloud; kind: the
    dynamics. Raises ValueError for values outside.
    """

    step: float
    temperature: float
    barrier: float = 0.0
    diffusion: Diffusion = "em"
    inner: int = 1
    floor: float | None = None
    frozen: bool = False
    kind: Kind = "mirror"

    def __post_init__(self) -> None:
        for name in ("step", "temperature"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if not (math.isfinite(self.barrier) and self.barrier >= 0):
            raise ValueError(f"barrier must be at least 0, not {self.barrier}")
        if self.floor is not None and not 0 < self.floor < 1:
            raise ValueError(f"floor must be between 0 and 1, not {self.floor}")
        if self.diffusion not in ("exact", "em-floor", "em"):
            raise ValueError(f"there is no diffusion {self.diffusion!r}; there are exact, em-floor and em")
        whole_number(self.inner, 1, "inner")

    @property
    def h(self) -> float:
        """lambda * eta, the time of the pure diffusion."""
        return self.temperature * self.step


def mirror_step(domain: Domain, p: Any, gradient: Tensor, settings: Settings, generator: torch.Generator | None = None) -> Any:
    """Points after one step of Algorithm 1: drift in the dual, then the pure diffusion from where the drift led.

    p: points, as ``domain.primal`` or this function gives them; gradient: of the first variation at each of them, without barrier.
    Raises ValueError for the exact diffusion outside the simplex.
    """
    s = settings
    if s.diffusion == "exact":
        if not isinstance(domain, Simplex):
            raise ValueError("the exact diffusion is known on the simplex only")
        # Exponentiated gradient; the barrier is absorbed by the diffusion. Shifting the gradient keeps the factor below 1.
        moved = p * torch.exp(-s.step * (gradient - gradient.amin(-1, keepdim=True)))
        return wright_fisher_step(domain, moved / domain.total(moved), s.h, s.barrier / s.temperature, generator)
    floored = s.diffusion == "em-floor"
    least = s.h if s.floor is None else s.floor
    at = domain.floor(p, least) if floored else p
    y = domain.dual(at) - s.step * gradient
    if s.barrier:
        y = y + domain.barrier_push(at, s.step * s.barrier, cap=BARRIER_CAP if floored else math.inf)
    return floored_step(domain, y, s.h, s.inner, generator, least) if floored else euler_maruyama(domain, y, s.h, s.inner, generator)


def noise_free_step(domain: Domain, p: Any, gradient: Tensor, settings: Settings) -> Any:
    """Mirror descent: the drift alone."""
    y = domain.dual(p) - settings.step * gradient
    if settings.barrier:
        y = y + domain.barrier_push(p, settings.step * settings.barrier, cap=BARRIER_CAP)
    return domain.primal(y)


def projected_step(domain: Domain, x: Tensor, gradient: Tensor, settings: Settings, generator: torch.Generator | None = None) -> Tensor:
    """x (..., N, *shape) after a Euclidean Langevin step and the projection onto the set; its barrier drift is floored at 1e-2."""
    push = domain.barrier_push(x, settings.step * settings.barrier, floor=PROJECTED_FLOOR) if settings.barrier else 0.0
    return domain.project(x - settings.step * gradient + push + math.sqrt(2 * settings.h) * domain.tangent_noise(x, generator))


def unconstrained_step(domain: Domain, x: Tensor, gradient: Tensor, settings: Settings, generator: torch.Generator | None = None) -> Tensor:
    """x after a Euclidean Langevin step that knows no wall and no barrier."""
    return x - settings.step * gradient + math.sqrt(2 * settings.h) * domain.tangent_noise(x, generator)


def simulate(domain: Domain, functional: Functional, settings: Settings, x: Tensor, generator: torch.Generator | None = None) -> Iterator[Tensor]:
    """Yields the cloud x (..., N, *shape) after each step, without end; the drift sees the current cloud unless it is frozen.

    x: the first cloud, of at least 2 particles inside the domain. Raises ValueError for another one, NotFiniteError when a coordinate
    becomes NaN or infinite.
    """
    start = domain.check(x)
    if start.ndim < 1 + len(domain.shape) or start.shape[functional.axis] < 2:
        raise ValueError("a cloud has at least 2 particles")
    p = domain.lift(start) if settings.kind in ("mirror", "noise-free") else start
    frozen = functional.statistics(start)
    number = 0
    while True:
        number += 1
        now = domain.ambient(p)
        gradient = functional.gradient(now, frozen if settings.frozen else functional.statistics(now))
        if settings.kind == "mirror":
            p = mirror_step(domain, p, gradient, settings, generator)
        elif settings.kind == "noise-free":
            p = noise_free_step(domain, p, gradient, settings)
        elif settings.kind == "projected":
            p = projected_step(domain, p, gradient, settings, generator)
        else:
            p = unconstrained_step(domain, p, gradient, settings, generator)
        after = domain.ambient(p)
        if not bool(torch.isfinite(after.sum())):
            bad = torch.nonzero(~torch.isfinite(after).flatten(functional.axis + 1).all(-1).reshape(-1))
            raise NotFiniteError(number, int(bad[0]) + 1 if len(bad) else 0)
        yield after
