"""Twenty-six named colours and how colours are varied and compared."""

from __future__ import annotations

import colorsys

import numpy as np
from skimage.color import deltaE_ciede2000, rgb2lab

Rgb = tuple[float, float, float]  # sRGB, each 0 to 1

_HEX = {
    "red": "e02020", "grey": "848484", "maroon": "6e1420", "coral": "ff7a5c", "orange": "ff8c14", "brown": "7a4a22", "gold": "d8a818",
    "yellow": "f8e828", "beige": "e6d8b4", "olive": "7c7c20", "lime": "9ce020", "green": "22a03a", "mint": "98e8bc", "teal": "148080",
    "turquoise": "30d0c0", "cyan": "28e0f0", "azure": "2c98f0", "blue": "2040e0", "navy": "182068", "indigo": "4c20a8", "purple": "8c28c0",
    "lavender": "bca8f0", "magenta": "f020d0", "pink": "ff9cc0", "white": "f6f6f6", "black": "101010",
}  # fmt: skip

COLOURS: dict[str, Rgb] = {name: (int(h[:2], 16) / 255, int(h[2:4], 16) / 255, int(h[4:], 16) / 255) for name, h in _HEX.items()}
_NAMES = tuple(COLOURS)
_TABLE = np.array(list(COLOURS.values()))


def delta_e(a: np.ndarray | Rgb, b: np.ndarray | Rgb) -> np.ndarray:
    """CIEDE2000 between sRGB colours (..., 3) in 0 to 1; the shapes broadcast."""
    first, second = np.broadcast_arrays(np.asarray(a, float), np.asarray(b, float))
    return np.asarray(deltaE_ciede2000(rgb2lab(first), rgb2lab(second)))


def nearest_name(colour: Rgb) -> str:
    """The named colour that is nearest by CIEDE2000.

    >>> nearest_name((0.9, 0.1, 0.1))
    'red'
    """
    return _NAMES[int(np.argmin(delta_e(_TABLE, np.asarray(colour))))]


def vary(name: str, rng: np.random.Generator) -> Rgb:
    """A colour near the named one: hue within 5 degrees, saturation within 0.06, lightness within 0.04, each evenly."""
    h, lightness, s = colorsys.rgb_to_hls(*COLOURS[name])
    d = rng.uniform(-1, 1, 3)
    return colorsys.hls_to_rgb((h + d[0] / 72) % 1, min(1, max(0, lightness + 0.04 * d[1])), min(1, max(0, s + 0.06 * d[2])))
