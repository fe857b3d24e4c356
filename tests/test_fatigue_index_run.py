"""Runs of fatigue-index on the bundled model: the card's figures, the exercise's answers, params that are refused."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from backends import registry
from backends.contract import InputError
from backends.fatigue_index import calibration, fatigue_index, hysteresis, smooth
from backends.fatigue_index.card import Params
from backends.fatigue_index.generation import Plan, Slice, generate
from backends.fatigue_index.prompts import STUDY, encode
from backends.runtime import language_model
from backends.runtime.texts import passages
from backends.validation import validate
from tests.contract.running import Result, data_keys, exact, fresh_memo, run

METHOD = registry.get("fatigue-index")
LIMIT_S = 300.0  # on a busy machine
PATH_DEPENDENT = 0.1  # the card's tolerance of what depends on the drawn text

pytestmark = pytest.mark.usefixtures("decoder")


@cache
def ran(preset: str = "tea", **changes: Any) -> Result:
    params = validate(Params, {**METHOD.card.preset(preset).params, **changes})
    return run(METHOD, params, limit_s=LIMIT_S)


def signal(result: Result, name: str) -> np.ndarray:
    return np.asarray(result.last.data["signals"][name])


# ------------------------------------------------------------------------------------------------- the card's figures


def test_the_first_step_is_the_cards() -> None:
    """Step 0 is deterministic: all attention on the prompt, a third of it on token 0, no drift."""
    found = ran()
    assert len(found.last.data["prompt"]["text"]) == 52
    assert signal(found, "attention")[0] == pytest.approx(1, abs=1e-6)
    assert signal(found, "attention_first")[0] == pytest.approx(0.32, abs=0.01)
    assert signal(found, "entropy")[0] == pytest.approx(3.77, abs=0.03)
    assert signal(found, "drift")[0] == 0
    assert found.last.data["index"]["fi"][0] == pytest.approx(0.003, abs=0.003)


@pytest.mark.parametrize(("stretch", "fi", "e"), [((1, 10), 0.55, 1.9), ((10, 30), 0.61, 1.6), ((30, 60), 0.67, 1.5), ((60, 100), 0.66, 1.6)])
def test_the_greedy_text_is_the_cards(stretch: tuple[int, int], fi: float, e: float) -> None:
    found = ran("greedy")
    part = slice(*stretch)
    assert np.mean(found.last.data["index"]["fi"][part]) == pytest.approx(fi, abs=PATH_DEPENDENT)
    assert signal(found, "entropy")[part].mean() == pytest.approx(e, abs=PATH_DEPENDENT)
    assert (signal(found, "entropy") <= np.log(49152)).all()


@pytest.mark.parametrize(("stretch", "first"), [((1, 10), 0.44), ((10, 30), 0.36), ((30, 60), 0.35), ((60, 100), 0.30)])
def test_the_sink_takes_a_third_of_the_attention(stretch: tuple[int, int], first: float) -> None:
    assert signal(ran(), "attention_first")[slice(*stretch)].mean() == pytest.approx(first, abs=PATH_DEPENDENT)


def test_the_frames_index_is_the_public_functions() -> None:
    found = ran().last
    signals, index = found.data["signals"], found.data["index"]
    fi = fatigue_index(signals["attention"], signals["entropy"], signals["drift"])
    assert index["fi"] == pytest.approx(fi, abs=1e-12)
    assert np.sum(index["parts"], axis=0) == pytest.approx(fi, abs=1e-12)
    assert (index["alarm"] == hysteresis(smooth(fi, 5), 0.5, 0.4)).all()
    assert found.metrics["fi_mean"] == pytest.approx(fi.mean(), abs=1e-12)
    assert found.metrics["fi_last"] == pytest.approx(fi[-1], abs=1e-12)


def test_the_index_with_a_cache_is_that_by_full_recomputation(decoder: language_model.Decoder) -> None:
    prompt = encode(decoder, "Count to ten")
    *_, (trace,) = generate(decoder, [prompt.ids], Plan(max_new=4))
    anchor = torch.zeros(0)
    with torch.inference_mode():
        for step in range(4):
            ids = torch.tensor([[*trace.prompt, *trace.ids[:step]]])
            seen = decoder.model(ids, output_attentions=True, output_hidden_states=True)
            a = float(seen.attentions[-1][0, :, -1, : min(64, len(prompt.ids))].double().sum(-1).mean())
            assert trace.attention(Slice())[step] == pytest.approx(a, abs=1e-4)
            state = seen.hidden_states[-1][0, -1].double()
            anchor = state if step == 0 else anchor
            assert trace.after[step] == pytest.approx(float((state - anchor).norm()), abs=5e-3)  # 1e-4 of the index


def test_text_grows_token_by_token() -> None:
    with fresh_memo():  # a text that another test of this process wrote would be there at once
        found = run(METHOD, validate(Params, {"max_new": 60}), limit_s=LIMIT_S)
    counts = [len(f.data["tokens"]) for f in found.frames if "tokens" in f.data]
    assert counts == sorted(counts)
    assert counts[0] == 1, "the first token is shown as soon as it is there"
    assert len(set(counts)) > 10
    for frame in found.frames:
        if "tokens" in frame.data:
            assert len(frame.data["signals"]["entropy"]) == len(frame.data["tokens"]) == frame.metrics["tokens"]


# ------------------------------------------------------------------------------------------------------- the exercise


def test_sharp_draws_raise_entropys_part_and_the_repetition() -> None:
    before, after = (np.mean(ran(name).last.data["index"]["parts"], axis=1) for name in ("tea", "sharp"))
    assert before[1] == pytest.approx(0.14, abs=0.02)
    assert after[1] == pytest.approx(0.20, abs=0.02)
    assert ran().last.metrics["repetition_ratio"] == pytest.approx(0, abs=0.02)
    assert ran("sharp").last.metrics["repetition_ratio"] == pytest.approx(0.08, abs=0.04)


def test_without_token_0_a_quarter_of_the_attention_is_left() -> None:
    assert signal(ran(), "attention").mean() == pytest.approx(0.46, abs=0.02)
    assert signal(ran("without-sink"), "attention").mean() == pytest.approx(0.11, abs=0.02)
    assert ran("without-sink").last.data["tokens"] == ran().last.data["tokens"]


def test_without_a_dead_band_the_alarm_flickers_on_the_same_index() -> None:
    assert ran("no-dead-band").last.metrics["flips_hysteresis"] == ran().last.metrics["flips_threshold"] == 5
    assert ran().last.metrics["flips_hysteresis"] == 1
    assert ran("no-dead-band").last.metrics["fi_mean"] == ran().last.metrics["fi_mean"]


def test_a_small_model_has_no_healthy_band() -> None:
    """The failing preset: nearly all tokens lie below the paper's band, and the alarm is on while the text is still fine."""
    found = ran("greedy").last
    assert (np.asarray(found.data["signals"]["entropy"]) < 3.8).mean() > 0.85
    assert np.flatnonzero(found.data["index"]["alarm"])[0] < 10
    assert found.data["signals"]["repetition"][30] == 0


