"""The tokens of the look: text is readable in light and dark, themes differ for every kind of eye."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

TOKENS = (Path(__file__).parents[3] / "static" / "css" / "tokens.css").read_text(encoding="utf-8")
THEMES = ("uncertainty", "look-inside", "images", "agents", "code", "decisions", "adapt", "worlds")
AA_TEXT, AA_GRAPHIC = 4.5, 3.0
# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB: none, protan, deutan, tritan.
EYES = (
    np.eye(3),
    np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
)
TO_CONES = np.array([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566], [0.0883024619, 0.2817188376, 0.6299787005]])
TO_OKLAB = np.array([[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099], [0.0259040371, 0.7827717662, -0.8086757660]])


def scheme(name: str) -> dict[str, str]:
    """The hexadecimal tokens of "light" or "dark"."""
    blocks = {
        selector: dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", body)) for selector, body in re.findall(r"^(:root|\.dark) \{(.*?)^\}", TOKENS, re.M | re.S)
    }
    return blocks[":root"] | (blocks[".dark"] if name == "dark" else {})


def linear(colour: str) -> np.ndarray:
    rgb = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """WCAG 2 contrast ratio."""
    high, low = sorted((float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def distance(a: str, b: str) -> float:
    """Smallest OKLab distance over the kinds of colour vision."""
    labs = [[TO_OKLAB @ np.cbrt(TO_CONES @ np.clip(eye @ linear(c), 0, 1)) for c in (a, b)] for eye in EYES]
    return min(float(np.linalg.norm(one - other)) for one, other in labs)


@pytest.mark.parametrize("name", ["light", "dark"])
def test_text_has_the_contrast_of_wcag_aa(name: str) -> None:
    tokens = scheme(name)
    words = {"ink", "muted", "warning", *(f"theme-{theme}" for theme in THEMES)}
    faint = {(word, ground): contrast(tokens[word], tokens[ground]) for word in words for ground in ("ground", "surface", "sunken")}
    faint |= {("on-method", f"theme-{theme}"): contrast(tokens["on-method"], tokens[f"theme-{theme}"]) for theme in THEMES}
    faint["ink", "warning-ground"] = contrast(tokens["ink"], tokens["warning-ground"])
    assert {pair: round(ratio, 2) for pair, ratio in faint.items() if ratio < AA_TEXT} == {}


@pytest.mark.parametrize("name", ["light", "dark"])
def test_traces_stand_out_from_the_ground(name: str) -> None:
    tokens = scheme(name)
    faint = {trace: contrast(tokens[trace], tokens["ground"]) for trace in ("truth", "data", "peer-1", "peer-2", "peer-3", "warning")}
    assert {trace: round(ratio, 2) for trace, ratio in faint.items() if ratio < AA_GRAPHIC} == {}


@pytest.mark.parametrize("name", ["light", "dark"])
def test_the_hues_differ_for_colour_blind_eyes(name: str) -> None:
    tokens = scheme(name)
    hues = [*(f"theme-{theme}" for theme in THEMES), "warning", "truth"]
    close = {pair: distance(tokens[pair[0]], tokens[pair[1]]) for pair in itertools.combinations(hues, 2)}
    assert {pair: round(gap, 3) for pair, gap in close.items() if gap < 0.05} == {}
