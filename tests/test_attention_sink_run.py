"""Runs of attention-sink: metrics, frames, sweep, and params that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from backends import attention_sink, registry
from backends.attention_sink import trace
from backends.attention_sink.card import SEQUENCE_A, Params
from backends.attention_sink.passages import passage_ids
from backends.attention_sink.tracing import Run, Trace, Watch, forward
from backends.contract import InputError, Stopped
from backends.runtime import language_model
from backends.runtime.texts import passages
from backends.validation import validate
from tests.contract.running import cheap, fresh_memo, run
from tests.decoders import small

TOLERANCE = 0.01  # of the card's table, which another program computed
K = 9
METHOD = registry.get("attention-sink")


@pytest.fixture(scope="module")
def before(decoder: language_model.Decoder) -> Trace:
    return trace(decoder.model, SEQUENCE_A, watch=(K,))


@pytest.fixture(scope="module")
def after(decoder: language_model.Decoder) -> Trace:
    return trace(decoder.model, SEQUENCE_A, isolate=[K])


@pytest.fixture(scope="module")
def qwen2() -> Any:
    return small("qwen2")


@pytest.mark.parametrize(
    ("values", "field", "word"),
    [
        ({"text": "  \n "}, "text", "empty"),
        ({"text": "two words", "target": 1}, "target", "2 tokens"),
        ({"target": 0}, "target", "already isolated"),
        ({"target": 63}, "target", "64 tokens"),
        ({"token_ids": [1, 2, 49152], "target": 1}, "token_ids", "49152"),
        ({"also_isolate": [64]}, "also_isolate", "position 64"),
        ({"token_ids": [5, 6, 7, 8, 9], "target": 2, "also_isolate": [1, 3]}, "also_isolate", "half"),
    ],
)
def test_run_refuses_in_words(decoder: language_model.Decoder, values: dict[str, Any], field: str, word: str) -> None:
    with pytest.raises(InputError, match=word) as caught:
        run(METHOD, validate(Params, values))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "value"), [("strength", -1), ("strength", float("inf")), ("target", -1), ("amplify_layers", [1, 2]), ("also_isolate", [1, 2, 3, 4])]
)
def test_params_refuse_in_words(field: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        validate(Params, {field: value})
    assert caught.value.field == field


def test_fewer_positions_may_be_isolated_too() -> None:
    assert validate(Params, {"also_isolate": [33]}).also_isolate == [33, 0, 0]
    assert validate(Params, {"also_isolate": [33, 21]}).also_isolate == [33, 21, 0]


def test_layers_may_be_given_as_papers_write_them() -> None:
    assert validate(Params, {"amplify_layers": [0, 1, 2]}).amplify_layers == 3


@pytest.fixture(scope="module")
def table_run(decoder: language_model.Decoder) -> Any:
    with fresh_memo():  # another test may have run this preset: its layers would not fill in one by one again
        return run(METHOD, validate(Params, METHOD.card.preset("sequence-a").params), limit_s=110)


def test_run_gives_the_table(table_run: Any, before: Trace, after: Trace) -> None:
    metrics = table_run.last.metrics
    assert metrics["sink_first"] == pytest.approx(before.sink_after(0, K)[20], rel=1e-4)
    assert metrics["sink_target_after"] == pytest.approx(0.298, rel=TOLERANCE)
    assert metrics["norm_target_after"] == pytest.approx(26270, rel=TOLERANCE)
    assert (metrics["super_neuron_layer"], metrics["super_neuron_1"], metrics["super_neuron_2"]) == (11, 1229, 1487)
    assert metrics["onset_layer"] == np.flatnonzero(before.sink_after(0, K) > 0.3)[0]
    assert metrics["oracle_error"] < 1e-5
    assert before.nll is not None
    assert after.nll is not None
    assert metrics["nll_before"] == pytest.approx(before.nll.mean(), rel=1e-4)
    assert metrics["nll_after"] == pytest.approx(after.nll.mean(), rel=1e-4)


def test_frames_fill_in_layer_by_layer_with_controls_beside(table_run: Any) -> None:
    done = [len(f.data["layers"]) for f in table_run.frames if "layers" in f.data]
    assert done == sorted(done)
    assert len(set(done)) > 5
    assert done[-1] == 30
    last = table_run.last.data
    assert last["map"]["before"].shape == last["map"]["after"].shape == (64, 64)
    assert last["sink"]["target_norm_only"][3:].max() < 0.05, "scaling made a sink"
    assert last["sink"]["first_random_neurons"] == pytest.approx(last["sink"]["first_before"], abs=0.02)
    early = last["variance_early"]
    assert early["layer"] == 1
    assert early["width_after"][K] > 1.3 * early["width_before"][K]


def test_cut_text_says_so(decoder: language_model.Decoder) -> None:
    from backends.attention_sink.tokens import read_tokens

    found = read_tokens(validate(Params, {"token_ids": [7] * 2100}), decoder.tokenizer, 49152, 8192)
    assert (len(found.ids), found.notes) == (2000, ("the text has 2,100 tokens; the first 2,000 are used",))
    assert len(read_tokens(Params(), decoder.tokenizer, 49152, 16).ids) == 16


def test_default_text_has_64_tokens(decoder: language_model.Decoder) -> None:
    assert len(decoder.tokenizer(Params().text, add_special_tokens=False)["input_ids"]) == 64


def test_passages_are_twenty_and_long_enough(decoder: language_model.Decoder) -> None:
    assert len({p.text for p in passages()}) == 20
    assert passage_ids(decoder.tokenizer, 20, 112).shape == (20, 112)


def test_stop_in_the_middle_of_a_pass(qwen2: Any) -> None:
    calls: Iterator[int] = iter(range(100))

    def check() -> None:
        if next(calls) == 6:
            raise Stopped

    with pytest.raises(Stopped):
        forward(qwen2, np.arange(9), [Run()], Watch(check=check))


def test_sweep_raises_the_mean_and_the_control_stays(decoder: language_model.Decoder) -> None:
    values = {
        **METHOD.card.preset("amplify").params,
        "text": "The quick brown fox jumps over the lazy dog and then it runs away",
        "target": 4,
        "controls": "off",
    }
    last = run(METHOD, validate(Params, values), limit_s=110).last.data["sweep"]
    assert last["variance_dots"].shape == last["random_direction_dots"].shape == (len(last["strength"]), 8)
    assert last["variance_mean"][-1] > 3 * last["variance_mean"][0]
    assert last["norm_only_mean"].max() < 2 * last["norm_only_mean"][0]
    assert last["random_direction_mean"].max() < 2 * last["random_direction_mean"][0]


def test_sweep_on_meaningless_ids_rises_ten_times(decoder: language_model.Decoder) -> None:
    values = {**METHOD.card.preset("amplify").params, "sweep_texts": "random-ids", "controls": "off"}
    last = run(METHOD, validate(Params, values), limit_s=110).last.data["sweep"]
    assert last["variance_mean"][-1] > 10 * last["variance_mean"][0]
    assert last["norm_only_mean"].max() <= last["norm_only_mean"][0]


def test_nothing_changed_means_no_after(decoder: language_model.Decoder) -> None:
    last = run(METHOD, cheap(METHOD, intervention="none")).last
    assert last.metrics["sink_target_after"] is None
    assert "nothing was changed" in last.message
    assert "after" not in last.data["map"]


def test_layer_and_head_beyond_the_model_are_its_last_ones(decoder: language_model.Decoder) -> None:
    last = run(METHOD, cheap(METHOD, layer=99, head=99)).last
    assert (last.data["layer"], last.data["head"]) == (29, 8)
    assert "its last one, 29, is read" in last.message
    assert dict(last.metrics) == dict(run(METHOD, cheap(METHOD, layer=29, head=8)).last.metrics) | {"seconds": last.metrics["seconds"]}


def test_public_names() -> None:
    assert set(attention_sink.__all__) >= {"HeadwiseRMSNorm", "isolate_mask", "sink_score", "dominance_ratio", "effective_rank", "trace"}
    assert all(callable(getattr(attention_sink, name)) for name in attention_sink.__all__)
    with pytest.raises(AttributeError):
        _ = attention_sink.nothing
