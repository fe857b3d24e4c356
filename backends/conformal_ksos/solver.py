"""Maximising the dual: L-BFGS-B and FISTA, both stopped by the duality gap (section 4.5 of the card)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.optimize import Bounds, minimize

from backends.conformal_ksos.checks import array, number, one_of
from backends.conformal_ksos.dual import Array, Dual, Multipliers, Penalty, Point, Problem
from backends.conformal_ksos.kernel import factor
from backends.contract import InputError

SolverName = Literal["l-bfgs-b", "fista"]
MAX_ITERATIONS = 3000
TIGHT_GAP = 1e-8  # f is accurate to about the root of the gap, and ``solve`` promises f to 1e-3
PROMISED_GAP = 1e-6  # above it ``solve`` tries harder, and then warns
STAGE_GAP = 1e-6  # of the eased problems on the way to a small lambda2
SYMMETRIC_FROM = 1e12  # times lambda2: larger lambda3 is the symmetric limit
LARGEST = 1e30  # of weights and entries: their fourth powers and products stay inside float64


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
    one_of("solver", solver, ("l-bfgs-b", "fista"))
    run = _lbfgsb if solver == "l-bfgs-b" else _fista
    best: Step | None = None
    iteration = 0

    def certify(point: Point) -> bool:
        nonlocal best, iteration
        primal, scale_upper, scale_lower = dual.primal(point)
        value = point.value if primal else 0.0  # no term of the objective is negative, so that 0 is a bound too
        gap = (primal - value) / primal if 0 < primal < math.inf else (math.inf if primal else 0.0)
        step = Step(iteration, value, primal, max(0.0, gap), point, scale_upper, scale_lower)
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
    optimum); penalty: "pointwise" or "operator". The problem is solved in units in which it is well scaled, so that the units of
    K and of the residuals do not matter. The relative gap aimed at is 1e-8. ``gap`` is a certificate: the optimum lies between
    ``value`` and ``value / (1 - gap)``. It can stay larger where b or lambda1 outweighs lambda2 by far, because the problem is
    then nearly a linear semidefinite program; above 1e-6 a RuntimeWarning says so. Raises InputError naming the argument.

    >>> solution = solve(np.eye(1), np.array([2.0]), 1, 0.1, 0.5, 1, "pointwise")
    >>> round(float(solution.f_upper[0]), 3), round(float(solution.f_lower[0]), 3)
    (4.0, 2.3)
    """
    one_of("penalty", penalty, ("pointwise", "operator"))
    b = number("b", b, "choose a number from 0 to 1e30", 0, LARGEST)
    lambda1 = number("lambda1", lambda1, "choose a number from 0 to 1e30", 0, LARGEST)
    lambda2 = number("lambda2", lambda2, "choose a number from 1e-30 to 1e30", 1 / LARGEST, LARGEST)
    lambda3 = number("lambda3", lambda3, "choose a number of 0 or more, or inf", 0, math.inf)
    gram, size, r, rms = _scaled(K, residuals)
    values, vectors = factor(gram)
    v = np.sqrt(values)[:, None] * vectors.T
    free = (r != 0) & (np.sum(v**2, axis=0) < 1e-12 * values[0])
    if free.any():
        raise InputError("K", f"has a zero row {int(np.argmax(free))} whose residual is not zero", "give a kernel with k(x, x) > 0")
    # f = rms^2 f' and A = (rms^2 / size) A' change no constraint and multiply the four terms by these factors
    square = rms**2 / size
    coupling = rms**4 if penalty == "pointwise" else square**2
    unit = lambda2 * square**2  # the new lambda2 is 1
    solved = _solve_scaled(Problem(v, r, b * rms**2 / unit, lambda1 * square / unit, 1.0, lambda3 * coupling / unit, penalty))
    if solved.gap > PROMISED_GAP:
        told = f"the gap is {solved.gap:.1e}, above {PROMISED_GAP:g}: lambda2 is small beside b and lambda1 in the units of K and the residuals"
        warnings.warn(told, RuntimeWarning, stacklevel=2)
    f_upper, f_lower = solved.operators.envelopes(v)
    return Solution(unit * solved.dual, rms**2 * f_upper, rms**2 * f_lower, solved.gap)


