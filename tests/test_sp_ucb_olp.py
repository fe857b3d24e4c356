"""SP-UCB-OLP against exact answers: closed forms, one linear program over all requests, quadrature."""

from __future__ import annotations

import subprocess
import sys

import cvxpy as cp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import backends.sp_ucb_olp as public
from backends.sp_ucb_olp import (
    Terms,
    confidence_radius,
    crossing_surpluses,
    cutting_planes,
    default_slack,
    empirical_surplus,
    fluid_oracle,
    linear_program,
    linear_surplus,
    price_bound,
    saddle_point,
    safe_budget,
    separate_resources,
    separate_resources_saddle,
    uniform_surplus,
)
from backends.sp_ucb_olp.instances import CLUSTER, SMALL_JOBS, synthetic_cluster
from backends.sp_ucb_olp.oracle import Oracle
from backends.sp_ucb_olp.surplus import Samples

Array = np.ndarray


def observed(configurations: int, resources: int, n: int, seed: int) -> tuple[list[Array], list[Array]]:
    """Random requests, a different number of each configuration."""
    rng = np.random.default_rng(seed)
    sizes = [n + 7 * k for k in range(configurations)]
    return [rng.uniform(0, 1, m) for m in sizes], [rng.uniform(0, 1, (m, resources)) for m in sizes]


def oracle_of(budget: list[float], configurations: int = 2, price_max: float = 20.0) -> Oracle:
    return fluid_oracle(separate_resources(configurations).surplus, np.array(budget), configurations=configurations, price_max=price_max)


# ---------------------------------------------------------------------------------------------------- the saddle point


@pytest.mark.parametrize(("configurations", "resources", "n", "seed"), [(1, 1, 1, 0), (2, 2, 40, 1), (3, 2, 300, 2), (4, 4, 120, 3), (4, 1, 200, 4)])
def test_cutting_planes_solve_the_linear_program(configurations: int, resources: int, n: int, seed: int) -> None:
    rewards, use = observed(configurations, resources, n, seed)
    budget, bonus = np.full(resources, 0.17), np.linspace(0.0, 0.05, configurations)
    fast = saddle_point(rewards, use, budget, price_max=7.0, bonus=bonus, tolerance=1e-10)
    whole = linear_program(rewards, use, budget, price_max=7.0, bonus=bonus)
    assert fast.value == pytest.approx(whole.value, abs=1e-9)
    assert fast.bound <= whole.value + 1e-9
    assert fast.gap <= 1e-9
    assert fast.mixture.sum() == pytest.approx(1.0)
    assert (fast.mixture >= 0).all()


def test_prices_and_mixture_agree_with_the_linear_program_where_they_are_unique() -> None:
    rewards, use = observed(2, 2, 1000, 0)
    use = [0.2 * a + np.eye(2)[k] for k, a in enumerate(use)]  # each configuration wants a resource of its own
    both = [solve(rewards, use, np.array([0.1, 0.3]), price_max=11.0, bonus=0.05) for solve in (saddle_point, linear_program)]
    np.testing.assert_allclose(both[0].mixture, both[1].mixture, atol=1e-6)
    np.testing.assert_allclose(both[0].prices, both[1].prices, atol=1e-3)
    assert both[0].mixture.min() > 0.05, "a mixture of both is what the duals are for"


def test_the_mixture_is_the_dual_of_the_problem_as_cvxpy_states_it() -> None:
    rewards, use = observed(3, 2, 60, 5)
    prices, z = cp.Variable(2, nonneg=True), cp.Variable()
    rows = [z >= cp.sum(cp.pos(r - a @ prices)) / len(r) for r, a in zip(rewards, use, strict=True)]
    budget = np.array([0.12, 0.2])
    value = cp.Problem(cp.Minimize(budget @ prices + z), [*rows, prices <= 9.0]).solve(solver=cp.CLARABEL)
    found = saddle_point(rewards, use, budget, price_max=9.0, tolerance=1e-10)
    assert found.value == pytest.approx(value, abs=1e-7)
    np.testing.assert_allclose(found.mixture, [float(row.dual_value) for row in rows], atol=1e-5)


