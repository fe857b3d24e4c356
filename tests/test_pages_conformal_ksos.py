"""The pictures of conformal-ksos, made from real runs: what is drawn, what a click means, what it costs."""

from __future__ import annotations

import gzip
import math
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import orjson
import plotly.graph_objects as go
import pytest

from app.export import to_plotly
from app.pages import conformal_ksos as page
from app.pages import load
from app.plotting import Changes, Figure, Panel, view_json
from backends.contract import ContextSpec, Frame, Params, Upload
from backends.registry import get
from backends.runtime.context import RunContext
from backends.validation import validate

FIGURES = ["band", "path", "local", "scores", "law", "spectrum", "convergence"]
METHOD = get("conformal-ksos")
CHEAP = dict(METHOD.card.cheap)
TABLE = "cost;age;income, net;town\n" + "".join(f"{i % 7 + 0.5:.1f};{i};{(i * 37) % 101};x\n" for i in range(120))


@cache
def ran(**values: Any) -> tuple[Params, tuple[Frame, ...]]:
    params = validate(METHOD.Params, CHEAP | values)
    return params, tuple(METHOD.run(params, RunContext(ContextSpec(seed=params.seed))))


def last(**values: Any) -> tuple[Params, Frame]:
    params, frames = ran(**values)
    return params, frames[-1]


def with_data(frame: Frame, **changes: Any) -> Frame:
    return Frame(frame.progress, frame.message, frame.metrics, {**frame.data, **changes})


def views_of(params: Params, frame: Frame) -> dict[str, Any]:
    return {view.name: view for view in page.views(frame, params)}


def trace(view: Figure, name: str) -> Mapping[str, Any]:
    return next(t for t in view.traces if t["name"] == name)


@pytest.fixture(scope="module")
def whole() -> tuple[Params, Frame]:
    return last()


def test_a_full_run_has_all_seven_pictures_the_band_first(whole: tuple[Params, Frame]) -> None:
    made = page.views(whole[1], whole[0])
    assert [v.name for v in made] == FIGURES
    assert made[0].span == "main"
    assert all(v.summary and v.title for v in made)


@pytest.mark.parametrize("name", FIGURES)
def test_plotly_accepts_the_figure_and_its_axes_are_named(whole: tuple[Params, Frame], name: str) -> None:
    view = views_of(*whole)[name]
    drawn = go.Figure(to_plotly(view))
    axes = [a for a in drawn.layout if a.startswith(("xaxis", "yaxis"))]
    assert all(drawn.layout[a].title.text for a in axes)


def test_pictures_are_quick_and_small() -> None:
    params = validate(METHOD.Params, METHOD.card.presets[0].params)
    frame = list(METHOD.run(params, RunContext(ContextSpec(seed=0))))[-1]
    took = []
    for _ in range(15):
        start = time.perf_counter()
        text = orjson.dumps([view_json(v) for v in page.views(frame, params)])
        took.append(time.perf_counter() - start)
    assert min(took) < 0.015
    assert len(text) < 60_000
    assert len(gzip.compress(text)) < 25_000


def test_every_streamed_frame_can_be_drawn() -> None:
    params, frames = ran()
    seen = [list(views_of(params, frame)) for frame in frames]
    assert seen[-1] == FIGURES
    assert any("band" in names for names in seen[:-1]), "the points are there before the band"
    for frame in frames:
        orjson.dumps([view_json(v) for v in page.views(frame, params)])


def test_nothing_is_drawn_of_nothing(whole: tuple[Params, Frame]) -> None:
    assert page.views(Frame(0.0, "loading"), whole[0]) == []


def test_a_stored_frame_draws_the_same_pictures(whole: tuple[Params, Frame]) -> None:
    params, frame = whole
    stored = Frame.from_json(orjson.loads(orjson.dumps(frame.to_json())))
    assert [v.title for v in page.views(stored, params)] == [v.title for v in page.views(frame, params)]


