"""The Fatigue Index by the card's oracles: formula, axioms, alarm, entropy, repetition; no model is loaded here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.fatigue_index import (
    Constants,
    attention_to_prompt,
    auroc,
    contributions,
    drift,
    entropy,
    fatigue_index,
    flips,
    hysteresis,
    penalties,
    rank_correlation,
    repetition_ratio,
    running_repetition,
    smooth,
    threshold,
)

SERIES = np.array([0.30, 0.45, 0.55, 0.48, 0.52, 0.47, 0.53, 0.46, 0.51, 0.44, 0.39, 0.35])
SMOOTHED = [0.3000, 0.3750, 0.4333, 0.4450, 0.4600, 0.4940, 0.5100, 0.4920, 0.4980, 0.4820, 0.4660, 0.4300]
shares = st.floats(0, 1)
nats = st.floats(0, 11)
lengths = st.floats(0, 200)
signals = st.tuples(shares, nats, lengths)


@pytest.mark.parametrize(
    ("given_signals", "expected"),
    [
        ((1, 3.8, 0), 0.0),
        ((0.5, 4.4, 20), 0.300),
        ((0.2, 1.9, 25), 0.620),
        ((0.7, 6, 10), 0.240),
        ((0, 10, 0), 0.750),
        ((0.36, 3.42, 57.2), 0.541),
        ((0, 0, 60), 1.0),
    ],
)
def test_formula(given_signals: tuple[float, float, float], expected: float) -> None:
    assert float(fatigue_index(*given_signals)) == pytest.approx(expected, abs=1e-12)


def test_it_takes_arrays_and_its_own_constants() -> None:
    found = fatigue_index([1.0, 0.5], 6.0, [[0.0], [10.0]], weights=(0.5, 0.25, 0.25), low=2, high=4, beta=4, kappa=20)
    assert found == pytest.approx(np.array([[0.125, 0.375], [0.25, 0.5]]), abs=1e-15)


@settings(max_examples=200, deadline=None)
@given(signals, signals)
def test_axioms(one: tuple[float, float, float], other: tuple[float, float, float]) -> None:
    fi = float(fatigue_index(*one))
    assert 0 <= fi <= 1
    parts = contributions(*one)
    assert abs(float(parts.sum()) - fi) <= 1e-12
    assert ((parts >= 0) & (parts <= np.array([0.40, 0.35, 0.25]) + 1e-15)).all()
    a, e, d = one
    assert float(fatigue_index(min(a, other[0]), e, d)) >= fi, "less attention lowers it"
    assert float(fatigue_index(a, e, max(d, other[2]))) >= fi, "more drift lowers it"
    outside = e + abs(other[1] - e) if e >= 5.0 else e - abs(other[1] - e) if e <= 3.8 else e
    assert float(fatigue_index(a, outside, d)) >= fi, "further from the band lowers it"
    delta = [abs(x - y) for x, y in zip(one, other, strict=True)]
    bound = 0.40 * delta[0] + 0.35 * delta[1] / min(3.8, 5.0) + 0.25 * delta[2] / 50
    assert abs(float(fatigue_index(*other)) - fi) <= bound + 1e-12


@settings(max_examples=100, deadline=None)
@given(st.lists(shares, min_size=2, max_size=8), st.floats(0.2, 4), lengths)
def test_order_survives_monotone_rescaling(raw: list[float], power: float, moved: float) -> None:
    """Another monotone scale of a raw signal keeps the order of steps by that signal's penalty."""
    before, after = penalties(np.array(raw), 4.4, 0)[0], penalties(np.array(raw) ** power, 4.4, 0)[0]
    assert (np.sign(np.subtract.outer(before, before)) * np.sign(np.subtract.outer(after, after)) >= 0).all()
    drifts = np.sort(np.array(raw)) * moved
    assert (np.diff(penalties(0.5, 4.4, drifts)[2]) >= 0).all()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"weights": (0.5, 0.5, 0.5)}, "sum"),
        ({"weights": (1.2, -0.1, -0.1)}, "0 or more"),
        ({"weights": (0.5, 0.5)}, "three"),
        ({"low": 0}, "band"),
        ({"low": 5.0}, "band"),
        ({"low": math.nan}, "band"),
        ({"beta": 0}, "beta"),
        ({"kappa": -1}, "kappa"),
        ({"kappa": math.inf}, "kappa"),
    ],
)
def test_constants_that_break_a_rule_are_refused(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        fatigue_index(0.5, 4.0, 10.0, **changes)
    with pytest.raises(ValueError, match=word):
        Constants(**changes)


def test_a_signal_that_is_not_a_number_is_refused() -> None:
    for bad in ((math.nan, 4, 1), (0.5, [4, math.nan], 1), (0.5, 4, math.nan)):
        with pytest.raises(ValueError, match="not a number"):
            fatigue_index(*bad)


# ------------------------------------------------------------------------------------------------------------ alarm


def test_alarm_of_the_card() -> None:
    assert flips(threshold(SERIES, 0.5)) == 8
    assert flips(hysteresis(SERIES, 0.5, 0.4)) == 2
    smoothed = smooth(SERIES, 5)
    assert smoothed == pytest.approx(np.array(SMOOTHED), abs=5e-5)
    assert flips(threshold(smoothed, 0.5)) == 2
    alarm = hysteresis(smoothed, 0.5, 0.4)
    assert flips(alarm) == 1
    assert alarm[-1]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([0.3, 0.4, 0.45, 0.5, 0.6]), max_size=30), st.sampled_from([0.3, 0.4, 0.5]))
