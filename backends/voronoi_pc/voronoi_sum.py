"""The Voronoi sum node: f(x) = sum_k 1[x in V_k] pi_k p_k(x), which is not normalised (section 3 of the card).

Cells are intersections of half-spaces 2 (c_j - c_k) . x + |c_k|^2 - |c_j|^2 <= 0. Each is divided by its largest coefficient, so that
an axis-aligned wall has the coefficient 1 exactly and a box that ends at it ends at it exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backends.voronoi_pc.experts import Experts, real, simplex


def half_spaces(centroids: Any) -> tuple[Tensor, Tensor]:
    """normals (K, K, d) and offsets (K, K): x lies in cell k where normals[k, j] . x + offsets[k, j] <= 0 for all j.

    centroids: (K, d), no two alike. The own row is 0 . x - 1. Raises ValueError naming two centroids that coincide.

    >>> normals, offsets = half_spaces([[-1.0, 0.0], [1.0, 0.0]])
    >>> normals[0, 1].tolist(), offsets[0, 1].item()
    ([1.0, 0.0], 0.0)
    """
    c = real("centroids", centroids, 2)
    normals = 2 * (c[None] - c[:, None])
    square = (c**2).sum(-1)
    offsets = square[:, None] - square[None]
    largest = normals.abs().amax(-1)
    own = torch.eye(len(c), dtype=torch.bool)
    twins = torch.nonzero((largest == 0) & ~own)
    if len(twins):
        first, second = (twins[0] + 1).tolist()
        raise ValueError(f"centroids {first} and {second} coincide; merge them")
    largest = torch.where(own, 1.0, largest)
    return normals / largest[..., None], torch.where(own, -1.0, offsets / largest)


def merged(centroids: Any) -> tuple[Tensor, Tensor]:
    """The centroids without those that repeat an earlier one, in order: (L, d), and for each given one which of them it became: (K,)."""
    given = real("centroids", centroids, 2)
    _, group = torch.unique(given, dim=0, return_inverse=True)
    first = torch.stack([torch.nonzero(group == g)[0, 0] for g in range(int(group.max()) + 1)]).sort().values
    return given[first], (group[:, None] == group[first][None]).to(torch.int64).argmax(1)


@dataclass(frozen=True)
class Region:
    """What is integrated: sum_k exp(log_weights[k]) int over cell k of p_k, over all variables that are not fixed.

    normals: (K, K, d), offsets: (K, K), log_weights: (K,), -inf allowed.
    """

    normals: Tensor
    offsets: Tensor
    log_weights: Tensor
    experts: Experts


@dataclass(frozen=True)
class VoronoiSum:
    """centroids: (K, d); weights: (K,) on the simplex; experts: K circuits of dimension d.

    Raises ValueError for shapes that do not fit, weights off the simplex, or centroids that coincide.

    >>> node = VoronoiSum([[-1.0, 0.0], [1.0, 0.0]], [0.5, 0.5], Experts.of([[-1.0, 0.0], [1.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]))
    >>> node.cell_of(torch.tensor([[0.0, 3.0], [0.1, 3.0]])).tolist()
    [0, 1]
    """

    centroids: Tensor
    weights: Tensor
    experts: Experts

    def __post_init__(self) -> None:
        object.__setattr__(self, "centroids", real("centroids", self.centroids, 2))
        object.__setattr__(self, "weights", simplex("the weights of the cells", real("weights", self.weights, 1)))
        if self.centroids.shape != (self.experts.count, self.experts.dimension) or len(self.weights) != self.experts.count:
            raise ValueError(f"{len(self.weights)} weights, centroids {tuple(self.centroids.shape)}, {self.experts.count} experts of {self.experts.dimension}")
        half_spaces(self.centroids)

    @property
    def dimension(self) -> int:
        return self.experts.dimension

    def cell_of(self, x: Any) -> Tensor:
        """The cell of each point, the lowest index on a wall. x: (n, d) -> (n,)."""
        distance = ((real("x", x, 2)[:, None] - self.centroids) ** 2).sum(-1)
        return distance.argmin(-1)

    def log_unnormalised(self, x: Any) -> Tensor:
        """log f(x), (n,): hard gate, one expert a point. x: (n, d)."""
        points = real("x", x, 2)
        here = self.cell_of(points)
        log_p = self.experts.log_density(points).gather(1, here[:, None])[:, 0]
        return torch.log(self.weights[here]) + log_p

    def log_mixture(self, x: Any) -> Tensor:
        """The log density (n,) of the same weights and experts without walls, which is normalised. x: (n, d)."""
        return torch.logsumexp(torch.log(self.weights) + self.experts.log_density(real("x", x, 2)), -1)

    def as_mixture(self) -> VoronoiSum:
        """The same weights and experts in one cell, the whole space: a mixture, whose partition function is 1."""
        e = self.experts
        weights = (self.weights[:, None] * e.weights).reshape(1, -1)
        one = Experts(weights / weights.sum(), e.location.reshape(1, -1, self.dimension), e.scale.reshape(1, -1, self.dimension), e.leaf)
        return VoronoiSum(self.centroids.mean(0, keepdim=True), torch.ones(1, dtype=torch.float64), one)

    def region(self, fixed: Mapping[int, float] | None = None) -> Region:
        """What the partition function integrates, with some variables fixed in every half-space and in every expert.

        fixed: variable (from 0) -> value. Raises ValueError for a variable that does not exist or a fixed set that leaves none.
        """
        normals, offsets = half_spaces(self.centroids)
        log_weights = torch.log(self.weights)
        if not fixed:
            return Region(normals, offsets, log_weights, self.experts)
        if not set(fixed) < set(range(self.dimension)):
            raise ValueError(f"variables {sorted(fixed)} are fixed, of {self.dimension}; leave one free")
        held = sorted(fixed)
        kept = [i for i in range(self.dimension) if i not in fixed]
        at = real("fixed values", [fixed[i] for i in held], 1)
        experts, log_density = self.experts.fixed(fixed)
        return Region(*_scaled(normals[..., kept], offsets + (normals[..., held] * at).sum(-1)), log_weights + log_density, experts)


def _scaled(normals: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Half-spaces divided by their largest coefficient; one without any is a condition on its offset alone, and a tie goes to the lowest index."""
    largest = normals.abs().amax(-1)
    largest = torch.where(largest > 0, largest, torch.ones_like(largest))
    on_the_wall = (normals == 0).all(-1) & (offsets == 0)
    index = torch.arange(len(offsets))
    later = (index[None] < index[:, None]).to(offsets.dtype)
    return normals / largest[..., None], torch.where(on_the_wall, 2 * later - 1, offsets / largest)
