"""The pictures of mirror-mfld: the cloud over its exact law, the same cloud in the mirror, and what is measured of both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from app.dragging import is_number
from app.pages._mirror_mfld_clouds import HEIGHT, IN_MIRROR, cloud, decision, ring_radius
from app.pages._mirror_mfld_curves import energies, gap, marginals, means, sizes, step_sizes, walls
from app.plotting import Changes, View
from backends.contract import Frame

DIGITS = 3  # of a dragged target
DISC_REACH = 0.98


def views(frame: Frame, params: Any) -> list[View]:
    """What can be drawn of this frame, the main picture first; a picture waits until its data is there."""
    data = frame.data
    if "trace" not in data:
        return []
    halves = [decision(data), walls(data), gap(data, params), energies(data, params), means(data), sizes(data), step_sizes(data)]
    return [cloud(data, params), *[view for view in halves if view is not None], marginals(data)]


def on_event(view: str, event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    """A drag of the ring, or a click in the picture, sets the target q and runs."""
    kind = event.get("type")
    if view != "cloud" or kind not in ("click", "drag") or event.get("trace") == IN_MIRROR or not _has_handle(params):
        return None
    before = _place(params)
    if before is None:
        return None
    place = _dragged_to(event, before, ring_radius(str(params.get("domain", "simplex")))) if kind == "drag" else (event.get("x"), event.get("y"))
    if not all(is_number(v, limit=10) for v in place):
        return None
    return Changes({"q": _target_at(float(place[0]), float(place[1]), params)}, run=True)  # type: ignore[arg-type]


def _has_handle(params: Mapping[str, Any]) -> bool:
    """Whether q is a point of the picture under these params."""
    matrix = params.get("domain") == "spectraplex" and params.get("dimension", 2) != 2
    return params.get("csv") is None and params.get("functional") != "xor-network" and not matrix


def _place(params: Mapping[str, Any]) -> tuple[float, float] | None:
    """Where q stands in the picture; None where the values are no target."""
    q = params.get("q", [0.7, 0.2, 0.1])
    if not isinstance(q, Sequence) or len(q) != 3 or not all(is_number(v, limit=10) for v in q):
        return None
    if params.get("domain", "simplex") != "simplex":
        return float(q[0]), float(q[1])
    return float(q[0]) / 2 + float(q[2]), float(q[0]) * HEIGHT


def _dragged_to(event: Mapping[str, Any], before: tuple[float, float], radius: float) -> tuple[Any, Any]:
    """Where the middle of the ring goes: held near its edge only one side moves, so the side that moved most says how far."""
    place = []
    for axis, was in zip("xy", before, strict=True):
        start, end = event.get(f"{axis}0"), event.get(f"{axis}1")
        if not (is_number(start) and is_number(end)):
            return None, None
        moves = (start + radius - was, end - radius - was)
        place.append(was + max(moves, key=abs))
    return place[0], place[1]


def _target_at(x: float, y: float, params: Mapping[str, Any]) -> list[float]:
    if params.get("domain", "simplex") == "simplex":
        first = y / HEIGHT
        third = x - first / 2
        shares = np.clip([first, 1 - first - third, third], 0.0, 1.0)
        one, two = (round(float(v), DIGITS) for v in shares[:2] / shares.sum())
        return [one, two, round(max(1 - one - two, 0.0), DIGITS)]
    reach = max(abs(x), abs(y)) if params.get("domain") == "box" else math.hypot(x, y)
    scale = min(1.0, DISC_REACH / reach) if reach else 1.0
    return [round(scale * x, DIGITS), round(scale * y, DIGITS), 0.0]
