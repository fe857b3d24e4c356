"""The parts of auxiliary-mcmc against closed forms: the draw of the minibatch, its ratio, its gradient, the lattice, the bounds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import poisson, truncnorm

from backends.auxiliary_mcmc import (
    AliasTable,
    Barker,
    FullData,
    Lattice,
    Logistic,
    Mala,
    PoissonSampler,
    RandomWalk,
    RobustRegression,
    TruncatedGaussian,
    TunaSampler,
    UniformGradient,
    auxiliary_log_ratio,
    effective,
    expected_batch,
    gaussian_reference,
    ising_counts,
    ising_posterior,
    poisson_gap_bound,
    ratio_moment,
    robust_regression,
    run_chains,
    tall_logistic,
    thin,
    truncated_gaussian,
    tuna_gap_bound,
)
from backends.auxiliary_mcmc.data import falling_variances
from backends.auxiliary_mcmc.models import TallModel

PHI, PHI_NEW = torch.tensor([0.2, 0.5, 0.1], dtype=torch.float64), torch.tensor([0.4, 0.3, 0.3], dtype=torch.float64)
ONES, LAM = torch.ones(3, dtype=torch.float64), 9.0


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def models(n: int = 40, d: int = 3) -> dict[str, TallModel]:
    rng = np.random.default_rng(3)
    x, y = torch.from_numpy(rng.normal(size=(n, d))), torch.from_numpy(rng.normal(size=n))
    return {
        "robust": RobustRegression(x, y, tempering=0.3, radius=4.0),
        "logistic": Logistic(x, (y > 0).double(), tempering=0.5, radius=4.0),
        "gaussian": TruncatedGaussian(x, torch.tensor([1.0, 0.4, 0.2]), tempering=0.1),
    }


# ------------------------------------------------------------------------------------------------- the alias table


@pytest.mark.parametrize("weights", [[1.0], [1, 1, 1], [0, 0, 1], [2, 1, 0, 1], [1, 1, 3, 0, 1, 0.5, 0.5], [1e-9, 1e9, 1]], ids=str)
def test_the_alias_table_gives_every_row_its_weight(weights: list[float]) -> None:
    table = AliasTable.of(torch.tensor(weights, dtype=torch.float64))
    expected = np.array(weights) / np.sum(weights)
    assert table.probabilities().numpy() == pytest.approx(expected, abs=1e-14)
    assert float(table.keep.min()) >= 0
    assert float(table.keep.max()) <= 1


def test_a_large_alias_table_is_exact_and_draws_by_it() -> None:
    weights = torch.rand(20_000, dtype=torch.float64, generator=generator()) ** 4
    table = AliasTable.of(weights)
    assert (table.probabilities() - weights / weights.sum()).abs().max() < 1e-13
    drawn = table.draw((400, 1000), generator(1))
    heavy = torch.argsort(weights, descending=True)[:2000]
    share = torch.isin(drawn, heavy).double().mean()
    expected = float(weights[heavy].sum() / weights.sum())
    assert float(share) == pytest.approx(expected, abs=5 * math.sqrt(expected / 400_000))


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, -1.0], [1.0, math.inf], [1.0, math.nan], [[1.0]]], ids=str)
def test_weights_that_are_none_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        AliasTable.of(torch.tensor(weights))


# --------------------------------------------------------------------------------------------------- thinning


def test_thinned_counts_are_poisson_with_the_stated_means() -> None:
    bounds, phi, draws = torch.tensor([0.5, 1.0, 2.0, 0.1], dtype=torch.float64), torch.tensor([0.5, 0.2, 1.7, 0.0], dtype=torch.float64), 60_000
    lam = 3.0
    counts = thin(phi, bounds, lam, generator(), draws).double()
    rate = lam * bounds / bounds.sum() + phi
    se = (rate / draws).sqrt()
    assert ((counts.mean(0) - rate).abs() < 4.5 * se).all()
    assert ((counts.var(0) - rate).abs() < 4.5 * rate * math.sqrt(3 / draws) + 0.02 * rate).all()
    assert np.abs(np.corrcoef(counts.numpy().T) - np.eye(4)).max() < 0.02
    # the whole law of one row, not its moments only
    at = np.arange(8)
    found = np.array([(counts[:, 2] == k).double().mean() for k in at])
    assert found == pytest.approx(poisson.pmf(at, float(rate[2])), abs=0.01)


def test_the_ratio_has_the_true_ratio_as_its_mean() -> None:
    assert ratio_moment(PHI, PHI_NEW, ONES, LAM, 1) == pytest.approx(math.exp(0.2), rel=1e-14)
    assert ratio_moment(PHI, PHI_NEW, ONES, LAM, 2) == pytest.approx(1.547796, abs=1e-6)
    counts = thin(PHI, ONES, LAM, generator(), 100_000)
    ratio = auxiliary_log_ratio(counts, PHI, PHI_NEW, ONES, LAM).exp()
    assert float(ratio.mean()) == pytest.approx(math.exp(0.2), abs=0.004)
    assert float((ratio**2).mean()) == pytest.approx(1.547796, abs=0.015)


def accept(phi: torch.Tensor, phi_new: torch.Tensor) -> float:
    """P(accept) with a symmetric proposal, summed over all counts that matter."""
    top = range(26)
    counts = torch.tensor(list(itertools.product(top, repeat=3)))
    chance = np.prod([poisson.pmf(counts[:, i].numpy(), 3 + float(phi[i])) for i in range(3)], axis=0)
    return float((chance * np.minimum(1, auxiliary_log_ratio(counts, phi, phi_new, ONES, LAM).exp().numpy())).sum())


def test_detailed_balance_holds_in_closed_form() -> None:
    forth, back = accept(PHI, PHI_NEW), accept(PHI_NEW, PHI)
    assert forth == pytest.approx(0.985111, abs=2e-6)
    assert back == pytest.approx(0.806540, abs=2e-6)
    assert forth == pytest.approx(math.exp(0.2) * back, abs=1e-6)


BAD_THINNING = [
    ({"phi": torch.tensor([0.2, 1.5, 0.1])}, "row 1"),
    ({"phi": torch.tensor([0.2, -0.1, 0.1])}, "row 1"),
    ({"phi": torch.tensor([0.2, math.nan, 0.1])}, "row 1"),
    ({"bounds": torch.ones(2)}, "shapes"),
    ({"bounds": torch.tensor([1.0, 0.0, 1.0])}, "bound"),
    ({"lam": 0.0}, "lambda"),
    ({"lam": math.inf}, "lambda"),
    ({"draws": 0}, "draws"),
]


@pytest.mark.parametrize(("changed", "words"), BAD_THINNING, ids=lambda v: str(v)[:30])
def test_thinning_refuses_bad_input(changed: dict[str, object], words: str) -> None:
    given: dict[str, object] = {"phi": PHI, "bounds": ONES, "lam": LAM, "generator": generator(), "draws": 2}
    with pytest.raises(ValueError, match=words):
        thin(**{**given, **changed})  # type: ignore[arg-type]


def test_a_wrong_bound_stops_the_chain_with_the_row() -> None:
    model = models()["robust"]
    assert run_chains(PoissonSampler(model, RandomWalk(), step=0.3, kappa=0.1), torch.zeros(4, 3), 50, generator()).draws.shape == (50, 4, 3)
    row = int(model.look(model.table, torch.zeros(1, 3, dtype=torch.float64)).energy.argmax())
    model.table[row, -2] *= 0.1  # its M_i: a typical value in place of the largest
    with pytest.raises(ValueError, match=f"row {row}: phi is"):
        run_chains(PoissonSampler(model, RandomWalk(), step=0.3, kappa=0.1), torch.zeros(4, 3), 50, generator())


def test_padding_is_neither_kept_nor_counted() -> None:
    model = models()["gaussian"]
    sampler = PoissonSampler(model, Mala(), step=0.2, kappa=1e-3)
    mean = sampler.lam + sampler.total
    batch = sampler.first(torch.zeros(64, 3, dtype=torch.float64), (), generator())
    assert batch.slots.drawn.sum(1).tolist() == batch.slots.touched.tolist()
    assert not (batch.kept.bool() & ~batch.slots.drawn).any()
    touched = run_chains(sampler, torch.zeros(64, 3), 60, generator(1)).touched.double()
    assert float(touched.mean()) == pytest.approx(mean, abs=5 * math.sqrt(mean / touched.numel()))


def test_all_chains_draw_rows_of_their_own() -> None:
    sampler = PoissonSampler(models()["gaussian"], Mala(), step=0.2, kappa=1e-3)
    batch = sampler.first(torch.zeros(2, 3, dtype=torch.float64), (), generator())
    width = int(batch.slots.touched.min())
    assert not torch.equal(batch.slots.row[0, :width], batch.slots.row[1, :width])


# --------------------------------------------------------------------------------------- bounds, gradients, limits


@pytest.mark.parametrize("name", ["robust", "logistic", "gaussian"])
def test_energies_stay_within_their_bounds_on_the_support(name: str) -> None:
    model = models()[name]
    theta = torch.randn(500, 3, dtype=torch.float64, generator=generator()) * 3
    theta = theta[model.support.holds(theta)]
    assert len(theta) > 100
    energy = model.look(model.table, theta).energy
    assert (energy >= 0).all()
    assert (energy <= model.bounds * (1 + 1e-12)).all()
    change = (energy[1:] - energy[:-1]).abs() / torch.linalg.vector_norm(theta[1:] - theta[:-1], dim=1)[:, None]
    assert (change <= model.lipschitz * (1 + 1e-12)).all()


def test_the_logistic_energy_is_exact_far_out() -> None:
    model = Logistic(torch.tensor([[1.0]]), torch.tensor([1.0]), tempering=1.0)
    z = torch.tensor([-800.0, -40.0, 0.0, 40.0])
    assert model.energy(z.double()).tolist() == pytest.approx([800, 40, math.log(2), math.exp(-40)], rel=1e-12)


@pytest.mark.parametrize("name", ["robust", "logistic", "gaussian"])
def test_gradients_match_finite_differences(name: str) -> None:
    model = models()[name]
    theta = torch.tensor([[0.3, -0.4, 0.7], [0.0, 0.2, -0.1]], dtype=torch.float64)
    sampler = PoissonSampler(model, Mala(), step=0.2, kappa=1e-3)
    batch = sampler.first(theta, (), generator())
    _, gradient = sampler.surrogate(batch, theta)
    assert (gradient - batch.gradient).abs().max() < 1e-12
    full = FullData(model)
    for j in range(3):
        h = torch.zeros(3, dtype=torch.float64)
        h[j] = 1e-5
        slope = (sampler.surrogate(batch, theta + h)[0] - sampler.surrogate(batch, theta - h)[0]) / 2e-5
        assert gradient[:, j].tolist() == pytest.approx(slope.tolist(), rel=1e-6, abs=1e-9)
        whole = (full.energy(theta + h) - full.energy(theta - h)) / 2e-5
        assert full.look(theta).gradient[:, j].tolist() == pytest.approx(whole.tolist(), rel=1e-6, abs=1e-8)


def test_with_many_counts_the_surrogate_becomes_the_posterior() -> None:
    model = models(n=10)["robust"]
    total = float(model.bounds.sum())
    sampler = PoissonSampler(model, Mala(), step=0.1, kappa=1e6 / total**2)  # lambda = a million
    theta, moved = torch.tensor([[0.2, 0.1, -0.3]], dtype=torch.float64), torch.tensor([[0.3, -0.1, -0.2]], dtype=torch.float64)
    batch = sampler.first(theta, (), generator())
    full = FullData(model)
    assert batch.gradient[0].tolist() == pytest.approx((-full.look(theta).gradient[0]).tolist(), abs=0.01)
    change = sampler.surrogate(batch, moved)[0] - sampler.surrogate(batch, theta)[0]
    assert float(change) == pytest.approx(float(full.energy(theta) - full.energy(moved)), abs=0.01)


def test_a_step_and_its_reverse_have_opposite_proposal_ratios() -> None:
    rng = generator()
    g, g_new, moved = (torch.randn(6, 4, dtype=torch.float64, generator=rng) for _ in range(3))
    for proposal in (RandomWalk(), Barker(), Mala()):
        there, back = proposal.log_ratio(moved, g, g_new, 0.3), proposal.log_ratio(-moved, g_new, g, 0.3)
        assert (there + back).abs().max() < 1e-12


# ------------------------------------------------------------------------------------------------ scenes' figures


def test_bounds_of_the_scenes_are_the_stated_ones() -> None:
    n = 100_000
    robust = float(robust_regression(n, 0).bounds.sum())
    assert robust == pytest.approx(158.57, abs=0.005)
    assert 0.01 * robust**2 == pytest.approx(251.44, abs=0.02)
    assert expected_batch(robust, 0.01) == pytest.approx(410, abs=0.2)
    flat = float(truncated_gaussian(n, 0, np.array([1.0, 0.05])).bounds.sum())
    assert flat == pytest.approx(249, abs=0.5)
    assert expected_batch(flat, np.array([1e-3, 1e-2, 1e-1])) == pytest.approx([311, 870, 6461], abs=1)
    tall = float(truncated_gaussian(n, 0, falling_variances()).bounds.sum())
    assert tall == pytest.approx(2565.07, abs=0.01)
    assert 5e-4 * tall**2 == pytest.approx(3289.78, abs=0.02)


def test_the_truncated_gaussian_is_known_exactly() -> None:
    found = gaussian_reference(truncated_gaussian(100_000, 0, falling_variances()))
    assert found.sd[[0, 19]] ** 2 == pytest.approx([0.9733, 0.0500], abs=1e-4)
    y = torch.full((50, 1), 2.8)
    tight = gaussian_reference(TruncatedGaussian(y, torch.tensor([4.0]), tempering=0.2))
    law = truncnorm((-3 - 2.8) / math.sqrt(0.4), (3 - 2.8) / math.sqrt(0.4), loc=2.8, scale=math.sqrt(0.4))
    assert (tight.mean[0], tight.sd[0]) == pytest.approx((law.mean(), law.std()), rel=1e-6)


def test_the_lattice_is_counted() -> None:
    values, counts = ising_counts(4, 4)
    half = {0: 11472, 2: 9984, 4: 7344, 6: 4928, 8: 2638, 10: 1216, 12: 584, 14: 224, 16: 72, 18: 32, 20: 8, 24: 2}
    assert dict(zip(values, counts, strict=True)) == half | {-s: c for s, c in half.items()}
    assert float(Lattice.of(4, 4).log_partition(torch.tensor(0.4))) == pytest.approx(13.186573, abs=1e-6)
    assert ising_counts(1, 2) == ((-1, 1), (2, 2))
    found = ising_posterior(10)
    assert (found.mean, found.sd) == pytest.approx((0.36532, 0.16771), abs=2e-5)
    with pytest.raises(ValueError, match="spins"):
        ising_counts(5, 5)
    with pytest.raises(ValueError, match="no state"):
        ising_posterior(11)


def test_exact_draws_on_the_lattice_have_its_law() -> None:
    lattice = Lattice.of(3, 3)
    drawn = lattice.draw(torch.full((200_000,), 0.5, dtype=torch.float64), generator())
    step = 1e-4
    slope = (lattice.log_partition(torch.tensor(0.5 + step, dtype=torch.float64)) - lattice.log_partition(torch.tensor(0.5 - step, dtype=torch.float64))) / (
        2 * step
    )
    assert float(drawn.mean()) == pytest.approx(float(slope), abs=5 * float(drawn.std()) / math.sqrt(200_000))


def test_gap_bounds() -> None:
    assert float(poisson_gap_bound(100.0, 0.01)) == pytest.approx(max(0.5 * math.exp(-50), math.exp(-math.exp(-1) - 50)), rel=1e-12)
    assert float(poisson_gap_bound(10.0, 1.0)) == pytest.approx(max(0.5 * math.exp(-100 / 110), math.exp(-math.exp(-1) - 0.5)), rel=1e-12)
    assert float(tuna_gap_bound(0.05)) == pytest.approx(math.exp(-10), rel=1e-12)
    with pytest.raises(ValueError, match="above 0"):
        poisson_gap_bound(1.0, 0.0)
    with pytest.raises(ValueError, match="above 0"):
        tuna_gap_bound(0.0)


# ----------------------------------------------------------------------------------------------- diagnostics, input


def test_effective_size_of_an_autoregression() -> None:
    rng, rho = np.random.default_rng(0), 0.8
    noise = rng.normal(size=(4000, 8, 1))
    draws = np.zeros_like(noise)
    draws[0] = noise[0] / math.sqrt(1 - rho**2)
    for t in range(1, len(draws)):
        draws[t] = rho * draws[t - 1] + noise[t]
    ess, rhat = effective(draws)
    assert float(ess[0]) == pytest.approx(32_000 * (1 - rho) / (1 + rho), rel=0.1)
    assert float(rhat[0]) < 1.01
    assert np.isnan(effective(np.zeros((50, 4, 1)))[0]).all()
    assert np.isnan(effective(draws[:3])[0]).all()


def test_samplers_refuse_what_they_cannot_do() -> None:
    logistic = tall_logistic(1000, 0)
    with pytest.raises(ValueError, match="bounded support"):
        PoissonSampler(logistic, Mala(), step=0.1, kappa=0.1)
    with pytest.raises(ValueError, match="kappa"):
        PoissonSampler(models()["robust"], Mala(), step=0.1, kappa=0.0)
    with pytest.raises(ValueError, match="chi"):
        TunaSampler(logistic, step=0.1, chi=-1.0)
    with pytest.raises(ValueError, match="step"):
        TunaSampler(logistic, step=0.0, chi=0.1)
    with pytest.raises(ValueError, match="batch"):
        UniformGradient(logistic, 1001, clip=False)
    with pytest.raises(ValueError, match="inside the support"):
        run_chains(PoissonSampler(models()["robust"], Mala(), step=0.1, kappa=0.1), torch.full((2, 3), 9.0), 1, generator())
    with pytest.raises(ValueError, match="0 or 1"):
        Logistic(torch.ones(2, 1), torch.tensor([0.0, 2.0]))
    with pytest.raises(ValueError, match="not finite"):
        RobustRegression(torch.tensor([[math.nan]]), torch.tensor([0.0]))


def test_a_step_that_draws_no_row_at_all_is_taken() -> None:
    rng = np.random.default_rng(0)
    model = RobustRegression(torch.from_numpy(rng.normal(size=(5, 2))), torch.from_numpy(rng.normal(size=5)), tempering=1e-6)
    ran = run_chains(PoissonSampler(model, Mala(), step=0.1, kappa=1e-3), torch.zeros(2, 2), 20, generator())
    assert int(ran.touched.sum()) == 0
    assert ran.accepted.all()
