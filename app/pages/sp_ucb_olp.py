"""The pictures of sp-ucb-olp: reward between two exact rays, then how the learner mixes, prices and spends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

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
    shape, start, end, budgets = event.get("shape"), event.get("y0"), event.get("y1"), params.get("budgets")
    if not (isinstance(shape, str) and shape.startswith(HANDLE) and isinstance(budgets, list | tuple) and _finite(start) and _finite(end)):
        return None
    number = shape.removeprefix(HANDLE)
    if number not in map(str, range(len(budgets))) or not _finite(budgets[int(number)]):
        return None
    # A line held in the middle moves both ends, held near an end that one alone: what counts is the end that moved.
    was = budgets[int(number)]
    moved = max(start, end, key=lambda y: abs(y - was))
    changed = [*budgets]
    changed[int(number)] = min(max(round(float(moved), 3), LEAST), MOST)
    return Changes({"budgets": changed}, run=True)


def _finite(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
