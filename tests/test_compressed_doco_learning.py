"""Oracles of the learning: closed forms, identities with simpler algorithms, and the reference run on the digits."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from backends.compressed_doco import (
    Block,
    Compressor,
    Feedback,
    Identity,
    LogisticStream,
    Plan,
    QuadraticStream,
    RandK,
    Settings,
    TopK,
    d_ogd,
    dc_dogd,
    max_regret,
    one_point,
    project_ball,
    top_dogd,
    two_point,
    weights_of,
)
from backends.compressed_doco.data import draw_picks, make_stream
from backends.compressed_doco.feedback import on_sphere
from backends.compressed_doco.streams import Stream

GRADIENT = Feedback("gradient", 0.5, np.random.default_rng(0))
WEIGHTS = weights_of("gnm", 9)[1]


@cache
def digits() -> LogisticStream:
    stream, _ = make_stream("digits", 9, 2000, 1.0, np.random.default_rng(0))
    assert isinstance(stream, LogisticStream)
    return stream


def decisions(blocks: list[Block]) -> np.ndarray:
    return np.array([block.decisions for block in blocks])


def losses(blocks: list[Block]) -> np.ndarray:
    return np.concatenate([np.broadcast_to(b.losses, (b.stop - b.start, b.losses.shape[1])) for b in blocks])


def regret(stream: Stream, compress: Compressor, plan: Plan, weights: np.ndarray = WEIGHTS) -> float:
    blocks = list(top_dogd(stream, weights, compress, plan, GRADIENT))
    assert not blocks[-1].diverged
    return float(max_regret(losses(blocks), stream.best(plan.radius).losses)[-1])


class FixedStep(Plan):
    """A plan whose step does not depend on the block."""

    def eta(self, number: int, curvature: float) -> float:
        return self.step


def test_one_learner_is_delayed_block_descent() -> None:
    stream = QuadraticStream(np.full((14, 1, 1), 2.0))
    blocks = list(top_dogd(stream, np.eye(1), Identity(), FixedStep(1, 1, 1.0, 0.25, 1e6), GRADIENT))
    assert decisions(blocks).ravel().tolist() == [0, 0, 1, 2, 2.5, 2.5, 2.25]


def test_complete_graph_without_compression_is_central_descent_with_a_blocks_delay() -> None:
    stream = QuadraticStream(np.random.default_rng(0).normal(size=(30, 5, 3)), 0.7)
    blocks = list(top_dogd(stream, np.full((5, 5), 0.2), Identity(), FixedStep(1, 0, 1.0, 0.3, 0.8), GRADIENT))
    played = decisions(blocks)
    assert np.ptp(played, axis=1).max() < 1e-12
    central = [np.zeros(3), np.zeros(3)]
    for t in range(28):
        gradient = 0.7 * (central[t] - stream.targets[t].mean(axis=0))
        central.append(project_ball(central[t + 1] - 0.3 * gradient, 0.8))
    np.testing.assert_allclose(played[:, 0], central, atol=1e-12)


def test_blocks_hold_still_sum_their_gradients_and_the_last_partial_one_is_played() -> None:
    stream = QuadraticStream(np.random.default_rng(1).normal(size=(23, 9, 4)))
    blocks = list(top_dogd(stream, WEIGHTS, TopK(2), FixedStep(3, 2, 0.1, 0.05, 5.0), GRADIENT, watch=lambda number: True))
    assert [(b.start, b.stop, b.complete) for b in blocks] == [(0, 5, True), (5, 10, True), (10, 15, True), (15, 20, True), (20, 23, False)]
    seen = blocks[1].surrogates
    assert seen is not None
    expected = np.zeros((9, 4)) - 0.05 * (0 - stream.targets[:5]).sum(axis=0)
    np.testing.assert_allclose(seen[0], expected, atol=1e-6)  # after block 1 the surrogates are -eta z
    mean = seen.mean(axis=1)
    np.testing.assert_allclose(mean, np.broadcast_to(mean[0], mean.shape), atol=1e-6)
    np.testing.assert_array_equal(seen[3], seen[5])  # compensation moves replicas, not surrogates
    assert losses(blocks).shape == (23, 9)


def test_regret_is_counted_on_all_data() -> None:
    stream = QuadraticStream(np.random.default_rng(1).normal(size=(6, 3, 2)), 2.0)
    points = np.random.default_rng(2).normal(size=(1, 3, 2))
    by_hand = [[sum(((points[0, i] - stream.targets[t, j]) ** 2).sum() for j in range(3)) for i in range(3)] for t in range(6)]
    np.testing.assert_allclose(stream.global_losses(0, 6, points), by_hand)
    rows = digits()
    point = np.random.default_rng(3).normal(size=(1, 9, 65))
    by_hand = [[sum(math.log1p(math.exp(-rows.rows[rows.picks[t, j]] @ point[0, i])) for j in range(9)) for i in range(9)] for t in range(4)]
    np.testing.assert_allclose(rows.global_losses(0, 4, point), by_hand)


@pytest.mark.parametrize("kind", ["digits", "breast-cancer", "quadratic"])
def test_gradients_are_those_of_the_losses(kind: Any) -> None:
    stream, _ = make_stream(kind, 4, 60, 0.5, np.random.default_rng(0))
    point, along = np.random.default_rng(1).normal(size=(2, 1, 4, stream.dimension))
    ahead, behind = (stream.local_losses(3, 9, point + sign * 1e-6 * along) for sign in (1, -1))
    slope = (stream.local_gradients(3, 9, point) * along).sum(axis=-1)
    np.testing.assert_allclose((ahead - behind) / 2e-6, slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("radius", [0.5, 5.0, 40.0])
def test_the_best_fixed_decision_is_certified_and_no_solver_finds_a_better_one(radius: float) -> None:
    stream = digits()
    best = stream.best(radius)
    assert best.gap <= 1e-9
    assert np.linalg.norm(best.point) <= radius * (1 + 1e-12)
    share = np.bincount(stream.picks.ravel(), minlength=len(stream.rows)) / stream.picks.size

    def loss(x: np.ndarray) -> float:
        return float(share @ np.logaddexp(0, -stream.rows @ x))

    mean = best.losses.sum() / stream.picks.size
    assert mean == pytest.approx(loss(best.point))
    if radius < 40:  # a peer from outside
        limit = {"type": "ineq", "fun": lambda x: radius**2 - x @ x, "jac": lambda x: -2 * x}
        slope = lambda x: -(share / (1 + np.exp(stream.rows @ x))) @ stream.rows  # noqa: E731
        peer = minimize(loss, np.zeros(65), jac=slope, method="SLSQP", constraints=[limit], options={"ftol": 1e-12, "maxiter": 300})
        assert mean == pytest.approx(peer.fun, abs=1e-7)


def test_the_best_decision_of_quadratics_is_the_projected_mean() -> None:
    targets = np.random.default_rng(0).normal(size=(40, 3, 5)) + 2
    np.testing.assert_allclose(QuadraticStream(targets).best(100.0).point, targets.mean(axis=(0, 1)))
    assert np.linalg.norm(QuadraticStream(targets).best(1.5).point) == pytest.approx(1.5)


def test_estimates_are_the_gradient_in_the_mean() -> None:
    rng, centre = np.random.default_rng(0), np.array([1.0, -2.0, 0.5, 3.0])
    x, u = np.array([0.5, 0.0, -1.0, 2.0]), on_sphere((400_000, 4), rng)
    f = lambda at: 1.5 * ((at - centre) ** 2).sum(axis=-1)  # noqa: E731
    for delta in (0.1, 2.0):
        estimate = two_point(f(x + delta * u), f(x - delta * u), u, delta)
        np.testing.assert_allclose(estimate.mean(axis=0), 3 * (x - centre), atol=0.06)
    # Exactly: over the coordinate axes and their opposites, which have the sphere's second moments.
    axes = np.concatenate([np.eye(4), -np.eye(4)])
    exact = two_point(f(x + 0.7 * axes), f(x - 0.7 * axes), axes, 0.7).mean(axis=0)
    np.testing.assert_allclose(exact, 3 * (x - centre), atol=1e-12)
    np.testing.assert_allclose(one_point(f(x + 0.7 * axes), axes, 0.7).mean(axis=0), 3 * (x - centre), atol=1e-12)


def test_bandits_never_ask_outside_the_ball() -> None:
    asked: list[float] = []

    class Watched(QuadraticStream):
        def local_losses(self, start: int, stop: int, points: np.ndarray) -> np.ndarray:
            asked.append(float(np.linalg.norm(points, axis=-1).max()))
            return super().local_losses(start, stop, points)

    stream = Watched(np.random.default_rng(0).normal(size=(200, 4, 3)) + 4)
    weights = weights_of("ring", 4)[1]
    for kind in ("one-point", "two-point"):
        plan = FixedStep(4, 1, 0.2, 0.02, 1.0)
        blocks = list(top_dogd(stream, weights, TopK(2), plan, Feedback(kind, 0.3, np.random.default_rng(1))))  # type: ignore[arg-type]
        assert np.linalg.norm(decisions(blocks), axis=-1).max() <= 0.7 + 1e-12
    assert 0.9 < max(asked) <= 1 + 1e-12


def test_dc_dogd_without_compression_is_d_ogd() -> None:
    stream = QuadraticStream(np.random.default_rng(0).normal(size=(60, 9, 4)))
    settings = Settings(np.ones(2), np.array([0.5, 1.0]), np.full(2, 7.0))
    compressed = dc_dogd(stream, WEIGHTS, Identity(), settings, 1.0, GRADIENT)
    np.testing.assert_allclose(compressed.losses, d_ogd(stream, np.stack([WEIGHTS] * 2), settings, 1.0, GRADIENT), atol=1e-10)
    assert compressed.bits[0].sum() == 32 * 4 * 36


def test_dc_dogds_settings_do_not_touch_each_other() -> None:
    stream = QuadraticStream(np.random.default_rng(0).normal(size=(50, 9, 6)))
    gammas, etas, offsets = np.array([0.05, 0.1, 0.9]), np.array([1.0, 2.0, 3.0]), np.array([3.0, 4.0, 5.0])
    together = dc_dogd(stream, WEIGHTS, TopK(2), Settings(gammas, etas, offsets), 2.0, GRADIENT).losses
    for i in range(3):
        alone = dc_dogd(stream, WEIGHTS, TopK(2), Settings(gammas[[i]], etas[[i]], offsets[[i]]), 2.0, GRADIENT).losses
        np.testing.assert_array_equal(together[:, i], alone[:, 0])


# ------------------------------------------------------------------------------------------- the reference run


def test_the_best_loss_of_the_digits() -> None:
    assert digits().best(5.0).losses.sum() / digits().picks.size == pytest.approx(0.519, abs=5e-4)


TABLE = [
    (33, 0.7, 3, 1, 0.0285, 0.5),
    (33, 0.7, 5, 2, 0.0216, 1.0),
    (33, 0.7, 20, 5, 0.0302, 1.0),
    (7, 0.3, 5, 2, 0.0568, 0.5),
    (7, 0.3, 20, 5, 0.0313, 1.0),
    (7, 0.3, 40, 10, 0.0577, 1.0),
    (3, 0.15, 10, 3, 0.0912, 0.5),
    (3, 0.15, 20, 5, 0.0734, 1.0),
    (3, 0.15, 40, 10, 0.0588, 1.0),
]


@pytest.mark.parametrize(("k", "gamma", "gossip", "compensation", "expected", "step"), TABLE)
def test_the_cards_table(k: int, gamma: float, gossip: int, compensation: int, expected: float, step: float) -> None:
    assert regret(digits(), TopK(k), Plan(gossip, compensation, gamma, step, 5.0)) == pytest.approx(expected, rel=0.15)


def test_the_u_moves_right_as_less_is_sent() -> None:
    lengths = ((3, 1), (5, 2), (10, 3), (20, 5), (40, 10))
    best = [
        min(lengths, key=lambda pair: regret(digits(), TopK(k), Plan(*pair, gamma, 1.0, 5.0)))
        for k, gamma in ((33, 0.7), (7, 0.3), (3, 0.15))
    ]
    assert [sum(pair) for pair in best] == [7, 25, 50]


def test_compensation_gains_nothing_here() -> None:
    """Section 6E of the card: the same rounds spent on gossip do as well."""
    sent, gossiped = (regret(digits(), TopK(7), Plan(20, 5, 0.3, 1.0, 5.0, compensation=on)) for on in (True, False))
    assert gossiped == pytest.approx(sent, rel=0.05)
    assert gossiped <= sent


def test_random_entries_pay_for_what_top_k_saves() -> None:
    plan = Plan(20, 5, 0.1, 1.0, 5.0)
    assert regret(digits(), TopK(7), plan) < regret(digits(), RandK(7, np.random.default_rng(0)), plan)


def test_lost_surrogates_stop_the_run() -> None:
    blocks = list(top_dogd(digits(), WEIGHTS, TopK(3), Plan(20, 5, 0.7, 1.0, 5.0), GRADIENT))
    assert blocks[-1].diverged
    assert blocks[-1].stop < 2000
    assert all(np.isfinite(block.losses).all() for block in blocks)


def test_label_skew_says_who_sees_what() -> None:
    rng = np.random.default_rng(0)
    parts = np.array_split(np.arange(1797), 9)
    own = [np.isin(draw_picks(1797, 9, 4000, skew, rng), parts[4])[:, 4].mean() for skew in (0.0, 0.5, 1.0)]
    assert own == pytest.approx([1 / 9, 0.5 + 0.5 / 9, 1.0], abs=0.03)


BAD: list[tuple[Callable[[], Any], str]] = [
    (lambda: Plan(0, 1, 0.5, 1.0, 5.0), "L1"),
    (lambda: Plan(1, 1, 1.5, 1.0, 5.0), "step"),
    (lambda: Plan(1, 1, 0.5, 1.0, 0.0), "radius"),
    (lambda: list(top_dogd(digits(), WEIGHTS, TopK(3), Plan(2000, 1, 0.5, 1.0, 5.0), GRADIENT)), "longer than the horizon"),
    (lambda: list(top_dogd(digits(), np.eye(1), TopK(3), Plan(2, 1, 0.5, 1.0, 5.0), GRADIENT)), "learners"),
    (lambda: Feedback("one-point", 5.0, np.random.default_rng(0)).room(5.0), "below the radius"),
    (lambda: two_point(np.ones(1), np.ones(1), np.ones((1, 2)), 0.0), "delta"),
    (lambda: project_ball(np.ones(2), -1.0), "radius"),
    (lambda: LogisticStream(np.full((2, 2), np.nan), np.zeros((3, 2), int)), "finite"),
    (lambda: LogisticStream(np.ones((2, 2)), np.full((3, 2), 5)), "pick"),
    (lambda: QuadraticStream(np.ones((2, 2))), "targets"),
    (lambda: QuadraticStream(np.ones((2, 2, 1)), 0.0), "curvature"),
    (lambda: draw_picks(3, 4, 10, 0.5, np.random.default_rng(0)), "learners"),
    (lambda: max_regret(np.ones((3, 2)), np.ones(2)), "losses"),
    (lambda: Settings(np.ones(1), np.zeros(1), np.ones(1)), "above 0"),
]


@pytest.mark.parametrize(("call", "words"), BAD, ids=[words for _, words in BAD])
def test_bad_input_is_refused_in_words(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
