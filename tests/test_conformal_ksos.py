"""Oracles of conformal-ksos: the tables of section 6 of its card, closed forms, an SDP solver, and the promise itself by repetition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from backends.conformal_ksos import conformal_quantile, distance_covariance, fit_band, solve
from backends.conformal_ksos.card import Params
from backends.conformal_ksos.conformal import HalfWidths, clopper_pearson, rank_needed
from backends.conformal_ksos.cross_validation import Settings, Training, folds, held_out, larger, select
from backends.conformal_ksos.data import Noise, generate, ideal_band, shortest_interval
from backends.conformal_ksos.dual import Problem
from backends.conformal_ksos.kernel import Features, factor, matern52
from backends.conformal_ksos.rows import load
from backends.conformal_ksos.selection import Criterion, HeldOut, choose_symmetry
from backends.conformal_ksos.solver import fit
from backends.contract import InputError

INF = math.inf
TWELVE = np.linspace(-1, 1, 12)[:, None]
RESIDUALS = np.array([0.3, -0.1, 0.5, -0.4, 0.9, -0.2, 1.2, -0.6, 0.7, -0.3, 1.5, -0.2])
GRAM = matern52(TWELVE, TWELVE, 0.5) + 1e-8 * np.eye(12)
WEIGHTS = (1.0, 0.1, 0.1)  # b, lambda1, lambda2 of the table
TABLE = {
    "pointwise": {0.1: 2.465679, 1: 3.318798, 10: 4.049316, 1000: 4.228221},
    "operator": {0.1: 2.896106, 1: 3.937527, 10: 4.198146, 1000: 4.230942},
}


# the dual against closed forms, the table and an SDP solver


@pytest.mark.parametrize(("lambda3", "f_lower"), [(0, 0), (0.1, 0), (0.1375, 0), (1, 2.3), (100, 3.974627)])
@pytest.mark.parametrize("penalty", ["pointwise", "operator"])
def test_one_row_has_a_closed_form(penalty: Any, lambda3: float, f_lower: float) -> None:
    found = solve(np.eye(1), np.array([2.0]), 1, 0.1, 0.5, lambda3, penalty)
    assert found.f_upper[0] == pytest.approx(4, abs=1e-3)
    assert found.f_lower[0] == pytest.approx(f_lower, abs=1e-3)
    mirrored = solve(np.eye(1), np.array([-2.0]), 1, 0.1, 0.5, lambda3, penalty)
    assert mirrored.f_lower[0] == pytest.approx(4, abs=1e-3)
    assert mirrored.f_upper[0] == pytest.approx(f_lower, abs=1e-3)


@pytest.mark.parametrize(("penalty", "lambda3", "value"), [(p, l3, v) for p, row in TABLE.items() for l3, v in row.items()])
def test_twelve_rows_have_the_optimum_of_the_table(penalty: Any, lambda3: float, value: float) -> None:
    found = solve(GRAM, RESIDUALS, *WEIGHTS, lambda3, penalty)
    assert found.value == pytest.approx(value, rel=1e-6)
    assert found.gap < 1e-6
    assert np.all(found.f_upper[RESIDUALS > 0] >= RESIDUALS[RESIDUALS > 0] ** 2 * (1 - 1e-9))
    assert np.all(found.f_lower[RESIDUALS <= 0] >= RESIDUALS[RESIDUALS <= 0] ** 2 * (1 - 1e-9))


def test_envelopes_have_the_means_of_the_table() -> None:
    found = solve(GRAM, RESIDUALS, *WEIGHTS, 1, "pointwise")
    assert found.f_upper.mean() == pytest.approx(1.03617, abs=1e-3)
    assert found.f_lower.mean() == pytest.approx(0.41906, abs=1e-3)


@pytest.mark.parametrize("penalty", ["pointwise", "operator"])
def test_both_limits_are_exact(penalty: Any) -> None:
    symmetric = solve(GRAM, RESIDUALS, *WEIGHTS, INF, penalty)
    assert symmetric.value == pytest.approx(2 * 2.115638, rel=1e-6)
    np.testing.assert_array_equal(symmetric.f_upper, symmetric.f_lower)
    assert solve(GRAM, RESIDUALS, *WEIGHTS, 1e6, penalty).value == pytest.approx(symmetric.value, rel=1e-5)
    separate = solve(GRAM, RESIDUALS, *WEIGHTS, 0, penalty)
    sides = [solve(GRAM, np.where(side, RESIDUALS, 0), *WEIGHTS, 0, penalty) for side in (RESIDUALS > 0, RESIDUALS <= 0)]
    assert separate.value == pytest.approx(sides[0].value + sides[1].value, rel=1e-6)
    assert solve(GRAM, RESIDUALS, *WEIGHTS, 1e-7, penalty).value == pytest.approx(separate.value, rel=1e-5)


def semidefinite(v: np.ndarray, residuals: np.ndarray, b: float, lambda1: float, lambda2: float, lambda3: float, penalty: str) -> float:
    """The primal in cvxpy, solved by clarabel."""
    cp = pytest.importorskip("cvxpy")
    rank, n = v.shape
    upper, lower = cp.Variable((rank, rank), PSD=True), cp.Variable((rank, rank), PSD=True)
    f_upper, f_lower = (cp.sum(cp.multiply(v, a @ v), axis=0) for a in (upper, lower))
    coupling = cp.sum_squares(f_upper - f_lower) / n if penalty == "pointwise" else cp.sum_squares(upper - lower)
    square = cp.sum_squares(upper) + cp.sum_squares(lower)
    cost = b / n * cp.sum(f_upper + f_lower) + lambda1 * (cp.trace(upper) + cp.trace(lower)) + lambda2 * square + lambda3 * coupling
    above, below = np.flatnonzero(residuals > 0), np.flatnonzero(residuals <= 0)
    problem = cp.Problem(cp.Minimize(cost), [f_upper[above] >= residuals[above] ** 2, f_lower[below] >= residuals[below] ** 2])
    return float(problem.solve(solver=cp.CLARABEL))


@pytest.mark.parametrize("penalty", ["pointwise", "operator"])
def test_the_optimum_is_that_of_an_sdp_solver(penalty: Any) -> None:
    values, vectors = factor(GRAM)
    reference = semidefinite(np.sqrt(values)[:, None] * vectors.T, RESIDUALS, *WEIGHTS, 3.0, penalty)
    assert solve(GRAM, RESIDUALS, *WEIGHTS, 3.0, penalty).value == pytest.approx(reference, rel=1e-5)


@pytest.mark.parametrize("lambda3", [0.0, 1.0, 1000.0, INF])
@pytest.mark.parametrize("penalty", ["pointwise", "operator"])
def test_gradient_is_that_of_the_value(penalty: Any, lambda3: float) -> None:
    values, vectors = factor(GRAM)
    dual = Problem(np.sqrt(values)[:, None] * vectors.T, RESIDUALS, *WEIGHTS, lambda3, penalty).dual()
    rng = np.random.default_rng(1)
    x = dual.start() + rng.uniform(0.1, 0.4, dual.start().size)
    along = rng.normal(size=x.size)
    step = 1e-5
    slope = (dual.evaluate(x + step * along).value - dual.evaluate(x - step * along).value) / (2 * step)
    assert float(dual.evaluate(x).gradient @ along) == pytest.approx(slope, rel=1e-5)
    packed = dual.pack(dual.multipliers(x))
    np.testing.assert_allclose(packed, x, atol=1e-10)


@pytest.mark.parametrize("lambda3", [0.0, 1.0, 100.0, INF])
@pytest.mark.parametrize("penalty", ["pointwise", "operator"])
def test_both_solvers_agree_and_certify(penalty: Any, lambda3: float) -> None:
    values, vectors = factor(GRAM)
    problem = Problem(np.sqrt(values)[:, None] * vectors.T, RESIDUALS, *WEIGHTS, lambda3, penalty)
    quasi_newton, gradient = fit(problem, tolerance=1e-6), fit(problem, tolerance=1e-4, solver="fista")
    assert gradient.gap <= 1e-4
    assert quasi_newton.gap <= 1e-6
    for solved in (quasi_newton, gradient):
        assert solved.dual <= quasi_newton.primal * (1 + 1e-12)
        assert solved.primal >= quasi_newton.dual * (1 - 1e-12)
        spectra = solved.operators.spectra()
        assert all(np.all(s >= 0) and np.all(np.diff(s) <= 1e-12) for s in spectra)


def test_residuals_on_one_side_and_ties() -> None:
    one_sided = solve(GRAM, np.abs(RESIDUALS), *WEIGHTS, 0, "pointwise")
    assert np.all(one_sided.f_lower < 1e-9)
    coupled = solve(GRAM, np.abs(RESIDUALS), *WEIGHTS, 10, "pointwise")
    assert coupled.f_lower.mean() > 0.1
    assert coupled.gap < 1e-5
    twice = np.r_[TWELVE, TWELVE]
    tied = solve(matern52(twice, twice, 0.5), np.r_[RESIDUALS, RESIDUALS], *WEIGHTS, 1, "pointwise")
    assert tied.value == pytest.approx(TABLE["pointwise"][1], rel=1e-5)  # means over rows do not change
    zero = solve(GRAM, np.zeros(12), *WEIGHTS, 1, "pointwise")
    assert zero.value == pytest.approx(0, abs=1e-9)
    assert zero.gap == 0


def test_features_reproduce_the_kernel() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    features = Features.of(x, 1.0)
    np.testing.assert_allclose(features(x), features.v, atol=1e-8)
    assert features.share >= 0.9999
    np.testing.assert_allclose(features.v.T @ features.v, matern52(x, x, 1.0), atol=5e-3)


# conformal calibration


def test_quantile_is_the_exact_order_statistic() -> None:
    scores = np.random.default_rng(0).permutation(np.arange(1.0, 101.0))
    assert conformal_quantile(scores, 0.1) == 91  # ceil(0.9 * 101)
    assert conformal_quantile(scores[:9], 0.1) == scores[:9].max()
    assert conformal_quantile(scores[:8], 0.1) == INF
    assert conformal_quantile([], 0.1) == INF
    assert conformal_quantile([2.0, 2.0, 2.0], 0.5) == 2
    assert [rank_needed(n, 0.1) for n in (9, 19, 29, 99)] == [9, 18, 27, 90]
    for bad in ({"scores": [math.nan], "alpha": 0.1}, {"scores": [1.0], "alpha": 0.0}, {"scores": [1.0], "alpha": 1.0}):
        with pytest.raises(InputError):
            conformal_quantile(**bad)


def test_clopper_pearson_inverts_the_binomial_tails() -> None:
    from scipy.stats import binom

    low, high = clopper_pearson(np.array([0, 7, 10, 0]), np.array([10, 10, 10, 0]))
    assert low[0] == 0
    assert high[2] == 1
    assert np.isnan(low[3])
    assert binom.sf(6, 10, low[1]) == pytest.approx(0.025)
    assert binom.cdf(7, 10, high[1]) == pytest.approx(0.025)


def simulate(noise: Noise, lambda3: float, seed: int, n_test: int = 2000) -> tuple[float, float, float, float]:
    """(coverage, width in residual sds, miss above, miss below) of the card's simulation: n = 150, n_c = 200, length-scale 0.8."""
    drawn = generate(noise, 350 + n_test, np.random.default_rng(seed))
    residuals = drawn.y - drawn.prediction
    sd = float(np.std(residuals[:150]))
    features = Features.of(drawn.x[:150, None], 0.8)
    solved = fit(Settings().problem(features.v, residuals[:150] / sd, lambda3), tolerance=1e-4)
    f_upper, f_lower = solved.operators.envelopes(features(drawn.x[150:, None]))
    widths = HalfWidths.of(f_upper, f_lower, 1.0, 1e-3)
    calibration, test = (HalfWidths(widths.upper[part], widths.lower[part]) for part in (slice(200), slice(200, None)))
    quantile = conformal_quantile(calibration.scores(residuals[150:350] / sd), 0.1)
    report = test.band(np.zeros(n_test), quantile).report(residuals[350:] / sd)
    assert report.mean_width is not None
    return report.coverage, report.mean_width, report.miss_above, report.miss_below


