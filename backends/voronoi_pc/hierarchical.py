"""Hierarchical factorised Voronoi circuits: gates on single variables, cells of larger scopes as products, all integrals exact.

Every variable has its own centroids, so its cells are intervals between midpoints; a cell of a block is a product of child cells. The
weights of these products are a tree of sums over pairs (section 4.3 of the card), and each pass costs O(d K^3) for K cells a variable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from backends.voronoi_pc.conditions import EVERYTHING, Span, overlap
from backends.voronoi_pc.experts import real, simplex
from backends.voronoi_pc.leaves import NORMAL, Leaf
from backends.voronoi_pc.voronoi_sum import VoronoiSum

CLOSURE = "a gate with slanted walls over a block that is split again below: the integral over its cells does not factorise"


@dataclass(frozen=True, slots=True)
class Gate:
    """A Voronoi gate over a block. variables: which; centroids: (K, len(variables))."""

    variables: tuple[int, ...]
    centroids: Tensor

    @property
    def is_box(self) -> bool:
        """Whether every cell is a box: one variable, or centroids that form a grid of the values of each variable."""
        sides = [len(torch.unique(self.centroids[:, i])) for i in range(len(self.variables))]
        return sum(side > 1 for side in sides) <= 1 or len(torch.unique(self.centroids, dim=0)) == math.prod(sides)


def require_closure(gates: Sequence[Gate], blocks: Sequence[tuple[int, ...]]) -> None:
    """Refuses a gate whose cells are no boxes over variables that lie in more than one of the blocks below it.

    blocks: the variables of each factor that the gate's experts split into. Raises ValueError with the reason.

    >>> slanted = Gate((0, 1), torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))
    >>> require_closure([slanted], [(0, 1)])
    >>> require_closure([slanted], [(0,), (1,)])
    Traceback (most recent call last):
    ...
    ValueError: a gate with slanted walls over a block that is split again below: the integral over its cells does not factorise
    """
    for gate in gates:
        touched = [block for block in blocks if set(block) & set(gate.variables)]
        if len(touched) > 1 and not gate.is_box:
            raise ValueError(CLOSURE)


@dataclass(frozen=True)
class FactorisedVoronoi:
    """An exact Voronoi circuit over d >= 2 variables.

    centroids: for each variable (K_i,), ascending, no two alike; location, scale: for each variable (K_i,), the leaf of each interval.
    weights: one tensor (U, K_left, K_right) a pair, each [u] on the simplex, in the order in which ``tree`` pairs the blocks; U is 1 at
    the root. For two variables: weights = [pi[None]] with pi (K_1, K_2). Raises ValueError for what does not fit.

    >>> normal = [torch.tensor([0.0, 0.0])] * 2, [torch.ones(2)] * 2
    >>> model = FactorisedVoronoi([torch.tensor([-1.0, 1.0])] * 2, *normal, [torch.full((1, 2, 2), 0.25)])
    >>> round(model.partition(), 6)
    0.25
    """

    centroids: Sequence[Tensor]
    location: Sequence[Tensor]
    scale: Sequence[Tensor]
    weights: Sequence[Tensor]
    leaf: Leaf = NORMAL

    def __post_init__(self) -> None:
        for name in ("centroids", "location", "scale"):
            object.__setattr__(self, name, tuple(real(f"{name} of variable {i + 1}", x, 1) for i, x in enumerate(getattr(self, name))))
        object.__setattr__(self, "weights", tuple(simplex("the weights of a pair", real("weights", w, 3).flatten(1)).reshape(w.shape) for w in self.weights))
        sizes = [len(c) for c in self.centroids]
        if len(sizes) < 2 or [len(x) for x in self.location] != sizes or [len(x) for x in self.scale] != sizes or min(sizes) < 1:
            raise ValueError("two variables or more are needed, with as many centroids as leaves each")
        if any(bool((c.diff() <= 0).any()) for c in self.centroids):
            raise ValueError("the centroids of a variable must ascend, no two alike")
        if any(bool((s <= 0).any()) for s in self.scale):
            raise ValueError("a scale is not positive")
        if not isinstance(self.leaf, Leaf):
            raise ValueError("the leaf has no distribution function (interval_mass), so an interval has no mass")
        self._require_shapes(sizes)

    def _require_shapes(self, sizes: list[int]) -> None:
        pairs = tree(len(sizes))
        if len(self.weights) != len(pairs):
            raise ValueError(f"{len(self.weights)} weight tensors, {len(pairs)} pairs")
        for (left, right), weights in zip(pairs, self.weights, strict=True):
            if tuple(weights.shape[1:]) != (sizes[left], sizes[right]):
                raise ValueError(f"weights of shape {tuple(weights.shape)} over blocks with {sizes[left]} and {sizes[right]} cells")
            sizes.append(len(weights))
        if sizes[-1] != 1:
            raise ValueError("the root has one sum")

    @property
    def dimension(self) -> int:
        return len(self.centroids)

    @cached_property
    def walls(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Lower and upper end of each variable's intervals, each (K_i,)."""
        ends = []
        for c in self.centroids:
            middle = (c[1:] + c[:-1]) / 2
            edge = torch.tensor([math.inf], dtype=torch.float64)
            ends.append((torch.cat([-edge, middle]), torch.cat([middle, edge])))
        return tuple(ends)

    def partition(self) -> float:
        """Z, exactly."""
        return self.mass({}, {})

    def mass(self, fixed: Mapping[int, float], between: Mapping[int, Span]) -> float:
        """f with some variables fixed, some integrated over an interval and the rest over everything; variables count from 0."""
        return float(self.marginal({i: torch.tensor([v], dtype=torch.float64) for i, v in fixed.items()}, between)[0])

    def marginal(self, at: Mapping[int, Tensor], between: Mapping[int, Span]) -> Tensor:
        """f at n places of some variables, integrated over an interval or everything of the others: (n,). at: variable -> (n,)."""
        parts = []
        for i in range(self.dimension):
            if i in at:
                parts.append(self._gated(i, at[i]))
                continue
            start, end = between.get(i, EVERYTHING)
            low, high = (edge.clamp(min=start, max=end) for edge in self.walls[i])
            parts.append(self.leaf.interval_mass(low, high, self.location[i], self.scale[i])[None])
        n = max((len(v) for v in at.values()), default=1)
        return combine([part.expand(n, -1) for part in parts], self.weights)[:, 0]

    def _gated(self, i: int, x: Tensor) -> Tensor:
        """The leaf's density in the interval that holds x and 0 in the others; a wall belongs to the lower interval. x: (n,) -> (n, K_i)."""
        low, high = self.walls[i]
        here = (x[:, None] > low) & (x[:, None] <= high)
        return torch.where(here, torch.exp(self.leaf.log_density(x[:, None], self.location[i], self.scale[i])), 0.0)

    def log_unnormalised(self, x: Any) -> Tensor:
        """log f(x), (n,). x: (n, d). Each variable is scaled by its largest density, so that many small factors do not vanish."""
        points = real("x", x, 2)
        parts, shift = [], torch.zeros(len(points), dtype=torch.float64)
        for i in range(self.dimension):
            low, high = self.walls[i]
            column = points[:, i, None]
            log_p = self.leaf.log_density(column, self.location[i], self.scale[i])
            log_p = torch.where((column > low) & (column <= high), log_p, -math.inf)
            top = log_p.amax(-1)
            safe = torch.where(torch.isfinite(top), top, 0.0)
            shift = shift + safe
            parts.append(torch.exp(log_p - safe[:, None]))
        return torch.log(combine(parts, self.weights)[:, 0]) + shift

    def conditional(self, event: Mapping[int, Span], fixed: Mapping[int, float], between: Mapping[int, Span]) -> float:
        """P(event | fixed values and intervals), exactly. Raises ValueError for evidence of mass 0."""
        whole = self.mass(fixed, between)
        if whole <= 0:
            raise ValueError("the evidence has mass 0")
        both = {i: overlap(event.get(i, EVERYTHING), between.get(i, EVERYTHING)) for i in {*event, *between}}
        return 0.0 if any(a > b for a, b in both.values()) else self.mass(fixed, both) / whole

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """n exact draws, (n, d): cells from the root down by their masses, then the inverse distribution function inside each interval."""
        sizes = self.dimension
        masses = [self.leaf.interval_mass(*self.walls[i], self.location[i], self.scale[i])[None] for i in range(sizes)]
        values = forward(masses, self.weights)
        chosen: dict[int, Tensor] = {len(values) - 1: torch.zeros(n, dtype=torch.int64)}
        for number in reversed(range(len(self.weights))):
            left, right = tree(sizes)[number]
            weights = self.weights[number] * values[left][0][None, :, None] * values[right][0][None, None, :]
            rows = weights.flatten(1)[chosen[sizes + number]]
            picked = torch.multinomial(rows, 1, generator=generator)[:, 0]
            chosen[left], chosen[right] = picked // weights.shape[2], picked % weights.shape[2]
        return torch.stack([self._draw(i, chosen[i], generator) for i in range(sizes)], 1)

    def _draw(self, i: int, cell: Tensor, generator: torch.Generator) -> Tensor:
        location, scale = self.location[i][cell], self.scale[i][cell]
        low, high = (end[cell] for end in self.walls[i])
        below, inside = (self.leaf.interval_mass(torch.full_like(low, -math.inf), low, location, scale), self.leaf.interval_mass(low, high, location, scale))
        share = torch.rand(len(cell), generator=generator, dtype=torch.float64)
        drawn = self.leaf.quantile((below + share * inside).clamp(1e-15, 1 - 1e-15), location, scale)
        return torch.minimum(torch.maximum(drawn, low), high)


