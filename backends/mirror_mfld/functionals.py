"""Functionals F of a law, convex in it, through their first variations (sections 3 and 4.5 of the card).

All but the network have the form F(mu) = (s/2) |E psi - t|^2 + E V, which is what the exact law is solved from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backends.mirror_mfld.domains import Domain

NYSTROM_RANK = 1e-9  # relative eigenvalue below which a kernel feature is rounding


@dataclass(frozen=True)
class MomentForm:
    """F(mu) = (s/2) |E psi - t|^2 + E V at given nodes. psi: (G, r); target: (r,); weight: s; own: (G,) values of V."""

    psi: np.ndarray
    target: np.ndarray
    weight: float
    own: np.ndarray


@dataclass(frozen=True)
class KernelBasis:
    """Features of a kernel by Nystroem: psi(x) = k(x, landmarks) whiten. landmarks: (L, d); whiten: (L, r)."""

    landmarks: Tensor
    whiten: np.ndarray


class Functional(ABC):
    """F(mu) and its first variation. Particles x: (..., N, *shape); leading axes are independent clouds."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.axis = -1 - len(domain.shape)  # of the particles

    @abstractmethod
    def statistics(self, x: Tensor) -> Tensor:
        """What every particle needs to know of the cloud: the mean-field coupling."""

    @abstractmethod
    def gradient(self, x: Tensor, statistics: Tensor) -> Tensor:
        """grad_x of the first variation at each particle, (..., N, *shape) or broadcastable to it; N times the gradient of F(mu_N)."""

    @abstractmethod
    def value(self, x: Tensor) -> Tensor:
        """(...): F of each cloud, without barrier."""

    def basis(self, landmarks: Tensor) -> KernelBasis | None:
        """What ``moment_form`` needs to know of nodes (L, *shape) that fill the domain; None where it needs nothing."""
        return None

    @abstractmethod
    def moment_form(self, nodes: Tensor, basis: KernelBasis | None = None) -> MomentForm | None:
        """psi and V at the nodes (G, *shape); None where F has no such form."""

    def _flat(self, x: Tensor) -> np.ndarray:
        return np.asarray(x.reshape(-1, int(np.prod(self.domain.shape))), float)


class MeanMatching(Functional):
    """F = |E x - q|^2, delta F = 2 <E x - q, x>. q: (*shape), a point of the domain."""

    def __init__(self, domain: Domain, q: Any) -> None:
        super().__init__(domain)
        self.q = domain.check(torch.as_tensor(q, dtype=torch.float64)[None], "q")[0]

    def statistics(self, x: Tensor) -> Tensor:
        return x.mean(self.axis, keepdim=True)

    def gradient(self, x: Tensor, statistics: Tensor) -> Tensor:
        return 2 * (statistics - self.q)

    def value(self, x: Tensor) -> Tensor:
        return (x.mean(self.axis) - self.q).square().flatten(self.axis + 1).sum(-1)

    def moment_form(self, nodes: Tensor, basis: KernelBasis | None = None) -> MomentForm:
        return MomentForm(self._flat(nodes), self._flat(self.q)[0], 2.0, np.zeros(len(nodes)))


class Linear(Functional):
    """F = E <c, x>: no coupling. c: (*shape)."""

    def __init__(self, domain: Domain, c: Any) -> None:
        super().__init__(domain)
        self.c = torch.as_tensor(c, dtype=torch.float64)
        if tuple(self.c.shape) != domain.shape or not bool(torch.isfinite(self.c).all()):
            raise ValueError(f"c must have the shape {domain.shape} and finite entries")

    def statistics(self, x: Tensor) -> Tensor:
        return self.c.expand(*x.shape[: self.axis], 1, *self.domain.shape)

    def gradient(self, x: Tensor, statistics: Tensor) -> Tensor:
        return statistics

    def value(self, x: Tensor) -> Tensor:
        return (x.mean(self.axis) * self.c).flatten(self.axis + 1).sum(-1)

    def moment_form(self, nodes: Tensor, basis: KernelBasis | None = None) -> MomentForm:
        psi = self._flat(nodes)
        return MomentForm(psi[:, :0], np.zeros(0), 0.0, psi @ self._flat(self.c)[0])


