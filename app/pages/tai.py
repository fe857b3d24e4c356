"""The pictures of tai: a conversation beside the cloud of solutions, its topology, and what each question would tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.dragging import is_number, moved_end, named_place
from app.pages._tai_benchmark import benchmark
from app.pages._tai_chat import answered, chat
from app.pages._tai_cloud import HANDLE, barcode, cloud, diagram, distances
from app.pages._tai_questions import belief, coverage, entropy, gains, table
from app.pages._tai_solutions import choices, leading
from app.plotting import Changes, View, message
from backends.contract import Frame


def views(frame: Frame, params: Any) -> list[View]:
    """What can be drawn of this frame, the main picture first; a picture waits until its data is there."""
    data = frame.data
    if params.mode == "benchmark":
        waiting = message("benchmark", "Questions until the end", "The first dialogues are played", span="main", height=460)
        return benchmark(data) if data.get("benchmark") else [waiting]
    answered_now = len(data.get("transcript", []))
    replayed = bool(params.answers) and answered_now < len(params.answers)
    if "arrived" not in data and ("candidates" not in data or replayed):
        return []  # what was shown stays: an answer must not make the page begin anew
    halves = [choices(data), leading(data), belief(data), barcode(data), diagram(data), entropy(data), gains(data)]
    above: list[View] = [view for view in halves if view is not None]
    below: list[View] = [view for view in (distances(data), coverage(data)) if view is not None]
    if len(above) % 2 and below:  # the table is wide: what stands alone above it would leave a gap
        above.append(below.pop(0))
    questions = table(data, params.selector)
    return [cloud(data, answered_now), chat(frame, params), *above, *([questions] if questions else []), *below]


def on_event(view: str, event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    """A pressed answer joins the answers; a drag or a click on the barcode sets the threshold, which begins the dialogue anew."""
    kind = event.get("type")
    if view == "chat" and kind == "answer":
        return answered(event.get("id"), params.get("answers"))
    if view == "barcode" and kind == "drag":
        return _cut_at(moved_end(event, named_place(event, HANDLE)))
    if view == "barcode" and kind == "click":
        return _cut_at(event.get("customdata"))
    return None


def _cut_at(place: Any) -> Changes | None:
    return Changes({"threshold": round(min(max(float(place), 0.0), 1.0), 4), "answers": []}, run=True) if is_number(place, limit=10) else None