def gridded(node: VoronoiSum) -> FactorisedVoronoi:
    """The factorised circuit whose cells are the products of the intervals around each centroid's coordinates, with the same weights and experts.

    Centroids that share a coordinate share its interval and the leaf of the first. Raises ValueError for experts of several components.
    """
    if node.experts.weights.shape[1] != 1:
        raise ValueError("only experts of one component have one leaf a variable")
    d = node.dimension
    columns = [torch.unique(node.centroids[:, i], return_inverse=True) for i in range(d)]
    member = [group for _, group in columns]  # of each expert, in every block
    sizes = [len(values) for values, _ in columns]
    first = [torch.stack([torch.nonzero(group == g)[0, 0] for g in range(len(values))]) for values, group in columns]
    weights = []
    pairs = tree(d)
    experts = torch.arange(len(node.weights))
    for number, (left, right) in enumerate(pairs):
        root = number == len(pairs) - 1
        w = torch.zeros(1 if root else len(experts), sizes[left], sizes[right], dtype=torch.float64)
        unit = torch.zeros_like(experts) if root else experts
        w.index_put_((unit, member[left], member[right]), node.weights if root else torch.ones_like(node.weights), accumulate=True)
        weights.append(w)
        member.append(experts)
        sizes.append(len(w))
    location = [node.experts.location[first[i], 0, i] for i in range(d)]
    scale = [node.experts.scale[first[i], 0, i] for i in range(d)]
    return FactorisedVoronoi([values for values, _ in columns], location, scale, weights, node.experts.leaf)


