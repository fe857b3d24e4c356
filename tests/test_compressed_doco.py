"""Oracles of compressed gossip: worked by hand, from the theorems' tables, and exact identities, message by message."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest

from backends.compressed_doco import (
    Compressor,
    Identity,
    Quantiser,
    RandK,
    RandomGossip,
    Replicas,
    TopK,
    build_graph,
    check_weights,
    compensate,
    compensation_rounds,
    contraction,
    convex_step,
    dcdogd_step,
    decay,
    disagreement,
    factor_per_round,
    gossip_round,
    gossip_rounds,
    gossip_step,
    levels_for,
    mixing_weights,
    spectrum,
    strongly_convex_step,
    weights_of,
)
from backends.compressed_doco.compressors import make

HALF = np.full((2, 2), 0.5)
PAPER = weights_of("gnm", 9)[1]


def test_three_rounds_worked_by_hand() -> None:
    y, replica = np.array([[4.0, 1.0], [0.0, 3.0]]), np.zeros((2, 2))
    by_hand = [
        ([[3, 1.75], [1, 2.25]], [[4, 0], [0, 3]]),
        ([[2.25, 2.0625], [1.75, 1.9375]], [[4, 1.75], [1, 3]]),
        ([[1.9375, 2.109375], [2.0625, 1.890625]], [[2.25, 1.75], [1, 1.9375]]),
    ]
    for surrogates, replicas in by_hand:
        y, replica, _ = gossip_round(y, replica, HALF, 0.5, TopK(1))
        assert y.tolist() == surrogates
        assert replica.tolist() == replicas
        assert y.mean(axis=0).tolist() == [2, 2]


def test_spectra_of_the_card() -> None:
    found = spectrum(PAPER)
    assert found.gap == pytest.approx(0.323519, abs=5e-7)
    assert found.beta == pytest.approx(1.316043, abs=5e-7)
    ring = weights_of("ring", 9)[1]
    assert spectrum(ring).gap == pytest.approx(0.1560, abs=5e-5)
    assert spectrum(ring).gap == pytest.approx(1 - (1 + 2 * math.cos(2 * math.pi / 9)) / 3)  # a circulant matrix
    np.testing.assert_allclose(ring[0, [0, 1, 8]], 1 / 3)
    complete = weights_of("complete", 7)[1]
    np.testing.assert_allclose(complete, 1 / 7)
    assert (spectrum(complete).gap, spectrum(complete).beta) == (pytest.approx(1), pytest.approx(1))
    assert spectrum(np.eye(1)).gap == 1


@pytest.mark.parametrize(
    ("k", "gossip", "dcdogd", "rounds"), [(65, 0.009744, 1, 784), (33, 0.004422, 5.3e-6, 1543), (7, 8.64e-4, 1.15e-7, 7275), (3, 3.66e-4, 1.92e-8, 16975)]
)
def test_theory_steps_of_the_card(k: int, gossip: float, dcdogd: float, rounds: int) -> None:
    found, omega = spectrum(PAPER), k / 65
    assert gossip_step(found.gap, omega, found.beta) == pytest.approx(gossip, rel=2e-3)
    assert dcdogd_step(found.gap, omega, found.beta) == pytest.approx(dcdogd, rel=1e-2)
    assert gossip_rounds(found.gap, omega) == pytest.approx(rounds, abs=1)


def test_block_lengths_and_steps_are_the_theorems() -> None:
    assert compensation_rounds(0.1, 9) == math.ceil(math.log(9) / 0.1)
    assert (1 - 0.1) ** compensation_rounds(0.1, 9) <= 1 / 9
    assert contraction(0.5, 0.2) ** gossip_rounds(0.5, 0.2, 20) <= 1 / 20
    assert convex_step(10, 1, 25, 2000) == pytest.approx(10 / math.sqrt(50_000))
    assert strongly_convex_step(2.0, 25, 4) == 1 / 200


def test_the_theory_step_contracts_as_promised_and_too_long_a_step_diverges() -> None:
    rng, found = np.random.default_rng(0), spectrum(PAPER)
    start = rng.normal(size=(9, 54))
    for k in (5, 27):
        energies = decay(start, PAPER, np.array([gossip_step(found.gap, k / 54, found.beta)]), TopK(k), 400)[:, 0]
        assert (energies[1:] <= energies[0] * contraction(found.gap, k / 54) ** np.arange(1, 401)).all()
    assert factor_per_round(decay(start, PAPER, np.array([0.26]), TopK(5), 200))[0] == pytest.approx(1.026, abs=0.015)
    assert factor_per_round(decay(start, PAPER, np.array([0.26]), TopK(27), 60))[0] == pytest.approx(0.837, abs=0.015)


@pytest.mark.parametrize("kind", ["ring", "path", "grid", "complete", "gnm"])
@pytest.mark.parametrize("learners", [2, 3, 4, 7, 9, 16, 50])
def test_every_graph_mixes(kind: Any, learners: int) -> None:
    graph, weights = weights_of(kind, learners)
    assert len(graph) == learners
    check_weights(weights, graph)
    assert spectrum(weights).gap > 1e-4


def test_the_papers_weights_may_have_no_gap() -> None:
    even_ring = mixing_weights(nx.cycle_graph(8), lazy=False)
    assert spectrum(even_ring).gap == pytest.approx(0, abs=1e-12)
    assert PAPER[3, 3] == pytest.approx(0, abs=1e-12)


class ByMessage:
    """The same gossip as a person would write it: every learner an object, every message handed over one by one."""

    def __init__(self, y: np.ndarray, weights: np.ndarray) -> None:
        self.y, self.w = y.copy(), weights
        n = len(y)
        self.neighbours = [[j for j in range(n) if j != i and weights[i, j]] for i in range(n)]
        self.kept = [{j: np.zeros(y.shape[1]) for j in [i, *self.neighbours[i]]} for i in range(n)]
        self.delivered = 0

    def round(self, step: float, compress: Compressor) -> None:
        messages = [compress((self.y[i] - self.kept[i][i])[None])[0] for i in range(len(self.y))]
        for i, message in enumerate(messages):
            self.kept[i][i] = self.kept[i][i] + message
            for j in self.neighbours[i]:
                self.kept[j][i] = self.kept[j][i] + message
                self.delivered += 1
        moves = [
            np.sum([self.w[i, j] * (self.kept[i][j] - self.kept[i][i]) for j in self.neighbours[i]], axis=0) if self.neighbours[i] else 0
            for i in range(len(self.y))
        ]
        self.y = np.array([y + step * move for y, move in zip(self.y, moves, strict=True)])


@pytest.mark.parametrize("kind", ["ring", "path", "grid", "complete", "gnm"])
def test_vectorised_gossip_equals_gossip_message_by_message(kind: Any) -> None:
    _, weights = weights_of(kind, 9)
    y = np.random.default_rng(3).normal(size=(9, 20))
    people, replicas = ByMessage(y, weights), Replicas(weights, y.shape)
    for _ in range(40):
        people.round(0.1, TopK(4))
        replicas.receive(TopK(4)(y - replicas.own))
        y = y + 0.1 * replicas.pull()
        for i in range(9):
            for j in people.neighbours[i]:
                assert np.array_equal(people.kept[i][j], people.kept[j][j]), "a copy differs"
                edge = np.flatnonzero((replicas.receiver == i) & (replicas.sender == j))[0]
                np.testing.assert_allclose(replicas.held[edge], people.kept[i][j], rtol=0, atol=1e-12)
        replicas.assert_equal()
        np.testing.assert_allclose(y, people.y, rtol=0, atol=1e-12)
    assert people.delivered == 40 * replicas.degree.sum()


def test_two_learners_agree_bit_by_bit_with_messages() -> None:
    y = np.random.default_rng(1).normal(size=(2, 6))
    people, replica = ByMessage(y, HALF), np.zeros((2, 6))
    for _ in range(30):
        people.round(0.3, TopK(2))
        y, replica, _ = gossip_round(y, replica, HALF, 0.3, TopK(2))
        assert np.array_equal(y, people.y)
        assert np.array_equal(replica, [people.kept[i][i] for i in range(2)])


def test_a_replica_that_missed_a_message_is_found() -> None:
    replicas = Replicas(PAPER, (9, 4))
    replicas.receive(np.ones((9, 4)))
    replicas.assert_equal()
    replicas.held[5, 2] = np.nextafter(1.0, 2.0)
    with pytest.raises(AssertionError, match="replica"):
        replicas.assert_equal()


COMPRESSORS: list[Callable[[np.random.Generator], Compressor]] = [
    lambda rng: TopK(5),
    lambda rng: RandK(5, rng),
    lambda rng: RandomGossip(0.3, rng),
    lambda rng: Quantiser(2, rng),
    lambda rng: Quantiser(7, rng, scaled=False),
    lambda rng: Identity(),
]


@pytest.mark.parametrize("build", COMPRESSORS)
def test_the_mean_never_moves_and_compression_contracts_as_promised(build: Callable[[np.random.Generator], Compressor]) -> None:
    rng = np.random.default_rng(0)
    compress = build(rng)
    y, replica = rng.normal(size=(9, 30)), np.zeros((9, 30))
    mean = y.mean(axis=0)
    for _ in range(50):
        y, replica, _ = gossip_round(y, replica, PAPER, 0.05, compress)
    np.testing.assert_allclose(y.mean(axis=0), mean, rtol=0, atol=1e-12)
    x = np.random.default_rng(1).normal(size=30)
    errors = ((compress(np.tile(x, (4000, 1))) - x) ** 2).sum(axis=1) / (x @ x)
    assert errors.mean() <= 1 - compress.omega(30) + 4 * errors.std() / math.sqrt(4000)


def test_random_compressors_have_their_law() -> None:
    rng, x = np.random.default_rng(0), np.arange(1.0, 9.0)
    many = np.tile(x, (20_000, 1))
    kept = RandK(3, rng)(many)
    assert ((kept != 0).sum(axis=1) == 3).all()
    np.testing.assert_allclose((kept != 0).mean(axis=0), 3 / 8, atol=0.015)
    np.testing.assert_allclose(Quantiser(3, rng, scaled=False)(many).mean(axis=0), x, atol=0.1)  # unbiased
    sent = RandomGossip(0.25, rng)(many)
    np.testing.assert_allclose((sent != 0).all(axis=1).mean(), 0.25, atol=0.012)


def test_top_k_keeps_the_largest() -> None:
    x = np.random.default_rng(0).normal(size=(3, 5, 12))
    kept = TopK(4)(x)
    assert ((kept != 0).sum(axis=-1) == 4).all()
    assert np.abs(kept).sum() == pytest.approx(np.sort(np.abs(x), axis=-1)[..., -4:].sum())


@pytest.mark.parametrize(
    ("compress", "bits"),
    [
        (Identity(), 65 * 32),
        (TopK(7), 7 * (32 + 7)),
        (RandK(3, np.random.default_rng(0)), 3 * (32 + 7)),
        (Quantiser(3, np.random.default_rng(0)), 32 + 65 * 3),
        (RandomGossip(1.0, np.random.default_rng(0)), 1 + 65 * 32),
    ],
)
def test_bits_of_a_message(compress: Compressor, bits: int) -> None:
    message = compress(np.random.default_rng(0).normal(size=(4, 65)))
    assert compress.bits(message).tolist() == [bits] * 4


def test_nothing_sent_takes_one_bit() -> None:
    assert RandomGossip(0.5, np.random.default_rng(0)).bits(np.zeros((2, 65))).tolist() == [1, 1]


@pytest.mark.parametrize(("omega", "dimension"), [(0.11, 65), (0.5, 65), (0.9, 20), (0.03, 400), (0.99, 65)])
def test_fewest_levels_of_a_quantiser(omega: float, dimension: int) -> None:
    levels, rng = levels_for(omega, dimension), np.random.default_rng(0)
    assert Quantiser(levels, rng).omega(dimension) >= omega - 1e-12
    assert levels == 1 or Quantiser(levels - 1, rng).omega(dimension) < omega


def test_compensation_shrinks_as_promised_and_ends_exactly() -> None:
    residual = np.random.default_rng(2).normal(size=(9, 23))
    for rounds in range(1, 6):
        left = ((residual - compensate(residual, TopK(5), rounds)) ** 2).sum(axis=1)
        assert (left <= (1 - 5 / 23) ** rounds * (residual**2).sum(axis=1) + 1e-12).all()
    np.testing.assert_array_equal(compensate(residual, TopK(5), 5), residual)


def test_disagreement_is_both_distances() -> None:
    assert disagreement(np.array([[1.0], [3.0]]), np.array([[0.0], [3.0]])) == pytest.approx(2 + 1)


BAD = [
    (lambda: mixing_weights(nx.Graph([(0, 1), (2, 3)])), "not connected"),
    (lambda: check_weights(np.array([[0.5, 0.5], [0.4, 0.6]])), "symmetric"),
    (lambda: check_weights(np.array([[0.5, 0.4], [0.4, 0.5]])), "doubly stochastic"),
    (lambda: check_weights(np.array([[0.5, np.nan], [0.5, 0.5]])), "finite"),
    (lambda: check_weights(np.eye(3)), "parts"),
    (lambda: check_weights(np.array([[1.5, -0.5], [-0.5, 1.5]])), "negative"),
    (lambda: check_weights(np.full((3, 3), 1 / 3), nx.path_graph(3)), "no edge"),
    (lambda: check_weights(np.ones((2, 3))), "square"),
    (lambda: gossip_step(0.3, 0.0, 1.0), "omega"),
    (lambda: gossip_step(0.0, 0.5, 1.0), "gap"),
    (lambda: dcdogd_step(0.3, 1.1, 1.0), "omega"),
    (lambda: gossip_rounds(0.3, 0.5, 1.0), "factor"),
    (lambda: TopK(0), "k must be"),
    (lambda: TopK(4)(np.ones((2, 3))), "at most the 3"),
    (lambda: RandomGossip(0.0, np.random.default_rng(0)), "probability"),
    (lambda: Quantiser(1, np.random.default_rng(0), scaled=False)(np.ones((2, 65))), "no contraction"),
    (lambda: levels_for(1.0, 65), "below 1"),
    (lambda: make("top-k", 1.5, 65, np.random.default_rng(0)), "omega"),
    (lambda: gossip_round(np.ones((2, 2)), np.zeros((2, 2)), HALF, 0.0, TopK(1)), "step"),
    (lambda: gossip_round(np.full((2, 2), np.nan), np.zeros((2, 2)), HALF, 0.5, TopK(1)), "finite"),
    (lambda: gossip_round(np.ones((3, 2)), np.zeros((3, 2)), HALF, 0.5, TopK(1)), "one row"),
    (lambda: compensate(np.full((2, 2), np.inf), TopK(1), 3), "finite"),
    (lambda: build_graph("ring", 0), "learner"),
    (lambda: convex_step(1, 1, 0, 100), "above 0"),
]


@pytest.mark.parametrize(("call", "words"), BAD, ids=[words for _, words in BAD])
def test_bad_input_is_refused_in_words(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
