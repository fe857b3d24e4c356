"""The peers on the same layer: nearest rounding, AdaRound, GPTQ, and GPTQ first with AdaRound after it (card 5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from backends.stla.curvature import damped, layer_loss, quadratic, remaining_metric, upper_factor
from backends.stla.grids import Grid, search_grid
from backends.stla.ordering import Order, column_order
from backends.stla.rounding import Learning, Problem, learn
from backends.stla.sweep import UNWATCHED, Cluster, Quantised, Watch
from backends.stla.tensors import check_bits, check_sizes

LAZY = 128  # columns of a block, at most: errors reach the columns after it in one product


def rtn(
    W: Any,
    H: Any,
    *,
    bits: int = 3,
    group: int | None = 96,
    damping: float = 0.01,
    dtype: torch.dtype = torch.float64,
    watch: Watch = UNWATCHED,
) -> Quantised:
    """Nearest rounding; each group's grid is searched with its own block of H. W: (R, C), H: (C, C). Raises ValueError as ``stla`` does."""
    original, second = damped(W, H, damping)
    fitted = _grids(original, second, bits, group, dtype, watch)
    return _quantised(original, second, fitted.codes(original), fitted, original)


def adaround(
    W: Any,
    H: Any,
    *,
    bits: int = 3,
    group: int | None = 96,
    damping: float = 0.01,
    learning: Learning | None = None,
    grid: Grid | None = None,
    watch: Watch = UNWATCHED,
) -> Quantised:
    """AdaRound of the whole layer at once: the metric is H, the reference the original weights, nothing compensates.

    W: (R, C), H: (C, C). grid: a fixed one in place of the search. Raises ValueError as ``stla`` does.
    """
    original, second = damped(W, H, damping)
    learning = learning or Learning()
    fitted = grid or _grids(original, second, bits, group, learning.dtype, watch)
    return _learned(original, second, fitted, original, learning, watch)


def gptq(
    W: Any,
    H: Any,
    *,
    bits: int = 3,
    group: int | None = 96,
    order: Order = "none",
    damping: float = 0.01,
    grid: Grid | None = None,
    dtype: torch.dtype = torch.float64,
    watch: Watch = UNWATCHED,
) -> Quantised:
    """GPTQ: one column at a time, nearest, its error handed to all columns after it; equals ``stla`` with c = 1 and nearest rounding.

    W: (R, C), H = (2/n) X X^T: (C, C). group: g columns of a row that share scale and zero point, fitted when the first of them is reached; None for whole
    rows. order: act takes the columns of large H_jj first. grid: a fixed one, scale and zero (R, 1). dtype: of the grid search. Raises ValueError as ``stla``.
    """
    original, second = damped(W, H, damping)
    columns = original.shape[1]
    width = columns if group is None else group
    check_sizes(columns, 1, width)
    if grid is None:
        check_bits(bits)
    permutation = column_order(second, 1, order).to(original.device)
    upper = upper_factor(second[permutation][:, permutation])
    # By columns: a column's weights then lie side by side.
    weights = original[:, permutation].T.contiguous()
    at, scale, zero = torch.empty_like(weights), torch.empty_like(weights), torch.empty_like(weights)
    codes = torch.empty_like(weights)
    levels = 2**bits - 1 if grid is None else grid.levels
    block = max(size for size in range(1, min(width, LAZY) + 1) if width % size == 0)
    for start in range(0, columns, block):
        watch.check()
        stop = start + block
        if grid is not None:
            scale[start:stop], zero[start:stop] = grid.scale.to(weights).T, grid.zero.to(weights).T
        elif start % width == 0:
            metric = remaining_metric(upper, start, start + width)
            found = search_grid(weights[start : start + width].T.to(dtype), bits, metric.to(dtype), watch.check)
            scale[start : start + width], zero[start : start + width] = found.scale.to(weights).T, found.zero.to(weights).T
        errors = torch.empty_like(weights[start:stop])
        for column in range(start, stop):
            now = weights[column]
            at[column] = now
            codes[column] = (torch.round(now / scale[column]) + zero[column]).clamp_(0, levels)
            rounded = scale[column] * (codes[column] - zero[column])
            error = (now - rounded) / upper[column, column]
            errors[column - start] = error
            weights[column + 1 : stop].addr_(upper[column, column + 1 : stop], error, alpha=-1)
            weights[column] = rounded
        weights[stop:].addmm_(upper[start:stop, stop:].T, errors, alpha=-1)
    back = torch.argsort(permutation)
    at, scale, zero, codes = (x.T[:, back] for x in (at, scale, zero, codes))
    return replace(_quantised(original, second, codes, Grid(scale, zero, levels), at), order=permutation)


def decoupled(
    W: Any,
    H: Any,
    *,
    bits: int = 3,
    group: int | None = 96,
    order: Order = "act",
    damping: float = 0.01,
    learning: Learning | None = None,
    watch: Watch = UNWATCHED,
) -> Quantised:
    """Compensate first, learn after: GPTQ, then AdaRound of the whole layer from its weights on its grid.

    W: (R, C), H: (C, C). The learning starts at each column's compensated weights and judges by H about the original ones. Raises ValueError as ``stla`` does.
    """
    learning = learning or Learning()
    first = gptq(W, H, bits=bits, group=group, order=order, damping=damping, dtype=learning.dtype, watch=watch)
    original, second = damped(W, H, damping)
    return _learned(original, second, Grid(first.scale, first.zero, 2**bits - 1), first.at, learning, watch)


def _grids(original: torch.Tensor, second: torch.Tensor, bits: int, group: int | None, dtype: torch.dtype, watch: Watch) -> Grid:
    """One grid a group of the original weights, (R, C)."""
    columns = original.shape[1]
    width = columns if group is None else group
    check_sizes(columns, width, width)
    found = []
    for start in range(0, columns, width):
        block = slice(start, start + width)
        found.append(search_grid(original[:, block].to(dtype), bits, second[block, block].to(dtype), watch.check).to(torch.float64))
    scale, zero = (torch.cat([x.expand(-1, width) for x in parts], 1) for parts in zip(*((g.scale, g.zero) for g in found), strict=True))
    return Grid(scale, zero, 2**bits - 1)


def _learned(original: torch.Tensor, second: torch.Tensor, fitted: Grid, begin: torch.Tensor, learning: Learning, watch: Watch) -> Quantised:
    problem = Problem(torch.floor(begin / fitted.scale), fitted, second, original)
    codes = learn(begin, problem, learning, watch.check) if learning.iterations else fitted.codes(begin)
    return _quantised(original, second, codes, fitted, begin)


def _quantised(original: torch.Tensor, second: torch.Tensor, codes: torch.Tensor, fitted: Grid, at: torch.Tensor) -> Quantised:
    weights = fitted.values(codes)
    columns = original.shape[1]
    whole = float(quadratic(weights - original, second).sum())
    scale, zero = (x.expand_as(original) for x in (fitted.scale, fitted.zero))
    clusters = (Cluster(0, columns, whole, whole, whole, whole),)
    return Quantised(weights, codes.to(torch.int16), scale, zero, at, torch.arange(columns), clusters, layer_loss(original, weights, second))
