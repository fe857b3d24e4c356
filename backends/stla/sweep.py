"""The sweep over clusters of columns: fit the grid, round, let all that is still open compensate, go on (card 4.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from backends.stla.curvature import damped, layer_loss, lookahead, quadratic, remaining_metric, upper_factor
from backends.stla.grids import Grid, search_grid
from backends.stla.ordering import Order, column_order
from backends.stla.rounding import Learning, Problem, Step, learn
from backends.stla.tensors import check_bits, check_sizes, matrix

Objective = Literal["global", "local", "nearest"]
OBJECTIVES = ("global", "local", "nearest")
DRIFT_SHARE = 0.25  # of the drift of the inputs that is corrected (card 4.4)
Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster that has been rounded; errors are sums over rows. start, stop: its columns in the order of quantisation.

    local: tr[e H_KK e^T] with e = Q - W0, the error as seen locally. remaining: tr[d S_K d^T] with d = Q - W_K, what remains after all later
    columns have compensated. local_nearest, remaining_nearest: of nearest rounding of the same W_K on the same grid.
    """

    start: int
    stop: int
    local: float
    remaining: float
    local_nearest: float
    remaining_nearest: float


@dataclass(frozen=True, slots=True)
class Progress:
    """The sweep so far, columns in the order of quantisation. weights: Q for columns that are done, compensated W after; scale: (R, C), NaN ahead.

    step: the newest iteration of the cluster that is being learned, None when it has just been closed.
    """

    weights: torch.Tensor
    original: torch.Tensor
    scale: torch.Tensor
    order: torch.Tensor
    clusters: tuple[Cluster, ...]
    step: Step | None


@dataclass(frozen=True, slots=True)
class Quantised:
    """A quantised layer, columns as they came. All float64 but ``codes`` and ``order``.

    weights: Q, (R, C). codes: 0 to 2^b - 1, (R, C) of int16. scale, zero: of each entry's group, (R, C); Q = scale (codes - zero). at: each column as it
    was when it was rounded, W_K, (R, C). order: (C,), the column that came first, second, ... clusters: in that order. loss: L(Q) on the
    damped H, dead columns cleared.
    """

    weights: torch.Tensor
    codes: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor
    at: torch.Tensor
    order: torch.Tensor
    clusters: tuple[Cluster, ...]
    loss: float


@dataclass(frozen=True, slots=True)
class Watch:
    """check: called several times in each half second, may raise. progress: sees each iteration and each closed cluster."""

    check: Check = lambda: None
    progress: Callable[[Progress], None] | None = None


UNWATCHED = Watch()


