"""Parallel-probe's controller, pools, peers and generator: the card's worked trace, closed forms, and a plain transcription of the released code."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.contract import InputError
from backends.parallel_probe import (
    TRACE,
    Branch,
    Pool,
    adaptive_consistency,
    control,
    early_consistency,
    onset_ratio,
    own_convergence,
    read,
    replays,
    self_consistency,
    sweep,
    votes,
)
from backends.parallel_probe.analysis import Figures, compare, frontier, grid, surface
from backends.parallel_probe.generator import pool as synthetic
from backends.parallel_probe.pools import mode, normalised


def transcribed(pool: Pool, stable: int, prune: int, warmup: int, limit: int = 100) -> tuple[Any, int, int, list[Any], list[int]]:
    """The released controller, branch by branch, as the method's card prints it."""
    spent = [min(pool.interval, branch.tokens) for branch in pool.branches]
    said: list[Any] = [None] * len(pool)
    position, off = [1] * len(pool), [0] * len(pool)
    pruned, finished = [False] * len(pool), [False] * len(pool)
    same, before, winners, active = 0, None, [], []
    for step in range(limit):
        for i, branch in enumerate(pool.branches):
            if pruned[i] or finished[i]:
                continue
            if position[i] < len(branch.probes):
                said[i] = branch.probes[position[i]]
                spent[i] += pool.interval
            else:
                said[i], finished[i] = branch.final, True
                spent[i] += max(0, branch.tokens - spent[i])
            position[i] += 1
        voting = [i for i in range(len(pool)) if not pruned[i]]
        winner = Counter(said[i] for i in voting).most_common(1)[0][0]
        if step >= warmup and len(voting) > 1:
            for i in voting:
                if not finished[i]:
                    off[i] = off[i] + 1 if said[i] != winner else 0
                    pruned[i] = off[i] >= prune
            voting = [i for i in range(len(pool)) if not pruned[i]]
            winner = Counter(said[i] for i in voting).most_common(1)[0][0]
        same = same + 1 if winner == before else 0
        before = winner
        winners.append(winner)
        active.append(len(voting))
        if same >= stable or all(p or f for p, f in zip(pruned, finished, strict=True)):
            break
    return before, max(spent), sum(spent), winners, active


@st.composite
def any_pool(draw: st.DrawFn) -> Pool:
    interval = draw(st.integers(1, 7))
    branch = st.tuples(st.lists(st.sampled_from("abcd"), max_size=12), st.integers(0, 3 * interval), st.sampled_from("abcd"))
    rows = draw(st.lists(branch, min_size=1, max_size=9))
    return Pool(tuple(Branch(tuple(p), len(p) * interval + more, final) for p, more, final in rows), interval, "a")


# ---------------------------------------------------------------------------------------------------- the controller


def test_the_worked_trace() -> None:
    found = control(TRACE, stable=3, prune=2, warmup=2)
    assert (found.answer, found.sequential, found.total, found.stopped) == ("c", 3000, 13_750, 4)
    assert found.winners == list("bcccc")
    assert found.active == [5, 5, 5, 3, 3]
    assert found.pruned_at.tolist() == [-1, -1, -1, 3, 3]
    uncut, unstopped, voting = control(TRACE, 3, None, 2), control(TRACE, None, 2, 2), self_consistency(TRACE)
    assert (uncut.sequential, uncut.total) == (3000, 14_750)
    assert (unstopped.sequential, unstopped.total, unstopped.stopped) == (3600, 14_450, None)
    assert (voting.sequential, voting.total) == (5800, 19_950)


@given(any_pool(), st.integers(1, 6), st.integers(1, 5), st.integers(0, 6), st.integers(1, 14))
@settings(max_examples=200, deadline=None)
def test_the_controller_is_the_released_one(pool: Pool, stable: int, prune: int, warmup: int, limit: int) -> None:
    found = control(pool, stable, prune, warmup, limit)
    assert (found.answer, found.sequential, found.total, found.winners, found.active) == transcribed(pool, stable, prune, warmup, limit)