class SpectraplexMatching(Functional):
    """F = |E S - S*|_F^2 / 2 + E |S|_F^2 / (2 gamma) on the spectraplex (section 4.5, experiment 2). target: S*, (d, d)."""

    def __init__(self, domain: Domain, target: Any, gamma: float = 0.02) -> None:
        super().__init__(domain)
        if not gamma > 0:
            raise ValueError(f"gamma must be above 0, not {gamma}")
        self.target, self.gamma = domain.check(torch.as_tensor(target, dtype=torch.float64)[None], "target")[0], float(gamma)

    def statistics(self, x: Tensor) -> Tensor:
        return x.mean(self.axis, keepdim=True)

    def gradient(self, x: Tensor, statistics: Tensor) -> Tensor:
        return statistics - self.target + x / self.gamma

    def value(self, x: Tensor) -> Tensor:
        fit = (x.mean(self.axis) - self.target).square().sum((-2, -1)) / 2
        return fit + x.square().sum((-2, -1)).mean(-1) / (2 * self.gamma)

    def moment_form(self, nodes: Tensor, basis: KernelBasis | None = None) -> MomentForm:
        psi = self._flat(nodes)
        return MomentForm(psi, self._flat(self.target)[0], 1.0, (psi**2).sum(1) / (2 * self.gamma))


class MmdToCloud(Functional):
    """F = MMD^2(mu, nu) / 2 to the empirical law nu of a target cloud (M, d), with the Gaussian kernel exp(-|x - y|^2 / (2 b^2)).

    delta F(x) = int k(x, y) (mu - nu)(dy): all pairs, N (N + M) kernel values a step.
    """

    def __init__(self, domain: Domain, target: Any, bandwidth: float = 0.2) -> None:
        super().__init__(domain)
        if len(domain.shape) != 1:
            raise ValueError("the kernel is defined for points, not for matrices")
        if not bandwidth > 0:
            raise ValueError(f"bandwidth must be above 0, not {bandwidth}")
        self.target, self.bandwidth = domain.check(target, "target"), float(bandwidth)

    def kernel(self, x: Tensor, y: Tensor) -> Tensor:
        """(..., N, M) kernel values."""
        squared = x.square().sum(-1)[..., :, None] + y.square().sum(-1)[..., None, :] - 2 * x @ y.mT
        return torch.exp(-squared.clamp_min(0.0) / (2 * self.bandwidth**2))

    def statistics(self, x: Tensor) -> Tensor:
        return x

    def gradient(self, x: Tensor, statistics: Tensor) -> Tensor:
        return self._pull(x, statistics) - self._pull(x, self.target)

    def _pull(self, x: Tensor, y: Tensor) -> Tensor:
        """grad_x of the mean of k(x, y_j) over j."""
        k = self.kernel(x, y)
        return (k @ y - k.sum(-1, keepdim=True) * x) / (self.bandwidth**2 * y.shape[-2])

    def value(self, x: Tensor) -> Tensor:
        means = [self.kernel(a, b).mean((-2, -1)) for a, b in ((x, x), (x, self.target), (self.target, self.target))]
        return (means[0] - 2 * means[1] + means[2]) / 2

    def basis(self, landmarks: Tensor) -> KernelBasis:
        """Kernel features to rounding: the kernel is smooth and the domain small."""
        values, vectors = np.linalg.eigh(self.kernel(landmarks, landmarks).numpy())
        kept = values > NYSTROM_RANK * values[-1]
        return KernelBasis(landmarks, vectors[:, kept] / np.sqrt(values[kept]))

    def moment_form(self, nodes: Tensor, basis: KernelBasis | None = None) -> MomentForm:
        if basis is None:
            raise ValueError("the kernel's features need a basis")
        psi, target = (self.kernel(x, basis.landmarks).numpy() @ basis.whiten for x in (nodes, self.target))
        return MomentForm(psi, target.mean(0), 1.0, np.zeros(len(nodes)))
