"""What the little FLUX makes of "a red star on a blue wall", measured: both colours against their words, the shape by a judge."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import torch

from backends.runtime.little_flux.pipeline import call_settings
from backends.runtime.scenes import COLOURS, SHAPES, ShapeJudge, delta_e, segment

if TYPE_CHECKING:
    from diffusers import FluxPipeline

GUIDANCE = 2.5
# Object on wall: pairs far apart in hue or lightness, each colour word in both places.
PAIRS = (
    ("red", "white"),
    ("white", "blue"),
    ("yellow", "purple"),
    ("blue", "yellow"),
    ("black", "orange"),
    ("green", "pink"),
    ("orange", "navy"),
    ("pink", "black"),
)


def sample(pipe: FluxPipeline, prompts: list[str], *, seed: int = 0, steps: int = 20, guidance: float = GUIDANCE) -> np.ndarray:
    """One picture for each prompt, (N, 64, 64, 3) uint8; guidance above 1 is against the empty prompt."""
    against = {"negative_prompt": [""] * len(prompts), "true_cfg_scale": guidance} if guidance > 1 else {}
    generator = torch.Generator().manual_seed(seed)
    made = pipe(prompts, num_inference_steps=steps, generator=generator, output_type="np", **against, **call_settings()).images
    return (np.asarray(made) * 255 + 0.5).astype(np.uint8)


def mean_colour(image: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """Average sRGB (3,) in 0 to 1 of a picture (H, W, 3) uint8, or of the part that the mask marks."""
    return (image[mask] if mask is not None else image.reshape(-1, 3)).mean(axis=0) / 255


@dataclass(frozen=True, slots=True)
class Objects:
    """Of "a <colour> <shape> on a <colour> wall": CIEDE2000 of the object and of the wall to their words, what the judge saw, the pictures."""

    thing: np.ndarray
    wall: np.ndarray
    asked: tuple[str, ...]
    seen: tuple[str, ...]
    images: np.ndarray

    @property
    def recognised(self) -> float:
        """Share of the pictures in which the judge names the shape that was asked for."""
        return float(np.mean([a == b for a, b in zip(self.asked, self.seen, strict=True)]))


def objects(pipe: FluxPipeline, *, seed: int = 0, steps: int = 20, pairs: tuple[tuple[str, str], ...] = PAIRS) -> Objects:
    """Every shape in every pair of colours. Where the segmenter finds nothing, the object's colour is that of the whole picture."""
    asked = list(product(SHAPES, pairs))
    prompts = [f"a{'n' if c[0] in 'aeiou' else ''} {c} {shape} on a{'n' if w[0] in 'aeiou' else ''} {w} wall" for shape, (c, w) in asked]
    images = sample(pipe, prompts, seed=seed, steps=steps)
    judge, thing, wall, seen = ShapeJudge(), [], [], []
    for image, (_, (colour, behind)) in zip(images, asked, strict=True):
        mask = segment(image)
        thing.append(float(delta_e(mean_colour(image, mask if mask.any() else None), COLOURS[colour])))
        wall.append(float(delta_e(mean_colour(image, ~mask), COLOURS[behind])))
        seen.append(judge(mask))
    return Objects(np.array(thing), np.array(wall), tuple(shape for shape, _ in asked), tuple(seen), images)
