"""Certified bounds of a Voronoi sum's integral by boxes that shrink onto the walls (section 4.2 of the card).

Boxes that lie in their cell count into the lower bound; boxes that straddle a wall count into the upper bound alone and are split,
the heaviest first. Many are split at once as one tensor operation. Bounds are rounded outward and only ever tighten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from backends.voronoi_pc.leaves import Normal
from backends.voronoi_pc.voronoi_sum import Region
from kernels import voronoi_boxes
from kernels.voronoi_boxes import INSIDE, STRADDLING

Rule = Literal["extent", "cycle", "steepest"]
ROUNDING = 1e-12  # a box, of the mass that the start could hold: far above what its float64 mass can be off
FINE, COARSE = 16, 3  # a batch is at most this fraction of the splits made so far: nearly best-first, or quick where many integrals are wanted
BATCH_LIMIT = 4096  # boxes split at once


@dataclass(frozen=True, slots=True)
class Bounds:
    """lower <= true value <= upper; splits made and boxes looked at; the same at each batch: history (h, 3) of splits, lower, upper."""

    lower: float
    upper: float
    splits: int
    boxes: int
    history: Tensor

    @property
    def gap(self) -> float:
        return self.upper - self.lower


class Refinement:
    """The state of one refinement of ``sum_k w_k int over (cell k and start) of p_k``.

    start: (low, high), each (S, d), disjoint boxes to integrate over, infinite ends allowed; the whole space without it.
    rule: which axis is split where no axis-aligned wall crosses the box: "extent" (largest extent in standard deviations, at the middle
    of the extent clipped to six of them), "cycle" (each in turn, at the plain middle), "steepest" (along which the walls change most).
    outside: mass that lies beyond the start and may belong to the integral; it is added to the upper bound.
    """

    def __init__(self, region: Region, start: tuple[Any, Any] | None = None, rule: Rule = "extent", outside: float = 0.0) -> None:
        if rule not in get_args(Rule):
            raise ValueError(f"{rule!r} is no rule; choose one of {', '.join(get_args(Rule))}")
        self.region, self.rule, self.outside = region, rule, outside
        self.weights = torch.exp(region.log_weights)
        self.mean, self.sd = region.experts.moments()
        self.reach = region.experts.reach()
        low, high = _start(start, region.experts.dimension)
        cells, pieces = region.experts.count, len(low)
        owner = torch.arange(cells).repeat_interleave(pieces)
        low, high = low.repeat(cells, 1), high.repeat(cells, 1)
        self.inside_mass, self.stuck_mass = 0.0, 0.0
        self.splits, self.boxes = 0, len(owner)
        self._inside: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        self.low, self.high, self.owner = low[:0], high[:0], owner[:0]  # of the straddling boxes, as are mass and depth
        self.mass, self.depth = torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.int64)
        self._unit = ROUNDING * float((self.weights[owner] * self._could_hold(owner, low, high)).sum())
        self._wall_axis, self._wall_at, self._tightness = _aligned_walls(region)
        self._aligned = bool((self._wall_axis >= 0).any())
        # Where every wall is upright each box ends at its walls whatever the order: all are split at once.
        self._upright = bool(((self._wall_axis >= 0) | (region.normals == 0).all(-1)).all())
        self.lower, self.upper = 0.0, math.inf
        self._history: list[tuple[int, float, float]] = []
        self._sort_in(low, high, owner, torch.zeros(len(owner), dtype=torch.int64))

    def _could_hold(self, owner: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Mass of each box opened to its tail: the size of the numbers whose difference its mass is."""
        right = low + high > 2 * self.mean[owner]
        return self.region.experts.box_mass(owner, torch.where(right, low, -math.inf), torch.where(right, math.inf, high))

    def _sort_in(self, low: Tensor, high: Tensor, owner: Tensor, depth: Tensor) -> None:
        """Classifies new boxes: inside mass is counted, outside boxes are dropped, straddling ones wait."""
        kind, mass = self._weigh(low, high, owner)
        mass = mass * self.weights[owner]
        inside, wait = kind == INSIDE, (kind == STRADDLING) & (mass > 0)
        self.inside_mass += float(mass[inside].sum())
        self._inside.append((low[inside], high[inside], owner[inside], mass[inside]))
        self.low, self.high = torch.cat([self.low, low[wait]]), torch.cat([self.high, high[wait]])
        self.owner, self.depth = torch.cat([self.owner, owner[wait]]), torch.cat([self.depth, depth[wait]])
        self.mass = torch.cat([self.mass, mass[wait]])
        slack = self._unit * self.boxes
        self.lower = max(self.lower, self.inside_mass - slack)
        self.upper = min(self.upper, self.inside_mass + self.straddling + self.outside + slack)
        self._history.append((self.splits, self.lower, self.upper))

    def _weigh(self, low: Tensor, high: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
        region, experts = self.region, self.region.experts
        if isinstance(experts.leaf, Normal):
            return voronoi_boxes.op(low, high, owner, region.normals, region.offsets, experts.weights, experts.location, experts.scale)
        return voronoi_boxes.classes(low, high, owner, region.normals, region.offsets), experts.box_mass(owner, low, high)

    @property
    def straddling(self) -> float:
        """Mass of the boxes that straddle a wall."""
        return float(self.mass.sum()) + self.stuck_mass

    @property
    def closed(self) -> bool:
        """True when no box straddles a wall: the bounds are as near as rounding allows."""
        return len(self.mass) == 0

    def inside(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """low, high (m, d), owner (m,) and mass (m,) of the boxes that lie in their cell."""
        low, high, owner, mass = (torch.cat(parts) for parts in zip(*self._inside, strict=True))
        return low, high, owner, mass

    def bounds(self) -> Bounds:
        return Bounds(self.lower, self.upper, self.splits, self.boxes, torch.tensor(self._history, dtype=torch.float64))

    def split(self, count: int) -> int:
        """Splits the ``count`` heaviest straddling boxes as one operation; returns how many it were."""
        count = min(count, len(self.mass))
        if count == 0:
            return 0
        chosen = torch.topk(self.mass, count, sorted=False).indices
        low, high, owner, depth, mass = self.low[chosen], self.high[chosen], self.owner[chosen], self.depth[chosen], self.mass[chosen]
        kept = torch.ones(len(self.mass), dtype=torch.bool)
        kept[chosen] = False
        self.low, self.high, self.owner, self.depth, self.mass = (x[kept] for x in (self.low, self.high, self.owner, self.depth, self.mass))
        axis, place = self._cut(low, high, owner, depth)
        rows = torch.arange(count)
        possible = (low[rows, axis] < place) & (place < high[rows, axis])  # not where the box has shrunk to neighbouring floats
        self.stuck_mass += float(mass[~possible].sum())
        low, high, owner, depth, axis, place = (x[possible] for x in (low, high, owner, depth, axis, place))
        rows = torch.arange(len(axis))
        left_high, right_low = high.clone(), low.clone()
        left_high[rows, axis] = place
        right_low[rows, axis] = place
        self.splits += count
        self.boxes += 2 * len(axis)
        self._sort_in(torch.cat([low, right_low]), torch.cat([left_high, high]), owner.repeat(2), depth.repeat(2) + 1)
        return count

    def _cut(self, low: Tensor, high: Tensor, owner: Tensor, depth: Tensor) -> tuple[Tensor, Tensor]:
        """Axis and place of each box's split, each (m,): at an axis-aligned wall through it, else by the rule."""
        start, end = self.reach[0][owner], self.reach[1][owner]
        near, far = torch.maximum(low, start), torch.minimum(high, end)
        if self.rule == "cycle":
            axis = depth % low.shape[1]
            near, far = torch.where(torch.isinf(low), near, low), torch.where(torch.isinf(high), far, high)
        elif self.rule == "extent":
            axis = ((far - near).clamp(min=0) / self.sd[owner]).argmax(-1)
        else:
            slope = self.region.normals[owner].abs().amax(1)
            axis = ((far - near).clamp(min=0) * slope).argmax(-1)
        middle = self._middle(low, high, near, far, owner).gather(1, axis[:, None])[:, 0]
        if not self._aligned:
            return axis, middle
        wall_axis, wall_at = self._wall_axis[owner], self._wall_at[owner]
        column = wall_axis.clamp(min=0)
        crossing = (wall_axis >= 0) & (low.gather(1, column) < wall_at) & (wall_at < high.gather(1, column))
        # The tightest one: the cell's own wall on its side, beyond which the box is cut off for good.
        first = torch.where(crossing, self._tightness[owner], math.inf).argmin(1)[:, None]
        found = crossing.any(1)
        return torch.where(found, column.gather(1, first)[:, 0], axis), torch.where(found, wall_at.gather(1, first)[:, 0], middle)

    def _middle(self, low: Tensor, high: Tensor, near: Tensor, far: Tensor, owner: Tensor) -> Tensor:
        """The middle of the clipped extent; beyond an expert's reach the plain middle, or a standard deviation from the finite end."""
        sd = self.sd[owner]
        beyond = torch.where(torch.isinf(high), low + sd, torch.where(torch.isinf(low), high - sd, (low + high) / 2))
        return torch.where(near < far, (near + far) / 2, beyond)

    def run(self, splits: int, gap: float = 0.0, check: Callable[[], None] | None = None, share: int = FINE) -> Iterator[None]:
        """Refines until so many splits are made, the gap is reached or nothing straddles; yields after each batch."""
        while self.splits < splits and not self.closed and self.upper - self.lower > gap:
            if check is not None:
                check()
            batch = len(self.mass) if self._upright else max(1, self.splits // share)
            self.split(min(splits - self.splits, batch, BATCH_LIMIT))
            yield


def _start(start: tuple[Any, Any] | None, d: int) -> tuple[Tensor, Tensor]:
    if start is None:
        edge = torch.full((1, d), math.inf, dtype=torch.float64)
        return -edge, edge
    low, high = (torch.as_tensor(x, dtype=torch.float64).reshape(-1, d) for x in start)
    if low.shape != high.shape or bool(torch.isnan(low).any() | torch.isnan(high).any()) or bool((low > high).any()):
        raise ValueError("the start boxes need a low and a high end each, low <= high")
    return low, high


def _aligned_walls(region: Region) -> tuple[Tensor, Tensor, Tensor]:
    """Of each wall (K, K): its axis, -1 where it is slanted; where it crosses that axis; the smaller the tighter on its side."""
    nonzero = region.normals != 0
    aligned = nonzero.sum(-1) == 1
    axis = torch.where(aligned, nonzero.to(torch.int64).argmax(-1), -1)
    coefficient = region.normals.gather(2, axis.clamp(min=0)[..., None])[..., 0]
    place = torch.where(aligned, -region.offsets / torch.where(aligned, coefficient, 1.0), 0.0)
    return axis, place, place * coefficient.sign()


def refine(region: Region, splits: int, *, start: tuple[Any, Any] | None = None, rule: Rule = "extent", gap: float = 0.0, share: int = FINE) -> Bounds:
    """Bounds of ``sum_k exp(log_weights[k]) int over (cell k and start) of p_k`` after at most so many splits. See ``Refinement``.

    >>> from backends.voronoi_pc import Experts, VoronoiSum
    >>> centres = [[-1.0, 0.0], [1.0, 0.0]]
    >>> found = refine(VoronoiSum(centres, [0.5, 0.5], Experts.of(centres, [[1.0, 1.0]] * 2)).region(), 100)
    >>> round(found.lower, 6), round(found.upper, 6), found.splits
    (0.841345, 0.841345, 2)
    """
    made = Refinement(region, start, rule)
    for _ in made.run(splits, gap, share=share):
        pass
    return made.bounds()


def bisect(region: Region, depth: int, low: Any, high: Any) -> Bounds:
    """Bounds after every straddling box of the finite box low, high (d,) was halved ``depth`` times, the axes in turn; the mass beyond it
    is added to the upper bound."""
    region_low, region_high = _start((low, high), region.experts.dimension)
    if len(region_low) != 1 or not bool(torch.isfinite(region_low).all() & torch.isfinite(region_high).all()):
        raise ValueError("bisection starts from one finite box")
    owner = torch.arange(region.experts.count)
    held = region.experts.box_mass(owner, region_low.expand(len(owner), -1), region_high.expand(len(owner), -1))
    made = Refinement(region, (low, high), "cycle", float((torch.exp(region.log_weights) * (1 - held)).sum()))
    for _ in range(depth):
        made.split(len(made.mass))
    return made.bounds()
