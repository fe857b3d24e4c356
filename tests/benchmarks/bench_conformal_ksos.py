"""The dual solver against the same semi-definite program in cvxpy with clarabel: equal optimum, time, growth in n.

Both get the same numerical rank r of the kernel matrix, so the program has two r x r matrices. The optimum must agree to 1e-5
relative, or the benchmark fails. Clarabel at n = 200 (r = 81) takes one to two minutes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from backends.conformal_ksos import solve
from backends.conformal_ksos.data import generate
from backends.conformal_ksos.kernel import factor, matern52

SIZES = (25, 50, 100, 200)
AGREE = 1e-5
REPEATS = 5


def case(n: int) -> tuple[np.ndarray, np.ndarray]:
    """(K, r) of n rows of split normal noise, length-scale 0.8."""
    drawn = generate("split-normal", n, np.random.default_rng(0))
    residuals = drawn.y - drawn.prediction
    return matern52(drawn.x[:, None], drawn.x[:, None], 0.8), residuals / residuals.std()


def semidefinite(gram: np.ndarray, residuals: np.ndarray, lambda3: float) -> float:
    """Optimal value of the pointwise problem with b = lambda1 = lambda2 = 1, as a person would write it in cvxpy."""
    import cvxpy as cp

    values, vectors = factor(gram)
    v = np.sqrt(values)[:, None] * vectors.T
    rank, n = v.shape
    upper, lower = cp.Variable((rank, rank), PSD=True), cp.Variable((rank, rank), PSD=True)
    f_upper, f_lower = (cp.sum(cp.multiply(v, a @ v), axis=0) for a in (upper, lower))
    cost = cp.sum(f_upper + f_lower) / n + cp.trace(upper) + cp.trace(lower) + cp.sum_squares(upper) + cp.sum_squares(lower)
    cost += lambda3 / n * cp.sum_squares(f_upper - f_lower)
    above, below = np.flatnonzero(residuals > 0), np.flatnonzero(residuals <= 0)
    limits = [f_upper[above] >= residuals[above] ** 2, f_lower[below] >= residuals[below] ** 2]
    return float(cp.Problem(cp.Minimize(cost), limits).solve(solver=cp.CLARABEL))


def rows() -> Iterator[dict[str, Any]]:
    """One row a size; growth is the exponent from the size before."""
    before: tuple[int, float] | None = None
    for n in SIZES:
        gram, residuals = case(n)
        times = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            ours = solve(gram, residuals, 1.0, 1.0, 1.0, 1.0, "pointwise")
            times.append(time.perf_counter() - began)
        ours_s = float(np.median(times))
        began = time.perf_counter()
        reference = semidefinite(gram, residuals, 1.0)
        peer_s = time.perf_counter() - began
        apart = abs(ours.value - reference) / abs(reference)
        if apart > AGREE:
            raise AssertionError(f"n = {n}: the optima {ours.value} and {reference} differ by {apart:.1e} relative")
        growth = math.log(ours_s / before[1]) / math.log(n / before[0]) if before else None
        before = (n, ours_s)
        yield {
            "method": "conformal-ksos",
            "work": "dual optimum, pointwise penalty, lambda3 = 1",
            "size": n,
            "ours_s": ours_s,
            "peer": "cvxpy with clarabel",
            "peer_s": peer_s,
            "ratio": peer_s / ours_s,
            "growth": growth,
            "note": f"rank {len(factor(gram)[0])}, gap {ours.gap:.0e}, optima {apart:.0e} apart",
        }
