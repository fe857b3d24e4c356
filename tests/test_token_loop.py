"""The quick token loop beside the library's own forward pass: equal logits, equal inner states, whatever the shape of the decoder."""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Any

import pytest
import torch

from backends.runtime import token_loop
from tests.decoders import small

LLAMA3 = {"rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SHAPES: dict[str, dict[str, Any]] = {
    "llama, one key a head": {"kind": "llama", "num_key_value_heads": 4},
    "llama, tied, grouped": {"kind": "llama", "num_key_value_heads": 2, "tie_word_embeddings": True},
    "llama, one key for all": {"kind": "llama", "num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True},
    "llama, wide heads, llama3 angles": {"kind": "llama", "head_dim": 16, "rope_parameters": {**LLAMA3, "original_max_position_embeddings": 16}},
    "qwen2, biases": {"kind": "qwen2", "num_key_value_heads": 2},
    "qwen2, tied": {"kind": "qwen2", "num_key_value_heads": 1, "tie_word_embeddings": True},
    "mistral": {"kind": "mistral", "num_key_value_heads": 2, "sliding_window": None},
}
OTHERS: dict[str, dict[str, Any]] = {
    "qwen2, sliding window": {"kind": "qwen2", "num_key_value_heads": 2, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0},
    "mistral, sliding window": {"kind": "mistral", "num_key_value_heads": 2, "sliding_window": 4},
    "gpt_neox": {"kind": "gpt_neox"},
    "llama, angles that change": {"kind": "llama", "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}},
}


def answers(loop: Any, tokens: torch.Tensor, parts: tuple[int, ...]) -> list[torch.Tensor]:
    """The logits after each part, read one after the other."""
    return [loop.read(part) for part in tokens.split(list(parts), 1)]


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_those_of_one_plain_pass_row_by_row(shape: str, columns: bool) -> None:
    model = small(**SHAPES[shape])
    plain = copy.deepcopy(model)
    if columns:
        token_loop.by_columns(model)
    pads, parts = (0, 3, 5), (6, 4, 1, 1)
    tokens = torch.randint(0, 100, (3, 12), generator=torch.Generator().manual_seed(1))
    loop = token_loop.begin(model, pads, 12)
    assert isinstance(loop, token_loop.TokenLoop)
    found = torch.stack(answers(loop, tokens, parts), 1)
    for row, pad in enumerate(pads):
        whole = plain(tokens[row : row + 1, pad:]).logits[0]
        expected = whole[torch.tensor(parts).cumsum(0) - 1 - pad]
        assert torch.allclose(found[row], expected, rtol=1e-4, atol=1e-5), shape


@pytest.mark.parametrize("shape", OTHERS)
def test_other_decoders_go_through_the_library(shape: str) -> None:
    model = small(**OTHERS[shape])
    loop = token_loop.begin(model, (0, 2), 12)
    assert isinstance(loop, token_loop.LibraryLoop)
    with pytest.raises(ValueError, match="shape of Llama"):
        token_loop.TokenLoop(model, (0, 2), 12)
    tokens = torch.randint(0, 100, (2, 9), generator=torch.Generator().manual_seed(1))
    found = torch.stack(answers(loop, tokens, (6, 1, 1, 1)), 1)
    for row, pad in enumerate((0, 2)):
        expected = model(tokens[row : row + 1, pad:]).logits[0][torch.tensor([5, 6, 7, 8]) - pad]
        assert torch.allclose(found[row], expected, rtol=1e-4, atol=1e-5), shape


@pytest.mark.parametrize("shape", ["llama, one key a head", "gpt_neox"])
def test_a_row_that_leaves_changes_no_other(shape: str) -> None:
    model = small(**{**SHAPES, **OTHERS}[shape])
    tokens = torch.randint(0, 100, (3, 10), generator=torch.Generator().manual_seed(1))
    whole, cut = (token_loop.begin(model, (0, 2, 4), 10) for _ in range(2))
    whole.read(tokens[:, :8])
    cut.read(tokens[:, :8])
    cut.keep([0, 2])
    for at in (8, 9):
        assert torch.allclose(cut.read(tokens[[0, 2], at : at + 1]), whole.read(tokens[:, at : at + 1])[[0, 2]], rtol=1e-4, atol=1e-5)


def test_inner_states_are_those_of_the_library() -> None:
    model = small("qwen2", num_key_value_heads=2)
    tokens = torch.randint(0, 100, (2, 7), generator=torch.Generator().manual_seed(1))
    own: dict[str, list[torch.Tensor]] = defaultdict(list)
    for layer in model.model.layers:
        layer.self_attn.o_proj.register_forward_pre_hook(lambda _, args: own["values"].append(args[0]))
        layer.mlp.down_proj.register_forward_pre_hook(lambda _, args: own["activation"].append(args[0]))
    seen = model(tokens, output_attentions=True, output_hidden_states=True)
    own["hidden"], own["attention"] = list(seen.hidden_states[:-1]), list(seen.attentions)
    found: dict[str, list[torch.Tensor]] = defaultdict(list)
    loop = token_loop.TokenLoop(model, (0, 0), 7)
    loop.read(tokens[:, :6])
    loop.read(tokens[:, 6:], lambda layer, part, values: found[part].append(values))
    assert set(found) == set(own)
    for part, layers in own.items():
        expected = [values[:, :, -1:] if part == "attention" else values[:, -1:] for values in layers]
        assert len(found[part]) == 3, part
        for one, other in zip(found[part], expected, strict=True):
            assert one.shape == other.shape, part
            assert torch.allclose(one, other, rtol=1e-4, atol=1e-6), part


def test_the_capacity_is_kept() -> None:
    loop = token_loop.TokenLoop(small("llama"), (0,), 3)
    loop.read(torch.tensor([[1, 2, 3]]))
    with pytest.raises(ValueError, match="4 tokens pass the capacity of 3"):
        loop.read(torch.tensor([[4]]))


def test_storing_by_columns_keeps_numbers_and_shared_weights() -> None:
    model = small("llama", tie_word_embeddings=True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    token_loop.by_columns(model)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.model.layers[0].mlp.up_proj.weight.T.is_contiguous()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
