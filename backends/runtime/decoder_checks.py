"""What a decoder must keep before the lab looks inside it; each check has failed with some version of some library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from backends.contract import InputError

LENGTH, ISOLATED = 8, 3
TOLERANCE = 1e-3  # relative, in float32; measured 2e-6 on the CPU
ROW_TOLERANCE = 1e-4


def check(name: str, model: Any) -> float:
    """Checks the attention of a causal language model; returns the relative error of the isolated-row oracle.

    The oracle: with row k of the mask isolated in all layers, token k sees only itself, so its hidden states equal those of
    the one-token sequence [x_k] at the same position. This holds only if the additive mask really reaches the attention.
    Besides: the rows of attention sum to 1, nothing looks ahead, and the logits do not depend on returning the attention.
    Raises InputError for the field ``model`` that says what does not hold.
    """
    try:
        with torch.inference_mode():
            return _checked(name, model)
    except (TypeError, AttributeError, IndexError, RuntimeError) as error:
        raise _refused(name, f"it does not take the calls of a decoder ({' '.join(str(error).split())[:200]})") from None


def _checked(name: str, model: Any) -> float:
    device, vocabulary = model.get_input_embeddings().weight.device, model.get_input_embeddings().weight.shape[0]
    ids = torch.tensor([[(1000 + 37 * i * i + 11 * i) % vocabulary for i in range(LENGTH)]], device=device)
    plain = model(ids, use_cache=False).logits
    seen = model(ids, use_cache=False, output_attentions=True, output_hidden_states=True)
    _rows(name, seen.attentions, model.config.num_hidden_layers)
    if not _apart(seen.logits, plain) <= TOLERANCE:
        raise _refused(name, "its logits change when it returns its attention")
    changed = ids.clone()
    changed[0, -1] = (changed[0, -1] + 1) % vocabulary
    if not _apart(model(changed, use_cache=False).logits[:, :-1], plain[:, :-1]) <= TOLERANCE:
        raise _refused(name, "a later token changes the logits of those before it")
    return _oracle(name, model, ids)


def _rows(name: str, attentions: Sequence[torch.Tensor | None] | None, layers: int) -> None:
    if not attentions or len(attentions) < layers or any(a is None for a in attentions):
        raise _refused(name, "it returns no attention weights")
    for number, attention in enumerate(attentions):
        assert attention is not None
        rows = attention.float().sum(-1)
        if not bool((rows - 1).abs().max() <= ROW_TOLERANCE):  # also when it is not a number
            raise _refused(name, f"rows of its attention in layer {number} sum to {float(rows.flatten()[(rows - 1).abs().argmax()]):.4g}, not to 1")
        if float(attention.triu(1).abs().max()) != 0:
            raise _refused(name, f"its attention in layer {number} looks at later tokens")


def _oracle(name: str, model: Any, ids: torch.Tensor) -> float:
    mask = torch.full((LENGTH, LENGTH), torch.finfo(torch.float32).min, device=ids.device).triu(1)
    mask[ISOLATED, :ISOLATED] = torch.finfo(torch.float32).min
    masked = model(ids, attention_mask=mask[None, None], use_cache=False, output_hidden_states=True).hidden_states
    place = torch.tensor([[ISOLATED]], device=ids.device)
    alone = model(ids[:, ISOLATED : ISOLATED + 1], position_ids=place, use_cache=False, output_hidden_states=True).hidden_states
    error = max(_apart(many[0, ISOLATED], one[0, 0]) for many, one in zip(masked, alone, strict=True))
    if not error <= TOLERANCE:
        raise _refused(name, f"the mask does not reach its attention: an isolated token differs by {error:.1e} from the same token alone")
    return error


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm().clamp_min(1e-12))


def _refused(name: str, problem: str) -> InputError:
    return InputError("model", f"{name} cannot be looked into: {problem}", "choose another model")
