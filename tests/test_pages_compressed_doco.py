"""The pictures of compressed-doco, made from real runs: what is drawn, what a drag means, that each says what it shows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import orjson
import plotly.graph_objects as go
import pytest

from app.export import to_plotly
from app.pages import compressed_doco as page
from app.pages import load
from app.plotting import Changes, Figure, Panel, view_json
from backends.compressed_doco.card import BLOCKS
from backends.contract import ContextSpec, Frame, Params
from backends.registry import get
from backends.runtime.context import RunContext
from backends.validation import validate

METHOD = get("compressed-doco")
SMALL: dict[str, Any] = {"horizon": 300, "learners": 5, "gossip_rounds": 10, "compensation_rounds": 3}
FIGURES = ["learners", "regret", "bits", "course", "plane", "contraction", "ablation"]
VIEWS = [*FIGURES, "constants"]


@cache
def ran(**values: Any) -> tuple[Params, tuple[Frame, ...]]:
    params = validate(METHOD.Params, SMALL | values)
    return params, tuple(METHOD.run(params, RunContext(ContextSpec(seed=params.seed))))


def views_of(params: Params, frame: Frame) -> dict[str, Any]:
    return {view.name: view for view in page.views(frame, params)}


def last(**values: Any) -> dict[str, Any]:
    params, frames = ran(**values)
    return views_of(params, frames[-1])


def trace(view: Figure, name: str) -> Mapping[str, Any]:
    return next(t for t in view.traces if t["name"] == name)


def diverged() -> dict[str, Any]:
    return last(learners=9, omega=0.046, gossip_step=0.9, gossip_rounds=40, horizon=600)


def test_a_full_run_has_all_pictures_the_learners_first() -> None:
    params, frames = ran()
    made = page.views(frames[-1], params)
    assert sorted(view.name for view in made) == sorted(VIEWS)
    assert (made[0].name, made[0].span) == ("learners", "main")
    assert isinstance(views_of(params, frames[-1])["constants"], Panel)


@pytest.mark.parametrize("name", FIGURES)
def test_plotly_accepts_the_figure_and_its_axes_are_named(name: str) -> None:
    drawn = go.Figure(to_plotly(last()[name]))
    shown = [drawn.layout[a] for a in drawn.layout if a.startswith(("xaxis", "yaxis")) and drawn.layout[a].visible is not False]
    assert shown
    assert all(axis.title.text for axis in shown)


def test_every_streamed_frame_can_be_drawn_and_read_back() -> None:
    params, frames = ran()
    for frame in frames:
        made = page.views(frame, params)
        assert made[0].name == "learners"
        orjson.dumps([view_json(view) for view in made])
        stored = Frame.from_json(orjson.loads(orjson.dumps(frame.to_json())))
        assert [view.summary for view in page.views(stored, params)] == [view.summary for view in made]


def test_nothing_is_drawn_of_nothing() -> None:
    assert page.views(Frame(0.0, "loading"), ran()[0]) == []


def test_the_pictures_are_small() -> None:
    for values in ({}, {"learners": 50, "horizon": 600}):
        text = orjson.dumps([view_json(view) for view in last(**values).values()])
        assert len(text) < 250_000


def test_dots_sticks_and_lines_tell_the_same_distance() -> None:
    params, frames = ran()
    plane, view = frames[-1].data["fan"]["plane"], views_of(params, frames[-1])["learners"]
    np.testing.assert_allclose(trace(view, "learners")["marker"]["color"], plane[-1, :, 0])
    sticks = np.asarray(trace(view, "deviation")["x"]).reshape(-1, 3)
    np.testing.assert_allclose((sticks[:, 1] - sticks[:, 0]) / np.abs(plane).max(), 0.3 * plane[-1, :, 0] / np.abs(plane).max() ** 2)
    lines = np.asarray(trace(view, "surrogates")["y"]).reshape(params.learners, -1)  # type: ignore[attr-defined]
    np.testing.assert_allclose(lines[:, :-1], plane[..., 0].T)


def test_one_block_can_be_played_and_ends_where_the_picture_stands() -> None:
    params, frames = ran()
    assert views_of(params, frames[-3])["learners"].frames is None
    view = views_of(params, frames[-1])["learners"]
    assert view.frames is not None
    names = [frame["name"] for frame in view.frames]
    assert len(set(names)) == len(names) == 13 + 2  # the block's rounds, its beginning, and the next move
    assert names[0].startswith("move at")
    assert names[-1].startswith("move at")
    sticks, dots, cursor = (view.traces[place]["name"] for place in view.frames[0]["traces"])
    assert (sticks, dots, cursor) == ("deviation", "learners", "now")
    np.testing.assert_allclose(view.frames[-1]["data"][1]["marker"]["color"], trace(view, "learners")["marker"]["color"])
    spreads = [float(np.abs(frame["data"][1]["marker"]["color"]).max()) for frame in view.frames]
    assert spreads[0] > 2 * spreads[-2]
    assert spreads[-1] > 2 * spreads[-2]


def test_the_u_curve_has_its_peers_the_exact_answer_and_a_line_to_drag() -> None:
    params, frames = ran()
    view = views_of(params, frames[-1])["learners"]
    curve = trace(view, "U-curve")
    np.testing.assert_allclose(10.0 ** np.asarray(curve["x"]), [sum(pair) for pair in BLOCKS])
    assert list(trace(view, "best fixed")["y"]) == [0, 0]
    assert trace(view, "DC-DOGD")["y"][0] == pytest.approx(frames[-1].metrics["max_regret_per_round_dcdogd"])
    block = next(shape for shape in view.layout["shapes"] if shape["name"] == "block")
    assert block["x0"] == pytest.approx(math.log10(13))
    assert block["editable"] is True
    assert view.layout["meta"]["editable"] is True
    assert not any(shape["editable"] for shape in view.layout["shapes"] if shape["name"] != "block")


def test_what_diverged_says_so() -> None:
    made = diverged()
    assert "flew apart" in made["learners"].summary
    assert "fly apart" in made["learners"].title
    assert "diverges" in made["contraction"].summary
    assert "diverged" in made["ablation"].summary
    assert not any(t["name"] == "this run" for t in made["learners"].traces)
    orjson.dumps([view_json(view) for view in made.values()])


def test_the_table_holds_theory_beside_practice() -> None:
    rows = last()["constants"].data["rows"]
    assert len(rows) == 5
    assert rows[1][2] == 10
    assert all(len(row) == 3 and math.isfinite(row[1]) and math.isfinite(row[2]) for row in rows)


EVENTS = [
    ({"type": "drag", "shape": "block", "x0": math.log10(25), "x1": math.log10(50)}, Changes({"gossip_rounds": 40, "compensation_rounds": 10}, True)),
    ({"type": "drag", "shape": "block", "x0": math.log10(60), "x1": math.log10(60)}, Changes({"gossip_rounds": 48, "compensation_rounds": 12}, True)),
    ({"type": "drag", "shape": "block", "x0": -5.0, "x1": -5.0}, Changes({"gossip_rounds": 2, "compensation_rounds": 0}, True)),
    ({"type": "drag", "shape": "block", "x0": 8.0, "x1": 8.0}, Changes({"gossip_rounds": 80, "compensation_rounds": 20}, True)),
    ({"type": "drag", "shape": "best", "x0": 1.0, "x1": 1.0}, None),
    ({"type": "drag", "shape": "block", "x0": None, "x1": 1.0}, None),
    ({"type": "drag", "shape": "block", "x0": 1e300, "x1": 1e300}, None),
    ({"type": "click", "trace": "U-curve", "x": math.log10(7)}, Changes({"gossip_rounds": 5, "compensation_rounds": 2}, True)),
    ({"type": "click", "trace": "U-curve", "x": "1"}, None),
    ({"type": "click", "trace": "surrogates", "x": 1.0}, None),
    ({"type": "click", "trace": "U-curve", "x": True}, None),
]


@pytest.mark.parametrize(("event", "expected"), EVENTS, ids=lambda v: str(v)[:60])
def test_what_an_event_means(event: dict[str, Any], expected: Changes | None) -> None:
    assert load("compressed-doco").on_event("learners", event, {"gossip_rounds": 20, "compensation_rounds": 5}) == expected
    assert load("compressed-doco").on_event("regret", event, {}) is None


@pytest.mark.parametrize("length", [2, 3, 4, 7, 13, 25, 31, 50, 77, 99, 100])
def test_every_block_that_can_be_dragged_to_is_valid(length: int) -> None:
    gossip, compensation = page.block_of(length)
    assert gossip + compensation == length
    validate(METHOD.Params, {"gossip_rounds": gossip, "compensation_rounds": compensation})
