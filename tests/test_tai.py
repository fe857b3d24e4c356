"""The mathematics of tai against closed forms, scipy and the numbers of the method's card (section 6)."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import adjusted_rand_score

from backends import tai
from backends.contract import InputError
from backends.tai import belief as beliefs
from backends.tai import homology, information
from backends.tai.distances import angles, blend, embed, text_distance

LINE = [0, 0.04, 0.09, 0.50, 0.53, 0.57, 1.0, 1.05]
TRAP = [0, 0.02, 0.20, 0.22, 1.2, 1.22, 1.40, 1.42]


def on_line(points: list[float]) -> np.ndarray:
    return np.abs(np.subtract.outer(points, points))


def cloud(rng: np.random.Generator, n: int, d: int = 3) -> np.ndarray:
    x = rng.random((n, d))
    return squareform(np.sqrt(np.maximum(((x[:, None] - x[None]) ** 2).sum(-1)[np.triu_indices(n, 1)], 0)))


def binary_entropy(p: float) -> float:
    return -p * math.log2(p) - (1 - p) * math.log2(1 - p)


# ------------------------------------------------------------------------------------------------------- homology


def test_points_on_a_line() -> None:
    deaths, merges = tai.barcode(on_line(LINE))
    assert deaths == pytest.approx([0.03, 0.04, 0.04, 0.05, 0.05, 0.41, 0.43], abs=1e-12)
    assert merges.shape == (7, 2)
    tau = tai.cut(deaths)
    assert tau == pytest.approx(0.14318, abs=5e-6)
    for rule in ("ratio", "absolute"):
        assert tai.clusters(on_line(LINE), tai.cut(deaths, rule)).tolist() == [0, 0, 0, 1, 1, 1, 2, 2]


def test_the_largest_gap_merges_intents_and_the_largest_ratio_does_not() -> None:
    deaths, _ = tai.barcode(on_line(TRAP))
    assert deaths == pytest.approx([0.02] * 4 + [0.18] * 2 + [0.98], abs=1e-12)
    assert tai.cut(deaths) == pytest.approx(0.06, abs=1e-12)
    assert tai.clusters(on_line(TRAP), tai.cut(deaths)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert tai.clusters(on_line(TRAP), tai.cut(deaths, "absolute")).max() == 1


@pytest.mark.parametrize(("n", "seed"), [(2, 0), (5, 1), (48, 2), (150, 3)])
def test_deaths_are_the_heights_of_single_linkage(n: int, seed: int) -> None:
    D = cloud(np.random.default_rng(seed), n)
    tree = linkage(squareform(D, checks=False), "single")
    deaths, merges = tai.barcode(D)
    assert np.abs(deaths - tree[:, 2]).max() <= 1e-12
    assert np.allclose(D[merges[:, 0], merges[:, 1]], deaths, atol=0)
    tau = float(np.median(deaths)) + 1e-9
    assert adjusted_rand_score(tai.clusters(D, tau), fcluster(tree, tau, "distance")) == 1.0


def test_duplicates_keep_their_bars_and_need_the_floor() -> None:
    D = on_line([0, 0, 0, 0.02, 0.5, 0.5, 0.53])
    deaths, _ = tai.barcode(D)
    assert len(deaths) == 6
    assert np.count_nonzero(deaths == 0) == 3
    # Without a floor the ratio above a bar of no length is endless; with it, what counts is above the resolution.
    assert tai.cut(deaths, "ratio", 0.0125) == pytest.approx(math.sqrt(0.03 * 0.48), rel=1e-9)
    assert tai.clusters(D, tai.cut(deaths, "ratio", 0.0125)).max() == 1


def test_one_intent_with_faults_is_not_split() -> None:
    deaths, _ = tai.barcode(on_line([0, 0, 0, 0.025, 0.05, 0.075, 0.1]))
    assert math.isinf(tai.cut(deaths, "ratio", 0.0125))
    assert tai.clusters(on_line([0, 0.025, 0.05]), np.inf).tolist() == [0, 0, 0]


@pytest.mark.parametrize("seed", range(5))
def test_separated_intents_are_recovered_at_every_threshold_between(seed: int) -> None:
    """The separability theorem: connected at eps within, at least delta apart, so every tau between finds the true partition."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(5, size=60)
    truth[:5] = range(5)
    centres = 3.0 * np.arange(5)
    x = centres[truth] + rng.uniform(-0.4, 0.4, size=60)
    D = on_line(list(x))
    same = truth[:, None] == truth
    delta = D[~same].min()
    within = max(tai.barcode(D[np.ix_(truth == k, truth == k)])[0].max() for k in range(5))
    for tau in np.linspace(within, delta, 7)[:-1]:
        assert adjusted_rand_score(truth, tai.clusters(D, tau)) == 1.0
    deaths, _ = tai.barcode(D)
    assert np.count_nonzero(deaths >= delta) == 4


