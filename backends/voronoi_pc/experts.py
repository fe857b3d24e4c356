"""The experts of a Voronoi sum node: K circuits on one scope, each a weighted sum of products of leaves, held as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backends.voronoi_pc.leaves import NORMAL, Leaf

REACH_SD = 6.0  # standard deviations beyond which an expert holds next to nothing


def real(name: str, value: Any, dimensions: int) -> Tensor:
    """A float64 tensor of finite numbers with this many dimensions. Raises ValueError with the argument's name."""
    try:
        given = torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} is ragged or holds something that is not a number") from None
    if given.dim() != dimensions:
        raise ValueError(f"{name} has shape {tuple(given.shape)}; {dimensions} dimensions are wanted")
    if not bool(torch.isfinite(given).all()):
        raise ValueError(f"{name} holds NaN or infinity")
    return given


def simplex(name: str, weights: Tensor) -> Tensor:
    """Checks that the last dimension holds weights that are not negative and sum to 1."""
    if bool((weights < 0).any()) or not bool((weights.sum(-1) - 1).abs().max() < 1e-6):  # as float32 weights sum
        raise ValueError(f"{name} must be at least 0 and sum to 1")
    return weights


@dataclass(frozen=True)
class Experts:
    """p_k(x) = sum_c weights[k, c] prod_i leaf(x_i; location[k, c, i], scale[k, c, i]).

    weights: (K, C) on the simplex. location, scale: (K, C, d). Raises ValueError for shapes that do not fit, scales that are not
    positive, and a leaf without a distribution function.

    >>> experts = Experts.of([[0.0, 0.0]], [[1.0, 1.0]])
    >>> round(float(experts.box_mass(torch.tensor([0]), torch.zeros(1, 2), torch.full((1, 2), torch.inf))), 6)
    0.25
    """

    weights: Tensor
    location: Tensor
    scale: Tensor
    leaf: Leaf = NORMAL

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", simplex("the weights of an expert", real("weights", self.weights, 2)))
        object.__setattr__(self, "location", real("location", self.location, 3))
        object.__setattr__(self, "scale", real("scale", self.scale, 3))
        if self.location.shape != self.scale.shape or self.location.shape[:2] != self.weights.shape or 0 in self.location.shape:
            shapes = ", ".join(str(tuple(x.shape)) for x in (self.weights, self.location, self.scale))
            raise ValueError(f"weights, location and scale have shapes {shapes}, not (K, C), (K, C, d), (K, C, d)")
        if bool((self.scale <= 0).any()):
            raise ValueError("a scale is not positive")
        if not isinstance(self.leaf, Leaf):
            raise ValueError("the leaf has no distribution function (interval_mass), so a box has no mass")

    @classmethod
    def of(cls, location: Any, scale: Any, leaf: Leaf = NORMAL) -> Experts:
        """Factorised experts, one component each. location, scale: (K, d)."""
        at, wide = real("location", location, 2), real("scale", scale, 2)
        return cls(torch.ones(len(at), 1, dtype=torch.float64), at[:, None], wide[:, None], leaf)

    @property
    def count(self) -> int:
        return int(self.weights.shape[0])

    @property
    def dimension(self) -> int:
        return int(self.location.shape[2])

    def log_density(self, x: Tensor) -> Tensor:
        """log p_k at x. x: (n, d) -> (n, K)."""
        parts = self.leaf.log_density(x[:, None, None], self.location, self.scale).sum(-1)
        return torch.logsumexp(parts + torch.log(self.weights), -1)

    def box_mass(self, owner: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Integral of p_owner over each box, one bottom-up pass with differences of distribution functions. owner: (M,), low, high: (M, d) -> (M,)."""
        inside = self.leaf.interval_mass(low[:, None], high[:, None], self.location[owner], self.scale[owner]).prod(-1)
        return (self.weights[owner] * inside).sum(-1)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each expert, each (K, d)."""
        share = self.weights[..., None]
        mean = (share * self.location).sum(1)
        variance = (share * ((self.leaf.unit_sd * self.scale) ** 2 + (self.location - mean[:, None]) ** 2)).sum(1)
        return mean, variance.sqrt()

    def reach(self) -> tuple[Tensor, Tensor]:
        """Lower and upper end, each (K, d), between which an expert's components lie to six standard deviations."""
        width = REACH_SD * self.leaf.unit_sd * self.scale
        return (self.location - width).amin(1), (self.location + width).amax(1)

    def fixed(self, values: Mapping[int, float]) -> tuple[Experts, Tensor]:
        """The experts over the variables that are not fixed, and log p_k of the fixed ones: (K,), -inf where an expert excludes them."""
        kept = [i for i in range(self.dimension) if i not in values]
        held = sorted(values)
        at = torch.tensor([values[i] for i in held], dtype=torch.float64)
        parts = torch.log(self.weights) + self.leaf.log_density(at, self.location[..., held], self.scale[..., held]).sum(-1)
        total = torch.logsumexp(parts, -1)
        shares = torch.where(torch.isfinite(total)[:, None], torch.softmax(parts, -1), self.weights)
        return replace(self, weights=shares / shares.sum(-1, keepdim=True), location=self.location[..., kept], scale=self.scale[..., kept]), total

    def draw(self, owner: Tensor, generator: torch.Generator) -> Tensor:
        """One draw from the expert of each entry, walls ignored. owner: (n,) -> (n, d)."""
        part = torch.multinomial(self.weights[owner], 1, generator=generator)[:, 0]
        share = torch.rand((len(owner), self.dimension), generator=generator, dtype=torch.float64).clamp(1e-15, 1 - 1e-15)
        return self.leaf.quantile(share, self.location[owner, part], self.scale[owner, part])
