"""The bounds of voronoi-pc against values known otherwise: closed forms, quadrature, the figures of section 6 of its card."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate
from scipy.stats import norm

from backends.voronoi_pc import (
    UNIFORM,
    Evidence,
    Experts,
    Refinement,
    VoronoiSum,
    bisect,
    conditional_bounds,
    exact_mass,
    half_spaces,
    mass_bounds,
    merged,
    refine,
    slice_mass,
)
from backends.voronoi_pc.refinement import ROUNDING
from backends.voronoi_pc.scenes import random_centroids, two_centroids


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def pair(centroids: list[list[float]]) -> VoronoiSum:
    """Two unit normals at their centroids, equal weights."""
    return VoronoiSum(tensor(centroids), tensor([0.5, 0.5]), Experts.of(centroids, [[1.0, 1.0]] * 2))


def three() -> VoronoiSum:
    """The three slanted cells of section 6."""
    experts = Experts.of([[0.2, -0.1], [1.8, 1.2], [-1.0, 1.5]], [[1.0, 0.6], [0.7, 0.9], [0.8, 0.5]])
    return VoronoiSum(tensor([[0, 0], [2, 1], [-1, 2]]), tensor([0.5, 0.3, 0.2]), experts)


DIAGONAL = [[-1.0, -1.0], [1.0, 1.0]]


@pytest.mark.parametrize(("depth", "lower", "upper"), [(2, 0.707860, 0.974829), (8, 0.871972, 0.951546), (12, 0.910999, 0.930486), (16, 0.918879, 0.923745)])
def test_bisection_of_the_diagonal_wall_gives_the_cards_bounds(depth: int, lower: float, upper: float) -> None:
    found = bisect(pair(DIAGONAL).region(), depth, [-6.0, -6.0], [6.0, 6.0])
    assert (found.lower, found.upper) == pytest.approx((lower, upper), abs=2e-6)


@pytest.mark.parametrize(("splits", "lower", "upper"), [(100, 0.8783, 0.9557), (300, 0.9095, 0.9346), (1000, 0.9176, 0.9254)])
def test_best_first_from_the_whole_plane_gives_the_cards_bounds(splits: int, lower: float, upper: float) -> None:
    found = refine(pair(DIAGONAL).region(), splits)
    assert found.lower <= norm.cdf(math.sqrt(2)) <= found.upper
    assert (found.lower, found.upper) == pytest.approx((lower, upper), abs=2e-3)


@pytest.mark.parametrize("rule", ["extent", "cycle", "steepest"])
def test_every_rule_holds_the_exact_mass_and_only_tightens(rule: str) -> None:
    node = three()
    made = Refinement(node.region(), rule=rule)  # type: ignore[arg-type]
    for _ in made.run(1500):
        pass
    history = made.bounds().history.numpy()
    assert (np.diff(history[:, 1]) >= 0).all()
    assert (np.diff(history[:, 2]) <= 0).all()
    assert ((history[:, 1] <= 0.855232) & (history[:, 2] >= 0.855231)).all()
    assert history[-1, 2] - history[-1, 1] < 0.03


def test_the_exact_slices_give_the_cards_values() -> None:
    node = three()
    z = exact_mass(node)
    assert z == pytest.approx(0.855232, abs=1e-6)
    assert float(slice_mass(node, 0, [0.5])[0]) == pytest.approx(0.198562, abs=1e-6)
    assert float(slice_mass(node, 0, [0.5])[0]) / z == pytest.approx(0.232173, abs=1e-6)


def test_the_exact_mass_equals_plain_quadrature() -> None:
    """A grid that knows nothing of walls: nearest centroid, density, sum."""
    node = three()
    at = np.linspace(-7, 8, 1501)
    across, up = np.meshgrid(at, at)
    f = torch.exp(node.log_unnormalised(np.stack([across.reshape(-1), up.reshape(-1)], 1))).numpy().reshape(across.shape)
    assert exact_mass(node) == pytest.approx(f.sum() * (at[1] - at[0]) ** 2, abs=1e-3)
    box = exact_mass(node, [-0.5, 0.0], [1.5, math.inf])
    held = (across >= -0.5) & (across <= 1.5) & (up >= 0)
    assert box == pytest.approx((f * held).sum() * (at[1] - at[0]) ** 2, abs=3e-3)


def test_a_slice_equals_quadrature_over_the_other_variable() -> None:
    node = three()

    def f(y: float, x: float) -> float:
        return math.exp(float(node.log_unnormalised([[x, y]])[0]))

    for x in (-1.3, 0.4, 2.2):
        wanted, _ = integrate.quad(f, -8, 8, args=(x,), limit=400, points=[-2, 0, 1, 2, 3])
        assert float(slice_mass(node, 0, [x])[0]) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("angle", [0.0, 90.0])
def test_an_upright_wall_leaves_no_gap_after_a_split_a_cell(angle: float) -> None:
    found = refine(two_centroids(angle).region(), 100)
    assert found.splits == 2
    assert found.gap <= 3 * ROUNDING * found.boxes
    assert found.lower <= norm.cdf(1.0) <= found.upper


def test_the_mass_of_the_turned_pair_does_not_depend_on_the_angle() -> None:
    for angle in (10, 45, 77.5):
        assert exact_mass(two_centroids(angle)) == pytest.approx(norm.cdf(1.0), abs=1e-9)


def test_an_upright_grid_of_cells_closes_in_the_cards_eight_splits() -> None:
    """The corner rule: at (x1 wall, x2 wall) the diagonal neighbour's wall only touches, and rounding must not keep the box open."""
    centroids = [[-1.0, 0.0], [-1.0, 2.0], [1.5, 0.0], [1.5, 2.0]]
    location, scale = [[-1.0, 0.0], [-1.0, 2.5], [1.0, 0.0], [1.0, 2.5]], [[0.8, 1.0], [0.8, 0.5], [1.2, 1.0], [1.2, 0.5]]
    found = refine(VoronoiSum(tensor(centroids), tensor([0.4, 0.1, 0.2, 0.3]), Experts.of(location, scale)).region(), 100)
    assert found.splits == 8
    assert found.gap < 1e-9
    assert found.lower <= 0.7540369 + 1e-7
    assert found.upper >= 0.7540369 - 1e-7


