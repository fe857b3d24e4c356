"""Scenes whose experts are given: two centroids that turn, and random centroids in more and more variables (section 6 of the card)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from backends.voronoi_pc.experts import Experts
from backends.voronoi_pc.refinement import COARSE, refine
from backends.voronoi_pc.voronoi_sum import VoronoiSum

RANDOM_SD = 0.7
CURSE_CELLS, CURSE_DIMENSIONS = 4, (2, 3, 4, 5, 6)


def two_centroids(angle_degrees: float) -> VoronoiSum:
    """Centroids at distance 1 on both sides of the origin, N(c_k, I) in each cell: Z = Phi(1) at every angle."""
    turn = math.radians(angle_degrees)
    # Rounded, so that the wall at 0 and 90 degrees stands upright exactly.
    x, y = round(math.cos(turn), 15), round(math.sin(turn), 15)
    centroids = torch.tensor([[-x, -y], [x, y]], dtype=torch.float64)
    return VoronoiSum(centroids, torch.full((2,), 0.5, dtype=torch.float64), Experts.of(centroids, torch.ones_like(centroids)))


def random_centroids(cells: int, dimension: int, seed: int) -> VoronoiSum:
    """Centroids from N(0, I), an expert of sd 0.7 at each, equal weights."""
    generator = torch.Generator().manual_seed(seed)
    centroids = torch.randn((cells, dimension), generator=generator, dtype=torch.float64)
    return VoronoiSum(centroids, torch.full((cells,), 1 / cells, dtype=torch.float64), Experts.of(centroids, torch.full_like(centroids, RANDOM_SD)))


def draw_unwalled(node: VoronoiSum, n: int, generator: torch.Generator) -> Tensor:
    """n draws (n, d) from the mixture of the experts: the walls are ignored."""
    return node.experts.draw(torch.multinomial(node.weights, n, replacement=True, generator=generator), generator)


def gap_of(dimension: int, splits: int, seed: int) -> float:
    """The gap that so many splits leave with four random centroids in ``dimension`` variables."""
    return refine(random_centroids(CURSE_CELLS, dimension, seed).region(), splits, share=COARSE).gap
