"""Leaves of a probabilistic circuit: one-dimensional densities that know their distribution function.

A leaf is a location-scale family; its parameters come as tensors that broadcast with x. Whatever offers these functions is a leaf;
without ``interval_mass`` a box has no mass and no bound can be certified.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from kernels.voronoi_boxes import interval_mass as normal_interval_mass

_LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)


@runtime_checkable
class Leaf(Protocol):
    """A family of densities of one variable."""

    @property
    def unit_sd(self) -> float:
        """Standard deviation at scale 1."""

    def log_density(self, x: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        """log p(x), all broadcast; -inf where there is no mass."""

    def interval_mass(self, low: Tensor, high: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        """Integral of p from low to high, infinite ends allowed, all broadcast."""

    def quantile(self, share: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        """The x below which this share of the mass lies."""

    def kinks(self, location: Tensor, scale: Tensor) -> Tensor:
        """(..., m) places where p is not smooth, for exact quadrature."""


@dataclass(frozen=True, slots=True)
class Normal:
    """N(location, scale^2)."""

    unit_sd: float = 1.0

    def log_density(self, x: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        return -0.5 * ((x - location) / scale) ** 2 - torch.log(scale) - _LOG_ROOT_TWO_PI

    def interval_mass(self, low: Tensor, high: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        return normal_interval_mass(low, high, location, scale)

    def quantile(self, share: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        return location + scale * torch.special.ndtri(share)

    def kinks(self, location: Tensor, scale: Tensor) -> Tensor:
        return location.new_empty((*location.shape, 0))


@dataclass(frozen=True, slots=True)
class Uniform:
    """Uniform on location - scale to location + scale."""

    unit_sd: float = 1 / math.sqrt(3)

    def log_density(self, x: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        flat = -torch.log(2 * scale).expand(torch.broadcast_shapes(x.shape, scale.shape))
        return torch.where((x - location).abs() <= scale, flat, torch.full_like(flat, -math.inf))

    def interval_mass(self, low: Tensor, high: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        start, end = location - scale, location + scale
        return (torch.minimum(high, end) - torch.maximum(low, start)).clamp(min=0) / (2 * scale)

    def quantile(self, share: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        return location + scale * (2 * share - 1)

    def kinks(self, location: Tensor, scale: Tensor) -> Tensor:
        return torch.stack([location - scale, location + scale], -1)


NORMAL, UNIFORM = Normal(), Uniform()
