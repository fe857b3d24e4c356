"""Pictures of lcs as addresses that a page shows: enlarged, tinted by a mask, or one plain colour."""

from __future__ import annotations

import base64
import io
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image

ENLARGED = 256  # pixels a side, at least: browsers blur small pictures more than they need
KEPT = 256  # encoded pictures: each frame of a run shows the earlier ones again
QUALITY = 88
WASH = 127  # grey laid over what a mask leaves out: it reads on dark and on light pictures


def smooth(picture: Any, side: int = ENLARGED) -> str:
    """A picture (H, W, 3) uint8, enlarged by a smooth filter to at least ``side`` pixels."""
    return _encoded(_plain(picture), side, Image.Resampling.LANCZOS)


def cells(picture: Any, side: int = ENLARGED) -> str:
    """A picture (h, w, 3) uint8 of tokens, each drawn as a square."""
    return _encoded(_plain(picture), side, Image.Resampling.NEAREST)


def swatch(color: str) -> str:
    """One plain colour "#rrggbb" as a square."""
    return cells(np.full((1, 1, 3), tuple(bytes.fromhex(color.removeprefix("#"))), np.uint8))


def wash(mask: Any) -> str:
    """A grey veil over what a mask (h, w) leaves out; inside it is clear."""
    inside = np.asarray(mask, bool)
    return _encoded(np.dstack([np.full((*inside.shape, 3), WASH, np.uint8), np.where(inside, 0, 255).astype(np.uint8)]), ENLARGED, Image.Resampling.NEAREST)


def _plain(picture: Any) -> np.ndarray:
    return np.ascontiguousarray(picture, np.uint8)


def _encoded(picture: np.ndarray, side: int, filter_: Image.Resampling) -> str:
    return _address(picture.tobytes(), picture.shape, side, filter_)


@lru_cache(maxsize=KEPT)
def _address(pixels: bytes, shape: tuple[int, ...], side: int, filter_: Image.Resampling) -> str:
    image = Image.fromarray(np.frombuffer(pixels, np.uint8).reshape(shape))
    times = max(1, -(-side // max(shape[:2])))
    file = io.BytesIO()
    # Squares of one colour are a few hundred bytes without loss; pictures are a tenth of a PNG.
    flat = filter_ is Image.Resampling.NEAREST
    image.resize((shape[1] * times, shape[0] * times), filter_).save(file, "WEBP", lossless=flat, quality=QUALITY, method=2)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