def test_hysteresis_is_the_machine_of_two_states(x: list[float], off: float) -> None:
    state, expected = False, []
    for value in x:
        state = True if value >= 0.5 else False if value <= off else state
        expected.append(state)
    assert hysteresis(x, 0.5, off).tolist() == expected


def test_without_a_dead_band_it_is_the_plain_threshold() -> None:
    assert (hysteresis(SERIES, 0.5, 0.5) == threshold(SERIES, 0.5)).all()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40), st.integers(1, 50))
def test_smoothing_is_the_trailing_mean(x: list[float], window: int) -> None:
    expected = [np.mean(x[max(0, t - window + 1) : t + 1]) for t in range(len(x))]
    assert smooth(x, window) == pytest.approx(np.array(expected), abs=1e-12)


def test_alarms_refuse_in_words() -> None:
    with pytest.raises(ValueError, match="above where it goes on"):
        hysteresis(SERIES, 0.4, 0.5)
    with pytest.raises(ValueError, match="at least 1"):
        smooth(SERIES, 0)
    for make in (smooth, threshold, hysteresis):
        with pytest.raises(ValueError, match="series"):
            make([0.1, math.nan])
        with pytest.raises(ValueError, match="series"):
            make([[0.1]])
    assert smooth([]).size == threshold([]).size == hysteresis([]).size == flips([]) == 0


# ---------------------------------------------------------------------------------------------------------- signals


def test_entropy_is_in_nats_and_exact_on_uniform_logits() -> None:
    assert float(entropy(np.full(49152, -7.5))) == pytest.approx(math.log(49152), abs=1e-12)
    assert math.log(49152) == pytest.approx(10.803, abs=5e-4)
    assert float(entropy([0.0, -math.inf, 0.0])) == pytest.approx(math.log(2), abs=1e-15)
    assert float(entropy([1e4, 0.0, -1e4])) == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-30, 30), min_size=1, max_size=50), st.floats(-1000, 1000))
def test_entropy_has_bounds_and_no_zero_point(logits: list[float], constant: float) -> None:
    z = np.array(logits)
    found = float(entropy(z))
    assert -1e-12 <= found <= math.log(z.size) + 1e-12
    assert float(entropy(z + constant)) == pytest.approx(found, abs=1e-9)
    p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
    assert found == pytest.approx(-sum(x * math.log(x) for x in p if x > 0), abs=1e-9)


