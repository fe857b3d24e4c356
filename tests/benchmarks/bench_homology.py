"""The barcode on gudhi against ripser on the same distance matrices: equal diagrams, ratio of the times, growth in N.

The deaths must agree to 1e-6 relative (ripser computes in single precision), or the benchmark fails.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from backends.tai import barcode

SIZES = (50, 100, 200, 500, 1000, 2000)
AGREE = 1e-6
REPEATS = 3


def case(n: int) -> np.ndarray:
    """Distances (N, N) of a cloud of eight islands in ten dimensions, within [0, 1]."""
    rng = np.random.default_rng(n)
    x = rng.normal(size=(8, 10))[rng.integers(8, size=n)] + 0.1 * rng.normal(size=(n, 10))
    square = (x**2).sum(1)
    D = np.sqrt(np.maximum(square[:, None] + square - 2 * x @ x.T, 0))
    np.fill_diagonal(D, 0)
    D = (D + D.T) / 2
    return D / D.max()


def timed(work: Callable[[], np.ndarray]) -> tuple[np.ndarray, float]:
    """(result, median seconds)."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - began)
    return result, float(np.median(times))


def rows() -> Iterator[dict[str, Any]]:
    """One row a size; growth is the exponent from the size before."""
    from ripser import ripser

    before: tuple[int, float] | None = None
    for n in SIZES:
        D = case(n)
        deaths, ours_s = timed(lambda D=D: barcode(D)[0])  # type: ignore[misc]
        diagram, peer_s = timed(lambda D=D: ripser(D, maxdim=0, distance_matrix=True)["dgms"][0])  # type: ignore[misc]
        theirs = np.sort(diagram[np.isfinite(diagram[:, 1]), 1])
        if theirs.shape != deaths.shape or not np.allclose(theirs, deaths, rtol=AGREE, atol=AGREE):
            raise AssertionError(f"N = {n}: the diagrams differ")
        growth = math.log(ours_s / before[1]) / math.log(n / before[0]) if before else None
        before = (n, ours_s)
        yield {
            "method": "tai",
            "work": "bars of degree 0 with the edges that end them",
            "size": n,
            "ours_s": ours_s,
            "peer": "ripser",
            "peer_s": peer_s,
            "ratio": peer_s / ours_s,
            "growth": growth,
            "note": f"deaths {np.abs(theirs - deaths).max():.0e} apart; ripser gives no edges",
        }