# ------------------------------------------------------------------------------------------- ways to count, treatments


def test_constants_and_token_0_stand_side_by_side() -> None:
    compared = ran().last.data["compared"]
    assert set(compared) == {"paper", "paper_rest", "calibrated", "calibrated_rest"}
    assert compared["paper"]["mean"] == ran().last.metrics["fi_mean"]
    assert compared["paper_rest"]["mean"] == ran("without-sink").last.metrics["fi_mean"]
    assert compared["calibrated"]["mean"] < compared["paper"]["mean"]


def test_live_controls_take_the_stored_text() -> None:
    ran()
    for field, value in (("prefix", 8), ("drop_first", True), ("smoothing", 1), ("theta", 0.6), ("theta_low", 0.2)):
        params = validate(Params, {field: value})
        live = run(METHOD, params, live=field)
        assert len(live.frames) == 1
        assert live.last.data["tokens"] == ran().last.data["tokens"]
        assert exact(METHOD, live.last) == exact(METHOD, run(METHOD, params).last)


def test_other_ways_to_count_take_it_too() -> None:
    """A run with other constants reads the stored text: its speed is that of the first writing."""
    first = ran().last
    for field, value in (("weights", [0, 1, 0]), ("slice", "instruction"), ("state", "before"), ("kappa", 80), ("entropy_low", 2)):
        again = run(METHOD, validate(Params, {field: value})).last
        assert again.data["tokens"] == first.data["tokens"]
        assert again.metrics["tokens_per_second"] == first.metrics["tokens_per_second"]
        assert again.metrics["fi_mean"] != first.metrics["fi_mean"]


