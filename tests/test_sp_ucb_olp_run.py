"""Whole runs of sp-ucb-olp: frames, the hidden answer, workloads, files, and the exercise's answers on their presets."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from backends.contract import ContextSpec, Frame, InputError, Upload
from backends.runtime.context import RunContext
from backends.sp_ucb_olp import digits
from backends.sp_ucb_olp.card import CARD, Params
from backends.sp_ucb_olp.method import SEEDS, later_half, run
from backends.sp_ucb_olp.trace import read_trace
from backends.validation import validate


def frames(**values: Any) -> list[Frame]:
    params = validate(Params, values)
    return list(run(params, RunContext(ContextSpec(params.seed), scope="sp-ucb-olp tests")))


@cache
def preset(name: str, **changes: Any) -> Frame:
    return frames(**{**CARD.preset(name).params, **changes})[-1]


def trace(rows: int = 260, seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    cpu, memory, start = rng.gamma(1.7, 48, rows), rng.gamma(1.4, 25, rows), rng.permutation(rows)
    lines = [f"{c:.2f},{m:.2f},{t},{t + 5}" for c, m, t in zip(cpu, memory, start, strict=True)]
    return "plan_cpu,plan_mem,start_time,end_time\n" + "\n".join(lines) + "\n"


def upload(text: str) -> Upload:
    return Upload.of("trace.csv", text.encode())


def test_frames_grow_to_the_end() -> None:
    seen = frames(horizon=400)
    progress = [frame.progress for frame in seen]
    assert progress == sorted(progress)
    assert (progress[0], progress[-1]) == (0, 1)
    assert len(seen) == 2 + 400 // 50 + (SEEDS - 1) + 1
    last = seen[-1]
    assert set(last.metrics) == set(CARD.metrics)
    assert {"curves", "solves", "left", "requests", "spending", "ratios", "seeds", "objective", "oracle", "made_by", "notes"} <= set(last.data)
    assert last.data["seeds"]["ratio"][0] == last.metrics["competitive_ratio"]
    assert last.data["curves"]["lp-duals"][-1] == pytest.approx(last.metrics["competitive_ratio"] * 400 * 0.375)  # type: ignore[operator]
    assert Frame.from_json(json.loads(json.dumps(last.to_json(), allow_nan=False))).metrics == last.metrics


def test_figures_follow_from_the_run() -> None:
    last = preset("unequal-budgets")
    ratio = last.metrics["competitive_ratio"]
    assert isinstance(ratio, float)
    assert last.metrics["regret_over_sqrt_t"] == pytest.approx((1 - ratio) * 2000 * 0.375 / np.sqrt(2000))
    assert last.metrics["v_mix"] == pytest.approx(0.375, abs=1e-9)
    assert last.metrics["v_fix"] == pytest.approx(0.32, abs=1e-9)
    assert last.metrics["budget_left_min"] == pytest.approx(float(np.min(last.data["left"]["share"][-1])))
    assert 0 <= last.metrics["w_error"] < 0.05  # type: ignore[operator]


def test_later_half_weighs_each_solve_by_its_rounds() -> None:
    from types import SimpleNamespace as Namespace

    held = [Namespace(round=0, decision=Namespace(mixture=np.array([1.0, 0.0]), prices=np.array([5.0])))]
    held.append(Namespace(round=60, decision=Namespace(mixture=np.array([0.0, 1.0]), prices=np.array([1.0]))))
    mixture, prices = later_half(Namespace(solves=held), 100)  # type: ignore[arg-type]
    np.testing.assert_allclose(mixture, [0.2, 0.8])
    np.testing.assert_allclose(prices, [1.8])


def test_a_hidden_answer_shows_nothing_of_the_oracle() -> None:
    hidden, shown = frames(horizon=300, reveal_oracle=False)[-1], frames(horizon=300)[-1]
    assert {name for name, value in hidden.metrics.items() if value is None} == set(CARD.metrics) - {"budget_left_min", "seconds"}
    assert hidden.data["oracle"] is None
    assert hidden.data["spending"]["fixed"] is None
    assert "oracle" not in hidden.data["ratios"]
    assert "hidden" in hidden.message
    assert hidden.metrics["budget_left_min"] == shown.metrics["budget_left_min"], "the learner is the same"


def test_with_budgets_for_all_the_mixture_is_not_unique() -> None:
    last = frames(horizon=200, budgets=[0.6] * 4)[-1]
    assert last.metrics["w_error"] is None
    assert "not unique" in last.message
    assert last.metrics["v_mix"] == pytest.approx(0.5, abs=1e-9)


@pytest.mark.parametrize(
    ("values", "configurations", "resources"),
    [
        ({"configurations": 1}, 1, 1),
        ({"configurations": 4}, 4, 4),
        ({"preset_instance": "crossing", "configurations": 4}, 2, 1),
        ({"preset_instance": "synthetic-cluster", "configurations": 3}, 3, 2),
        ({"preset_instance": "synthetic-small-jobs", "configurations": 2}, 2, 2),
        ({"preset_instance": "digits", "configurations": 3}, 3, 2),
        ({"mixture": "uniform-over-ties", "slack": 0.0, "alpha": 1.0, "resolve_every": 1}, 2, 2),
    ],
    ids=str,
)
def test_every_workload_runs(values: dict[str, Any], configurations: int, resources: int) -> None:
    last = frames(horizon=200, **{"resolve_every": 50, **values})[-1]
    assert last.progress == 1
    assert len(last.data["names"]) == configurations
    assert len(last.data["resources"]) == resources
    assert last.metrics["v_mix"] >= last.metrics["v_fix"] - 1e-9  # type: ignore[operator]
    assert (last.data["objective"] is None) == (resources > 2)
    fewer = any(f"has {configurations} configurations" in note for note in last.data["notes"])
    assert fewer == (values.get("configurations", 2) > configurations)


def test_the_digits_are_real_and_their_cost_is_counted() -> None:
    context = RunContext(ContextSpec(0), scope="sp-ucb-olp tests")
    network = context.memo("digits", digits.EPOCHS, lambda: digits.train(context.check, lambda _: None))
    served = digits.pool(network, 3)
    assert served.rewards.shape == (900, 3)
    assert (served.rewards.mean(axis=0) > 0.85).all(), "the network has learned"
    work, traffic = served.use[..., 0], served.use[..., 1]
    assert (np.diff(work, axis=1) < 0).all()
    assert (np.diff(traffic, axis=1) < 0).all()
    assert (traffic[:, 0] == 1.0).all()
    assert (work.max(axis=0) < 1).all(), "pixels that are zero are not multiplied"
    np.testing.assert_allclose(work[:, 1] / work[:, 0], 0.25, atol=0.03)


@pytest.mark.parametrize("bits", [8, 4])
def test_quantised_weights_are_stored_in_so_many_bits(bits: int) -> None:
    weights = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    found = digits.quantise(weights, bits)
    assert found.stored.nbytes == weights.size * bits // 8
    assert np.abs(found.values - weights).max() <= found.scale[0] / 2 + 1e-6
    if bits == 4:
        low = (found.stored << 4).astype(np.int8) >> 4
        unpacked = np.stack([low, found.stored >> 4], axis=1).reshape(weights.shape)
        np.testing.assert_allclose(unpacked * found.scale[0], found.values)


def test_a_trace_is_played_in_its_order() -> None:
    jobs, notes = read_trace(upload("plan_cpu,plan_mem,start_time,end_time\n50,20,9,12\n200,0.1,3,4\n30,30,5,5\n0,30,6,8\n"))
    np.testing.assert_allclose(jobs, [[1.0, 0.01], [0.5, 0.2]])
    assert "2 jobs" in notes[-1]
    last = frames(preset_instance="trace", trace=upload(trace()), configurations=3, horizon=2000)[-1]
    assert last.data["horizon"] == 260
    assert any("260 jobs" in note for note in last.data["notes"])
    assert last.metrics["v_mix"] > last.metrics["v_fix"] - 1e-9  # type: ignore[operator]
    assert "trace.csv" in last.data["made_by"]["data"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time,speed,load\n1,2,3\n2,3,4\n", "lacks the columns plan_cpu, plan_mem, start_time, end_time"),
        ("plan_cpu,plan_mem,start_time\n1,2,3\n", "lacks the columns end_time"),
        ("plan_cpu,plan_mem,start_time,end_time\n1,x,3,4\n", "text"),
        ("plan_cpu,plan_mem,start_time,end_time\n1,2,4,3\n", "no job ends after its start"),
        ("plan_cpu,plan_mem,start_time,end_time\n1,2,3,4\n5,6,4,9\n", "only 2 jobs"),
        ("", "empty"),
    ],
)
def test_a_trace_that_does_not_serve_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as refused:
        frames(preset_instance="trace", trace=upload(text), configurations=3)
    assert refused.value.field == "trace"


def test_a_trace_must_be_given() -> None:
    with pytest.raises(InputError, match="no file"):
        frames(preset_instance="trace")


BAD = [
    ("budgets", [0.0, 0.2, 0.2, 0.2]),
    ("budgets", [float("nan")] * 4),
    ("budgets", [0.2]),
    ("configurations", 0),
    ("horizon", 2),
    ("alpha", -0.1),
    ("slack", 1.0),
    ("slack", -0.1),
    ("resolve_every", 0),
]


@pytest.mark.parametrize(("field", "value"), BAD, ids=str)
def test_params_out_of_range_are_refused_in_words(field: str, value: Any) -> None:
    with pytest.raises(InputError) as refused:
        validate(Params, {field: value})
    assert refused.value.field == field


# ---------------------------------------------------------------------------------------------------- the exercise


def half(frame: Frame, what: str) -> np.ndarray:
    from app.pages._sp_ucb_olp_learning import later_half as of_page

    return of_page(frame.data["solves"], np.asarray(frame.data["solves"][what]), int(frame.data["done"]))


def test_step_one_a_fixed_configuration_wastes_the_other_budget() -> None:
    last = preset("equal-budgets")
    assert last.metrics["v_fix"] == pytest.approx(0.219, abs=5e-4)
    assert last.metrics["v_fix"] / last.metrics["v_mix"] == pytest.approx(0.58, abs=0.005)  # type: ignore[operator]
    assert np.min(last.data["spending"]["fixed"]) == 0.0
    assert last.metrics["competitive_ratio"] == pytest.approx(0.92, abs=0.005)
    assert np.mean(last.data["seeds"]["ratio"]) == pytest.approx(0.95, abs=0.01)
    assert last.metrics["competitive_ratio"] > 1.3 * 0.58  # type: ignore[operator]


def test_step_two_mixture_prices_and_what_equal_weight_costs() -> None:
    duals, ties = preset("unequal-budgets"), preset("uniform-ties")
    np.testing.assert_allclose(half(duals, "w"), [0.2, 0.8], atol=0.03)
    assert (half(duals, "p") > 0.5).all()
    assert (half(duals, "p") < 0.58).all()
    share, rounds = np.asarray(ties.data["left"]["share"]), np.asarray(ties.data["left"]["round"])
    assert rounds[np.argmax(share[:, 0] < 0.005)] == pytest.approx(830, abs=15)
    assert duals.metrics["competitive_ratio"] == pytest.approx(0.94, abs=0.005)
    assert ties.metrics["competitive_ratio"] == pytest.approx(0.64, abs=0.005)
    assert np.mean(duals.data["seeds"]["ratio"]) == pytest.approx(0.96, abs=0.01)
    assert np.mean(ties.data["seeds"]["ratio"]) == pytest.approx(0.73, abs=0.01)


def test_step_three_no_exploration_a_little_and_too_much() -> None:
    none, little, much = (np.asarray(preset("exploration-off", alpha=a).data["seeds"]["ratio"]) for a in (0.0, 0.01, 1.0))
    assert (round(none.min(), 2), round(none.max(), 2)) == (0.75, 0.96)
    assert little.min() > 0.92
    assert little.max() < 0.97
    assert little.mean() == pytest.approx(0.94, abs=0.01)
    assert much.mean() == pytest.approx(0.89, abs=0.01)