def test_marked_misses_are_the_metric(whole: tuple[Params, Frame]) -> None:
    params, frame = whole
    view = views_of(params, frame)["band"]
    n_test = int((np.asarray(frame.data["points"]["role"]) == page.TEST).sum())
    for side, symbol in (("above", "triangle-up"), ("below", "triangle-down")):
        marked = sum(len(t["x"]) for t in view.traces if t["name"] == "missed" and t["marker"]["symbol"] == symbol)
        assert marked == pytest.approx(frame.metrics[f"miss_{side}"] * n_test, abs=1)  # the grid is not the points


def test_no_point_is_called_a_miss_on_a_slice() -> None:
    params, frame = last(data="diabetes", length_scale=2.0)
    assert not any(t["name"].startswith("missed") for t in views_of(params, frame)["band"].traces)


def test_an_infinite_band_says_so() -> None:
    params, frame = last(alpha=0.01)
    assert frame.metrics["mean_width"] is None
    made = views_of(params, frame)
    assert "infinite" in made["band"].summary
    assert "infinite" in made["law"].summary
    assert "infinite" in made["scores"].summary
    assert not any(t["name"] == "this band" for t in made["band"].traces)
    assert any("infinite" in a["text"] for a in made["band"].layout["annotations"])


def test_a_coverage_far_from_the_promise_is_still_in_the_picture(whole: tuple[Params, Frame]) -> None:
    params, frame = whole
    law = {**frame.data["law"], "observed": 0.4, "n_test": 1000}
    low, high = views_of(params, with_data(frame, law=law))["law"].layout["xaxis"]["range"]
    assert low < 0.4 < high


def test_large_files_are_thinned(whole: tuple[Params, Frame]) -> None:
    params, frame = whole
    rng, n = np.random.default_rng(0), 20_000
    role = np.full(n, page.TEST, np.uint8)
    role[:150] = page.TRAIN
    view = views_of(params, with_data(frame, points={"x": rng.uniform(-1, 1, n), "y": rng.normal(size=n), "role": role}))["band"]
    assert sum(len(t["x"]) for t in view.traces if t["mode"] == "markers") <= 3 * page.SHOWN_POINTS
    assert len(trace(view, "train")["x"]) == 150


def test_a_wild_band_does_not_flatten_the_points(whole: tuple[Params, Frame]) -> None:
    params, frame = whole
    grid = {**frame.data["grid"], "upper": np.full(200, 1e6)}
    low, high = views_of(params, with_data(frame, grid=grid))["band"].layout["yaxis"]["range"]
    y = np.asarray(frame.data["points"]["y"])
    assert high - low < 3 * np.ptp(y)


def test_the_path_shows_the_value_in_use_as_a_line_to_drag(whole: tuple[Params, Frame]) -> None:
    params, frame = whole
    view = views_of(params, frame)["path"]
    assert view.layout["meta"]["editable"] is True
    (shape,) = view.layout["shapes"]
    assert shape["x0"] == shape["x1"] == page.position_of(frame.metrics["symmetry_chosen"])
    ends = trace(view, "width")["x"]
    assert (ends[0], ends[-1]) == (page.SEPARATE, page.SYMMETRIC)


def test_column_names_are_text() -> None:
    params, frame = last()
    hostile = with_data(frame, axes={"x": "<img src=x onerror=a()>", "y": "$method"})
    text = orjson.dumps([view_json(v) for v in page.views(hostile, params)])
    assert b"<img" not in text
    assert b'"$method"}' not in text.replace(b'"color":"$method"}', b"")


@pytest.mark.parametrize("value", ["separate", "symmetric", 0.001, 0.05, 1.0, 316.0, 1000.0])
def test_places_on_the_path_and_symmetry_are_inverse(value: float | str) -> None:
    assert page.symmetry_at(page.position_of(value)) == value


@pytest.mark.parametrize("value", [1e-9, 1e6, 0.0, math.inf])
def test_every_symmetry_has_a_place(value: float) -> None:
    assert page.SEPARATE <= page.position_of(value) <= page.SYMMETRIC


