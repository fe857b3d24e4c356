"""Oracles of stla: the worked example, the telescoping identity, exact solvers, orders, GPTQ as its special case, what drives the learning."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from backends.stla import (
    Grid,
    Learning,
    Problem,
    adaround,
    column_order,
    damped,
    decoupled,
    gptq,
    layer_loss,
    learn,
    lookahead,
    objective,
    rectified_sigmoid,
    rtn,
    search_grid,
    stla,
    telescope,
    upper_factor,
)
from backends.stla.curvature import remaining_metric
from backends.stla.example import example
from backends.stla.grids import full_range
from backends.stla.rounding import start
from backends.stla.tensors import check_sizes
from kernels import rounding

SPIN = np.array(
    [
        [4.5, 1.5, -1.2, 0.1, 0.2, 0],
        [1.5, 3.5, 0.3, 0.9, 0, 0.1],
        [-1.2, 0.3, 2.5, 0.2, 0.8, 0],
        [0.1, 0.9, 0.2, 3, 0.4, -1],
        [0.2, 0, 0.8, 0.4, 2, 0.5],
        [0, 0.1, 0, -1, 0.5, 1.5],
    ]
)
UNIT = Grid(torch.ones(20, 1, dtype=torch.float64), torch.zeros(20, 1, dtype=torch.float64), 1)


def layer(rows: int, columns: int, seed: int, rank: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(columns, rank or columns)) @ rng.normal(size=(rank or columns, 4 * columns)) + 0.3 * rng.normal(size=(columns, 4 * columns))
    return rng.normal(size=(rows, columns)), 2 / (4 * columns) * mixed @ mixed.T


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The card's 20 random rows, and the least error of each by brute force."""
    rng = np.random.default_rng(3)
    mixed = rng.normal(size=(10, 6))
    second = mixed @ mixed.T / 6 + 0.3 * np.eye(10)
    weights = rng.uniform(0, 1, (20, 10))
    error = np.array(list(itertools.product([0, 1], repeat=10)), float)[None] - weights[:, None]
    return weights, second, np.einsum("rni,ij,rnj->rn", error, second, error).min(1)


def ratio(found: Any, rows: tuple[np.ndarray, np.ndarray, np.ndarray]) -> float:
    weights, second, best = rows
    error = found.weights.numpy() - weights
    return float((np.einsum("ri,ij,rj->r", error, second, error) / best).mean())


def on_unit(rows: tuple[np.ndarray, np.ndarray, np.ndarray], cluster: int, **more: Any) -> Any:
    weights, second, _ = rows
    return stla(weights, second, cluster=cluster, group=None, order="none", damping=0, grid=UNIT, **more)


def test_worked_example() -> None:
    found = example()
    assert found["local"] == pytest.approx([1.024, 0.464, 0.464, 2.304])
    assert found["global"] == pytest.approx([0.7104, 0.4064, 0.4624, 1.5984])
    assert found["final"] == pytest.approx([0.712, 0.432, 0.592, 1.792])
    second = [[2, 1.2, 0.6], [1.2, 2, 0.8], [0.6, 0.8, 1]]
    assert float(lookahead(second, 0, 1)) == pytest.approx(1.258824, abs=1e-6)
    assert lookahead(second, 0, 2).numpy() == pytest.approx(np.array([[1.64, 0.72], [0.72, 1.36]]))
    assert layer_loss([[0.4] * 3], [[0.0] * 3], second) == pytest.approx(1.632)


def test_the_objective_is_the_card_s_on_the_four_candidates() -> None:
    metric = torch.tensor([[1.64, 0.72], [0.72, 1.36]], dtype=torch.float64)
    candidates = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=torch.float64)
    grid = Grid(torch.ones(4, 1, dtype=torch.float64), torch.zeros(4, 1, dtype=torch.float64), 1)
    problem = Problem(torch.zeros(4, 2, dtype=torch.float64), grid, metric, torch.full((4, 2), 0.4, dtype=torch.float64))
    recon, penalty, _ = objective(40 * (candidates - 0.5), problem, 1.0, 2.0)
    assert recon.numpy() == pytest.approx([0.7104, 0.4064, 0.4624, 1.5984])
    assert penalty.numpy() == pytest.approx(np.zeros(4), abs=1e-12)


