"""The pictures of plate, made from real runs: what is drawn, what a drag or a click means, that each says what it shows."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import orjson
import plotly.graph_objects as go
import pytest

from app.export import to_plotly
from app.pages import plate as page
from app.plotting import Changes, Figure, Panel, view_json
from backends.contract import ContextSpec, Frame, Params
from backends.registry import get
from backends.runtime.context import RunContext
from backends.validation import validate

METHOD = get("plate")
SMALL: dict[str, Any] = {"data": "moons", "steps": 75}
FIGURES = ["plane", "change", "moons", "ranks", "profile", "energy", "scores", "cosines", "widths", "drift", "controls", "evidence"]


@cache
def ran(**values: Any) -> tuple[Params, tuple[Frame, ...]]:
    params = validate(METHOD.Params, SMALL | values)
    return params, tuple(METHOD.run(params, RunContext(ContextSpec(seed=params.seed))))


@cache
def last(**values: Any) -> dict[str, Any]:
    params, frames = ran(**values)
    return {view.name: view for view in page.views(frames[-1], params)}


def test_a_full_run_has_all_pictures_the_plane_first() -> None:
    made = list(last().values())
    assert [view.name for view in made] == [*FIGURES, "methods"]
    assert (made[0].name, made[0].span) == ("plane", "main")
    assert isinstance(made[-1], Panel)


@pytest.mark.parametrize("name", FIGURES)
def test_plotly_accepts_the_figure_and_its_axes_are_named(name: str) -> None:
    drawn = go.Figure(to_plotly(last()[name]))
    shown = [drawn.layout[a] for a in drawn.layout if a.startswith(("xaxis", "yaxis")) and drawn.layout[a].visible is not False]
    assert shown
    assert all(axis.title.text for axis in shown)


def test_every_streamed_frame_can_be_drawn_and_read_back_and_is_small() -> None:
    params, frames = ran()
    for frame in frames:
        made = page.views(frame, params)
        assert made[0].name == "plane"
        assert len(orjson.dumps([view_json(view) for view in made])) < 300_000
        stored = Frame.from_json(orjson.loads(orjson.dumps(frame.to_json())))
        assert [view.summary for view in page.views(stored, params)] == [view.summary for view in made]


def test_the_trails_can_be_played_together_and_end_where_the_picture_stands() -> None:
    params, frames = ran()
    assert page.views(frames[-2], params)[0].frames is None  # type: ignore[union-attr]
    view = last()["plane"]
    assert [frame["name"] for frame in view.frames] == ["step 0", "step 25", "step 50", "step 75"]
    final = view.frames[-1]
    for part, place in zip(final["data"], final["traces"], strict=True):
        np.testing.assert_array_equal(part["x"], view.traces[place]["x"])
        np.testing.assert_array_equal(part["y"], view.traces[place]["y"])
    names = [view.traces[place]["name"] for place in final["traces"]]
    assert {"PLATE", "PLATE now", "LoRA 16", "full", "head only", "OSF", "EWC, old data", "replay, old data"} <= set(names)


def test_the_title_says_what_the_run_shows() -> None:
    def title(**new: float) -> str:
        trail = {"step": [0, 25, 50], "drift": [], "trainable": 10, "keeps": ""}
        trails = {name: trail | {"new": [0.1, 0.5, new.get(f"{name}_new", 0.98)], "old": [1.0, 1.0, new[name]]} for name in ("plate", "lora", "full", "head")}
        data = {"trails": trails, "points": [], "kind": {"data": "digits", "is_language": False, "lora_rank": 16}}
        return page.views(Frame(0.5, "x", {}, data), None)[0].title

    assert "forgets less than LoRA" in title(plate=0.99, lora=0.9, full=0.95, head=1.0, head_new=0.9)
    assert "does not forget less" in title(plate=0.92, lora=0.9, full=0.95, head=1.0, head_new=0.9)
    assert "Too little may move" in title(plate=1.0, lora=0.9, full=0.95, head=1.0, head_new=0.9, plate_new=0.91)


def test_language_is_drawn_in_perplexities_with_better_to_the_upper_right() -> None:
    trail = {"step": [0, 5], "new": [0.1, 0.2], "old": [0.3, 0.3], "drift": [], "new_perplexity": [300.0, 200.0], "old_perplexity": [44.0, 46.0]}
    data = {"trails": {"plate": trail | {"trainable": 5, "keeps": ""}}, "points": [], "kind": {"data": "language", "is_language": True, "lora_rank": 16}}
    view = page.views(Frame(0.5, "x", {}, data), None)[0]
    assert isinstance(view, Figure)
    for axis in ("xaxis", "yaxis"):
        first, second = view.layout[axis]["range"]
        assert first > second, "a lower perplexity is better"
    assert "PLATE 200 new, 46.0 old" in view.summary


def test_the_fence_can_be_dragged() -> None:
    shape = next(s for s in last()["energy"].layout["shapes"] if s["name"] == "tau")
    assert (shape["y0"], shape["editable"], last()["energy"].layout["meta"]["editable"]) == (0.8, True, True)
    assert page.on_event("energy", {"type": "drag", "shape": "tau", "y0": 0.6, "y1": 0.6}, {"energy": 0.8}) == Changes({"energy": 0.6}, run=True)
    assert page.on_event("energy", {"type": "drag", "shape": "tau", "y0": 0.8, "y1": 0.9}, {"energy": 0.8}) == Changes({"energy": 0.9}, run=True)
    assert page.on_event("energy", {"type": "drag", "shape": "tau", "y0": 7, "y1": 7}, {"energy": 0.8}) == Changes({"energy": 0.99}, run=True)
    assert page.on_event("energy", {"type": "drag", "shape": "fence", "y0": 0.6, "y1": 0.6}, {}) is None


def test_a_point_of_the_dial_sets_the_rows() -> None:
    assert list(next(t for t in last()["ranks"].traces if t["name"] == "forgotten")["x"]) == [8, 32, 128]
    assert page.on_event("ranks", {"type": "click", "x": 128.0}, {}) == Changes({"rank": 128}, run=True)
    assert page.on_event("ranks", {"type": "click", "x": "a"}, {}) is None
    assert page.on_event("plane", {"type": "click", "x": 1.0}, {}) is None


def test_the_map_of_the_change_says_what_lies_behind_the_fence() -> None:
    texts = [note["text"] for note in last()["change"].layout["annotations"]]
    assert texts[0] == "PLATE: nothing of its change is behind the fence"
    assert texts[1].startswith("LoRA 16: ")
    assert "nothing" not in texts[1]
