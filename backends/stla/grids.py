"""The quantiser: Q = s (clip(q + z, 0, 2^b - 1) - z), and the grid search for its scale and zero point (card 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from backends.stla.tensors import check_bits

RATIOS = 100  # clip ratios 1.00, 0.99, ..., 0.01
AT_ONCE = 200_000  # numbers of the candidates that are tried in one go: they stay in the cache


@dataclass(frozen=True, slots=True)
class Grid:
    """scale and zero: (R, 1) of one group, or (R, c), one entry a column. levels: 2^b - 1, the largest code."""

    scale: torch.Tensor
    zero: torch.Tensor
    levels: int

    def codes(self, weights: torch.Tensor) -> torch.Tensor:
        """Nearest codes, (R, c), whole numbers from 0 to ``levels``."""
        return (torch.round(weights / self.scale) + self.zero).clamp_(0, self.levels)

    def values(self, codes: torch.Tensor) -> torch.Tensor:
        """The weights that codes stand for."""
        return self.scale * (codes - self.zero)

    def nearest(self, weights: torch.Tensor) -> torch.Tensor:
        """Weights rounded to the nearest value of the grid."""
        return self.values(self.codes(weights))

    def to(self, dtype: torch.dtype) -> Grid:
        return replace(self, scale=self.scale.to(dtype), zero=self.zero.to(dtype))


def full_range(weights: torch.Tensor, bits: int) -> Grid:
    """The grid from the smallest to the largest weight of each row, zero included, without a search. weights: (R, g)."""
    check_bits(bits)
    levels = 2**bits - 1
    low, high = weights.amin(1, keepdim=True).clamp_max(0), weights.amax(1, keepdim=True).clamp_min(0)
    scale = (high - low) / levels
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))  # a row of zeros: any scale keeps it
    return Grid(scale, torch.round(-low / scale), levels)


def search_grid(weights: torch.Tensor, bits: int, metric: torch.Tensor, check: Callable[[], None] = lambda: None) -> Grid:
    """Per row the clip ratio and zero point of least error delta S delta^T (card 4.3); at a tie the larger ratio and the lower zero point.

    weights: (R, g), of one group. metric: S, (g, g). A row of zeros keeps scale 1 and zero point 0. Raises ValueError for bits outside 2 to 8.
    """
    check_bits(bits)
    levels = 2**bits - 1
    weights = weights.contiguous()
    rows, width = weights.shape
    low, high = weights.amin(1, keepdim=True).clamp_max(0), weights.amax(1, keepdim=True).clamp_min(0)
    reach = high - low
    flat = reach == 0
    reach = torch.where(flat, torch.full_like(reach, levels), reach)
    exact_zero = -low * levels / reach  # s shrinks with the ratio and so does the range: the zero point stays
    best = Grid(reach / levels, torch.floor(exact_zero), levels)
    least = torch.full((rows,), torch.inf, dtype=weights.dtype, device=weights.device)
    ratios = torch.arange(RATIOS, 0, -1, dtype=weights.dtype, device=weights.device) / RATIOS
    for some in ratios.split(max(1, AT_ONCE // weights.numel())):
        check()
        scale = some[:, None, None] * reach / levels  # (n, R, 1)
        nearest = (weights / scale).round_()
        for zero in (torch.floor(exact_zero), torch.ceil(exact_zero)):
            delta = (nearest + zero).clamp_(0, levels).sub_(zero).mul_(scale).sub_(weights)
            score = (delta.view(-1, width) @ metric).view_as(delta).mul_(delta).sum(-1)  # (n, R)
            found, at = score.min(0)
            better = (found < least)[:, None]
            least = torch.minimum(found, least)
            taken = scale[at, torch.arange(rows, device=at.device)]
            best = replace(best, scale=torch.where(better, taken, best.scale), zero=torch.where(better, zero, best.zero))
    ones = torch.ones_like(best.scale)
    return replace(best, scale=torch.where(flat, ones, best.scale), zero=torch.where(flat, torch.zeros_like(ones), best.zero))
