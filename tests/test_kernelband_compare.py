"""Recordings, the closed game on them, and the comparison of policies."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.kernelband.bench import Entry, LiveBench, result
from backends.kernelband.compare import COMPARED, Comparison, best_curve, compare, make_policy
from backends.kernelband.landscape import EXPLORED, Landscape, fill
from backends.kernelband.policies import Settings
from backends.kernelband.recording import Recording, find
from backends.kernelband.search import Search
from backends.kernelband.substrate import ScheduleProposer
from tests.toy_kernels import SPACE, ToySchedule, ToySubstrate


def record(count: int = 120, substrate: ToySubstrate | None = None) -> Recording:
    toy = substrate or ToySubstrate()
    return result(fill(toy, LiveBench(toy), toy.naive("matmul", 384), count, 20, 1))


def nothing() -> None:
    pass


def test_filling_measures_each_schedule_once() -> None:
    toy = ToySubstrate()
    recording = record(120, toy)
    assert len(recording.schedules) == 120 == len(toy.compiled)
    assert len(set(toy.compiled)) == 120
    assert recording.schedules[0].values == vars(ToySchedule()), "the baseline comes first"
    assert {e.entry.failure.kind for e in recording.schedules if e.entry.failure} == {"compile-error", "wrong"}


def test_filling_ends_where_there_is_no_more() -> None:
    assert len(record(5000).schedules) == math.prod(len(values) for values in SPACE.values())


def test_recording_survives_its_file(tmp_path: Path) -> None:
    recording = record(40)
    assert recording.save(tmp_path).name == "c-matmul.json"
    back = find("c", "matmul", 384, 1, tmp_path)
    assert back is not None
    assert replace(back, schedules=()) == replace(recording, schedules=())
    for a, b in zip(recording.schedules, back.schedules, strict=True):
        assert (a.values, a.key, a.entry.failure, a.entry.timing) == (b.values, b.key, b.entry.failure, b.entry.timing)
        if a.entry.profile and b.entry.profile:
            np.testing.assert_allclose(a.entry.profile.phi, b.entry.profile.phi, atol=1e-6)
            np.testing.assert_allclose(a.entry.profile.h, b.entry.profile.h, atol=1e-4)
    assert find("c", "matmul", 385, 1, tmp_path) is None, "another size is another landscape"
    assert find("c", "matmul", 384, 2, tmp_path) is None
    assert find("c", "rmsnorm", 384, 1, tmp_path) is None


def test_landscape_is_a_closed_game_with_the_recorded_results() -> None:
    toy, recording = ToySubstrate(), record(60)
    landscape = Landscape(toy, recording)
    assert landscape.stale == 0
    for schedule, candidate in landscape.candidates.items():
        for strategy in range(6):
            every, inside = toy.edits(candidate, strategy), landscape.edits(candidate, strategy)
            assert list(inside) == [e for e in every if e in landscape.entries]
        entry: Entry = landscape.entries[schedule]
        assert result(landscape.bench.measure(candidate, 1.0)) is entry
        if entry.timing:
            assert entry.timing.ms == schedule.ms  # type: ignore[attr-defined]
    assert 0 < landscape.share_inside() < 1
    assert not toy.compiled, "a replay runs no compiler"
    assert Landscape(toy, record(120)).share_inside() > landscape.share_inside()


def test_landscape_finds_the_nearest_recorded_schedule() -> None:
    toy = ToySubstrate()
    landscape = Landscape(toy, record(60))
    known = next(s for s in landscape.entries if s != ToySchedule())
    assert landscape.at("matmul", vars(known)) == known
    far = {"tile": 64, "lanes": 16, "fused": True, "unroll": 8, "order": "time-first", "layout": "packed"}
    found = vars(landscape.at("matmul", far))
    fewest = min(sum(vars(s)[k] != v for k, v in far.items()) for s in landscape.entries)
    assert sum(found[k] != v for k, v in far.items()) == fewest


def test_a_changed_program_is_counted_and_a_missing_baseline_is_refused() -> None:
    recording = record(10)
    first, second, *rest = recording.schedules
    changed = replace(recording, schedules=(first, replace(second, key="0"), *rest))
    assert Landscape(ToySubstrate(), changed).stale == 1
    with pytest.raises(ValueError, match="baseline"):
        Landscape(ToySubstrate(), replace(recording, schedules=(second, *rest)))


def test_every_policy_spends_the_same_budget_and_repeats() -> None:
    toy = ToySubstrate()
    landscape = Landscape(toy, record())
    runs = [list(compare(landscape, Settings(), 12, seed, nothing, seeds=3))[-1] for seed in (0, 0, 1)]
    for name in COMPARED:
        assert np.array(runs[0].best[name]).shape == (3, 13)
        np.testing.assert_array_equal(runs[0].best[name], runs[1].best[name])
        assert (np.diff(runs[0].best[name], axis=1) >= 0).all()
    assert any(not np.array_equal(runs[0].best[n], runs[2].best[n]) for n in COMPARED)
    assert not toy.compiled


CHANGES: tuple[dict[str, Any], ...] = (
    {"exploration": 0.0},
    {"temperature": 50.0},
    {"theta": (2.0, 75.0, 75.0)},
    {"theta": (75.0, 1.3, 75.0)},
    {"theta": (75.0, 75.0, 3.0)},
    {"clusters": 2},
    {"recluster_every": 3},
    {"profile_all": False},
)


def test_settings_change_where_kernelband_spends_its_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.kernelband.compare.COMPARED", ("kernelband", "best-of-n"))
    landscape = Landscape(ToySubstrate(), record())
    first = list(compare(landscape, Settings(), 25, 0, nothing, seeds=3))[-1]
    for change in CHANGES:
        other = list(compare(landscape, Settings(**change), 25, 0, nothing, seeds=3))[-1]
        assert not np.array_equal(first.pulls["kernelband"], other.pulls["kernelband"]), change
        np.testing.assert_array_equal(first.best["best-of-n"], other.best["best-of-n"])
        assert other.pulls["kernelband"].sum() == 3 * 25


def test_masks_and_matched_clusters_change_choices_too() -> None:
    """Where the thresholds bite, and where clusters are renamed."""
    landscape = Landscape(ToySubstrate(), record())
    base = Settings(theta=(2.0, 2.0, 2.0), recluster_every=3)
    curves = []
    for settings in (base, replace(base, mask=False), replace(base, match_clusters=True)):
        comparison = Comparison(40, {"kernelband": []}, {"kernelband": np.zeros((3, 6), int)})
        for seed in range(4):
            policy = make_policy("kernelband", settings, np.random.default_rng(seed), landscape, landscape.baseline)
            search = Search(landscape.bench, ScheduleProposer(landscape), policy, np.random.default_rng(seed), landscape.baseline, 40)
            for _ in search.run():
                pass
            comparison.add("kernelband", search)
        curves.append(comparison.pulls["kernelband"])
    assert not np.array_equal(curves[0], curves[1])
    assert not np.array_equal(curves[0], curves[2])


def test_bands_and_ratios_are_students_intervals_of_logarithms() -> None:
    rows = [np.log(np.array([1.0, v])) for v in (2.0, 4.0, 8.0)]
    comparison = Comparison(1, {"kernelband": rows, "random": [r / 2 for r in rows], "tpe": rows[:1]})
    band = comparison.band("kernelband")
    assert band is not None
    half = 4.302653 * math.log(2) / 3**0.5  # t quantile of two degrees of freedom
    np.testing.assert_allclose(np.log([band.mean[1], band.low[1], band.high[1]]), math.log(4) + half * np.array([0, -1, 1]), rtol=1e-6)
    assert (band.mean[0], band.low[0], band.high[0]) == (1, 1, 1)
    assert comparison.band("tpe") is None
    mean, low, high = comparison.ratio("kernelband", "random")
    assert mean == pytest.approx(2)
    assert low * high == pytest.approx(4)


def test_best_curve_ignores_failures_and_never_falls() -> None:
    toy = ToySubstrate()
    policy = make_policy("random", Settings(), np.random.default_rng(0), toy, toy.naive("matmul", 384))
    search = Search(LiveBench(toy), ScheduleProposer(toy), policy, np.random.default_rng(1), toy.naive("matmul", 384), 25)
    for _ in search.run():
        pass
    curve = best_curve(search)
    assert curve[0] == 0
    assert np.exp(curve[-1]) == pytest.approx(search.baseline_ms / search.best_ms)
    assert (np.diff(curve) >= 0).all()


def test_tpe_learns_from_what_it_was_told() -> None:
    """On a formula TPE's last rounds are better than its first, which are uniform."""
    toy = ToySubstrate()
    landscape = Landscape(toy, record(250))
    early, late = [], []
    for seed in range(3):
        policy = make_policy("tpe", Settings(), np.random.default_rng(seed), landscape, landscape.baseline)
        search = Search(landscape.bench, ScheduleProposer(landscape), policy, np.random.default_rng(seed), landscape.baseline, 50)
        for _ in search.run():
            pass
        tried = [landscape.entries[a.candidate.schedule].timing for a in search.attempts]
        early += [np.log(t.ms) for t in tried[:10] if t]
        late += [np.log(t.ms) for t in tried[-15:] if t]
    assert np.mean(late) < np.mean(early) - 0.2


def test_grid_holds_every_mix_of_naive_and_fastest() -> None:
    toy = ToySubstrate()
    recording = record(100, toy)
    searched = recording.schedules[: round(100 * EXPLORED)]
    fastest = min((r for r in searched if r.entry.timing), key=lambda r: r.entry.timing.ms)  # type: ignore[union-attr]
    naive = vars(ToySchedule())
    differ = [name for name in naive if fastest.values[name] != naive[name]]
    assert len(differ) >= 2, "otherwise this proves nothing"
    known = [dict(r.values) for r in recording.schedules]
    for mix in itertools.product((False, True), repeat=len(differ)):
        assert {**naive, **{n: fastest.values[n] for n, take in zip(differ, mix, strict=True) if take}} in known