@pytest.mark.parametrize(("start_at", "stop"), [(0, 5), (5, 12), (12, 24), (0, 24), (23, 24)])
def test_the_factor_gives_the_schur_complement_of_the_future(start_at: int, stop: int) -> None:
    _, second = layer(2, 24, 0)
    upper = upper_factor(torch.as_tensor(second))
    assert torch.equal(upper, upper.triu())
    np.testing.assert_allclose((upper.T @ upper @ torch.as_tensor(second)).numpy(), np.eye(24), atol=1e-10)
    np.testing.assert_allclose(remaining_metric(upper, start_at, stop).numpy(), lookahead(second, start_at, stop).numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("order", ["spin", "act", "none"])
@pytest.mark.parametrize("objective_", ["global", "local", "nearest"])
@pytest.mark.parametrize(("cluster", "group"), [(8, 8), (4, 16), (16, 8), (48, None), (1, 12)])
def test_the_bars_add_up_to_the_loss(order: Any, objective_: Any, cluster: int, group: int | None) -> None:
    weights, second = layer(5, 48, 1, rank=10)
    found = stla(weights, second, cluster=cluster, group=group, order=order, objective=objective_, learning=Learning(20))
    kept, metric = damped(weights, second)
    terms = telescope(found.at, found.weights, metric, cluster, found.order)
    assert float(terms.sum()) == pytest.approx(found.loss, rel=1e-10)
    assert terms.numpy() == pytest.approx([c.remaining for c in found.clusters], rel=1e-8)
    assert found.loss == pytest.approx(layer_loss(kept, found.weights, metric), rel=1e-12)
    np.testing.assert_allclose((found.scale * (found.codes - found.zero)).numpy(), found.weights.numpy(), atol=1e-12)
    assert int(found.codes.min()) >= 0
    assert int(found.codes.max()) <= 7


def test_the_identity_holds_for_any_rounding_and_fails_for_another_history() -> None:
    """Q is arbitrary, the weights at each moment follow from it."""
    weights, second = layer(3, 12, 2)
    rng = np.random.default_rng(5)
    quantised = np.round(weights + rng.normal(size=weights.shape))
    at, now = np.empty_like(weights), weights.copy()
    for a in range(0, 12, 4):
        at[:, a : a + 4] = now[:, a : a + 4]
        rest = slice(a + 4, 12)
        if a < 8:
            done = quantised[:, : a + 4] - weights[:, : a + 4]
            now[:, rest] = weights[:, rest] - done @ second[: a + 4, rest] @ np.linalg.inv(second[rest, rest])
    assert float(telescope(at, quantised, second, 4).sum()) == pytest.approx(layer_loss(weights, quantised, second), rel=1e-10)
    assert float(telescope(weights, quantised, second, 4).sum()) != pytest.approx(layer_loss(weights, quantised, second), rel=0.01)


def test_gptq_is_the_published_algorithm() -> None:
    """Against a plain transcription of the published loop in numpy, by the inverse of H itself."""
    weights, second = layer(6, 40, 4, rank=8)
    found = gptq(weights, second, bits=3, group=None, damping=0.02)
    kept, metric = (x.numpy() for x in damped(weights, second, 0.02))
    grid = search_grid(torch.as_tensor(kept), 3, torch.as_tensor(metric))
    scale, zero = grid.scale.numpy()[:, 0], grid.zero.numpy()[:, 0]
    now, out, inverse = kept.copy(), np.empty_like(kept), np.linalg.inv(metric)
    for j in range(40):
        out[:, j] = scale * (np.clip(np.round(now[:, j] / scale) + zero, 0, 7) - zero)
        now[:, j + 1 :] -= np.outer((now[:, j] - out[:, j]) / inverse[0, 0], inverse[0, 1:])
        inverse = inverse[1:, 1:] - np.outer(inverse[1:, 0], inverse[0, 1:]) / inverse[0, 0]
    np.testing.assert_allclose(found.weights.numpy(), out, atol=1e-9)


@pytest.mark.parametrize(("group", "order"), [(None, "none"), (12, "none"), (12, "act"), (4, "act")])
def test_gptq_is_the_sweep_of_single_columns_without_learning(group: int | None, order: Any) -> None:
    weights, second = layer(7, 24, 6)
    ours = gptq(weights, second, group=group, order=order)
    swept = stla(weights, second, cluster=1, group=group, order=order, objective="nearest")
    np.testing.assert_allclose(ours.weights.numpy(), swept.weights.numpy(), atol=1e-10)
    np.testing.assert_allclose(ours.at.numpy(), swept.at.numpy(), atol=1e-10)


def test_one_cluster_is_adaround_of_the_whole_layer() -> None:
    weights, second = layer(4, 16, 7)
    learning = Learning(60)
    ours = stla(weights, second, cluster=16, group=None, order="none", learning=learning)
    whole = adaround(weights, second, group=None, learning=learning)
    np.testing.assert_array_equal(ours.codes.numpy(), whole.codes.numpy())
    local = stla(weights, second, cluster=16, group=None, order="none", objective="local", learning=learning)
    np.testing.assert_array_equal(ours.codes.numpy(), local.codes.numpy())


def test_ratios_to_brute_force_are_the_card_s(rows: Any) -> None:
    weights, second, _ = rows
    assert ratio(adaround(weights, second, group=None, damping=0, grid=UNIT, learning=Learning(0)), rows) == pytest.approx(1.957, abs=1e-3)
    assert ratio(gptq(weights, second, group=None, damping=0, grid=UNIT), rows) == pytest.approx(1.142, abs=1e-3)
    assert ratio(on_unit(rows, 5), rows) == pytest.approx(1.115, abs=2e-3)
    assert ratio(on_unit(rows, 5, objective="local"), rows) == pytest.approx(1.591, abs=2e-3)
    assert ratio(on_unit(rows, 5, learning=Learning(regulariser=0.1)), rows) == pytest.approx(1.157, abs=2e-3)
    assert ratio(on_unit(rows, 5, learning=Learning(regulariser=0.01)), rows) == pytest.approx(1.197, abs=2e-3)
    assert ratio(on_unit(rows, 10, learning=Learning(1000)), rows) == pytest.approx(1.195, abs=2e-3)


def test_an_exact_solver_of_each_cluster_gives_the_card_s_ratios(rows: Any) -> None:
    """By enumeration in place of learning: c = 10 is the optimum, the look-ahead beats the local metric."""
    weights, second, best = rows
    metric = torch.as_tensor(second)

    def solved(cluster: int, ahead: bool) -> float:
        candidates = np.array(list(itertools.product([0, 1], repeat=cluster)), float)
        now, out = weights.copy(), np.empty_like(weights)
        for a in range(0, 10, cluster):
            here, rest = slice(a, a + cluster), slice(a + cluster, 10)
            judge = lookahead(metric, a, a + cluster).numpy() if ahead else second[here, here]
            error = candidates[None] - (now if ahead else weights)[:, None, here]
            out[:, here] = candidates[np.einsum("rni,ij,rnj->rn", error, judge, error).argmin(1)]
            if a + cluster < 10:
                done = out[:, : a + cluster] - weights[:, : a + cluster]
                now[:, rest] = weights[:, rest] - done @ second[: a + cluster, rest] @ np.linalg.inv(second[rest, rest])
        error = out - weights
        return float((np.einsum("ri,ij,rj->r", error, second, error) / best).mean())

    assert [solved(5, False), solved(5, True), solved(10, True)] == pytest.approx([1.431, 1.123, 1.0], abs=1e-3)


def test_orders_are_the_card_s() -> None:
    assert column_order(SPIN, 3, "spin").tolist() == [0, 1, 2, 3, 5, 4]
    assert column_order(SPIN, 2, "spin").tolist() == [0, 1, 3, 5, 2, 4]
    assert column_order(SPIN, 2, "act").tolist() == [0, 1, 3, 2, 4, 5]
    assert column_order(SPIN, 2, "none").tolist() == list(range(6))


def test_without_a_push_it_is_nearest_rounding_of_the_compensated_weights(rows: Any) -> None:
    """Where nothing is clipped the start reproduces W_K, so nothing pulls; the regulariser alone sets it off."""
    weights, second = layer(6, 24, 8)
    wide = full_range(torch.as_tensor(1.5 * weights), 4)
    both = [
        stla(weights, second, bits=4, cluster=6, group=None, grid=wide, objective=o, learning=Learning(200, regulariser=r))
        for o, r in (("nearest", 0.0), ("global", 0.0), ("global", 1.0))
    ]
    np.testing.assert_array_equal(both[0].codes.numpy(), both[1].codes.numpy())
    assert not np.array_equal(both[0].codes.numpy(), both[2].codes.numpy())
    assert both[2].loss < both[1].loss
    assert np.array_equal(on_unit(rows, 5, learning=Learning(0)).codes.numpy(), on_unit(rows, 5, objective="nearest").codes.numpy())


def test_global_beats_local_on_correlated_inputs() -> None:
    weights, second = layer(32, 128, 9, rank=24)
    found = {o: stla(weights, second, cluster=32, group=None, order="act", objective=o, learning=Learning(200)).loss for o in ("global", "local")}
    assert found["global"] < 0.6 * found["local"]
    assert found["global"] < rtn(weights, second, group=None).loss
    assert decoupled(weights, second, group=None, learning=Learning(200)).loss < rtn(weights, second, group=None).loss


@pytest.mark.parametrize("beta", [None, 20.0, 7.3, 2.0])
def test_the_gradient_is_that_of_autograd(beta: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(6, 8, generator=generator, dtype=torch.float64) * 3
    base = torch.randint(-2, 9, (6, 8), generator=generator).double()
    grid = Grid(torch.rand(6, 8, generator=generator, dtype=torch.float64) + 0.5, torch.full((6, 8), 3.0, dtype=torch.float64), 7)
    mixed = torch.randn(8, 8, generator=generator, dtype=torch.float64)
    problem = Problem(base - grid.zero, grid, mixed @ mixed.T, torch.randn(6, 8, generator=generator, dtype=torch.float64))
    recon, penalty, gradient = objective(v, problem, 0.7, beta)
    v.requires_grad_(True)
    soft = (1.2 * torch.sigmoid(v) - 0.1).clamp(0, 1)
    error = grid.scale * ((base + soft).clamp(0, 7) - grid.zero) - problem.reference
    expected = ((error @ problem.metric) * error).sum(1)
    pushed = (1 - (2 * soft - 1).abs() ** beta).sum(1) if beta is not None else torch.zeros(6, dtype=torch.float64)
    (expected.sum() + 0.7 * pushed.sum()).backward()
    torch.testing.assert_close(recon, expected.detach())
    torch.testing.assert_close(penalty, pushed.detach())
    torch.testing.assert_close(gradient, v.grad)


def test_the_objective_is_that_of_the_fused_kernel() -> None:
    weights, second = layer(6, 16, 15)
    grid = full_range(torch.as_tensor(weights), 3)
    problem = Problem(torch.floor(torch.as_tensor(weights) / grid.scale), grid, torch.as_tensor(second), torch.as_tensor(weights) + 0.1)
    v = torch.randn(6, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ours = objective(v, problem, 0.4, 5.0)
    given = (x.float() for x in (v, problem.floor, grid.scale, grid.zero, problem.reference, problem.metric))
    fused = rounding.reference(*given, bits=3, weight=0.4, beta=5.0)
    for a, b in zip((ours[0], 0.4 * ours[1], ours[2]), fused, strict=True):
        torch.testing.assert_close(a.float(), b, rtol=1e-4, atol=1e-5)


def test_the_start_is_the_weight_itself() -> None:
    fraction = torch.linspace(0, 1, 11, dtype=torch.float64)
    assert rectified_sigmoid(start(fraction)).numpy() == pytest.approx(fraction.clamp(1e-4, 1 - 1e-4).numpy(), abs=1e-12)


def test_grid_search_finds_the_least_error_of_all_candidates() -> None:
    rng = np.random.default_rng(0)
    weights, mixed = rng.normal(size=(3, 8)), rng.normal(size=(8, 8))
    metric = mixed @ mixed.T
    found = search_grid(torch.as_tensor(weights), 3, torch.as_tensor(metric))
    error = found.nearest(torch.as_tensor(weights)).numpy() - weights
    ours = np.einsum("ri,ij,rj->r", error, metric, error)
    for row in range(3):
        high, low = max(weights[row].max(), 0), min(weights[row].min(), 0)
        tried = []
        for k in range(100, 0, -1):
            scale = k / 100 * (high - low) / 7
            for zero in (np.floor(-k / 100 * low / scale + 1e-12), np.ceil(-k / 100 * low / scale - 1e-12)):
                e = scale * (np.clip(np.round(weights[row] / scale) + zero, 0, 7) - zero) - weights[row]
                tried.append(e @ metric @ e)
        assert ours[row] == pytest.approx(min(tried), rel=1e-9)


def test_groups_are_fitted_on_compensated_weights_in_the_order_of_quantisation() -> None:
    weights, second = layer(4, 24, 11)
    found = stla(weights, second, cluster=4, group=8, order="act", objective="nearest")
    moved = found.scale[:, found.order]
    assert all(len(torch.unique(moved[0, a : a + 8])) == 1 for a in (0, 8, 16))
    _, metric = damped(weights, second)
    upper = upper_factor(metric[found.order][:, found.order])
    plain = search_grid(torch.as_tensor(weights)[:, found.order][:, 16:], 3, remaining_metric(upper, 16, 24))
    assert not torch.allclose(plain.scale[:, 0], moved[:, 16]), "the last group's scale is that of the original weights"


def test_a_correction_of_no_drift_changes_nothing_and_one_of_drift_does() -> None:
    weights, second = layer(4, 16, 12)
    plain, none = (stla(weights, second, cluster=4, group=8, learning=Learning(30), drift=d) for d in (None, np.zeros((16, 16))))
    assert torch.equal(plain.codes, none.codes)
    drifted = stla(weights, second, cluster=4, group=8, learning=Learning(30), drift=0.5 * second)
    assert not torch.equal(plain.codes, drifted.codes)


def test_dead_columns_and_rows_of_zeros_are_kept_at_zero() -> None:
    weights, second = layer(4, 16, 13)
    second[3], second[:, 3] = 0, 0
    weights[2] = 0
    for found in (stla(weights, second, cluster=8, group=8, learning=Learning(20)), gptq(weights, second, group=8), rtn(weights, second, group=8)):
        assert torch.isfinite(found.weights).all()
        assert found.weights[:, 3].abs().max() == 0
        assert found.weights[2].abs().max() == 0
    constant = stla(np.full((1, 16), 0.3), second, cluster=8, group=8, learning=Learning(20))
    assert torch.isfinite(constant.weights).all()


def test_learning_clips_what_lies_beyond_the_grid() -> None:
    grid = Grid(torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64), 7)
    weights = torch.tensor([[9.6, -3.2, 6.7]], dtype=torch.float64)
    problem = Problem(torch.floor(weights), grid, torch.eye(3, dtype=torch.float64), weights)
    assert learn(weights, problem, Learning(50)).tolist() == [[7, 0, 7]]


BAD = [
    (lambda w, h: stla(w, h, group=5), "do not divide"),
    (lambda w, h: stla(w, h, group=8, cluster=6), "do not fit"),
    (lambda w, h: stla(w, h, group=8, cluster=0), "cannot be formed"),
    (lambda w, h: stla(w, h, group=8, cluster=8, bits=1), "choose 2 to 8"),
    (lambda w, h: stla(w, h, group=8, cluster=8, bits=9), "choose 2 to 8"),
    (lambda w, h: stla(w, h, group=8, cluster=8, objective="both"), "no objective"),
    (lambda w, h: stla(w, h, group=8, cluster=8, order="up"), "no order"),
    (lambda w, h: stla(w, h, group=8, cluster=8, damping=-1), "below zero"),
    (lambda w, h: gptq(w, np.ones((16, 16)), group=8, damping=0), "not positive definite"),
    (lambda w, h: gptq(w, -h, group=8), "negative"),
    (lambda w, h: gptq(w, h + np.triu(h), group=8), "not symmetric"),
    (lambda w, h: gptq(w, h[:8, :8], group=8), "16 columns"),
    (lambda w, h: gptq(w * np.nan, h, group=8), "not finite"),
    (lambda w, h: rtn(w[0], h, group=8), "give a matrix"),
    (lambda w, h: telescope(w, w[:2], h, 4), "do not fit"),
    (lambda w, h: telescope(w, w, h, 4, [0] * 16), "each column once"),
    (lambda w, h: lookahead(h, 4, 4), "not among"),
    (lambda w, h: layer_loss(w, w[:, :4], h), "shape"),
    (lambda w, h: Learning(-1), "at least 0"),
    (lambda w, h: check_sizes(16, 3, 4), "do not fit"),
]


@pytest.mark.parametrize(("call", "words"), BAD, ids=[words for _, words in BAD])
def test_bad_input_is_refused_in_words(call: Any, words: str) -> None:
    weights, second = layer(4, 16, 14)
    with pytest.raises(ValueError, match=words):
        call(weights, second)


def test_nothing_given_is_changed() -> None:
    weights, second = torch.randn(4, 16, dtype=torch.float64), torch.eye(16, dtype=torch.float64)
    second[3, 3] = 0
    before = weights.clone(), second.clone()
    stla(weights, second, cluster=8, group=8, learning=Learning(5))
    gptq(weights, second, group=8)
    assert torch.equal(weights, before[0])
    assert torch.equal(second, before[1])
