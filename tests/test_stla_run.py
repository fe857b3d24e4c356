"""Whole runs of stla: frames, refusals, blocks of the model left as they were, texts, and the answers of the exercise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from backends.contract import ContextSpec, Frame, InputError
from backends.runtime.context import RunContext
from backends.runtime.language_model import Decoder
from backends.stla import blocks, gptq, stla, whole_model, windows
from backends.stla.card import CARD, Params
from backends.stla.inputs import moments_of
from backends.stla.method import run
from backends.stla.rounding import Learning
from backends.stla.sweep import Quantised
from backends.validation import validate

METRICS = [
    "loss_rtn",
    "loss_adaround",
    "loss_gptq",
    "loss_gptq_act",
    "loss_stla",
    "loss_stla_local",
    "telescoping_error",
    "perplexity_full",
    "perplexity_stla",
    "seconds",
]
PARAMS = [
    "seed",
    "layer",
    "matrix",
    "bits",
    "cluster",
    "group",
    "order",
    "objective",
    "iterations",
    "learning_rate",
    "regulariser",
    "damping",
    "calibration_tokens",
    "mode",
    "asymmetric_correction",
    "by_hand",
]


def frames(live: str | None = None, **values: Any) -> list[Frame]:
    params = validate(Params, {**CARD.cheap, **values})
    return list(run(params, RunContext(ContextSpec(seed=params.seed), live=live)))


@pytest.fixture(scope="module")
def ids(decoder: Decoder) -> torch.Tensor:
    return windows.calibration(decoder.tokenizer, 256, np.random.default_rng(0))


@pytest.fixture(scope="module")
def seen(decoder: Decoder) -> list[Frame]:
    return frames()


def test_names_are_the_agreed_ones() -> None:
    assert list(CARD.metrics) == METRICS
    assert set(Params.model_fields) == set(PARAMS)


def test_a_matrix_fills_cluster_by_cluster(seen: list[Frame]) -> None:
    progress = [frame.progress for frame in seen]
    assert progress == sorted(progress)
    assert progress[-1] == 1
    done = [int(frame.data["heat"]["done"]) for frame in seen if "heat" in frame.data]
    assert done[-1] == 576
    assert done == sorted(done)
    last = seen[-1]
    assert np.abs(np.asarray(last.data["heat"]["error"])).max() > 10
    assert set(last.data["losses"]) == {"rtn", "adaround", "gptq", "gptq-act", "decoupled", "stla", "stla-local"}
    assert set(last.data["bits"]) == {"2", "3", "4"}
    assert {"made_by", "example", "orders", "learning", "cumulative", "judged"} <= set(last.data)


def test_the_bars_add_up_to_the_measured_loss(seen: list[Frame]) -> None:
    last = seen[-1]
    found = last.data["cumulative"]
    np.testing.assert_allclose(found["predicted"], found["measured"], rtol=1e-9)
    assert found["measured"][-1] == pytest.approx(last.metrics["loss_stla"], rel=1e-9)
    assert last.metrics["telescoping_error"] < 1e-9
    assert np.sum(last.data["clusters"]["remaining"]) == pytest.approx(last.metrics["loss_stla"], rel=1e-9)


def test_a_live_run_is_one_frame_and_equals_the_full_one(seen: list[Frame]) -> None:
    live = frames(live="by_hand", by_hand="1-0")
    assert len(live) == 1
    exact = [{k: v for k, v in f.metrics.items() if k != "seconds"} for f in (live[0], seen[-1])]
    assert exact[0] == exact[1]
    assert live[0].data["example"]["chosen"] == "1-0"


def test_more_bits_lose_less_and_objectives_differ(seen: list[Frame]) -> None:
    losses = seen[-1].data["bits"]
    for method in ("rtn", "gptq-act", "stla"):
        assert losses["2"][method] > losses["3"][method] > losses["4"][method]
    local = frames(objective="local")[-1]
    assert local.metrics["loss_stla_local"] == seen[-1].metrics["loss_stla_local"]
    assert np.sum(local.data["clusters"]["remaining"]) == pytest.approx(local.metrics["loss_stla_local"], rel=1e-9)


REFUSED = [
    ({"group": 100}, "group", "does not divide the 576"),
    ({"cluster": 577}, "cluster", "576 columns"),
    ({"cluster": 64, "group": 96}, "cluster", "do not fit"),
    ({"damping": 0.0, "matrix": "v"}, "damping", "cannot span"),
    ({"mode": "block", "group": 288}, "group", "1536 columns of down"),
    ({"bits": 1}, "bits", "1"),
    ({"bits": 9}, "bits", "9"),
    ({"matrix": "lm_head"}, "matrix", "lm_head"),
    ({"calibration_tokens": 100}, "calibration_tokens", "100"),
]


@pytest.mark.parametrize(("values", "field", "words"), REFUSED, ids=[str(v) for v, *_ in REFUSED])
def test_what_cannot_be_run_is_refused(decoder: Decoder, values: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as refused:
        frames(**values)
    assert refused.value.field == field


def test_what_is_no_model_for_it_is_refused(decoder: Decoder) -> None:
    with pytest.raises(InputError, match="no blocks"):
        blocks.layers_of(torch.nn.Linear(2, 2))
    odd = SimpleNamespace(model=SimpleNamespace(layers=[SimpleNamespace(self_attn=SimpleNamespace(q_proj=torch.nn.Identity()))]))
    with pytest.raises(InputError, match="is no nn"):
        blocks.layers_of(odd)
    with pytest.raises(InputError, match="output head shares"):
        blocks.linear_of(blocks.layers_of(decoder.model)[0], "lm_head")


def test_moments_are_those_of_the_inputs(decoder: Decoder, ids: torch.Tensor) -> None:
    found = moments_of(decoder.model, ids, 0, "v", lambda: None)
    with torch.inference_mode():
        x = blocks.layers_of(decoder.model)[0].input_layernorm(decoder.model.model.embed_tokens(ids)).flatten(0, 1).double()
    np.testing.assert_allclose(found.second.numpy(), (2 / len(x) * x.T @ x).numpy(), rtol=1e-3, atol=1e-5)
    assert found.drift is None
    assert found.tokens == 256


def test_texts_are_two_and_an_overlap_is_seen(decoder: Decoder) -> None:
    calibrated, judged = windows.calibration(decoder.tokenizer, 4096, np.random.default_rng(1)), windows.evaluation(decoder.tokenizer)
    assert calibrated.shape == (16, 256)
    assert judged.numel() == 1024
    assert not windows.overlap(calibrated, judged)
    assert windows.overlap(calibrated, calibrated[:1])
    with pytest.raises(InputError, match="choose at most"):
        windows.calibration(decoder.tokenizer, 99_840, np.random.default_rng(1))


def test_the_shipped_table_is_whole() -> None:
    found = whole_model.table()
    assert found is not None
    assert {"model", "calibration", "evaluation", "setting", "rows"} <= set(found)
    rows = {row["method"]: row for row in found["rows"]}
    assert {"full", "stla"} <= set(rows)
    assert rows["full"]["perplexity"] == pytest.approx(18.96, abs=0.05)
    assert all(row["perplexity"] >= rows["full"]["perplexity"] and row["date"] for row in rows.values())


def test_answers_of_the_exercise(decoder: Decoder) -> None:
    """On the layer of the default preset, by the functions that its run calls."""
    default = Params()
    ids = windows.calibration(decoder.tokenizer, default.calibration_tokens, RunContext(ContextSpec(seed=default.seed)).rng)
    found = moments_of(decoder.model, ids, default.layer, default.matrix, lambda: None)
    weights = blocks.weight_of(blocks.layers_of(decoder.model)[default.layer], default.matrix)
    learning = Learning(dtype=torch.float32)

    def swept(**values: Any) -> Quantised:
        return stla(weights, found.second, learning=learning, **values)

    ahead, local = swept(), swept(objective="local")
    assert [local.loss, ahead.loss] == pytest.approx([3.42, 1.73], rel=0.02)
    assert [sum(c.local for c in q.clusters) for q in (local, ahead)] == pytest.approx([5.5, 8.4], rel=0.02)
    assert [swept(cluster=576).loss, swept(cluster=16).loss] == pytest.approx([3.23, 1.74], rel=0.02)
    assert ahead.loss < gptq(weights, found.second).loss, "STLA loses less than GPTQ"
    unpushed = stla(weights, found.second, learning=Learning(regulariser=0.0, dtype=torch.float32))
    plain = swept(objective="nearest")
    assert unpushed.loss > 0.98 * plain.loss, "without a push it is no better than nearest rounding of the compensated weights"
    assert ahead.loss < 0.95 * plain.loss
