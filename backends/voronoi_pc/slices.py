"""Exact reference in one and two variables: every slice of a planar Voronoi cell is an interval, whose mass is a difference of CDFs.

The integral over the other variable is Gauss-Legendre on panels that end at every vertex of the cell and at every kink of a leaf.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backends.voronoi_pc.voronoi_sum import Region, VoronoiSum

NODES = 12  # of one panel
PANEL_SD = 0.5  # widest panel, in the smallest scale of the expert
TAIL_SD = 9.0  # beyond which 1e-19 of a normal lies


def slice_ends(region: Region, variable: int, at: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper end, each (T, K), of every cell's slice at these values of one of two variables; lower >= upper where it is empty. at: (T,)."""
    held, free = region.normals[..., variable], region.normals[..., 1 - variable]
    rest = held * at[:, None, None] + region.offsets  # (T, K, K)
    edge = -rest / torch.where(free == 0, 1.0, free)
    low = torch.where(free < 0, edge, -math.inf).amax(-1)
    high = torch.where(free > 0, edge, math.inf).amin(-1)
    empty = ((free == 0) & (rest > 0)).any(-1)
    return torch.where(empty, math.inf, low), torch.where(empty, -math.inf, high)


def slice_mass(node: VoronoiSum, variable: int, at: Any, low: float = -math.inf, high: float = math.inf) -> Tensor:
    """f(x_variable = at), the unnormalised marginal density with the other of two variables between low and high: (T,). at: (T,).

    Divide by the partition function for the density. Raises ValueError where the model has other than two variables.
    """
    region = _planar(node)
    return torch.stack([_slice_of(region, k, variable, torch.as_tensor(at, dtype=torch.float64), (low, high)) for k in range(len(node.weights))]).sum(0)


def _slice_of(region: Region, k: int, variable: int, at: Tensor, between: tuple[float, float]) -> Tensor:
    """The part of cell k in the slice mass, (T,)."""
    one = Region(region.normals[k : k + 1], region.offsets[k : k + 1], region.log_weights[k : k + 1], region.experts)
    low, high = slice_ends(one, variable, at)
    low, high = low.clamp(min=between[0]), high.clamp(max=between[1])
    experts = region.experts
    location, scale, leaf = experts.location[k], experts.scale[k], experts.leaf
    density = torch.exp(leaf.log_density(at[:, None], location[:, variable], scale[:, variable]))
    inside = leaf.interval_mass(torch.minimum(low, high), high, location[:, 1 - variable], scale[:, 1 - variable])
    return torch.exp(region.log_weights[k]) * (density * inside * experts.weights[k]).sum(-1)


def exact_mass(node: VoronoiSum, low: Any = None, high: Any = None) -> float:
    """Integral of f over a box (d,), the whole space without one, in one or two variables, to about 1e-10.

    >>> from backends.voronoi_pc import Experts
    >>> centres = [[-1.0, -1.0], [1.0, 1.0]]
    >>> round(exact_mass(VoronoiSum(centres, [0.5, 0.5], Experts.of(centres, [[1.0, 1.0]] * 2))), 6)
    0.92135
    """
    d = node.dimension
    ends = [torch.full((d,), s * math.inf, dtype=torch.float64) if x is None else torch.as_tensor(x, dtype=torch.float64) for x, s in ((low, -1), (high, 1))]
    if d == 1:
        return _line_mass(node, float(ends[0][0]), float(ends[1][0]))
    region = _planar(node)
    polygons = cell_polygons(node.centroids.numpy(), *_frame(node))
    total = 0.0
    for k, corners in enumerate(polygons):
        at, weight = _panels(node, k, corners[:, 0], float(ends[0][0]), float(ends[1][0]))
        total += float((_slice_of(region, k, 0, at, (float(ends[0][1]), float(ends[1][1]))) * weight).sum())
    return total


