"""Runs of auxiliary-mcmc: what they measure, what bad input they refuse, what the exercise answers."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from backends.contract import ContextSpec, Frame, InputError, Upload
from backends.registry import get
from backends.runtime.context import RunContext
from backends.validation import validate

METHOD = get("auxiliary-mcmc")
CHEAP = dict(METHOD.card.cheap)


def frames(values: dict[str, Any]) -> list[Frame]:
    params = validate(METHOD.Params, values)
    return list(METHOD.run(params, RunContext(ContextSpec(seed=params.seed))))


@cache
def preset(name: str) -> Frame:
    return frames(dict(METHOD.card.preset(name).params))[-1]


def rates(frame: Frame) -> dict[str, float]:
    """Effective draws a second of the slowest coordinate, by sampler."""
    return {row["name"]: row["ess"]["second"][0] for row in frame.data["race"] if "ess" in row}


def table(rows: int, *, outcomes: bool = False, constant: bool = False, separable: bool = False) -> Upload:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 2))
    score = x @ [1.0, -0.5] + (0 if separable else rng.normal(size=rows))
    y = (score > 0).astype(int) if outcomes else score
    lines = [f"{a:.5f},{3 if constant else f'{b:.5f}'},{c}" for (a, b), c in zip(x, y, strict=True)]
    return Upload.of("rows.csv", ("speed,load,cost\n" + "\n".join(lines) + "\n").encode())


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"scene": "logistic", "sampler": "poisson-mala"}, "sampler", "bounded support"),
    ({"sampler": "exchange"}, "sampler", "exact draws"),
    ({"scene": "ising", "sampler": "tuna-mh"}, "sampler", "no rows"),
    ({"kappa": 0.0}, "kappa", "0"),
    ({"chi": 0.0}, "chi", "0"),
    ({"scene": "csv", "csv": table(60), "batch": 100}, "batch", "60"),
    ({"scene": "csv", "csv": table(60, constant=True)}, "csv", "never changes"),
    ({"scene": "csv", "csv": table(60, outcomes=True, separable=True), "batch": 20}, "csv", "separates"),
    ({"scene": "csv"}, "csv", "no file"),
    ({"kappa": 1.0, "budget": 10_000}, "budget", "million rows"),
    ({"budget": 500_000}, "budget", "steps"),
    ({"budget_by": "seconds", "budget": 3600}, "budget", "seconds"),
]


@pytest.mark.parametrize(("changed", "field", "words"), BAD, ids=lambda v: str(v)[:40])
def test_bad_input_is_refused_in_words(changed: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        frames({**CHEAP, **changed})
    assert caught.value.field == field
    assert words in str(caught.value)


def test_a_small_table_is_told_that_a_minibatch_saves_nothing() -> None:
    last = frames({**CHEAP, "scene": "csv", "csv": table(200), "batch": 20})[-1]
    assert any("saves nothing" in note for note in last.data["notes"])
    assert last.data["reference"]["names"] == ["speed", "load", "constant"]
    assert last.metrics["posterior_mean_error_sd"] < 1


def test_a_table_with_two_outcomes_is_logistic() -> None:
    last = frames({**CHEAP, "scene": "csv", "csv": table(400, outcomes=True), "batch": 20})[-1]
    assert last.data["light"] == "tuna-sgld"
    assert last.metrics["speedup_over_poissonmh"] is None
    assert "poissonmh" in last.message


def test_budgets_by_touches_and_seconds_are_kept() -> None:
    touched = frames({**CHEAP, "budget_by": "touches", "budget": 100_000})[-1]
    own = next(row for row in touched.data["race"] if row["name"] == "poisson-mala")
    assert 100_000 <= own["touches"] < 100_000 + 17 * 1000
    timed = frames({**CHEAP, "budget_by": "seconds", "budget": 1})[-1]
    own = next(row for row in timed.data["race"] if row["name"] == "poisson-mala")
    assert 1.0 <= own["seconds"] < 2.0
    assert not METHOD.card.deterministic(validate(METHOD.Params, {"budget_by": "seconds"}))  # type: ignore[operator]


def test_a_step_by_hand_is_used_by_the_sampler_in_the_light_and_by_sgld() -> None:
    last = frames({**CHEAP, "step": 0.2})[-1]
    steps = {row["name"]: row["step"] for row in last.data["race"]}
    assert (steps["poisson-mala"], steps["sgld"]) == (0.2, 0.2)
    assert steps["poisson-mh"] != 0.2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_first_answer_the_batch_grows_and_the_rate_falls() -> None:
    small, large = preset("two-coordinates"), preset("large-batch")
    assert small.metrics["mean_batch"] == pytest.approx(311, rel=0.02)
    assert large.metrics["mean_batch"] == pytest.approx(6461, rel=0.02)
    assert small.metrics["ess_per_million_touches"] > 2 * large.metrics["ess_per_million_touches"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_second_answer_gradients_win_and_lose_more_by_long_steps() -> None:
    often, seldom = rates(preset("regression")), rates(preset("quarter"))
    for name in ("poisson-barker", "poisson-mala"):
        assert often[name] > 3 * often["poisson-mh"]
        assert seldom[name] > 1.5 * seldom["poisson-mh"]
        assert seldom[name] / often[name] < seldom["poisson-mh"] / often["poisson-mh"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_third_answer_sgld_settles_elsewhere_and_tuna_rejects() -> None:
    gentle, astray = preset("gentle"), preset("sgld-trap")
    assert gentle.metrics["sgld_sd_ratio"] == pytest.approx(1.19, abs=0.06)
    assert astray.metrics["sgld_sd_ratio"] == pytest.approx(3.2, abs=0.7)
    assert (gentle.metrics["acceptance"], astray.metrics["acceptance"]) == pytest.approx((0.38, 0.04), abs=0.02)
    assert astray.data["curves"]["sgld"]["error"][-1] > 3 * astray.data["curves"]["tuna-sgld"]["error"][-1]


def test_without_tempering_a_step_reads_more_rows_than_there_are() -> None:
    last = preset("no-tempering")
    assert last.metrics["mean_batch"] > 10 * 1000
    assert any("reading all of them is cheaper" in note for note in last.data["notes"])
    assert last.metrics["speedup_over_full_mala"] < 0.5
