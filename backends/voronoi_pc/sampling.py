"""Exact draws from a hard-gated Voronoi sum: a cell by its mass, then its expert until the draw falls into the cell (section 4.5)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from backends.voronoi_pc.voronoi_sum import VoronoiSum

ROUNDS = 400  # of proposals; a cell whose expert hits it less than once in thousands would take for ever


def sample(node: VoronoiSum, n: int, generator: torch.Generator, check: Callable[[], None] | None = None) -> tuple[Tensor, float]:
    """n draws (n, d) and the share of proposals that were accepted.

    A proposal takes cell k with probability pi_k and x from p_k, and is kept where x lies in cell k: kept draws have the density f / Z,
    so no mass of a cell needs to be known. Raises ValueError when almost nothing is kept.
    """
    kept: list[Tensor] = []
    found, proposed = 0, 0
    for _ in range(ROUNDS):
        if check is not None:
            check()
        size = max(256, 2 * (n - found))
        owner = torch.multinomial(node.weights, size, replacement=True, generator=generator)
        x = node.experts.draw(owner, generator)
        good = x[node.cell_of(x) == owner]
        kept.append(good)
        found, proposed = found + len(good), proposed + size
        if found >= n:
            return torch.cat(kept)[:n], found / proposed
    raise ValueError(f"{found} of {proposed} proposals fell into their cell; the experts do not fit their cells")
