"""Trains the flow on cached latents: velocity, a little of where words look, a little of where things are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from backends.runtime.little_flux import pipeline
from backends.runtime.little_flux.configuration import TRANSFORMER
from backends.runtime.little_flux.data import Pictures
from backends.runtime.little_flux.flow import Flow, noise_levels, pack, velocity_loss, word_loss
from backends.runtime.little_flux.schedule import Average, Clock, save
from backends.runtime.little_flux.tokens import ids_of
from backends.runtime.little_flux.vae_training import encode

PEAK_RATE, BATCH, DROPOUT = 1.2e-3, 24, 0.1
WORD_WEIGHT, PLACE_WEIGHT = 0.03, 0.3


def latents(vae: AutoencoderKL, pictures: Pictures, path: Path) -> torch.Tensor:
    """Packed, normalised posterior means (N, 64, 64), half precision; from their file, computed and written first where there is none."""
    if not path.exists():
        means = encode(vae, pictures)
        for part in means.split(1000):  # in place: the set is large
            part.copy_((part.float() - vae.config.shift_factor) * vae.config.scaling_factor)
        save(path, {"latents": pack(means)})
    return torch.load(path, weights_only=True)["latents"]


class FlowTraining:
    """Module, average, optimiser and clock; ``path`` is the checkpoint that is resumed and kept.

    ``places`` is a linear read-out of the last double-stream block that tells which latent pixels belong to a thing. It is not shipped: its
    loss speaks of shapes alone, where the velocity's is ruled by colour and texture, and so teaches the blocks what a shape word means.
    """

    def __init__(self, path: Path, minutes: float, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.path, self.clock, self.rng, self.generator = path, Clock(minutes), np.random.default_rng(seed), torch.Generator().manual_seed(seed)
        self.flow, self.places = Flow(), nn.Linear(TRANSFORMER["num_attention_heads"] * TRANSFORMER["attention_head_dim"], 4)
        self.average = Average(self.flow, 0.999)
        self._features: torch.Tensor
        self.flow.transformer.transformer_blocks[-1].register_forward_hook(self._keep)
        self.optimiser = torch.optim.AdamW([*self.flow.parameters(), *self.places.parameters()], lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
        self.empty = torch.tensor(ids_of(""))
        if path.exists():
            self._resume(seed)

    def _keep(self, _module: nn.Module, _inputs: tuple[torch.Tensor, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
        self._features = output[1]

    def compile(self) -> None:
        """Fuses what each block does between its matrix products: 1.4 times the steps in the same time on one core, after some minutes of g++."""
        torch._inductor.config.cpp.threads = torch.get_num_threads()
        for block in (*self.flow.transformer.transformer_blocks, *self.flow.transformer.single_transformer_blocks):
            block.forward = torch.compile(block.forward, dynamic=False)  # the forward and not the module: its hook stays outside

    def _resume(self, seed: int) -> None:
        state = torch.load(self.path, weights_only=True)
        self.flow.load_state_dict(state["module"])
        self.places.load_state_dict(state["places"])
        self.average.module.load_state_dict(state["average"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.clock.wall_s, self.clock.cpu_s, self.clock.step = state["clock"]
        self.rng = np.random.default_rng([seed, self.clock.step])
        self.generator.manual_seed(seed + self.clock.step)

    def save(self) -> None:
        modules = {"module": self.flow.state_dict(), "places": self.places.state_dict(), "average": self.average.module.state_dict()}
        clock = (self.clock.wall_s, self.clock.cpu_s, self.clock.step)
        save(self.path, {**modules, "optimiser": self.optimiser.state_dict(), "clock": clock})

    def ship(self, vae: AutoencoderKL, folder: Path) -> None:
        """Writes the averaged weights as a pipeline's folder and ``resume.safetensors``: the weights themselves, in half precision.

        The average is what samples well; whoever trains on needs both, and the optimiser finds its own state again in some hundred steps.
        """
        pipeline.save(pipeline.assemble(vae, self.average.module), folder)
        modules = {f"{name}.{key}": value.half() for name in ("flow", "places") for key, value in getattr(self, name).state_dict().items()}
        clock = {"wall_s": f"{self.clock.wall_s:.0f}", "cpu_s": f"{self.clock.cpu_s:.0f}", "step": str(self.clock.step)}
        save_file(modules, folder / "resume.safetensors", metadata=clock)

    def start_from(self, folder: Path) -> None:
        """Takes weights and average from a shipped folder; clock and optimiser begin anew."""
        state = {key: value.float() for key, value in load_file(folder / "resume.safetensors").items()}
        for name in ("flow", "places"):
            getattr(self, name).load_state_dict({key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")})
        shipped = pipeline.read(folder)
        for name in ("transformer", "text_encoder", "text_encoder_2"):
            getattr(self.average.module, name).load_state_dict(getattr(shipped, name).state_dict())

    def _loss(self, pictures: Pictures, latents: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        rows = self.rng.integers(len(latents), size=BATCH)
        wording = self.rng.integers(pictures.tokens.shape[1], size=BATCH)
        tokens, word = torch.from_numpy(pictures.tokens[rows, wording]), torch.from_numpy(pictures.word[rows, wording])
        dropped = torch.rand(BATCH, generator=self.generator) < DROPOUT
        tokens[dropped], word[dropped] = self.empty, -1
        cover = torch.from_numpy(pictures.cover[rows]).float() / 255
        x0, sigma = latents[rows].float(), noise_levels(BATCH, self.generator)
        noise = torch.randn(x0.shape, generator=self.generator)
        level = sigma[:, None, None]
        velocity = velocity_loss(self.flow((1 - level) * x0 + level * noise, sigma, tokens), x0, noise)
        looked = word_loss(self.flow.words.weights, word, functional.avg_pool2d(cover, 2))
        place = functional.binary_cross_entropy_with_logits(self.places(self._features), pack(cover.amax(1, keepdim=True)))
        return velocity + WORD_WEIGHT * looked + PLACE_WEIGHT * place, [velocity.item(), looked.item(), place.item()]

    def steps(self, pictures: Pictures, latents: torch.Tensor) -> Iterator[list[float]]:
        """Trains until the time is over; yields velocity, word and place loss of each batch."""
        while self.clock.done < 1:
            for group in self.optimiser.param_groups:
                group["lr"] = self.clock.rate(PEAK_RATE)
            loss, figures = self._loss(pictures, latents)
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.flow.parameters(), 1.0)
            self.optimiser.step()
            self.average.update(self.flow, self.clock.step)
            self.clock.tick()
            yield figures
