"""The pictures of stla: a matrix rounded cluster by cluster, what each cluster costs, and all methods side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.pages import _stla_compare as compare
from app.pages import _stla_sweep as inside
from app.plotting import Changes, View
from backends.contract import Frame
from backends.stla.example import CANDIDATES


def views(frame: Frame, params: Any) -> list[View]:
    """What can be drawn of this frame, the main picture first; a picture waits until its data is there."""
    data = frame.data
    if "example" not in data:
        return []
    made: list[View | None] = [
        inside.sweep(data, params),
        compare.losses(data, params),
        compare.perplexity(data),
        compare.judged(data),
        compare.example(data),
        inside.learning(data),
        inside.soft(data),
        inside.cumulative(data, params),
        compare.bits(data),
        compare.orders(data),
        compare.whole(data),
    ]
    return [view for view in made if view is not None]


def on_event(view: str, event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    """A click on a group of the example rounds its two weights that way."""
    place = event.get("x")
    if view != "example" or event.get("type") != "click" or isinstance(place, bool) or not isinstance(place, int | float):
        return None
    if not -0.5 < place < len(CANDIDATES) - 0.5:
        return None
    return Changes({"by_hand": CANDIDATES[round(place)]}, run=True)
