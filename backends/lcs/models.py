"""The pipelines that can be steered: the little FLUX on any host, FLUX.1 of the hub where there is a GPU, both by the same code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from backends.contract import InputError
from backends.lcs.attention import AttentionMaps, install
from backends.lcs.card import LITTLE
from backends.lcs.solids import FLUX1_MODELS, Solids, factor, fit, flux1_dev
from backends.lcs.subspace import LCS, Variant
from backends.runtime import little_flux, model_files
from backends.runtime.models import Models

Array = np.ndarray
HUB_SIZE, HUB_WORDS = 512, 512  # pixels a side; text tokens
HUB_MEMORY = 24e9  # bytes that FLUX.1 and its text encoders take in bfloat16


@dataclass(frozen=True, eq=False, slots=True)
class Steerable:
    """A FluxPipeline and what steering needs to know of it. size: pixels a side; words: text tokens; maps: of its mask block."""

    name: str
    title: str
    pipe: Any
    size: int
    words: int
    maps: AttentionMaps

    @property
    def cell(self) -> int:
        """Pixels a side of one token."""
        return 2 * factor(self.pipe.vae)

    @property
    def grid(self) -> tuple[int, int]:
        """Tokens (height, width) of a picture."""
        return self.size // self.cell, self.size // self.cell

    def own_pipe(self) -> Any:
        """A pipeline that shares all weights and has a scheduler of its own: a run must not move another run's noise levels."""
        from diffusers import FluxPipeline

        parts = self.pipe.components
        own = FluxPipeline(**{**parts, "scheduler": type(parts["scheduler"]).from_config(parts["scheduler"].config)})
        own.set_progress_bar_config(disable=True)
        return own

    def subspace(self, solids: Solids, variant: Variant) -> LCS:
        """The published figures for FLUX.1, else fitted on the solids."""
        return flux1_dev(variant) if self.name in FLUX1_MODELS else fit(solids, variant)

    @torch.no_grad()
    def decode(self, x: Array, grid: tuple[int, int] | None = None) -> Array:
        """The picture (H, W, 3) uint8 that the decoder makes of packed latents (L, 64); grid: (height, width) in tokens."""
        height, width = grid or self.grid
        vae, f = self.pipe.vae, self.cell // 2
        weights = next(vae.parameters())
        packed = torch.tensor(np.asarray(x), device=weights.device)[None]
        z = self.pipe._unpack_latents(packed, height * self.cell, width * self.cell, f)
        z = z / vae.config.scaling_factor + (vae.config.shift_factor or 0.0)
        picture = vae.decode(z.to(weights.dtype), return_dict=False)[0][0].float()
        return ((picture / 2 + 0.5).clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()


def of_pipe(pipe: Any, *, name: str, title: str, size: int, words: int, block: int | None = None) -> Steerable:
    """Makes any FluxPipeline steerable. block: the double-stream block whose attention makes masks; None is the last.

    Raises InputError when the size is no whole number of tokens.
    """
    if size % (2 * factor(pipe.vae)):
        raise InputError("size", f"{size} pixels are no whole number of tokens", f"choose a multiple of {2 * factor(pipe.vae)}")
    blocks = len(pipe.transformer.transformer_blocks)
    return Steerable(name, title, pipe, size, words, install(pipe.transformer, blocks - 1 if block is None else block))


def load(name: str, models: Models, device: str) -> Steerable:
    """The model of this name, loaded once per process. Raises InputError: no such model, no GPU, no access."""
    if name != LITTLE and (not model_files.HUB_ID.fullmatch(name) or ".." in name or "/" not in name):
        raise InputError("model", f"{name!r} is not the name of a model", f"use {LITTLE} or a hub name such as {FLUX1_MODELS[0]}")
    if name != LITTLE and not device.startswith("cuda"):
        problem = f"{name} needs a GPU with some {HUB_MEMORY / 1e9:.0f} GB, and this host has none"
        raise InputError("model", problem, f"choose {LITTLE}, or run the lab on a GPU host")
    if name == LITTLE:
        pipe = little_flux.load(models, device)
        return models.load(f"{LITTLE} with attention maps on {device}", lambda say: _little(pipe))
    return models.load(f"{name} on {device}", lambda say: _of_hub(name, device, say))


def _little(pipe: Any) -> Steerable:
    title = "little FLUX (3 M parameters, trained for this lab)"
    return of_pipe(pipe, name=LITTLE, title=title, size=little_flux.IMAGE_SIZE, words=little_flux.SEQUENCE_LENGTH, block=little_flux.MASK_BLOCK)


def _of_hub(name: str, device: str, say: Callable[[str], None]) -> Steerable:
    from diffusers import FluxPipeline
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        with model_files.ticking(say, f"loading {name}"):
            pipe = FluxPipeline.from_pretrained(name, torch_dtype=torch.bfloat16, use_safetensors=True).to(device)
    except GatedRepoError:
        raise InputError("model", f"{name} is given only to those who accepted its terms", "accept them on its page and set HF_TOKEN on this host") from None
    except RepositoryNotFoundError:
        raise InputError("model", f"the hub has no model {name} that this host may see", "check the spelling") from None
    except torch.OutOfMemoryError:
        raise InputError("model", f"{name} does not fit into this GPU's memory", f"free some {HUB_MEMORY / 1e9:.0f} GB, or choose {LITTLE}") from None
    except Exception as error:  # noqa: BLE001 - whatever the hub's client and its HTTP library raise without a network
        problem = f"{name} cannot be loaded as a FLUX pipeline ({type(error).__name__})"
        raise InputError("model", problem, f"check the name and the network, or choose {LITTLE}") from None
    return of_pipe(pipe, name=name, title=name, size=HUB_SIZE, words=HUB_WORDS)
