"""Tall-data posteriors as sums over rows: the energies U_i, their slopes, and the bounds M_i and psi_i that minibatches are drawn by.

pi(theta | x) is proportional to exp(-sum_i U_i(theta)) on a support, with a flat prior there. Poisson minibatches read phi_i = M_i - U_i, so that
0 <= phi_i <= M_i on the whole support (section 4.4 of the method card); Tuna minibatches need |U_i(a) - U_i(b)| <= psi_i |a - b| only (4.6).
Both bounds are proved for every row, not estimated. Shapes: theta (C, d) for C chains; a batch of rows is (C, B, k), all rows at once are (N, k).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

CHUNK_NUMBERS = 65_536  # of all rows at once: a few (C, rows) arrays of this size stay in the cache


class Look(NamedTuple):
    """What rows say at theta. energy: U_i (C, B); z: (C, B) what it was computed from, which the gradient needs."""

    energy: Tensor
    z: Tensor


@dataclass(frozen=True, slots=True)
class Support:
    """Where the posterior lives. kind "ball": |theta| <= size, "box": every |theta_j| <= size, "interval": every 0 <= theta_j <= size, "all"."""

    kind: Literal["ball", "box", "interval", "all"]
    size: float = math.inf

    def holds(self, theta: Tensor) -> Tensor:
        """(C,) bool for theta (C, d); False where theta is not finite."""
        if self.kind == "box":
            return theta.abs().amax(1) <= self.size
        if self.kind == "interval":
            return ((theta >= 0) & (theta <= self.size)).all(1)
        norm = torch.linalg.vector_norm(theta, dim=1)
        return norm <= self.size if self.kind == "ball" else torch.isfinite(norm)


class TallModel(Protocol):
    """A posterior whose energy is a sum over the N rows of ``table`` (N, k)."""

    table: Tensor
    dimension: int
    support: Support

    @property
    def bounds(self) -> Tensor:
        """M_i (N,): the largest U_i on the support, U_i being at least 0. Raises ValueError when the support is not bounded."""

    @property
    def lipschitz(self) -> Tensor:
        """psi_i (N,): the Lipschitz constant of U_i on the support."""

    def look(self, rows: Tensor, theta: Tensor) -> Look:
        """Energies of rows (C, B, k), or of (B, k) for every chain, at theta (C, d)."""

    def gradient(self, rows: Tensor, theta: Tensor, seen: Look, weights: Tensor | None) -> Tensor:
        """Sum_i w_i grad U_i(theta), (C, d), of rows just looked at; weights (C, B), all 1 without them."""


class _LinearPredictor:
    """Rows [a (d), b, M, psi] whose energy is a function of z = a . theta + b."""

    def __init__(self, a: Tensor, b: Tensor, tempering: float, support: Support) -> None:
        if a.ndim != 2 or b.shape != a.shape[:1] or a.shape[0] == 0:
            raise ValueError(f"the rows have shapes {tuple(a.shape)} and {tuple(b.shape)}; (N, d) and (N,) are needed")
        if not bool(torch.isfinite(a).all()) or not bool(torch.isfinite(b).all()):
            raise ValueError("the rows hold a number that is not finite")
        if not 0 < tempering <= 1:
            raise ValueError(f"the tempering is {tempering}; a number above 0, at most 1, is needed")
        self.dimension, self.tempering, self.support = a.shape[1], tempering, support
        norm = torch.linalg.vector_norm(a, dim=1)
        # Without a ball there is no bound; its column stays 0, for an infinite one would turn products with it into NaN.
        largest = self._largest(b.abs() + support.size * norm) if support.kind == "ball" else torch.zeros_like(norm)
        self.table = torch.cat([a, b[:, None], largest[:, None], (self._steepest() * norm)[:, None]], dim=1).contiguous()

    def _largest(self, reach: Tensor) -> Tensor:
        """The largest energy where |z| <= reach."""
        raise NotImplementedError

    def _steepest(self) -> float:
        """The largest |dU/dz|."""
        raise NotImplementedError

    def energy(self, z: Tensor) -> Tensor:
        """U at z, any shape."""
        raise NotImplementedError

    def slope(self, z: Tensor) -> Tensor:
        """dU/dz at z, any shape."""
        raise NotImplementedError

    def curvature(self, z: Tensor) -> Tensor:
        """d2U/dz2 at z, any shape."""
        raise NotImplementedError

    @property
    def bounds(self) -> Tensor:
        if self.support.kind != "ball":
            raise ValueError("the energies have no bound: Poisson minibatches need a bounded support")
        return self.table[:, self.dimension + 1]

    @property
    def lipschitz(self) -> Tensor:
        return self.table[:, self.dimension + 2]

    def predictor(self, rows: Tensor, theta: Tensor) -> Tensor:
        """z of rows (C, B, k), or of (B, k) for every chain; (C, B)."""
        padded = torch.nn.functional.pad(theta, (0, 3))
        padded[:, self.dimension] = 1.0
        if rows.ndim == 2:
            return padded @ rows.T
        if rows.shape[1] == 1:  # one row a point: a product of vectors, which many tiny matrix products would take far longer for
            return (padded * rows[:, 0]).sum(1, keepdim=True)
        return torch.bmm(padded[:, None, :], rows.transpose(1, 2))[:, 0]

    def look(self, rows: Tensor, theta: Tensor) -> Look:
        z = self.predictor(rows, theta)
        return Look(self.energy(z), z)

    def gradient(self, rows: Tensor, theta: Tensor, seen: Look, weights: Tensor | None) -> Tensor:
        slope = self.slope(seen.z)
        pull = slope if weights is None else slope.mul_(weights)
        summed = pull @ rows if rows.ndim == 2 else torch.bmm(pull[:, None, :], rows)[:, 0]
        return summed[:, : self.dimension]


class RobustRegression(_LinearPredictor):
    """Student-t regression: U_i = beta (nu+1)/2 log(1 + r_i^2/nu), r = y - x . theta, on the ball |theta| <= radius.

    x: (N, d); y: (N,). M_i = U at |y_i| + radius |x_i|; psi_i = beta (nu+1)/(2 sqrt nu) |x_i|, the slope being largest at r^2 = nu.
    """

    def __init__(self, x: Tensor, y: Tensor, *, tempering: float = 1e-4, nu: float = 4.0, radius: float = 15.0) -> None:
        if nu <= 0 or not 0 < radius < math.inf:
            raise ValueError(f"nu {nu} and radius {radius} must be above 0 and finite")
        self.nu, self.factor = nu, tempering * (nu + 1) / 2
        super().__init__(-torch.as_tensor(x, dtype=torch.float64), torch.as_tensor(y, dtype=torch.float64), tempering, Support("ball", radius))

    def _largest(self, reach: Tensor) -> Tensor:
        return self.energy(reach)

    def _steepest(self) -> float:
        return self.factor / math.sqrt(self.nu)

    def energy(self, z: Tensor) -> Tensor:
        return (z * z).div_(self.nu).log1p_().mul_(self.factor)

    def slope(self, z: Tensor) -> Tensor:
        return (z * (2 * self.factor)).div_((z * z).add_(self.nu))

    def curvature(self, z: Tensor) -> Tensor:
        square = z * z
        return 2 * self.factor * (self.nu - square) / (self.nu + square) ** 2


class Logistic(_LinearPredictor):
    """Logistic regression: U_i = beta log(1 + exp(-t_i x_i . theta)), t = +1 or -1 for y = 1 or 0; psi_i = beta |x_i|.

    x: (N, d); y: (N,) of 0 and 1; ``sign`` keeps t. The support is everywhere, or a ball of the given radius, on which M_i = beta log(1 + exp(radius |x_i|)).
    """

    def __init__(self, x: Tensor, y: Tensor, *, tempering: float = 1e-3, radius: float | None = None) -> None:
        y = torch.as_tensor(y, dtype=torch.float64)
        if not bool(((y == 0) | (y == 1)).all()):
            raise ValueError("the outcomes must be 0 or 1")
        self.sign = 2 * y - 1
        signed = self.sign[:, None] * torch.as_tensor(x, dtype=torch.float64)
        super().__init__(signed, torch.zeros_like(y), tempering, Support("all") if radius is None else Support("ball", radius))

    def _largest(self, reach: Tensor) -> Tensor:
        return self.energy(-reach)

    def _steepest(self) -> float:
        return self.tempering

    def energy(self, z: Tensor) -> Tensor:
        # softplus(-z) as log(1 + exp(-|z|)) - min(z, 0): exact at both ends
        return z.abs().neg_().exp_().log1p_().sub_(z.clamp(max=0)).mul_(self.tempering)

    def slope(self, z: Tensor) -> Tensor:
        return torch.sigmoid(-z).mul_(-self.tempering)

    def curvature(self, z: Tensor) -> Tensor:
        return self.tempering * torch.sigmoid(z) * torch.sigmoid(-z)


class TruncatedGaussian:
    """The mean of Gaussian rows on a box: U_i = beta/2 (theta - y_i)' P (theta - y_i), P = diag(precision), every |theta_j| <= size.

    y: (N, d); variances: (d,). M_i = beta/2 max(P) sum_j (|y_ij| + size)^2 as in the paper's setting; psi_i = beta max(P) | |y_i| + size |.
    """

    def __init__(self, y: Tensor, variances: Tensor, *, tempering: float = 1e-5, size: float = 3.0) -> None:
        y, variances = torch.as_tensor(y, dtype=torch.float64), torch.as_tensor(variances, dtype=torch.float64)
        if y.ndim != 2 or variances.shape != y.shape[1:] or y.shape[0] == 0:
            raise ValueError(f"the rows have shape {tuple(y.shape)}, the variances {tuple(variances.shape)}; (N, d) and (d,) are needed")
        if not bool((variances > 0).all()) or not 0 < tempering <= 1 or not 0 < size < math.inf:
            raise ValueError("variances, tempering and the size of the box must be above 0")
        self.dimension, self.tempering, self.support = y.shape[1], tempering, Support("box", size)
        self.y, self.variances, self.pull = y, variances, tempering / variances
        far = torch.linalg.vector_norm(y.abs() + size, dim=1)
        steepest = float(self.pull.max())
        self.table = torch.cat([y, (0.5 * steepest * far**2)[:, None], (steepest * far)[:, None]], dim=1).contiguous()

    @property
    def bounds(self) -> Tensor:
        return self.table[:, self.dimension]

    @property
    def lipschitz(self) -> Tensor:
        return self.table[:, self.dimension + 1]

    def look(self, rows: Tensor, theta: Tensor) -> Look:
        away = theta[:, None, :] - rows[..., : self.dimension]
        energy = away.square_() @ (0.5 * self.pull)
        return Look(energy, energy)

    def gradient(self, rows: Tensor, theta: Tensor, seen: Look, weights: Tensor | None) -> Tensor:
        weights = torch.ones_like(seen.energy) if weights is None else weights
        drawn = weights @ rows if rows.ndim == 2 else torch.bmm(weights[:, None, :], rows)[:, 0]
        return self.pull * (theta * weights.sum(1, keepdim=True) - drawn[:, : self.dimension])


class FullLook(NamedTuple):
    """Of all N rows. energy: (C,) their sum; gradient: (C, d) of it."""

    energy: Tensor
    gradient: Tensor


class FullData:
    """All rows at once, in chunks that stay in the cache: what a step of a full-data chain costs."""

    def __init__(self, model: TallModel) -> None:
        self.model = model

    @cached_property
    def n(self) -> int:
        """N, the rows that each look touches."""
        return int(self.model.table.shape[0])

    def chunks(self, chains: int) -> Iterator[Tensor]:
        """The table in parts, the smaller the more chains look at once."""
        yield from self.model.table.split(max(CHUNK_NUMBERS // chains, 1024))

    def look(self, theta: Tensor) -> FullLook:
        """Sum of the energies and its gradient at theta (C, d)."""
        energy, gradient = theta.new_zeros(theta.shape[0]), torch.zeros_like(theta)
        for rows in self.chunks(theta.shape[0]):
            seen = self.model.look(rows, theta)
            energy += seen.energy.sum(1)
            gradient += self.model.gradient(rows, theta, seen, None)
        return FullLook(energy, gradient)

    def energy(self, theta: Tensor) -> Tensor:
        """Sum of the energies alone, (C,): what a random walk asks for."""
        total = theta.new_zeros(theta.shape[0])
        for rows in self.chunks(theta.shape[0]):
            total += self.model.look(rows, theta).energy.sum(1)
        return total
