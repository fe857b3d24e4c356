"""The C substrate: schedules rendered to C, compiled by this host's compiler, checked and timed in a child process."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil

from backends.contract import InputError
from backends.kernelband.c import arena, measuring, roofline, schedule, screening
from backends.kernelband.c.arena import Arena
from backends.kernelband.c.child import Child
from backends.kernelband.c.compiler import FLAGS, Compiler, find, key_of
from backends.kernelband.c.kernels import KERNELS, Kernel
from backends.kernelband.c.schedule import Schedule
from backends.kernelband.substrate import Built, Candidate, Failure, Profile, Roofline, Timing
from backends.runtime import threads as host_threads

MEMORY_SHARE = 0.25  # of what is free: inputs are held three times (shared, as they must be, of the fastest run), and references are float64
NAIVE_BYTES_PER_S = 1e9  # a naive kernel touches hardly more; on a busy host it is a quarter of that


@dataclass(frozen=True, slots=True)
class Handle:
    """A screened shared object."""

    library: Path
    facts: screening.Facts


class CSubstrate:
    """C on this host's processor. threads: of OpenMP, at most the cores of this process.

    Where the host has no compiler it renders and edits, and can time nothing. One search uses one substrate; ``close`` ends its child process
    and removes its files.
    """

    name: Literal["c"] = "c"
    kernels = tuple(KERNELS)

    def __init__(self, threads: int = 1, check: Callable[[], None] = lambda: None) -> None:
        self.threads = min(threads, host_threads.cores())
        self._check = check
        self._folder = tempfile.TemporaryDirectory(prefix="kernelband-")
        self._compiler: Compiler | None = None
        with contextlib.suppress(InputError):
            self._compiler = Compiler(Path(self._folder.name), check)
        self._child = Child(self.threads, check)
        self._arenas: dict[tuple[str, tuple[int, ...]], Arena] = {}
        self._rng = np.random.default_rng()  # of the inputs: that no kernel can foresee them matters more than that they repeat
        self._roofs: tuple[Roofline, int] | None = None

    @property
    def compiler(self) -> Compiler:
        """The compiler, which counts its calls. Raises InputError where the host has none."""
        if self._compiler is None:
            find()
            raise InputError("substrate", "a C compiler has come since this run began", "run again")
        return self._compiler

    @property
    def can_time(self) -> bool:
        return self._compiler is not None

    @property
    def machine(self) -> str:
        """Processor, threads and compiler in words."""
        return f"{roofline.processor()}, {self._threads_in_words}, {self._compiler.version if self._compiler else 'no C compiler'}"

    def default_size(self, kernel: str) -> int:
        """The card's size of this kernel."""
        return _kernel(kernel).default

    def describe(self, kernel: str, size: int) -> str:
        """Task, exact signature and tolerance in words."""
        k = _kernel(kernel)
        extents = ", ".join(f"{name} = {value}" for name, value in zip(k.sizes, k.extents(size), strict=True))
        return (
            f"Write this C function: {k.task}.\n{k.signature};\n"
            f"All arrays are float32, row by row, each aligned to 64 bytes. work is scratch of {k.work(*k.extents(size)):,} floats at these sizes; "
            f"its content is undefined. It is timed at {extents}, and checked at other sizes too, which nothing divides, against float64 with a tolerance of "
            f"{measuring.TOLERANCE:g} (absolute and relative). It is compiled with {' '.join(FLAGS)} and runs on {self._threads_in_words}. "
            "It may use arithmetic, memory, the mathematical functions and parallel loops of OpenMP, and nothing else of the system."
        )

    def naive(self, kernel: str, size: int) -> Candidate:
        """k0. Raises InputError for an unknown kernel, and for a size whose buffers exceed memory or whose naive kernel would not end."""
        k = _kernel(kernel)
        if size < 8:
            raise InputError("size", f"{size} is below 8", "choose a larger size")
        needed, free = k.buffer_bytes(k.extents(size)), psutil.virtual_memory().available
        if needed > MEMORY_SHARE * free:
            raise InputError("size", f"{kernel} at {size} needs buffers of {needed / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are free", "choose a smaller size")
        if k.touched(schedule.naive(kernel), *k.extents(size)) > NAIVE_BYTES_PER_S * measuring.SLOWEST_BASELINE_S:
            raise InputError("size", f"at {size} the naive {kernel} would run for more than {measuring.SLOWEST_BASELINE_S:g} s", "choose a smaller size")
        return self.render(kernel, size, schedule.naive(kernel))

    def render(self, kernel: str, size: int, given: Hashable) -> Candidate:
        """The program of a schedule."""
        if not isinstance(given, Schedule):
            raise TypeError(f"not a schedule of C: {given!r}")
        text = _kernel(kernel).source(given)
        return Candidate(kernel, size, given, text, key_of(text))

    def written(self, kernel: str, size: int, source: str) -> Candidate:
        """A candidate of text that a model or a person wrote."""
        _kernel(kernel)
        return Candidate(kernel, size, None, source, key_of(source))

    def edits(self, candidate: Candidate, strategy: int) -> Sequence[Schedule]:
        """Every schedule that one edit of this strategy gives; none for text that was written by hand."""
        return schedule.edits(candidate.kernel, candidate.schedule, strategy) if isinstance(candidate.schedule, Schedule) else ()

    def space(self, kernel: str) -> Mapping[str, tuple[Any, ...]]:
        """The schedule's fields and the values of each. A missing remainder is a mistake, not a choice, and no field of the space."""
        _kernel(kernel)
        return schedule.SPACE[kernel]

    def at(self, kernel: str, values: Mapping[str, Any]) -> Schedule:
        """The schedule with these values of ``space``."""
        _kernel(kernel)
        return schedule.at(kernel, values)

    def values(self, given: Hashable) -> Mapping[str, Any]:
        """The values of a schedule, the inverse of ``at``."""
        if not isinstance(given, Schedule):
            raise TypeError(f"not a schedule of C: {given!r}")
        return schedule.values(given)

    def compile(self, candidate: Candidate) -> Built | Failure:
        """A shared object whose machine code was screened, or the compiler's own words."""
        done = self.compiler.compile(candidate.source)
        if isinstance(done, Failure):
            return done
        found = screening.screen(done.library, candidate.source, _kernel(candidate.kernel).symbol, self.compiler, self._check)
        return found if isinstance(found, Failure) else Built(candidate, Handle(done.library, found), done.log, done.seconds)

    def check(self, built: Built) -> Failure | None:
        """None when the output is right at both sets of sizes."""
        kernel = _kernel(built.candidate.kernel)
        return measuring.check(self._child, tuple(self._arena(kernel, extents) for extents in kernel.checks), kernel, built.handle.library)

    def time(self, built: Built, parent_ms: float | None) -> Timing | Failure:
        """The fastest of its runs, compared with the reference."""
        kernel = _kernel(built.candidate.kernel)
        return measuring.time(self._child, self._arena(kernel, kernel.extents(built.candidate.size)), kernel, built.handle.library, parent_ms)

    def profile(self, built: Built, timing: Timing) -> Profile:
        """Bounds from the measured roofline, not hardware counters (section 5): h = 100 min(1, bound / time) for arithmetic, memory and cache."""
        kernel, candidate, facts = _kernel(built.candidate.kernel), built.candidate, built.handle.facts
        extents = kernel.extents(candidate.size)
        roofs, widest = self._roof()
        flops, compulsory = float(kernel.flops(*extents)), kernel.compulsory_bytes(extents)
        if isinstance(candidate.schedule, Schedule):
            touched, (working_set, volume) = kernel.touched(candidate.schedule, *extents), kernel.tile(candidate.schedule, *extents)
        else:  # the loops of a written text are not known: what it cannot do without
            touched, (working_set, volume) = compulsory, kernel.tile(schedule.naive(candidate.kernel), *extents)
        bounds = np.array([flops / roofs.gflops, compulsory / roofs.dram, touched / roofs.cache]) / 1e6  # ms
        lanes = 100.0 * min(1.0, facts.lanes / widest)
        return Profile(
            phi=np.array([math.log1p(timing.ms), facts.registers, working_set / 1024, math.log2(max(volume, 1.0)), lanes]),
            h=100.0 * np.minimum(1.0, bounds / timing.ms),
            flops=flops,
            bytes=compulsory,
            facts={
                "registers": facts.registers,
                "spills": facts.spills,
                "lanes": facts.lanes,
                "instructions": facts.instructions,
                "working set (KB)": working_set / 1024,
                "touched (MB)": touched / 1e6,
            },
        )

    def roofline(self) -> Roofline:
        """Of this host, compiler and number of threads, measured by the first searches."""
        return self._roof()[0]

    def close(self) -> None:
        """Ends the child process and removes every file."""
        self._child.close()
        for one in self._arenas.values():
            one.close()
        self._arenas.clear()
        with contextlib.suppress(OSError):
            self._folder.cleanup()

    @property
    def _threads_in_words(self) -> str:
        return f"{self.threads} thread{'s' if self.threads > 1 else ''}"

    def _roof(self) -> tuple[Roofline, int]:
        if self._roofs is None:
            self._roofs = roofline.measure(self.compiler, self.threads, self._check)
        return self._roofs

    def _arena(self, kernel: Kernel, extents: tuple[int, ...]) -> Arena:
        key = kernel.name, extents
        if key not in self._arenas:
            self._arenas[key] = arena.of_kernel(kernel, extents, self._rng)
        return self._arenas[key]


def _kernel(name: str) -> Kernel:
    if name not in KERNELS:
        raise InputError("kernel", f"there is no kernel {name!r}", "choose one of " + ", ".join(KERNELS))
    return KERNELS[name]