@pytest.mark.parametrize(
    ("noise", "separate", "symmetric"),
    [("split-normal", 3.24, 4.36), ("gaussian", 3.38, 3.26), ("exponential", 3.98, 3.09), ("biased", 3.64, 4.66)],
)
def test_widths_are_those_of_the_simulation_table(noise: Noise, separate: float, symmetric: float) -> None:
    widths = {l3: np.mean([simulate(noise, l3, seed)[1] for seed in range(8)]) for l3 in (1e-3, 1000.0)}
    # 8 seeds on either side: two standard errors of the mean of widths that vary by about 12 % are 12 % of the difference
    assert widths[1e-3] == pytest.approx(separate, rel=0.12)
    assert widths[1000.0] == pytest.approx(symmetric, rel=0.12)
    assert (widths[1e-3] < widths[1000.0]) == (separate < symmetric)


def test_misses_move_above_with_symmetry() -> None:
    runs = np.array([[simulate("split-normal", l3, seed) for seed in range(6)] for l3 in (1e-3, 1000.0)]).mean(axis=1)
    assert runs[0, 2] == pytest.approx(0.062, abs=0.025)
    assert runs[0, 3] == pytest.approx(0.031, abs=0.02)
    assert runs[1, 2] == pytest.approx(0.090, abs=0.025)
    assert runs[1, 3] <= 0.003


