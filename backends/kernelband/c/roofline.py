"""The host's roofs, measured once and kept: fused multiply-adds a second, memory bandwidth, cache bandwidth, at the threads in use."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from backends.kernelband.c.arena import Arena
from backends.kernelband.c.child import Child, ChildError
from backends.kernelband.c.compiler import Compiler
from backends.kernelband.c.kernels import Extents
from backends.kernelband.substrate import Failure, Roofline
from backends.runtime import folders

REPEATS = 15
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
typedef float lanes __attribute__((vector_size(VECTOR), aligned(4)));
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
void triad(const float *restrict B, const float *restrict C, float *restrict out, float *restrict work, long n) {
    (void)work;
#pragma omp parallel for simd
    for (long i = 0; i < n; ++i) out[i] = B[i] + 0.5f * C[i];
}
"""
_CACHE = f"""
typedef float lanes __attribute__((vector_size(VECTOR), aligned(4)));
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
"""


def measure(compiler: Compiler, threads: int, check: Callable[[], None]) -> tuple[Roofline, int]:
    """The roofs and the lanes of the widest vector, from the store where this host has been measured with these threads and this compiler."""
    identity = "\0".join([processor(), compiler.version, str(threads), _HEAD, _PEAK, _TRIAD, _CACHE])
    folder = folders.cache() / "kernelband"
    folder.mkdir(exist_ok=True)
    store = folder / f"roofline-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
    try:
        kept = json.loads(store.read_text())
        return Roofline(kept["gflops"], kept["dram"], kept["cache"]), int(kept["lanes"])
    except (OSError, ValueError, KeyError):
        pass
    roof, lanes = _measure(threads, check)
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".new", delete=False) as new:  # a reader never sees half a file
        json.dump({**asdict(roof), "lanes": lanes, "processor": processor()}, new)
    os.replace(new.name, store)
    return roof, lanes


def _measure(threads: int, check: Callable[[], None]) -> tuple[Roofline, int]:
    floats = min(max(CACHES_APART * last_level_cache(), 1), LARGEST_TRIAD) // 12
    with tempfile.TemporaryDirectory(prefix="kernelband-roofline-") as folder:
        compiler, child = Compiler(Path(folder), check), Child(threads, check)
        try:
            wide = MOST_THREADS * CHAINS * 16
            peak_s, first = _best(child, compiler, "peak", _PEAK, {"seed": (wide,)}, (wide,), (PEAK_STEPS,))
            lanes = int(first)
            triad_s, _ = _best(child, compiler, "triad", _TRIAD, {"B": (floats,), "C": (floats,)}, (floats,), (floats,))
            cache_s, _ = _best(child, compiler, "cache", _CACHE, {"X": (CACHE_FLOATS,)}, (MOST_THREADS * 16,), (CACHE_FLOATS, CACHE_PASSES))
        finally:
            child.close()
    return (
        Roofline(
            gflops=2.0 * CHAINS * lanes * PEAK_STEPS * threads / peak_s / 1e9,
            dram=12.0 * floats / triad_s / 1e9,
            cache=4.0 * CACHE_FLOATS * CACHE_PASSES * threads / cache_s / 1e9,
        ),
        lanes,
    )


def _best(child: Child, compiler: Compiler, name: str, text: str, inputs: dict[str, Extents], output: Extents, sizes: Extents) -> tuple[float, float]:
    """(seconds of the fastest call, first number of the output)."""
    compiled = compiler.compile(_HEAD + text)
    if isinstance(compiled, Failure):
        raise RuntimeError(f"the roofline cannot be measured: {compiled.text}")
    arena = Arena(inputs, output, 1, sizes, np.random.default_rng(0))
    try:
        child.prepare(arena, compiled.library, name)
        times = [child.call(arena, sizes, LIMIT_S)[0] for _ in range(REPEATS)]
        return min(times) / 1e9, float(arena.output.flat[0])
    except ChildError as error:
        raise RuntimeError(f"the roofline cannot be measured: {error.failure.text}") from error
    finally:
        child.kill()
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