def test_prices_stay_in_the_box_and_a_start_changes_nothing() -> None:
    rewards, use = observed(2, 2, 50, 6)
    free = saddle_point(rewards, use, np.full(2, 0.01), price_max=50.0, tolerance=1e-10)
    boxed = saddle_point(rewards, use, np.full(2, 0.01), price_max=0.1, tolerance=1e-10)
    assert free.prices.max() > 0.1
    assert (boxed.prices <= 0.1).all()
    assert boxed.value > free.value
    moved = saddle_point(rewards, use, np.full(2, 0.01), price_max=50.0, start=free.restart(), tolerance=1e-10)
    assert moved.value == pytest.approx(free.value, abs=1e-9)
    assert len(moved.tried) < len(free.tried) + len(free.restart()), "what carried weight before is a good start"


def test_equilibrium_feasibility_and_complementarity() -> None:
    law = synthetic_cluster(SMALL_JOBS, 3)
    budget = np.array([0.07, 0.086])
    found = fluid_oracle(law.surplus, budget, configurations=3, price_max=price_bound(3.0, budget))
    g, h = law.surplus(found.prices)
    assert (found.mixture @ h <= budget + 1e-5).all()
    assert found.prices @ (budget - found.mixture @ h) == pytest.approx(0.0, abs=1e-4)
    assert (g[found.mixture > 1e-6] >= g.max() - 1e-8).all()


# ---------------------------------------------------------------------------------------------------- closed forms


@pytest.mark.parametrize("budget", [[0.25, 0.25], [0.1, 0.4], [0.05, 0.6], [0.02, 0.1, 0.3], [0.1, 0.2, 0.3, 0.15]])
def test_separate_resources_meet_their_closed_form(budget: list[float]) -> None:
    v_mix, v_fix, prices, mixture = separate_resources_saddle(np.array(budget))
    found = oracle_of(budget, len(budget), price_max=60.0)
    assert found.v_mix == pytest.approx(v_mix, abs=1e-9)
    assert found.v_fix == pytest.approx(v_fix, abs=1e-9)
    np.testing.assert_allclose(found.prices, prices, atol=1e-5)
    np.testing.assert_allclose(found.mixture, mixture, atol=1e-5)


def test_the_figures_of_both_reference_budgets() -> None:
    equal, unequal = oracle_of([0.25, 0.25]), oracle_of([0.1, 0.4])
    assert (round(equal.v_mix, 6), round(equal.v_fix, 6), round(equal.v_mix / equal.v_fix, 3)) == (0.375, 0.21875, 1.714)
    assert (round(unequal.v_mix, 6), round(unequal.v_fix, 6)) == (0.375, 0.32)
    np.testing.assert_allclose(unequal.mixture, [0.2, 0.8], atol=1e-5)
    assert (0.5 * unequal.use.sum() > 0.1).all(), "equal weight would need more of resource 1 than there is"


def test_the_empirical_program_nears_the_closed_form() -> None:
    n = 20_000
    midpoints = (np.arange(n) + 0.5) / n
    use = [np.tile(row, (n, 1)) for row in np.eye(2)]
    found = saddle_point([midpoints, midpoints], use, np.array([0.1, 0.4]), price_max=11.0, tolerance=1e-10)
    assert found.value == pytest.approx(0.375, abs=1e-4)
    np.testing.assert_allclose(found.mixture, [0.2, 0.8], atol=1e-4)
    np.testing.assert_allclose(found.prices, [0.5, 0.5], atol=1e-4)