@pytest.mark.parametrize("lambda3", [0.0, 1.0, INF])
def test_coverage_holds_by_repetition(lambda3: float) -> None:
    runs, n_test, n_calibration = 30, 500, 200
    coverage = np.mean([simulate("split-normal", lambda3, 100 + seed, n_test)[0] for seed in range(runs)])
    k = rank_needed(n_calibration, 0.1)
    expected = k / (n_calibration + 1)
    beta_variance = expected * (1 - expected) / (n_calibration + 2)
    spread = math.sqrt(expected * (1 - expected) / (runs * n_test) + beta_variance / runs)
    assert coverage == pytest.approx(expected, abs=3 * spread)


def test_ideal_bands() -> None:
    assert np.diff(shortest_interval("split-normal", 0.1))[0] == pytest.approx(3.290, abs=1e-3)
    drawn = generate("exponential", 200_000, np.random.default_rng(0))
    lower, upper = ideal_band(drawn.x, "exponential", 0.1)
    assert np.mean((drawn.y >= lower) & (drawn.y <= upper)) == pytest.approx(0.9, abs=0.003)
    assert ideal_band(np.zeros(1), "exponential", 0.1)[0][0] == pytest.approx(-0.2)


def test_engel_has_the_figures_of_the_card() -> None:
    rows = load(Params(data="engel"))
    x, y = rows.x, rows.y
    found: dict[str, list[float]] = {"constant": [], "ksos": [], "coverage": []}
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(235)
        train, calibration, test = order[:100], order[100:175], order[175:]
        slope, intercept = np.polyfit(x[train, 0], y[train], 1)
        residuals = y - intercept - slope * x[:, 0]
        training = Training.of(x[train], residuals[train])
        features = Features.of(training.z, 1.0)
        solved = fit(Settings().problem(features.v, training.r, 10.0), tolerance=1e-3)
        widths = HalfWidths.of(*solved.operators.envelopes(features(training.standardise(x))), training.residual_sd, 1e-3)
        quantile = conformal_quantile(widths.scores(residuals)[calibration], 0.1)
        report = HalfWidths(widths.upper[test], widths.lower[test]).band(np.zeros(60), quantile).report(residuals[test])
        found["constant"].append(2 * conformal_quantile(np.abs(residuals[calibration]), 0.1))
        found["ksos"].append(report.mean_width or math.nan)
        found["coverage"].append(report.coverage)
    means = {name: float(np.mean(values)) for name, values in found.items()}
    assert means["constant"] == pytest.approx(345, rel=0.06)
    assert means["ksos"] == pytest.approx(306, rel=0.08)
    assert means["coverage"] == pytest.approx(0.91, abs=3 * math.sqrt(0.09 / (20 * 60) + 0.09 / 77 / 20))


