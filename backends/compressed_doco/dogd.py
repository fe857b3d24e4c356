"""The peers that move in every round: DC-DOGD with compressed differences, and D-OGD without compression, many settings at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from backends.compressed_doco.compressors import Compressor
from backends.compressed_doco.feedback import Feedback
from backends.compressed_doco.gossip import Replicas, check_step
from backends.compressed_doco.graphs import check_weights
from backends.compressed_doco.streams import Stream, project_ball

LOSS_LIMIT = 1e12  # a setting that overflowed


@dataclass(frozen=True, slots=True)
class Settings:
    """One setting a row: gossip steps gamma and step sizes eta, each (s,), and the offset c of the schedule, (s,).

    The step in round t = 1, 2, ... is eta / sqrt(t + c), or eta / (t + c) on strongly convex losses. Raises ValueError for
    shapes that differ, steps of at most 0 or an offset below 0.
    """

    gossip_steps: np.ndarray
    etas: np.ndarray
    offsets: np.ndarray

    def __post_init__(self) -> None:
        if not self.gossip_steps.shape == self.etas.shape == self.offsets.shape or self.etas.ndim != 1 or not self.etas.size:
            raise ValueError("gossip steps, step sizes and offsets must be as many, and at least one")
        if self.etas.min() <= 0 or self.offsets.min() < 0:
            raise ValueError("step sizes must be above 0 and offsets at least 0")

    def step(self, round_: int, curvature: float) -> np.ndarray:
        """(s, 1, 1)."""
        since = round_ + self.offsets
        return (self.etas / (since if curvature > 0 else np.sqrt(since)))[:, None, None]


def theory_offset(gossip_step: float, gap: float, curvature: float) -> float:
    """c of DC-DOGD's schedule: 8 / (3 gamma rho), on strongly convex losses 16 / (3 gamma rho)."""
    return (16 if curvature > 0 else 8) / (3 * gossip_step * gap)


@dataclass(frozen=True, slots=True)
class Course:
    """losses: (T, s, n) on all data; bits: (T, n) sent by each learner in each round, the mean over settings."""

    losses: np.ndarray
    bits: np.ndarray


def dc_dogd(
    stream: Stream,
    weights: np.ndarray,
    compress: Compressor,
    settings: Settings,
    radius: float,
    feedback: Feedback,
    on_round: Callable[[int], None] = lambda round_: None,
) -> Course:
    """DC-DOGD (Tu et al., NeurIPS 2022), all settings at once: each round project, suffer, send C(x - x-hat), mix, step.

    weights: W, (n, n). Raises ValueError for a bad W, radius or gossip step.
    """
    w = check_weights(weights)
    for step in settings.gossip_steps:
        check_step(float(step))
    gammas, room = settings.gossip_steps[:, None, None], feedback.room(radius)
    x = np.zeros((gammas.size, stream.learners, stream.dimension))
    replicas = Replicas(w, x.shape)
    losses, bits = np.empty((stream.horizon, gammas.size, stream.learners)), np.empty((stream.horizon, stream.learners))
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(stream.horizon):
            on_round(t)
            x = project_ball(x, room)
            gradient, suffered = feedback.ask(stream, t, t + 1, x)
            message = compress(x - replicas.own)
            replicas.receive(message)
            x = x + gammas * replicas.pull() - settings.step(t + 1, stream.curvature) * gradient
            losses[t], bits[t] = suffered[..., 0, :], compress.bits(message).mean(axis=0) * replicas.degree
    replicas.assert_equal()
    return Course(np.nan_to_num(losses, nan=LOSS_LIMIT, posinf=LOSS_LIMIT), bits)


def d_ogd(
    stream: Stream,
    weights: np.ndarray,
    settings: Settings,
    radius: float,
    feedback: Feedback,
    on_round: Callable[[int], None] = lambda round_: None,
) -> np.ndarray:
    """Uncompressed D-OGD, x <- project(W x - eta g): losses on all data, (T, s, n).

    weights: (s, n, n), one W a setting; the identity is learners who never talk, 11'/n centralised gradient descent on the sum.
    """
    room = feedback.room(radius)
    x = np.zeros((settings.etas.size, stream.learners, stream.dimension))
    losses = np.empty((stream.horizon, settings.etas.size, stream.learners))
    for t in range(stream.horizon):
        on_round(t)
        gradient, suffered = feedback.ask(stream, t, t + 1, x)
        losses[t] = suffered[..., 0, :]
        x = project_ball(weights @ x - settings.step(t + 1, stream.curvature) * gradient, room)
    return losses
