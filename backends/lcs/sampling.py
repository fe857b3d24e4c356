"""Steering inside any FluxPipeline call: a ``callback_on_step_end``, and runs that begin in the middle of another one's trajectory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from backends.contract import InputError
from backends.lcs.attention import attention_mask
from backends.lcs.models import Steerable
from backends.lcs.subspace import LCS, Kind

Array = np.ndarray
EARLY = 0.9  # the noise level at which steering is best: colour is there, texture is not
OnStep = Callable[[int, float, torch.Tensor], None]  # completed steps, noise level, latents (N, L, 64)


def noise_levels(pipe: Any, steps: int, tokens: int) -> Array:
    """sigma after 0 to T completed steps (T + 1,), as a FluxPipeline call with so many steps and tokens sets them; from 1 to 0."""
    from diffusers.pipelines.flux.pipeline_flux import calculate_shift

    config = pipe.scheduler.config
    names = ("base_image_seq_len", "max_image_seq_len", "base_shift", "max_shift")
    mu = calculate_shift(tokens, *(config[n] for n in names))
    own = type(pipe.scheduler).from_config(config)
    own.set_timesteps(sigmas=linear_levels(steps), mu=mu)
    return own.sigmas.numpy().astype(float)


def linear_levels(steps: int) -> list[float]:
    """The levels before the shift, which acts on each by itself, so that the end of this list continues a run."""
    return np.linspace(1.0, 1 / steps, steps).tolist()


def early_step(sigmas: Array) -> int:
    """The number of completed steps whose noise level is nearest to 0.9, at least 1."""
    return 1 + int(np.abs(sigmas[1:] - EARLY).argmin())


@dataclass
class Steering:
    """A ``callback_on_step_end`` that steers once, after ``step`` completed steps of its call.

    hsl: the wanted colour. tokens: for each object the number of its word among the text tokens, one number for each prompt of the batch;
    none steers the whole picture. passes: the list of ``AttentionMaps.recorded``, which a call must run inside when there are objects.
    grid: tokens (height, width). first: steps that were completed before the call. Objects are steered one after another; ``masks`` holds
    them (N, L). Raises InputError when objects are to be found before a step has been made.
    """

    lcs: LCS
    hsl: tuple[float, float, float]
    step: int
    grid: tuple[int, int]
    kind: Kind = "blend"
    gamma: float | None = None
    mass: float = 0.8
    tokens: Sequence[Sequence[int]] = ()
    passes: list[torch.Tensor] = field(default_factory=list)
    first: int = 0
    masks: list[torch.Tensor] = field(default_factory=list)
    on_step: OnStep = lambda done, sigma, latents: None

    def __post_init__(self) -> None:
        if self.tokens and self.step < 1:
            raise InputError("steer_step", "before the first step there is no attention that could find an object", "steer after step 1, or the whole picture")

    def __call__(self, pipe: Any, i: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        done, sigma, latents = self.first + i + 1, float(pipe.scheduler.sigmas[i + 1]), tensors["latents"]
        if done == self.step:
            latents = self.steer(latents, sigma)
        self.passes.clear()
        self.on_step(done, sigma, latents)
        return {"latents": latents}

    def steer(self, latents: torch.Tensor, sigma: float) -> torch.Tensor:
        """The latents (N, L, 64) steered at this noise level, each object within the mask of this step's attention."""
        if not self.tokens:
            return self.lcs.steer(latents, self.hsl, sigma, None, self.kind, self.gamma)
        attention = self.passes[0]  # the conditional half comes first
        rows = torch.arange(len(attention), device=attention.device)
        for places in self.tokens:
            column = attention[rows, :, torch.as_tensor(places, device=attention.device)]
            self.masks.append(attention_mask(column, self.grid, self.mass))
            latents = self.lcs.steer(latents, self.hsl, sigma, self.masks[-1], self.kind, self.gamma)
        return latents


def denoise(
    model: Steerable,
    prompt: str | list[str],
    steps: int,
    guidance: float,
    callback: Callable[..., dict[str, Any]],
    *,
    latents: torch.Tensor | None = None,
    first: int = 0,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """The final latents (N, L, 64) of a FluxPipeline call of ``steps`` steps that begins after its first ``first`` ones.

    latents: where it begins; None draws noise from the generator. guidance: of the guidance embedding where the model has one; elsewhere, above
    1, against the empty prompt.
    """
    pipe = model.own_pipe()
    embedded = bool(pipe.transformer.config.guidance_embeds)
    levels = linear_levels(steps)[first:]
    nothing = "" if isinstance(prompt, str) else [""] * len(prompt)
    against = {} if embedded or guidance <= 1 else {"negative_prompt": nothing, "true_cfg_scale": guidance}
    return pipe(
        prompt=prompt,
        height=model.size,
        width=model.size,
        num_inference_steps=len(levels),
        sigmas=levels,
        guidance_scale=guidance,
        generator=generator,
        latents=latents,
        max_sequence_length=model.words,
        output_type="latent",
        return_dict=False,
        callback_on_step_end=callback,
        **against,
    )[0]
