"""Training on one task, and what is measured on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn

from backends.plate.learners import Learner
from backends.plate.networks import Net, loss_of
from backends.plate.tasks import Data

BATCH = 64
OLD_RATE = 1e-3
EACH = 25  # steps between two measurements
CHECK_EACH = 10  # steps between two looks at Stop


def batches(samples: int, steps: int, rng: np.random.Generator, size: int = BATCH) -> np.ndarray:
    """(steps, size) indices: shuffled passes over the samples, one after another."""
    passes = -(-steps * size // samples)
    order = np.argsort(rng.random((passes, samples)), axis=1)
    return order.ravel()[: steps * size].reshape(steps, size)


def fit(net: Net, data: Data, steps: int, rng: np.random.Generator, check: Callable[[], None]) -> None:
    """Trains all of a network on the old task, in place: Adam, 1e-3, batches of 64."""
    optimiser = torch.optim.Adam(net.parameters(), lr=OLD_RATE, fused=True)
    for step, chosen in enumerate(torch.from_numpy(batches(len(data.y), steps, rng))):
        if step % CHECK_EACH == 0:
            check()
        optimiser.zero_grad()
        loss_of(net(data.x[chosen]), data.y[chosen]).backward()
        optimiser.step()


def adapt(
    learner: Learner, new: Data, steps: int, rate: float, rng: np.random.Generator, check: Callable[[], None], batch: int = BATCH, each: int = EACH
) -> Iterator[int]:
    """Trains a learner on the new task in place; yields the number of steps done: 0 first, then after ``each`` and after the last.

    It is given the new task's data and nothing else; what a learner keeps of the old one, it brings itself.
    """
    yield 0
    optimiser = torch.optim.Adam(learner.parameters, lr=rate, fused=True)
    chosen = torch.from_numpy(batches(len(new.y), steps, rng, batch))
    seeds = rng.integers(2**32, size=steps)
    for step in range(steps):
        check()
        optimiser.zero_grad()
        learner.loss(new.x[chosen[step]], new.y[chosen[step]], int(seeds[step])).backward()
        optimiser.step()
        if (step + 1) % each == 0 or step + 1 == steps:
            yield step + 1


@torch.no_grad()
def answers(body: nn.Module, head: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Logits (n, c)."""
    logits: torch.Tensor = head(body(x))
    return logits
