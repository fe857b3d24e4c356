"""Learned rounding of one cluster: AdaRound's soft up or down with a metric of one's choice (card 4.2)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from backends.stla.grids import Grid

STRETCH, SHIFT = 1.2, -0.1  # of the rectified sigmoid
EDGE = 1e-4  # a weight on its grid would start at an infinite V
WARM_UP = 0.2  # share of the iterations without the regulariser
BETA_FIRST, BETA_LAST = 20.0, 2.0
LAST_RATE = 0.3  # of the learning rate, at the end of its cosine
ADAM = (0.9, 0.999, 1e-8)


@dataclass(frozen=True, slots=True)
class Learning:
    """How rounding is learned. iterations: T, 0 is nearest rounding. dtype: of the learning and of the grid search; all else is float64."""

    iterations: int = 200
    learning_rate: float = 0.015
    regulariser: float = 1.0
    dtype: torch.dtype = torch.float64

    def __post_init__(self) -> None:
        if self.iterations < 0 or not self.learning_rate > 0 or not self.regulariser >= 0:
            raise ValueError("iterations and regulariser are at least 0, the learning rate is above 0")

    def beta(self, iteration: int) -> float | None:
        """Exponent of the regulariser; None while it is off.

        >>> [Learning(100).beta(t) for t in (19, 20, 60, 99)]
        [None, 20.0, 11.0, 2.225]
        """
        start = WARM_UP * self.iterations
        if iteration < start:
            return None
        return BETA_LAST + (BETA_FIRST - BETA_LAST) * (1 - (iteration - start) / (self.iterations - start))

    def rate(self, iteration: int) -> float:
        """Learning rate, along a cosine from the given one to 0.3 of it."""
        cosine = (1 + math.cos(math.pi * iteration / self.iterations)) / 2
        return self.learning_rate * (LAST_RATE + (1 - LAST_RATE) * cosine)


@dataclass(frozen=True, slots=True)
class Step:
    """What one iteration saw. recon, penalty: sums over the cluster, the penalty without its weight lambda. soft: h(V), (R, c)."""

    iteration: int
    recon: float
    penalty: float
    soft: torch.Tensor


@dataclass(frozen=True, slots=True)
class Problem:
    """One cluster. base: floor(W / s) + z, (R, c). grid: (R, 1) or (R, c). metric: (c, c). reference: what the soft weights should be, (R, c)."""

    base: torch.Tensor
    grid: Grid
    metric: torch.Tensor
    reference: torch.Tensor

    def to(self, dtype: torch.dtype) -> Problem:
        return Problem(self.base.to(dtype), self.grid.to(dtype), self.metric.to(dtype), self.reference.to(dtype))


def rectified_sigmoid(v: torch.Tensor) -> torch.Tensor:
    """h(V) = clip(1.2 sigmoid(V) - 0.1, 0, 1), of any shape."""
    return (STRETCH * torch.sigmoid(v) + SHIFT).clamp_(0, 1)


def start(fraction: torch.Tensor) -> torch.Tensor:
    """V with h(V) = fraction; fractions of 0 and 1 become 0.0001 and 0.9999."""
    sigmoid = (fraction.clamp(EDGE, 1 - EDGE) - SHIFT) / STRETCH
    return torch.logit(sigmoid)


def objective(v: torch.Tensor, problem: Problem, regulariser: float, beta: float | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """recon (R,), penalty (R,) and the gradient (R, c) by V of sum(recon) + lambda sum(penalty), in closed form.

    recon = sum((ue S) ue) with ue = Qs - reference; penalty = sum(1 - |2h - 1|^beta), zero for beta None.
    """
    grid = problem.grid
    sigmoid = torch.sigmoid(v)
    raw = STRETCH * sigmoid + SHIFT
    soft = raw.clamp(0, 1)
    codes = problem.base + soft
    inside = (codes >= 0) & (codes <= grid.levels)
    error = grid.values(codes.clamp_(0, grid.levels)) - problem.reference
    pull = error @ problem.metric
    recon = (pull * error).sum(1)
    slope = pull.mul_(2).mul_(grid.scale).mul_(inside)
    penalty = torch.zeros_like(recon)
    if beta is not None:
        centred = 2 * soft - 1
        power = centred.abs().pow_(beta - 1)
        penalty = (1 - power * centred.abs()).sum(1)
        slope = slope.sub_(power.mul_(torch.sign(centred)), alpha=2 * beta * regulariser)
    return recon, penalty, slope.mul_(STRETCH * sigmoid * (1 - sigmoid)).mul_((raw >= 0) & (raw <= 1))


def _on_device(v: torch.Tensor, problem: Problem, regulariser: float, beta: float | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return objective(v, problem, regulariser, beta)


def learn(
    weights: torch.Tensor, problem: Problem, learning: Learning, check: Callable[[], None] = lambda: None, watch: Callable[[Step], None] = lambda _: None
) -> torch.Tensor:
    """Codes of the learned rounding, floor(W / s) + 1[V >= 0] + z clipped to the grid; (R, c) in the dtype of ``weights``.

    weights: W_K, whose fraction is the start. check: called in each iteration and may raise. watch: sees each iteration, the start first.
    """
    low = problem.to(learning.dtype)
    fraction = (weights / problem.grid.scale - torch.floor(weights / problem.grid.scale)).to(learning.dtype)
    v = start(fraction)
    mean, square = torch.zeros_like(v), torch.zeros_like(v)
    first, second, epsilon = ADAM
    for iteration in range(learning.iterations):
        check()
        beta = learning.beta(iteration)
        recon, penalty, gradient = _on_device(v, low, learning.regulariser, beta)
        watch(Step(iteration, float(recon.sum()), float(penalty.sum()), rectified_sigmoid(v)))
        mean.lerp_(gradient, 1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        spread = (square / (1 - second ** (iteration + 1))).sqrt_().add_(epsilon)
        v.addcdiv_(mean, spread, value=-learning.rate(iteration) / (1 - first ** (iteration + 1)))
    up = (v >= 0).to(weights.dtype)
    return (problem.base + up).clamp_(0, problem.grid.levels)