def stla(
    W: Any,
    H: Any,
    *,
    bits: int = 3,
    cluster: int = 96,
    group: int | None = 96,
    order: Order = "spin",
    objective: Objective = "global",
    learning: Learning | None = None,
    damping: float = 0.01,
    drift: Any = None,
    grid: Grid | None = None,
    watch: Watch = UNWATCHED,
) -> Quantised:
    """Rounds a linear layer cluster by cluster on the error that will remain (card 4.1 to 4.5).

    W: (R, C), rows are outputs. H: (2/n) X X^T of its inputs, (C, C). cluster: c columns that are decided together. group: g columns of a row that share
    scale and zero point, None for whole rows. objective: global, the look-ahead S_K about W_K; local, H_KK about the original weights; nearest,
    no learning. learning: ``Learning()`` without one. damping: relative, added to the diagonal of H. drift: (2/n) (X_fp - X) X^T, (C, C), for the
    asymmetric correction. grid: a fixed one in place of the search, its scale and zero (R, 1), for every column. Raises ValueError: sizes that do not
    divide, bits outside 2 to 8, H not positive definite, numbers that are not finite.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"there is no objective {objective!r}; choose one of {', '.join(OBJECTIVES)}")
    original, second = damped(W, H, damping)
    columns = original.shape[1]
    width = columns if group is None else group
    check_sizes(columns, cluster, width)
    if grid is None:
        check_bits(bits)
    permutation = column_order(second, cluster, order).to(original.device)
    moved = matrix(drift, "drift").to(original.device)[permutation][:, permutation] if drift is not None else None
    sweep = _Sweep(original[:, permutation], second[permutation][:, permutation], moved, permutation, watch)
    for start in range(0, columns, cluster):
        sweep.close(start, min(start + cluster, columns), width, bits, objective, learning or Learning(), grid)
    return sweep.finished(original, second)


class _Sweep:
    """Permuted weights on their way; ``weights`` holds Q left of the current cluster and compensated weights right of it."""

    def __init__(self, original: torch.Tensor, second: torch.Tensor, drift: torch.Tensor | None, order: torch.Tensor, watch: Watch) -> None:
        self.original, self.second, self.order, self.watch = original, second, order, watch
        self.upper = upper_factor(second)
        self.weights, self.at = original.clone(), original.clone()
        self.codes = torch.zeros_like(original)
        self.scale = torch.full_like(original, torch.nan)
        self.zero = torch.zeros_like(original)
        self.clusters: list[Cluster] = []
        self.drift = None if drift is None else DRIFT_SHARE * torch.triu(drift @ self.upper.T, 1) @ self.upper  # P of GPTAQ

    def close(self, start: int, stop: int, width: int, bits: int, objective: Objective, learning: Learning, grid: Grid | None) -> None:
        """Rounds the columns from start to stop and hands their error on."""
        here, after = slice(start, stop), slice(stop, self.weights.shape[1])
        self.watch.check()
        self._fit(start, stop, width, bits, grid, learning.dtype)
        levels = 2**bits - 1 if grid is None else grid.levels
        fitted = Grid(self.scale[:, here], self.zero[:, here], levels)
        if stop - start <= width:  # one group: a column of scales is enough
            fitted = Grid(fitted.scale[:, :1], fitted.zero[:, :1], levels)
        weights, original = self.weights[:, here].clone(), self.original[:, here]
        metric, seen = remaining_metric(self.upper, start, stop), self.second[here, here]
        correction = weights @ self.drift[here, here] if self.drift is not None else torch.zeros_like(weights)
        plain = fitted.codes(weights)
        codes = plain
        if objective != "nearest" and learning.iterations:
            goal = (metric, weights + correction) if objective == "global" else (seen, original)
            problem = Problem(torch.floor(weights / fitted.scale), fitted, *goal)
            codes = learn(weights, problem, learning, self.watch.check, self._step if self.watch.progress else None)
        rounded, nearest = fitted.values(codes), fitted.values(plain)
        self.at[:, here], self.codes[:, here], self.weights[:, here] = weights, codes, rounded
        self.clusters.append(
            Cluster(
                start,
                stop,
                *(float(quadratic(x - y, m).sum()) for x, y, m in ((rounded, original, seen), (rounded, weights, metric))),
                *(float(quadratic(x - y, m).sum()) for x, y, m in ((nearest, original, seen), (nearest, weights, metric))),
            )
        )
        # E = D U_KK^-1; everything that is still open moves to where the error is least.
        error = torch.linalg.solve_triangular(self.upper[here, here], weights - rounded, upper=True, left=False)
        self.weights[:, after] -= error @ self.upper[here, after]
        if self.drift is not None:
            self.weights[:, after] += weights @ self.drift[here, after]
        self._step(None)

    def _fit(self, start: int, stop: int, width: int, bits: int, grid: Grid | None, dtype: torch.dtype) -> None:
        """Scales of the groups that begin in this cluster, from weights as they are now."""
        if grid is not None:
            self.scale[:, start:stop], self.zero[:, start:stop] = grid.scale.to(self.scale), grid.zero.to(self.zero)
            return
        for first in range(start + (-start) % width, stop, width):
            group = slice(first, first + width)
            metric = remaining_metric(self.upper, first, first + width)
            found = search_grid(self.weights[:, group].to(dtype), bits, metric.to(dtype), self.watch.check)
            self.scale[:, group], self.zero[:, group] = found.scale.to(self.scale), found.zero.to(self.zero)

    def _step(self, step: Step | None) -> None:
        if self.watch.progress is not None:
            self.watch.progress(Progress(self.weights, self.original, self.scale, self.order, tuple(self.clusters), step))

    def finished(self, original: torch.Tensor, second: torch.Tensor) -> Quantised:
        """Everything back in the order of the columns as they came."""
        back = torch.argsort(self.order)
        weights, at, scale, zero, codes = (x[:, back] for x in (self.weights, self.at, self.scale, self.zero, self.codes))
        return Quantised(weights, codes.to(torch.int16), scale, zero, at, self.order, tuple(self.clusters), layer_loss(original, weights, second))


def telescope(at: Any, quantised: Any, second: Any, cluster: int, order: Any = None) -> torch.Tensor:
    """The terms of L(Q) = sum_K tr[(W_K - Q_K) S_K (W_K - Q_K)^T], one a cluster, in the order of quantisation (card 6).

    at: W_K, each column as it was when it was rounded, (R, C). quantised: Q, (R, C). second: H with its damping, (C, C). cluster: c columns. order: the column
    that came first, second, ...; as they stand without one. Each S_K is the Schur complement, computed by its formula (``lookahead``). The sum is exact for any
    rounding as long as the rest compensates optimally. Raises ValueError where shapes do not fit.
    """
    weights, final = matrix(at, "the weights"), matrix(quantised, "Q")
    if weights.shape != final.shape or cluster < 1:
        raise ValueError(f"weights of shape {tuple(weights.shape)}, Q of {tuple(final.shape)} and clusters of {cluster} columns do not fit")
    columns = weights.shape[1]
    chosen = torch.arange(columns) if order is None else torch.as_tensor(order).cpu()
    if sorted(chosen.tolist()) != list(range(columns)):
        raise ValueError("the order does not name each column once")
    metric = matrix(second, "H").cpu()[chosen][:, chosen]
    error = (weights - final).cpu()[:, chosen]
    ends = [(start, min(start + cluster, columns)) for start in range(0, columns, cluster)]
    return torch.stack([quadratic(error[:, a:b], lookahead(metric, a, b)).sum() for a, b in ends])