@pytest.mark.parametrize("seed", range(3))
def test_deaths_move_no_further_than_the_distances(seed: int) -> None:
    rng = np.random.default_rng(seed)
    D = cloud(rng, 40)
    noise = np.triu(rng.uniform(-0.02, 0.02, D.shape), 1)
    moved = np.maximum(D + noise + noise.T, 0)
    assert np.abs(tai.barcode(D)[0] - tai.barcode(moved)[0]).max() <= 0.02 + 1e-12


def rank(columns: list[int]) -> int:
    """Rank over GF(2) of columns given as bit masks."""
    pivots: dict[int, int] = {}
    for column in columns:
        while column and (low := column & -column) in pivots:
            column ^= pivots[low]
        if column:
            pivots[column & -column] = column
    return len(pivots)


def betti(D: np.ndarray, scale: float) -> tuple[int, int]:
    """Betti numbers 0 and 1 of the Rips complex at a scale, by the ranks of its boundary matrices."""
    n = len(D)
    edges = [(a, b) for a, b in combinations(range(n), 2) if D[a, b] <= scale]
    place = {edge: i for i, edge in enumerate(edges)}
    triangles = [t for t in combinations(range(n), 3) if all(pair in place for pair in combinations(t, 2))]
    first = rank([1 << a | 1 << b for a, b in edges])
    second = rank([sum(1 << place[pair] for pair in combinations(t, 2)) for t in triangles])
    return n - first, len(edges) - first - second


@pytest.mark.parametrize("seed", range(6))
def test_bars_of_both_degrees_are_the_betti_numbers_at_every_scale(seed: int) -> None:
    rng = np.random.default_rng(seed)
    turn = rng.uniform(0, 2 * np.pi, 12)
    points = np.stack([np.cos(turn), np.sin(turn)], 1) + rng.normal(0, 0.15, (12, 2))
    points[5] = points[2]  # a duplicate
    D = squareform(pdist(points))
    deaths, bars = tai.barcode(D)[0], tai.loops(D)
    for scale in np.quantile(D, np.linspace(0.03, 0.97, 14)):
        alive = 1 + int((deaths > scale).sum()), int(((bars[:, 0] <= scale) & (scale < bars[:, 1])).sum())
        assert alive == betti(D, float(scale))


def test_a_circle_has_one_long_loop_and_a_line_none() -> None:
    turn = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    D = squareform(pdist(np.stack([np.cos(turn), np.sin(turn)], 1)))
    (birth, death), *rest = tai.loops(D)
    assert birth == pytest.approx(2 * math.sin(math.pi / 24))
    assert death == pytest.approx(math.sqrt(3))  # the largest triangle within
    assert not rest
    assert tai.loops(on_line(LINE)).shape == (0, 2)
    assert tai.loops(np.zeros((4, 4))).shape == (0, 2)


def test_bridges_chain_single_linkage_and_not_tomato() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(c, 0.3, (20, 2)) for c in (0, 3, 6)] + [np.stack([np.linspace(0, 6, 12)] * 2, 1)])
    D = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))
    deaths, _ = tai.barcode(D)
    assert tai.clusters(D, tai.cut(deaths, "ratio")).max() == 0
    truth = np.repeat([0, 1, 2], 20)
    assert adjusted_rand_score(truth, homology.tomato(D)[:60]) > 0.95


def test_the_bootstrap_band_keeps_bars_that_resampling_keeps() -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(c, 0.05, 20) for c in (0, 2, 5)])
    tau = homology.bootstrap_cut(on_line(list(x)), np.random.default_rng(0))
    assert 0.01 < tau < 1.5
    assert tai.clusters(on_line(list(x)), tau).max() == 2


