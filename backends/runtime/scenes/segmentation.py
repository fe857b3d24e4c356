"""Finds the object of a picture without knowing it: what differs in colour from the picture's border."""

from __future__ import annotations

import numpy as np
from scipy import ndimage
from skimage.color import rgb2lab
from skimage.filters import threshold_otsu

BORDER = 1 / 16  # width of the border, a share of the shorter side


def segment(image: np.ndarray) -> np.ndarray:
    """(H, W) bool: the largest part whose colour is far from the border's median in CIELAB, by Otsu's threshold.

    image: (H, W, 3) uint8. All False when every pixel has the border's colour. Raises ValueError for another shape.
    """
    if image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"the picture has shape {image.shape}, not (H, W, 3)")
    lab = rgb2lab(image)
    width = max(1, round(min(image.shape[:2]) * BORDER))
    edge = np.ones(image.shape[:2], bool)
    edge[width:-width, width:-width] = False
    distance = np.linalg.norm(lab - np.median(lab[edge], axis=0), axis=-1)
    if np.ptp(distance) == 0:
        return np.zeros(image.shape[:2], bool)
    parts, count = ndimage.label(distance > threshold_otsu(distance))
    sizes = np.bincount(parts.ravel(), minlength=count + 1)
    sizes[0] = 0
    return parts == int(sizes.argmax()) if count else np.zeros(image.shape[:2], bool)


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two masks, 0 when both are empty.

    >>> overlap(np.array([True, True]), np.array([True, False]))
    0.5
    """
    union = int((a | b).sum())
    return float((a & b).sum() / union) if union else 0.0
