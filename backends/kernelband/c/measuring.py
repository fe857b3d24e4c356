"""Checking and timing of one compiled kernel. The time that counts is of a run whose output was compared with the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from backends.kernelband.c.arena import Arena
from backends.kernelband.c.child import Child, ChildError
from backends.kernelband.c.kernels import Kernel
from backends.kernelband.substrate import Failure, Timing

TOLERANCE = 1e-4  # absolute and relative
ENOUGH_S, MOST_RUNS, LEAST_RUNS = 0.2, 30, 3
LONG_WARM_UP_S = 0.05  # a first run of this length counts: cold caches cost it little, and the minimum is taken
LEAST_LIMIT_S, LIMIT_FACTOR = 2.0, 10.0
# Processor time that the clock need not explain: a call costs 0.1 to 0.25 ms beside the kernel, on a busy host one of them now and then 1 ms.
CPU_FACTOR, CPU_SLACK_NS, CPU_SLACK_ONE_NS = 1.5, 500_000, 2_000_000
SLOWEST_BASELINE_S = 60.0
BLOCK = 1 << 18  # elements that are compared together: temporaries of the size of a large output cost more than the comparison
LATE = "right when it was checked, but its fastest timed run is not"

Array = np.ndarray


def compare(kernel: Kernel, output: Array, reference: Array, extents: tuple[int, ...]) -> Failure | None:
    """None when |output - reference| <= 1e-4 + 1e-4 |reference| everywhere; NaN is never right."""
    given, wanted = output.reshape(-1), reference.reshape(-1)
    first, wrong = -1, 0
    for start in range(0, wanted.size, BLOCK):
        y, x = wanted[start : start + BLOCK], given[start : start + BLOCK]
        if not np.isfinite(y).all():
            return Failure("wrong", "the reference itself is not finite for these inputs")
        bad = ~(np.abs(x - y) <= TOLERANCE + TOLERANCE * np.abs(y))
        if first < 0 and bad.any():
            first = start + int(np.argmax(bad))
        wrong += int(bad.sum())
    if not wrong:
        return None
    where = f"at {' x '.join(map(str, extents))}"
    if (given == given[0]).all() and np.ptp(reference) > 0:
        return Failure("cheat", f"{where} its output is the constant {float(given[0]):.6g}")
    place = ", ".join(str(int(i)) for i in np.unravel_index(first, reference.shape))
    untouched = " (never written)" if np.isnan(given[first]) else ""
    share = 100 * wrong / wanted.size
    return Failure("wrong", f"{where} {kernel.out}[{place}] is {given[first]:.6g}{untouched}, not {wanted[first]:.6g}; {share:.3g} % of the output is wrong")


def _call(child: Child, arena: Arena, limit_s: float) -> int | Failure:
    """Nanoseconds of one call."""
    ns, threads = child.call(arena, arena.extents, limit_s)
    if threads > max(1, child.threads):
        return Failure("cheat", f"{threads - child.threads} more threads than allowed were at work when it returned")
    return ns


def _traces(arena: Arena) -> Failure | None:
    """What a call must not leave behind."""
    name = arena.changed_input()
    if name is not None:
        return Failure("cheat", f"it changed its input {name}")
    return Failure("wrong", "it wrote outside its buffers") if arena.outside_written() else None


def check(child: Child, arenas: tuple[Arena, ...], kernel: Kernel, library: Path) -> Failure | None:
    """None when the output is right on every set of inputs, each used twice so that no state may carry over."""
    try:
        for arena in arenas:
            child.prepare(arena, library, kernel.symbol)
            for again in (False, True):
                arena.refresh()
                arena.clear_work()
                called = _call(child, arena, LEAST_LIMIT_S)
                failure = called if isinstance(called, Failure) else _traces(arena)
                failure = failure or compare(kernel, arena.output, kernel.reference(arena.truth, *arena.extents), arena.extents)
                if failure:
                    child.kill()  # whatever it left in the process goes with it
                    return _unearned(failure, "right at first, but not when called again with other inputs") if again else failure
    except ChildError as error:
        child.kill()
        return error.failure
    return None


def time(child: Child, arena: Arena, kernel: Kernel, library: Path, parent_ms: float | None) -> Timing | Failure:
    """The minimum over at least 3 runs, until 0.2 s of them or 30, after one to warm up (a long one counts); each has inputs of its own.

    Rejected as a cheat: a fastest run whose output is not what its own inputs give (a result kept from before, or work put off until after the
    clock), processor time beyond what the runs' times explain (a clock that lies, work elsewhere), threads left at work, changed inputs.
    """
    limit_s = SLOWEST_BASELINE_S if parent_ms is None else max(LEAST_LIMIT_S, LIMIT_FACTOR * parent_ms / 1e3)
    try:
        child.prepare(arena, library, kernel.symbol)
        found = _runs(child, arena, limit_s)
    except ChildError as error:
        child.kill()
        return error.failure
    if isinstance(found, Failure):
        child.kill()
        return found
    times, inputs, output = found
    failure = _traces(arena) or _unearned(compare(kernel, output, kernel.reference(inputs, *arena.extents), arena.extents), LATE)
    if failure:
        child.kill()
        return failure
    return Timing(float(times.min()) / 1e6, times.size, float(times.std() / times.mean()))


def _runs(child: Child, arena: Arena, limit_s: float) -> tuple[Array, dict[str, Array], Array] | Failure:
    """(nanoseconds of each run, inputs and output of the fastest)."""
    times: list[int] = []
    used: list[int] = []
    inputs = {name: value.copy() for name, value in arena.truth.items()}
    output = np.empty_like(arena.output)
    warm = False
    while len(times) < LEAST_RUNS or (sum(times) < ENOUGH_S * 1e9 and len(times) < MOST_RUNS):
        arena.refresh()
        before = child.cpu_ns()
        ns = _call(child, arena, limit_s)
        if isinstance(ns, Failure):
            return ns
        if not times or ns < min(times):
            output[...] = arena.output  # at once: whoever is still at work is not waited for
            for name, value in arena.truth.items():
                inputs[name][...] = value
        if warm or ns >= LONG_WARM_UP_S * 1e9:
            used.append(child.cpu_ns() - before)
            times.append(ns)
        warm = True
    fastest = times.index(min(times))
    for cpu_ns, clock_ns, slack_ns in ((sum(used), sum(times), CPU_SLACK_NS * len(times)), (used[fastest], times[fastest], CPU_SLACK_ONE_NS)):
        if cpu_ns > CPU_FACTOR * child.threads * clock_ns + slack_ns:
            return Failure("cheat", f"the process used {cpu_ns / 1e6:.3g} ms of processor time where the clock shows {clock_ns / 1e6:.3g} ms")
    return np.array(times, float), inputs, output


def _unearned(failure: Failure | None, how: str) -> Failure | None:
    """A wrong result of what was right before is no mistake."""
    return Failure("cheat", f"{how}: {failure.text}") if failure is not None and failure.kind == "wrong" else failure