def test_weights_are_divided_by_their_sum_and_that_is_said() -> None:
    found = run(METHOD, validate(Params, {"weights": [0.8, 0.7, 0.5]})).last
    assert "sum to 2" in found.message
    assert found.metrics["fi_mean"] == pytest.approx(ran().last.metrics["fi_mean"], abs=1e-12)


def test_treatments_act_and_say_so() -> None:
    """SCA sees attention without the sink; a text shorter than its tail is read anew and stays the same."""
    short = {"prompt": "Count to ten", "max_new": 60, "decoding": "greedy"}
    par = ran(treatment="par", **short).last
    assert par.data["acted"] == [[50, 0]]
    assert any("companion paper" in note and "after token 50" in note for note in par.data["notes"])
    assert par.data["tokens"] == ran(**short).last.data["tokens"]
    pause = ran(treatment="pause", **short).last
    assert pause.data["acted"] == [[50, -pause.data["inserted"]]]
    assert pause.data["tokens"][:50] == par.data["tokens"][:50]


def test_the_calibration_is_measured_on_the_model(decoder: language_model.Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drift scale again as it is shipped; the band from two passages, so that this takes seconds."""
    shipped = calibration.shipped()[language_model.DEFAULT]
    monkeypatch.setattr(calibration, "passages", lambda: passages()[:2])
    found = calibration.calibrate(decoder)
    assert found.kappa_after == pytest.approx(shipped.kappa_after, rel=1e-3)
    assert found.kappa_before == pytest.approx(shipped.kappa_before, rel=1e-3)
    assert found.low == pytest.approx(shipped.low, abs=0.5)
    assert found.high == pytest.approx(shipped.high, abs=0.5)


@pytest.mark.slow
def test_the_shipped_band_is_that_of_twenty_passages(decoder: language_model.Decoder) -> None:
    shipped, found = calibration.shipped()[language_model.DEFAULT], calibration.calibrate(decoder)
    assert (found.low, found.median, found.high) == pytest.approx((shipped.low, shipped.median, shipped.high), abs=1e-3)


def test_the_study_compares_twenty_texts_with_their_peers() -> None:
    with fresh_memo():
        found = ran(study=True, max_new=20).last
    study = found.data["study"]
    assert len(study["fi"]) == len(study["repetition"]) == len(STUDY) == 20
    assert [row[0] for row in study["scores"]][:4] == ["Fatigue Index", "attention alone", "entropy alone", "drift alone"]
    rho, low, high = study["scores"][0][1:4]
    assert rho is None or low <= rho <= high
    assert found.metrics["fi_mean"] == pytest.approx(np.mean(study["fi"]), abs=1e-12)
    assert found.metrics["tokens"] == sum(study["tokens"])


# ---------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("values", "field", "word"),
    [
        ({"prompt": "  \n "}, "prompt", "empty"),
        ({"theta": 0.4, "theta_low": 0.5}, "theta_low", "above where it goes on"),
        ({"entropy_low": 5.0}, "entropy_low", "band"),
        ({"weights": [0, 0, 0]}, "weights", "all three"),
        ({"treatment": "erd", "decoding": "greedy"}, "treatment", "temperature"),
        ({"treatment": "par", "study": True}, "treatment", "untreated"),
        ({"model": "bundled:no-such-model"}, "model", "no-such-model"),
    ],
)
def test_run_refuses_in_words(values: dict[str, Any], field: str, word: str) -> None:
    with pytest.raises(InputError, match=word) as caught:
        run(METHOD, validate(Params, values))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "value"), [("prefix", 0), ("kappa", 0), ("beta", 0), ("entropy_low", 0), ("weights", [1.1, -0.1, 0]), ("weights", [1, 0]), ("smoothing", 0)]
)
def test_params_refuse_in_words(field: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        validate(Params, {field: value})
    assert caught.value.field == field


def test_a_prompt_beyond_the_context_is_refused(decoder: language_model.Decoder) -> None:
    with pytest.raises(InputError, match="8,192") as caught:
        next(iter(generate(decoder, [[5] * 8100], Plan(max_new=100))))
    assert caught.value.field == "prompt"


def test_equal_runs_are_equal_after_a_fresh_start() -> None:
    values = {"prompt": "Count to ten", "max_new": 20}
    first = ran(**values).last
    with fresh_memo():
        again = run(METHOD, validate(Params, values), limit_s=LIMIT_S).last
    assert exact(METHOD, again) == exact(METHOD, first)
    assert data_keys(again)["tokens"] == data_keys(first)["tokens"]
