"""Deep circuits with Voronoi nodes inside: leaves, products and sums pass intervals up (section 4.2 of the card, last point).

The tree is small; each node is evaluated once a query. A Voronoi node takes the query's box as its start and returns its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backends.voronoi_pc.experts import real, simplex
from backends.voronoi_pc.leaves import NORMAL, Leaf
from backends.voronoi_pc.refinement import Refinement
from backends.voronoi_pc.voronoi_sum import VoronoiSum

Interval = tuple[float, float]


@dataclass(frozen=True)
class LeafNode:
    """A density of one variable (from 0)."""

    variable: int
    location: float
    scale: float
    leaf: Leaf = NORMAL

    def __post_init__(self) -> None:
        if not isinstance(self.leaf, Leaf):
            raise ValueError("the leaf has no distribution function (interval_mass), so a box has no mass")
        if not self.scale > 0:
            raise ValueError("a scale is not positive")

    @property
    def scope(self) -> frozenset[int]:
        return frozenset({self.variable})


@dataclass(frozen=True)
class Voronoi:
    """A Voronoi sum over these variables of the circuit, in the order of its columns."""

    node: VoronoiSum
    variables: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(set(self.variables)) != self.node.dimension or len(self.variables) != self.node.dimension:
            raise ValueError(f"the sum has {self.node.dimension} variables, {self.variables} are named")

    @property
    def scope(self) -> frozenset[int]:
        return frozenset(self.variables)


@dataclass(frozen=True)
class Product:
    """A product of circuits whose scopes are disjoint (decomposable)."""

    children: Sequence[Node]

    def __post_init__(self) -> None:
        scopes = [child.scope for child in self.children]
        if not scopes or sum(map(len, scopes)) != len(frozenset().union(*scopes)):
            raise ValueError("the factors of a product must share no variable")

    @property
    def scope(self) -> frozenset[int]:
        return frozenset().union(*(child.scope for child in self.children))


@dataclass(frozen=True)
class Sum:
    """A weighted sum of circuits of one scope (smooth). weights: on the simplex."""

    weights: Tensor
    children: Sequence[Node]

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", simplex("the weights of a sum", real("weights", self.weights, 1)))
        if len(self.weights) != len(self.children) or len({child.scope for child in self.children}) != 1:
            raise ValueError("a sum needs one weight a child, and children of one scope")

    @property
    def scope(self) -> frozenset[int]:
        return self.children[0].scope


Node = LeafNode | Product | Sum | Voronoi


def mass_interval(node: Node, low: Any, high: Any, splits: int) -> Interval:
    """Bounds of the integral of the circuit over a box; every Voronoi node inside makes at most ``splits`` splits.

    low, high: (d,) over all variables of the circuit, infinite ends allowed.
    """
    start, end = (torch.as_tensor(x, dtype=torch.float64) for x in (low, high))
    if isinstance(node, LeafNode):
        at = [torch.tensor(float(v), dtype=torch.float64) for v in (start[node.variable], end[node.variable], node.location, node.scale)]
        mass = float(node.leaf.interval_mass(*at))
        return mass, mass
    if isinstance(node, Voronoi):
        columns = list(node.variables)
        made = Refinement(node.node.region(), (start[columns], end[columns]))
        for _ in made.run(splits):
            pass
        return made.lower, made.upper
    bounds = [mass_interval(child, start, end, splits) for child in node.children]
    if isinstance(node, Product):
        return math.prod(b[0] for b in bounds), math.prod(b[1] for b in bounds)
    weights = node.weights.tolist()
    return sum(w * b[0] for w, b in zip(weights, bounds, strict=True)), sum(w * b[1] for w, b in zip(weights, bounds, strict=True))
