"""The bandit's view of Triton: the lab's own kernels as candidates, measured on a GPU, compiled ahead of time without one.

Without a GPU a candidate is compiled for three architectures and its values are checked in Triton's interpreter; it has no time, and none is made up.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
import psutil

from backends.contract import InputError
from backends.kernelband.substrate import Built, Candidate, Failure, Profile, Roofline, Timing
from backends.kernelband.triton_substrate import guard, rendering, schedules
from backends.kernelband.triton_substrate.process import Worker
from backends.kernelband.triton_substrate.schedules import Schedule
from backends.kernelband.triton_substrate.workloads import WORKLOADS, Workload
from backends.runtime import device
from kernels.ahead_of_time import ARCHITECTURES, Compiled

STATIC_TARGETS = (80, 89, 90)
COMPILE_S = 30.0  # an architecture; tiles of 256 x 256 in fp32 would take minutes
RUN_S, PEAKS_S = 120.0, 60.0
MEMORY_SHARE = 0.5
COPIES = 4  # of the buffers in float32: the candidate's own, and those of the reference in float64
NO_GPU = InputError("substrate", "there is no GPU here, so that Triton kernels can be compiled and checked but not timed", "choose the substrate c")

_rooflines: dict[str, Roofline] = {}  # by machine; measured once a process


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """The GPU as its worker sees it. capability: 90 for sm_90. memory: bytes."""

    name: str
    capability: int
    memory: int


class TritonSubstrate:
    """Triton candidates. threads is not used: the work is on the device. check: the run's ``context.check``."""

    name: Literal["c", "triton"] = "triton"
    kernels: tuple[str, ...] = tuple(WORKLOADS)

    def __init__(self, threads: int, check: Callable[[], None]) -> None:
        self.can_time = device.default().startswith("cuda")
        self._compiler = Worker(check)
        self._interpreter = Worker(check, interpret=True)

    @cached_property
    def machine(self) -> str:
        """The device and the compiler in words."""
        version = f"Triton {importlib.metadata.version('triton')}"
        if self.can_time:
            return f"{self._device.name}, {version}"
        return f"no GPU; {version} compiles for {', '.join(f'sm_{target}' for target in STATIC_TARGETS)}, its interpreter checks"

    @cached_property
    def _device(self) -> Device:
        found = self._compiler.ask(RUN_S, do="device", device=device.default())
        if isinstance(found, Failure):
            raise InputError("substrate", f"the GPU does not answer ({found.text[:200]})", "choose the substrate c")
        if found["capability"] not in ARCHITECTURES:
            raise InputError("substrate", f"the limits of sm_{found['capability']} are not known here", "choose the substrate c")
        return Device(**found)

    def default_size(self, kernel: str) -> int:
        """Rows of a matrix, side of a square, length of a text."""
        return _workload(kernel).default_size

    def describe(self, kernel: str, size: int) -> str:
        """Task, signature, launch and tolerance in words, for the prompt of a model and for the page."""
        workload = _workload(kernel)
        shapes = ", ".join(f"{name} {' x '.join(map(str, shape))}" for name, shape in workload.shapes(*workload.extents(size)).items())
        return (
            f"{workload.task}; {shapes}, float32. The text is a Python module: import triton, import triton.language as tl, the dict "
            f"{rendering.SCHEDULE_NAME} of the parent with the same names, and functions under @triton.jit, nothing else. "
            f"It must define {workload.signature}. The grid, warps, stages, storage and layout follow from {rendering.SCHEDULE_NAME}; other constants "
            "stand in the text. Sizes are run-time arguments and need not be multiples of a tile. Checked against float64 at 1e-4, absolute and relative."
        )

    def naive(self, kernel: str, size: int) -> Candidate:
        """k0: small tiles, one warp, every pass on its own. Raises InputError for an unknown kernel and a size that does not fit the memory."""
        workload = _workload(kernel)
        extents = workload.extents(size)
        needed = COPIES * workload.compulsory_bytes(extents, "float32")
        if kernel == "attention":
            needed += 16.0 * extents[0] * extents[1] * extents[2] ** 2  # the reference holds the weights, twice, in float64
        available = self._device.memory if self.can_time else psutil.virtual_memory().total
        if needed > MEMORY_SHARE * available:
            needs = f"{kernel} at {size} needs {needed / 1e6:,.0f} MB, more than half of the {available / 1e6:,.0f} MB here"
            raise InputError("size", needs, "choose a smaller size")
        return self.render(kernel, size, workload.naive)

    def render(self, kernel: str, size: int, schedule: Hashable) -> Candidate:
        """The program of a schedule; a schedule that cannot be right still has a text, which the compiler then refuses."""
        workload, chosen = _workload(kernel), cast(Schedule, schedule)
        extents = workload.extents(size)
        chosen = schedules.canonical(chosen, extents[-1])
        try:
            calls, note = workload.calls(*workload.placeholders(extents, chosen), chosen.tuning), ""
        except ValueError as error:
            calls, note = [], str(error)
        return _candidate(kernel, size, chosen, rendering.text(workload.module, calls, chosen.values(), note))

    def written(self, kernel: str, size: int, source: str) -> Candidate:
        """A candidate of text that a model or a person wrote."""
        _workload(kernel)
        return _candidate(kernel, size, None, source)

    def edits(self, candidate: Candidate, strategy: int) -> Sequence[Schedule]:
        """Every schedule one edit away; of written text that cannot be read, none."""
        workload = _workload(candidate.kernel)
        parent = _schedule(workload, candidate)
        return [] if isinstance(parent, Failure) else schedules.edits(parent, workload.space[strategy])

    def space(self, kernel: str) -> Mapping[str, tuple[Any, ...]]:
        """All fields and their values."""
        return {name: values for choices in _workload(kernel).space for name, values in choices.items()}

    def at(self, kernel: str, values: Mapping[str, Any]) -> Schedule:
        """The schedule with these values."""
        return schedules.of(_workload(kernel).tuning, values)

    def values(self, schedule: Hashable) -> Mapping[str, Any]:
        """The values of a schedule."""
        return cast(Schedule, schedule).values()

    def compile(self, candidate: Candidate) -> Built | Failure:
        """Ahead of time for this GPU, or for the three architectures; Failure also where a launch would fail on all of them.

        The log holds a line a kernel and architecture, then the PTX of the main kernel for the newest architecture.
        """
        schedule = _schedule(_workload(candidate.kernel), candidate)
        if isinstance(schedule, Failure):
            return schedule
        began = time.perf_counter()
        targets = [self._device.capability] if self.can_time else list(STATIC_TARGETS)
        found = self._ask(self._compiler, COMPILE_S * len(targets), "compile", candidate, capabilities=targets)
        if isinstance(found, Failure):
            return found
        built = tuple((row["kernel"], Compiled(**row["compiled"])) for row in found)
        log = "\n".join(_line(kernel, compiled) for kernel, compiled in built)
        if not any(all(c.misfit() is None for _, c in built if c.capability == target) for target in targets):
            return Failure("compile-error", log)
        ptx = [c.ptx for kernel, c in built if kernel == built[0][0]][-1]
        return Built(candidate, built, f"{log}\n\n{ptx}", time.perf_counter() - began)

    def check(self, built: Built) -> Failure | None:
        """None when the output is right on every input set: on the GPU, else in Triton's interpreter."""
        found = self._ask(self._compiler if self.can_time else self._interpreter, RUN_S, "check", built.candidate)
        return found if isinstance(found, Failure) else None

    def time(self, built: Built, parent_ms: float | None) -> Timing | Failure:
        """Median of do_bench (100 ms of warm-up, 1000 ms of runs, cold L2). Raises InputError without a GPU."""
        if not self.can_time:
            raise NO_GPU
        found = self._ask(self._compiler, RUN_S, "time", built.candidate, parent_ms=parent_ms)
        return found if isinstance(found, Failure) else Timing(**found)

    def profile(self, built: Built, timing: Timing | None) -> Profile:
        """phi: [ln(1 + ms), registers, shared kB, log2 threads, occupancy %] of the main kernel. h: roofline bounds, not hardware counters.

        timing None: what the compiler alone tells, for each architecture; phi begins with 0 and h is NaN.
        """
        workload, schedule = _workload(built.candidate.kernel), _schedule(_workload(built.candidate.kernel), built.candidate)
        assert isinstance(schedule, Schedule)
        extents = workload.extents(built.candidate.size)
        mains: list[Compiled] = [c for kernel, c in built.handle if kernel == built.handle[0][0]]
        widest = mains[-1]
        phi = np.array([0.0, widest.registers, widest.shared / 1024, math.log2(32 * widest.warps), widest.occupancy()])
        flops, least = workload.flops(*extents), workload.compulsory_bytes(extents, schedule.storage)
        facts = {f"sm_{c.capability} {name}": value for c in mains for name, value in _facts(c).items()}
        if timing is None:
            return Profile(phi, np.full(3, np.nan), flops, least, facts)
        phi[0] = math.log1p(timing.ms)
        roofline = self.roofline()
        touched = workload.touched(*extents, schedule.tuning) * (0.5 if schedule.storage == "float16" else 1.0)
        bounds_ms = np.array([flops / roofline.gflops, least / roofline.dram, touched / roofline.cache]) / 1e6
        return Profile(phi, 100 * np.minimum(1.0, bounds_ms / timing.ms), flops, least, {**facts, "cache MB": touched / 1e6})

    def roofline(self) -> Roofline:
        """Peaks measured on this GPU, once a process. Raises InputError without one."""
        if not self.can_time:
            raise NO_GPU
        if self.machine not in _rooflines:
            found = self._compiler.ask(PEAKS_S, do="peaks", device=device.default())
            if isinstance(found, Failure):
                raise InputError("substrate", f"the peaks of the GPU could not be measured ({found.text[:200]})", "choose the substrate c")
            _rooflines[self.machine] = Roofline(**found)
        return _rooflines[self.machine]

    def close(self) -> None:
        """Ends the workers."""
        self._compiler.close()
        self._interpreter.close()

    def _ask(self, worker: Worker, limit_s: float, do: str, candidate: Candidate, **more: Any) -> Any | Failure:
        return worker.ask(limit_s, do=do, device=device.default(), kernel=candidate.kernel, size=candidate.size, source=candidate.source, **more)


