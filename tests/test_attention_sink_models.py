"""The trace on other architectures, shared by threads, and what it refuses."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

from backends.attention_sink import sink_score, trace
from backends.attention_sink.attention import MAP_SIDE
from backends.contract import InputError
from tests.decoders import small


@pytest.fixture(scope="module")
def qwen2() -> Any:
    return small("qwen2")


def apart(a: np.ndarray, b: np.ndarray) -> float:
    return float((np.linalg.norm(a - b, axis=-1) / np.linalg.norm(b, axis=-1)).max())


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
