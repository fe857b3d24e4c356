"""One sampler in the race: its chains, what they drew, what they read, and the processor time they took."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from backends.auxiliary_mcmc.driver import Sampler, State, Step, advance, start
from backends.auxiliary_mcmc.reference import Reference
from backends.auxiliary_mcmc.tuning import tune

Array = np.ndarray

SPREAD = 1.5  # of the starting points, in posterior sd


@dataclass
class Entrant:
    """One sampler's chains and what they did since the pilot.

    draws, ratios, batches: arrays (T, C, d), (T, C), (T, C) one after another; steps: of each chain; touched, seconds: of all chains, rows and processor
    time; checkpoints: (steps, touched, seconds) after each stretch; rows: row numbers that the first chain read in its last step.
    """

    sampler: Sampler
    state: State
    generator: torch.Generator
    full: bool
    draws: list[Array] = field(default_factory=list)
    ratios: list[Array] = field(default_factory=list)
    batches: list[Array] = field(default_factory=list)
    accepted: int = 0
    seconds: float = 0.0
    touched: int = 0
    steps: int = 0
    checkpoints: list[tuple[int, int, float]] = field(default_factory=list)
    rows: Array = field(default_factory=lambda: np.zeros(0, int))

    @property
    def chains(self) -> int:
        return int(self.state.theta.shape[0])

    def pilot(self, target: float, steps: int, on_step: Callable[[], None]) -> None:
        """Finds the step; its draws are discarded and its time is not counted."""
        self.state = tune(self.sampler, self.state, target, self.generator, steps, on_step)

    def go(self, steps: int, on_step: Callable[[], None], seconds: float = math.inf, touches: float = math.inf) -> None:
        """At most this many steps of every chain; fewer once all chains together have taken so many seconds or read so many rows."""
        taken: list[Step] = []
        while len(taken) < steps and self.seconds < seconds and self.touched < touches:
            on_step()
            began = time.thread_time()
            step = advance(self.sampler, self.state, self.generator)
            self.seconds += time.thread_time() - began
            self.state = step.state
            self.touched += int(step.touched.sum())
            taken.append(step)
        if not taken:
            return
        self.draws.append(torch.stack([step.state.theta for step in taken]).numpy())
        self.ratios.append(torch.stack([step.log_ratio for step in taken]).numpy())
        self.batches.append(torch.stack([step.touched for step in taken]).numpy())
        self.accepted += int(torch.stack([step.accepted for step in taken]).sum())
        self.steps += len(taken)
        self.rows = np.zeros(0, int) if taken[-1].rows is None else taken[-1].rows.numpy()
        self.checkpoints.append((self.steps, self.touched, self.seconds))

    @property
    def drawn(self) -> Array:
        """(T, C, d) all draws so far."""
        return np.concatenate(self.draws)

    @property
    def acceptance(self) -> float:
        return self.accepted / max(self.steps * self.chains, 1)

    @property
    def mean_batch(self) -> float:
        return self.touched / max(self.steps * self.chains, 1)


def starting_points(reference: Reference, sampler: Sampler, chains: int, rng: np.random.Generator) -> State:
    """Chains scattered half again as widely as the posterior, drawn towards its mean where they would leave the support."""
    away = SPREAD * reference.sd * rng.normal(size=(chains, len(reference.mean)))
    centre = torch.tensor(reference.mean)  # a copy: stored arrays are write-protected
    theta = centre + torch.from_numpy(away)
    while not bool(sampler.support.holds(theta).all()):
        theta = torch.where(sampler.support.holds(theta)[:, None], theta, centre + (theta - centre) / 2)
    return start(sampler, theta)
