"""How far a finite cloud and a finite step are from the exact law: sweeps over N and over eta (section 8 of the card)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from backends.mirror_mfld.domains import Domain
from backends.mirror_mfld.dynamics import NotFiniteError, Settings, simulate
from backends.mirror_mfld.exact_law import ExactLaw

Array = np.ndarray

CLOUD_SIZES = (2, 4, 8, 16, 32, 64, 128)
STEP_SIZES = (0.01, 0.03, 0.1, 0.3)
POOLED = 1024  # particles of each size, as many clouds as that makes
SIZE_STEP = 0.03
LONGEST = 12.0  # time of a sweep, or the run's where that is shorter
GROUPS = 16  # independent clouds of the step sweep, for its error bars


@dataclass(frozen=True)
class Sweep:
    """at: (K,) sizes or steps; error: (K,) distance of the mean from the exact one; noise: (K,) its standard error.

    second: (K,) E |x|^2 minus the exact one, second_noise: its standard error.
    """

    at: Array
    error: Array
    noise: Array
    second: Array
    second_noise: Array


def can_sweep(domain: Domain) -> bool:
    """Whether sweeps are cheap enough here: points, not matrices."""
    return len(domain.shape) == 1


def draw(law: ExactLaw, count: int, batch: int, seed: int) -> Tensor:
    """(batch, count, *shape) nodes of the law's quadrature, drawn by their probability: a start close to rest."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(law.probability), size=(batch, count), p=law.probability / law.probability.sum())
    return law.rule.nodes[torch.from_numpy(chosen)]


def _measured(law: ExactLaw, settings: Settings, start: Tensor, time: float, seed: int, check: Callable[[], None]) -> tuple[float, float, float, float]:
    """Mean error and second-moment error over the last two thirds of ``time``, each with its standard error over the independent clouds."""
    steps = max(int(time / settings.step), 6)
    first, mean, second = steps // 3, torch.zeros(start.shape[0], start.shape[-1], dtype=torch.float64), torch.zeros(start.shape[0], dtype=torch.float64)
    drawn = torch.Generator().manual_seed(seed)
    for number, x in enumerate(simulate(law.domain, law.functional, settings, start, drawn)):
        check()
        if number >= first:
            mean += x.mean(-2)
            second += x.square().sum(-1).mean(-1)
        if number + 1 >= steps:
            break
    clouds = start.shape[0]
    of_cloud, of_second = mean.numpy() / (steps - first), second.numpy() / (steps - first)
    apart = of_cloud.mean(0) - law.mean
    noise = float(np.sqrt((of_cloud.var(0, ddof=1) / clouds).sum()))
    return float(np.linalg.norm(apart)), noise, float(of_second.mean() - law.second_moment), float(of_second.std(ddof=1) / np.sqrt(clouds))


def _sweep(at: tuple[float, ...], measure: Callable[[int], tuple[float, float, float, float]]) -> Sweep:
    rows = []
    for index in range(len(at)):
        try:
            rows.append(measure(index))
        except NotFiniteError:
            rows.append((np.nan,) * 4)
    columns = np.array(rows).T
    return Sweep(np.array(at, float), *columns)


def particle_sweep(law: ExactLaw, settings: Settings, time: float, seed: int, check: Callable[[], None] = lambda: None) -> Sweep:
    """Bias of clouds of 2 to 128 particles over ``time``, 1,024 particles of each size in all, step 0.03 (or the run's where that is larger)."""

    def measure(index: int) -> tuple[float, float, float, float]:
        size = CLOUD_SIZES[index]
        start = draw(law, size, POOLED // size, seed + index)
        return _measured(law, replace(settings, step=max(settings.step, SIZE_STEP)), start, time, seed + index, check)

    return _sweep(CLOUD_SIZES, measure)


def step_sweep(law: ExactLaw, settings: Settings, time: float, seed: int, check: Callable[[], None] = lambda: None) -> Sweep:
    """Bias of steps from 0.01 to 0.3, 16 clouds of 64 particles each over the same ``time``."""

    def measure(index: int) -> tuple[float, float, float, float]:
        start = draw(law, POOLED // GROUPS, GROUPS, seed + index)
        return _measured(law, replace(settings, step=STEP_SIZES[index]), start, time, seed + index, check)

    return _sweep(STEP_SIZES, measure)
