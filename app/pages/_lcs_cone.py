"""The subspace itself: the double cone of black, white and the hues, and the tokens that contract onto it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.plotting import Figure, Trace, alpha, floats

HUES = ("red", "green", "blue", "yellow", "magenta", "cyan")  # anchors 0 to 5; 6 is black, 7 white
RING = (0, 3, 1, 5, 2, 4, 0)  # the anchors by hue: R Y G C B M and back
BLACK, WHITE = 6, 7
TOKENS = 256  # of a person's picture, at most
ROOM = 1.25  # of the anchors' reach: noisy tokens further out are not drawn
PATHS = (("sampling", "unsteered mean", "$data"), ("steering", "steered mean", "$method"))
ASIDE, ABOVE = 1.65, 1.0  # where the eye is, seen from the middle, in widths of the scene


def cone(data: Mapping[str, Any]) -> Figure | None:
    """Anchors, solids, and the tokens of the newest step as dots; frames hold the earlier steps."""
    found = data.get("cone")
    if found is None:
        return None
    anchors = floats(found["anchors"])
    reach = ROOM * float(np.abs(anchors - _centre(anchors)).max())
    still = [_edges(anchors), _solids(found), _anchors(anchors, found["anchor_colors"]), _target(data["target"])]
    frames = _frames(data, len(still))
    tokens = frames[-1]["data"] if frames else [_own_tokens(data)] if "cloud" in data else []
    # The tokens keep their place among the traces while paths come in: the browser changes a trace in place.
    paths = [_path(data[key], name, colour, anchors, reach) for key, name, colour in PATHS if key in data]
    traces = [*still, *tokens, *paths]
    scene = {name: _axis(k, anchors, reach) for k, name in enumerate(("xaxis", "yaxis", "zaxis"))}
    plot = {
        "scene": {**scene, "aspectmode": "cube", "camera": _camera(anchors), "dragmode": "orbit", "uirevision": "kept"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0},
        "showlegend": False,
        "uirevision": "keep",
    }
    said = f"Three directions hold {found['explained']:.1%} of how {len(found['solid_colors'])} solid colours differ; hues stand around black to white."
    said += " Dots are tokens; click a colour to want it, turn the cone by dragging." if tokens else " Click a colour to want it."
    return Figure("cone", "The colour cone in the latent space", traces, plot, said, frames=frames or None, height=400)


def _centre(anchors: np.ndarray) -> np.ndarray:
    return np.asarray((anchors.max(0) + anchors.min(0)) / 2)


def _axis(k: int, anchors: np.ndarray, reach: float) -> dict[str, Any]:
    middle = float(_centre(anchors)[k])
    title = {"text": f"axis {k + 1} (latent units)", "font": {"size": 11, "color": "$muted"}}
    return {"title": title, "range": [middle - reach, middle + reach], "nticks": 3}


def _camera(anchors: np.ndarray) -> dict[str, Any]:
    """White above black, red at one side: as a colour cone is usually drawn, whatever the signs of the axes."""
    up = anchors[WHITE] - anchors[BLACK]
    up = up / (np.linalg.norm(up) or 1.0)
    red = anchors[0] - _centre(anchors)
    aside = np.cross(up, red)
    eye = ASIDE * aside / (np.linalg.norm(aside) or 1.0) + ABOVE * up
    return {name: dict(zip("xyz", vector.tolist(), strict=True)) for name, vector in (("up", up), ("eye", eye))}


def _dots(points: np.ndarray, name: str, marker: Mapping[str, Any], hover: str, **more: Any) -> Trace:
    x, y, z = np.asarray(points, np.float32).T
    trace = {"type": "scatter3d", "mode": "markers", "x": x, "y": y, "z": z, "name": name, "marker": dict(marker)}
    return trace | {"hovertemplate": hover + "<extra></extra>"} | more


def _edges(anchors: np.ndarray) -> Trace:
    """The ring of the hues, the axis, and from each hue to black and to white, as one line."""
    ring = [anchors[k] for k in RING]
    gap = np.full(3, np.nan)
    spokes = [point for k in range(len(HUES)) for point in (gap, anchors[BLACK], anchors[k], anchors[WHITE])]
    x, y, z = np.array([*ring, gap, anchors[BLACK], anchors[WHITE], *spokes], np.float32).T
    style = {"color": "$muted", "width": 1.5}
    return {"type": "scatter3d", "mode": "lines", "x": x, "y": y, "z": z, "name": "cone", "line": style, "opacity": 0.4, "hoverinfo": "skip"}


def _solids(found: Mapping[str, Any]) -> Trace:
    colors = list(found["solid_colors"])
    marker = {"size": 3, "color": colors, "opacity": 0.55, "line": {"width": 0}}
    return _dots(floats(found["solids"]), "solids", marker, "solid %{customdata}", customdata=colors)


def _anchors(anchors: np.ndarray, colors: list[str]) -> Trace:
    marker = {"size": 9, "color": list(colors), "line": {"width": 1, "color": "$ink"}}
    words = {"mode": "markers+text", "text": [*HUES, "black", "white"], "textposition": "top center", "textfont": {"color": "$muted", "size": 11}}
    return _dots(anchors, "anchors", marker, "anchor %{text}", customdata=list(colors), **words)


def _target(target: Mapping[str, Any]) -> Trace:
    marker = {"size": 9, "symbol": "diamond", "color": [target["color"]], "line": {"width": 2, "color": "$ink"}}
    words = {"mode": "markers+text", "text": ["wanted"], "textposition": "bottom center", "textfont": {"color": "$ink", "size": 12}}
    return _dots(floats(target["coordinates"])[None], "wanted", marker, "wanted %{customdata}", customdata=[target["color"]], **words)


def _path(run: Mapping[str, Any], name: str, colour: str, anchors: np.ndarray, reach: float) -> Trace:
    """Where the mean of the tokens was, step by step; what lies outside the drawn space is left out."""
    means = floats(run["mean"])
    inside = (np.abs(means - _centre(anchors)) <= reach).all(1)
    steps = [int(step) for step, shown in zip(run["step"], inside, strict=True) if shown]
    marker = {"size": 3.5, "color": colour}
    style = {"mode": "lines+markers", "line": {"color": colour, "width": 5}}
    return _dots(means[inside], name, marker, name + " after step %{text}", text=steps, **style)


def _own_tokens(data: Mapping[str, Any]) -> Trace:
    """Those of a person's picture."""
    tokens, preview = floats(data["cloud"]), np.asarray(data["lcs"], np.uint8).reshape(-1, 3)
    thin = -(-len(tokens) // TOKENS)
    return _tokens(tokens[::thin], preview[::thin])


def _frames(data: Mapping[str, Any], place: int) -> list[dict[str, Any]]:
    """One animation frame a drawn step: the unsteered tokens up to the steer step, from there the steered ones."""
    runs: dict[int, tuple[str, Any, Any]] = {}
    for key, name in (("sampling", "step"), ("steering", "steered, step")):
        if key in data:
            if key == "steering":
                runs = {step: found for step, found in runs.items() if step < int(data["steer"]["step"])}
            run = data[key]
            runs |= {int(step): (f"{name} {int(step)}", cloud, lcs) for step, cloud, lcs in zip(run["step"], run["cloud"], run["lcs"], strict=True)}
    return [{"name": runs[step][0], "data": [_tokens(*runs[step][1:])], "traces": [place]} for step in sorted(runs)]


def _tokens(cloud: Any, preview: Any) -> Trace:
    colors = ["#" + bytes(rgb).hex() for rgb in np.asarray(preview, np.uint8).reshape(-1, 3)]
    marker = {"size": 5, "color": colors, "line": {"width": 1, "color": alpha("$ink", 0.6)}}
    return _dots(floats(cloud), "tokens", marker, "token, read as %{marker.color}")
