"""Oracles of attention-sink: the card's table for sequence A, closed forms, the one-token identity, interventions with their controls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from backends.attention_sink import dominance_ratio, effective_rank, isolate_mask, sink_score, trace
from backends.attention_sink.architecture import inspect
from backends.attention_sink.card import SEQUENCE_A
from backends.attention_sink.interventions import Change, Stretch, random_directions, random_neurons, scaling
from backends.attention_sink.locking import first_keys, locking
from backends.attention_sink.measures import nll, spread_over_samples, spread_over_width, theory
from backends.attention_sink.neurons import find_super_neurons
from backends.attention_sink.passages import passage_ids, random_ids
from backends.attention_sink.tracing import Run, Trace, Watch, forward
from backends.attention_sink.variance import sample_spread, spread_ids, value_centres
from backends.contract import InputError
from backends.runtime.language_model import Decoder
from tests.decoders import small

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
def before(decoder: Decoder) -> Trace:
    return trace(decoder.model, SEQUENCE_A, watch=(K,))


@pytest.fixture(scope="module")
def after(decoder: Decoder) -> Trace:
    return trace(decoder.model, SEQUENCE_A, isolate=[K])


@pytest.fixture(scope="module")
def qwen2() -> Any:
    return small("qwen2")


def apart(a: np.ndarray, b: np.ndarray) -> float:
    return float((np.linalg.norm(a - b, axis=-1) / np.linalg.norm(b, axis=-1)).max())


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


def test_three_sinks_share_the_attention(decoder: Decoder) -> None:
    found = trace(decoder.model, SEQUENCE_A, isolate=[K, 33])
    assert [found.sink_after(k, 33)[14] for k in (0, K, 33)] == pytest.approx([0.210, 0.211, 0.203], rel=TOLERANCE)


@pytest.mark.parametrize("position", [K, 33])
def test_isolated_token_equals_the_one_token_text(decoder: Decoder, position: int) -> None:
    """The test that the mask reaches the attention of every layer, whatever the position."""
    isolated = trace(decoder.model, SEQUENCE_A, isolate=[position])
    alone = trace(decoder.model, SEQUENCE_A[position : position + 1])
    assert apart(isolated.hidden(position), alone.hidden(0)) < 1e-5
    assert apart(trace(decoder.model, SEQUENCE_A, watch=[position]).hidden(position), alone.hidden(0)) > 0.1


def test_super_neurons_are_found(decoder: Decoder) -> None:
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


def test_queries_lock_on_the_first_key(decoder: Decoder, before: Trace) -> None:
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


@pytest.fixture(scope="module")
def centres(decoder: Decoder) -> dict[int, np.ndarray]:
    return value_centres(decoder.model, 2)


def test_centre_of_the_values(centres: dict[int, np.ndarray]) -> None:
    assert [c.shape for c in centres.values()] == [(576,), (576,)]
    assert [float(np.linalg.norm(c)) for c in centres.values()] == pytest.approx([0.794, 6.448], rel=TOLERANCE)
    heads = centres[0].reshape(9, 64)
    assert np.array_equal(heads[0], heads[2])  # three query heads share the values of one
    assert not np.array_equal(heads[2], heads[3])


def test_variance_makes_a_sink_and_neither_length_nor_another_direction_does(decoder: Decoder, centres: dict[int, np.ndarray]) -> None:
    texts = random_ids(49152, 8, 64)

    def score(change: Stretch) -> float:
        runs = [Run(Change(stretch=change), full=False)] * len(texts)
        return float(np.mean([t.sink_after(10, 10)[5] for t in forward(decoder.model, texts, runs, Watch((10,), 5))]))

    assert score(Stretch(10, 1, centres)) == pytest.approx(0.0049, rel=0.02)
    assert score(Stretch(10, 30, centres)) == pytest.approx(0.139, rel=TOLERANCE)
    assert score(scaling(10, 30, [0, 1], 576)) == pytest.approx(0.0023, rel=0.02)
    assert score(Stretch(10, 30, centres, random_directions([0, 1], 576, np.random.default_rng(0)))) < 0.02


def test_random_direction_adds_the_length_of_the_amplification() -> None:
    rng = np.random.default_rng(0)
    centres = {3: rng.standard_normal(16).astype(np.float32)}
    directions = random_directions([3], 16, rng)
    o = torch.tensor(rng.standard_normal(16), dtype=torch.float32)
    amplified, turned = (Stretch(0, 7.0, centres, d).of(3, o) - o for d in (None, directions))
    assert torch.allclose(amplified, 6 * (o - torch.tensor(centres[3])), atol=1e-5)
    assert float(turned.norm()) == pytest.approx(float(amplified.norm()), rel=1e-5)
    assert np.allclose(turned / turned.norm(), directions[3], atol=1e-5)


def test_spread_over_samples_falls_with_the_position(decoder: Decoder) -> None:
    """Version (b), against the plain hooks of the library on the same ids."""
    found = sample_spread(decoder.model, 1)
    kept: list[torch.Tensor] = []
    hook = decoder.model.model.layers[1].self_attn.o_proj.register_forward_pre_hook(lambda _, args: kept.append(args[0]))
    with torch.inference_mode():
        decoder.model.model(torch.as_tensor(spread_ids(49152)), use_cache=False)
    hook.remove()
    assert found == pytest.approx(kept[0].std(0, correction=0).mean(-1).numpy(), rel=1e-4)
    assert found.shape == (64,)
    assert (np.diff(found[[0, 1, 3, 7, 15, 31, 63]]) < 0).all()


def test_strength_one_changes_nothing(qwen2: Any) -> None:
    ids = np.arange(12) * 7 % 100
    identity = Stretch(4, 1.0, value_centres(qwen2, 2))
    plain, same = forward(qwen2, ids, [Run(), Run(Change(stretch=identity))], Watch((4,)))
    assert apart(same.hidden(4), plain.hidden(4)) < 1e-5


def test_ablation_ends_the_late_sink_and_random_neurons_do_not(decoder: Decoder) -> None:
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
