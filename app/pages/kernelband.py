"""The pictures of kernelband: a search attempt by attempt, a comparison of policies, or static facts where nothing can be timed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.dragging import moved_end
from app.pages import _kernelband_compare as compare
from app.pages import _kernelband_frontier as frontier
from app.pages import _kernelband_texts as texts
from app.pages._kernelband_search import best_so_far
from app.plotting import Changes, View
from backends.contract import Frame

LOWEST, HIGHEST = 1.0, 100.0  # % of peak: the reach of a threshold


def views(frame: Frame, params: Any) -> list[View]:
    """What can be drawn of this frame, the main picture first; a picture waits until its data is there."""
    data, metrics = frame.data, frame.metrics
    mode = data.get("mode")
    if mode == "compare":
        return _compared(data, params)
    if mode == "survey":
        return _surveyed(data, params)
    return _searched(data, metrics, params)


def _searched(data: Mapping[str, Any], metrics: Mapping[str, Any], params: Any) -> list[View]:
    if "attempts" not in data:
        return []
    made: list[View | None] = [
        best_so_far(data, metrics, params),
        frontier.family(data, params.rounds),
        frontier.headroom(data, params),
        texts.edit(data, params),
        texts.journey(data, params),
        texts.verdict(data),
        texts.counters(data, params),
        frontier.roofline(data),
        frontier.features(data),
        texts.task(data),
    ]
    return [view for view in made if view is not None]


def _compared(data: Mapping[str, Any], params: Any) -> list[View]:
    if "landscape" not in data:
        return []
    main = compare.curves(data, params)
    if "policies" not in data:
        return [main]
    return [main, compare.last_values(data), compare.spent(data), compare.table(data)]


def _surveyed(data: Mapping[str, Any], params: Any) -> list[View]:
    if "rows" not in data:
        return []
    made: list[View | None] = [texts.survey(data), texts.edit(data, params), texts.machine_code(data), texts.said_of_survey(data), texts.counters(data, params)]
    return [view for view in made if view is not None]


def on_event(view: str, event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    """A threshold that is dragged starts a search with it."""
    field = event.get("shape")
    if view != "headroom" or event.get("type") != "drag" or field not in frontier.THETA_FIELDS:
        return None
    moved = moved_end(event, params.get(field), along="y")
    return None if moved is None else Changes({field: float(min(max(round(moved), LOWEST), HIGHEST))}, run=True)
