"""What a decoder must keep before the lab looks inside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from backends.contract import InputError
from backends.runtime import decoder_checks
from tests.decoders import small


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt_neox"])
def test_other_architectures_pass_the_checks(kind: str) -> None:
    assert decoder_checks.check(kind, small(kind)) < 1e-4


def broken(change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A model whose first layer's attention weights are changed after the softmax, in what it returns."""
    model = small("llama")
    layer = model.model.layers[0].self_attn
    forward = layer.forward

    def changed(*args: Any, **kwargs: Any) -> Any:
        output, weights = forward(*args, **kwargs)
        return output, change(weights)

    layer.forward = changed
    return model


def test_a_model_that_takes_no_positions_is_refused() -> None:
    model = small("llama")
    forward = model.forward
    model.forward = lambda ids, use_cache, output_attentions=False, output_hidden_states=False, attention_mask=None: forward(
        ids, attention_mask=attention_mask, output_attentions=output_attentions, output_hidden_states=output_hidden_states
    )
    with pytest.raises(InputError, match=r"does not take the calls of a decoder.*position_ids"):
        decoder_checks.check("unplaced", model)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a * 0.9, "sum to 0.9, not to 1"),
        (lambda a: a * float("nan"), "sum to nan"),
        (lambda a: a.flip(-1), "looks at later tokens"),
    ],
)
def test_wrong_attention_is_refused(change: Callable[[torch.Tensor], torch.Tensor], words: str) -> None:
    with pytest.raises(InputError, match=words):
        decoder_checks.check("broken", broken(change))


def test_a_model_that_drops_the_mask_is_refused() -> None:
    model = small("llama")
    forward = model.forward
    model.forward = lambda *args, attention_mask=None, **kwargs: forward(*args, **kwargs)
    with pytest.raises(InputError, match="mask does not reach its attention"):
        decoder_checks.check("dropping", model)


def test_a_model_without_attention_weights_is_refused() -> None:
    model = small("llama")
    model.set_attn_implementation("sdpa")
    with pytest.raises(InputError, match="no attention weights"):
        decoder_checks.check("sdpa", model)


def test_a_model_that_looks_ahead_is_refused() -> None:
    model = small("llama")
    forward = model.forward

    def ahead(ids: torch.Tensor, **kwargs: Any) -> Any:
        answer = forward(ids, **kwargs)
        answer.logits = answer.logits + ids.float().mean()
        return answer

    model.forward = ahead
    with pytest.raises(InputError, match="a later token changes the logits"):
        decoder_checks.check("ahead", model)


def test_logits_that_change_with_the_returned_attention_are_refused() -> None:
    model = small("llama")
    forward = model.forward

    def other(ids: torch.Tensor, **kwargs: Any) -> Any:
        answer = forward(ids, **kwargs)
        answer.logits = answer.logits * (1.1 if kwargs.get("output_attentions") else 1)
        return answer

    model.forward = other
    with pytest.raises(InputError, match="logits change when it returns"):
        decoder_checks.check("other", model)