def test_candidates_that_all_differ_are_intents_of_their_own() -> None:
    D = on_line([0, 0.3, 0.65, 1.05])
    deaths, _ = tai.barcode(D)
    assert math.isinf(tai.cut(deaths, "ratio", 0.0125))  # the rule alone has no short bar to compare with
    tau = homology.threshold(D, deaths, "ratio", 0.025, np.random.default_rng(0))
    assert tai.clusters(D, tau).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("probes", [1, 2, 5, 10, 40])
def test_with_few_probes_what_differs_by_a_tenth_is_still_an_intent(probes: int) -> None:
    """One of ten probes, or one of one: half the resolution alone as the floor would call all of it one meaning."""
    differ = max(1, math.ceil(0.1 * probes)) / probes
    for D in (on_line([0, 0, differ, differ]), on_line([0, differ, 2 * differ, 3 * differ])):
        deaths, _ = tai.barcode(D)
        tau = homology.threshold(D, deaths, "ratio", 1 / probes, np.random.default_rng(0))
        assert len(np.unique(tai.clusters(D, tau))) == len(np.unique(D, axis=0))
    fault = on_line([0, 0, 0.5 * differ, differ / 2]) if probes == 40 else np.zeros((4, 4))
    deaths, _ = tai.barcode(fault)
    assert math.isinf(homology.threshold(fault, deaths, "ratio", 1 / probes, np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("D", "words"),
    [
        ([[0, 1, 2]], "shape"),
        ([[0, 1], [2, 0]], "not symmetric"),
        ([[0, -1], [-1, 0]], "negative"),
        ([[0, np.nan], [np.nan, 0]], "missing"),
        ([[1, 2], [2, 0]], "itself"),
        ([["a", "b"], ["b", "a"]], "no table"),
        (np.zeros((0, 0)), "shape"),
    ],
)
def test_what_is_no_distance_matrix_is_refused(D: object, words: str) -> None:
    for function in (tai.barcode, tai.loops, lambda d: tai.clusters(d, 0.5)):
        with pytest.raises(InputError, match=words):
            function(np.array(D))


def test_thresholds_out_of_range_are_refused() -> None:
    for call in (
        lambda: tai.cut([0.1], -1.0),
        lambda: tai.cut([0.1], "widest"),
        lambda: tai.cut([0.1], "bootstrap"),
        lambda: tai.clusters(on_line(LINE), np.nan),
    ):
        with pytest.raises(InputError, match="threshold"):
            call()
    with pytest.raises(InputError, match="deaths"):
        tai.cut([-0.1, 0.2])
    with pytest.raises(InputError, match="floor"):
        tai.cut([0.1], "ratio", -1.0)


# ---------------------------------------------------------------------------------------------------- information


def test_a_question_of_style_is_worth_nothing_about_the_intent() -> None:
    labels = np.array([0] * 6 + [1] * 2)
    style = np.array([0, 0, 0, 1, 1, 1, 0, 1])
    weights = np.full(8, 1 / 8)

    def both(answers: np.ndarray) -> tuple[float, float]:
        given = np.array([[np.mean(answers[labels == k] == a) for a in (0, 1)] for k in (0, 1)])
        return tai.teig([0.75, 0.25], given), tai.eig(weights, answers, 2)

    assert both(style) == pytest.approx((0.0, 1.0), abs=1e-12)
    assert both(labels) == pytest.approx((0.811278, 0.811278), abs=1e-6)


@pytest.mark.parametrize(("rate", "bits"), [(0.05, 0.7136), (0.1, 0.5310), (0.2, 0.2781), (0.3, 0.1187)])
def test_noise_takes_its_price(rate: float, bits: float) -> None:
    assert tai.teig([0.5, 0.5], [[1, 0], [0, 1]], rate) == pytest.approx(bits, abs=5e-5)
    assert tai.teig([0.5, 0.5], [[1, 0], [0, 1]], rate) == pytest.approx(1 - binary_entropy(rate), abs=1e-12)


def test_uneven_split_with_noise() -> None:
    assert tai.teig([0.75, 0.25], [[1, 0], [0, 1]], 0.1) == pytest.approx(0.4123, abs=5e-5)


@pytest.mark.parametrize("seed", range(6))
def test_the_chain_rule_holds(seed: int) -> None:
    """EIG = TEIG + sum_k b_k I(i; Y | i in C_k), the last term from its definition."""
    rng = np.random.default_rng(seed)
    n, options, rate = 40, int(rng.integers(2, 6)), float(rng.uniform(0, 0.4))
    weights, labels, answers = rng.dirichlet(np.ones(n)), rng.integers(5, size=n), rng.integers(options, size=n)
    labels[:5] = range(5)
    mass = beliefs.belief(weights, labels)
    given = np.array([[weights[(labels == k) & (answers == a)].sum() / mass[k] for a in range(options)] for k in range(5)])
    inside = sum(mass[k] * tai.eig(weights[labels == k], answers[labels == k], options, rate) for k in range(5))
    about_intent, about_candidate = tai.teig(mass, given, rate), tai.eig(weights, answers, options, rate)
    assert about_candidate == pytest.approx(about_intent + inside, abs=1e-9)
    assert information.waste(np.array([about_intent]), np.array([about_candidate]))[0] == pytest.approx(inside, abs=1e-9)


def test_teig_against_its_definition() -> None:
    rng = np.random.default_rng(9)
    b, given, rate = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(3), 4), 0.15
    noisy = (1 - rate) * given + rate / 2 * (1 - given)
    answer = b @ noisy
    posterior = (b[:, None] * noisy / answer).T
    expected = information.entropy(b) - answer @ information.entropy(posterior)
    assert tai.teig(b, given, rate) == pytest.approx(float(expected), abs=1e-12)


