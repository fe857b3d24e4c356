"""The pictures of voronoi-pc: cells and boxes with the bounds beside them, then what the bounds are good for."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from app.dragging import is_number, moved_end, named_place
from app.pages._voronoi_pc_curves import HIGH_END, KNOWN, LOW_END, bounds, conditional, curse, likelihood, marginal
from app.pages._voronoi_pc_peers import hold, peers, samples, table, training
from app.pages._voronoi_pc_plane import HANDLE, plane
from app.plotting import Changes, Figure, View
from backends.contract import Frame
from backends.voronoi_pc.card import MAX_CELLS
from backends.voronoi_pc.conditions import EVERYTHING, parse, text_of

FARTHEST = 50.0  # of a coordinate
MANY = 999  # variables; how many there are is checked when the run reads the text
_GIVEN = re.compile(r"x\s*1\s*=\s*[^,\s]+", re.IGNORECASE)


def views(frame: Frame, params: Any) -> list[View]:
    """What can be drawn of this frame, the main picture first; a picture waits until its data is there."""
    data, metrics = frame.data, frame.metrics
    if "plane" not in data:
        return []
    halves = [
        bounds(data, params),
        likelihood(data, metrics),
        marginal(data, params),
        conditional(data, params),
        curse(data),
        peers(data, metrics),
        samples(data, params),
        training(data, params),
    ]
    drawn: list[Figure] = [view for view in halves if view is not None]
    if len(drawn) % 2:  # the last would stand alone
        drawn[-1] = replace(drawn[-1], span="wide")
    panels = [panel for panel in (hold(data, params), table(data, params)) if panel is not None]
    return [plane(data, params), *drawn, *panels]


def on_event(view: str, event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    """A drag moves a centroid, the evidence or the event; a chip or a typed cell the centroids; a file is the data."""
    kind = event.get("type")
    if view == "plane" and kind == "drag":
        return _moved_centroid(event)
    if view == "marginal" and kind == "drag":
        return _moved_evidence(event, str(params.get("evidence", "")))
    if view == "conditional" and kind == "drag":
        return _moved_event(event, str(params.get("event", "")))
    if view == "hold" and kind == "click":
        return _held(event.get("id"))
    if view == "centroids" and kind == "edit":
        return _typed(event, params.get("centroids"))
    if view == "controls" and kind == "upload" and event.get("field") == "csv":
        return Changes({"data": "csv", "centroids": []}, run=True)
    return None


def _place(value: float) -> float:
    return round(min(max(float(value), -FARTHEST), FARTHEST), 3)


def _moved_centroid(event: Mapping[str, Any]) -> Changes | None:
    """The handle's name holds all coordinates; the end that lies farther from where it was is where the hand let go."""
    name, ends = event.get("shape"), [event.get(key) for key in ("x0", "y0", "x1", "y1")]
    found = re.fullmatch(rf"{HANDLE} (\d{{1,3}}) ([-\d.,;]+)", name) if isinstance(name, str) else None
    if found is None or not all(is_number(v) for v in ends):
        return None
    try:
        places = [[float(v) for v in pair.split(",")] for pair in found[2].split(";")]
    except ValueError:
        return None
    at = int(found[1])
    if at >= len(places) or len(places) > MAX_CELLS or any(len(pair) != 2 for pair in places):
        return None
    x0, y0, x1, y1 = (float(v) for v in ends if is_number(v))
    places[at] = list(max((x0, y0), (x1, y1), key=lambda end: math.dist(end, places[at])))
    return Changes({"centroids": [_place(v) for pair in places for v in pair]}, run=True)


def _moved_evidence(event: Mapping[str, Any], text: str) -> Changes | None:
    before = named_place(event, KNOWN)
    place = None if before is None else moved_end(event, before)
    if place is None or not _GIVEN.search(text):
        return None
    return Changes({"evidence": _GIVEN.sub(f"x1 = {_place(place):g}", text, count=1)}, run=True)


def _moved_event(event: Mapping[str, Any], text: str) -> Changes | None:
    for side, name in enumerate((LOW_END, HIGH_END)):
        before = named_place(event, name)
        place = None if before is None else moved_end(event, before)
        words = str(event.get("shape")).split(" ")
        if place is None or len(words) != 3 or not words[1].isdecimal() or len(words[1]) > 3:
            continue
        try:
            spans = dict(parse(text, MANY).between)
        except ValueError:
            return None
        variable = int(words[1])
        ends = list(spans.get(variable, EVERYTHING))
        ends[side] = _place(place)
        if not ends[0] < ends[1]:
            return None
        return Changes({"event": text_of({**spans, variable: (ends[0], ends[1])})}, run=True)
    return None


def _held(chip: Any) -> Changes | None:
    try:
        given = orjson.loads(chip)
    except (orjson.JSONDecodeError, TypeError):
        return None
    places = given.get("hold") if isinstance(given, dict) else None
    if not isinstance(places, list) or len(places) > 2 * MAX_CELLS or len(places) % 2 or not all(is_number(v) for v in places):
        return None
    return Changes({"centroids": [_place(v) for v in places]}, run=True)


def _typed(event: Mapping[str, Any], now: Any) -> Changes | None:
    row, column, value = event.get("row"), event.get("column"), event.get("value")
    if not (isinstance(now, list | tuple) and isinstance(row, int) and isinstance(column, int) and is_number(value)):
        return None
    at = 2 * row + column - 1
    if column not in (1, 2) or isinstance(row, bool) or not 0 <= at < len(now):
        return None
    places = list(now)
    places[at] = _place(value)
    return Changes({"centroids": places}, run=True)
