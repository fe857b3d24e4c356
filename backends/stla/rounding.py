"""Learned rounding of one cluster: AdaRound's soft up or down with a metric of one's choice (card 4.2)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from backends.stla.grids import Grid
from kernels import rounding as fused
from kernels.rounding import MARGIN, STRETCH, rectified_sigmoid

EDGE = 1e-4  # a weight on its grid would start at an infinite V
WARM_UP = 0.2  # share of the iterations without the regulariser
BETA_FIRST, BETA_LAST = 20.0, 2.0
LAST_RATE = 0.3  # of the learning rate, at the end of its cosine
ADAM = (0.9, 0.999, 1e-8)
WATCHED = 5  # iterations from one that is shown to the next


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

        >>> [Learning(100).beta(t) for t in (19, 20, 60)]
        [None, 20.0, 11.0]
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
    """One cluster. floor: of W / s, (R, c). grid: (R, 1) or (R, c). metric: (c, c), symmetric. reference: what the soft weights should be, (R, c)."""

    floor: torch.Tensor
    grid: Grid
    metric: torch.Tensor
    reference: torch.Tensor

    def to(self, dtype: torch.dtype) -> Problem:
        return Problem(self.floor.to(dtype), self.grid.to(dtype), self.metric.to(dtype), self.reference.to(dtype))

    def affine(self) -> tuple[torch.Tensor, torch.Tensor]:
        """ue = slope h + offset, both (R, c): a soft code is either clipped for no h, or, beyond the ends of the grid, for every h."""
        base = self.floor + self.grid.zero
        inside = (base >= 0) & (base < self.grid.levels)
        return self.grid.scale * inside, self.grid.values(base.clamp(0, self.grid.levels)) - self.reference


def start(fraction: torch.Tensor) -> torch.Tensor:
    """V with h(V) = fraction; fractions of 0 and 1 become 0.0001 and 0.9999."""
    sigmoid = (fraction.clamp(EDGE, 1 - EDGE) + MARGIN) / STRETCH
    return torch.logit(sigmoid)


def objective(v: torch.Tensor, problem: Problem, regulariser: float, beta: float | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """recon (R,), penalty (R,) and the gradient (R, c) by V of sum(recon) + lambda sum(penalty), in closed form.

    recon = sum((ue S) ue) with ue = Qs - reference; penalty = sum(1 - |2h - 1|^beta), zero for beta None.
    """
    return _objective(v, *problem.affine(), problem.metric, regulariser, beta)


def _objective(
    v: torch.Tensor, slope: torch.Tensor, offset: torch.Tensor, metric: torch.Tensor, regulariser: float, beta: float | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    sigmoid = torch.sigmoid(v)
    raw = STRETCH * sigmoid - MARGIN
    soft = raw.clamp(0, 1)
    error = torch.addcmul(offset, slope, soft)
    pull = error @ metric
    recon = (pull * error).sum(1)
    gradient = pull.mul_(slope).mul_(2)
    penalty = torch.zeros_like(recon)
    if beta is not None:
        centred = soft.mul_(2).sub_(1)
        power = centred.abs().log2_().mul_(beta - 1).exp2_()  # torch's pow takes three times as long on a CPU
        penalty = (1 - power * centred.abs()).sum(1)
        gradient.sub_(torch.copysign(power, centred), alpha=2 * beta * regulariser)
    # One pass each for the clip and the sigmoid, in place of masks and products.
    clipped = torch.ops.aten.hardtanh_backward(gradient, raw, 0.0, 1.0)
    return recon, penalty, torch.ops.aten.sigmoid_backward(clipped, sigmoid).mul_(STRETCH)


def _objective_of(problem: Problem, regulariser: float) -> Callable[[torch.Tensor, float | None], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """The objective as a function of V and beta; on a CUDA device in float32 by the fused kernel, elsewhere with what does not change made once."""
    if problem.metric.device.type == "cuda" and problem.metric.dtype == torch.float32:
        grid = problem.grid

        def by_kernel(v: torch.Tensor, beta: float | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            given = (v, problem.floor, grid.scale, grid.zero, problem.reference, problem.metric)
            found = fused.op(*given, bits=grid.levels.bit_length(), weight=0.0 if beta is None else regulariser, beta=beta or BETA_LAST)
            return found.recon, found.regulariser / (regulariser or 1.0), found.gradient

        return by_kernel
    slope, offset = problem.affine()
    return lambda v, beta: _objective(v, slope, offset, problem.metric, regulariser, beta)


def learn(
    weights: torch.Tensor,
    problem: Problem,
    learning: Learning,
    check: Callable[[], None] = lambda: None,
    watch: Callable[[Step], None] | None = None,
) -> torch.Tensor:
    """Codes of the learned rounding, floor(W / s) + 1[V >= 0] + z clipped to the grid; (R, c) in the dtype of ``weights``.

    weights: W_K, whose fraction is the start. check: called in each iteration and may raise. watch: sees every fifth iteration and the last.
    """
    look = _objective_of(problem.to(learning.dtype), learning.regulariser)
    fraction = (weights / problem.grid.scale - torch.floor(weights / problem.grid.scale)).to(learning.dtype)
    v = start(fraction)
    mean, square = torch.zeros_like(v), torch.zeros_like(v)
    first, second, epsilon = ADAM
    for iteration in range(learning.iterations):
        check()
        recon, penalty, gradient = look(v, learning.beta(iteration))
        if watch is not None and (iteration % WATCHED == 0 or iteration == learning.iterations - 1):
            watch(Step(iteration, float(recon.sum()), float(penalty.sum()), rectified_sigmoid(v)))
        mean.lerp_(gradient, 1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        spread = (square / (1 - second ** (iteration + 1))).sqrt_().add_(epsilon)
        v.addcdiv_(mean, spread, value=-learning.rate(iteration) / (1 - first ** (iteration + 1)))
    up = (v >= 0).to(weights.dtype)
    return (problem.floor + problem.grid.zero + up).clamp_(0, problem.grid.levels)