def test_equal_experts_give_one_over_k() -> None:
    """Soft or hard, weights of one do not normalise f: K equal experts hold 1 / K of the mass."""
    turns = [2 * math.pi * k / 3 for k in range(3)]
    node = VoronoiSum(tensor([[math.cos(t), math.sin(t)] for t in turns]), tensor([1 / 3] * 3), Experts.of([[0.0, 0.0]] * 3, [[1.0, 1.0]] * 3))
    found = refine(node.region(), 1000)
    assert found.lower < 1 / 3 < found.upper
    assert exact_mass(node) == pytest.approx(1 / 3, abs=1e-9)
    x = tensor([[0.3, -0.2], [1.0, 1.0]])
    assert torch.allclose(node.log_unnormalised(x) - math.log(1 / 3), node.experts.log_density(x)[:, 0])


def test_the_gap_halves_when_the_splits_double_in_two_variables() -> None:
    gaps = [refine(pair(DIAGONAL).region(), splits).gap for splits in (1000, 2000, 4000)]
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.15)
    assert gaps[1] / gaps[2] == pytest.approx(2, rel=0.15)


def test_bounds_are_useless_in_six_variables() -> None:
    gap = {d: refine(random_centroids(4, d, 0).region(), 3000).gap for d in (2, 4, 6)}
    assert gap[2] < 0.05 < gap[4]
    assert gap[6] > 0.3


@pytest.mark.parametrize("seed", range(4))
def test_bounds_hold_against_monte_carlo_in_three_variables(seed: int) -> None:
    node = random_centroids(5, 3, seed)
    generator = torch.Generator().manual_seed(seed)
    owner = torch.multinomial(node.weights, 200_000, replacement=True, generator=generator)
    share = float((node.cell_of(node.experts.draw(owner, generator)) == owner).double().mean())
    error = 5 * math.sqrt(share * (1 - share) / 200_000)
    found = refine(node.region(), 2000)
    assert found.lower - error <= share <= found.upper + error


def test_mixture_experts_and_uniform_leaves_are_bounded_too() -> None:
    mixed = Experts(tensor([[0.3, 0.7], [1.0, 0.0]]), tensor([[[-1, 0], [0, -1]], [[1, 1], [0, 0]]]), torch.full((2, 2, 2), 0.8, dtype=torch.float64))
    for node in (
        VoronoiSum(tensor(DIAGONAL), tensor([0.4, 0.6]), mixed),
        VoronoiSum(tensor(DIAGONAL), tensor([0.4, 0.6]), Experts.of([[0.0, 0.0]] * 2, [[1.0, 1.0]] * 2, UNIFORM)),
    ):
        found = refine(node.region(), 3000)
        assert found.lower <= exact_mass(node) <= found.upper
        assert found.gap < 0.02


