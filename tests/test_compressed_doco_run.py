"""A whole run of compressed-doco: its frames, its live runs, its refusals, and the answers of the exercise."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

from backends.compressed_doco import spectrum, weights_of
from backends.compressed_doco.card import BLOCKS, CARD, Params
from backends.compressed_doco.method import run
from backends.contract import ContextSpec, Frame, InputError
from backends.runtime.context import RunContext

METRICS = ["max_regret_per_round", "max_regret_per_round_dcdogd", "best_block", "consensus_rms", "bits_per_learner", "seconds"]
SMALL: dict[str, Any] = {"horizon": 240, "learners": 4, "gossip_rounds": 8, "compensation_rounds": 2}


def frames(live: str | None = None, **values: Any) -> list[Frame]:
    params = Params(**values)
    return list(run(params, RunContext(ContextSpec(seed=params.seed), live=live)))


@cache
def preset(name: str, **changes: Any) -> Frame:
    return frames(**{**CARD.preset(name).params, **changes})[-1]


def final(frame: Frame, name: str) -> float:
    return float(frame.data["curves"][name]["regret"][-1])


def test_the_metrics_are_the_agreed_ones() -> None:
    assert list(CARD.metrics) == METRICS
    assert set(METRICS) == set(frames(**SMALL)[-1].metrics)


def test_frames_grow_to_the_end() -> None:
    seen = frames(**SMALL)
    progress = [frame.progress for frame in seen]
    assert progress == sorted(progress)
    assert progress[-1] == 1
    assert {"graph", "fan", "course", "curves", "u", "contraction", "constants", "ablation", "best", "omega", "made_by"} <= set(seen[-1].data)
    assert set(seen[-1].data["curves"]) == {"top-dogd", "dc-dogd", "uncompressed", "alone", "central"}
    assert "fan" in seen[4].data, "the learners are drawn while they play"
    lengths = [len(frame.data["u"]["regret"]) for frame in seen if "u" in frame.data]
    assert lengths[:5] == [1, 2, 3, 4, 5], "the U-curve grows point by point"


def test_the_default_run_is_the_cards_reference() -> None:
    frame = preset("whisper")
    assert frame.metrics["max_regret_per_round"] == pytest.approx(0.0313, rel=0.15)
    assert frame.metrics["max_regret_per_round_dcdogd"] == pytest.approx(0.0447, rel=0.15)
    assert frame.metrics["best_block"] == 25
    assert frame.data["u"]["regret"][BLOCKS.index((20, 5))] == frame.metrics["max_regret_per_round"], "this run lies on its own curve"
    graph, _ = weights_of("gnm", 9)
    degree = np.mean([d for _, d in graph.degree])
    assert frame.metrics["bits_per_learner"] == pytest.approx(2000 * 7 * (32 + 7) * degree)
    assert frame.data["best"]["loss"] == pytest.approx(0.519, abs=5e-4)
    assert final(frame, "central") < final(frame, "uncompressed") < final(frame, "top-dogd") < final(frame, "dc-dogd") < final(frame, "alone")
    assert final(frame, "alone") == pytest.approx(1.53, rel=0.15)


@pytest.mark.parametrize(("name", "value"), [("gossip_rounds", 3), ("gossip_rounds", 40), ("compensation_rounds", 0)])
def test_a_live_run_is_one_frame_and_equals_the_full_one(name: str, value: int) -> None:
    full, live = frames(**SMALL | {name: value})[-1], frames(name, **SMALL | {name: value})
    assert len(live) == 1
    assert {k: v for k, v in live[0].metrics.items() if k != "seconds"} == {k: v for k, v in full.metrics.items() if k != "seconds"}
    np.testing.assert_array_equal(live[0].data["fan"]["plane"], full.data["fan"]["plane"])


def test_the_fan_ends_as_the_learners_move_and_its_mean_stands_still() -> None:
    fan = frames(**SMALL)[-1].data["fan"]
    plane, rounds = fan["plane"], fan["round"]
    np.testing.assert_allclose(plane.mean(axis=1), 0, atol=1e-5)
    moves = np.flatnonzero(np.diff(rounds) == 0) + 1
    assert moves[-1] == len(rounds) - 1
    spread = np.sqrt((plane**2).sum(axis=(1, 2)))
    assert all(spread[move] > 2 * spread[move - 1] for move in moves), "they fan out when they move"


def test_theory_uses_the_theorems_step() -> None:
    frame = frames(**SMALL | {"gossip_step": "theory"})[-1]
    name, theorem, used = frame.data["constants"][0]
    assert name.startswith("gossip step")
    assert theorem == used == frame.data["contraction"]["step_used"]
    assert frame.data["contraction"]["bound"][-1] >= frame.data["contraction"]["theory"][-1]


@pytest.mark.parametrize(
    "values",
    [
        {"graph": "complete", "compressor": "rand-k", "omega": 0.5},
        {"graph": "path", "compressor": "random-gossip", "learners": 2},
        {"graph": "grid", "compressor": "quantiser", "learners": 7},
        {"graph": "ring", "learners": 50, "horizon": 100},
        {"data": "breast-cancer", "feedback": "one-point"},
        {"data": "quadratic", "feedback": "two-point", "gossip_step": 0.1},
        {"radius": 0.5, "restart": "sent", "delta": 0.1},
        {"compensation": False, "omega": 1.0},
        {"horizon": 61, "gossip_rounds": 60, "compensation_rounds": 1},
    ],
    ids=str,
)
def test_every_kind_of_run_ends(values: dict[str, Any]) -> None:
    last = frames(**SMALL | values)[-1]
    assert last.progress == 1
    assert all(value is not None for value in last.metrics.values()), last.message


def test_a_share_that_the_compressor_cannot_keep_is_said() -> None:
    coarse = frames(**SMALL | {"compressor": "quantiser", "omega": 0.03})[-1]
    assert coarse.data["omega"] == pytest.approx(1 / (1 + np.sqrt(65)))
    assert "0.03 was asked" in coarse.data["notes"][0]
    assert frames(**SMALL)[-1].data["notes"] == []


REFUSED = [
    ({"horizon": 60, "gossip_rounds": 60, "compensation_rounds": 1}, "gossip_rounds"),
    ({"feedback": "two-point", "delta": 2.0, "radius": 2.0}, "delta"),
    ({"feedback": "one-point", "delta": 3.0, "radius": 2.0}, "delta"),
    ({"compressor": "quantiser", "omega": 1.0}, "omega"),
]


@pytest.mark.parametrize(("values", "field"), REFUSED, ids=str)
def test_what_cannot_be_run_is_refused_at_its_field(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refused:
        frames(**values)
    assert refused.value.field == field


def test_a_delta_beyond_the_radius_is_no_matter_with_gradients() -> None:
    assert frames(**SMALL | {"delta": 2.0, "radius": 1.0})[-1].progress == 1


# ------------------------------------------------------------------------------------------------ the exercise


def test_exercise_1_learners_of_one_kind_must_talk() -> None:
    same, sorted_ = preset("same-data"), preset("same-data", label_skew=1.0)
    assert final(same, "alone") == pytest.approx(0.02, abs=0.01)
    assert final(sorted_, "alone") == pytest.approx(1.46, abs=0.02)


def test_exercise_2_patience_buys_agreement() -> None:
    impatient, patient = preset("impatient"), preset("impatient", gossip_rounds=40, compensation_rounds=10)
    assert impatient.metrics["max_regret_per_round"] == pytest.approx(0.20, abs=0.01)
    assert patient.metrics["max_regret_per_round"] == pytest.approx(0.06, abs=0.005)
    ratio = impatient.metrics["consensus_rms"] / patient.metrics["consensus_rms"]  # type: ignore[operator]
    assert ratio == pytest.approx(5, abs=0.7)


def test_exercise_3_a_stale_replica_cannot_be_trusted_far() -> None:
    stale, trusted = preset("stale"), preset("stale", gossip_step=0.15)
    assert stale.metrics["max_regret_per_round"] is None
    assert "stopped in round 325" in stale.message
    assert stale.data["contraction"]["factor_used"] > 1 > trusted.data["contraction"]["factor_used"]
    assert trusted.metrics["max_regret_per_round"] == pytest.approx(0.073, rel=0.15)


def test_where_it_fails_the_theorems_step_hardly_talks() -> None:
    failing = preset("theory")
    assert failing.metrics["max_regret_per_round"] == pytest.approx(final(failing, "alone"), rel=0.05)
    assert spectrum(weights_of("gnm", 9)[1]).gap == pytest.approx(failing.data["graph"]["gap"])


def test_the_card_needs_no_heavy_import() -> None:
    heavy = ("scipy", "sklearn", "torch", "networkx")
    code = f"import sys, backends.compressed_doco.card as c; c.Params(); print(*(m for m in {heavy} if m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout.strip() == ""
