"""The pictures of parallel-probe, made from real runs: what is drawn, what a drag or a click means, that each says what it shows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import orjson
import plotly.graph_objects as go
import pytest

from app.export import to_plotly
from app.pages import parallel_probe as page
from app.pages._parallel_probe_matrix import RIGHT, palette
from app.plotting import Changes, Figure, Panel, view_json
from backends.contract import ContextSpec, Frame, Params
from backends.registry import get
from backends.runtime.context import RunContext
from backends.validation import validate

METHOD = get("parallel-probe")
FIGURES = ["matrix", "crowd", "tokens", "frontier", "surface", "onsets"]
TRACE: dict[str, Any] = {"source": "pool", "branches": 5, "stable": 3, "prune": 2, "warmup": 2}
MANY: dict[str, Any] = {"source": "synthetic", "branches": 16, "questions": 12}


@cache
def ran(name: str) -> tuple[Params, tuple[Frame, ...]]:
    params = validate(METHOD.Params, {"trace": TRACE, "many": MANY, "live": {"branches": 6, "leaves": 4}}[name])
    return params, tuple(frame.sealed() for frame in METHOD.run(params, RunContext(ContextSpec(seed=params.seed))))


def views_of(name: str, number: int = -1) -> dict[str, Any]:
    params, frames = ran(name)
    return {view.name: view for view in page.views(frames[number], params)}


def trace(view: Figure, name: str) -> Mapping[str, Any]:
    return next(t for t in view.traces if t["name"] == name)


@pytest.mark.parametrize(("name", "more"), [("trace", ["peers"]), ("many", ["peers"]), ("live", ["branch", "peers"])])
def test_a_full_run_has_all_pictures_the_matrix_first(name: str, more: list[str]) -> None:
    made = views_of(name)
    assert list(made) == [*FIGURES, *more]
    assert made["matrix"].span == "main"
    assert isinstance(made["peers"], Panel)


@pytest.mark.parametrize("view", FIGURES)
def test_plotly_accepts_the_figure_and_its_axes_are_named(view: str) -> None:
    drawn = go.Figure(to_plotly(views_of("many")[view]))
    shown = [drawn.layout[a] for a in drawn.layout if a.startswith(("xaxis", "yaxis")) and drawn.layout[a].visible is not False]
    assert shown
    assert all(axis.title.text for axis in shown)


@pytest.mark.parametrize("name", ["trace", "live"])
def test_every_streamed_frame_can_be_drawn_and_read_back(name: str) -> None:
    params, frames = ran(name)
    for frame in frames:
        made = page.views(frame, params)
        assert made[0].name == "matrix"
        orjson.dumps([view_json(view) for view in made])
        stored = Frame.from_json(orjson.loads(orjson.dumps(frame.to_json())))
        assert [view.summary for view in page.views(stored, params)] == [view.summary for view in made]


def test_nothing_is_drawn_of_nothing() -> None:
    assert page.views(Frame(0.0, "loading"), ran("trace")[0]) == []


def test_the_pictures_are_small() -> None:
    assert len(orjson.dumps([view_json(view) for view in views_of("many").values()])) < 250_000


def test_the_matrix_shows_the_worked_trace() -> None:
    view = views_of("trace")["matrix"]
    answer, cut, after = (np.isfinite(trace(view, name)["z"]) for name in ("answer", "cut, would say", "after the stop"))
    assert answer.sum(1).tolist() == [5, 6, 6, 5, 5], "rows by length: what was spent before the cut and the stop"
    assert cut.sum(1).tolist() == [0, 0, 0, 4, 6], "the two that disagreed go grey"
    assert after.sum(1).tolist() == [0, 0, 1, 0, 0]
    assert not (answer & cut).any()
    stop = next(shape for shape in view.layout["shapes"] if shape["name"] == "stop")
    assert stop["x0"] == 6.5, "after the probe of step 4, the sixth"
    assert not stop["editable"]
    assert trace(view, "vote")["customdata"] == [["b", "c", "c", "c", "c"]]
    assert "The vote says c, which is right" in view.summary
    assert "2 branches were cut, 1 of which would have come out right" in view.summary


def test_the_right_answer_is_red_and_no_other() -> None:
    found = ran("many")[1][-1].data["matrix"]
    colours = palette(found)
    assert [name for name, colour in zip(found["names"], colours, strict=True) if colour == RIGHT] == ["right"]
    unknown = {**found, "gold": None}
    assert RIGHT not in palette(unknown)


def test_a_digit_keeps_its_colour_while_the_matrix_grows() -> None:
    seen: dict[str, set[str]] = {}
    for frame in ran("live")[1]:
        found = frame.data["matrix"]
        for name, colour in zip(found["names"], palette(found), strict=True):
            seen.setdefault(name, set()).add(colour)
    assert all(len(colours) == 1 for colours in seen.values())
    assert len({next(iter(colours)) for colours in seen.values()}) == len(seen), "no two digits share one"


def test_the_columns_come_one_after_the_other() -> None:
    widths = [frame.data["matrix"]["codes"].shape[1] for frame in ran("live")[1] if not frame.data["matrix"]["over"]]
    assert widths == sorted(widths)
    assert widths[:3] == [1, 2, 3]
    first = views_of("live", 0)["matrix"]
    assert "never voted on" in first.summary


def test_the_bars_say_what_is_saved() -> None:
    view = views_of("trace")["tokens"]
    assert [list(bar["y"]) for bar in view.traces] == [[3000, 5800], [13_750, 19_950]]
    assert "48% saved" in view.layout["annotations"][0]["text"]
    assert "narrow" in view.layout["meta"]


def test_the_frontier_names_every_method_and_says_whose_questions_it_shows() -> None:
    own, companion = views_of("many")["frontier"], views_of("trace")["frontier"]
    assert {"Parallel-Probe", "SC", "ASC", "ESC", "SAC"} <= {t["name"] for t in own.traces}
    assert "12 questions" in own.summary
    assert "60 synthetic questions" in companion.summary
    spent = np.asarray(trace(own, "best")["x"])
    assert (np.diff(spent) > 0).all()
    assert (np.diff(trace(own, "best")["y"]) > 0).all()


def test_a_budget_line_holds_width_times_depth() -> None:
    lines = [t for t in views_of("many")["surface"].traces if t["type"] == "scatter"]
    assert len(lines) == 3
    for one in lines:
        products = np.asarray(one["x"]) * np.asarray(one["y"])
        np.testing.assert_allclose(products, products[0])


def test_a_question_without_a_known_answer_hides_its_accuracy() -> None:
    params, frames = ran("trace")
    data = {**frames[-1].data, "methods": {name: {**value, "accuracy": None} for name, value in frames[-1].data["methods"].items()}}
    data["matrix"] = {**data["matrix"], "gold": None, "gold_name": None}
    made = {view.name: view for view in page.views(Frame(1.0, "x", {}, data), params)}
    assert all(row[1] is None for row in made["peers"].data["rows"])
    assert "right" not in made["matrix"].summary


def test_a_dragged_line_sets_the_warm_up() -> None:
    assert page.on_event("matrix", {"type": "drag", "shape": "warm-up", "x0": 9.4, "x1": 9.4}, {}) == Changes({"warmup": 8}, run=True)
    assert page.on_event("matrix", {"type": "drag", "shape": "warm-up", "x0": -40, "x1": 5.5}, {"warmup": 4}) == Changes({"warmup": 0}, run=True)
    assert page.on_event("matrix", {"type": "drag", "shape": "stop", "x0": 9.4, "x1": 9.4}, {}) is None
    assert page.on_event("matrix", {"type": "drag", "shape": "warm-up", "x0": "x", "x1": 9.4}, {}) is None


def test_a_clicked_dot_sets_the_controller() -> None:
    view = views_of("many")["frontier"]
    words = trace(view, "settings")["customdata"]
    for text in words:
        changes = page.on_event("frontier", {"type": "click", "trace": "settings", "customdata": text}, {})
        assert changes is not None
        validate(METHOD.Params, {**MANY, **changes.params})
    assert page.on_event("frontier", {"type": "click", "trace": "settings", "customdata": "u 40, k off, W 0"}, {}) == Changes(
        {"stable": 40, "prune": "off", "warmup": 0}, run=True
    )
    for forged in ({"type": "click", "trace": "settings", "customdata": ["u"]}, {"type": "click", "trace": "synthetic settings", "customdata": words[0]}):
        assert page.on_event("frontier", forged, {}) is None