def tree(d: int) -> list[tuple[int, int]]:
    """A balanced binary tree over d variables: the two blocks of each pair. Blocks 0 to d - 1 are the variables, d + m is pair m.

    >>> tree(4)
    [(0, 1), (2, 3), (4, 5)]
    """
    level, pairs = list(range(d)), []
    while len(level) > 1:
        following = []
        for at in range(0, len(level) - 1, 2):
            pairs.append((level[at], level[at + 1]))
            following.append(d + len(pairs) - 1)
        level = following + level[len(level) - len(level) % 2 :]
    return pairs


def _reduce(parts: Sequence[Tensor], weights: Sequence[Tensor], pair: Callable[[Tensor, Tensor, Tensor], Tensor]) -> list[Tensor]:
    values = list(parts)
    for (left, right), w in zip(tree(len(parts)), weights, strict=True):
        values.append(pair(values[left], values[right], w))
    return values


def forward(parts: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """The value of every block, bottom-up. parts: for each variable (n, K_i) -> (n, units) each."""
    return _reduce(parts, weights, lambda left, right, w: torch.einsum("ni,nj,uij->nu", left, right, w))


def combine(parts: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """The root's value, (n, 1)."""
    return forward(parts, weights)[-1]


def log_combine(parts: Sequence[Tensor], log_weights: Sequence[Tensor]) -> Tensor:
    """The logarithm of the root's value, (n,), for training: from log parts (n, K_i) and log weights."""

    def pair(left: Tensor, right: Tensor, w: Tensor) -> Tensor:
        top_left, top_right = left.detach().amax(-1, keepdim=True), right.detach().amax(-1, keepdim=True)
        value = torch.einsum("ni,nj,uij->nu", torch.exp(left - top_left), torch.exp(right - top_right), torch.exp(w))
        return torch.log(value.clamp(min=1e-300)) + top_left + top_right

    return _reduce(parts, log_weights, pair)[-1][:, 0]