def test_attention_sums_the_slice_and_averages_the_heads() -> None:
    rows = np.random.default_rng(0).dirichlet(np.ones(12), size=(3, 4))  # (T, H, S)
    assert attention_to_prompt(rows, 10, 6) == pytest.approx(rows[:, :, :6].sum(-1).mean(-1), abs=1e-15)
    assert attention_to_prompt(rows, 5, 64) == pytest.approx(rows[:, :, :5].sum(-1).mean(-1), abs=1e-15)
    assert attention_to_prompt(rows, 12, 64) == pytest.approx(np.ones(3), abs=1e-15), "a row sums to 1"
    assert attention_to_prompt(rows, 10, 6, drop_first=True) == pytest.approx(rows[:, :, 1:6].sum(-1).mean(-1), abs=1e-15)
    assert attention_to_prompt(rows, 10, 6, start=3, drop_first=True) == pytest.approx(rows[:, :, 3:9].sum(-1).mean(-1), abs=1e-15)


@pytest.mark.parametrize("values", [(0, 6, 0), (13, 6, 0), (10, 0, 0), (10, 6, 10), (10, 6, -1)])
def test_attention_refuses_sizes_that_do_not_fit(values: tuple[int, int, int]) -> None:
    prompt, prefix, start = values
    with pytest.raises(ValueError, match=r"prompt|prefix"):
        attention_to_prompt(np.full((1, 2, 12), 1 / 12), prompt, prefix, start=start)


def test_other_signals_refuse_in_words() -> None:
    for bad in ([math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf]):
        with pytest.raises(ValueError, match="not numbers"):
            entropy(bad)
    with pytest.raises(ValueError, match="heads"):
        attention_to_prompt([0.5, 0.5], 1)
    with pytest.raises(ValueError, match="0 or more"):
        attention_to_prompt([[-0.5, 0.5]], 1)
    with pytest.raises(ValueError, match="not numbers"):
        drift([[0.0], [math.nan]])
    with pytest.raises(ValueError, match="fit"):
        drift([[0.0, 1.0]], [0.0])


def test_drift_begins_at_zero() -> None:
    states = np.random.default_rng(1).normal(size=(5, 7))
    assert drift(states)[0] == 0
    assert drift(states) == pytest.approx(np.linalg.norm(states - states[0], axis=1), abs=1e-15)
    assert drift(states[3], states[0]) == drift(states)[3]


# ------------------------------------------------------------------------------------------------- repetition, study


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 5))
def test_repetition_counts_what_stood_earlier(ids: list[int], n: int) -> None:
    seen: set[tuple[int, ...]] = set()
    repeated, expected = 0, []
    for t in range(len(ids)):
        if t >= n - 1:
            gram = tuple(ids[t - n + 1 : t + 1])
            repeated += gram in seen
            seen.add(gram)
        expected.append(repeated / (t - n + 2) if t >= n - 1 else 0.0)
    assert running_repetition(ids, n).tolist() == expected
    assert repetition_ratio(ids, n) == (expected[-1] if expected else 0.0)


def test_a_loop_repeats_almost_wholly() -> None:
    assert repetition_ratio([7] * 103) == 0.99
    assert repetition_ratio(range(100)) == 0


def test_rank_correlation_is_spearmans() -> None:
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    x = np.round(rng.normal(size=30), 1)
    y = np.round(x + rng.normal(size=30), 1)
    found = rank_correlation(x, y, np.random.default_rng(1))
    assert found.rho == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)
    assert found.low is not None
    assert found.high is not None
    assert -1 <= found.low < found.rho < found.high <= 1
    assert found == rank_correlation(x, y, np.random.default_rng(1))
    assert rank_correlation([1, 1, 1, 1], [1, 2, 3, 4]).rho is None
    with pytest.raises(ValueError, match="one length"):
        rank_correlation([1, 2], [1, 2, 3])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=20))
def test_auroc_counts_pairs(drawn: list[tuple[int, bool]]) -> None:
    scores, labels = np.array([s for s, _ in drawn], float), np.array([b for _, b in drawn], bool)
    pairs = np.subtract.outer(scores[labels], scores[~labels])
    expected = ((pairs > 0).mean() + (pairs == 0).mean() / 2) if pairs.size else None
    found = auroc(scores, labels)
    assert (found is None) == (expected is None)
    if found is not None:
        assert found == pytest.approx(expected, abs=1e-12)