def _solve_scaled(problem: Problem) -> Fit:
    """The best certificate of: the problem itself, then, where that fails, its limit along a falling lambda2."""
    if problem.lambda3 > SYMMETRIC_FROM * problem.lambda2:
        # f_u - f_l is below float64's rounding there, and the limit's optimum differs by less than 1e-12 of itself
        problem = replace(problem, lambda3=math.inf)
    start = None
    if 10 * problem.lambda2 < problem.lambda3 < math.inf:
        start = fit(replace(problem, lambda3=math.inf), tolerance=TIGHT_GAP).multipliers
    best = fit(problem, tolerance=TIGHT_GAP, start=start)
    if best.gap <= PROMISED_GAP:
        return best
    lambda2, start = max(problem.b, problem.lambda1, problem.lambda2), None
    dual = problem.dual()
    while best.gap > PROMISED_GAP and lambda2 > problem.lambda2:
        lambda2 = max(lambda2 / 10, problem.lambda2)
        best, start = _better(best, dual, lambda2, start)
    return best


def _better(best: Fit, dual: Dual, lambda2: float, start: Multipliers | None) -> tuple[Fit, Multipliers]:
    """Solves with a larger lambda2 and takes what tightens the bracket of the problem itself; also the multipliers to go on from."""
    problem = dual.problem
    # in units in which the larger lambda2 is 1, in which every stage is equally well scaled
    eased = replace(problem, b=problem.b / lambda2, lambda1=problem.lambda1 / lambda2, lambda2=1.0, lambda3=problem.lambda3 / lambda2)
    solved = fit(eased, tolerance=STAGE_GAP if lambda2 > problem.lambda2 else TIGHT_GAP, start=None if start is None else start.times(1 / lambda2))
    found = solved.multipliers.times(lambda2)
    # shrunk multipliers push G below 0, which a small lambda2 asks for
    points = [dual.evaluate(dual.pack(found.times(1 - shrink))) for shrink in (0.0, *np.logspace(-12, -1, 34))]
    top = max(points, key=lambda point: point.value)
    c_upper, c_lower = solved.operators.c_upper, solved.operators.c_lower
    f_upper, f_lower = solved.operators.envelopes(problem.v)
    primal, scale_upper, scale_lower = dual.primal(replace(top, c_upper=c_upper, c_lower=c_lower, f_upper=f_upper, f_lower=f_lower))
    operators, multipliers, value = best.operators, best.multipliers, best.dual
    if primal < best.primal:
        operators = Operators(c_upper * math.sqrt(scale_upper), c_lower * math.sqrt(scale_lower))
    if top.value > best.dual:
        multipliers, value = dual.multipliers(top.x), top.value
    primal = min(primal, best.primal)
    gap = max(0.0, (primal - value) / primal) if math.isfinite(primal) else math.inf
    return Fit(operators, value, primal, gap, best.iterations + solved.iterations, multipliers), found


def _scaled(K: Any, residuals: Any) -> tuple[Array, float, Array, float]:
    """(K / size, its largest diagonal entry size, residuals / rms, their root mean square)."""
    k, r = array("K", K), array("residuals", residuals)
    if k.ndim != 2 or k.shape[0] != k.shape[1] or k.shape[0] == 0:
        raise InputError("K", f"has the shape {k.shape}", "give a square matrix (n, n)")
    if r.shape != (k.shape[0],):
        raise InputError("residuals", f"has the shape {r.shape} beside K of {k.shape}", f"give {k.shape[0]} numbers")
    size, largest = float(k.diagonal().max()), float(np.abs(r).max())
    if size <= 0:
        raise InputError("K", f"has the largest diagonal entry {size:.3g} and is not a kernel matrix", "give a positive semi-definite matrix")
    for name, scale in (("K", size), ("residuals", largest or 1.0)):
        if not 1 / LARGEST <= scale <= LARGEST:
            raise InputError(name, f"has the largest entry {scale:.3g}", "change its unit, so that it is between 1e-30 and 1e30")
    gram = k / size
    if not np.allclose(gram, gram.T, rtol=1e-8, atol=1e-10):
        raise InputError("K", "is not symmetric", "give a kernel matrix")
    rms = float(np.sqrt(np.mean(r**2))) or 1.0
    return (gram + gram.T) / 2, size, r / rms, rms
