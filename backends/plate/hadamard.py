"""The released code's way to Q on large layers: a randomised Hadamard rotation, and diagonal energies from a few random probes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from backends.plate.arrays import as_matrix, check_share, like
from backends.plate.subspace import MAX_RANK, high_count, positive_qr, width

COUNT_PROBES, CANDIDATE_PROBES = 2, 4  # of the released code: for n_high, and for the coordinates to look at
CANDIDATES_A_DIRECTION, MOST_CANDIDATES = 4, 8192


def walsh_hadamard(x: torch.Tensor) -> torch.Tensor:
    """The normalised Walsh-Hadamard transform of the last axis by butterflies. x: (..., n), n a power of two; its own inverse.

    >>> walsh_hadamard(torch.tensor([1.0, 0, 0, 0])).tolist()
    [0.5, 0.5, 0.5, 0.5]
    """
    n = x.shape[-1]
    if n & (n - 1) or n == 0:
        raise ValueError(f"the length must be a power of two, {n} is not")
    out, half = x, 1
    while half < n:
        pairs = out.reshape(*x.shape[:-1], n // (2 * half), 2, half)
        out = torch.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], dim=-2)
        half *= 2
    return out.reshape(x.shape) / n**0.5


@dataclass(frozen=True, slots=True)
class Rotation:
    """H (d, d): the first d coordinates of a Walsh-Hadamard transform on the next power of two, after signs and a permutation.

    It is orthogonal only where d is a power of two: what is made of it must be orthonormalised.
    order: (d,) permutation; signs: (d,) of 1 and -1.
    """

    order: torch.Tensor
    signs: torch.Tensor

    @classmethod
    def draw(cls, d: int, rng: np.random.Generator) -> Rotation:
        return cls(torch.from_numpy(rng.permutation(d)), torch.from_numpy(rng.choice([-1.0, 1.0], d)))

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """x H for x (..., d): rows of x in rotated coordinates."""
        d = x.shape[-1]
        padded = torch.nn.functional.pad((x * self.signs)[..., self.order], (0, (1 << (d - 1).bit_length()) - d))
        return walsh_hadamard(padded)[..., :d]

    def matrix(self) -> torch.Tensor:
        """H as a matrix (d, d)."""
        return self.apply(torch.eye(len(self.signs), dtype=torch.float64))


def diagonal_energies(W: torch.Tensor, probes: torch.Tensor) -> torch.Tensor:
    """Hutchinson's estimate of the diagonal of W^T W: the mean of z (W^T W z) over the probes, its absolute value.

    W: (rows, d); probes: (p, d) of 1 and -1. Returns (d,).
    """
    return (probes * ((probes @ W.T) @ W)).mean(dim=0).abs()


def estimated_width(W_frozen: Any, energy: float, probes: int, rng: np.random.Generator, max_rank: int = MAX_RANK) -> int:
    """k as the released code estimates it: rotated diagonal energies from so many random probes, sorted, cumulated up to ``energy``.

    W_frozen: (rows, d_in). energy: share in [0, 1]. The rotation flattens the diagonal, so more probes push k towards (1 - energy) d_in.
    """
    W = as_matrix(W_frozen, "W_frozen")
    rotated = Rotation.draw(W.shape[1], rng).apply(W)
    return _width(rotated, energy, probes, rng, max_rank)


def _probes(count: int, d: int, rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(rng.choice([-1.0, 1.0], (count, d)))


def _width(rotated: torch.Tensor, energy: float, probes: int, rng: np.random.Generator, max_rank: int) -> int:
    if probes < 1:
        raise ValueError(f"{probes} probes estimate nothing: use at least 1")
    d = rotated.shape[1]
    found = diagonal_energies(rotated, _probes(probes, d, rng)).sort(descending=True).values
    total = float(found.sum())
    n_high = high_count(found.cumsum(0) / total, check_share(energy, "energy")) if total > 0 else 0
    return width(d, n_high, max_rank).k


def randomised_low_energy(W_frozen: Any, energy: float, rng: np.random.Generator, max_rank: int = MAX_RANK) -> tuple[Any, int]:
    """Q and k by the released code's way, with directions inside the span of the rotated coordinates that look least read.

    W_frozen: (rows, d_in). Returns Q (d_in, k) with orthonormal columns, and k. Unlike ``low_energy`` it reads more than it must.
    """
    W = as_matrix(W_frozen, "W_frozen")
    d = W.shape[1]
    rotation = Rotation.draw(d, rng)
    rotated = rotation.apply(W)
    k = _width(rotated, energy, COUNT_PROBES, rng, max_rank)
    count = min(CANDIDATES_A_DIRECTION * k, d, MOST_CANDIDATES)
    candidates = diagonal_energies(rotated, _probes(CANDIDATE_PROBES, d, rng)).argsort()[:count]
    inside = rotated[:, candidates]
    _, directions = torch.linalg.eigh(inside.T @ inside)  # ascending
    columns = rotation.matrix()[:, candidates] @ directions[:, :k].flip(1)
    return like(positive_qr(columns), W_frozen), k