# selection


def test_distance_covariance_has_the_value_of_the_card() -> None:
    assert distance_covariance([1, 2, 4, 8], [1, 3, 2, 5]) == pytest.approx(2.046875, abs=1e-12)


def test_distance_covariance_is_the_energy_hsic() -> None:
    # dcor would be one more witness, but importing it compiles for over half a minute
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(40, 3)), rng.normal(size=(40, 2)).round(1)

    def energy(x: np.ndarray) -> np.ndarray:
        size = np.linalg.norm(x, axis=1)
        return size[:, None] + size[None] - np.linalg.norm(x[:, None] - x[None], axis=2)

    h = np.eye(40) - 1 / 40
    assert distance_covariance(a, b) == pytest.approx(np.trace(energy(a) @ h @ energy(b) @ h) / 40**2, rel=1e-10)
    for bad in (([1, 2], [1, 2, 3]), ([math.nan, 1], [1, 2]), (np.zeros((2, 2, 2)), [1, 2])):
        with pytest.raises(InputError):
            distance_covariance(*bad)


def test_permutation_rule_prefers_symmetry_unless_the_data_object() -> None:
    rng = np.random.default_rng(0)
    x, residuals = rng.normal(size=(120, 1)), rng.normal(size=120)
    criterion = Criterion("dcov", x, residuals)
    noise = np.abs(rng.normal(size=(6, 120)))
    same = HeldOut(np.arange(120), np.tile(noise[:1], (6, 1)), noise)
    assert choose_symmetry(criterion, same, np.random.default_rng(1))[0] == 0
    telling = noise.copy()
    telling[:3] += 3 * (residuals > 0)  # the symmetric end gives the side away
    chosen, p_values = choose_symmetry(criterion, HeldOut(np.arange(120), telling, noise), np.random.default_rng(1))
    assert chosen >= 3
    assert np.all(p_values[:3] <= 0.05)
    assert p_values.max() == 1


