"""The pictures of mirror-mfld, made from real runs: what is drawn, what a drag or a click means."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import orjson
import plotly.graph_objects as go
import pytest

from app.export import to_plotly
from app.pages import mirror_mfld as page
from app.pages._mirror_mfld_clouds import HEIGHT, IN_MIRROR
from app.plotting import Changes, Figure, view_json
from backends.contract import ContextSpec, Frame
from backends.registry import get
from backends.runtime.context import RunContext
from backends.validation import validate

METHOD = get("mirror-mfld")
FIGURES = ["cloud", "walls", "gap", "energies", "means", "sizes", "step_sizes", "marginals"]
SCENES: dict[str, dict[str, Any]] = {
    "simplex": {},
    "ball": {"domain": "ball", "functional": "linear"},
    "box": {"domain": "box", "barrier": 0.1},
    "matrices of 2": {"domain": "spectraplex", "particles": 20, "steps": 20},
    "matrices of 4": {"domain": "spectraplex", "functional": "spectraplex-matching", "dimension": 4, "particles": 20, "steps": 20},
    "xor": {"domain": "ball", "functional": "xor-network"},
    "mmd": {"functional": "mmd", "steps": 20},
    "trap": {"diffusion": "em", "steps": 400},
    "projected": {"optimiser": "projected"},
}


@cache
def last(scene: str) -> tuple[Any, Frame]:
    params = validate(METHOD.Params, {**METHOD.card.cheap, **SCENES[scene]})
    return params, list(METHOD.run(params, RunContext(ContextSpec(seed=params.seed))))[-1]


def views_of(scene: str) -> dict[str, Figure]:
    params, frame = last(scene)
    return {view.name: view for view in page.views(frame, params) if isinstance(view, Figure)}


def test_a_whole_run_has_all_pictures_the_cloud_first() -> None:
    made = views_of("simplex")
    assert list(made) == FIGURES
    assert made["cloud"].span == "main"


@pytest.mark.parametrize("scene", SCENES)
def test_plotly_accepts_every_figure_of_every_scene(scene: str) -> None:
    for view in views_of(scene).values():
        drawn = go.Figure(to_plotly(view))
        for name in (a for a in drawn.layout if a.startswith(("xaxis", "yaxis"))):
            assert drawn.layout[name].visible is False or drawn.layout[name].title.text or not view.traces
        assert len(orjson.dumps(view_json(view))) < 80_000


def test_stored_frames_draw_the_same_pictures() -> None:
    params, frame = last("simplex")
    stored = Frame.from_json(orjson.loads(orjson.dumps(frame.to_json())))
    assert [v.title for v in page.views(stored, params)] == [v.title for v in page.views(frame, params)]


def test_nothing_is_drawn_of_nothing() -> None:
    assert page.views(Frame(0.0, "loading"), last("simplex")[0]) == []


def test_marks_at_the_wall_are_in_the_warning_colour_and_complete() -> None:
    frame = last("simplex")[1]
    stuck = [t for t in views_of("simplex")["cloud"].traces if t["name"] == "projected at the wall"]
    assert sum(len(t["x"]) for t in stuck) == int(np.sum(frame.data["clouds"]["projected"]["at_wall"])) > 0
    assert all(t["marker"]["color"].startswith("$warning") for t in stuck)


def test_the_trap_is_called_a_trap_and_the_others_are_not() -> None:
    assert "trap" in views_of("trap")["cloud"].title.lower()
    assert "trap" not in views_of("simplex")["cloud"].title.lower()


def test_the_summary_tells_the_shares_of_the_frame() -> None:
    frame = last("simplex")[1]
    share = frame.data["trace"]["near projected"][-1]
    assert f"{share:.1%} of the projected cloud" in views_of("simplex")["cloud"].summary


# ---------------------------------------------------------------------------------------------------------- events

DRAG = {"type": "drag", "shape": "q", "index": 0}


def dragged(params: dict[str, Any], by: tuple[float, float], moved: str = "both") -> list[float]:
    """The target after the ring's ends have moved: both, or the right and upper one alone, as plotly resizes."""
    frame = last(params.pop("scene"))[1]
    ring = views_of_frame(frame, params)["shapes"][0]
    ends = {k: ring[k] for k in ("x0", "x1", "y0", "y1")}
    for axis, step in zip("xy", by, strict=True):
        for end in "01" if moved == "both" else "1":
            ends[f"{axis}{end}"] += step
    changes = page.on_event("cloud", DRAG | ends, params)
    assert isinstance(changes, Changes)
    assert changes.run
    return list(changes.params["q"])


def views_of_frame(frame: Frame, params: dict[str, Any]) -> dict[str, Any]:
    whole = validate(METHOD.Params, {**METHOD.card.cheap, **params})
    return next(v for v in page.views(frame, whole) if isinstance(v, Figure)).layout


@pytest.mark.parametrize("moved", ["both", "one"])
def test_a_drag_in_the_triangle_moves_the_shares(moved: str) -> None:
    found = dragged({"scene": "simplex", "q": [0.7, 0.2, 0.1]}, (0.05, -0.2 * HEIGHT), moved)
    assert found == pytest.approx([0.5, 0.25, 0.25], abs=0.002)
    assert sum(found) == pytest.approx(1)


def test_a_drag_out_of_the_triangle_stops_at_its_wall() -> None:
    found = dragged({"scene": "simplex", "q": [0.7, 0.2, 0.1]}, (1.0, 0.5))
    assert min(found) >= 0
    validate(METHOD.Params, {"q": found})


def test_a_drag_in_the_disc_and_the_square() -> None:
    assert dragged({"scene": "ball", "domain": "ball", "q": [0.7, 0.2, 0.1]}, (-0.3, 0.1)) == pytest.approx([0.4, 0.3, 0.0])
    assert np.hypot(*dragged({"scene": "ball", "domain": "ball", "q": [0.7, 0.2, 0.1]}, (2.0, 0.0))[:2]) < 0.99
    assert dragged({"scene": "box", "domain": "box", "q": [0.7, 0.2, 0.1]}, (2.0, 0.0))[0] == pytest.approx(0.98)


def test_a_click_sets_the_target_but_not_in_the_mirror() -> None:
    click = {"type": "click", "x": 0.5, "y": HEIGHT / 3, "trace": "mirror"}
    changes = page.on_event("cloud", click, {})
    assert changes is not None
    assert changes.params["q"] == pytest.approx([1 / 3] * 3, abs=0.001)
    assert page.on_event("cloud", click | {"trace": IN_MIRROR}, {}) is None
    assert page.on_event("walls", click, {}) is None
    assert page.on_event("cloud", click, {"domain": "ball", "functional": "xor-network"}) is None
    assert page.on_event("cloud", click, {"domain": "spectraplex", "dimension": 5}) is None
    assert page.on_event("cloud", {"type": "click", "x": float("nan"), "y": 0}, {}) is None
    assert page.on_event("cloud", {"type": "drag", "x0": "a"}, {}) is None
