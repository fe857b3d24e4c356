"""The pictures of plate: the plane of old and new task, what changed in the weights, and what the weights decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.dragging import is_number, moved_end
from app.pages import _plate_change as change
from app.pages import _plate_choice as choice
from app.pages._plate_plane import plane
from app.plotting import Changes, View
from backends.contract import Frame

LOWEST_TAU, HIGHEST_TAU = 0.05, 0.99  # that a drag can choose
MOST_ROWS = 230


def views(frame: Frame, params: Any) -> list[View]:
    """What can be drawn of this frame, the main picture first; a picture waits until its data is there."""
    data = frame.data
    if not data.get("trails"):
        return [plane(data, animated=False), *_chosen(data)]
    made: list[View | None] = [
        plane(data, animated=frame.progress == 1),
        change.change(data),
        change.moons(data),
        choice.ranks(data),
        change.profile(data),
        *_chosen(data),
        change.drift(data),
        choice.controls(data),
        change.evidence(data),
        choice.table(data),
    ]
    return [view for view in made if view is not None]


def _chosen(data: Mapping[str, Any]) -> list[View]:
    """What the weights alone decide: known before anything is trained."""
    if "shown" not in data:
        return []
    return [choice.energy(data), choice.scores(data), choice.cosines(data), choice.widths(data)]


def on_event(view: str, event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    """The line τ dragged sets the fence; a point of the dial clicked sets the number of rows; both start a run."""
    if view == "energy" and event.get("type") == "drag" and event.get("shape") == "tau":
        moved = moved_end(event, params.get("energy"), along="y")
        return None if moved is None else Changes({"energy": round(min(max(moved, LOWEST_TAU), HIGHEST_TAU), 2)}, run=True)
    rank = event.get("x")
    if view == "ranks" and event.get("type") == "click" and is_number(rank):
        return Changes({"rank": min(max(round(rank), 1), MOST_ROWS)}, run=True)
    return None