@given(any_pool(), st.lists(st.tuples(st.integers(1, 5) | st.none(), st.integers(1, 4) | st.none(), st.integers(0, 5)), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_many_settings_side_by_side_end_as_each_alone(pool: Pool, asked: list[Any]) -> None:
    ran = sweep(pool, asked)
    for setting, code, sequential, total in zip(asked, ran.answers, ran.sequential, ran.total, strict=True):
        alone = control(pool, *setting)
        assert (pool.answers[code], sequential, total) == (alone.answer, alone.sequential, alone.total)


@pytest.mark.parametrize("stable", [1, 8, 40])
def test_unanimous_branches_stop_after_u_plus_two_probes(stable: int) -> None:
    pool = Pool((Branch(("x",) * 60, 30_100, "x"),) * 6, 500)
    found = control(pool, stable, 7, 15)
    assert (found.sequential, found.total) == (500 * (stable + 2), 6 * 500 * (stable + 2))
    short = Pool((Branch(("x",) * 3, 1700, "x"),) * 6, 500)
    assert control(short, 40, 7, 15).sequential == 1700, "they end by themselves before"


@given(any_pool())
@settings(max_examples=100, deadline=None)
def test_without_stopping_and_cutting_it_is_plain_voting(pool: Pool) -> None:
    found, voting = control(pool, None, None, 0), self_consistency(pool)
    assert (found.answer, found.sequential, found.total) == (voting.answer, voting.sequential, voting.total)
    late, uncut = control(pool, 3, 1, 100), control(pool, 3, None, 0)
    assert (late.answer, late.total) == (uncut.answer, uncut.total), "a warm-up beyond the last column leaves early stopping alone"


def test_finished_branches_keep_voting_and_are_never_cut() -> None:
    done, others = Branch(("a",), 20, "a"), Branch(("b",) * 8, 80, "b")
    found = control(Pool((done, others, others), 10), None, 1, 0)
    assert found.pruned_at.tolist() == [-1, -1, -1], "the one that ended disagrees, and stays"
    assert set(found.active) == {3}
    assert control(Pool((done, done, done, others), 10), None, 1, 0).pruned_at.tolist() == [-1, -1, -1, 0], "those that ended outvote it"


def test_an_unreadable_answer_votes_and_ties_go_to_the_first() -> None:
    pool = Pool((Branch(("x", "ERR", "ERR"), 40, "y"), Branch(("x", "ERR", "ERR"), 40, "y"), Branch(("x", "y", "y"), 40, "y")), 10)
    assert control(pool, 1, None, 0).answer == "ERR"
    assert mode(np.array([2, 0, 0, 2])) == 2
    np.testing.assert_array_equal(votes(np.array([[2, 0, 0], [2, 0, 0]]), np.array([[True, True, False], [True, True, True]])), [2, 0])


@pytest.mark.parametrize(("stable", "prune", "warmup", "limit"), [(0, 1, 0, 9), (1, 0, 0, 9), (1, 1, -1, 9), (1, 1, 0, 0)])
def test_settings_that_mean_nothing_are_refused(stable: int, prune: int, warmup: int, limit: int) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        control(TRACE, stable, prune, warmup, limit)


# ---------------------------------------------------------------------------------------------------------- the pools


@pytest.mark.parametrize(
    ("branches", "interval", "words"),
    [
        ((), 10, "no branch"),
        ((Branch(("a",), 10, "a"),), 0, "interval is 0"),
        ((Branch(("a", "b"), 19, "a"),), 10, "branch 0 has 19 tokens"),
        ((Branch((["a"],), 19, "a"),), 10, "cannot be compared"),
    ],
    ids=["empty", "interval", "costs", "list"],
)
def test_pools_that_contradict_themselves_are_refused(branches: Any, interval: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Pool(branches, interval)


def test_replays_are_the_shuffles_of_the_released_evaluation() -> None:
    pool = Pool(tuple(Branch((str(i),), 10, str(i)) for i in range(9)), 10)
    made = replays(pool, 4, 3)
    for seed, replay in enumerate(made):
        order = list(pool.branches)
        random.Random(seed).shuffle(order)
        assert replay.branches == tuple(order[:4])
    assert [one.branches for one in replays(pool, 9, 3)] == [pool.branches]
    with pytest.raises(ValueError, match="10 branches are asked for, the pool has 9"):
        replays(pool, 10, 3)


def test_a_pool_can_be_probed_less_often_but_not_more() -> None:
    thin = TRACE.every(1000)
    assert thin.branches[3].probes == ("b", "d", "d", "d", "d")
    assert thin.branches[0].tokens == 2750
    for interval in (750, 250, 0):
        with pytest.raises(ValueError, match="cannot be had"):
            TRACE.every(interval)


def test_onset_is_where_the_vote_no_longer_changes() -> None:
    # Votes of the trace by column, the last one of all finals: b (tie broken by order: a), b, c, c, ...
    assert onset_ratio(TRACE) == pytest.approx(1500 / 5800)
    assert onset_ratio(Pool((Branch(("x",) * 10, 100, "x"),) * 2, 10)) == pytest.approx(0.1)
    assert onset_ratio(Pool((Branch(("x",) * 10, 105, "y"),) * 2, 10)) == 1.0


@pytest.mark.parametrize(
    ("given", "same"),
    [
        (" 42 ", "42"),
        (42, "42"),
        (42.0, "42"),
        ("$042$", "42"),
        (r"\frac{1}{2}", "1/2"),
        (r"\dfrac{1}{2}", "1/2"),
        ("1 / 2", "1/2"),
        (None, "ERR"),
        ("", "ERR"),
        (0.5, "0.5"),
    ],
)
def test_answers_are_normalised_before_they_vote(given: Any, same: str) -> None:
    assert normalised(given) == same


SCOUT = {"question": "q", "gold_answer": 7, "probe_freq": 10, "each_branch": [[["3", "7"], 25, "7"], [["ERR"], 12, " 7 "]]}


def test_a_file_is_read_with_and_without_right_answers() -> None:
    (pool,) = read(json.dumps(SCOUT).encode())
    assert (pool.interval, pool.gold, pool.finals.tolist()) == (10, "7", [1, 1])
    assert pool.right("7") is True
    unknown = {**SCOUT, "gold_answer": None}
    assert read(json.dumps([unknown, SCOUT]).encode())[0].right("7") is None


@pytest.mark.parametrize(
    "content",
    [
        b"not json",
        b"[]",
        b"3",
        b'{"probe_freq": 10}',
        json.dumps({**SCOUT, "probe_freq": 0}).encode(),
        json.dumps({**SCOUT, "each_branch": []}).encode(),
        json.dumps({**SCOUT, "each_branch": [[["1", "2"], 11, "2"]]}).encode(),
        json.dumps({**SCOUT, "each_branch": [[[["1"]], 11, "2"]]}).encode(),
    ],
)
def test_files_that_are_no_pool_are_refused_in_words(content: bytes) -> None:
    with pytest.raises(InputError) as refused:
        read(content)
    assert refused.value.field == "pool"


# ---------------------------------------------------------------------------------------------------------- the peers


def finals(text: str, tokens: int = 10) -> Pool:
    return Pool(tuple(Branch((), tokens + i, one) for i, one in enumerate(text)), 100, "a")


def test_asc_stops_when_the_lead_is_sure() -> None:
    # 1 - Beta.cdf(0.5; v + 1, 1) is 1 - 2^-(v+1): above .95 from v = 4 on.
    assert adaptive_consistency(finals("aaaaaaa")).branches == 4
    assert adaptive_consistency(finals("aaaaaaa")).sequential == 10 + 11 + 12 + 13
    split = adaptive_consistency(finals("abababab"))
    assert (split.branches, split.total, split.answer) == (8, sum(range(10, 18)), "a")


def test_esc_goes_window_by_window() -> None:
    found = early_consistency(finals("abababab" + "bbbbbbbb" + "aaaaaaaa"))
    assert (found.answer, found.branches, found.sequential) == ("b", 16, 17 + 25)
    assert early_consistency(finals("aaa")).branches == 3


def test_a_branch_that_stops_by_itself_votes_with_what_it_repeated() -> None:
    pool = Pool((Branch(tuple("abbbc"), 55, "c"), Branch(tuple("ccccc"), 50, "c"), Branch(tuple("abab"), 44, "b")), 10)
    found = own_convergence(pool, repeats=3)
    assert (found.sequential, found.total, found.answer) == (44, 40 + 30 + 44, "b")


def test_of_few_answers_each_peer_still_votes() -> None:
    one = Pool((Branch(("a",), 10, "a"),), 10)
    assert {adaptive_consistency(one).answer, early_consistency(one).answer, own_convergence(one).answer, self_consistency(one).answer} == {"a"}


# ------------------------------------------------------------------------------------------------------ the generator


@pytest.fixture(scope="module")
def generated() -> list[Pool]:
    return [synthetic(np.random.default_rng([5, number]), 64) for number in range(300)]


def test_the_generator_shows_the_cards_effects(generated: list[Pool]) -> None:
    asked = [(40, 7, 15), (40, None, 15), (40, 7, 0), (14, 8, 12)]
    ours, uncut, cold, quick = frontier(generated, asked)
    found = [compare(pool, asked[0]) for pool in generated]
    voting, own = (np.array([one[name] for one in found], float).mean(0) for name in ("sc", "sac"))
    for figures, sequential, total in ((ours, 20.7, 691), (uncut, 23.5, 955), (cold, 18.8, 420), (quick, 11.8, 601)):
        assert figures.sequential / 1000 == pytest.approx(sequential, rel=0.15)
        assert figures.total / 1000 == pytest.approx(total, rel=0.15)
    assert voting[1:] / 1000 == pytest.approx([26.8, 974], rel=0.15)
    assert own[1:] / 1000 == pytest.approx([26.0, 906], rel=0.15)
    assert ours.accuracy is not None
    assert uncut.accuracy is not None
    assert cold.accuracy is not None
    assert ours.accuracy > uncut.accuracy >= voting[0]
    assert ours.accuracy > cold.accuracy
    assert own[0] == pytest.approx(voting[0], abs=0.02)
    assert voting[0] == pytest.approx(0.81, abs=0.06)


def test_the_generator_has_the_published_statistics(generated: list[Pool]) -> None:
    medians = np.array([np.median(pool.lengths) for pool in generated])
    assert 9_000 < np.median(medians) < 19_000
    assert np.mean([np.std(np.log(pool.lengths)) for pool in generated]) == pytest.approx(0.3, abs=0.06)
    relative = [(np.arange(pool.columns.shape[1]) + 0.5) / np.maximum(1, pool.depths)[:, None] for pool in generated]
    agrees = [pool.columns == pool.finals[:, None] for pool in generated]
    for low, high, share in ((0, 0.1, 0.08), (0.4, 0.5, 0.22), (0.7, 0.8, 0.52), (0.9, 1, 0.85)):
        seen = np.concatenate([own[(at >= low) & (at < high)] for own, at in zip(agrees, relative, strict=True)])
        assert seen.mean() == pytest.approx(share, abs=0.08), f"depth {low} to {high}"
    accuracy = np.array([(pool.finals == pool.gold_code).mean() for pool in generated])
    assert -0.9 < np.corrcoef(accuracy, np.log(medians))[0, 1] < -0.6
    unread = np.mean([probe == "ERR" for pool in generated[:60] for branch in pool.branches for probe in branch.probes])
    assert 0.01 < unread < 0.07


@pytest.mark.parametrize(("branches", "difficulty"), [(0, 0.5), (3, 1.5), (3, -0.1)])
def test_questions_that_cannot_be_are_refused(branches: int, difficulty: float) -> None:
    with pytest.raises(ValueError, match=r"at least 1|between 0 and 1"):
        synthetic(np.random.default_rng(0), branches, difficulty)


# ----------------------------------------------------------------------------------------------------------- the sweeps


def test_a_frontier_of_one_question_is_its_controller() -> None:
    asked = grid((3,), (2,), (2,))
    assert asked == [(3, 2, 2), (3, None, 0)]
    ours, uncut = frontier([TRACE, TRACE], asked)
    assert ours == Figures(1.0, 3000.0, 13_750.0)
    assert uncut.total == 14_750


def test_the_surface_is_a_vote_of_the_first_branches_at_a_column() -> None:
    found = surface([TRACE])
    assert found.widths.tolist() == [2, 4, 5]
    assert found.probes.tolist() == list(range(1, 12))
    expected = [[mode(TRACE.columns[:width, column]) == TRACE.gold_code for column in range(11)] for width in (2, 4, 5)]
    np.testing.assert_array_equal(found.accuracy, np.array(expected, float))
    with pytest.raises(ValueError, match="not known"):
        surface([Pool(TRACE.branches, 500)])