def test_questions_of_unequal_length_are_scored_together() -> None:
    joint = np.zeros((2, 2, 4))
    joint[0, 0, 0] = joint[0, 1, 1] = 0.5
    joint[1, 0, :2] = joint[1, 1, 2:] = 0.25
    about_intent, about_candidate = information.scores(joint, np.array([2, 4]), 0.1)
    assert about_intent[0] == pytest.approx(1 - binary_entropy(0.1), abs=1e-12)
    assert about_candidate[1] == pytest.approx(2 - (binary_entropy(0.1) + 0.1 * math.log2(3)), abs=1e-12)


@pytest.mark.parametrize("rate", [0.5, 0.7, 1.0, -0.1, float("nan")])
def test_answers_that_say_nothing_or_the_opposite_are_refused(rate: float) -> None:
    with pytest.raises(InputError, match="error_rate"):
        tai.teig([0.5, 0.5], [[1, 0], [0, 1]], rate)
    with pytest.raises(InputError, match="error_rate"):
        tai.update([0.5, 0.5], [0, 1], 2, 0, rate)


def test_bad_questions_are_refused() -> None:
    with pytest.raises(InputError, match="1 option"):
        tai.eig([0.5, 0.5], [0, 0], 1)
    with pytest.raises(InputError, match="answers"):
        tai.eig([0.5, 0.5], [0, 2], 2)
    with pytest.raises(InputError, match="answers"):
        tai.eig([0.5, 0.5], [0, 1, 1], 2)
    with pytest.raises(InputError, match="belief"):
        tai.teig([0.0, 0.0], [[1, 0], [0, 1]])
    with pytest.raises(InputError, match="answer_given_cluster"):
        tai.teig([0.5, 0.5], [[1, 1], [0, 1]])


# --------------------------------------------------------------------------------------------------------- belief

# Ten candidates of three intents with masses .5, .3, .2; half of the middle one's mass says yes.
WEIGHTS = np.array([0.25, 0.25, 0.15, 0.15, 0.2])
LABELS = np.array([0, 0, 1, 1, 2])
SAYS_YES = np.array([0, 0, 0, 1, 1])  # option 0 is yes


@pytest.mark.parametrize(("reply", "posterior"), [(0, (0.7258, 0.2419, 0.0323)), (1, (0.1316, 0.3947, 0.4737))])
def test_one_update(reply: int, posterior: tuple[float, ...]) -> None:
    after = beliefs.belief(tai.update(WEIGHTS, SAYS_YES, 2, reply, 0.1), LABELS)
    assert after == pytest.approx(posterior, abs=5e-5)


