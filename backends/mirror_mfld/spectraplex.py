"""The spectraplex {S symmetric, S >= 0, Tr S = 1} with the matrix entropy Tr(S log S - S) as mirror map (section 4.3 of the card)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from backends.mirror_mfld.domains import SMALLEST, Domain, normal, project_to_simplex, whole_number

CLOSE = 1e-6  # difference of log eigenvalues below which the divided difference is taken from its series


@dataclass(frozen=True)
class Spectral:
    """Matrices V diag(exp(log_values)) V^T. vectors: (..., N, d, d), columns orthonormal; log_values: (..., N, d)."""

    vectors: Tensor
    log_values: Tensor

    @cached_property
    def values(self) -> Tensor:
        return torch.exp(self.log_values)

    @cached_property
    def matrices(self) -> Tensor:
        return self.in_ambient(self.values)

    def in_ambient(self, diagonal: Tensor) -> Tensor:
        """V diag(diagonal) V^T."""
        return (self.vectors * diagonal[..., None, :]) @ self.vectors.mT


def log_divided_differences(log_values: Tensor) -> Tensor:
    """l_ij = (log s_i - log s_j) / (s_i - s_j), l_ii = 1 / s_i, from the log eigenvalues (..., d) to (..., d, d).

    Where |log s_i - log s_j| < 1e-6 the series exp(-(log s_i + log s_j) / 2) (1 - delta^2 / 24) stands in; nothing is taken from an
    underflowed eigenvalue.
    """
    mean = (log_values[..., :, None] + log_values[..., None, :]) / 2
    half = (log_values[..., :, None] - log_values[..., None, :]) / 2
    safe = torch.where(half.abs() < CLOSE / 2, torch.ones_like(half), half)
    ratio = torch.where(half.abs() < CLOSE / 2, 1 - half.square() / 6, safe.abs() / torch.sinh(safe.abs().clamp_max(350.0)))
    return ratio * torch.exp(-mean)


class Spectraplex(Domain):
    """Density matrices d x d, real and symmetric. Y = log S, S = exp(Y) / Tr exp(Y).

    Two by two they are a disc: S = ((1 + a, b), (b, 1 - a)) / 2 with a^2 + b^2 <= 1; ``chart`` gives (a, b).
    """

    name = "spectraplex"

    def __init__(self, size: int = 2) -> None:
        self.size = whole_number(size, 2, "size")
        self.shape = (self.size, self.size)
        self.dimension = self.size * (self.size + 1) // 2 - 1

    def lift(self, x: Tensor) -> Spectral:
        values, vectors = torch.linalg.eigh(x)
        return Spectral(vectors, torch.log(values.clamp_min(SMALLEST)))

    def ambient(self, p: Spectral | Tensor) -> Tensor:
        return p.matrices if isinstance(p, Spectral) else p

    def _spectral(self, p: Spectral | Tensor) -> Spectral:
        return p if isinstance(p, Spectral) else self.lift(p)

    def dual(self, p: Spectral | Tensor) -> Tensor:
        found = self._spectral(p)
        return found.in_ambient(found.log_values)

    def primal(self, y: Tensor) -> Spectral:
        values, vectors = torch.linalg.eigh(y)
        return Spectral(vectors, torch.log_softmax(values, -1).clamp_min(math.log(SMALLEST)))

    def dual_noise(self, p: Spectral | Tensor, generator: torch.Generator | None) -> Tensor:
        """A symmetric Gaussian matrix: A_ii ~ N(0, 1), A_ij ~ N(0, 1/2)."""
        x = self.ambient(p)
        return _symmetric(normal(x.shape, generator, x.device))

    def hessian_root(self, p: Spectral | Tensor, noise: Tensor) -> Tensor:
        """V (sqrt(l_ij) A_ij) V^T with A the noise seen in the eigenbasis; A's law is the same in every basis."""
        found = self._spectral(p)
        return found.vectors @ (torch.sqrt(log_divided_differences(found.log_values)) * noise) @ found.vectors.mT

    def tangent_noise(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        drawn = _symmetric(normal(x.shape, generator, x.device))
        eye = torch.eye(self.size, dtype=x.dtype, device=x.device)
        return drawn - drawn.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None] * eye

    def floor(self, p: Spectral | Tensor, h: float) -> Spectral:
        found = self._spectral(p)
        return Spectral(found.vectors, found.log_values.clamp_min(math.log(h)))

    def wall_distance(self, x: Tensor) -> Tensor:
        return torch.linalg.eigvalsh(x)[..., 0]

    def barrier(self, x: Tensor) -> Tensor:
        return -torch.log(torch.linalg.eigvalsh(x).clamp_min(SMALLEST)).sum(-1)

    def barrier_push(self, p: Spectral | Tensor, strength: float, *, floor: float = SMALLEST, cap: float = math.inf) -> Tensor:
        found = self._spectral(p)
        return found.in_ambient((strength / found.values.clamp_min(max(floor, SMALLEST))).clamp_max(cap))

    def uniform(self, n: int, generator: torch.Generator | None = None, batch: tuple[int, ...] = ()) -> Tensor:
        """W / Tr W of a Wishart matrix with d + 1 degrees of freedom, whose determinant has the power zero in the density."""
        factor = normal((*batch, n, self.size, self.size + 1), generator)
        drawn = factor @ factor.mT
        return drawn / drawn.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]

    def project(self, x: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh((x + x.mT) / 2)
        return (vectors * project_to_simplex(values)[..., None, :]) @ vectors.mT

    def chart(self, x: Tensor) -> Tensor:
        """(a, b) for 2 x 2; else the entries on and above the diagonal but the last, which the trace fixes."""
        if self.size == 2:
            return torch.stack([x[..., 0, 0] - x[..., 1, 1], 2 * x[..., 0, 1]], -1)
        rows, columns = torch.triu_indices(self.size, self.size)
        return x[..., rows, columns][..., :-1]

    def from_chart(self, points: Tensor) -> Tensor:
        """Matrices (..., N, 2, 2) of points (..., N, 2) of the disc. Raises ValueError unless the matrices are 2 x 2."""
        if self.size != 2:
            raise ValueError("only 2 x 2 density matrices are a disc")
        a, b = points[..., 0], points[..., 1]
        return torch.stack([torch.stack([1 + a, b], -1), torch.stack([b, 1 - a], -1)], -2) / 2

    def check(self, x: Any, what: str = "x", slack: float = 1e-6) -> Tensor:
        points = torch.as_tensor(x, dtype=torch.float64)
        if points.ndim < 2 or points.shape[-2:] != self.shape:
            raise ValueError(f"{what} has the shape {tuple(points.shape)}; its last axes must be {self.size} x {self.size}")
        if not bool(torch.isfinite(points).all()):
            raise ValueError(f"{what} holds NaN or infinity")
        if float((points - points.mT).abs().max()) > slack:
            raise ValueError(f"{what} is not symmetric")
        if float(self.wall_distance(points).min()) < -slack:
            raise ValueError(f"{what} is not positive semi-definite")
        if float((points.diagonal(dim1=-2, dim2=-1).sum(-1) - 1).abs().max()) > slack:
            raise ValueError(f"{what} does not have the trace 1")
        return points


def _symmetric(drawn: Tensor) -> Tensor:
    """A symmetric Gaussian matrix of independent standard normal entries: variance 1 on the diagonal, 1/2 elsewhere."""
    upper = torch.triu(drawn, 1) / math.sqrt(2)
    return upper + upper.mT + torch.diag_embed(drawn.diagonal(dim1=-2, dim2=-1))