def test_crossing_surpluses() -> None:
    law, budget = crossing_surpluses(), np.array([0.3])
    found = fluid_oracle(law.surplus, budget, configurations=2, price_max=price_bound(1.0, budget))
    p = (1 / np.sqrt(2) - 0.5) / (1 / np.sqrt(2) - 0.25)
    assert found.prices[0] == pytest.approx(p, abs=1e-6)
    assert found.prices[0] == pytest.approx(0.453082, abs=1e-6)
    np.testing.assert_allclose(law.surplus(found.prices)[1][:, 0], [0.546918, 0.193365], atol=1e-5)
    assert found.mixture[0] == pytest.approx(0.301610, abs=1e-5)
    assert found.v_mix == pytest.approx(0.285484, abs=1e-6)
    assert found.v_fix == pytest.approx(0.255, abs=1e-9)
    assert found.fixed == 0


def test_uniform_surplus_is_the_integral() -> None:
    high, use, prices = np.array([1.0, 0.7]), np.array([[0.5, 0.1], [0.2, 0.9]]), np.array([0.6, 0.3])
    g, h = uniform_surplus(high, use, prices)
    for k in range(2):
        s = use[k] @ prices
        assert g[k] == pytest.approx(quad(lambda r, s=s: max(r - s, 0.0), 0, high[k], points=[s])[0] / high[k], abs=1e-9)
        np.testing.assert_allclose(h[k], use[k] * (1 - s / high[k]))


@pytest.mark.parametrize("prices", [[0.0, 0.0], [0.4, 0.2], [1.3, 2.0], [2.5, 4.0]])
def test_linear_surplus_is_the_integral_over_the_noise(prices: list[float]) -> None:
    c, x, p = np.array([2.0, 0.5]), np.array([0.011, 0.013]), np.array(prices)
    g, h = linear_surplus(c[None], x[None], np.ones(1), p)
    price = x @ p

    def reward(noise: float) -> float:
        return max(float(c @ x) + noise, 0.01)

    kinks = [float(0.01 - c @ x), float(price - c @ x)]
    mean = quad(lambda e: max(reward(e) - price, 0.0) * norm.pdf(e, scale=0.1), -1, 1, points=kinks, limit=200)[0]
    worth = quad(lambda e: float(reward(e) > price) * norm.pdf(e, scale=0.1), -1, 1, points=kinks, limit=200)[0]
    assert g[0] == pytest.approx(mean, abs=1e-7)
    np.testing.assert_allclose(h[0], x * worth, atol=1e-7)


@pytest.mark.parametrize("law", [CLUSTER, SMALL_JOBS])
def test_quadrature_of_the_generated_jobs_meets_their_draws(law: object) -> None:
    made = synthetic_cluster(law, 3)  # type: ignore[arg-type]
    assert made.weights.sum() == pytest.approx(1.0)
    drawn = made.requests(400_000, np.random.default_rng(0))
    prices = np.array([1.2, 1.1])
    g, h = made.surplus(prices)
    for k in range(3):
        mean, use = empirical_surplus(drawn.rewards[:, k], drawn.use[:, k], prices)
        assert g[k] == pytest.approx(mean, abs=1.5e-3)
        np.testing.assert_allclose(h[k], use, atol=1.5e-3)


def test_generated_clusters_have_the_reference_saddle_points() -> None:
    law = synthetic_cluster(SMALL_JOBS, 3)
    budget = 0.35 * law.weights @ law.jobs
    found = fluid_oracle(law.surplus, budget, configurations=3, price_max=price_bound(3.0, budget))
    assert found.v_mix == pytest.approx(0.285, abs=0.006)  # the reference drew 6 samples of jobs
    np.testing.assert_allclose(found.mixture, [0.505, 0.495, 0.0], atol=0.01)


# ---------------------------------------------------------------------------------------------------- constants and invariants


def test_the_radius() -> None:
    beta = confidence_radius(np.array([25, 25]), alpha=0.1, horizon=1000, resources=2, r_max=1, a_max=1, price_max=price_bound(1, np.array([0.1, 0.4])))
    np.testing.assert_allclose(beta, 0.129780, atol=1e-6)
    assert (beta[0] / 0.1) ** 2 * 25 == pytest.approx(42.107156, abs=1e-5)
    few = confidence_radius(np.array([0, 1, 4]), alpha=0.1, horizon=1000, resources=2, r_max=1, a_max=1, price_max=11)
    assert few[0] == few[1] == pytest.approx(2 * few[2])
    assert (confidence_radius(np.array([1]), alpha=100.0, horizon=1000, resources=2, r_max=2, a_max=1, price_max=11) == 20).all(), "the cap is 10 R_max"


