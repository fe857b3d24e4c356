"""Axis-aligned boxes against Voronoi cells: does a box lie inside its owner's cell, and how much of the owner's density does it hold?

M boxes, K cells, d variables, C components of an expert. Cell k is {x: normals[k, j] . x + offsets[k, j] <= 0 for all j}; its expert is a
mixture of C factorised normals. The plain form holds M x K x d products in memory; here one pass writes a class and a mass a box. In
float64 the classes and masses carry a certificate; in float32 they are right to 1e-6.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch

from kernels import use_triton
from kernels.launching import next_power_of_two, require_no_gradient

INSIDE, STRADDLING, OUTSIDE = 1, 0, -1
TIE = 4.0  # roundings of the half-space sum within which a face counts as touching the wall
TILE = 512  # entries (boxes x cells) of one program's tile: two float64 sums fit the registers
WARPS = 4


class Weighed(NamedTuple):
    """kind: (M,) int8, one of INSIDE, STRADDLING, OUTSIDE. mass: (M,) integral of the owner's density over the box."""

    kind: torch.Tensor
    mass: torch.Tensor


def reference(
    low: torch.Tensor,
    high: torch.Tensor,
    owner: torch.Tensor,
    normals: torch.Tensor,
    offsets: torch.Tensor,
    weights: torch.Tensor,
    mean: torch.Tensor,
    sd: torch.Tensor,
) -> Weighed:
    """Class and mass of each box.

    low, high: (M, d), infinite ends allowed. owner: (M,) int64. normals: (K, K, d), offsets: (K, K). weights: (K, C), mean, sd: (K, C, d).

    >>> plane = torch.zeros(1, 1, 1), -torch.ones(1, 1)
    >>> normal = torch.ones(1, 1), torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
    >>> reference(torch.zeros(1, 1), torch.full((1, 1), torch.inf), torch.zeros(1, dtype=torch.int64), *plane, *normal)
    Weighed(kind=tensor([1], dtype=torch.int8), mass=tensor([0.5000]))
    """
    _check(low, high, owner, normals, offsets, weights, mean, sd)
    inside = interval_mass(low[:, None], high[:, None], mean[owner], sd[owner]).prod(-1)
    return Weighed(classes(low, high, owner, normals, offsets), (weights[owner] * inside).sum(-1))


