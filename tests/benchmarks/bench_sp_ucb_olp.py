"""Cutting planes against the whole linear program, the default run of the page, and fifty seeds with intervals.

Both solvers must agree on the value to 1e-6 relative and on the mixture to 1e-2 (a live solve stops at a gap of 1e-6), or the benchmark fails.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from backends.contract import ContextSpec
from backends.runtime.context import RunContext
from backends.sp_ucb_olp import (
    Play,
    SaddlePointUCB,
    Terms,
    cutting_planes,
    default_slack,
    fluid_oracle,
    linear_program,
    price_bound,
    separate_resources,
)
from backends.sp_ucb_olp.card import Params
from backends.sp_ucb_olp.instances import SMALL_JOBS, Instance, synthetic_cluster
from backends.sp_ucb_olp.method import run
from backends.sp_ucb_olp.surplus import surplus_of_samples

SIZES = (200, 500, 1000, 2000)
VALUE_AGREES, MIXTURE_AGREES = 1e-6, 1e-2
REPEATS = 5
SEEDS = 50
HORIZON, EVERY = 2000, 20
BUDGET = np.array([0.1, 0.4])


def observed(n: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """n requests in all, half of each configuration of the first instance, as a run sees them."""
    drawn = separate_resources(2).requests(n // 2, np.random.default_rng(0))
    return [drawn.rewards[:, k] for k in range(2)], [drawn.use[:, k] for k in range(2)]


def solvers() -> Iterator[dict[str, Any]]:
    """One row a size: a live solve, started where the last one ended, against one program with a variable a request."""
    before: tuple[int, float] | None = None
    bonus = np.full(2, 0.02)
    for n in SIZES:
        earlier = cutting_planes(surplus_of_samples(*observed(n - EVERY)), BUDGET, bonus, 11.0)
        rewards, use = observed(n)
        ours, theirs = [], []
        for _ in range(REPEATS):
            began = time.perf_counter()
            fast = cutting_planes(surplus_of_samples(rewards, use), BUDGET, bonus, 11.0, start=earlier.restart())
            ours.append(time.perf_counter() - began)
            began = time.perf_counter()
            whole = linear_program(rewards, use, BUDGET, price_max=11.0, bonus=bonus)
            theirs.append(time.perf_counter() - began)
        apart, mixtures = abs(fast.value - whole.value) / max(1.0, abs(whole.value)), float(np.abs(fast.mixture - whole.mixture).max())
        if apart > VALUE_AGREES or mixtures > MIXTURE_AGREES:
            raise AssertionError(f"N = {n}: the values are {apart:.1e} apart, the mixtures {mixtures:.1e}")
        ours_s, peer_s = float(np.median(ours)), float(np.median(theirs))
        growth = math.log(ours_s / before[1]) / math.log(n / before[0]) if before else None
        before = (n, ours_s)
        note = f"values {apart:.0e} apart, mixtures {mixtures:.0e}"
        yield _row("saddle point, K = d = 2", n, ours_s, "one linear program (scipy, HiGHS)", peer_s, growth, note)


def whole_run() -> dict[str, Any]:
    """The page's default run, T = 2000."""
    params = Params()
    began = time.perf_counter()
    *_, last = run(params, RunContext(ContextSpec(params.seed), scope="bench"))
    return _row("default run, six policies, six seeds", HORIZON, time.perf_counter() - began, None, None, None, last.message)


def fifty_seeds(instance: Instance, budget: np.ndarray, alpha: float, what: str) -> dict[str, Any]:
    """Mean ratio of fifty seeds with its 95 % interval."""
    k, price_max = len(instance.names), price_bound(instance.r_max, budget)
    oracle = fluid_oracle(instance.surplus, budget, configurations=k, price_max=price_max)
    terms = Terms(k, budget, HORIZON, instance.r_max, instance.a_max, price_max, default_slack(HORIZON))
    began, found = time.perf_counter(), []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        play = Play(terms, SaddlePointUCB(terms, alpha), instance.requests(HORIZON, rng), rng.uniform(size=HORIZON), EVERY)
        play.advance(HORIZON)
        found.append(play.earned / (HORIZON * oracle.v_mix))
    each = (time.perf_counter() - began) / SEEDS
    half = 1.96 * float(np.std(found, ddof=1)) / math.sqrt(SEEDS)
    note = f"ratio {np.mean(found):.3f} ± {half:.3f} (95 %), sd {np.std(found, ddof=1):.3f}, least {np.min(found):.3f}; {SEEDS} seeds"
    return _row(f"{what}, α = {alpha:g}, one seed", HORIZON, each, None, None, None, note)


def rows() -> Iterator[dict[str, Any]]:
    """Solvers by size, the default run, fifty seeds at four scales of exploration on two workloads."""
    yield from solvers()
    yield whole_run()
    small = np.array([0.07, 0.086])
    for alpha in (0.0, 0.01, 0.1, 1.0):
        yield fifty_seeds(separate_resources(2), BUDGET, alpha, "separate resources")
        yield fifty_seeds(synthetic_cluster(SMALL_JOBS, 3), small, alpha, "small jobs")


def _row(work: str, size: int, ours_s: float, peer: str | None, peer_s: float | None, growth: float | None, note: str) -> dict[str, Any]:
    ratio = peer_s / ours_s if peer_s is not None else None
    found: dict[str, Any] = {"method": "sp-ucb-olp", "work": work, "size": size, "ours_s": ours_s, "peer": peer, "peer_s": peer_s, "ratio": ratio}
    return found | {"growth": growth, "note": note}
