"""What a picture is made of; plain data that says all that the renderer needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backends.runtime.scenes.colours import Rgb

TEXTURES = ("plain", "graded", "striped", "rough", "brick")


@dataclass(frozen=True, slots=True)
class Background:
    """What fills the picture. second: the colour at the other end of a two-colour gradient. named: the caption tells its colour."""

    texture: str
    colour: Rgb
    name: str = ""  # the nearest named colour
    named: bool = False
    second: Rgb | None = None


@dataclass(frozen=True, slots=True)
class Thing:
    """One shape. x, y, radius: shares of the side; angle: degrees clockwise. named: the caption tells its colour."""

    shape: str
    colour: Rgb
    x: float
    y: float
    radius: float
    angle: float = 0.0
    name: str = ""
    named: bool = False


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture in words and numbers. seed: of the texture's random parts."""

    background: Background
    things: tuple[Thing, ...] = ()
    caption: str = ""
    size: int = 64
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Rendered:
    """image: (H, W, 3) uint8. cover: (things, H, W), the share of each pixel that is the thing, what lies in front taken off."""

    image: np.ndarray
    cover: np.ndarray
    caption: str

    @property
    def masks(self) -> np.ndarray:
        """(things, H, W) bool: pixels that are at least half the thing."""
        return self.cover >= 0.5