def classes(low: torch.Tensor, high: torch.Tensor, owner: torch.Tensor, normals: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """(M,) int8: INSIDE where the largest value of every half-space is <= 0, OUTSIDE where the smallest of some is >= 0."""
    a, b = normals[owner], offsets[owner]
    low, high, zero = low[:, None], high[:, None], torch.zeros((), dtype=low.dtype, device=low.device)
    largest = torch.where(a > 0, a * high, torch.where(a < 0, a * low, zero))  # 0 * inf := 0
    smallest = torch.where(a > 0, a * low, torch.where(a < 0, a * high, zero))
    inside = (largest.sum(-1) + b <= _tie(largest, b)).all(-1)
    outside = (smallest.sum(-1) + b >= -_tie(smallest, b)).any(-1)
    return inside.to(torch.int8) - (outside & ~inside).to(torch.int8)


def _tie(terms: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """What rounding may add to the sum of a half-space: a corner on two walls must not count as beyond a third one through it."""
    size = torch.where(torch.isfinite(terms), terms.abs(), torch.zeros_like(terms)).sum(-1) + offset.abs()
    return TIE * torch.finfo(terms.dtype).eps * size


def interval_mass(low: torch.Tensor, high: torch.Tensor, mean: torch.Tensor, sd: torch.Tensor) -> torch.Tensor:
    """Mass of N(mean, sd^2) between low and high, all broadcast; on the right side by the survival function, which keeps the digits of far tails."""
    a, b = (low - mean) / sd, (high - mean) / sd
    flip = a + b > 0
    return torch.special.ndtr(torch.where(flip, -a, b)) - torch.special.ndtr(torch.where(flip, -b, a))


def op(
    low: torch.Tensor,
    high: torch.Tensor,
    owner: torch.Tensor,
    normals: torch.Tensor,
    offsets: torch.Tensor,
    weights: torch.Tensor,
    mean: torch.Tensor,
    sd: torch.Tensor,
) -> Weighed:
    """As ``reference``; on a CUDA device by one fused pass. Raises ValueError for shapes or types that do not fit together."""
    given = (low, high, owner, normals, offsets, weights, mean, sd)
    return launch(*given) if use_triton(low) else reference(*given)


def _check(*given: torch.Tensor) -> None:
    low, high, owner, normals, offsets, weights, mean, sd = given
    (boxes, d), (cells, components) = low.shape, weights.shape
    wanted = ((boxes, d), (boxes,), (cells, cells, d), (cells, cells), (cells, components), (cells, components, d), (cells, components, d))
    if tuple(tuple(x.shape) for x in given[1:]) != wanted:
        raise ValueError(f"shapes {[tuple(x.shape) for x in given]} do not fit together")
    if owner.dtype != torch.int64 or any(x.dtype != low.dtype for x in (high, normals, offsets, weights, mean, sd)):
        raise ValueError("owner is int64, all else of one floating type")


@cache
def triton_kernels() -> tuple[Any]:
    """The kernel, made on first use: Triton is imported only where a kernel is."""
    import triton
    import triton.language as tl

    @triton.jit
    def weigh(
        low_ptr, high_ptr, owner_ptr, normals_ptr, offsets_ptr, weights_ptr, mean_ptr, sd_ptr, kind_ptr, mass_ptr, boxes, cells, components, tie,
        D: tl.constexpr, BOXES: tl.constexpr, CELLS: tl.constexpr, COMPONENTS: tl.constexpr,
    ):  # fmt: skip
        # One program: BOXES boxes against all cells. Sums over the variables stay in registers.
        box = tl.program_id(0) * BOXES + tl.arange(0, BOXES)
        here = box < boxes
        owner = tl.load(owner_ptr + box, mask=here, other=0)
        cell = tl.arange(0, CELLS)
        part = tl.arange(0, COMPONENTS)
        wall_mask = here[:, None] & (cell < cells)[None, :]
        part_mask = here[:, None] & (part < components)[None, :]
        wall_at = owner[:, None] * cells + cell[None, :]
        part_at = owner[:, None] * components + part[None, :]
        largest = tl.load(offsets_ptr + wall_at, mask=wall_mask, other=-1.0)
        smallest = largest
        above = tl.abs(largest)
        below = above
        mass = tl.load(weights_ptr + part_at, mask=part_mask, other=0.0)
        for i in tl.static_range(D):
            low = tl.load(low_ptr + box.to(tl.int64) * D + i, mask=here, other=0.0)[:, None]
            high = tl.load(high_ptr + box.to(tl.int64) * D + i, mask=here, other=0.0)[:, None]
            a = tl.load(normals_ptr + wall_at * D + i, mask=wall_mask, other=0.0)
            top = tl.where(a > 0, a * high, tl.where(a < 0, a * low, 0.0))
            bottom = tl.where(a > 0, a * low, tl.where(a < 0, a * high, 0.0))
            largest += top
            smallest += bottom
            above += tl.where(tl.abs(top) < float("inf"), tl.abs(top), 0.0)
            below += tl.where(tl.abs(bottom) < float("inf"), tl.abs(bottom), 0.0)
            mean = tl.load(mean_ptr + part_at * D + i, mask=part_mask, other=0.0)
            scale = 0.7071067811865476 / tl.load(sd_ptr + part_at * D + i, mask=part_mask, other=1.0)
            mass *= 0.5 * (tl.erf((high - mean) * scale) - tl.erf((low - mean) * scale))
        inside = tl.max(largest - tie * above, 1) <= 0
        outside = tl.max(smallest + tie * below, 1) >= 0
        kind = tl.where(inside, 1, tl.where(outside, -1, 0))
        tl.store(kind_ptr + box, kind.to(tl.int8), mask=here)
        tl.store(mass_ptr + box, tl.sum(mass, 1), mask=here)

    return (weigh,)


def tile(d: int, cells: int, components: int) -> dict[str, int]:
    """Sizes of a program's tile: more cells leave room for fewer boxes in the same registers."""
    width = next_power_of_two(max(cells, 2))
    return {"D": d, "BOXES": max(4, TILE // width), "CELLS": width, "COMPONENTS": next_power_of_two(components)}


def launch(
    low: torch.Tensor,
    high: torch.Tensor,
    owner: torch.Tensor,
    normals: torch.Tensor,
    offsets: torch.Tensor,
    weights: torch.Tensor,
    mean: torch.Tensor,
    sd: torch.Tensor,
) -> Weighed:
    """The Triton kernel; shapes as ``reference``."""
    given = (low, high, owner, normals, offsets, weights, mean, sd)
    _check(*given)
    require_no_gradient("voronoi_boxes", *given)
    (boxes, d), (cells, components) = low.shape, weights.shape
    found = Weighed(torch.empty(boxes, dtype=torch.int8, device=low.device), torch.empty_like(low[:, 0]))
    if boxes:
        sizes = tile(d, cells, components)
        tie = TIE * torch.finfo(low.dtype).eps
        grid = (-(-boxes // sizes["BOXES"]),)
        triton_kernels()[0][grid](*(x.contiguous() for x in given), *found, boxes, cells, components, tie, **sizes, num_warps=WARPS)
    return found
