"""What a learner is told of its loss: the gradient, or the loss at one or two points near its decision (bandit feedback)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from backends.compressed_doco.streams import Stream

FeedbackKind = Literal["gradient", "two-point", "one-point"]


def on_sphere(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Unit vectors along the last axis, uniform on the sphere."""
    drawn = rng.normal(size=shape)
    return drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)


def two_point(ahead: np.ndarray, behind: np.ndarray, direction: np.ndarray, delta: float) -> np.ndarray:
    """g = (d / 2 delta) [f(x + delta u) - f(x - delta u)] u, (..., d); on a quadratic its mean over u is the gradient.

    ahead, behind: losses (...); direction: u, (..., d). Raises ValueError for delta of at most 0.
    """
    _check(delta)
    return direction.shape[-1] / (2 * delta) * np.asarray(ahead - behind)[..., None] * direction


def one_point(value: np.ndarray, direction: np.ndarray, delta: float) -> np.ndarray:
    """g = (d / delta) f(x + delta u) u, (..., d), for losses (...) and directions (..., d). Raises as ``two_point``."""
    _check(delta)
    return direction.shape[-1] / delta * np.asarray(value)[..., None] * direction


@dataclass(frozen=True, slots=True)
class Feedback:
    """What is learnt in a stretch of rounds; ``delta`` is the distance of the bandit's queries from the decision."""

    kind: FeedbackKind
    delta: float
    rng: np.random.Generator

    def room(self, radius: float) -> float:
        """The radius that decisions keep to, so that no query leaves the ball. Raises ValueError for delta at or above it."""
        if self.kind == "gradient":
            return radius
        _check(self.delta)
        if self.delta >= radius:
            raise ValueError(f"delta {self.delta} must be below the radius {radius}")
        return radius - self.delta

    def noise(self, stream: Stream) -> float:
        """How much longer than a gradient an estimate is, about: steps are divided by it."""
        d = stream.dimension
        if self.kind == "gradient":
            return 1.0
        if self.kind == "two-point":
            return math.sqrt(d)
        origin = np.zeros((1, stream.learners, d))
        level = float(stream.local_losses(0, min(stream.horizon, 50), origin).mean())
        return d * level / self.delta

    def ask(self, stream: Stream, start: int, stop: int, decisions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient estimates summed over the rounds, (..., n, d), and each learner's loss on all data where it played, (..., L, n).

        decisions: (..., n, d), held for all rounds. A bandit plays its queries; with two it suffers their mean.
        """
        points = decisions[..., None, :, :]
        if self.kind == "gradient":
            return stream.local_gradients(start, stop, points).sum(axis=-3), stream.global_losses(start, stop, points)
        direction = on_sphere((stop - start, stream.learners, stream.dimension), self.rng)
        ahead = points + self.delta * direction
        value, suffered = stream.local_losses(start, stop, ahead), stream.global_losses(start, stop, ahead)
        if self.kind == "one-point":
            return one_point(value, direction, self.delta).sum(axis=-3), suffered
        behind = points - self.delta * direction
        estimate = two_point(value, stream.local_losses(start, stop, behind), direction, self.delta)
        return estimate.sum(axis=-3), (suffered + stream.global_losses(start, stop, behind)) / 2


def _check(delta: float) -> None:
    if not delta > 0:
        raise ValueError(f"delta must be above 0, not {delta}")
