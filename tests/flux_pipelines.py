"""FluxPipelines with random weights, of any size, as the lab meets them: made for tests, never saved."""

from __future__ import annotations

from typing import Any

import torch

from backends.lcs.models import Steerable, of_pipe
from backends.runtime.little_flux import configuration


def tokenizer(words: int) -> Any:
    """One token a word, for prompts of up to ``words`` tokens."""
    from transformers import PreTrainedTokenizerFast

    from backends.runtime.little_flux.tokens import tokenizer as trained

    inner = trained()
    names = {"pad_token": inner.pad_token, "eos_token": inner.eos_token, "unk_token": inner.unk_token}
    return PreTrainedTokenizerFast(tokenizer_object=inner.backend_tokenizer, model_max_length=words, **names)


def pipeline(*, guidance_embeds: bool = False, text_tokens: int = 16, dtype: torch.dtype = torch.float32, scales: int = 3, seed: int = 0) -> Any:
    """A FluxPipeline whose latents have 16 channels. scales: 3 halves the picture twice (f = 4), 4 three times (f = 8)."""
    from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
    from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

    vae: dict[str, Any] = {**configuration.VAE, "block_out_channels": (8, 8, 16, 16)[:scales]}
    vae |= {name: (vae[name][0],) * scales for name in ("down_block_types", "up_block_types")}
    # The weights are drawn from torch's global state, which other tests must find as they left it.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parts = {
            "vae": AutoencoderKL(**vae, scaling_factor=0.5, shift_factor=0.1),
            "transformer": FluxTransformer2DModel(**{**configuration.TRANSFORMER, "guidance_embeds": guidance_embeds}),
            "text_encoder": CLIPTextModel(CLIPTextConfig(**{**configuration.CLIP, "max_position_embeddings": 77})),
            "text_encoder_2": T5EncoderModel(T5Config(**configuration.T5)),
        }
    scheduler = FlowMatchEulerDiscreteScheduler(**configuration.SCHEDULER)
    made = FluxPipeline(scheduler=scheduler, tokenizer=tokenizer(min(text_tokens, 77)), tokenizer_2=tokenizer(text_tokens), **parts)
    for part in parts.values():
        part.eval()
    return made.to(dtype)


def steerable(*, size: int = 64, text_tokens: int = 16, block: int | None = 2, **more: Any) -> Steerable:
    return of_pipe(pipeline(text_tokens=text_tokens, **more), name="random", title="random weights", size=size, words=text_tokens, block=block)
