"""Trains the little autoencoder: L1 + 0.5 MSE + 0.001 KL, first on crops, then on whole pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL
from torch.nn import functional

from backends.runtime.little_flux.configuration import VAE
from backends.runtime.little_flux.data import Pictures
from backends.runtime.little_flux.schedule import Average, Clock, save

PEAK_RATE, BATCH, CROP, CROP_TIME, KL = 2e-3, 16, 32, 0.8, 1e-3
FIRST_LOG_VARIANCE = -5.0  # a posterior that starts narrow: with the usual 0 the first minutes go to denoising


class VaeTraining:
    """Module, average, optimiser and clock; ``path`` is the checkpoint that is resumed and kept."""

    def __init__(self, path: Path, minutes: float, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.path, self.clock, self.rng = path, Clock(minutes), np.random.default_rng(seed)
        self.module = AutoencoderKL(**VAE).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        with torch.no_grad():
            self.module.encoder.conv_out.bias[VAE["latent_channels"] :] = FIRST_LOG_VARIANCE
        self.average = Average(self.module, 0.999)
        self.optimiser = torch.optim.AdamW(self.module.parameters(), lr=PEAK_RATE, betas=(0.9, 0.99), weight_decay=1e-4)
        if path.exists():
            state = torch.load(path, weights_only=True)
            self.module.load_state_dict(state["module"])
            self.average.module.load_state_dict(state["average"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.clock.wall_s, self.clock.cpu_s, self.clock.step = state["clock"]
            self.rng = np.random.default_rng([seed, self.clock.step])

    def save(self) -> None:
        modules = {"module": self.module.state_dict(), "average": self.average.module.state_dict(), "optimiser": self.optimiser.state_dict()}
        save(self.path, {**modules, "clock": (self.clock.wall_s, self.clock.cpu_s, self.clock.step)})

    def _batch(self, pictures: Pictures) -> torch.Tensor:
        cropped = self.clock.done < CROP_TIME
        pixels = pictures.pixels(self.rng.integers(len(pictures), size=BATCH if cropped else BATCH // 2))
        if cropped:
            top, left = self.rng.integers(pixels.shape[-1] - CROP + 1, size=2)
            pixels = pixels[..., top : top + CROP, left : left + CROP]
        return pixels.contiguous(memory_format=torch.channels_last)

    def steps(self, pictures: Pictures) -> Iterator[float]:
        """Trains until the time is over; yields the squared error of each batch."""
        while self.clock.done < 1:
            for group in self.optimiser.param_groups:
                group["lr"] = self.clock.rate(PEAK_RATE)
            pixels = self._batch(pictures)
            posterior = self.module.encode(pixels).latent_dist
            shown = self.module.decode(posterior.sample()).sample
            error = functional.mse_loss(shown, pixels)
            kl = posterior.kl().mean() / posterior.mean[0].numel()
            loss = functional.l1_loss(shown, pixels) + 0.5 * error + KL * kl
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
            self.optimiser.step()
            self.average.update(self.module, self.clock.step)
            self.clock.tick()
            yield error.item()


@torch.no_grad()
def encode(vae: AutoencoderKL, pictures: Pictures, batch: int = 100) -> torch.Tensor:
    """The posterior means (N, 16, 16, 16) of all pictures, not yet normalised, half precision."""
    rows = range(0, len(pictures), batch)
    return torch.cat([vae.encode(pictures.pixels(slice(at, at + batch))).latent_dist.mean.half() for at in rows])


@torch.no_grad()
def finished(training: VaeTraining, pictures: Pictures) -> tuple[AutoencoderKL, float]:
    """The averaged autoencoder with shift and scale of its latents in its configuration, and its PSNR (dB) on these pictures."""
    vae = training.average.module.to(memory_format=torch.contiguous_format)
    means = encode(vae, pictures).float()
    vae.register_to_config(shift_factor=float(means.mean()), scaling_factor=float(1 / means.std()))
    errors = [functional.mse_loss(vae.decode(means[n : n + 50]).sample.clamp(-1, 1), pictures.pixels(slice(n, n + 50))) for n in range(0, len(pictures), 50)]
    return vae, float(10 * torch.log10(4 / torch.stack(errors).mean()))
