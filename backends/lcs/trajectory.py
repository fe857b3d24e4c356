"""One sampling from noise to picture with all its latents kept, what the subspace reads from it, and how well that foretells the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from backends.lcs.models import Steerable
from backends.lcs.readout import AffineReadout, cell_rgb, hex_of, mean_rgb
from backends.lcs.sampling import denoise, noise_levels
from backends.lcs.subspace import LCS
from backends.runtime import scenes

Array = np.ndarray
SHOWN = 8  # steps that are drawn, about evenly spaced
THUMBNAIL = 128  # pixels a side of a drawn step, at most: a run's frames are stored
OnKept = Callable[[int, Array, Array], None]  # completed steps, latents (L, 64), decoded picture


@dataclass(frozen=True, eq=False, slots=True)
class Trajectory:
    """sigmas (T + 1,); latents (T + 1, L, 64) fp32; attention (T, L, words of the prompt); decoded: the shown steps' pictures, the last among them."""

    sigmas: Array
    latents: Array
    attention: Array
    decoded: Mapping[int, Array]

    @property
    def picture(self) -> Array:
        """The finished picture (H, W, 3) uint8."""
        return self.decoded[len(self.sigmas) - 1]


def shown_steps(steps: int) -> tuple[int, ...]:
    """The numbers of completed steps that are drawn, from 0 to the end."""
    return tuple(sorted({*range(0, steps, max(1, round(steps / SHOWN))), steps}))


def starting_noise(model: Steerable, generator: torch.Generator, pictures: int = 1) -> torch.Tensor:
    """x_0 (N, L, 64) as the pipeline itself draws it."""
    pipe, parameter = model.pipe, next(model.pipe.transformer.parameters())
    channels = pipe.transformer.config.in_channels // 4
    return pipe.prepare_latents(pictures, channels, model.size, model.size, parameter.dtype, parameter.device, generator)[0]


def words_of(model: Steerable, prompt: str) -> int:
    """Text tokens of the prompt, the padding left out."""
    return len(model.pipe.tokenizer_2(prompt, truncation=True, max_length=model.words)["input_ids"])


def follow(model: Steerable, prompt: str, steps: int, guidance: float, generator: torch.Generator, on_kept: OnKept, check: Callable[[], None]) -> Trajectory:
    """Samples one picture, nothing steered. on_kept: called at each shown step; check: at every step, may raise."""
    start, words, shown = starting_noise(model, generator), words_of(model, prompt), shown_steps(steps)
    latents, attention, decoded = [start[0].float().cpu().numpy()], [], {}

    def keep(done: int) -> None:
        if done in shown:
            decoded[done] = model.decode(latents[done])
            on_kept(done, latents[done], decoded[done])

    def on_step(pipe: Any, i: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        check()
        latents.append(tensors["latents"][0].float().cpu().numpy())
        attention.append(passes[0][0, :, :words].cpu().numpy())
        passes.clear()
        keep(i + 1)
        return tensors

    keep(0)
    with model.maps.recorded() as passes:
        denoise(model, prompt, steps, guidance, on_step, latents=start)
    return Trajectory(noise_levels(model.pipe, steps, start.shape[1]), np.stack(latents), np.stack(attention), decoded)


class History:
    """What is drawn of a sampling so far; each shown step adds one entry."""

    def __init__(self, lcs: LCS, grid: tuple[int, int]) -> None:
        self.lcs, self.grid = lcs, grid
        self.step: list[int] = []
        self.sigma: list[float] = []
        self.decoded: list[Array] = []
        self.preview: list[Array] = []
        self.cloud: list[Array] = []

    def add(self, step: int, sigma: float, latents: Array, decoded: Array) -> None:
        """latents: (L, 64) after this many steps; decoded: the decoder's picture of them."""
        seen = self.lcs.observe(latents, sigma)
        self.step.append(step)
        self.sigma.append(sigma)
        self.decoded.append(thumbnail(decoded))
        self.preview.append(np.round(255 * seen.rgb.reshape(*self.grid, 3)).astype(np.uint8))
        self.cloud.append(seen.coordinates)

    def data(self) -> dict[str, Any]:
        cloud = np.stack(self.cloud)
        mean = cloud.mean(1)
        colours = [hex_of(rgb) for rgb in self.lcs.to_rgb(mean)]
        lists = {"step": list(self.step), "sigma": list(self.sigma), "decoded": list(self.decoded), "lcs": list(self.preview)}
        return {**lists, "cloud": cloud, "mean": mean, "color": colours}


def thumbnail(picture: Array) -> Array:
    """The picture averaged down to at most 128 pixels a side."""
    times = -(-max(picture.shape[:2]) // THUMBNAIL)
    if times == 1:
        return picture
    height, width = (side // times for side in picture.shape[:2])
    squares = picture[: height * times, : width * times].reshape(height, times, width, times, 3)
    return np.asarray(squares.mean((1, 3)).round().astype(np.uint8))


def prediction(lcs: LCS, affine: AffineReadout, trajectory: Trajectory, grid: tuple[int, int]) -> dict[str, Any]:
    """How far each step's reading is from the finished picture: CIEDE2000 by step, of the average colour and of the cells (mean).

    lcs by the cone, affine by the affine read-out, decoder by the decoder's picture of the noisy latents (shown steps alone).
    """
    final, cells = mean_rgb(trajectory.picture), cell_rgb(trajectory.picture, grid)
    seen = [lcs.observe(x, float(sigma)) for x, sigma in zip(trajectory.latents, trajectory.sigmas, strict=True)]
    means = np.stack([s.coordinates.mean(0) for s in seen])
    average = lcs.to_rgb(means)
    shown = sorted(trajectory.decoded)
    return {
        "step": np.arange(len(means)),
        "sigma": trajectory.sigmas,
        "lcs": scenes.delta_e(average, final),
        "affine": scenes.delta_e(affine.rgb(means), final),
        "cells": scenes.delta_e(np.stack([s.rgb for s in seen]), cells).mean(1),
        "color": [hex_of(rgb) for rgb in average],
        "decoder_step": shown,
        "decoder": scenes.delta_e(np.stack([mean_rgb(trajectory.decoded[t]) for t in shown]), final),
    }


def schedule(lcs: LCS, trajectory: Trajectory) -> dict[str, Any]:
    """alpha and beta by step in closed form, beside what this one sampling shows: how much of the end's mean colour its tokens hold already.

    run_beta: the part of the final mean coordinates that is there at a step, once the path from the noise's -B mu is taken off, so that a
    straight path gives 1 - sigma.
    """
    pairs = [lcs.alpha_beta(float(sigma)) for sigma in trajectory.sigmas]
    alpha, beta = (np.stack([pair[k].numpy() for pair in pairs]) for k in (0, 1))
    means = lcs.coordinates(trajectory.latents).mean(1)
    origin = -(lcs.B @ lcs.mu).numpy()
    path = means - trajectory.sigmas[:, None] * origin
    return {
        "step": np.arange(len(means)),
        "sigma": trajectory.sigmas,
        "one_minus_sigma": 1 - trajectory.sigmas,
        "beta": beta[:, 0],
        "alpha": alpha,
        "run_beta": path @ path[-1] / float(path[-1] @ path[-1]),
        "run_mean": means,
    }
