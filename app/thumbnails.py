"""Thumbnails for the gallery: the main picture of a real run as a small SVG, drawn without a browser.

An SVG in an ``<img>`` cannot see the page's light or dark switch, so its colours are mid tones that read on both.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from app.pages import load
from app.plotting import Figure, Trace
from backends import registry
from backends.contract import Frame
from backends.runtime import folders

WIDTH, HEIGHT, INSET = 320, 180, 6  # px
LINE_POINTS, MARKERS = 80, 100  # a thumbnail is a few kB; more would not be seen
NEUTRALS = {
    "truth": "#7d8590",
    "peer-1": "#8b93a0",
    "peer-2": "#a0a7b2",
    "peer-3": "#b0b6bf",
    "warning": "#d9622b",
    "data": "#858d99",
    "ink": "#7d8590",
    "grid": "#9aa1ab",
    "muted": "#9aa1ab",
}
DASHES = {"dash": "5 4", "dot": "1.5 3", "dashdot": "5 3 1.5 3", "longdash": "8 4", "longdashdot": "8 3 1.5 3"}
Scale = tuple[float, float, bool]  # low, high, log


def write(slug: str, frame: Frame, params: Any) -> Path:
    """Draws the main picture of a run into the cache folder; raises LookupError when it has no figure to draw."""
    figures = [v for v in load(slug).views(frame, params) if isinstance(v, Figure)]
    if not figures:
        raise LookupError(f"this frame of {slug} has no figure to draw")
    card = registry.get(slug).card
    path = _path(slug)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(svg(figures[0], card.theme, card.title), encoding="utf-8")
    part.replace(path)  # a reader never sees half a file
    return path


def read(slug: str) -> bytes | None:
    """The thumbnail of a method, or None when none was drawn yet."""
    path = _path(slug) if re.fullmatch(r"[a-z0-9-]+", slug) else None
    return path.read_bytes() if path is not None and path.is_file() else None


def _path(slug: str) -> Path:
    return folders.cache() / "thumbnails" / f"{slug}.svg"


@cache
def hue(theme: str) -> str:
    """Half way between the theme's hues for light and dark in the lab's stylesheet: it reads on both grounds."""
    css = (folders.ROOT / "static" / "css" / "tokens.css").read_text(encoding="utf-8")
    found = re.findall(rf"--theme-{re.escape(theme)}:\s*#([0-9a-fA-F]{{6}})", css)
    if len(found) < 2:
        raise LookupError(f"the stylesheet has no --theme-{theme} for light and dark")
    light, dark = (np.frombuffer(bytes.fromhex(value), np.uint8).astype(int) for value in found[:2])
    return "#" + bytes(((light + dark) // 2).astype(np.uint8)).hex()


def svg(figure: Figure, theme: str, title: str) -> str:
    """The traces of a figure on its first pair of axes, as SVG text without labels."""
    traces = [t for t in figure.traces if t.get("yaxis", "y") == "y" and np.size(t.get("x", ())) and np.size(t.get("y", ()))]
    x_scale = _scale(figure.layout.get("xaxis", {}), (t["x"] for t in traces))
    y_scale = _scale(figure.layout.get("yaxis", {}), (t["y"] for t in traces))
    drawn = "".join(_draw(t, x_scale, y_scale, hue(theme)) for t in traces)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{html.escape(title)}</title>'
        f'<defs><clipPath id="plot"><rect width="{WIDTH}" height="{HEIGHT}"/></clipPath></defs><g clip-path="url(#plot)">{drawn}</g></svg>'
    )


def _scale(axis: Mapping[str, Any], values: Iterable[Any]) -> Scale:
    log = axis.get("type") == "log"
    if "range" in axis:  # plotly gives the range of a log axis in decades, as drawn here
        return float(axis["range"][0]), float(axis["range"][1]), log
    joined = _place(np.concatenate([np.asarray(v, float).ravel() for v in values] or [np.array([0.0, 1.0])]), log)
    finite = joined[np.isfinite(joined)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    return (low, high, log) if high > low else (low - 0.5, high + 0.5, log)


def _place(values: np.ndarray, log: bool) -> np.ndarray:
    return np.log10(np.where(values > 0, values, np.nan)) if log else values


def _pixels(values: Any, scale: Scale, size: int, *, flip: bool) -> np.ndarray:
    low, high, log = scale
    share = (_place(np.asarray(values, float), log) - low) / (high - low)
    return INSET + (size - 2 * INSET) * ((1 - share) if flip else share)


def _draw(trace: Trace, x_scale: Scale, y_scale: Scale, method: str) -> str:
    x, y = _pixels(trace["x"], x_scale, WIDTH, flip=False), _pixels(trace["y"], y_scale, HEIGHT, flip=True)
    if trace["type"] == "bar":
        return _bars(trace, x, y, float(_pixels(0.0, y_scale, HEIGHT, flip=True)), method)
    parts = []
    if "fill" in trace:
        parts.append(f'<path d="{_outline(x, y)}Z" {_paint("fill", trace["fillcolor"], method)}/>')
    style = trace.get("line", {})
    if "lines" in trace.get("mode", "") and style.get("width"):
        dash = f' stroke-dasharray="{DASHES[style["dash"]]}"' if style.get("dash") in DASHES else ""
        parts.append(f'<path d="{_outline(x, y)}" fill="none" {_paint("stroke", style["color"], method)} stroke-width="{style["width"]:g}"{dash}/>')
    if "markers" in trace.get("mode", ""):
        parts.append(_markers(trace["marker"], x, y, method))
    return "".join(parts)


def _outline(x: np.ndarray, y: np.ndarray) -> str:
    """The path of a line; NaN lifts the pen."""
    step = max(1, math.ceil(x.size / LINE_POINTS))
    lifted = np.isnan(x) | np.isnan(y)
    kept = np.unique(np.concatenate([np.arange(0, x.size, step), [x.size - 1], np.flatnonzero(lifted)]))
    path, pen = [], "M"
    for i in kept:
        if lifted[i]:
            pen = "M"
            continue
        path.append(f"{pen}{x[i]:.1f} {y[i]:.1f}")
        pen = "L"
    return "".join(path)


def _markers(marker: Mapping[str, Any], x: np.ndarray, y: np.ndarray, method: str) -> str:
    step = max(1, math.ceil(x.size / MARKERS))
    radius, symbol = 0.36 * marker["size"], str(marker["symbol"])
    visible = [(a, b) for a, b in zip(x[::step], y[::step], strict=True) if math.isfinite(a) and math.isfinite(b)]
    if not visible:
        return ""
    if symbol.startswith("triangle"):
        up = -radius if symbol.startswith("triangle-up") else radius
        shape = f"m0 {1.3 * up:.1f}l{radius:.1f} {-2 * up:.1f}h{-2 * radius:.1f}z"
        return f'<path d="{"".join(f"M{a:.1f} {b:.1f}{shape}" for a, b in visible)}" {_paint("fill", marker["color"], method)}/>'
    # A line of no length with round ends is a dot, in a third of the bytes of a circle; open symbols become smaller dots.
    dots, width = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in visible), radius * (1.2 if symbol.endswith("open") else 2)
    return f'<path d="{dots}" {_paint("stroke", marker["color"], method)} stroke-width="{width:.1f}" stroke-linecap="round"/>'


def _bars(trace: Trace, x: np.ndarray, y: np.ndarray, zero: float, method: str) -> str:
    wide = 0.8 * (float(np.diff(np.sort(x)).min()) if x.size > 1 else WIDTH / 4)
    path = "".join(f"M{a - wide / 2:.1f} {zero:.1f}V{b:.1f}h{wide:.1f}V{zero:.1f}z" for a, b in zip(x, y, strict=True) if math.isfinite(b))
    return f'<path d="{path}" {_paint("fill", trace["marker"]["color"], method)}/>'


def _paint(what: str, token: str, method: str) -> str:
    name, _, opacity = token.removeprefix("$").partition("/")
    colour = method if name == "method" else hue(name.removeprefix("theme-")) if name.startswith("theme-") else NEUTRALS[name]
    return f'{what}="{colour}"' + (f' {what}-opacity="{opacity}"' if opacity else "")
