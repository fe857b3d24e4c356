"""Maximising the dual: L-BFGS-B and FISTA, both stopped by the duality gap (section 4.5 of the card)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.optimize import Bounds, minimize

from backends.conformal_ksos.dual import Array, Dual, Multipliers, Penalty, Point, Problem
from backends.conformal_ksos.kernel import factor
from backends.contract import InputError

SolverName = Literal["l-bfgs-b", "fista"]
MAX_ITERATIONS = 3000
TIGHT_GAP = 1e-8  # f is accurate to about the root of the gap, and ``solve`` promises f to 1e-3


@dataclass(frozen=True, slots=True)
class Operators:
    """Two positive semi-definite operators as A = C C^T: c_upper (r, p), c_lower (r, q)."""

    c_upper: Array
    c_lower: Array

    def envelopes(self, phi: Array) -> tuple[Array, Array]:
        """(f_u, f_l), each (m,), at the features phi (r, m)."""
        return np.sum((self.c_upper.T @ phi) ** 2, axis=0), np.sum((self.c_lower.T @ phi) ** 2, axis=0)

    def spectra(self) -> tuple[Array, Array]:
        """Eigenvalues of A_u and A_l, descending, (r,) each."""
        rank = self.c_upper.shape[0]
        found = [np.linalg.svd(c, compute_uv=False) ** 2 for c in (self.c_upper, self.c_lower)]
        return np.pad(found[0], (0, rank - len(found[0]))), np.pad(found[1], (0, rank - len(found[1])))


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration: dual value, feasible primal value (maybe infinite), relative gap, and the point itself."""

    iteration: int
    dual: float
    primal: float
    gap: float
    point: Point
    scale_upper: float
    scale_lower: float

    def operators(self) -> Operators:
        """The feasible operators of the certificate; those of the point where none can be made feasible by a factor."""
        scales = (s if math.isfinite(s) else 1.0 for s in (self.scale_upper, self.scale_lower))
        return Operators(*(c * math.sqrt(s) for c, s in zip((self.point.c_upper, self.point.c_lower), scales, strict=True)))


@dataclass(frozen=True, slots=True)
class Fit:
    """A solved problem with its certificate: dual <= optimum <= primal, gap = (primal - dual) / primal, iterations used."""

    operators: Operators
    dual: float
    primal: float
    gap: float
    iterations: int
    multipliers: Multipliers


class Solution(NamedTuple):
    """What ``solve`` returns: dual value, envelopes at the rows (feasible), relative duality gap."""

    value: float
    f_upper: Array
    f_lower: Array
    gap: float


def fit(
    problem: Problem,
    *,
    tolerance: float,
    solver: SolverName = "l-bfgs-b",
    start: Multipliers | None = None,
    on_step: Callable[[Step], Any] = lambda step: None,
) -> Fit:
    """Solves the problem to a relative duality gap of ``tolerance``, or as far as float64 goes (the gap says).

    start: multipliers of a neighbouring problem. on_step: called at every iteration; it may raise to stop.
    """
    dual = problem.dual()
    x = dual.start() if start is None else dual.pack(start)
    run = _lbfgsb if solver == "l-bfgs-b" else _fista
    best: Step | None = None
    iteration = 0

    def certify(point: Point) -> bool:
        nonlocal best, iteration
        primal, scale_upper, scale_lower = dual.primal(point)
        gap = (primal - point.value) / primal if 0 < primal < math.inf else (math.inf if primal else 0.0)
        step = Step(iteration, point.value, primal, max(0.0, gap), point, scale_upper, scale_lower)
        iteration += 1
        if best is None or step.gap < best.gap:
            best = step
        on_step(step)
        return step.gap <= tolerance

    run(dual, x, certify)
    assert best is not None
    return Fit(best.operators(), best.dual, best.primal, best.gap, iteration, dual.multipliers(best.point.x))


def _lbfgsb(dual: Dual, x: Array, certify: Callable[[Point], bool]) -> None:
    newest = dual.evaluate(x)
    if certify(newest):
        return

    def negative(x: Array) -> tuple[float, Array]:
        nonlocal newest
        newest = dual.evaluate(x)
        return -newest.value, -newest.gradient

    def callback(intermediate_result: Any) -> None:
        # the accepted iterate is nearly always the last one evaluated
        point = newest if np.array_equal(newest.x, intermediate_result.x) else dual.evaluate(intermediate_result.x)
        if certify(point):
            raise StopIteration

    lower = np.full(x.size, -np.inf)
    lower[: dual.bounded] = 0.0
    options = {"maxcor": 20, "maxiter": MAX_ITERATIONS, "maxfun": 4 * MAX_ITERATIONS, "ftol": 0.0, "gtol": 0.0}
    minimize(negative, x, jac=True, method="L-BFGS-B", bounds=Bounds(lower, np.inf), callback=callback, options=options)


