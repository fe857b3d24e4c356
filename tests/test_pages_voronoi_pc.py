"""The pictures of voronoi-pc, made from real runs: what is drawn, what a drag or a typed cell means, what it costs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from app.export import to_plotly
from app.pages import voronoi_pc as page
from app.plotting import Changes, Figure, Panel, View, view_json
from backends.contract import ContextSpec, Frame, Params
from backends.registry import get
from backends.runtime.context import RunContext
from backends.validation import validate
from tests.contract.page_checks import assert_labelled

METHOD = get("voronoi-pc")
CHEAP = dict(METHOD.card.cheap)
SCENE = {"data": "two-centroids", "n": 300, "splits": 200}
FIGURES = ["plane", "bounds", "likelihood", "marginal", "conditional", "curse", "peers", "samples", "training"]


@cache
def _ran(values: str) -> tuple[Params, tuple[Frame, ...]]:
    params = validate(METHOD.Params, json.loads(values))
    return params, tuple(METHOD.run(params, RunContext(ContextSpec(seed=params.seed))))


def last(values: Mapping[str, Any], **more: Any) -> tuple[Params, Frame]:
    params, frames = _ran(json.dumps({**values, **more}))
    return params, frames[-1]


def views_of(values: Mapping[str, Any], **more: Any) -> dict[str, View]:
    params, frame = last(values, **more)
    return {view.name: view for view in page.views(frame, params)}


def figure(views: Mapping[str, View], name: str) -> Figure:
    view = views[name]
    assert isinstance(view, Figure)
    return view


def trace(view: Figure, name: str) -> Mapping[str, Any]:
    return next(t for t in view.traces if t["name"] == name)


def shape(view: Figure, start: str) -> Mapping[str, Any]:
    return next(s for s in view.layout["shapes"] if s["name"].startswith(start))


def drag(found: Mapping[str, Any], **ends: float) -> dict[str, Any]:
    return {"type": "drag", "shape": found["name"], **{key: found[key] for key in ("x0", "x1", "y0", "y1")}, **ends}


def test_a_trained_run_has_all_pictures_the_plane_first() -> None:
    views = views_of(CHEAP)
    assert [name for name, view in views.items() if isinstance(view, Figure)] == FIGURES
    assert views["plane"].span == "main"
    assert isinstance(views["hold"], Panel)


@pytest.mark.parametrize("values", [CHEAP, SCENE, {**CHEAP, "gate": "hfv"}, {**CHEAP, "gate": "constant"}, {**CHEAP, "data": "iris"}])
def test_plotly_takes_every_figure_and_every_axis_is_named(values: dict[str, Any]) -> None:
    for view in views_of(values).values():
        assert_labelled(view)
        if isinstance(view, Figure):
            go.Figure(to_plotly(view))


def test_every_frame_of_a_run_draws_and_the_later_ones_draw_more() -> None:
    params, frames = _ran(json.dumps(CHEAP))
    drawn = [len(page.views(frame, params)) for frame in frames]
    assert drawn[0] == 1
    assert drawn == sorted(drawn)


def test_the_gauge_holds_the_bounds_and_the_exact_value_lies_between() -> None:
    _, frame = last(SCENE)
    view = figure(views_of(SCENE), "plane")
    heights = trace(view, "bounds")["y"]
    assert (min(heights), max(heights)) == pytest.approx((frame.metrics["z_lower"], frame.metrics["z_upper"]))
    assert min(heights) < trace(view, "exact")["y"][0] < max(heights)


def test_boxes_are_drawn_inside_the_plane() -> None:
    view = figure(views_of(SCENE), "plane")
    low, high = view.layout["xaxis"]["range"]
    for name in ("inside", "straddling"):
        x = np.asarray(trace(view, name)["x"], float)
        assert np.nanmin(x) >= low - 1e-4
        assert np.nanmax(x) <= high + 1e-4


def test_nothing_to_drag_where_no_centroid_stands_in_the_plane() -> None:
    for more in ({"gate": "hfv"}, {"gate": "constant"}, {"data": "iris"}):
        assert not figure(views_of(CHEAP, **more), "plane").layout["shapes"]


def test_the_summary_says_who_wins_from_the_metrics() -> None:
    _, frame = last(CHEAP)
    low, high, mixture = (float(frame.metrics[f"log_likelihood_{name}"] or 0) for name in ("lower", "upper", "mixture"))
    verdict = "the mixture wins" if mixture > high else "this circuit wins" if mixture < low else "the bounds do not decide"
    assert verdict in views_of(CHEAP)["likelihood"].summary


def test_a_dragged_centroid_moves_alone_and_the_run_starts() -> None:
    view = figure(views_of(SCENE), "plane")
    handle = shape(view, "centroid 1 ")
    changes = page.on_event("plane", drag(handle, x1=1.25, y1=-0.5), SCENE)
    assert changes is not None
    assert changes.run
    before = np.round(np.asarray(last(SCENE)[1].data["plane"]["centroids"]), 3)
    assert changes.params["centroids"] == pytest.approx([*before[0], 1.25, -0.5])
    held_in_the_middle = page.on_event("plane", drag(handle, x0=2.0, y0=1.0, x1=2.0, y1=1.0), SCENE)
    assert held_in_the_middle is not None
    assert held_in_the_middle.params["centroids"][2:] == [2.0, 1.0]
    validate(METHOD.Params, {**SCENE, **changes.params})


def test_a_dragged_line_changes_the_evidence_and_leaves_the_rest_of_it() -> None:
    line = shape(figure(views_of(SCENE), "marginal"), "evidence ")
    assert page.on_event("marginal", drag(line, x0=-1.0), {"evidence": "x1 = 0.5"}) == Changes({"evidence": "x1 = -1"}, run=True)
    both = page.on_event("marginal", drag(line, x0=-1.0, x1=-1.0), {"evidence": "x3 > 2, x1=0.5"})
    assert both == Changes({"evidence": "x3 > 2, x1 = -1"}, run=True)
    assert page.on_event("marginal", drag(line, x0=-1.0), {"evidence": "x2 = 1"}) is None


def test_a_dragged_edge_changes_the_event() -> None:
    edge = shape(figure(views_of(SCENE), "conditional"), "event-low")
    assert page.on_event("conditional", drag(edge, x0=0.75), {"event": "x2 > 0"}) == Changes({"event": "x2 > 0.75"}, run=True)
    span = shape(figure(views_of(SCENE, event="x2 in [0, 1]"), "conditional"), "event-high")
    assert page.on_event("conditional", drag(span, x0=2.0, x1=2.0), {"event": "x2 in [0, 1]"}) == Changes({"event": "x2 in [0, 2]"}, run=True)
    assert page.on_event("conditional", drag(span, x0=-2.0, x1=-2.0), {"event": "x2 in [0, 1]"}) is None, "an event that holds nothing"


def test_centroids_are_held_typed_and_given_back() -> None:
    panel = views_of(SCENE)["hold"]
    assert isinstance(panel, Panel)
    hold, free = (chip["id"] for chip in panel.data["groups"][0]["chips"])
    held = page.on_event("hold", {"type": "click", "id": hold}, SCENE)
    assert held is not None
    assert page.on_event("hold", {"type": "click", "id": free}, SCENE) == Changes({"centroids": []}, run=True)
    table = views_of(SCENE, **held.params)["centroids"]
    assert isinstance(table, Panel)
    assert len(table.data["rows"]) == 2
    typed = page.on_event("centroids", {"type": "edit", "row": 1, "column": 2, "value": 3.0}, held.params)
    assert typed == Changes({"centroids": [*held.params["centroids"][:3], 3.0]}, run=True)
    for row, column in ((5, 1), (0, 0), (-1, 1)):
        assert page.on_event("centroids", {"type": "edit", "row": row, "column": column, "value": 3.0}, held.params) is None


def test_an_uploaded_file_becomes_the_data() -> None:
    assert page.on_event("controls", {"type": "upload", "field": "csv"}, {}) == Changes({"data": "csv", "centroids": []}, run=True)


@pytest.mark.parametrize("name", ["centroid 0", "centroid 9 1,2;3,4", "centroid 0 1,2,3", "centroid 0 ;;", "evidence x", "event-low 1", ""])
def test_forged_handles_mean_nothing(name: str) -> None:
    event = {"type": "drag", "shape": name, "x0": 1.0, "x1": 1.0, "y0": 1.0, "y1": 1.0}
    for view in ("plane", "marginal", "conditional"):
        assert page.on_event(view, event, {"evidence": "x1 = 0", "event": "x2 > 0"}) is None


def test_a_picture_of_the_default_run_stays_small() -> None:
    params, frame = last({"n": 1000, "epochs": 6})
    size = sum(len(json.dumps(view_json(view))) for view in page.views(frame, params))
    print(f"{size:,} bytes a frame")
    assert size < 500_000
