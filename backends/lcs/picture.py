"""A person's picture: encoded, read in the subspace, its colour moved there, decoded."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError

from backends.contract import InputError, Upload
from backends.lcs.models import Steerable
from backends.lcs.solids import encode, pack
from backends.lcs.subspace import LCS, Kind

Array = np.ndarray
SIDE = (64, 256)  # pixels: the longer side is brought into this range
PIXELS_LIMIT = 40_000_000


@dataclass(frozen=True, eq=False, slots=True)
class Recoded:
    """given: the picture as it was encoded (H, W, 3) uint8; latents (L, 64) of it; before and after: decoded without and with the move."""

    given: Array
    latents: Array
    before: Array
    after: Array
    grid: tuple[int, int]


def read_picture(upload: Upload, cell: int) -> Array:
    """The picture (H, W, 3) uint8, its sides whole numbers of tokens (cell: pixels a side). Transparency becomes white.

    Raises InputError: not a picture, more than 40 million pixels, or the file itself is missing.
    """
    try:
        opened = Image.open(io.BytesIO(upload.read("picture")))
        if opened.width * opened.height > PIXELS_LIMIT:
            raise InputError("picture", f"it has {opened.width} x {opened.height} pixels", "choose one of at most 40 million pixels")
        upright = ImageOps.exif_transpose(opened).convert("RGBA")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError("picture", f"{upload.name} cannot be read as a picture", "choose a PNG, JPEG or WebP file") from None
    white = Image.new("RGBA", upright.size, "white")
    longer = max(upright.size)
    scale = min(max(longer, SIDE[0]), SIDE[1]) / longer
    width, height = (max(1, round(side * scale / cell)) * cell for side in upright.size)
    return np.asarray(Image.alpha_composite(white, upright).convert("RGB").resize((width, height), Image.Resampling.LANCZOS))


def recode(model: Steerable, lcs: LCS, picture: Array, hsl: tuple[float, float, float], kind: Kind, gamma: float | None) -> Recoded:
    """Moves the mean colour of a picture in the latents of the model's autoencoder, at noise level 0; nothing is sampled."""
    grid = picture.shape[0] // model.cell, picture.shape[1] // model.cell
    pixels = torch.tensor(picture).permute(2, 0, 1)[None].float() / 255
    latents = pack(encode(model.pipe.vae, pixels))[0].cpu().numpy()
    moved = lcs.steer(latents, hsl, 0.0, None, kind, gamma)
    return Recoded(picture, latents, model.decode(latents, grid), model.decode(moved, grid), grid)