def _fista(dual: Dual, x: Array, certify: Callable[[Point], bool]) -> None:
    """Accelerated projected gradient with backtracking and the gradient restart of O'Donoghue and Candes."""

    def project(x: Array) -> Array:
        x[: dual.bounded] = np.maximum(x[: dual.bounded], 0.0)
        return x

    step, momentum = 1.0, 1.0
    here = ahead = dual.evaluate(project(x.copy()))
    for _ in range(MAX_ITERATIONS):
        if certify(here):
            return
        while True:
            reached = dual.evaluate(project(ahead.x + step * ahead.gradient))
            move = reached.x - ahead.x
            if reached.value >= ahead.value + float(ahead.gradient @ move) - float(move @ move) / (2 * step) - 1e-12 * abs(ahead.value):
                break
            step /= 2
        if float(ahead.gradient @ (reached.x - here.x)) < 0:
            momentum = 1.0
        faster = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        leap = reached.x + (momentum - 1) / faster * (reached.x - here.x)
        ahead = dual.evaluate(project(leap)) if momentum > 1 else reached
        here, momentum = reached, faster
        step *= 1.1  # lets the step grow again where the dual is flat


def solve(K: Array, residuals: Array, b: float, lambda1: float, lambda2: float, lambda3: float, penalty: Penalty = "pointwise") -> Solution:
    """Solves the penalised kernel sum-of-squares problem of section 4.2 on a kernel matrix.

    K: (n, n) positive semi-definite; residuals: (n,), r > 0 binds the upper envelope, r <= 0 the lower one; b, lambda1 >= 0;
    lambda2 > 0; lambda3 in [0, inf]: 0 = two separate envelopes, inf = equal ones (the value is then twice the symmetric
    optimum); penalty: "pointwise" or "operator". The relative gap aimed at is 1e-8; ``gap`` says what was reached.
    Raises InputError naming the argument.

    >>> solution = solve(np.eye(1), np.array([2.0]), 1, 0.1, 0.5, 1, "pointwise")
    >>> round(float(solution.f_upper[0]), 4), round(float(solution.f_lower[0]), 4)
    (4.0, 2.3)
    """
    gram, r = _checked(K, residuals)
    for name, weight, least in (("b", b, "0 or more"), ("lambda1", lambda1, "0 or more"), ("lambda2", lambda2, "above 0"), ("lambda3", lambda3, "0 or more")):
        infinite = math.isinf(weight) and name != "lambda3"
        if math.isnan(weight) or infinite or weight < 0 or (name == "lambda2" and weight == 0):
            raise InputError(name, f"{weight} is not possible", f"choose a number {least}")
    if penalty not in ("pointwise", "operator"):
        raise InputError("penalty", f"{penalty!r} is unknown", "choose pointwise or operator")
    values, vectors = factor(gram)
    v = np.sqrt(values)[:, None] * vectors.T
    free = (r != 0) & (np.sum(v**2, axis=0) < 1e-12 * values[0])
    if free.any():
        raise InputError("K", f"has a zero row {int(np.argmax(free))} whose residual is not zero", "give a kernel with k(x, x) > 0")
    start = None
    if lambda3 > 10 * lambda2 and not math.isinf(lambda3):  # close to the symmetric limit
        start = fit(Problem(v, r, b, lambda1, lambda2, math.inf, penalty), tolerance=1e-4).multipliers
    solved = fit(Problem(v, r, b, lambda1, lambda2, lambda3, penalty), tolerance=TIGHT_GAP, start=start)
    return Solution(solved.dual, *solved.operators.envelopes(v), solved.gap)


def _checked(gram: Array, residuals: Array) -> tuple[Array, Array]:
    try:
        k, r = np.asarray(gram, dtype=float), np.asarray(residuals, dtype=float)
    except (TypeError, ValueError):
        raise InputError("K", "K or the residuals hold something that is not a number", "give arrays of numbers") from None
    if k.ndim != 2 or k.shape[0] != k.shape[1] or k.shape[0] == 0:
        raise InputError("K", f"has the shape {k.shape}", "give a square matrix (n, n)")
    if r.shape != (k.shape[0],):
        raise InputError("residuals", f"has the shape {r.shape} beside K of {k.shape}", f"give {k.shape[0]} numbers")
    for name, array in (("K", k), ("residuals", r)):
        if not np.isfinite(array).all():
            raise InputError(name, "holds NaN or infinity", "give finite numbers")
    if not np.allclose(k, k.T, rtol=1e-8, atol=1e-10):
        raise InputError("K", "is not symmetric", "give a kernel matrix")
    return (k + k.T) / 2, r