def test_slack_and_price_bound() -> None:
    assert [round(default_slack(t), 3) for t in (1000, 2000, 5000)] == [0.083, 0.062, 0.041]
    assert price_bound(2.0, np.array([0.5, 0.25])) == 9.0
    np.testing.assert_allclose(safe_budget(np.array([0.5, 0.25]), 0.1), [0.45, 0.225])


def test_v_mix_is_concave_and_does_not_fall() -> None:
    values = [oracle_of([b, 0.2]).v_mix for b in np.linspace(0.05, 1.2, 12)]
    steps = np.diff(values)
    assert (steps >= -1e-9).all()
    assert (np.diff(steps) <= 1e-9).all()


def test_one_configuration_cannot_mix() -> None:
    found = oracle_of([0.3], 1)
    assert found.v_mix == pytest.approx(found.v_fix, abs=1e-9)
    assert found.mixture.tolist() == [1.0]


def test_a_budget_that_is_not_scarce_has_no_price() -> None:
    found = oracle_of([1.2, 1.1])
    assert found.v_mix == pytest.approx(0.5, abs=1e-9)
    np.testing.assert_allclose(found.prices, 0.0, atol=1e-9)


def test_v_mix_is_at_least_v_fix() -> None:
    rng = np.random.default_rng(3)
    for _ in range(6):
        high, use, budget = rng.uniform(0.3, 1, 3), rng.uniform(0, 1, (3, 2)), rng.uniform(0.05, 0.4, 2)
        found = fluid_oracle(lambda p, high=high, use=use: uniform_surplus(high, use, p), budget, configurations=3, price_max=30.0)
        assert found.v_mix >= found.v_fix - 1e-9
        assert (found.use <= budget + 1e-4).all()


def test_scale_changes_units_and_no_decision() -> None:
    rewards, use = observed(2, 2, 200, 8)
    plain = saddle_point(rewards, use, np.full(2, 0.1), price_max=5.0, bonus=0.02, tolerance=1e-10)
    scaled = saddle_point([3 * r for r in rewards], use, np.full(2, 0.1), price_max=15.0, bonus=0.06, tolerance=1e-10)
    assert scaled.value == pytest.approx(3 * plain.value, abs=1e-8)
    np.testing.assert_allclose(scaled.prices, 3 * plain.prices, atol=1e-5)
    np.testing.assert_allclose(scaled.mixture, plain.mixture, atol=1e-5)


# ---------------------------------------------------------------------------------------------------- input