def _workload(kernel: str) -> Workload:
    if kernel not in WORKLOADS:
        raise InputError("kernel", f"there is no Triton kernel {kernel!r}", "choose one of " + ", ".join(WORKLOADS))
    return WORKLOADS[kernel]


def _candidate(kernel: str, size: int, schedule: Schedule | None, source: str) -> Candidate:
    return Candidate(kernel, size, schedule, source, hashlib.sha256(f"triton {kernel} {size}\n{source}".encode()).hexdigest())


def _schedule(workload: Workload, candidate: Candidate) -> Schedule | Failure:
    """As the text itself says, or why the text cannot be taken. Also of a rendered text, so that what is shown is what runs."""
    try:
        return schedules.of(workload.tuning, guard.schedule_values(candidate.source))
    except guard.RefusedError as refused:
        return Failure("cheat", str(refused))
    except (SyntaxError, ValueError) as error:
        return Failure("compile-error", str(error))


def _line(kernel: str, c: Compiled) -> str:
    return f"{kernel} for sm_{c.capability}: " + (
        c.misfit()
        or f"{c.registers} registers, {c.spilled} bytes spilled, {c.shared / 1024:.3g} kB shared, {c.warps} warp{'s' * (c.warps > 1)}, "
        f"occupancy {c.occupancy():.0f} %"
    )


def _facts(c: Compiled) -> dict[str, float | str]:
    found: dict[str, float | str] = {"registers": c.registers, "spilled bytes": c.spilled, "shared kB": c.shared / 1024, "warps": c.warps}
    return {**found, "occupancy %": c.occupancy(), "matrix instruction": c.matrix}
