"""The host's roofs, measured by its first searches and kept: fused multiply-adds a second, memory bandwidth, cache bandwidth, at the threads in use."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from backends.contract import InputError
from backends.kernelband.c.arena import Arena
from backends.kernelband.c.child import Child, ChildError
from backends.kernelband.c.compiler import Compiler
from backends.kernelband.c.kernels import Extents
from backends.kernelband.substrate import Failure, Roofline
from backends.runtime import folders

REPEATS = 15
TRIAD_PASSES, TRIAD_PARTS = 4, 8  # in parts, because a call of 10 ms is seldom left alone on a busy host; all parts together exceed the cache
SEARCHES = 3  # so many measure the roofs and the best is kept: a busy moment is not to stay for ever
LIMIT_S = 30.0
CHAINS = 10  # independent accumulators: enough to fill the latency of a multiply-add on two pipes
PEAK_STEPS = 200_000
CACHE_FLOATS = 256 * 1024 // 4
CACHE_PASSES = 400
CACHES_APART = 4  # the triad's three arrays hold at least so many last-level caches
LARGEST_TRIAD = 512_000_000  # bytes
DEFAULT_LLC = 32_000_000
MOST_THREADS = 64

# Accumulators are seeded from memory and all stored: otherwise the compiler merges them and shows an absurd peak.
_PEAK = f"""
void peak(const float *restrict seed, float *restrict out, float *restrict work, long steps) {{
    (void)work;
#pragma omp parallel
    {{
        const long thread = omp_get_thread_num();
        const float *from = seed + thread * {CHAINS} * (VECTOR / 4);
        const lanes a = *(const lanes *)seed * 1e-3f + 0.999f, b = *(const lanes *)seed * 1e-3f;
        {" ".join(f"lanes x{k} = *(const lanes *)(from + {k} * (VECTOR / 4));" for k in range(CHAINS))}
        for (long s = 0; s < steps; ++s) {{
            {" ".join(f"x{k} = x{k} * a + b;" for k in range(CHAINS))}
        }}
        float *to = out + thread * {CHAINS} * (VECTOR / 4);
        {" ".join(f"*(lanes *)(to + {k} * (VECTOR / 4)) = x{k};" for k in range(CHAINS))}
        if (thread == 0) out[0] = VECTOR / 4;
    }}
}}
"""
_TRIAD = """
void triad(const float *restrict B, const float *restrict C, float *restrict out, float *restrict work, long start, long n) {
    (void)work;
#pragma omp parallel for simd
    for (long i = start; i < start + n; ++i) out[i] = B[i] + 0.5f * C[i];
}
"""
_CACHE = f"""
void cache(const float *restrict X, float *restrict out, float *restrict work, long n, long passes) {{
    (void)work;
#pragma omp parallel
    {{
        lanes {", ".join(f"s{k} = {{0}}" for k in range(8))};
        for (long pass = 0; pass < passes; ++pass)
            for (long i = 0; i < n; i += 8 * (VECTOR / 4)) {{
                {" ".join(f"s{k} += *(const lanes *)(X + i + {k} * (VECTOR / 4));" for k in range(8))}
            }}
        const lanes s = {" + ".join(f"s{k}" for k in range(8))};
        for (long k = 0; k < VECTOR / 4; ++k) out[omp_get_thread_num() * 16 + k] = s[k];
    }}
}}
"""
_HEAD = """#include <omp.h>
#if defined(__AVX512F__)
#define VECTOR 64
#elif defined(__AVX__)
#define VECTOR 32
#else
#define VECTOR 16
#endif
typedef float lanes __attribute__((vector_size(VECTOR), aligned(4)));
"""
_SOURCE = _HEAD + _PEAK + _TRIAD + _CACHE


def measure(compiler: Compiler, threads: int, check: Callable[[], None]) -> tuple[Roofline, int]:
    """The roofs and the lanes of the widest vector: the best of the measurements of this host with these threads and this compiler."""
    identity = "\0".join([processor(), compiler.version, str(threads), _SOURCE])
    folder = folders.cache() / "kernelband"
    folder.mkdir(exist_ok=True)
    store = folder / f"roofline-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
    kept = _read(store)
    if kept is not None and kept["searches"] >= SEARCHES:
        return Roofline(kept["gflops"], kept["dram"], kept["cache"]), int(kept["lanes"])
    roof, lanes = _measure(threads, check)
    if kept is not None:
        roof = Roofline(max(roof.gflops, kept["gflops"]), max(roof.dram, kept["dram"]), max(roof.cache, kept["cache"]))
    searches = 1 if kept is None else int(kept["searches"]) + 1
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".new", delete=False) as new:  # a reader never sees half a file
        json.dump({**asdict(roof), "lanes": lanes, "searches": searches}, new)
    os.replace(new.name, store)
    return roof, lanes


def _read(store: Path) -> dict[str, float] | None:
    try:
        kept = json.loads(store.read_text())
        return {name: float(kept[name]) for name in ("gflops", "dram", "cache", "lanes", "searches")}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _measure(threads: int, check: Callable[[], None]) -> tuple[Roofline, int]:
    part = min(CACHES_APART * last_level_cache(), LARGEST_TRIAD) // (12 * TRIAD_PARTS)
    floats = part * TRIAD_PARTS
    triad = [(k * part, part) for k in range(TRIAD_PARTS)] * TRIAD_PASSES
    wide = MOST_THREADS * CHAINS * 16
    with tempfile.TemporaryDirectory(prefix="kernelband-roofline-") as folder:
        compiled, child = Compiler(Path(folder), check).compile(_SOURCE), Child(threads, check)
        if isinstance(compiled, Failure):
            raise InputError("substrate", f"the roofline cannot be compiled ({compiled.text.strip()[:200]})", "mend the compiler, or open a recorded run")
        try:
            peak_s, first = _best(child, compiled.library, "peak", {"seed": (wide,)}, (wide,), [(PEAK_STEPS,)] * REPEATS)
            triad_s, _ = _best(child, compiled.library, "triad", {"B": (floats,), "C": (floats,)}, (floats,), triad)
            cache_s, _ = _best(child, compiled.library, "cache", {"X": (CACHE_FLOATS,)}, (MOST_THREADS * 16,), [(CACHE_FLOATS, CACHE_PASSES)] * REPEATS)
        except ChildError as error:
            raise InputError("substrate", f"the roofline cannot be measured ({error.failure.text})", "run again") from error
        finally:
            child.close()
    lanes = int(first)
    roof = Roofline(
        gflops=2.0 * CHAINS * lanes * PEAK_STEPS * threads / peak_s / 1e9,
        dram=12.0 * part / triad_s / 1e9,
        cache=4.0 * CACHE_FLOATS * CACHE_PASSES * threads / cache_s / 1e9,
    )
    return roof, lanes


def _best(child: Child, library: Path, symbol: str, inputs: dict[str, Extents], output: Extents, calls: Sequence[Extents]) -> tuple[float, float]:
    """(seconds of the fastest call, first number of the output)."""
    arena = Arena(inputs, output, 1, output, np.random.default_rng(0))
    try:
        child.prepare(arena, library, symbol)
        times = [child.call(arena, sizes, LIMIT_S)[0] for sizes in calls]
        return min(times) / 1e9, float(arena.output.flat[0])
    finally:
        arena.close()


def processor() -> str:
    """The processor's name."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1) if found else platform.processor() or platform.machine()


def last_level_cache() -> int:
    """Bytes of the largest cache that this host tells of."""
    sizes = [DEFAULT_LLC]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        found = re.match(r"(\d+)([KM]?)", path.read_text())
        if found:
            sizes.append(int(found.group(1)) * {"": 1, "K": 1024, "M": 1024**2}[found.group(2)])
    return max(sizes)
