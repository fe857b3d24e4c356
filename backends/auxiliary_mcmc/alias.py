"""Draws of row numbers with given weights in constant time a draw: Walker's alias table, built without a loop over the rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class AliasTable:
    """Row i is drawn with probability proportional to its weight.

    keep: (N,) float64, the chance that a drawn place gives its own row; other: (N,) int64, the row it gives else; total: sum of the weights.
    """

    keep: Tensor
    other: Tensor
    total: float

    @classmethod
    def of(cls, weights: Tensor) -> AliasTable:
        """The table of weights (N,), all finite and at least 0, at least one above 0; raises ValueError otherwise.

        The places below average lend their gap to those above it in the order of the rows (the sweep of Hübschle-Schneider and Sanders,
        2019, section 4.2). Which one serves which follows from two running sums, so that the sweep needs no loop.
        """
        weights = torch.as_tensor(weights, dtype=torch.float64)
        total = float(weights.sum()) if weights.ndim == 1 and weights.numel() else 0.0
        if not 0 < total < float("inf") or bool((weights < 0).any()):
            raise ValueError("the weights must be one list of finite numbers, at least 0 and not all 0")
        n = weights.numel()
        scaled = weights * (n / total)
        lends = scaled < 1
        lends[scaled.argmax()] = False  # rounding can leave the largest just below the average
        light, heavy = torch.nonzero(lends).flatten(), torch.nonzero(~lends).flatten()
        gap, surplus = torch.cumsum(1 - scaled[light], 0), torch.cumsum(scaled[heavy] - 1, 0)
        keep, other = scaled.clone(), torch.arange(n, device=weights.device)
        last = heavy.numel() - 1
        other[light] = heavy[torch.searchsorted(surplus, gap - (1 - scaled[light]), right=True).clamp(max=last)]
        # A heavy place is served out once the gaps filled reach its running surplus; what is left of it stays, the rest is the next one's.
        filled = torch.cat([gap, gap.new_full((1,), float("inf"))])[torch.searchsorted(gap, surplus)]
        keep[heavy] = torch.where(surplus > 0, 1 + surplus - filled, 1.0).clamp(0, 1)
        keep[heavy[last]] = 1.0  # the two sums end equal but for rounding
        other[heavy[:-1]] = heavy[1:]
        return cls(keep, other, total)

    def probabilities(self) -> Tensor:
        """(N,) what a draw gives, from the table itself; it equals weights / total to rounding."""
        n = self.keep.numel()
        return (self.keep + torch.zeros_like(self.keep).index_add_(0, self.other, 1 - self.keep)) / n

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Row numbers of this shape, int64. One uniform number gives the place and the coin."""
        place = torch.rand(shape, dtype=torch.float64, generator=generator, device=self.keep.device).mul_(self.keep.numel())
        row = place.long()
        flat = row.view(-1)  # index_select on a list is three times as fast as indexing
        own = place.sub_(row) < self.keep.index_select(0, flat).view(shape)
        return torch.where(own, row, self.other.index_select(0, flat).view(shape))
