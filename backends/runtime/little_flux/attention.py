"""How strongly each image token looks at each word, read in one double-stream block."""

from __future__ import annotations

from typing import Any

import torch
from diffusers.models.embeddings import apply_rotary_emb
from diffusers.models.transformers.transformer_flux import FluxAttnProcessor


class WordAttention(FluxAttnProcessor):
    """Does what FLUX's own processor does and keeps ``weights`` (B, image tokens, text tokens): the softmax weights, averaged over heads.

    The fused attention call gives no weights, so queries and keys are multiplied once more here; gradients reach them.
    """

    weights: torch.Tensor

    def __call__(
        self,
        attn: Any,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        image_rotary_emb: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        heads = (-1, attn.head_dim)
        image_query = attn.norm_q(attn.to_q(hidden_states).unflatten(-1, heads))
        words = attn.norm_added_k(attn.add_k_proj(encoder_hidden_states).unflatten(-1, heads))
        image_key = attn.norm_k(attn.to_k(hidden_states).unflatten(-1, heads))
        key, query = torch.cat([words, image_key], dim=1), torch.cat([torch.zeros_like(words), image_query], dim=1)
        key, query = (apply_rotary_emb(part, image_rotary_emb, sequence_dim=1) for part in (key, query))
        length = words.shape[1]
        scores = torch.einsum("bqhd,bkhd->bhqk", query[:, length:], key) * attn.head_dim**-0.5
        self.weights = scores.softmax(-1).mean(1)[..., :length]
        return super().__call__(attn, hidden_states, encoder_hidden_states, attention_mask, image_rotary_emb)