def test_belief_comes_from_the_weights_and_not_from_frozen_shares() -> None:
    """Two answers that halve the middle intent the same way: with frozen shares it would lose half twice."""
    weights = tai.update(tai.update(WEIGHTS, SAYS_YES, 2, 0, 0.1), SAYS_YES, 2, 0, 0.1)
    exact = np.array([0.5 * 0.81, 0.15 * 0.81 + 0.15 * 0.01, 0.2 * 0.01])
    assert beliefs.belief(weights, LABELS) == pytest.approx(exact / exact.sum(), abs=1e-9)
    frozen = np.array([0.5 * 0.81, 0.3 * 0.25, 0.2 * 0.01])
    assert abs(beliefs.belief(weights, LABELS)[1] - (frozen / frozen.sum())[1]) > 0.05


def test_not_sure_changes_nothing() -> None:
    assert tai.update(2 * WEIGHTS, SAYS_YES, 2, None, 0.1) == pytest.approx(WEIGHTS, abs=1e-12)


def test_without_assumed_errors_what_is_ruled_out_stays_above_zero() -> None:
    weights = tai.update(WEIGHTS, SAYS_YES, 2, 0, 0.0)
    assert (weights > 0).all()
    assert weights[3:].max() < 1e-11
    assert not beliefs.contradicts(WEIGHTS, SAYS_YES, 0, 0.0)
    assert beliefs.contradicts(weights, SAYS_YES, 1, 0.0)
    again = tai.update(weights, SAYS_YES, 2, 1, 0.0)
    assert np.isfinite(again).all()
    assert again.sum() == pytest.approx(1.0)


def test_none_of_these_moves_the_mass_outside() -> None:
    weights, outside = beliefs.none_of_these(np.full(4, 0.25), np.array([0, 1, 1, 0]), 0.0, 0.05)
    assert (outside, weights.tolist()) == (pytest.approx(0.95), pytest.approx([0.25] * 4))
    weights, outside = beliefs.none_of_these(np.full(4, 0.25), np.array([0, 1, -1, -1]), 0.0, 0.05)
    assert outside == pytest.approx(0.5)
    assert weights[2:].sum() == pytest.approx(0.95)


def test_bad_updates_are_refused() -> None:
    for bad in ([0.0, 0.0], [np.nan, 1.0], [-1.0, 2.0]):
        with pytest.raises(InputError, match="weights"):
            tai.update(bad, [0, 1], 2, 0, 0.1)
    for answers, reply in (([0, 2], 0), ([0, 1, 1], 0), ([0, 1], 2), ([0, -2], 0)):
        with pytest.raises(InputError, match="answers"):
            tai.update([0.5, 0.5], answers, 2, reply, 0.1)


# ------------------------------------------------------------------------------------------------------ distances


def test_the_text_distance_is_a_metric_on_what_is_written() -> None:
    texts = ["for x in items: return x", "while i < n: i += 1", "for y in items: return y", "", "for x in items: return x"]
    D = text_distance(texts)
    homology.check_distance(D)
    assert D[0, 4] == 0
    assert D[0, 2] < D[0, 1] < 1
    assert (D[:, None] <= D[:, :, None] + D[None] + 1e-9).all()
    assert blend(np.zeros((5, 5)), texts, 0.25) == pytest.approx(D / 4)


def test_angles_are_exact_near_duplicates() -> None:
    turn = np.array([0.0, 1e-4, np.pi / 2, np.pi])
    D = angles(np.stack([np.cos(turn), np.sin(turn)], 1))
    assert D[0] == pytest.approx(turn / np.pi, abs=1e-8)


def test_the_map_keeps_distances_of_the_plane() -> None:
    x = np.random.default_rng(0).random((20, 2))
    D = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))
    places = embed(D)
    assert np.sqrt(((places[:, None] - places[None]) ** 2).sum(-1)) == pytest.approx(D, abs=1e-8)
    assert not embed(np.zeros((5, 5))).any()


def test_the_map_lays_nothing_on_one_place_that_differs() -> None:
    """Two pairs far from each other: classical scaling has no direction left for what parts the second pair."""
    D = np.array([[0, 0.3, 1, 1, 0.4], [0.3, 0, 1, 1, 0.6], [1, 1, 0, 0.5, 1], [1, 1, 0.5, 0, 1], [0.4, 0.6, 1, 1, 0]])
    places = embed(D)
    laid = squareform(pdist(places))
    assert laid[2, 3] > 0.3
    assert (laid[np.triu_indices(5, 1)] > 0.5 * D[np.triu_indices(5, 1)]).all()
