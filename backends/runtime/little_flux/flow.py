"""The rectified flow: transformer and both text encoders as one module, and the losses that train it."""

from __future__ import annotations

import torch
from diffusers import FluxPipeline, FluxTransformer2DModel
from torch import nn
from torch.nn import functional
from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

from backends.runtime.little_flux.attention import WordAttention
from backends.runtime.little_flux.configuration import CLIP, GRID, MASK_BLOCK, SEQUENCE_LENGTH, T5, TRANSFORMER

MODULATIONS = ("norm1.linear", "norm1_context.linear", "norm.linear", "norm_out.linear")


def pack(latents: torch.Tensor) -> torch.Tensor:
    """(B, C, H, W) latents to (B, H W / 4, 4 C) tokens, as FLUX packs them: token = 2 x 2 square, number = channel * 4 + dy * 2 + dx."""
    return FluxPipeline._pack_latents(latents, *latents.shape)


class Flow(nn.Module):
    """v(x, sigma, caption), with x = (1 - sigma) x0 + sigma eps and v = eps - x0."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = FluxTransformer2DModel(**TRANSFORMER)
        self.text_encoder = CLIPTextModel(CLIPTextConfig(**CLIP))
        self.text_encoder_2 = T5EncoderModel(T5Config(**T5))
        # Every block starts as the identity and the velocity as zero (adaLN-zero of DiT, Peebles and Xie 2023).
        for name, part in self.transformer.named_modules():
            if name == "proj_out" or name.endswith(MODULATIONS):
                nn.init.zeros_(part.weight)
                nn.init.zeros_(part.bias)
        self.words = WordAttention()
        self.transformer.transformer_blocks[MASK_BLOCK].attn.set_processor(self.words)
        rows, columns = torch.meshgrid(torch.arange(GRID), torch.arange(GRID), indexing="ij")
        self.register_buffer("img_ids", torch.stack([torch.zeros_like(rows), rows, columns], -1).reshape(-1, 3).float(), persistent=False)
        self.register_buffer("txt_ids", torch.zeros(SEQUENCE_LENGTH, 3), persistent=False)

    def forward(self, x: torch.Tensor, sigma: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """x: (B, 64, 64), sigma: (B,), tokens: (B, 16) ids. Returns (B, 64, 64); the word attention is left in ``self.words.weights``."""
        return self.transformer(
            hidden_states=x,
            timestep=sigma,
            encoder_hidden_states=self.text_encoder_2(tokens).last_hidden_state,
            pooled_projections=self.text_encoder(tokens).pooler_output,
            img_ids=self.img_ids,
            txt_ids=self.txt_ids,
            return_dict=False,
        )[0]


def noise_levels(count: int, generator: torch.Generator) -> torch.Tensor:
    """sigma (count,): two thirds logit-normal(1.2, 1.3), where colours are decided, a quarter logit-normal(0.3, 1), where shapes are, the rest even."""
    normal, kind = torch.randn(count, generator=generator), torch.rand(count, generator=generator)
    logit = torch.where(kind < 0.65, 1.2 + 1.3 * normal, 0.3 + normal)
    return torch.where(kind < 0.9, torch.sigmoid(logit), torch.rand(count, generator=generator)).clamp(1e-3, 1 - 1e-4)


def word_loss(weights: torch.Tensor, word: torch.Tensor, cover: torch.Tensor) -> torch.Tensor:
    """Cross-entropy (nats) between where image tokens look at a thing's word and where the thing is; mean over the things that are named.

    weights: (B, 64, 16) of ``WordAttention``. word: (B, THINGS), -1 without. cover: (B, THINGS, 8, 8).
    """
    row, thing = torch.nonzero(word >= 0, as_tuple=True)
    column = weights[row, :, word[row, thing]] + 1e-8
    truth = cover[row, thing].flatten(1)
    return -(truth / truth.sum(1, keepdim=True) * (column / column.sum(1, keepdim=True)).log()).sum(1).mean()


def velocity_loss(v: torch.Tensor, x0: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Mean squared error of the velocity eps - x0."""
    return functional.mse_loss(v, noise - x0)
