"""QK locking (section 4.1, link 6): the first token's key is nearly the same in every text, and most queries point at it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from backends.attention_sink.architecture import private_view

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Keys:
    """first_key: (texts, L, H d_k), k_0 of each text, repeated for the query heads that share it. directions: (L, H, d_k), the first left
    singular vector of each head's part of W_Q."""

    first_key: Array
    directions: Array


@dataclass(frozen=True, slots=True)
class Locking:
    """By layer, (L,): key_cosine, mean cosine of k_0 between the text and other texts, over heads; alignment, mean |cos| between k_0 and
    the first left singular vector of W_Q, over heads."""

    key_cosine: Array
    alignment: Array


def first_keys(model: Any, first_tokens: Sequence[int] | Array, check: Callable[[], None] = lambda: None) -> Keys:
    """The keys of token 0 for texts that begin with these tokens. Causality makes them those of the one-token text; RoPE leaves position 0 as it is."""
    parts = private_view(model)
    kept: list[torch.Tensor] = []

    def keep(out: torch.Tensor) -> None:
        check()
        kept.append(out[:, 0].float().unflatten(-1, (parts.heads // parts.groups, -1)).repeat_interleave(parts.groups, 1))

    hooks = [layer.self_attn.k_proj.register_forward_hook(lambda _module, _args, out: keep(out)) for layer in parts.layers]
    try:
        with torch.inference_mode():
            parts.base(input_ids=torch.as_tensor(np.asarray(first_tokens), device=parts.device)[:, None], use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    directions = []
    for layer in parts.layers:
        check()
        heads = layer.self_attn.q_proj.weight.detach().float().unflatten(0, (parts.heads, -1))
        directions.append(torch.linalg.eigh(heads @ heads.transpose(1, 2)).eigenvectors[..., -1])
    return Keys(torch.stack(kept, 1).cpu().numpy(), torch.stack(directions).cpu().numpy())


def locking(own: Keys, others: Keys) -> Locking:
    """own: of the text, one row. others: of the texts that it is compared with."""
    mine, theirs = _unit(own.first_key[0]), _unit(others.first_key)
    return Locking((theirs * mine).sum(-1).mean((0, 2)), np.abs((mine * _unit(own.directions)).sum(-1)).mean(1))


def _unit(vectors: Array) -> Array:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))
