"""What both trainings share: a rate that lands at zero when the time is over, an averaged copy of the weights, whole checkpoints."""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn


@dataclass(slots=True)
class Clock:
    """Time spent in training, over all sittings. minutes: the wall time after which it ends."""

    minutes: float
    wall_s: float = 0.0
    cpu_s: float = 0.0
    step: int = 0

    def __post_init__(self) -> None:
        self._last = (time.perf_counter(), time.process_time())

    _last: tuple[float, float] = (0.0, 0.0)

    def tick(self) -> None:
        """Counts one step and the time since the last."""
        now = (time.perf_counter(), time.process_time())
        self.wall_s += now[0] - self._last[0]
        self.cpu_s += now[1] - self._last[1]
        self._last, self.step = now, self.step + 1

    @property
    def done(self) -> float:
        """Share of the time that is over, 0 to 1."""
        return min(1.0, self.wall_s / (60 * self.minutes))

    def rate(self, peak: float, warm_up: int = 100, decay_from: float = 0.5) -> float:
        """The learning rate: a short warm-up in steps, then the peak, then from ``decay_from`` of the time a straight line to zero.

        Set by the clock and not by a count of steps: the end, where the rate nears zero, matters most for samples and must be reached
        whatever else the machine does.
        """
        return peak * min(1.0, (self.step + 1) / warm_up, (1 - self.done) / (1 - decay_from))


class Average:
    """An exponential moving average of a module's parameters; ``module`` holds it."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module, self.decay = deepcopy(module).requires_grad_(False).eval(), decay

    @torch.no_grad()
    def update(self, module: nn.Module, step: int) -> None:
        """Moves the average towards the module; faster in the first steps, so that the start is soon forgotten."""
        share = 1 - min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.module.parameters()), list(module.parameters()), share)


def save(path: Path, state: dict[str, Any]) -> None:
    """Writes a checkpoint; a crash while writing leaves the former file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    torch.save(state, fresh)
    fresh.replace(path)
