"""Circuits that can be differentiated: the hard gate replaced by w_k(x; alpha) = softmax_k(-alpha |x - c_k|^2) (section 4.4 of the card).

Each holds its tensors, gives log f under the soft gate and an estimate of the soft partition function, and turns into the hard circuit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backends.voronoi_pc.experts import Experts, real
from backends.voronoi_pc.hierarchical import FactorisedVoronoi, log_combine, tree
from backends.voronoi_pc.leaves import NORMAL
from backends.voronoi_pc.voronoi_sum import VoronoiSum, merged

LEAST_SCALE = 0.02  # of a leaf, in units of the data: a narrower one would sit on a single point
SAMPLES = 64  # of an expert, for the estimate of the soft partition function
HERMITE = 64  # quadrature nodes for gates on one variable


def soft_weights(x: Any, centroids: Any, alpha: float) -> Tensor:
    """w_k(x; alpha), (n, K): rows sum to 1. x: (n, d), centroids: (K, d).

    With gamma(x) the gap between the squared distances to the second and to the nearest centroid, 1 - max_k w_k <= (K - 1) exp(-alpha gamma).

    >>> soft_weights([[0.0]], [[0.0], [1.0]], 0.0).tolist()
    [[0.5, 0.5]]
    """
    return torch.exp(_log_soft_weights(real("x", x, 2), real("centroids", centroids, 2), alpha))


def _log_soft_weights(x: Tensor, centroids: Tensor, alpha: float) -> Tensor:
    """log w_k; the square of x is the same in every term and falls out. x: (..., d), centroids: (K, d) -> (..., K)."""
    return torch.log_softmax(alpha * (2 * x @ centroids.T - (centroids**2).sum(-1)), -1)


@dataclass
class SoftVoronoi:
    """A Voronoi sum of mixtures of factorised normals under the soft gate; ``gated=False`` leaves the gate out: a mixture.

    logits: (K,), parts: (K, C), location, log_scale: (K, C, d), centroids: (K, d).
    """

    centroids: Tensor
    logits: Tensor
    parts: Tensor
    location: Tensor
    log_scale: Tensor
    gated: bool = True
    free_centroids: bool = True

    def parameters(self) -> list[Tensor]:
        trained = [self.logits, self.parts, self.location, self.log_scale]
        return [*trained, self.centroids] if self.gated and self.free_centroids else trained

    def copy(self) -> SoftVoronoi:
        centroids, logits, parts, location, log_scale = (x.detach().clone() for x in (self.centroids, self.logits, self.parts, self.location, self.log_scale))
        return SoftVoronoi(centroids, logits, parts, location, log_scale, self.gated, self.free_centroids)

    def _scale(self) -> Tensor:
        return torch.exp(self.log_scale.clamp(min=math.log(LEAST_SCALE)))

    def log_density(self, x: Tensor, alpha: float) -> Tensor:
        """log f(x; alpha), (n,)."""
        leaves = NORMAL.log_density(x[:, None, None], self.location, self._scale()).sum(-1)
        each = torch.logsumexp(leaves + torch.log_softmax(self.parts, -1), -1) + torch.log_softmax(self.logits, -1)
        return torch.logsumexp(each + _log_soft_weights(x, self.centroids, alpha) if self.gated else each, -1)

    def partition(self, alpha: float, generator: torch.Generator) -> Tensor:
        """An unbiased estimate of int f(x; alpha) from reparametrised draws of every expert; 1 without a gate."""
        if not self.gated:
            return torch.ones((), dtype=torch.float64)
        cells, parts, d = self.location.shape
        noise = torch.randn((max(1, SAMPLES // parts), cells, parts, d), generator=generator, dtype=torch.float64)
        own = torch.arange(cells)[None, :, None, None]
        log_w = _log_soft_weights(self.location + self._scale() * noise, self.centroids, alpha)
        inside = torch.exp(log_w.gather(-1, own.expand(*log_w.shape[:-1], 1))[..., 0]).mean(0)
        return (torch.softmax(self.logits, -1) * (torch.softmax(self.parts, -1) * inside).sum(-1)).sum()

    def hard(self) -> VoronoiSum:
        """The circuit with walls; centroids that have met are merged into one cell, whose weight and expert are those of the first."""
        kept, group = merged(self.centroids.detach())
        first = torch.stack([torch.nonzero(group == g)[0, 0] for g in range(len(kept))])
        logits = self.logits.detach()[first]
        experts = Experts(torch.softmax(self.parts.detach()[first], -1), self.location.detach()[first], self._scale().detach()[first])
        return VoronoiSum(kept, torch.softmax(logits, -1), experts)


@dataclass
class SoftFactorised:
    """A hierarchical factorised circuit under soft gates on single variables; shapes as FactorisedVoronoi, weights as logits."""

    centroids: list[Tensor]
    location: list[Tensor]
    log_scale: list[Tensor]
    logits: list[Tensor]

    def parameters(self) -> list[Tensor]:
        return [*self.centroids, *self.location, *self.log_scale, *self.logits]

    def copy(self) -> SoftFactorised:
        return SoftFactorised(*([x.detach().clone() for x in part] for part in (self.centroids, self.location, self.log_scale, self.logits)))

    def _log_weights(self) -> list[Tensor]:
        return [torch.log_softmax(w.flatten(1), -1).reshape(w.shape) for w in self.logits]

    def _scales(self) -> list[Tensor]:
        return [torch.exp(s.clamp(min=math.log(LEAST_SCALE))) for s in self.log_scale]

    def log_density(self, x: Tensor, alpha: float) -> Tensor:
        """log f(x; alpha), (n,)."""
        columns = zip(self.centroids, self.location, self._scales(), x.T[..., None], strict=True)
        parts = [NORMAL.log_density(at, m, s) + _log_soft_weights(at, c[:, None], alpha) for c, m, s, at in columns]
        return log_combine(parts, self._log_weights())

    def partition(self, alpha: float, generator: torch.Generator) -> Tensor:
        """int f(x; alpha) by Gauss-Hermite quadrature on each leaf; nothing is drawn."""
        nodes, weights = (torch.from_numpy(v) for v in np.polynomial.hermite_e.hermegauss(HERMITE))
        parts = []
        for c, m, s in zip(self.centroids, self.location, self._scales(), strict=True):
            at = m[:, None] + s[:, None] * nodes
            own = _log_soft_weights(at[..., None], c[:, None], alpha).diagonal(dim1=0, dim2=2)
            parts.append(torch.log((torch.exp(own) * weights[:, None]).sum(0) / math.sqrt(2 * math.pi))[None])
        return torch.exp(log_combine(parts, self._log_weights())[0])

    def hard(self) -> FactorisedVoronoi:
        """The exact circuit, its cells in ascending order; the weights of the variables' pairs follow the order."""
        orders = [torch.argsort(c.detach()) for c in self.centroids]
        weights = [torch.softmax(w.detach().flatten(1), -1).reshape(w.shape) for w in self.logits]
        for number, (left, right) in enumerate(tree(len(orders))):
            if left < len(orders):
                weights[number] = weights[number][:, orders[left]]
            if right < len(orders):
                weights[number] = weights[number][:, :, orders[right]]
        centroids, location, scale = (
            [x.detach()[order] for x, order in zip(part, orders, strict=True)] for part in (self.centroids, self.location, self._scales())
        )
        return FactorisedVoronoi(centroids, location, scale, weights)


