"""The training set: scenes of the renderer with their truth on the token grid, drawn once from a seed and kept in one file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch

from backends.runtime import scenes
from backends.runtime.little_flux.configuration import LATENT_SIDE, SEQUENCE_LENGTH
from backends.runtime.little_flux.tokens import ids_of, word_index

WORDINGS = 4  # captions kept for each picture
THINGS = 2
SPREAD = 0.5  # of size, place and angle: with the renderer's full spread the flow made blobs of the right colour and no shapes


@dataclass(frozen=True, slots=True)
class Pictures:
    """N pictures and their truth.

    images: (N, 64, 64, 3) uint8. tokens: (N, WORDINGS, 16), ids. word: (N, WORDINGS, THINGS), where each thing's shape word stands, -1
    without. cover: (N, THINGS, 16, 16) uint8, how much of each latent pixel's square the thing covers, 255 for all.
    """

    images: np.ndarray
    tokens: np.ndarray
    word: np.ndarray
    cover: np.ndarray

    def __len__(self) -> int:
        return len(self.images)

    def pixels(self, rows: np.ndarray | slice) -> torch.Tensor:
        """(n, 3, 64, 64) in -1 to 1."""
        return torch.from_numpy(np.ascontiguousarray(self.images[rows])).permute(0, 3, 1, 2).float() / 127.5 - 1


def make(count: int, seed: int) -> Pictures:
    """``count`` scenes of the mixture, each rendered once and worded WORDINGS times."""
    rng = np.random.default_rng(seed)
    images, cover = [], np.zeros((count, THINGS, LATENT_SIDE, LATENT_SIDE), np.uint8)
    tokens, word = np.zeros((count, WORDINGS, SEQUENCE_LENGTH), np.int64), np.full((count, WORDINGS, THINGS), -1, np.int64)
    for n in range(count):
        scene = scenes.draw(rng, spread=SPREAD)
        shown = scenes.render(scene)
        images.append(shown.image)
        side = scene.size // LATENT_SIDE
        cover[n, : len(scene.things)] = 255 * shown.cover.reshape(-1, LATENT_SIDE, side, LATENT_SIDE, side).mean(axis=(2, 4))
        for k, text in enumerate([scene.caption, *(scenes.caption(scene, rng) for _ in range(WORDINGS - 1))]):
            tokens[n, k] = ids_of(text)
            word[n, k, : len(scene.things)] = [word_index(text, thing.shape) for thing in scene.things]
    return Pictures(np.stack(images), tokens, word, cover)


def load_or_make(path: Path, count: int, seed: int) -> Pictures:
    """The set from its file; made and written first where there is none."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = make(count, seed)
        fresh = path.with_suffix(".new.npz")
        np.savez(fresh, images=made.images, tokens=made.tokens, word=made.word, cover=made.cover)
        fresh.replace(path)
    with np.load(path) as file:
        return Pictures(**{field.name: file[field.name] for field in fields(Pictures)})
