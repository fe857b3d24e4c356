"""Q: the input directions that the frozen rows hardly read, so that what is learned along them hardly touches the old task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

from backends.plate.arrays import as_matrix, check_share, like

QMode = Literal["exact", "randomised", "random", "top-energy"]
MAX_RANK = 512
ROUNDING = 1e-12  # of a cumulative share: what is closer than this to the threshold has reached it


@dataclass(frozen=True)
class Spectrum:
    """How a matrix shares its energy among input directions, the directions that it does not read included.

    energy: (d_in,) squared singular values, descending. directions: (d_in, d_in), column i belongs to energy i.
    """

    energy: torch.Tensor
    directions: torch.Tensor

    @classmethod
    def of(cls, W: torch.Tensor) -> Spectrum:
        """From the Gram matrix in float64: a reduced singular value decomposition would leave out the null space of a wide layer.

        W: (rows, d_in) float64, d_in >= 1.
        """
        energy, directions = torch.linalg.eigh(W.T @ W)
        return cls(energy.flip(0).clamp_min(0), directions.flip(1))

    @property
    def d_in(self) -> int:
        return len(self.energy)

    @cached_property
    def cumulative(self) -> torch.Tensor:
        """(d_in,) share of the energy in the first directions; all ones when there is no energy at all."""
        total = self.energy.sum()
        return self.energy.cumsum(0) / total if float(total) > 0 else torch.ones_like(self.energy)

    def n_high(self, energy: float) -> int:
        """The smallest number of directions that hold this share of the energy."""
        if float(self.energy.sum()) == 0:
            return 0
        return high_count(self.cumulative, check_share(energy, "energy"))

    def low(self, k: int) -> torch.Tensor:
        """(d_in, k): the k directions of the least energy."""
        return self.directions[:, self.d_in - k :]

    def top(self, k: int) -> torch.Tensor:
        """(d_in, k): the k directions of the most energy."""
        return self.directions[:, :k]


@dataclass(frozen=True, slots=True)
class Width:
    """k of one layer. asked: d_in - n_high, before the bounds; capped: max_rank was smaller; forced: it would have been 0."""

    k: int
    asked: int

    @property
    def capped(self) -> bool:
        return self.k < self.asked

    @property
    def forced(self) -> bool:
        return self.asked < 1


def high_count(cumulative: torch.Tensor, energy: float) -> int:
    """The smallest n with a cumulative share of at least ``energy``; 0 for energy 0. cumulative: (d,) ascending."""
    if energy == 0:
        return 0
    return min(int(torch.searchsorted(cumulative, energy - ROUNDING)) + 1, len(cumulative))


def width(d_in: int, n_high: int, max_rank: int) -> Width:
    """k = clip(d_in - n_high, 1, max_rank)."""
    if max_rank < 1:
        raise ValueError(f"max_rank = {max_rank}: at least one direction must be allowed")
    asked = d_in - n_high
    return Width(min(max(asked, 1), max_rank), asked)


def low_energy(W_frozen: Any, energy: float, max_rank: int = MAX_RANK) -> tuple[Any, int]:
    """The input directions along which learning is allowed: those of least energy in the rows that stay frozen.

    n_high is the smallest number of leading singular directions that hold the share ``energy`` (tau) of the squared singular
    values; k = clip(d_in - n_high, 1, max_rank); Q holds the right singular vectors of the k smallest singular values, the null
    space included, from the larger to the smallest.

    W_frozen: (rows, d_in), the layer without its movable rows. energy: share in [0, 1]. max_rank: at least 1.
    Returns Q (d_in, k) with orthonormal columns, and k; ||W_frozen Q||_F^2 is the sum of the k smallest squared singular values.
    Raises ValueError for another share, NaN, or a wrong shape.

    >>> Q, k = low_energy([[2, 0, 0, 0], [0, 1, 0, 0], [0, 0, .5, 0]], 0.9)
    >>> k, abs(Q).round(6).tolist()
    (2, [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    """
    spectrum = Spectrum.of(as_matrix(W_frozen, "W_frozen"))
    k = width(spectrum.d_in, spectrum.n_high(energy), max_rank).k
    return like(spectrum.low(k), W_frozen), k


def random_directions(d_in: int, k: int, rng: np.random.Generator) -> torch.Tensor:
    """(d_in, k): orthonormal columns of a uniformly random subspace."""
    draws = torch.from_numpy(rng.normal(size=(d_in, k)))
    return positive_qr(draws)


def positive_qr(columns: torch.Tensor) -> torch.Tensor:
    """The orthonormal factor of a QR decomposition whose triangular factor has a positive diagonal. columns: (d, k)."""
    Q, R = torch.linalg.qr(columns)
    return Q * torch.where(R.diagonal() < 0, -1.0, 1.0)


def protected_ratio(W_frozen: Any, Q: Any) -> float:
    """||W_frozen Q||_F / ||W_frozen||_F: how much the frozen rows still read of the allowed directions; 0 without any energy.

    W_frozen: (rows, d_in); Q: (d_in, k). With exact directions it is at most sqrt(1 - energy), unless k was forced up to 1.
    """
    frozen = as_matrix(W_frozen, "W_frozen")
    whole = float(frozen.norm())
    return float((frozen @ as_matrix(Q, "Q")).norm()) / whole if whole > 0 else 0.0
