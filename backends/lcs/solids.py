"""Finds the subspace of an image autoencoder: solid pictures are encoded, and three directions hold how their latents differ (section 4.A)."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from skimage.color import hsv2rgb
from sklearn.decomposition import PCA

from backends.contract import InputError
from backends.lcs.subspace import ANCHOR_COLOURS, LCS, WIDTH, Variant

Array = np.ndarray
HUES, SATURATIONS, VALUES = 7, 6, 6  # of the grid, both ends included: 156 distinct colours
CELLS = 16  # latent cells a side of a solid picture
BATCH = 26
FLUX1 = Path(__file__).with_name("flux1_dev.json")
FLUX1_MODELS = ("black-forest-labs/FLUX.1-dev", "black-forest-labs/FLUX.1-schnell")  # one autoencoder


@dataclass(frozen=True, slots=True)
class Solids:
    """colours: (n,) of "#rrggbb"; latents (n, 64): the mean token of each solid picture, normalised and packed as the sampler sees it."""

    colours: tuple[str, ...]
    latents: Array

    @property
    def rgb(self) -> Array:
        """(n, 3) in [0, 1]."""
        return np.array([to_rgb(c) for c in self.colours])


def to_rgb(colour: str) -> tuple[float, float, float]:
    """sRGB in [0, 1] of "#rrggbb"."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def grid_colours() -> tuple[str, ...]:
    """The 156 colours of the HSV grid, sorted; channels are cut to whole numbers as the authors' files show."""
    axes = (np.arange(n) / (n - 1) for n in (HUES, SATURATIONS, VALUES))
    rgb = (hsv2rgb(np.array(list(itertools.product(*axes)))) * 255).astype(int)
    return tuple(sorted({"#" + "".join(f"{c:02x}" for c in row) for row in rgb.tolist()}))


def pack(latents: torch.Tensor) -> torch.Tensor:
    """Tokens (n, H W / 4, 64) of latents (n, 16, H, W), each a 2 x 2 block; feature = channel * 4 + dy * 2 + dx."""
    from diffusers import FluxPipeline

    n, channels, height, width = latents.shape
    return FluxPipeline._pack_latents(latents, n, channels, height, width)


def factor(vae: Any) -> int:
    """Pixels a side of one latent cell."""
    return int(2 ** (len(vae.config.block_out_channels) - 1))


@torch.no_grad()
def encode(vae: Any, pictures: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """Normalised latents (n, 16, H, W) of pictures (n, 3, H f, W f) in [0, 1]: the mean of the posterior, with a generator a draw from it."""
    weights = next(vae.parameters())
    posterior = vae.encode((2 * pictures - 1).to(weights.device, weights.dtype)).latent_dist
    z = posterior.mode() if generator is None else posterior.sample(generator)
    return (z.float() - (vae.config.shift_factor or 0.0)) * vae.config.scaling_factor


def encode_solids(vae: Any) -> Solids:
    """The 156 solid colours seen by an AutoencoderKL with 16 latent channels, each a draw from the posterior (seed 0).

    Raises InputError for an autoencoder whose packed tokens do not have 64 numbers.
    """
    if vae.config.latent_channels * 4 != WIDTH:
        raise InputError("vae", f"it has {vae.config.latent_channels} latent channels", f"choose an autoencoder with {WIDTH // 4}, as FLUX's")
    colours, side = grid_colours(), CELLS * factor(vae)
    rgb = torch.tensor([to_rgb(c) for c in colours])
    generator = torch.Generator(next(vae.parameters()).device).manual_seed(0)
    means = []
    for some in rgb.split(BATCH):
        means.append(pack(encode(vae, some[:, :, None, None].expand(-1, -1, side, side), generator)).mean(1).cpu())
    return Solids(colours, torch.cat(means).numpy())


def fit(solids: Solids, variant: Variant = "corrected") -> LCS:
    """The subspace of these solids: mu their mean, B their first three principal directions, anchors the eight named ones.

    alpha_end is 0, the mean of the solids: with the closed form it cancels. Raises InputError when an anchor is not among the solids.
    """
    missing = [c for c in ANCHOR_COLOURS if c not in solids.colours]
    if missing:
        raise InputError("solids", f"{', '.join(missing)} is not among them", "encode the eight anchor colours too")
    found = PCA(3, svd_solver="full").fit(solids.latents)
    coordinates = found.transform(solids.latents)
    anchors = coordinates[[solids.colours.index(c) for c in ANCHOR_COLOURS]]
    return LCS(found.components_, found.mean_, anchors, np.zeros(3), variant)


def find(vae: Any, variant: Variant = "corrected") -> LCS:
    """The Latent Color Subspace of any diffusers AutoencoderKL with 16 latent channels."""
    return fit(encode_solids(vae), variant)


def flux1_dev(variant: Variant = "corrected") -> LCS:
    """The published subspace of FLUX.1 [dev], whose autoencoder FLUX.1 [schnell] shares.

    >>> [round(float(c), 1) for c in flux1_dev().to_lcs((0.0, 0.0, 0.5))]
    [2.2, -2.7, 0.1]
    """
    figures = json.loads(FLUX1.read_text())
    return LCS(figures["B"], figures["mu"], figures["anchors"], figures["alpha_end"], variant)


def explained_variance(solids: Solids, lcs: LCS) -> float:
    """Share of the solids' variance over all 64 numbers that lies in the row space of B (the sum of all 64 in the denominator)."""
    centred = solids.latents - solids.latents.mean(0)
    return float(np.square(centred @ lcs.B.numpy().T).sum() / np.square(centred).sum())
