"""The best kernel of a search against the naive one it began with, both timed in that search, and against numpy's own operation.

The speed-up must be above what the method promises, or the benchmark fails; how long the search took stands in the note.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from backends.contract import ContextSpec, Frame
from backends.kernelband import method
from backends.kernelband.c import CSubstrate
from backends.kernelband.card import Params
from backends.runtime.context import RunContext
from backends.validation import validate

LEAST = {"matmul": 5.0, "rmsnorm": 10.0}  # times, at the defaults and seed 0
REPEATS = 10
EPS = 1e-6


def rmsnorm(x: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """As plain numpy writes it."""
    found: np.ndarray = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + np.float32(EPS)) * gamma
    return found


def peers() -> Mapping[str, Callable[[], Any]]:
    """numpy's form of each kernel at the default size, in float32."""
    substrate, rng = CSubstrate(1), np.random.default_rng(0)
    n, rows = substrate.default_size("matmul"), substrate.default_size("rmsnorm")
    substrate.close()
    a, b, x, gamma = (rng.standard_normal(shape, np.float32) for shape in ((n, n), (n, n), (rows, 2048), (2048,)))
    return {"matmul": lambda: a @ b, "rmsnorm": lambda: rmsnorm(x, gamma)}


def searched(kernel: str) -> tuple[Frame, float]:
    """(last frame, seconds until the first child had a time)."""
    params = validate(Params, {"kernel": kernel})
    began, first = time.perf_counter(), float("nan")
    for frame in method.run(params, RunContext(ContextSpec(params.seed))):
        if first != first and any(ms is not None for ms in frame.data.get("attempts", {}).get("ms", ())):
            first = time.perf_counter() - began
    return frame, first


def fastest_s(function: Callable[[], Any]) -> float:
    """The minimum, as the search takes it, on one thread."""
    taken = []
    with threadpool_limits(1):
        for _ in range(REPEATS):
            began = time.perf_counter()
            function()
            taken.append(time.perf_counter() - began)
    return min(taken)


def rows() -> Iterator[dict[str, Any]]:
    """Two rows a kernel: against the naive one and against numpy."""
    numpy_forms = peers()
    for kernel, least in LEAST.items():
        last, first_s = searched(kernel)
        found = {name: float(last.metrics[name] or 0) for name in ("speedup", "best_ms", "baseline_ms", "seconds", "rounds")}
        if found["speedup"] < least:
            raise AssertionError(f"{kernel}: {found['speedup']:.2f} times, promised are {least:g}")
        note = f"{found['rounds']:.0f} attempts in {found['seconds']:.1f} s, the first child had a time after {first_s:.1f} s"
        numpy_s = fastest_s(numpy_forms[kernel])
        for peer, peer_s, said in (("naive kernel", found["baseline_ms"] / 1e3, note), ("numpy, one thread", numpy_s, "numpy's inputs may stay in the cache")):
            yield {
                "method": "kernelband",
                "work": f"the best {kernel}",
                "size": str(last.data["made_by"]["data"]).split(", ")[1],
                "ours_s": found["best_ms"] / 1e3,
                "peer": peer,
                "peer_s": peer_s,
                "ratio": peer_s * 1e3 / found["best_ms"],
                "growth": None,
                "note": said,
            }