def start_voronoi(train: Tensor, centroids: Tensor, components: int, generator: torch.Generator, *, gated: bool, free: bool) -> SoftVoronoi:
    """Experts from the points of each cell: its mean, its spread, its share; several components start at points of the cell."""
    cells, d = centroids.shape
    here = ((train[:, None] - centroids) ** 2).sum(-1).argmin(-1)
    member = torch.nn.functional.one_hot(here, cells).to(train.dtype)
    count = member.sum(0)
    safe = count.clamp(min=1)[:, None]
    mean = torch.where((count > 0)[:, None], member.T @ train / safe, centroids)
    overall = train.std(0, correction=0)
    spread = torch.sqrt((member.T @ train**2 / safe - (member.T @ train / safe) ** 2).clamp(min=0))
    spread = torch.where((count > 1)[:, None], spread, overall).clamp(min=2 * LEAST_SCALE)
    location = mean[:, None].repeat(1, components, 1)
    if components > 1:
        location = location + 0.7 * spread[:, None] * torch.randn((cells, components, d), generator=generator, dtype=torch.float64)
        spread = 0.7 * spread
    log_scale = torch.log(spread)[:, None].repeat(1, components, 1)
    parts = torch.zeros(cells, components, dtype=torch.float64)
    return SoftVoronoi(centroids.clone(), torch.log(count + 1), parts, location, log_scale, gated=gated, free_centroids=free)


def start_factorised(train: Tensor, centroids: Sequence[Tensor], generator: torch.Generator) -> SoftFactorised:
    """Leaves from the points of each interval; the weights of a pair of variables from its counts, of larger blocks nearly even."""
    location, log_scale, members = [], [], []
    for column, c in zip(train.T, centroids, strict=True):
        member = torch.nn.functional.one_hot((column[:, None] - c).abs().argmin(-1), len(c)).to(train.dtype)
        count = member.sum(0).clamp(min=1)
        mean = torch.where(member.sum(0) > 0, member.T @ column / count, c)
        spread = torch.sqrt((member.T @ column**2 / count - (member.T @ column / count) ** 2).clamp(min=0))
        location.append(mean)
        log_scale.append(torch.log(spread.clamp(min=2 * LEAST_SCALE)))
        members.append(member)
    d, logits, sizes = len(centroids), [], [len(c) for c in centroids]
    pairs = tree(d)
    for number, (left, right) in enumerate(pairs):
        units = 1 if number == len(pairs) - 1 else max(sizes[left], sizes[right])
        counts = members[left].T @ members[right] if max(left, right) < d else torch.ones(sizes[left], sizes[right], dtype=torch.float64)
        jitter = torch.randn((units, sizes[left], sizes[right]), generator=generator, dtype=torch.float64)
        logits.append(torch.log(counts + 0.5)[None] + (jitter if units > 1 else 0.0))
        sizes.append(units)
    return SoftFactorised([c.clone() for c in centroids], location, log_scale, logits)
