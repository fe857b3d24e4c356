"""A substrate without a compiler for tests of the search: schedules whose time follows from a formula, and which can fail.

Tiling and layout only pay together, fusion brings the kernel to the DRAM roof, an unroll of 8 does not compile with a tile of 64,
and the reordering "time-first" gives wrong results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from backends.contract import InputError
from backends.kernelband.substrate import STRATEGIES, Built, Candidate, Failure, Profile, Roofline, Timing

FIELDS = dict(zip(STRATEGIES, ("tile", "lanes", "fused", "unroll", "order", "layout"), strict=True))
SPACE: dict[str, tuple[Any, ...]] = {
    "tile": (1, 16, 32, 64),
    "lanes": (1, 4, 8, 16),
    "fused": (False, True),
    "unroll": (1, 2, 4, 8),
    "order": ("ijk", "ikj", "time-first"),
    "layout": ("row", "packed"),
}
FLOPS, BYTES = 4e8, 4e8
PEAK = Roofline(gflops=50.0, dram=20.0, cache=80.0)


@dataclass(frozen=True)
class ToySchedule:
    tile: int = 1
    lanes: int = 1
    fused: bool = False
    unroll: int = 1
    order: str = "ijk"
    layout: str = "row"

    @property
    def ms(self) -> float:
        packed = self.layout == "packed"
        gain = (1 + (self.tile > 1 and packed) * 2) * (self.lanes**0.5 if packed else 1) * (3 if self.fused else 1)
        return max(21.0, 400.0 / gain / (1 + 0.1 * self.unroll) / (2 if self.order == "ikj" else 1))


class ToySubstrate:
    """Counts the calls of its compiler; ``works`` False is a compiler that always fails. noise: relative spread of the times."""

    name: Literal["c"] = "c"
    kernels = ("matmul",)
    can_time = True
    machine = "a formula"

    def __init__(self, *, works: bool = True, noise: float = 0.0, check: Callable[[], None] = lambda: None) -> None:
        self.works, self.noise, self._check = works, noise, check
        self.compiled: list[str] = []
        self.timed: list[str] = []
        self.closed = 0
        self._rng = np.random.default_rng(0)

    def default_size(self, kernel: str) -> int:
        return 384

    def describe(self, kernel: str, size: int) -> str:
        return "void kernel(const float *a, float *out, long n); tolerance 1e-4"

    def naive(self, kernel: str, size: int) -> Candidate:
        if kernel not in self.kernels:
            raise InputError("kernel", f"there is no kernel {kernel!r}", "choose matmul")
        return self.render(kernel, size, ToySchedule())

    def render(self, kernel: str, size: int, schedule: Hashable) -> Candidate:
        source = f"{kernel}({schedule})"
        return Candidate(kernel, size, schedule, source, hashlib.sha256(source.encode()).hexdigest())

    def written(self, kernel: str, size: int, source: str) -> Candidate:
        return Candidate(kernel, size, None, source, hashlib.sha256(source.encode()).hexdigest())

    def edits(self, candidate: Candidate, strategy: int) -> Sequence[Hashable]:
        if not isinstance(candidate.schedule, ToySchedule):
            return ()
        field = FIELDS[STRATEGIES[strategy]]
        return [replace(candidate.schedule, **{field: v}) for v in SPACE[field] if v != getattr(candidate.schedule, field)]

    def space(self, kernel: str) -> Mapping[str, tuple[Any, ...]]:
        return SPACE

    def at(self, kernel: str, values: Mapping[str, Any]) -> Hashable:
        return ToySchedule(**values)

    def values(self, schedule: Hashable) -> Mapping[str, Any]:
        return vars(schedule)

    def compile(self, candidate: Candidate) -> Built | Failure:
        self._check()
        self.compiled.append(candidate.key)
        schedule = candidate.schedule
        if not self.works or (isinstance(schedule, ToySchedule) and (schedule.unroll, schedule.tile) == (8, 64)):
            return Failure("compile-error", "error: registers spilled")
        return Built(candidate, schedule, "no warnings")

    def check(self, built: Built) -> Failure | None:
        wrong = isinstance(built.handle, ToySchedule) and built.handle.order == "time-first"
        return Failure("wrong", "element 0 is 1, not 2") if wrong else None

    def time(self, built: Built, parent_ms: float | None) -> Timing | Failure:
        self.timed.append(built.candidate.key)
        ms = built.handle.ms if isinstance(built.handle, ToySchedule) else 30.0
        return Timing(ms * (1 + self.noise * self._rng.uniform()), 10, self.noise)

    def profile(self, built: Built, timing: Timing) -> Profile:
        schedule = built.handle if isinstance(built.handle, ToySchedule) else ToySchedule()
        moved = BYTES / (1 if schedule.fused else 4)
        h = 100 * np.minimum(1, np.array([FLOPS / 50e6, moved / 20e6, 2 * BYTES / 80e6]) / timing.ms)
        phi = [np.log1p(timing.ms), 4.0 * schedule.unroll, schedule.tile, np.log2(schedule.tile), 100 * schedule.lanes / 16]
        return Profile(np.array(phi), h, FLOPS, BYTES, {"registers": 4 * schedule.unroll})

    def roofline(self) -> Roofline:
        return PEAK

    def close(self) -> None:
        self.closed += 1
