"""The bandit of KernelBand against figures that are known: traces, scores, masks, softmax, clusters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.cluster import KMeans

from backends.contract import InputError
from backends.kernelband import Bandit, Clustering, mask, parent_weights, reward, strategy_targets
from backends.kernelband.bandit import ThompsonBandit
from backends.kernelband.substrate import RESOURCES, STRATEGIES, TARGET

REWARDS = (0.3, 0.6, 0.0, 0.1, 0.8, 0.05)
TRACE = [0, 1, 2, 3, 4, 5, 4, 4, 4, 1, 4, 4, 4, 4, 4, 1, 4, 4, 4, 4]


def play(bandit: Bandit, rewards: np.ndarray, rounds: int, open_arms: np.ndarray | None = None) -> list[tuple[int, int]]:
    arms = []
    for _ in range(rounds):
        arm = bandit.select(open_arms)
        bandit.update(*arm, rewards[arm])
        arms.append(arm)
    return arms


def plain_trace(rewards: np.ndarray, c: float, rounds: int) -> list[tuple[int, int]]:
    """The same bandit once more, arm by arm from lists of all rewards, without running means."""
    seen = {(i, s): [0.5] for i in range(rewards.shape[0]) for s in range(rewards.shape[1])}
    arms = []
    for t in range(rounds):
        score = {arm: sum(got) / len(got) + c * math.sqrt(math.log(max(t, 1)) / len(got)) for arm, got in seen.items()}
        best = max(score.values())
        arm = next(a for a in seen if score[a] >= best - 1e-12)
        seen[arm].append(rewards[arm])
        arms.append(arm)
    return arms


def test_trace_of_the_card() -> None:
    bandit = Bandit(clusters=1, exploration=0.5)
    arms = play(bandit, np.array([REWARDS]), 20)
    assert [s for _, s in arms] == TRACE
    assert bandit.n.tolist() == [[2, 4, 2, 2, 14, 2]]


def test_scores_worked_out_by_hand() -> None:
    """Six pulls, written out: mu and N of each arm from its own rewards with the 0.5 before them, then mu + 2 sqrt(ln 6 / N), ln 6 = 1.791759."""
    bandit = Bandit(clusters=2, exploration=2.0, strategies=2)
    for arm, gained in (((0, 0), 0.9), ((0, 0), 0.1), ((0, 1), 0.0), ((1, 0), 1.0), ((1, 0), 0.0), ((1, 0), 0.5)):
        bandit.update(*arm, gained)
    assert bandit.n.tolist() == [[3, 2], [4, 1]]
    np.testing.assert_allclose(bandit.mu, [[1.5 / 3, 0.5 / 2], [2.0 / 4, 0.5]], rtol=1e-12)
    np.testing.assert_allclose(bandit.scores(), [[2.045643, 2.143018], [1.838566, 3.177132]], atol=1e-6)
    assert bandit.select() == (1, 1)
    assert bandit.select([[1, 1], [1, 0]]) == (0, 1)
    bandit.update(1, 1, 0.25)
    np.testing.assert_allclose(bandit.scores()[1], [0.5 + 1.394959, 0.375 + 1.972769], atol=1e-6)


def test_large_exploration_spreads_the_pulls() -> None:
    bandit = Bandit(clusters=1, exploration=2.0)
    play(bandit, np.array([REWARDS]), 20)
    assert bandit.n.max() - bandit.n.min() <= 3
    assert bandit.n.sum() == 26


@pytest.mark.parametrize(("clusters", "c", "seed"), [(1, 2.0, 0), (3, 0.2, 1), (3, 2.0, 2), (8, 4.0, 3), (2, 0.0, 4)])
def test_trace_equals_a_plain_one(clusters: int, c: float, seed: int) -> None:
    rewards = np.random.default_rng(seed).uniform(size=(clusters, 6))
    assert play(Bandit(clusters, c), rewards, 60) == plain_trace(rewards, c, 60)


def test_score_of_the_card() -> None:
    bandit = Bandit(clusters=1, exploration=2.0)
    bandit.mu[0, 3], bandit.n[0, 3], bandit.t = 0.3, 4, 10
    assert bandit.scores()[0, 3] == pytest.approx(1.81743, abs=5e-6)
    assert bandit.mu[0, 3] + bandit.bonus()[0, 3] == bandit.scores()[0, 3]


def test_first_rounds_have_no_bonus_and_failures_count() -> None:
    bandit = Bandit(clusters=3, exploration=2.0)
    assert bandit.select() == (0, 0)
    bandit.update(0, 0, 0.0)
    assert (bandit.n[0, 0], bandit.mu[0, 0], bandit.t) == (2, 0.25, 1)
    assert not bandit.bonus().any(), "ln 1 = 0"
    assert bandit.select() == (0, 1)
    bandit.update(0, 1, 0.0)
    assert bandit.bonus().any()


def test_masked_arms_are_never_chosen() -> None:
    open_arms = np.zeros((3, 6), int)
    open_arms[1, [2, 5]] = open_arms[2, 0] = 1
    bandit = Bandit(clusters=3, exploration=2.0)
    arms = play(bandit, np.random.default_rng(0).uniform(size=(3, 6)), 40, open_arms)
    assert set(arms) == {(1, 2), (1, 5), (2, 0)}
    with pytest.raises(InputError, match="no arm is open"):
        bandit.select(np.zeros((3, 6)))
    with pytest.raises(InputError, match="mask"):
        bandit.select(np.ones((6, 3)))


def test_reward_is_relative_to_the_parent() -> None:
    assert [reward(100, 50), reward(50, 25)] == [0.5, 0.5]
    assert reward(50, 60) == 0
    assert reward(50, None) == 0
    for parent, child in ((0, 1.0), (math.nan, 1.0), (5, math.inf)):
        with pytest.raises(InputError):
            reward(parent, child)


def test_mask_of_the_card() -> None:
    closed = [s for s, open_ in zip(STRATEGIES, mask(np.array([[10, 76, 20]]), [75, 75, 75])[0], strict=True) if not open_]
    assert closed == ["vectorization", "fusion", "access_layout"]


def test_mask_is_strict_reopens_one_and_closes_empty_rows_last() -> None:
    h = np.array([[75.0, 74.9, 75.0], [99, 80, 90], [80, 80, 80], [99, 99, 99]])
    got = mask(h, (75, 75, 75), empty=(3,)).astype(int).tolist()
    assert got == [
        [0, 1, 1, 0, 0, 1],  # equality is masked
        [0, 1, 0, 0, 0, 0],  # DRAM has the largest headroom, its first strategy is vectorization
        [1, 0, 0, 0, 0, 0],  # all alike: the first
        [0, 0, 0, 0, 0, 0],  # empty: closed although a row of a profile would have been opened
    ]


def test_cluster_without_a_profile_has_no_mask() -> None:
    assert mask(np.full((2, 3), np.nan), 75, empty=(1,)).tolist() == [[True] * 6, [False] * 6]


def test_thresholds_differ_by_resource() -> None:
    assert mask(np.array([[75, 75, 75]]), (80, 70, 75)).astype(int).tolist() == [[0, 0, 0, 1, 1, 0]]
    for theta in (0, 101, (75, -1, 75), (75, 75, math.nan)):
        with pytest.raises(InputError, match="theta_"):
            mask(np.zeros((1, 3)), theta)


def test_parent_weights_of_the_card() -> None:
    h = np.full((3, 3), 99.0)
    h[:, 0] = 30, 35, 70
    weights = parent_weights(h, STRATEGIES.index("pipeline"), (75, 75, 75), 1.0)
    np.testing.assert_allclose(weights, [0.99331, 0.00669, 4e-18], rtol=0.07)
    assert weights[0] / weights[1] == pytest.approx(148.4, abs=0.1)
    gentle = parent_weights(h, 3, 75, 10.0)
    assert gentle[0] / gentle[1] == pytest.approx(math.exp(0.5))


def test_member_without_a_profile_has_no_headroom() -> None:
    h = np.array([[np.nan] * 3, [75, 75, 75], [0, 0, 0]])
    weights = parent_weights(h, 0, 75, 10.0)
    assert weights[0] == weights[1] < weights[2]
    for bad in ({"strategy": 6}, {"temperature": 0.0}, {"h": np.zeros((0, 3))}):
        with pytest.raises(InputError):
            parent_weights(**{"h": h, "strategy": 0, "theta": 75.0, "temperature": 1.0, **bad})


def test_strategy_map_by_name() -> None:
    names = {s: RESOURCES[t] for s, t in zip(STRATEGIES, TARGET, strict=True)}
    assert strategy_targets(names) == TARGET == (2, 1, 1, 0, 0, 1)
    for wrong, said in (({**names, "magic": "sm"}, "tiling, vectorization"), ({**names, "tiling": "l9"}, "sm, dram, l2")):
        with pytest.raises(InputError, match=said):
            strategy_targets(wrong)
    names.pop("fusion")
    with pytest.raises(InputError, match="fusion"):
        strategy_targets(names)


@pytest.mark.parametrize(
    ("clusters", "exploration", "field"), [(0, 2.0, "clusters"), (9, 2.0, "clusters"), (3, -0.1, "exploration"), (3, math.nan, "exploration")]
)
def test_bad_bandits_are_refused(clusters: int, exploration: float, field: str) -> None:
    with pytest.raises(InputError) as error:
        Bandit(clusters, exploration)
    assert error.value.field == field


def test_thompson_draws_from_the_posterior() -> None:
    bandit = ThompsonBandit(1, np.random.default_rng(0))
    for _ in range(200):
        bandit.update(0, 2, 0.9)
    draws = np.array([bandit.scores()[0] for _ in range(4000)])
    assert draws[:, 0].mean() == pytest.approx(0.5, abs=0.02), "untouched: uniform"
    assert draws[:, 0].std() == pytest.approx(12**-0.5, abs=0.01)
    assert draws[:, 2].mean() == pytest.approx(0.9, abs=0.01)
    assert draws[:, 2].std() == pytest.approx((0.9 * 0.1 / 203) ** 0.5, rel=0.1)


# ------------------------------------------------------------------------------------------------------- clusters


def blobs(seed: int = 0, each: int = 8) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([centre + rng.normal(0, 0.1, (each, 5)) for centre in ([0] * 5, [5] * 5, [0, 5, 0, 5, 0])]) * [1, 100, 1, 0.01, 1]


def test_clustering_is_due_when_the_paper_says_so() -> None:
    clustering = Clustering(3, every=10)
    assert [clustering.due(m, 4) for m in (5, 6)] == [False, True]
    clustering.fit(blobs(), 4, np.random.default_rng(0))
    assert [clustering.due(24, r) for r in (5, 13, 14, 20)] == [False, False, True, True]


@pytest.mark.parametrize("seed", range(4))
def test_clusters_equal_those_of_scikit_learn(seed: int) -> None:
    phi = blobs(seed)
    clustering = Clustering(3, every=1)
    labels = clustering.fit(phi, 1, np.random.default_rng(seed))
    peer = KMeans(3, n_init=10, random_state=0).fit(clustering.standardised(phi))
    assert len({(a, b) for a, b in zip(labels, peer.labels_, strict=True)}) == 3
    assert clustering.centroids is not None
    np.testing.assert_allclose(sorted(clustering.centroids.tolist()), sorted(peer.cluster_centers_.tolist()), atol=1e-6)


def test_flat_features_and_equal_members_do_no_harm() -> None:
    clustering = Clustering(3, every=1)
    labels = clustering.fit(np.ones((6, 5)), 1, np.random.default_rng(0))
    assert labels.shape == (6,)
    assert clustering.centroids is not None
    assert np.isfinite(clustering.centroids).all()


def test_fewer_members_than_clusters_wait_and_equal_ones_leave_clusters_empty() -> None:
    clustering = Clustering(8, every=2)
    assert not clustering.due(15, 60)
    assert clustering.representatives(np.ones((3, 5)), np.zeros(3, int), np.array([3.0, 1.0, 2.0])) == [1] + [None] * 7
    two = np.repeat(np.eye(2, 5), 8, axis=0)  # sixteen members, two behaviours, eight clusters
    labels = clustering.fit(two, 1, np.random.default_rng(0))
    chosen = clustering.representatives(two, labels, np.arange(16.0))
    occupied = {int(label) for label in labels}
    assert [i for i, place in enumerate(chosen) if place is None] == [i for i in range(8) if i not in occupied]
    assert 2 <= len(occupied) < 8
    assert not mask(np.full((8, 3), np.nan), 75, empty=[i for i in range(8) if i not in occupied])[[i for i in range(8) if i not in occupied]].any()


def test_representatives() -> None:
    phi, clustering = blobs(), Clustering(3, every=1)
    ms = np.arange(24.0)[::-1]
    assert clustering.representatives(phi, np.zeros(24, int), ms) == [23, None, None], "before the first clustering: the fastest"
    labels = clustering.fit(phi, 1, np.random.default_rng(0))
    far = np.linalg.norm(clustering.standardised(phi)[None] - clustering.centroids[:, None], axis=2)  # type: ignore[index]
    for cluster, chosen in enumerate(clustering.representatives(phi, labels, ms)):
        members = np.flatnonzero(labels == cluster)
        assert chosen == members[far[cluster, members].argmin()]


def test_matching_keeps_the_names_of_clusters() -> None:
    clustering = Clustering(3, every=1)
    clustering.fit(blobs(0), 1, np.random.default_rng(0))
    before = clustering.raw_centroids()
    assert before is not None
    order = [2, 0, 1]
    assert clustering.match(before[order]) == [order.index(j) for j in range(3)]
    bandit = Bandit(3, 2.0)
    bandit.update(2, 1, 1.0)
    bandit.permute([2, 0, 1])
    assert bandit.n[0, 1] == 2


def test_bad_clusterings_are_refused() -> None:
    for k, every, field in ((0, 5, "clusters"), (9, 5, "clusters"), (3, 0, "recluster_every")):
        with pytest.raises(InputError) as error:
            Clustering(k, every)
        assert error.value.field == field
    for phi in (np.ones((2, 5)), np.full((6, 5), np.nan)):
        with pytest.raises(InputError, match="phi"):
            Clustering(3, 1).fit(phi, 1, np.random.default_rng(0))