EVENTS = [
    ("path", {"type": "click", "x": 0.0, "y": 3.2}, {}, Changes({"symmetry": 1.0}, True)),
    ("path", {"type": "click", "x": 4}, {}, Changes({"symmetry": "symmetric"}, True)),
    ("path", {"type": "drag", "index": 0, "x0": -9.0, "x1": -9.0}, {"symmetry": "auto"}, Changes({"symmetry": "separate"}, True)),
    ("path", {"type": "drag", "x0": 0.0, "x1": 2.0}, {"symmetry": 1.0}, Changes({"symmetry": 100.0}, True)),
    ("path", {"type": "drag", "x0": None, "x1": 2.0}, {"symmetry": 1.0}, None),
    ("path", {"type": "click", "x": "1"}, {}, None),
    ("path", {"type": "click", "x": float("nan")}, {}, None),
    ("path", {"type": "click", "x": True}, {}, None),
    ("band", {"type": "click", "x": 0.0}, {}, None),
    ("controls", {"type": "upload", "field": "csv"}, {}, Changes({"data": "csv"}, True)),
    ("controls", {"type": "upload", "field": "other"}, {}, None),
    ("columns", {"type": "click", "id": "{}"}, {}, None),
    ("columns", {"type": "click", "id": '{"feature": 1}'}, {}, None),
    ("columns", {"type": "click", "id": "no json"}, {}, None),
    ("columns", {"type": "click", "id": None}, {}, None),
    ("columns", {"type": "click"}, {}, None),
    ("columns", {"type": "click", "id": '{"target": "age"}'}, {"features": "age,town"}, Changes({"target": "age", "features": "town"}, True)),
    ("columns", {"type": "click", "id": '{"target": "age"}'}, {"features": ""}, Changes({"target": "age"}, True)),
    ("columns", {"type": "click", "id": '{"feature": "d"}', "pressed": True}, {"features": "a,b,c"}, Changes({"features": "b,c,d"}, True)),
    ("columns", {"type": "click", "id": '{"feature": "b"}', "pressed": False}, {"features": "a,b"}, Changes({"features": "a"}, True)),
    ("columns", {"type": "click", "id": '{"feature": "c", "used": "a,b"}', "pressed": True}, {"features": ""}, Changes({"features": "a,b,c"}, True)),
]


@pytest.mark.parametrize(("view", "event", "params", "expected"), EVENTS, ids=lambda v: str(v)[:40])
def test_what_an_event_means(view: str, event: dict[str, Any], params: dict[str, Any], expected: Changes | None) -> None:
    assert load("conformal-ksos").on_event(view, event, params) == expected


def test_chips_choose_the_columns_of_a_file() -> None:
    upload = Upload.of("towns.csv", TABLE.encode())
    params, frame = last(data="csv", csv=upload, target="cost")
    panel = views_of(params, frame)["columns"]
    assert isinstance(panel, Panel)
    assert "semicolon" in panel.summary
    assert "120 rows" in panel.summary
    targets, features = (group["chips"] for group in panel.data["groups"])
    assert [c["text"] for c in targets if c["pressed"]] == ["cost"]
    assert [c["text"] for c in features if c["pressed"]] == ["age", "income, net"]
    assert [c["text"] for c in targets if c["disabled"]] == ["town"]
    income = next(c for c in features if c["text"] == "income, net")
    changes = page.on_event("columns", {"type": "click", "id": income["id"], "pressed": False}, params.model_dump())
    assert changes == Changes({"features": "age"}, True)
    age = next(c for c in targets if c["text"] == "age")
    changed = page.on_event("columns", {"type": "click", "id": age["id"], "pressed": True}, params.model_dump() | {"features": '"income, net",age'})
    assert changed is not None
    validate(METHOD.Params, {**dict(params), **changed.params})
    assert changed.params == {"target": "age", "features": '"income, net"'}


@pytest.mark.parametrize("slug", ["no-such", "../x", "", "_split-conformal"])
def test_an_unknown_page_is_named(slug: str) -> None:
    with pytest.raises(LookupError):
        load(slug)
