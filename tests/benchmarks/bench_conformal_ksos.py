"""The dual solver against the same semi-definite program in cvxpy with clarabel: equal optimum, time, growth in n.

The program is as large as the kernel's rank: two r x r matrices. Clarabel is asked for n up to 100, where it takes a minute; beyond,
SCS with a first-order tolerance is the peer. The optimum must agree to 1e-5 relative, or the row is refused.
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
CLARABEL_UP_TO = 100
AGREE = 1e-5
REPEATS = 5


def case(n: int) -> tuple[np.ndarray, np.ndarray]:
    """(K, r) of n rows of split normal noise, length-scale 0.8."""
    drawn = generate("split-normal", n, np.random.default_rng(0))
    residuals = drawn.y - drawn.prediction
    return matern52(drawn.x[:, None], drawn.x[:, None], 0.8), residuals / residuals.std()


def semidefinite(gram: np.ndarray, residuals: np.ndarray, lambda3: float, solver: str, **options: Any) -> float:
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
    return float(cp.Problem(cp.Minimize(cost), limits).solve(solver=solver, **options))


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
        solver, options = ("CLARABEL", {}) if n <= CLARABEL_UP_TO else ("SCS", {"eps": 1e-7, "max_iters": 50_000})
        began = time.perf_counter()
        reference = semidefinite(gram, residuals, 1.0, solver, **options)
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
            "peer": f"cvxpy with {solver.lower()}",
            "peer_s": peer_s,
            "ratio": peer_s / ours_s,
            "growth": growth,
            "note": f"gap {ours.gap:.0e}, optima {apart:.0e} apart",
        }