def _line_mass(node: VoronoiSum, low: float, high: float) -> float:
    region = node.region()
    edge = -region.offsets / torch.where(region.normals[..., 0] == 0, 1.0, region.normals[..., 0])
    start = torch.where(region.normals[..., 0] < 0, edge, -math.inf).amax(-1, keepdim=True).clamp(min=low)
    end = torch.where(region.normals[..., 0] > 0, edge, math.inf).amin(-1, keepdim=True).clamp(max=high)
    mass = node.experts.box_mass(torch.arange(len(start)), torch.minimum(start, end), end)
    return float((node.weights * mass).sum())


def _planar(node: VoronoiSum) -> Region:
    if node.dimension != 2:
        raise ValueError(f"slices are intervals in two variables; the model has {node.dimension}")
    return node.region()


def _frame(node: VoronoiSum) -> tuple[np.ndarray, np.ndarray]:
    """A box (2,), (2,) that holds the tails of every expert and the centroids."""
    tail = TAIL_SD * node.experts.leaf.unit_sd * node.experts.scale
    low = torch.minimum((node.experts.location - tail).amin((0, 1)), node.centroids.amin(0))
    high = torch.maximum((node.experts.location + tail).amax((0, 1)), node.centroids.amax(0))
    return low.numpy() - 1, high.numpy() + 1


def _panels(node: VoronoiSum, k: int, corners: np.ndarray, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre places and weights (T,) for cell k along the first variable, between low and high."""
    location, scale = node.experts.location[k, :, 0], node.experts.scale[k, :, 0]
    tail = TAIL_SD * node.experts.leaf.unit_sd * scale
    start, end = max(low, float((location - tail).min())), min(high, float((location + tail).max()))
    if corners.size == 0 or start >= end:
        return torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.float64)
    kinks = node.experts.leaf.kinks(location, scale).reshape(-1).numpy()
    step = PANEL_SD * float(scale.min())
    plain = np.linspace(start, end, max(2, math.ceil((end - start) / step) + 1))
    breaks = np.unique(np.clip(np.concatenate([plain, corners, kinks, location.numpy()]), start, end))
    node_at, node_weight = np.polynomial.legendre.leggauss(NODES)
    half = np.diff(breaks) / 2
    at = (breaks[:-1] + half)[:, None] + half[:, None] * node_at
    return torch.from_numpy(at.reshape(-1)), torch.from_numpy((half[:, None] * node_weight).reshape(-1))


def cell_polygons(centroids: np.ndarray, low: np.ndarray, high: np.ndarray) -> list[np.ndarray]:
    """The corners (v, 2) of every planar cell cut to a frame, in order; (0, 2) where it lies outside. centroids: (K, 2), low, high: (2,)."""
    frame = np.array([[low[0], low[1]], [high[0], low[1]], [high[0], high[1]], [low[0], high[1]]])
    square = (centroids**2).sum(1)
    polygons = []
    for k, centre in enumerate(centroids):
        normals, offsets = 2 * (centroids - centre), square[k] - square
        nearest_first = np.argsort(((centroids - centre) ** 2).sum(1))[1:]  # near walls cut early, so that far ones meet few corners
        corners = frame
        for j in nearest_first:
            corners = _clip(corners, normals[j], offsets[j])
        polygons.append(corners)
    return polygons


def _clip(corners: np.ndarray, normal: np.ndarray, offset: float) -> np.ndarray:
    """The part of a convex polygon where normal . x + offset <= 0."""
    side = corners @ normal + offset
    if not len(corners) or side.max() <= 0:
        return corners
    if side.min() >= 0:
        return corners[:0]
    following, next_side = np.roll(corners, -1, axis=0), np.roll(side, -1)
    crosses = (side <= 0) != (next_side <= 0)
    share = np.where(crosses, side / np.where(crosses, side - next_side, 1.0), 0.0)[:, None]
    both = np.stack([corners, corners + share * (following - corners)], 1).reshape(-1, 2)
    return both[np.stack([side <= 0, crosses], 1).reshape(-1)]
