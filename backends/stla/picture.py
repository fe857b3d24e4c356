"""What the pictures need of a sweep, small enough for a frame: the error matrix, the clusters, the cluster that is being learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from backends.stla.block import Setting
from backends.stla.curvature import damped, quadratic
from backends.stla.grids import full_range
from backends.stla.ordering import column_order
from backends.stla.rounding import Step
from backends.stla.sweep import Cluster, Progress

Array = np.ndarray
CELLS = 56_000  # of the matrix that is drawn, about
MAP_SIDE = 96  # of the pictures of H
PER_STEP = 50  # int8 units of one step of the grid
SOFT_EDGES = np.linspace(0, 1, 21)


def clusters(found: Sequence[Cluster]) -> dict[str, Array]:
    """Errors of each closed cluster, (k,) each."""
    names = ("start", "stop", "local", "remaining", "local_nearest", "remaining_nearest")
    return {name: np.array([getattr(c, name) for c in found], float) for name in names}


class Recorder:
    """Turns the progress of one sweep into frame data. weights: W, (R, C). second: H as the sweep has it, (C, C), or None where the loss is not followed."""

    def __init__(self, weights: torch.Tensor, second: torch.Tensor | None, setting: Setting) -> None:
        self.second, self.learning = second, setting.learning
        rows, columns = weights.shape
        grouped = weights.reshape(-1, setting.group or columns)
        # The step of columns that are still open: no grid is fitted for them yet.
        self.open_scale = full_range(grouped, setting.bits).scale.expand_as(grouped).reshape(rows, columns)
        self.rows = torch.arange(0, rows, max(1, round(rows * columns / CELLS)))
        self.curve: dict[str, list[float]] = {"iteration": [], "recon": [], "penalty": []}
        self.soft = np.zeros(len(SOFT_EDGES) - 1, int)
        self.predicted: list[float] = []
        self.measured: list[float] = []

    def note(self, progress: Progress) -> None:
        """Takes in one step; cheap, so that every step can be noted."""
        if progress.step is None:
            self._closed(progress)
        else:
            self._learned(progress.step)

    def _learned(self, step: Step) -> None:
        if step.iteration == 0:
            self.curve = {name: [] for name in self.curve}
        self.curve["iteration"].append(step.iteration)
        self.curve["recon"].append(step.recon)
        self.curve["penalty"].append(self.learning.regulariser * step.penalty)
        self.soft = np.histogram(step.soft.cpu().numpy(), SOFT_EDGES)[0]

    def _closed(self, progress: Progress) -> None:
        """The loss of weights as they stand, all later columns compensated, beside the sum of what the clusters left."""
        self.predicted.append(sum(c.remaining for c in progress.clusters))
        if self.second is None:
            return
        moved = (progress.weights - progress.original)[:, torch.argsort(progress.order)]
        self.measured.append(float(quadratic(moved, self.second).sum()))

    def data(self, progress: Progress) -> dict[str, Any]:
        """Everything the pictures of the sweep show now."""
        scale = torch.where(torch.isnan(progress.scale), self.open_scale[:, progress.order], progress.scale)
        error = ((progress.weights - progress.original) / scale)[self.rows]
        done = progress.clusters[-1].stop if progress.clusters else 0
        return {
            "heat": {
                "error": (error * PER_STEP).round().clamp(-127, 127).to(torch.int8).cpu().numpy(),
                "rows": self.rows.numpy(),
                "done": done,
                "columns": scale.shape[1],
            },
            "clusters": clusters(progress.clusters),
            "cumulative": {"predicted": np.array(self.predicted), "measured": np.array(self.measured)},
            "learning": {
                **{name: np.array(values) for name, values in self.curve.items()},
                "soft": self.soft,
                "edges": SOFT_EDGES,
                "cluster": len(progress.clusters) - (1 if progress.step is None else 0),
            },
        }


def orders(weights: torch.Tensor, second: torch.Tensor, cluster: int, order: Any, damping: float) -> dict[str, Any]:
    """|H| with unit diagonal before and after the order, the largest entry of each block of columns, in percent."""
    _, found = damped(weights, second, damping)
    size = found.diagonal().sqrt()
    shares = (found / size / size[:, None]).abs()
    after = column_order(found, cluster, order).to(shares.device)
    side = -(-len(shares) // MAP_SIDE)
    shares.fill_diagonal_(0)
    pooled = [torch.nn.functional.max_pool2d(m[None, None], side, ceil_mode=True)[0, 0] for m in (shares, shares[after][:, after])]
    before, placed = ((100 * m).round().to(torch.uint8).cpu().numpy() for m in pooled)
    return {"before": before, "after": placed, "side": side, "cluster": cluster, "columns": len(shares), "order": order}
