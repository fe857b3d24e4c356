"""Training of the relaxed circuits by Adam, alpha growing linearly, and the hard circuit at the end (section 4.4 of the card).

Loss "log-f": the mean of log f is maximised, a lower bound of the log-likelihood because Z <= 1. Loss "normalised": log f - log Z of the
soft gate. After each stretch of epochs the hard circuit is scored on the validation part, and the best one is kept.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from backends.voronoi_pc.hierarchical import FactorisedVoronoi
from backends.voronoi_pc.relaxation import SoftFactorised, SoftVoronoi
from backends.voronoi_pc.voronoi_sum import VoronoiSum

Loss = Literal["log-f", "normalised"]
Soft = SoftVoronoi | SoftFactorised
Hard = VoronoiSum | FactorisedVoronoi

LEARNING_RATE = 0.01
BATCH = 500
HARD_ALPHA = 1e6  # at which the soft gate is the hard one, for the estimate of Z that scores a stretch


@dataclass(frozen=True, slots=True)
class Schedule:
    """alpha grows linearly over the epochs from ``alpha_start`` to ``alpha_end``."""

    epochs: int
    alpha_start: float
    alpha_end: float
    loss: Loss

    def alpha(self, epoch: int) -> float:
        """alpha in an epoch, from 0."""
        return self.alpha_start + (self.alpha_end - self.alpha_start) * epoch / max(1, self.epochs - 1)


@dataclass(frozen=True)
class State:
    """Where a training stands. losses: mean loss of each epoch; best: the hard-gated circuit with the best validation score so far."""

    soft: Soft
    optimiser: dict[str, Any] | None
    random: Tensor
    epoch: int
    losses: tuple[float, ...]
    best: Soft
    best_score: float


def begin(soft: Soft, seed: int, validation: Tensor, schedule: Schedule) -> State:
    """The state before the first epoch."""
    return State(soft, None, torch.Generator().manual_seed(seed).get_state(), 0, (), soft, score(soft, validation, schedule.loss))


def advance(state: State, train: Tensor, validation: Tensor, schedule: Schedule, epochs: int, check: Callable[[], None]) -> State:
    """The state after so many more epochs; ``state`` is left as it is. train: (n, d), validation: (m, d)."""
    soft = state.soft.copy()
    parameters = [p.requires_grad_() for p in soft.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=LEARNING_RATE)
    if state.optimiser is not None:
        optimiser.load_state_dict(copy.deepcopy(state.optimiser))
    generator = torch.Generator()
    generator.set_state(state.random)
    losses = list(state.losses)
    for epoch in range(state.epoch, min(state.epoch + epochs, schedule.epochs)):
        check()
        alpha = schedule.alpha(epoch)
        total = 0.0
        for rows in torch.randperm(len(train), generator=generator).split(BATCH):
            loss = -soft.log_density(train[rows], alpha).mean()
            if schedule.loss == "normalised":
                loss = loss + torch.log(soft.partition(alpha, generator))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += float(loss.detach()) * len(rows)
        losses.append(total / len(train))
    soft = soft.copy()
    reached = score(soft, validation, schedule.loss)
    better = reached >= state.best_score
    best, best_score = (soft, reached) if better else (state.best, state.best_score)
    return State(soft, copy.deepcopy(optimiser.state_dict()), generator.get_state(), len(losses), tuple(losses), best, best_score)


def score(soft: Soft, validation: Tensor, loss: Loss) -> float:
    """Mean of log f on the validation part under the hard gate; under the loss that names Z, less the log of Z, exact or estimated."""
    if isinstance(soft, SoftVoronoi) and not soft.gated:
        return float(soft.log_density(validation, 0.0).mean())
    hard = soft.hard()
    mean = float(hard.log_unnormalised(validation).mean())
    if loss == "log-f":
        return mean
    if isinstance(hard, FactorisedVoronoi):
        return mean - math.log(hard.partition())
    with torch.no_grad():
        return mean - math.log(float(soft.partition(HARD_ALPHA, torch.Generator().manual_seed(0))))


def nearest_means(points: np.ndarray, cells: int, seed: int) -> np.ndarray:
    """Centroids (K, d) of k-means on points (n, d); a cell that runs empty is seeded anew at the point that fits worst."""
    from sklearn.cluster import KMeans

    return np.asarray(KMeans(cells, n_init=1, random_state=seed).fit(points).cluster_centers_)
