"""Convex domains with their Legendre barriers: mirror map, inverse, Hessian root, projection (section 4.3 of the card).

Particles are float64 tensors (..., N, d); the simplex keeps its m shares, which sum to 1. Everything is batched over the leading axes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

SMALLEST = 1e-300  # of a share: its logarithm and inverse stay finite


def normal(shape: Any, generator: torch.Generator | None, device: torch.device | str = "cpu") -> Tensor:
    """Standard normal numbers in float64.

    Drawn in single precision, which is six times as fast: 24 bits a draw are far finer than any Monte Carlo error here.
    """
    return torch.randn(shape, generator=generator, device=device).double()


def as_points(x: Any, last: int, what: str = "x") -> Tensor:
    """A float64 tensor whose last axis has ``last`` entries. Raises ValueError for another shape, NaN or infinity."""
    points = torch.as_tensor(x, dtype=torch.float64)
    if points.ndim < 1 or points.shape[-1] != last:
        raise ValueError(f"{what} has the shape {tuple(points.shape)}; its last axis must have {last} entries")
    if not bool(torch.isfinite(points).all()):
        raise ValueError(f"{what} holds NaN or infinity")
    return points


def whole_number(value: Any, least: int, what: str) -> int:
    """``value`` as an int. Raises ValueError when it is none or is below ``least``."""
    if isinstance(value, bool) or int(value) != value or value < least:
        raise ValueError(f"{what} must be a whole number of at least {least}, not {value!r}")
    return int(value)


class Domain(ABC):
    """A convex set X with a mirror map phi.

    name: as params name it; shape: of one particle; dimension: of the set. The Lebesgue measure of every density and entropy is that of
    ``chart``. A cloud of points ``p`` is what ``primal`` returns: a tensor, or on the spectraplex a decomposition of its matrices.
    """

    name: str
    shape: tuple[int, ...]
    dimension: int

    def lift(self, x: Tensor) -> Any:
        """The points of ambient coordinates x (..., N, *shape)."""
        return x

    def ambient(self, p: Any) -> Tensor:
        """Ambient coordinates (..., N, *shape) of points."""
        return p  # type: ignore[no-any-return]

    @abstractmethod
    def dual(self, p: Any) -> Tensor:
        """y = grad phi(x)."""

    @abstractmethod
    def primal(self, y: Tensor) -> Any:
        """x = grad phi*(y), always inside."""

    @abstractmethod
    def hessian_root(self, p: Any, noise: Tensor) -> Tensor:
        """[Hessian of phi at x]^(1/2) applied to ``noise`` of ``dual_noise``."""

    def dual_noise(self, p: Any, generator: torch.Generator | None) -> Tensor:
        """Standard normal noise of the dual space, shaped like x."""
        x = self.ambient(p)
        return normal(x.shape, generator, x.device)

    def tangent_noise(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """Standard normal noise of the Euclidean space that holds the set, as the projected dynamics draw it."""
        return normal(x.shape, generator, x.device)

    def floor(self, p: Any, h: float) -> Any:
        """Points whose shares or eigenvalues are raised to h, where the mirror map is an entropy; elsewhere the points as they are."""
        return p

    @abstractmethod
    def wall_distance(self, x: Tensor) -> Tensor:
        """(..., N): how far from the wall: smallest share, smallest eigenvalue, 1 - radius, 1 - |coordinate|. Negative outside."""

    @abstractmethod
    def barrier(self, x: Tensor) -> Tensor:
        """(..., N): the logarithmic barrier B(x) of F = ... + beta E B: sum log(1/x_i), -log det, log 1/(1 - r^2), sum log 1/(1 - x_i^2)."""

    @abstractmethod
    def barrier_push(self, p: Any, strength: float, *, floor: float = SMALLEST, cap: float = math.inf) -> Tensor:
        """-strength * grad B(x), with the denominators (share, eigenvalue, 1 - r^2) raised to ``floor``.

        cap: the most that a share or an eigenvalue is pushed, where the mirror map is an entropy (section 11 of the card).
        """

    @abstractmethod
    def uniform(self, n: int, generator: torch.Generator | None = None, batch: tuple[int, ...] = ()) -> Tensor:
        """x (*batch, n, *shape) from the uniform law on the set."""

    @abstractmethod
    def project(self, x: Tensor) -> Tensor:
        """The nearest point of the set in Euclidean distance."""

    @abstractmethod
    def chart(self, x: Tensor) -> Tensor:
        """(..., N, dimension) affine coordinates."""

    def check(self, x: Any, what: str = "x", slack: float = 1e-6) -> Tensor:
        """x (..., N, *shape) as float64. Raises ValueError for a wrong shape, NaN, or a point outside, with its number."""
        points = as_points(x, self.shape[-1], what)
        outside = torch.nonzero(self.wall_distance(points).reshape(-1) < -slack)
        if len(outside):
            raise ValueError(f"{what}: point {int(outside[0]) + 1} lies outside the {self.name}")
        return points


class Ball(Domain):
    """The unit ball of R^d with phi(z) = -log(1 - |z|^2).

    Hessian eigenvalues: tangential 2 / (1 - r^2), radial 2 (1 + r^2) / (1 - r^2)^2.
    """

    name = "ball"

    def __init__(self, dimension: int = 2) -> None:
        self.dimension = whole_number(dimension, 1, "dimension")
        self.shape = (self.dimension,)

    def dual(self, p: Tensor) -> Tensor:
        return 2 * p / _gap(p)

    def primal(self, y: Tensor) -> Tensor:
        return y / (1 + torch.sqrt(1 + y.square().sum(-1, keepdim=True)))

    def hessian_root(self, p: Tensor, noise: Tensor) -> Tensor:
        gap = _gap(p)
        square = p.square().sum(-1, keepdim=True)
        along = (p * noise).sum(-1, keepdim=True) * p / square.clamp_min(SMALLEST)
        return torch.sqrt(2 / gap) * (noise - along) + torch.sqrt(2 * (1 + square)) / gap * along

    def wall_distance(self, x: Tensor) -> Tensor:
        return 1 - torch.linalg.vector_norm(x, dim=-1)

    def barrier(self, x: Tensor) -> Tensor:
        return -torch.log(_gap(x)[..., 0])

    def barrier_push(self, p: Tensor, strength: float, *, floor: float = SMALLEST, cap: float = math.inf) -> Tensor:
        return -2 * strength * p / _gap(p).clamp_min(floor)  # the barrier is phi itself, so its gradient is y

    def uniform(self, n: int, generator: torch.Generator | None = None, batch: tuple[int, ...] = ()) -> Tensor:
        direction = normal((*batch, n, self.dimension), generator)
        radius = torch.rand((*batch, n, 1), generator=generator, dtype=torch.float64) ** (1 / self.dimension)
        return radius * direction / torch.linalg.vector_norm(direction, dim=-1, keepdim=True)

    def project(self, x: Tensor) -> Tensor:
        return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(1.0)

    def chart(self, x: Tensor) -> Tensor:
        return x


def _gap(z: Tensor) -> Tensor:
    """1 - |z|^2, positive also where rounding or a projection has put a point on the wall."""
    return (1 - z.square().sum(-1, keepdim=True)).clamp_min(1e-12)


class Box(Domain):
    """The box [-1, 1]^d: a product of balls of R, phi(x) = -sum log(1 - x_i^2)."""

    name = "box"

    def __init__(self, dimension: int = 2) -> None:
        self.dimension = whole_number(dimension, 1, "dimension")
        self.shape = (self.dimension,)
        self._side = Ball(1)

    def dual(self, p: Tensor) -> Tensor:
        return self._side.dual(p[..., None])[..., 0]

    def primal(self, y: Tensor) -> Tensor:
        return self._side.primal(y[..., None])[..., 0]

    def hessian_root(self, p: Tensor, noise: Tensor) -> Tensor:
        square = p.square()
        return torch.sqrt(2 * (1 + square)) / (1 - square).clamp_min(1e-12) * noise

    def wall_distance(self, x: Tensor) -> Tensor:
        return 1 - x.abs().amax(-1)

    def barrier(self, x: Tensor) -> Tensor:
        return -torch.log((1 - x.square()).clamp_min(1e-12)).sum(-1)

    def barrier_push(self, p: Tensor, strength: float, *, floor: float = SMALLEST, cap: float = math.inf) -> Tensor:
        return self._side.barrier_push(p[..., None], strength, floor=floor)[..., 0]

    def uniform(self, n: int, generator: torch.Generator | None = None, batch: tuple[int, ...] = ()) -> Tensor:
        return 2 * torch.rand((*batch, n, self.dimension), generator=generator, dtype=torch.float64) - 1

    def project(self, x: Tensor) -> Tensor:
        return x.clamp(-1.0, 1.0)

    def chart(self, x: Tensor) -> Tensor:
        return x


class Simplex(Domain):
    """The simplex of m shares x_i >= 0, sum x_i = 1, with phi = sum x_i log x_i.

    y = log x up to a constant, x = softmax(y). The noise xi_i / sqrt(x_i) of R^m, taken modulo constants, has exactly the restricted Hessian.
    Lebesgue measure is that of the first m - 1 shares.
    """

    name = "simplex"

    def __init__(self, shares: int = 3) -> None:
        self.shares = whole_number(shares, 2, "shares")
        self.shape = (self.shares,)
        self.dimension = self.shares - 1
        self._ones = torch.ones(self.shares, 1, dtype=torch.float64)

    def total(self, x: Tensor) -> Tensor:
        """(..., N, 1) sum of the shares; a product, since a sum over so short an axis is ten times as slow."""
        return x @ self._ones.to(x.device)

    def dual(self, p: Tensor) -> Tensor:
        return torch.log(p.clamp_min(SMALLEST))

    def primal(self, y: Tensor) -> Tensor:
        return torch.softmax(y, -1).clamp_min(SMALLEST)

    def hessian_root(self, p: Tensor, noise: Tensor) -> Tensor:
        return noise / torch.sqrt(p.clamp_min(SMALLEST))

    def tangent_noise(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        drawn = normal(x.shape, generator, x.device)
        return drawn - self.total(drawn) / self.shares

    def floor(self, p: Tensor, h: float) -> Tensor:
        return p.clamp_min(h)

    def wall_distance(self, x: Tensor) -> Tensor:
        return x.amin(-1)

    def barrier(self, x: Tensor) -> Tensor:
        return -torch.log(x.clamp_min(SMALLEST)).sum(-1)

    def barrier_push(self, p: Tensor, strength: float, *, floor: float = SMALLEST, cap: float = math.inf) -> Tensor:
        return (strength / p.clamp_min(max(floor, SMALLEST))).clamp_max(cap)

    def uniform(self, n: int, generator: torch.Generator | None = None, batch: tuple[int, ...] = ()) -> Tensor:
        drawn = -torch.log1p(-torch.rand((*batch, n, self.shares), generator=generator, dtype=torch.float64)) + SMALLEST
        return drawn / self.total(drawn)

    def project(self, x: Tensor) -> Tensor:
        """Sort-based: subtracts the one number that leaves the positive part summing to 1."""
        return project_to_simplex(x)

    def chart(self, x: Tensor) -> Tensor:
        return x[..., :-1]

    def check(self, x: Any, what: str = "x", slack: float = 1e-6) -> Tensor:
        points = super().check(x, what, slack)
        off = torch.nonzero((points.sum(-1) - 1).abs().reshape(-1) > slack)
        if len(off):
            raise ValueError(f"{what}: the shares of point {int(off[0]) + 1} do not sum to 1")
        return points


def project_to_simplex(x: Tensor) -> Tensor:
    """The nearest point of the simplex, along the last axis; zeros are exact."""
    ordered = x.sort(-1, descending=True).values
    excess = ordered.cumsum(-1) - 1
    count = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)
    support = (ordered * count > excess).sum(-1, keepdim=True)
    return (x - excess.gather(-1, support - 1) / support).clamp_min(0.0)
