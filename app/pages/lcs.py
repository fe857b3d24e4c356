"""The pictures of lcs: the pair, what the subspace reads over the steps, its cone, where colour is set, and the peers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from app.dragging import is_number, moved_end
from app.pages._lcs_cone import cone
from app.pages._lcs_curves import film, prediction, schedule
from app.pages._lcs_pair import masks, measured, pair, peers
from app.pages._lcs_words import chips, chosen
from app.plotting import Changes, View
from backends.contract import Frame

LARGEST = 10_000  # no run has as many steps
COLOR = re.compile(r"#[0-9a-f]{6}")


def views(frame: Frame, params: Any) -> list[View]:
    """What can be drawn of this frame, the main picture first; a picture waits until its data is there."""
    data = frame.data
    made: list[View | None] = [
        pair(data, frame.metrics, params),
        prediction(data, params),
        cone(data),
        film(data),
        masks(data, params),
        peers(data, params),
        measured(data, params),
        schedule(data),
        chips(params) if "target" in data else None,
    ]
    return [view for view in made if view is not None]


def on_event(view: str, event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    """A click on a step (or the dragged line) sets when to steer, one on a colour of the cone what is wanted, a chip changes the prompt."""
    kind = event.get("type")
    if view == "prediction" and kind == "click":
        return _steer_at(event.get("x"), params)
    if view == "prediction" and kind == "drag":
        return _steer_at(moved_end(event, params.get("steer_step")), params)
    if view == "film" and kind == "click":
        return _steer_at(event.get("customdata"), params)
    if view == "cone" and kind == "click":
        color = event.get("customdata")
        return _steering({"color": color}, params) if isinstance(color, str) and COLOR.fullmatch(color) else None
    if view == "words" and kind == "click":
        return chosen(event, params)
    if view == "controls" and kind == "upload" and event.get("field") == "picture":
        return Changes({}, run=True)
    return None


def _steer_at(step: Any, params: Mapping[str, Any]) -> Changes | None:
    if not is_number(step):
        return None
    steps = params.get("steps")
    last = int(steps) if is_number(steps) else LARGEST
    # Before the first step no attention could find an object.
    first = 1 if params.get("objects") else 0
    return _steering({"steer_step": min(max(first, round(step)), last)}, params)


def _steering(changes: Mapping[str, Any], params: Mapping[str, Any]) -> Changes:
    """Who chooses a step or a colour wants to see it steered."""
    return Changes({**changes, **({"kind": "blend"} if params.get("kind") == "off" else {})}, run=True)