BAD = [
    (lambda: saddle_point([], [], np.ones(1), price_max=1.0), "one entry a configuration"),
    (lambda: saddle_point([np.ones(2)], [np.ones((3, 1))], np.ones(1), price_max=1.0), "rewards must be"),
    (lambda: saddle_point([np.array([-1.0])], [np.ones((1, 1))], np.ones(1), price_max=1.0), "not negative"),
    (lambda: saddle_point([np.array([np.nan])], [np.ones((1, 1))], np.ones(1), price_max=1.0), "finite"),
    (lambda: saddle_point([np.ones(1)], [-np.ones((1, 1))], np.ones(1), price_max=1.0), "not negative"),
    (lambda: saddle_point([np.ones(1)], [np.ones((1, 2))], np.ones(1), price_max=1.0), "as the budget has 1"),
    (lambda: saddle_point([np.ones(1)], [np.ones((1, 1))], np.zeros(1), price_max=1.0), "positive"),
    (lambda: saddle_point([np.ones(1)], [np.ones((1, 1))], np.array([np.inf]), price_max=1.0), "finite"),
    (lambda: saddle_point([np.ones(1)], [np.ones((1, 1))], np.ones(1), price_max=0.0), "price_max"),
    (lambda: saddle_point([np.ones(1)], [np.ones((1, 1))], np.ones(1), price_max=1.0, bonus=-1.0), "bonus"),
    (lambda: saddle_point([np.ones(1)], [np.ones((1, 1))], np.ones(1), price_max=1.0, start=np.ones(3)), "start"),
    (lambda: linear_program([np.ones(1)], [np.ones((1, 1))], -np.ones(1), price_max=1.0), "positive"),
    (lambda: empirical_surplus(np.ones(1), np.ones((1, 1)), np.array([-1.0])), "prices"),
    (lambda: uniform_surplus(np.array([0.0]), np.ones((1, 1)), np.zeros(1)), "high"),
    (lambda: fluid_oracle(separate_resources(1).surplus, np.array([0.0]), configurations=1, price_max=1.0), "positive"),
    (lambda: confidence_radius(np.ones(1), alpha=-0.1, horizon=10, resources=1, r_max=1, a_max=1, price_max=1), "alpha"),
    (lambda: confidence_radius(np.array([-1]), alpha=0.1, horizon=10, resources=1, r_max=1, a_max=1, price_max=1), "counts"),
    (lambda: confidence_radius(np.ones(1), alpha=0.1, horizon=10, resources=1, r_max=0, a_max=1, price_max=1), "r_max"),
    (lambda: confidence_radius(np.ones(1), alpha=0.1, horizon=0, resources=1, r_max=1, a_max=1, price_max=1), "horizon"),
    (lambda: price_bound(1.0, np.array([0.2, 0.0])), "positive"),
    (lambda: safe_budget(np.ones(1), 1.0), "slack"),
    (lambda: separate_resources(0), "at least 1"),
    (lambda: separate_resources_saddle(np.array([0.7, 0.6])), "at most 1"),
    (lambda: Terms(2, np.ones(2), 2, 1.0, 1.0, 2.0, 0.1), "horizon must be at least 3"),
    (lambda: Terms(0, np.ones(2), 20, 1.0, 1.0, 2.0, 0.1), "at least 1 configuration"),
    (lambda: Terms(2, np.ones(2), 20, 1.0, 1.0, 2.0, -0.1), "slack"),
]


@pytest.mark.parametrize(("call", "words"), BAD, ids=[words for _, words in BAD])
def test_bad_input_is_refused_in_words(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()  # type: ignore[operator]


def test_samples_are_kept_in_order_while_they_grow() -> None:
    rng = np.random.default_rng(0)
    samples, chosen, rewards, use = Samples(2, 3), rng.integers(0, 2, 500), rng.uniform(size=500), rng.uniform(size=(500, 3))
    for start in range(0, 500, 37):
        part = slice(start, start + 37)
        samples.add(chosen[part], rewards[part], use[part])
    kept_rewards, kept_use = samples.first(samples.counts)
    for k in range(2):
        np.testing.assert_array_equal(kept_rewards[k], rewards[chosen == k])
        np.testing.assert_array_equal(kept_use[k], use[chosen == k])


def test_a_surplus_of_any_kind_can_be_solved() -> None:
    found = cutting_planes(lambda p: (np.array([0.5 * max(0.0, 1 - p[0]) ** 2]), np.array([[max(0.0, 1 - p[0])]])), np.array([0.4]), np.zeros(1), 5.0)
    assert found.value == pytest.approx(0.4 - 0.08, abs=1e-6)


def test_every_public_name_is_there() -> None:
    for name in public.__all__:
        assert getattr(public, name).__doc__


def test_the_solver_says_nothing_on_standard_output() -> None:
    call = "saddle_point([np.ones(3)], [np.ones((3, 1))], np.ones(1), price_max=2.0)"
    code = f"import numpy as np; from backends.sp_ucb_olp import saddle_point; {call}; print('end')"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert told.stdout == "end\n"