def automatic(noise: Noise, seed: int) -> float:
    drawn = generate(noise, 150, np.random.default_rng(seed))
    training = Training.of(drawn.x[:, None], drawn.y - drawn.prediction)
    parts = {1.0: [held_out(training, 1.0, held, Settings()) for held in folds(150, seed)]}
    return select(training, parts, Settings(), seed).lambda3


def test_automatic_choice_sees_skew_and_symmetry() -> None:
    assert max(automatic("split-normal", seed) for seed in range(4)) <= 1
    assert min(automatic("gaussian", seed) for seed in range(4)) >= 1


def test_grid_above_a_value_is_where_its_fit_starts() -> None:
    assert larger(0.0) == (INF, 100, 10, 1, 0.1)
    assert larger(INF) == ()
    assert larger(1e6) == (INF,)


# fit_band on one's own data


def test_fit_band_covers_new_rows() -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (1400, 2))
    y = x[:, 0] + (0.2 + np.abs(x[:, 0])) * rng.exponential(size=1400)
    band = fit_band(x[:400], y[:400], symmetry=1.0, length_scale=1.0)
    edges = band.predict(x[400:])
    assert np.mean((y[400:] >= edges.lower) & (y[400:] <= edges.upper)) == pytest.approx(0.9, abs=0.08)
    assert band.lambda3 == 1
    assert band.gap <= 1e-3
    assert band.coverage == pytest.approx(145 / 161)
    known = fit_band(x[:100], y[:100], predictor=lambda rows: rows[:, 0], symmetry="symmetric", length_scale=1.0, calibration_fraction=0.08)
    assert known.quantile == INF
    assert known.coverage == 1
    assert np.all(np.isinf(known.predict(x[:3]).upper))
