"""Factorised circuits, the closure rule, the relaxation, samples and deep circuits of voronoi-pc against values known otherwise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate
from scipy.stats import norm

from backends.voronoi_pc import (
    UNIFORM,
    Experts,
    FactorisedVoronoi,
    Gate,
    LeafNode,
    Product,
    Sum,
    Voronoi,
    VoronoiSum,
    exact_mass,
    mass_interval,
    refine,
    require_closure,
    sample,
    soft_weights,
)
from backends.voronoi_pc.hierarchical import CLOSURE, gridded
from backends.voronoi_pc.relaxation import SoftVoronoi, start_factorised, start_voronoi
from backends.voronoi_pc.scenes import two_centroids
from backends.voronoi_pc.training import Schedule, advance, begin, nearest_means


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def grid() -> FactorisedVoronoi:
    """The 2 x 2 circuit of section 6."""
    return FactorisedVoronoi(
        [tensor([-1, 1.5]), tensor([0, 2])], [tensor([-1, 1]), tensor([0, 2.5])], [tensor([0.8, 1.2]), tensor([1, 0.5])], [tensor([[[0.4, 0.1], [0.2, 0.3]]])]
    )


def four() -> FactorisedVoronoi:
    """Four variables, two or three cells each, weights drawn at random."""
    generator = torch.Generator().manual_seed(1)
    sizes, units = [2, 3, 2, 2], [2, 2, 1]

    def weights(u: int, left: int, right: int) -> torch.Tensor:
        drawn = torch.rand((u, left * right), generator=generator, dtype=torch.float64)
        return (drawn / drawn.sum(-1, keepdim=True)).reshape(u, left, right)

    centroids = [torch.linspace(-1, 1, k, dtype=torch.float64) for k in sizes]
    scale = [torch.full((k,), 0.7, dtype=torch.float64) for k in sizes]
    return FactorisedVoronoi(centroids, centroids, scale, [weights(units[0], 2, 3), weights(units[1], 2, 2), weights(1, units[0], units[1])])


def test_the_two_by_two_circuit_has_the_cards_partition_function() -> None:
    model = grid()
    assert model.partition() == pytest.approx(0.754037, abs=1e-6)
    first = [norm.cdf(0.25, -1, 0.8), norm.sf(0.25, 1, 1.2)]
    second = [norm.cdf(1, 0, 1), norm.sf(1, 2.5, 0.5)]
    assert first == pytest.approx([0.940915, 0.734014], abs=1e-6)
    assert second == pytest.approx([0.841345, 0.998650], abs=1e-6)


def test_boxes_on_the_same_cells_agree_with_the_factorised_circuit() -> None:
    centroids = [[-1.0, 0.0], [-1.0, 2.0], [1.5, 0.0], [1.5, 2.0]]
    experts = Experts.of([[-1.0, 0.0], [-1.0, 2.5], [1.0, 0.0], [1.0, 2.5]], [[0.8, 1.0], [0.8, 0.5], [1.2, 1.0], [1.2, 0.5]])
    found = refine(VoronoiSum(tensor(centroids), tensor([0.4, 0.1, 0.2, 0.3]), experts).region(), 50)
    assert found.lower <= grid().partition() <= found.upper


def test_four_variables_integrate_to_the_partition_function() -> None:
    """By importance sampling from wide normals, which knows nothing of trees."""
    model = four()
    generator = torch.Generator().manual_seed(0)
    x = 2.0 * torch.randn((400_000, 4), generator=generator, dtype=torch.float64)
    log_q = (-0.5 * (x / 2) ** 2 - math.log(2 * math.sqrt(2 * math.pi))).sum(-1)
    ratio = torch.exp(model.log_unnormalised(x) - log_q)
    error = 5 * float(ratio.std()) / math.sqrt(len(x))
    assert model.partition() == pytest.approx(float(ratio.mean()), abs=error)
    inside = ((x[:, 0] > 0.2) & (x[:, 2] < 0.5)).double()
    part = model.mass({}, {0: (0.2, math.inf), 2: (-math.inf, 0.5)})
    assert part == pytest.approx(float((ratio * inside).mean()), abs=error)


def test_marginals_and_conditionals_equal_quadrature() -> None:
    model = grid()

    def f(y: float) -> float:
        return math.exp(float(model.log_unnormalised([[0.1, y]])[0]))

    wanted, _ = integrate.quad(f, -8, 8, points=[1.0], limit=200)
    above, _ = integrate.quad(f, 0.5, 8, points=[1.0], limit=200)
    assert model.mass({0: 0.1}, {}) == pytest.approx(wanted, abs=1e-7)
    assert model.conditional({1: (0.5, math.inf)}, {0: 0.1}, {}) == pytest.approx(above / wanted, abs=1e-7)
    assert model.conditional({0: (1.0, 2.0)}, {}, {0: (-2.0, 0.0)}) == 0.0


def test_draws_of_the_factorised_circuit_have_its_probabilities() -> None:
    model, n = four(), 40_000
    drawn = model.sample(n, torch.Generator().manual_seed(2))
    for event in ({0: (0.0, math.inf)}, {1: (-0.5, 0.5)}, {0: (-math.inf, 0.0), 3: (0.3, math.inf)}):
        inside = torch.ones(n, dtype=torch.bool)
        for variable, (low, high) in event.items():
            inside &= (drawn[:, variable] > low) & (drawn[:, variable] < high)
        wanted = model.conditional(event, {}, {})
        assert float(inside.double().mean()) == pytest.approx(wanted, abs=5 * math.sqrt(wanted * (1 - wanted) / n))


def test_draws_of_the_hard_gate_have_its_probabilities() -> None:
    node, n = two_centroids(30.0), 40_000
    drawn, kept = sample(node, n, torch.Generator().manual_seed(3))
    assert kept == pytest.approx(norm.cdf(1.0), abs=0.01)
    wanted = exact_mass(node, [0.2, -math.inf], [math.inf, math.inf]) / exact_mass(node)
    assert float((drawn[:, 0] > 0.2).double().mean()) == pytest.approx(wanted, abs=5 * math.sqrt(0.25 / n))


def test_no_gap_and_equal_z_on_the_upright_scene() -> None:
    node = two_centroids(0.0)
    assert gridded(node).partition() == pytest.approx(norm.cdf(1.0), abs=1e-12)
    x = tensor([[0.3, 1.0], [-2.0, 0.1]])
    assert torch.allclose(gridded(node).log_unnormalised(x), node.log_unnormalised(x))


def test_a_slanted_gate_over_a_block_that_is_split_again_is_refused() -> None:
    """The counter-example: uniform on [-1, 1]^2 and the cell x1 + x2 <= 0. The mass is a half, the product of its two projections is 1."""
    slanted = Gate((0, 1), tensor([[-1.0, -1.0], [1.0, 1.0]]))
    require_closure([slanted], [(0, 1)])
    with pytest.raises(ValueError, match="does not factorise"):
        require_closure([slanted], [(0,), (1,)])
    require_closure([Gate((0,), tensor([[-1.0], [1.0]]))], [(0,), (1,)])
    require_closure([Gate((0, 1), tensor([[0.0, 0.0], [0.0, 1.0], [2.0, 0.0], [2.0, 1.0]]))], [(0,), (1,)])
    node = VoronoiSum(slanted.centroids, tensor([1.0, 0.0]), Experts.of([[0.0, 0.0]] * 2, [[1.0, 1.0]] * 2, UNIFORM))
    projections = [1.0, 1.0]  # both reach from -1 to 1
    assert exact_mass(node) == pytest.approx(0.5, abs=1e-9)
    assert math.prod(projections) != pytest.approx(exact_mass(node), abs=0.4)
    assert "factorise" in CLOSURE


def test_bad_factorised_circuits_are_refused() -> None:
    columns = [tensor([-1, 1.5]), tensor([0, 2])]
    scale = [tensor([1, 1])] * 2
    with pytest.raises(ValueError, match="ascend"):
        FactorisedVoronoi([tensor([1, 1]), columns[1]], columns, scale, [tensor([[[0.25, 0.25], [0.25, 0.25]]])])
    with pytest.raises(ValueError, match="sum to 1"):
        FactorisedVoronoi(columns, columns, scale, [tensor([[[0.5, 0.5], [0.25, 0.25]]])])
    with pytest.raises(ValueError, match="weight tensors"):
        FactorisedVoronoi(columns, columns, scale, [])
    with pytest.raises(ValueError, match="mass 0"):
        FactorisedVoronoi(columns, columns, scale, [tensor([[[0.25, 0.25], [0.25, 0.25]]])], UNIFORM).conditional({1: (0.0, 1.0)}, {0: 9.0}, {})


@pytest.mark.parametrize("alpha", [0.5, 4.0, 50.0])
def test_soft_weights_harden_within_the_bound_at_every_point(alpha: float) -> None:
    generator = torch.Generator().manual_seed(4)
    x, c = (torch.randn((n, 3), generator=generator, dtype=torch.float64) for n in (500, 7))
    weights = soft_weights(x, c, alpha)
    assert torch.allclose(weights.sum(-1), torch.ones(500, dtype=torch.float64))
    distance = ((x[:, None] - c) ** 2).sum(-1).sort(-1).values
    margin = distance[:, 1] - distance[:, 0]
    assert bool((1 - weights.amax(-1) <= 6 * torch.exp(-alpha * margin) + 1e-12).all())


def spiral_like() -> torch.Tensor:
    rng = np.random.default_rng(0)
    turn = rng.uniform(0.5, 6, 900)
    return torch.from_numpy(np.stack([0.3 * turn * np.cos(turn), 0.3 * turn * np.sin(turn)], 1) + rng.normal(0, 0.08, (900, 2)))


def trained(soft: SoftVoronoi, points: torch.Tensor, loss: str, epochs: int = 30) -> tuple[float, float, float]:
    """Mean hard log f on the rest, exact Z, and the last training loss."""
    schedule = Schedule(epochs, 1.0, 50.0, loss)  # type: ignore[arg-type]
    state = advance(begin(soft, 0, points[600:700], schedule), points[:600], points[600:700], schedule, epochs, lambda: None)
    hard = state.best.hard()
    assert isinstance(hard, VoronoiSum)
    return float(hard.log_unnormalised(points[700:]).mean()), exact_mass(hard), state.losses[-1]


def test_training_raises_log_f_and_leaves_its_start_alone() -> None:
    points = spiral_like()
    soft = start_voronoi(points[:600], points[:8], 1, torch.Generator().manual_seed(0), gated=True, free=True)
    before = [p.clone() for p in soft.parameters()]
    start = soft.hard()
    mean, z, loss = trained(soft, points, "log-f", 60)
    assert mean > float(start.log_unnormalised(points[700:]).mean())
    assert 0 < z <= 1
    assert mean == pytest.approx(-loss, abs=0.3)
    assert all(torch.equal(a, b) for a, b in zip(before, soft.parameters(), strict=True))


def test_stretches_of_training_equal_one_go() -> None:
    points = spiral_like()
    centroids = torch.from_numpy(nearest_means(points[:600].numpy(), 4, 0))
    schedule = Schedule(6, 1.0, 20.0, "normalised")
    soft = start_voronoi(points[:600], centroids, 2, torch.Generator().manual_seed(0), gated=True, free=True)
    whole = advance(begin(soft, 3, points[600:], schedule), points[:600], points[600:], schedule, 6, lambda: None)
    state = begin(soft, 3, points[600:], schedule)
    for _ in range(3):
        state = advance(state, points[:600], points[600:], schedule, 2, lambda: None)
    assert state.losses == pytest.approx(whole.losses, abs=1e-12)


def test_the_estimate_of_the_soft_partition_function_nears_the_exact_one() -> None:
    centroids = tensor([[-1.0, -1.0], [1.0, 1.0]])
    soft = SoftVoronoi(centroids, torch.zeros(2).double(), torch.zeros(2, 1).double(), centroids[:, None].clone(), torch.zeros(2, 1, 2).double())
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([soft.partition(1e6, generator) for _ in range(200)])
    assert float(drawn.mean()) == pytest.approx(norm.cdf(math.sqrt(2)), abs=5 * float(drawn.std()) / math.sqrt(200))


def test_the_soft_factorised_partition_function_is_quadrature() -> None:
    points = spiral_like()
    soft = start_factorised(points, [tensor([-1.0, 0.0, 1.0]), tensor([-0.5, 0.5])], torch.Generator().manual_seed(0))
    at = np.linspace(-6, 6, 601)
    across, up = np.meshgrid(at, at)
    f = torch.exp(soft.log_density(torch.from_numpy(np.stack([across.reshape(-1), up.reshape(-1)], 1)), 3.0))
    assert float(soft.partition(3.0, torch.Generator())) == pytest.approx(float(f.sum()) * (at[1] - at[0]) ** 2, abs=1e-5)


def test_a_deep_circuit_passes_intervals_up() -> None:
    inner = Voronoi(two_centroids(45.0), (1, 2))
    everything = ([-math.inf] * 3, [math.inf] * 3)
    product = Product([LeafNode(0, 0.0, 1.0), inner])
    low, high = mass_interval(product, [0.0, -math.inf, -math.inf], [math.inf] * 3, 500)
    assert low <= norm.cdf(1.0) / 2 <= high
    plain = Product([LeafNode(0, 1.0, 2.0), LeafNode(1, 0.0, 1.0), LeafNode(2, 0.0, 1.0)])
    low, high = mass_interval(Sum(tensor([0.25, 0.75]), [product, plain]), *everything, 500)
    assert low <= 0.25 * norm.cdf(1.0) + 0.75 <= high
    assert high - low < 0.01
    with pytest.raises(ValueError, match="share no variable"):
        Product([LeafNode(0, 0.0, 1.0), LeafNode(0, 1.0, 1.0)])
    with pytest.raises(ValueError, match="one scope"):
        Sum(tensor([0.5, 0.5]), [LeafNode(0, 0.0, 1.0), LeafNode(1, 0.0, 1.0)])
