"""Whole runs of kernelband on the substrate of a formula: frames, metrics, refusals, and what is said of recorded times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.contract import ContextSpec, Frame, InputError, Stopped
from backends.kernelband import method, proposers, recording
from backends.kernelband.bench import LiveBench, result
from backends.kernelband.card import CARD, Params
from backends.kernelband.compare import COMPARED
from backends.kernelband.landscape import fill
from backends.kernelband.substrate import Built, Failure, Profile, Timing
from backends.runtime.context import Control, RunContext
from backends.validation import validate
from tests.toy_kernels import ToySubstrate


class Untimed(ToySubstrate):
    """The formula on a host that cannot time: any call of ``time`` is an error."""

    can_time = False

    def compile(self, candidate: Any) -> Built | Failure:
        assert self.name == "triton", "without a compiler nothing is compiled"
        return super().compile(candidate)

    def time(self, built: Built, parent_ms: float | None) -> Timing | Failure:
        raise AssertionError("nothing can be timed here")

    def profile(self, built: Built, timing: Timing | None) -> Profile:  # type: ignore[override]
        assert timing is None
        whole = super().profile(built, Timing(1.0, 1, 0.0))
        return Profile(whole.phi * np.nan, whole.h * np.nan, whole.flops, whole.bytes, whole.facts)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ToySubstrate]:
    """The substrate of the runs of a test, and an empty folder of recordings."""
    substrate = ToySubstrate()
    use(monkeypatch, substrate)
    monkeypatch.setattr(recording, "FOLDER", tmp_path)
    yield substrate
    assert substrate.closed, "a run closes its substrate, however it ends"


def use(monkeypatch: pytest.MonkeyPatch, substrate: ToySubstrate) -> None:
    monkeypatch.setattr(method, "open_substrate", lambda params, context: substrate)


def run(control: Control | None = None, **values: Any) -> list[Frame]:
    params = validate(Params, values)
    return [f.sealed() for f in method.run(params, RunContext(ContextSpec(params.seed), control=control))]


def test_search_streams_whole_frames(toy: ToySubstrate) -> None:
    frames = run(rounds=15)
    assert [f.progress for f in frames] == sorted(f.progress for f in frames)
    assert frames[-1].progress == 1
    assert sum(f.data.get("phase") == "learn" for f in frames) == 15
    last = frames[-1]
    assert set(last.metrics) == set(CARD.metrics)
    counted = sum(int(last.metrics[n] or 0) for n in ("correct", "wrong", "compile_errors", "duplicates"))
    assert counted == last.metrics["rounds"] == 15
    assert last.metrics["speedup"] == pytest.approx(last.metrics["baseline_ms"] / last.metrics["best_ms"])  # type: ignore[operator]
    assert last.metrics["against_random"] == "\u2013 compare only"
    assert last.data["recorded"] is None
    assert Frame.from_json(json.loads(json.dumps(last.to_json(), allow_nan=False))).metrics == last.metrics
    assert len(toy.compiled) == last.data["counters"]["compiled"] == len(set(toy.compiled))


def test_search_data_fit_together(toy: ToySubstrate) -> None:
    data = run(rounds=25, seed=1)[-1].data
    members = len(data["kernels"]["ms"])
    assert members == 1 + data["counters"]["correct"]
    assert data["kernels"]["phi"].shape == (members, 5)
    assert data["kernels"]["h"].shape == (members, 3)
    assert data["features"]["xy"].shape == (members, 2)
    assert data["features"]["centroids"].shape == (3, 2)
    assert sum(data["features"]["share"]) <= 1 + 1e-9
    assert data["arms"]["n"].sum() == 18 + 25
    assert data["arms"]["open"].shape == data["arms"]["mu"].shape == data["arms"]["bonus"].shape == (3, 6)
    assert data["headroom"]["h"].shape == (3, 3)
    assert data["attempts"]["best_ms"][-1] == min(data["kernels"]["ms"])
    for member, parent in zip(data["attempts"]["member"], data["attempts"]["parent"], strict=True):
        assert member is None or data["kernels"]["parent"][member] == parent
    intensity, speed = data["kernels"]["intensity"], data["kernels"]["gflops"]
    np.testing.assert_allclose(intensity, 1.0)
    np.testing.assert_allclose(speed, 4e8 / data["kernels"]["ms"] / 1e6)
    assert data["drift"]["round"] == [0, 5, 10, 15, 20, 25]


def test_diff_shows_the_attempt_under_way_and_then_its_outcome(toy: ToySubstrate) -> None:
    settled = [f.data for f in run(rounds=12) if f.data.get("phase") == "learn"]
    for data in settled:
        attempt = {name: values[-1] for name, values in data["attempts"].items()}
        assert data["diff"]["outcome"] == attempt["outcome"]
        assert (data["diff"]["child"] is None) == (attempt["outcome"] == "duplicate")
        if attempt["outcome"] == "compile-error":
            assert "registers spilled" in data["diff"]["output"]


@pytest.mark.parametrize("policy", ["kernelband", "thompson", "random", "greedy", "best-of-n", "tpe"])
def test_every_policy_runs(toy: ToySubstrate, policy: str) -> None:
    last = run(rounds=6, policy=policy)[-1]
    assert last.metrics["rounds"] == 6
    assert (last.data["arms"] is None) == (policy == "tpe")


def test_stop_closes_the_substrate(toy: ToySubstrate) -> None:
    control = Control()
    frames = method.run(Params(rounds=60), RunContext(ContextSpec(), control=control))
    next(frames)
    control.stop()
    with pytest.raises(Stopped):
        for _ in frames:
            pass
    assert toy.closed == 1


def test_compiler_that_always_fails_gives_no_speed_up(toy: ToySubstrate) -> None:
    toy.works = False
    with pytest.raises(InputError, match="registers spilled") as error:
        run()
    assert error.value.field == "kernel"


def test_comparison_fills_its_table_first_and_says_only_what_it_measured(toy: ToySubstrate) -> None:
    frames = run(mode="compare", rounds=8, seeds=6)
    last = frames[-1]
    assert last.progress == 1
    assert last.data["landscape"]["schedules"] == 24 == len(toy.compiled)
    assert set(last.data["policies"]) == set(COMPARED)
    assert last.data["seeds"] == 6
    assert last.data["recorded"] is None
    assert last.data["made_by"]["device"] == "a formula"
    band = last.data["policies"]["kernelband"]
    assert last.metrics["speedup"] == pytest.approx(band["mean"][-1])
    assert band["low"][-1] <= band["mean"][-1] <= band["high"][-1]
    assert last.data["final"]["kernelband"].max() <= last.data["landscape"]["fastest"] * (1 + 1e-9)
    metrics = last.metrics
    assert metrics["best_ms"] == pytest.approx(float(metrics["baseline_ms"] or 0) / float(metrics["speedup"] or 1))
    assert sum(float(metrics[n] or 0) for n in ("correct", "wrong", "compile_errors", "duplicates")) == pytest.approx(8), "means over the seeds"
    assert not [n for n in CARD.metrics if not isinstance(metrics[n], int | float)], "a comparison measures every figure"
    ratio = last.metrics["against_random"]
    assert f"{ratio:.2f} times" in last.message
    assert ("within noise" in last.message) or ("than random" in last.message)


def shipped(toy: ToySubstrate, folder: Path) -> None:
    result(fill(toy, LiveBench(toy), toy.naive("matmul", 384), 60, 20, 1)).save(folder)
    toy.compiled.clear()


def test_comparison_replays_a_shipped_recording(toy: ToySubstrate, tmp_path: Path) -> None:
    shipped(toy, tmp_path)
    frames = run(mode="compare", rounds=5, seeds=5)
    assert not toy.compiled
    assert all("recorded on a formula" in f.data["recorded"] for f in frames)
    again = run(mode="compare", rounds=5, seeds=5)[-1]
    np.testing.assert_array_equal(frames[-1].data["final"]["tpe"], again.data["final"]["tpe"])


def test_without_a_compiler_the_search_is_a_recorded_one(toy: ToySubstrate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shipped(toy, tmp_path)
    toy.close()
    use(monkeypatch, Untimed())
    first, *_, last = run(rounds=12)
    assert all("no C compiler" in frame.message for frame in (first, last))
    assert "drifted" not in last.message
    assert last.data["recorded"].startswith("recorded on a formula, 20")
    assert last.data["made_by"]["device"] == last.data["recorded"]
    assert float(last.metrics["speedup"] or 0) > 1
    with pytest.raises(InputError, match="no recording"):
        run(rounds=12, size=100)
    with pytest.raises(InputError, match="no recording"):
        run(mode="compare", size=100)


def test_without_a_gpu_triton_is_surveyed_and_never_timed(toy: ToySubstrate, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.close()
    untimed = Untimed()
    untimed.name = "triton"  # type: ignore[assignment]
    use(monkeypatch, untimed)
    last = run(substrate="triton", rounds=40, seed=2)[-1]
    assert (last.data["mode"], last.progress) == ("survey", 1)
    assert {last.metrics[n] for n in ("speedup", "best_ms", "baseline_ms", "roofline_fraction", "masked_pulls")} == {"\u2013 not timed"}
    assert "no GPU" in last.message
    rows = last.data["rows"]
    assert len(rows) == 41
    assert {"right", "duplicate", "wrong"} <= {r["outcome"] for r in rows}
    assert sum(int(last.metrics[n] or 0) for n in ("correct", "wrong", "compile_errors", "duplicates")) == 40
    assert all(bool(r["facts"]) == (r["outcome"] == "right") for r in rows)
    assert all(rows[r["parent"]]["outcome"] == "right" for r in rows[1:])
    assert len(untimed.compiled) == len(set(untimed.compiled)) == last.data["counters"]["compiled"]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"threads": 16}, "threads"),
        ({"code": "void k() {}"}, "code"),
        ({"proposer": "endpoint"}, "proposer"),
        ({"proposer": "local"}, "proposer"),
        ({"kernel": "softmax"}, "kernel"),
        ({"mode": "compare", "proposer": "endpoint"}, "proposer"),
    ],
)
def test_what_this_host_does_not_do_is_refused(monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], field: str) -> None:
    monkeypatch.delenv(proposers.SWITCH, raising=False)
    monkeypatch.setattr(method.threads, "cores", lambda: 2)
    use(monkeypatch, ToySubstrate())
    with pytest.raises(InputError) as error:
        run(**values)
    assert error.value.field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [("rounds", 0), ("clusters", 0), ("clusters", 9), ("exploration", -0.1), ("theta_sm", 0), ("theta_dram", 101), ("kernel", "gemm"), ("temperature", 0)],
)
def test_bad_values_are_refused_at_their_field(field: str, value: Any) -> None:
    with pytest.raises(InputError) as error:
        validate(Params, {field: value})
    assert error.value.field == field


def test_own_program_is_measured_where_the_operator_allows_it(toy: ToySubstrate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(proposers.SWITCH, "1")
    monkeypatch.delenv(proposers.HOSTED, raising=False)
    last = run(rounds=4, code="void kernel() {}")[-1]
    assert last.metrics["rounds"] == 4
    assert last.data["attempts"]["round"] == [0, 1, 2, 3, 4]
    assert last.data["attempts"]["strategy"][0] == -1
    monkeypatch.setenv(proposers.HOSTED, "someone/space")
    with pytest.raises(InputError, match="hosted Space"):
        run(rounds=4, code="void kernel() {}")