def test_far_tails_keep_their_digits() -> None:
    """The mass beyond 30 standard deviations is 1e-197; a difference of plain distribution functions would be 0."""
    node = VoronoiSum(tensor([[0.0, -1.0], [0.0, 1.0]]), tensor([0.5, 0.5]), Experts.of([[0.0, 0.0]] * 2, [[1.0, 1.0]] * 2))
    found = refine(node.region(), 50, start=([30.0, -math.inf], [math.inf, math.inf]))
    assert found.lower == pytest.approx(norm.sf(30) / 2, rel=1e-9)
    assert found.upper == pytest.approx(norm.sf(30) / 2, rel=1e-9)


def test_conditional_bounds_hold_the_exact_probability() -> None:
    node = three()
    event, given = {1: (1.0, math.inf)}, Evidence({}, {0: (0.0, 1.0)})
    low, high = conditional_bounds(node, event, given, 3000)
    exact = exact_mass(node, [0.0, 1.0], [1.0, math.inf]) / exact_mass(node, [0.0, -math.inf], [1.0, math.inf])
    assert low <= exact <= high
    assert high - low < 0.01
    fixed_low, fixed_high = conditional_bounds(node, event, Evidence({0: 0.5}), 200)
    wanted = float(slice_mass(node, 0, [0.5], 1.0)[0] / slice_mass(node, 0, [0.5])[0])
    assert fixed_low <= wanted <= fixed_high
    assert fixed_high - fixed_low < 1e-9


def test_a_marginal_is_the_slice() -> None:
    low, high, factor = mass_bounds(three(), Evidence({0: 0.5}), [{}], 200)
    assert low * math.exp(factor) <= 0.198562 + 5e-7
    assert high * math.exp(factor) >= 0.198562 - 5e-7
    assert (high - low) * math.exp(factor) < 1e-9


def test_evidence_on_an_upright_wall_belongs_to_the_lowest_index_once() -> None:
    node = pair([[-1.0, 0.0], [1.0, 0.0]])
    low, high, factor = mass_bounds(node, Evidence({0: 0.0}), [{}], 50)
    wanted = 0.5 * norm.pdf(1.0)
    assert low * math.exp(factor) == pytest.approx(wanted, rel=1e-9)
    assert high * math.exp(factor) == pytest.approx(wanted, rel=1e-9)


def test_events_and_evidence_that_contradict_are_refused() -> None:
    with pytest.raises(ValueError, match="density 0"):
        mass_bounds(three(), Evidence({0: 1e6}), [{}], 50)
    uniform = VoronoiSum(tensor(DIAGONAL), tensor([0.5, 0.5]), Experts.of([[0.0, 0.0]] * 2, [[1.0, 1.0]] * 2, UNIFORM))
    with pytest.raises(ValueError, match="mass 0"):
        conditional_bounds(uniform, {1: (0.0, 1.0)}, Evidence({}, {0: (3.0, 4.0)}), 50)
    with pytest.raises(ValueError, match="free"):
        conditional_bounds(three(), {0: (0.0, 1.0)}, Evidence({0: 0.5}), 50)


def test_bad_models_are_refused_in_words() -> None:
    good = Experts.of(DIAGONAL, [[1.0, 1.0]] * 2)
    with pytest.raises(ValueError, match="centroids 1 and 2 coincide"):
        half_spaces([[1.0, 1.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match="sum to 1"):
        VoronoiSum(tensor(DIAGONAL), tensor([0.5, 0.6]), good)
    with pytest.raises(ValueError, match="NaN"):
        VoronoiSum(tensor([[math.nan, 0], [1, 1]]), tensor([0.5, 0.5]), good)
    with pytest.raises(ValueError, match="not positive"):
        Experts.of(DIAGONAL, [[1.0, 0.0]] * 2)
    with pytest.raises(ValueError, match="no distribution function"):
        Experts.of(DIAGONAL, [[1.0, 1.0]] * 2, leaf=object())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no rule"):
        Refinement(pair(DIAGONAL).region(), rule="best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="two variables"):
        slice_mass(random_centroids(3, 3, 0), 0, [0.0])


def test_centroids_that_coincide_are_merged_in_order() -> None:
    kept, group = merged([[2.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    assert kept.tolist() == [[2.0, 0.0], [1.0, 0.0]]
    assert group.tolist() == [0, 1, 0]


def test_a_point_on_a_wall_belongs_to_the_lowest_index() -> None:
    assert pair(DIAGONAL).cell_of([[1.0, -1.0], [1.0, -0.9]]).tolist() == [0, 1]
