"""The page of stla: its views of one real run, and what a click means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.pages import stla as page
from app.plotting import Changes, Figure, Panel, view_json
from backends.contract import ContextSpec, Frame
from backends.runtime.context import RunContext
from backends.runtime.language_model import Decoder
from backends.stla.card import CARD, Params
from backends.stla.method import run
from backends.validation import validate
from tests.contract.page_checks import assert_labelled

LAYER = ["sweep", "losses", "judged", "example", "learning", "soft", "cumulative", "bits", "orders", "whole"]
PARAMS = validate(Params, CARD.cheap)


@pytest.fixture(scope="module")
def seen(decoder: Decoder) -> list[Frame]:
    return [frame.sealed() for frame in run(PARAMS, RunContext(ContextSpec()))]


def named(frame: Frame, params: Params = PARAMS) -> dict[str, Any]:
    return {view.name: view for view in page.views(frame, params)}


def trace(view: Figure, name: str) -> dict[str, Any]:
    return next(t for t in view.traces if t["name"] == name)


def test_every_frame_is_drawn_and_labelled(seen: list[Frame]) -> None:
    for frame in seen:
        views = page.views(frame, PARAMS)
        assert views[0].name == "sweep"
        assert views[0].span == "main"
        for view in views:
            assert_labelled(view)
            view_json(view)
    assert list(named(seen[-1])) == LAYER


def test_the_main_picture_shows_both_errors_and_their_sum(seen: list[Frame]) -> None:
    view = named(seen[-1])["sweep"]
    clusters = seen[-1].data["clusters"]
    assert trace(view, "local")["y"] == pytest.approx(clusters["local"])
    assert trace(view, "remaining")["y"] == pytest.approx(clusters["remaining"])
    stack = trace(view, "sum")
    assert stack["base"][-1] + stack["y"][-1] == pytest.approx(seen[-1].metrics["loss_stla"])
    measured = next(s for s in view.layout["shapes"] if s["name"] == "measured")
    assert measured["y0"] == pytest.approx(seen[-1].metrics["loss_stla"])
    assert "the bars add up to it" in view.summary
    heat = {**seen[-1].data["heat"], "done": 192}
    midway = named(Frame(0.3, "midway", {}, {**seen[-1].data, "heat": heat}))["sweep"]
    assert [s["x0"] for s in midway.layout["shapes"] if s["name"] == "done"] == [191.5]


def test_least_loss_is_named(seen: list[Frame]) -> None:
    view = named(seen[-1])["losses"]
    shown = dict(zip(view.traces[0]["y"], view.traces[0]["x"], strict=True))
    assert shown["STLA"] == pytest.approx(seen[-1].metrics["loss_stla"])
    assert min(shown, key=lambda name: shown[name]) in view.summary


def test_the_example_shows_the_tie_and_who_breaks_it(seen: list[Frame]) -> None:
    view = named(seen[-1])["example"]
    local, ahead = trace(view, "seen locally")["y"], trace(view, "looking ahead")["y"]
    assert local[1] == pytest.approx(local[2])
    assert np.argmin(ahead) == 1


def test_ours_and_the_papers_figures_stand_in_one_table(seen: list[Frame]) -> None:
    panel = named(seen[-1])["whole"]
    assert isinstance(panel, Panel)
    methods = [row[0] for row in panel.data["rows"]]
    assert any(m.startswith("here:") for m in methods)
    assert ["paper: STLA, spin, groups of 256", 31.01] in [row[:2] for row in panel.data["rows"]]


def test_with_the_correction_no_sum_is_promised(seen: list[Frame]) -> None:
    corrected = PARAMS.model_copy(update={"asymmetric_correction": True})
    views = named(seen[-1], corrected)
    assert "add up" not in views["sweep"].summary
    assert "not equal" in views["cumulative"].summary


def test_perplexity_is_drawn_where_it_was_measured(seen: list[Frame]) -> None:
    data = {**seen[-1].data, "perplexity": {"full": 18.9, "stla": 19.2, "rtn": 20.3}}
    view = named(Frame(1.0, "done", {}, data), PARAMS.model_copy(update={"mode": "block"}))["perplexity"]
    assert view.layout["yaxis"]["range"][0] > 0
    assert "does not begin at zero" in view.summary


EVENTS = [
    ("example", {"type": "click", "x": 2}, Changes({"by_hand": "1-0"}, run=True)),
    ("example", {"type": "click", "x": 0.73, "trace": "looking ahead"}, Changes({"by_hand": "0-1"}, run=True)),
    ("example", {"type": "click", "x": 7}, None),
    ("example", {"type": "click", "x": True}, None),
    ("example", {"type": "click", "x": float("nan")}, None),
    ("example", {"type": "drag", "x": 1}, None),
    ("sweep", {"type": "click", "x": 1}, None),
]


@pytest.mark.parametrize(("view", "event", "expected"), EVENTS, ids=str)
def test_what_an_event_means(view: str, event: dict[str, Any], expected: Changes | None) -> None:
    assert page.on_event(view, event, {}) == expected
