"""The pictures of sp-ucb-olp: reward between two exact rays, then how the learner mixes, prices and spends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.dragging import is_number, moved_end
from app.pages._sp_ucb_olp_admission import HANDLE, objective, requests, spending
from app.pages._sp_ucb_olp_learning import left, mixture, prices, radius
from app.pages._sp_ucb_olp_reward import ratios, reward
from app.plotting import Changes, View
from backends.contract import Frame

LEAST, MOST = 0.02, 0.6  # reach of a budget


def views(frame: Frame, params: Any) -> list[View]:
    """What can be drawn of this frame, the main picture first; a picture waits until its data is there."""
    data = frame.data
    if "oracle" not in data:
        return []
    made: list[View | None] = [
        reward(data, frame.metrics),
        mixture(data),
        spending(data),
        prices(data),
        left(data),
        ratios(data),
        requests(data),
        objective(data),
        radius(data),
    ]
    return [view for view in made if view is not None]


def on_event(view: str, event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    """A budget that is dragged starts a run with it; an uploaded trace becomes the workload."""
    kind = event.get("type")
    if view == "controls" and kind == "upload" and event.get("field") == "trace":
        return Changes({"preset_instance": "trace", "configurations": 3}, run=True)
    if view == "spending" and kind == "drag":
        return _dragged(event, params)
    return None


def _dragged(event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    shape, budgets = event.get("shape"), params.get("budgets")
    if not (isinstance(shape, str) and shape.startswith(HANDLE) and isinstance(budgets, list | tuple)):
        return None
    number = shape.removeprefix(HANDLE)
    if number not in map(str, range(len(budgets))) or not is_number(budgets[int(number)]):
        return None
    moved = moved_end(event, budgets[int(number)], along="y")
    if moved is None:
        return None
    changed = [*budgets]
    changed[int(number)] = min(max(round(float(moved), 3), LEAST), MOST)
    return Changes({"budgets": changed}, run=True)
