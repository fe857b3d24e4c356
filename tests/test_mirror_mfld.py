"""The oracles of mirror-mfld: exact laws, mirror maps, diffusions and drifts against numbers known from elsewhere."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import dblquad, quad
from torch import Tensor

from backends import mirror_mfld as mm

SIMPLEX = mm.Simplex(3)
Q = [0.7, 0.2, 0.1]
DOMAINS = [mm.Ball(2), mm.Ball(5), mm.Box(2), SIMPLEX, mm.Spectraplex(2), mm.Spectraplex(4)]
NAMES = [f"{d.name}-{d.dimension}" for d in DOMAINS]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def after(domain: Any, functional: Any, settings: Any, x: Tensor, steps: int, seed: int = 0) -> list[Tensor]:
    """The clouds of the last two thirds of a run."""
    kept = []
    for number, cloud in enumerate(mm.simulate(domain, functional, settings, x, seeded(seed))):
        if 3 * number >= steps:
            kept.append(cloud)
        if number + 1 >= steps:
            return kept
    raise AssertionError("unreachable")


# ------------------------------------------------------------------------------------------------------ exact laws


@pytest.mark.parametrize(
    ("temperature", "barrier", "mean", "sd", "energy", "entropy", "free"),
    [
        (0.1, 0.0, (0.57070, 0.23693, 0.19237), (0.24346, 0.20051, 0.17269), 0.02661, 1.16458, 0.14307),
        (0.1, 0.1, (0.52208, 0.25618, 0.22173), (0.18893, 0.15624, 0.14062), 0.45683, 1.23599, 0.58043),
        (0.02, 0.0, (0.66129, 0.20537, 0.13334), None, None, None, 0.03510),
    ],
)
def test_the_law_at_rest_on_the_simplex(temperature: float, barrier: float, mean: Any, sd: Any, energy: Any, entropy: Any, free: float) -> None:
    law = mm.fixed_point(SIMPLEX, mm.MeanMatching(SIMPLEX, Q), temperature, barrier)
    np.testing.assert_allclose(law.mean, mean, atol=6e-6)
    assert law.free_energy == pytest.approx(free, abs=6e-6)
    if sd is not None:
        np.testing.assert_allclose(law.sd, sd, atol=6e-6)
        assert law.energy == pytest.approx(energy, abs=6e-6)
        assert law.entropy == pytest.approx(entropy, abs=6e-6)


def test_another_law_on_the_simplex_by_an_adaptive_rule() -> None:
    law = mm.fixed_point(SIMPLEX, mm.MeanMatching(SIMPLEX, [0.1, 0.15, 0.75]), 0.04, 0.03)
    tilt = 2 / 0.04 * (law.mean - np.array([0.1, 0.15, 0.75]))

    def weight(b: float, a: float) -> float:
        x = np.array([a, b, max(1 - a - b, 0.0)])
        return float(np.exp(-tilt @ x + 20.0) * np.prod(x**0.75))

    total, first = (dblquad(lambda b, a, k=k: a**k * weight(b, a), 0, 1, 0, lambda a: 1 - a, epsabs=1e-9)[0] for k in (0, 1))
    assert law.mean[0] == pytest.approx(first / total, abs=1e-6)


def test_the_law_of_four_shares_is_a_law() -> None:
    domain = mm.Simplex(4)
    law = mm.fixed_point(domain, mm.MeanMatching(domain, [0.4, 0.3, 0.2, 0.1]), 0.05, 0.01, nodes=24)
    assert law.mean.sum() == pytest.approx(1)
    assert law.free_energy < mm.fixed_point(domain, mm.MeanMatching(domain, [0.4, 0.3, 0.2, 0.1]), 0.06, 0.01, nodes=24).energy + 0.06 * law.entropy


@pytest.mark.parametrize("temperature", [1e-3, 0.05, 0.25, 3.0])
@pytest.mark.parametrize("barrier", [0.0, 0.1])
def test_a_pull_in_the_disc_has_a_mean_of_bessel_functions(temperature: float, barrier: float) -> None:
    domain = mm.Ball(2)
    law = mm.fixed_point(domain, mm.Linear(domain, [0.6, 0.8]), temperature, barrier)
    along = mm.ball_linear_mean(2, temperature, 1.0, barrier)
    np.testing.assert_allclose(law.mean, np.array([0.6, 0.8]) * along, atol=2e-6)


def test_the_mean_of_a_pull_in_a_ball_of_five_dimensions() -> None:
    def weight(t: float, k: int) -> float:
        return t**k * math.exp(-t / 0.3) * (1 - t**2) ** 2

    expected = quad(weight, -1, 1, args=(1,))[0] / quad(weight, -1, 1, args=(0,))[0]
    assert mm.ball_linear_mean(5, 0.3) == pytest.approx(expected, rel=1e-9)
    assert mm.ball_linear_mean(2, 0.25) == pytest.approx(-0.658047, abs=1e-6)


def test_a_square_is_two_intervals() -> None:
    domain = mm.Box(2)
    law = mm.fixed_point(domain, mm.MeanMatching(domain, [0.5, -0.3]), 0.1, 0.05)
    for m, q in zip(law.mean, (0.5, -0.3), strict=True):
        k = 2 * (m - q) / 0.1
        moments = [quad(lambda t, p=p, k=k: t**p * math.exp(-k * t) * (1 - t**2) ** 0.5, -1, 1)[0] for p in (0, 1)]
        assert m == pytest.approx(moments[1] / moments[0], abs=1e-7)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
def test_matrices_of_two_rows_have_the_purity_of_wishart_matrices(exponent: float) -> None:
    domain = mm.Spectraplex(2)
    law = mm.fixed_point(domain, mm.Linear(domain, np.zeros((2, 2))), 0.1, 0.1 * exponent)
    assert law.second_moment == pytest.approx(mm.spectraplex_purity(2, exponent), abs=1e-9)
    assert mm.spectraplex_purity(2, 1) == pytest.approx(2 / 3)
    assert mm.spectraplex_purity(5, 2) == pytest.approx(0.3077, abs=5e-5)
    assert mm.spectraplex_purity(3, 0) == pytest.approx(4 / 7)


def test_the_least_free_energy_is_least() -> None:
    """Any other law has more: here those of other temperatures."""
    functional = mm.MmdToCloud(SIMPLEX, SIMPLEX.uniform(50, seeded(3)))
    law = mm.fixed_point(SIMPLEX, functional, 0.01)
    for other in (0.006, 0.02):
        found = mm.fixed_point(SIMPLEX, functional, other)
        assert found.energy + 0.01 * found.entropy > law.free_energy


@pytest.mark.parametrize(("left", "right"), [(0.0, 0.0), (-0.5, -0.5), (0.3, 2.0), (300.0, 900.0)])
def test_gauss_jacobi_has_the_moments_of_the_beta_law(left: float, right: float) -> None:
    node, weight = mm.gauss_jacobi(20, left, right)
    law = stats.beta(left + 1, right + 1)
    for power in (1, 2, 7):
        assert weight @ node**power == pytest.approx(law.moment(power), rel=1e-9)


# ------------------------------------------------------------------------------------------------------ mirror maps


@pytest.mark.parametrize("domain", DOMAINS, ids=NAMES)
def test_the_mirror_map_and_its_inverse(domain: Any) -> None:
    x = domain.uniform(200, seeded())
    torch.testing.assert_close(domain.ambient(domain.primal(domain.dual(domain.lift(x)))), x, atol=1e-9, rtol=0)
    assert float(domain.wall_distance(x).min()) > 0
    far = domain.ambient(domain.primal(50 * domain.dual(domain.lift(x))))
    assert float(domain.wall_distance(far).min()) >= -1e-12


@pytest.mark.parametrize("domain", DOMAINS[:4], ids=NAMES[:4])
def test_the_hessian_root_squares_to_the_slope_of_the_mirror_map(domain: Any) -> None:
    for x in domain.uniform(3, seeded(1)):
        hessian = torch.autograd.functional.jacobian(domain.dual, x)
        root = torch.stack([domain.hessian_root(x, e) for e in torch.eye(len(x), dtype=torch.float64)], 1)
        torch.testing.assert_close(root @ root.T, hessian, rtol=1e-8, atol=1e-8)


def test_the_hessian_root_of_matrices_squares_to_the_slope_of_the_logarithm() -> None:
    domain = mm.Spectraplex(3)
    x = domain.uniform(1, seeded(2))
    direction = torch.randn(1, 3, 3, dtype=torch.float64, generator=seeded(5))
    direction = direction + direction.mT
    point = domain.lift(x)
    inside = point.vectors.mT @ direction @ point.vectors
    twice = point.vectors @ (mm.log_divided_differences(point.log_values) * inside) @ point.vectors.mT
    step = 1e-6
    slope = (domain.dual(domain.lift(x + step * direction)) - domain.dual(domain.lift(x - step * direction))) / (2 * step)
    torch.testing.assert_close(twice, slope, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(domain.hessian_root(point, domain.hessian_root(point, inside).new_zeros(1, 3, 3)), torch.zeros(1, 3, 3).double())


def test_divided_differences_stay_finite_for_equal_and_tiny_eigenvalues() -> None:
    logs = torch.log(torch.tensor([0.5, 0.5 * (1 + 1e-9), 1e-290, 1e-12], dtype=torch.float64))
    found = mm.log_divided_differences(logs)
    assert torch.isfinite(found).all()
    assert float(found[0, 1]) == pytest.approx(2.0, rel=1e-8)
    assert float(found[0, 3]) == pytest.approx(math.log(0.5 / 1e-12) / 0.5, rel=1e-6)


@pytest.mark.parametrize("domain", DOMAINS, ids=NAMES)
def test_a_projection_is_the_nearest_point(domain: Any) -> None:
    x = domain.uniform(50, seeded())
    outside = x + 0.7 * domain.tangent_noise(x, seeded(1))
    found = domain.project(outside)
    domain.check(found)
    for other in (domain.uniform(50, seeded(2)), x):
        axes = tuple(range(-len(domain.shape), 0))
        assert (((outside - found) * (other - found)).sum(axes) <= 1e-9).all(), "the angle to any point of the set is blunt"


@pytest.mark.parametrize("domain", DOMAINS, ids=NAMES)
def test_the_barrier_push_is_the_slope_of_the_barrier(domain: Any) -> None:
    x = domain.uniform(4, seeded(4))
    direction = domain.tangent_noise(x, seeded(5))
    step = 1e-6 * float(domain.wall_distance(x).min())
    axes = tuple(range(-len(domain.shape), 0))
    slope = (domain.barrier(x + step * direction) - domain.barrier(x - step * direction)) / (2 * step)
    torch.testing.assert_close(-(domain.barrier_push(domain.lift(x), 1.0) * direction).sum(axes), slope, rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------------------------------------------ functionals


def _functionals() -> list[Any]:
    disc, matrices = mm.Ball(2), mm.Spectraplex(3)
    inputs, labels = mm.xor_data(40, seeded())
    target = matrices.uniform(1, seeded(7))[0]
    return [
        mm.MeanMatching(SIMPLEX, Q),
        mm.Linear(disc, [0.3, -1.0]),
        mm.SpectraplexMatching(matrices, target),
        mm.MmdToCloud(SIMPLEX, SIMPLEX.uniform(20, seeded(8))),
        mm.XorNetwork(disc, inputs, labels),
    ]


@pytest.mark.parametrize("functional", _functionals(), ids=lambda f: type(f).__name__)
def test_the_first_variation_is_n_times_the_slope_of_the_functional(functional: Any) -> None:
    """N dF/dX^i, by automatic differentiation of F at the empirical law."""
    x = functional.domain.uniform(12, seeded(9)).requires_grad_()
    functional.value(x).backward()
    with torch.no_grad():
        given = functional.gradient(x, functional.statistics(x)).expand_as(x)
    torch.testing.assert_close(given, 12 * x.grad, rtol=1e-8, atol=1e-10)


# ------------------------------------------------------------------------------------------------------ diffusion


@pytest.mark.parametrize("exponent", [0.0, 0.7, [1.0, 0.2, 3.0]])
def test_the_exact_diffusion_leaves_its_dirichlet_law(exponent: Any) -> None:
    powers = np.broadcast_to(np.asarray(exponent, float), 3)
    x = torch.from_numpy(np.random.default_rng(0).dirichlet(powers + 1, 20_000))
    for seed in range(20):
        x = mm.wright_fisher_step(SIMPLEX, x, 0.05, torch.tensor(powers), seeded(seed))
    for index in range(3):
        law = stats.beta(powers[index] + 1, powers.sum() + 2 - powers[index])
        assert stats.kstest(x[:, index].numpy(), law.cdf).pvalue > 1e-3


def test_the_exact_diffusion_is_poisson_then_gamma() -> None:
    x, h, exponent = torch.tensor([[0.03, 0.3, 0.67]], dtype=torch.float64), 0.02, 0.4
    ours = mm.wright_fisher_step(SIMPLEX, x.expand(20_000, 3), h, exponent, seeded())
    rng = np.random.default_rng(1)
    drawn = rng.gamma(1 + exponent + rng.poisson(x.numpy() / h, (20_000, 3)))
    theirs = drawn / drawn.sum(1, keepdims=True)
    for index in range(3):
        assert stats.ks_2samp(ours[:, index].numpy(), theirs[:, index]).pvalue > 1e-3


@pytest.mark.parametrize(("size", "step", "expected"), [(2, 0.1, 0.537), (2, 0.02, 0.508), (5, 0.1, 0.761)])
def test_one_plain_step_in_the_ball_has_the_known_bias(size: int, step: float, expected: float) -> None:
    domain = mm.Ball(size)
    kept = after(domain, mm.Linear(domain, np.zeros(size)), mm.Settings(step, 1.0), domain.uniform(3000, seeded(1)), int(9 / step))
    assert torch.stack([c.square().sum(-1).mean() for c in kept]).mean() == pytest.approx(expected, abs=0.008)


@pytest.mark.parametrize(("size", "exponent", "step", "expected"), [(2, 1, 0.02, 0.6699), (2, 2, 0.02, 0.6280), (3, 1, 0.02, 0.5000)])
def test_the_floored_step_on_matrices(size: int, exponent: float, step: float, expected: float) -> None:
    domain = mm.Spectraplex(size)
    settings = mm.Settings(step, 0.1, 0.1 * exponent, "em-floor", floor=1e-6)
    kept = after(domain, mm.Linear(domain, np.zeros((size, size))), settings, domain.uniform(300, seeded(1)), 600)
    assert torch.stack([c.square().sum((-1, -2)).mean() for c in kept]).mean() == pytest.approx(expected, abs=0.012)


# ------------------------------------------------------------------------------------------------------ dynamics


def at_rest(law: Any, count: int, seed: int, tries: int = 40) -> Tensor:
    """Draws from a law by rejection from the uniform one."""
    x = law.domain.uniform(tries * count, seeded(seed))
    density = np.exp(law.log_density(x))
    kept = np.random.default_rng(seed).uniform(size=len(x)) < density / density.max()
    assert kept.sum() >= count
    return x[torch.from_numpy(kept)][:count]


@pytest.mark.parametrize(("diffusion", "barrier", "step"), [("exact", 0.0, 0.03), ("exact", 0.1, 0.03), ("em-floor", 0.0, 0.01), ("em", 0.1, 0.01)])
def test_the_cloud_comes_to_rest_at_the_exact_law(diffusion: Any, barrier: float, step: float) -> None:
    functional = mm.MeanMatching(SIMPLEX, Q)
    law = mm.fixed_point(SIMPLEX, functional, 0.1, barrier)
    kept = after(SIMPLEX, functional, mm.Settings(step, 0.1, barrier, diffusion), at_rest(law, 1000, 1), int(12 / step))
    np.testing.assert_allclose(torch.stack(kept).mean((0, 1)).numpy(), law.mean, atol=0.012)


def test_one_plain_step_without_a_barrier_collapses_into_the_corners() -> None:
    functional = mm.MeanMatching(SIMPLEX, Q)
    last = after(SIMPLEX, functional, mm.Settings(0.03, 0.1), SIMPLEX.uniform(400, seeded()), 900)[-1]
    assert float((last.amin(-1) < 1e-3).double().mean()) > 0.8
    inside = after(SIMPLEX, functional, mm.Settings(0.03, 0.1, 0.0, "em-floor"), SIMPLEX.uniform(400, seeded()), 900)[-1]
    assert float((inside.amin(-1) < 1e-3).double().mean()) < 0.05


def test_projected_dynamics_put_atoms_on_the_wall() -> None:
    functional = mm.MeanMatching(SIMPLEX, Q)
    kept = after(SIMPLEX, functional, mm.Settings(3e-3, 0.1, kind="projected"), SIMPLEX.uniform(500, seeded()), 3000)
    assert torch.stack([(c.amin(-1) <= 0).double().mean() for c in kept[::50]]).mean() == pytest.approx(0.12, abs=0.02)


@pytest.mark.parametrize("domain", [mm.Ball(2), mm.Box(2)], ids=["ball", "box"])
def test_the_disc_and_the_square_stay_at_their_law(domain: Any) -> None:
    functional = mm.Linear(domain, [1.0, 0.0])
    law = mm.fixed_point(domain, functional, 0.25)
    kept = after(domain, functional, mm.Settings(0.02, 0.25), at_rest(law, 3000, 3), 300)
    np.testing.assert_allclose(torch.stack(kept).mean((0, 1)).numpy(), law.mean, atol=0.025)


def test_matrices_stay_at_their_law() -> None:
    domain = mm.Spectraplex(2)
    functional = mm.SpectraplexMatching(domain, domain.from_chart(torch.tensor([0.6, 0.3]).double()))
    law = mm.fixed_point(domain, functional, 0.1)
    kept = after(domain, functional, mm.Settings(2e-3, 0.1, 0.0, "em-floor"), at_rest(law, 150, 3, 300), 400)
    np.testing.assert_allclose(torch.stack(kept).mean((0, 1)).numpy(), law.mean, atol=0.01)


def test_a_cloud_of_two_has_the_known_bias() -> None:
    functional = mm.MeanMatching(SIMPLEX, Q)
    start = SIMPLEX.uniform(2, seeded(1), (1500,))
    kept = after(SIMPLEX, functional, mm.Settings(0.03, 0.1, 0.0, "exact"), start, 600)
    assert torch.stack(kept).mean((0, 1, 2))[0] == pytest.approx(0.590, abs=0.006)


def test_the_drift_sees_the_current_cloud_unless_it_is_frozen() -> None:
    """From a cloud at one place the frozen drift pushes on for ever; the coupled one stops at its law."""
    functional = mm.MeanMatching(SIMPLEX, Q)
    start = torch.tensor([[0.1, 0.2, 0.7]], dtype=torch.float64).expand(500, 3)
    coupled, frozen = (after(SIMPLEX, functional, mm.Settings(0.03, 0.1, 0.0, "exact", frozen=f), start, 500)[-1].mean(0) for f in (False, True))
    linear = mm.fixed_point(SIMPLEX, mm.Linear(SIMPLEX, 2 * (start[0] - functional.q)), 0.1)
    np.testing.assert_allclose(frozen.numpy(), linear.mean, atol=0.02)
    assert float((coupled - frozen).abs().max()) > 0.1


def test_without_noise_the_cloud_reaches_the_best_point() -> None:
    functional = mm.MeanMatching(SIMPLEX, Q)
    last = after(SIMPLEX, functional, mm.Settings(0.1, 0.1, kind="noise-free"), SIMPLEX.uniform(50, seeded()), 2000)[-1]
    assert float(functional.value(last)) < 1e-6


def test_unconstrained_dynamics_leave_the_triangle() -> None:
    last = after(SIMPLEX, mm.MeanMatching(SIMPLEX, Q), mm.Settings(0.03, 0.1, kind="unconstrained"), SIMPLEX.uniform(200, seeded()), 300)[-1]
    assert float(SIMPLEX.wall_distance(last).min()) < -0.1
    torch.testing.assert_close(last.sum(-1), torch.ones(200).double())


# ------------------------------------------------------------------------------------------------------ entropy


def test_the_entropy_of_known_laws() -> None:
    rng = np.random.default_rng(0)
    assert mm.knn_entropy(rng.normal(size=(4000, 2))) == pytest.approx(-math.log(2 * math.pi * math.e), abs=0.05)
    assert mm.knn_entropy(np.repeat(rng.normal(size=(5, 2)), 20, axis=0)) is None


@pytest.mark.parametrize("domain", [SIMPLEX, mm.Ball(2), mm.Box(2), mm.Spectraplex(2)], ids=lambda d: d.name)
def test_the_entropy_of_uniform_clouds_does_not_see_the_walls(domain: Any) -> None:
    from backends.mirror_mfld.entropy import cloud_entropy

    found = [cloud_entropy(domain, domain.uniform(2000, seeded(seed))) for seed in range(8)]
    law = mm.fixed_point(domain, mm.Linear(domain, np.zeros(domain.shape)), 1.0)
    assert np.mean(found) == pytest.approx(law.entropy, abs=0.02)


def test_the_rate_of_an_exponential_is_its_rate() -> None:
    from backends.mirror_mfld.entropy import fitted_rate

    time = np.linspace(0, 10, 40)
    noise = 1e-5 * np.random.default_rng(0).normal(size=40)
    found = fitted_rate(time, 0.3 * np.exp(-1.7 * time) + noise)
    assert found is not None
    assert found[0] == pytest.approx(1.7, rel=0.05)
    assert fitted_rate(time, np.full(40, 0.2) + noise) is None
