"""The pictures of sp-ucb-olp, made from real runs: what is drawn, what a drag means, what it costs."""

from __future__ import annotations

import gzip
from functools import cache
from typing import Any

import numpy as np
import orjson
import plotly.graph_objects as go
import pytest

from app.export import to_plotly
from app.pages import sp_ucb_olp as page
from app.pages._sp_ucb_olp_marks import policy_name
from app.plotting import Changes, Figure, view_json
from backends.contract import ContextSpec, Frame, Params
from backends.registry import get
from backends.runtime.context import RunContext
from backends.validation import validate

FIGURES = ["reward", "mixture", "spending", "prices", "left", "ratios", "requests", "objective", "radius"]
METHOD = get("sp-ucb-olp")
CHEAP = {**METHOD.card.cheap, "budgets": [0.1, 0.4, 0.25, 0.25]}


@cache
def ran(**values: Any) -> tuple[Params, tuple[Frame, ...]]:
    params = validate(METHOD.Params, CHEAP | values)
    return params, tuple(METHOD.run(params, RunContext(ContextSpec(seed=params.seed), scope="sp-ucb-olp pages")))


def views(**values: Any) -> dict[str, Figure]:
    params, frames = ran(**values)
    made = page.views(frames[-1], params)
    assert all(isinstance(view, Figure) for view in made)
    return {view.name: view for view in made}  # type: ignore[misc]


def names(view: Figure) -> list[str]:
    return [str(trace["name"]) for trace in view.traces]


def trace(view: Figure, name: str) -> dict[str, Any]:
    return next(t for t in view.traces if t["name"] == name)


def test_a_full_run_has_all_pictures_the_reward_first() -> None:
    made = views()
    assert list(made) == FIGURES
    assert made["reward"].span == "main"
    assert all(view.summary and view.title for view in made.values())


@pytest.mark.parametrize("name", FIGURES)
def test_plotly_accepts_the_figure_and_its_axes_are_named(name: str) -> None:
    drawn = go.Figure(to_plotly(views()[name]))
    axes = [a for a in drawn.layout if a.startswith(("xaxis", "yaxis"))]
    assert all(drawn.layout[a].title.text for a in axes)


def test_pictures_are_small() -> None:
    params, frames = ran(horizon=2000, resolve_every=20)
    text = orjson.dumps([view_json(view) for view in page.views(frames[-1], params)])
    assert len(text) < 90_000
    assert len(gzip.compress(text)) < 45_000


def test_every_streamed_frame_can_be_drawn_and_the_rays_stand_first() -> None:
    params, frames = ran()
    seen = [[view.name for view in page.views(frame, params)] for frame in frames]
    assert seen[0] == []
    assert seen[1] == ["reward"], "the exact answer is drawn before the learner starts"
    assert seen[-1] == FIGURES
    for frame in frames:
        orjson.dumps([view_json(view) for view in page.views(frame, params)])


def test_the_rays_are_the_exact_answer_and_the_curve_ends_at_the_reward() -> None:
    _, frames = ran()
    drawn = views()["reward"]
    np.testing.assert_allclose(trace(drawn, "best mixture")["y"], [0, 200 * 0.375], atol=1e-6)
    np.testing.assert_allclose(trace(drawn, "best fixed")["y"], [0, 200 * 0.32], atol=1e-6)
    assert trace(drawn, "this method")["y"][-1] == pytest.approx(frames[-1].metrics["competitive_ratio"] * 200 * 0.375)  # type: ignore[operator]
    assert f"{frames[-1].metrics['competitive_ratio']:.0%}" in drawn.title


def test_the_exact_mixture_and_prices_are_drawn_beside_the_learners() -> None:
    drawn = views()
    (edge,) = drawn["mixture"].layout["shapes"]
    assert edge["y0"] == edge["y1"] == pytest.approx(0.2, abs=1e-4)
    assert [shape["y0"] for shape in drawn["prices"].layout["shapes"]] == pytest.approx([0.5], abs=1e-4)
    stacked = np.sum([t["y"] for t in drawn["mixture"].traces], axis=0)
    np.testing.assert_allclose(stacked, 1.0)
    exact = trace(drawn["objective"], "exact")
    np.testing.assert_allclose([exact["x"][0], exact["y"][0]], [0.5, 0.5], atol=1e-4)


def test_a_hidden_answer_is_not_drawn() -> None:
    drawn = views(reveal_oracle=False)
    assert list(drawn) == FIGURES
    assert not {"best mixture", "best fixed", "what mixing adds"} & set(names(drawn["reward"]))
    assert "exact" not in names(drawn["objective"])
    assert not drawn["mixture"].layout["shapes"] + drawn["prices"].layout["shapes"] + drawn["ratios"].layout["shapes"]
    assert names(drawn["spending"]) == ["this run"]
    assert "oracle policy" not in names(drawn["ratios"])


def test_every_policy_and_six_seeds_have_a_mark() -> None:
    drawn = views()["ratios"]
    assert set(names(drawn)) == {"seeds", "oracle policy", "this method", "equal on ties", "greedy, α = 0", "learned fixed", "random"}
    assert len(trace(drawn, "seeds")["x"]) == 6


def test_one_price_is_a_curve_with_cuts_below_and_three_have_no_map() -> None:
    drawn = views(preset_instance="crossing")["objective"]
    curve = np.asarray(trace(drawn, "learner's")["y"])
    for cut in (t for t in drawn.traces if t["name"] == "cut"):
        assert (np.asarray(cut["y"]) <= curve + 1e-9).all()
    assert trace(drawn, "minimum")["y"][0] <= curve.min() + 1e-6
    assert "objective" not in views(configurations=3)


def test_without_exploration_the_radius_says_so() -> None:
    assert views(alpha=0.0)["radius"].traces == []


def test_a_budget_that_runs_out_is_said() -> None:
    assert "ran out at round" in views(mixture="uniform-over-ties", horizon=1000, resolve_every=20)["left"].summary


def test_marked_requests_are_those_of_the_run() -> None:
    _, frames = ran()
    drawn, fate = views()["requests"], np.asarray(frames[-1].data["requests"]["fate"])
    accepted = trace(drawn, "accepted")
    assert len(accepted["x"]) == (fate == 1).sum()
    assert (np.asarray(accepted["y"]) >= np.asarray(accepted["x"]) - 1e-9).all()
    rejected = trace(drawn, "rejected")
    assert (np.asarray(rejected["y"]) < np.asarray(rejected["x"])).all()


@pytest.mark.parametrize(("name", "mine", "said"), [("lp-duals", "lp-duals", "this method"), ("lp-duals", "uniform-over-ties", "LP duals")])
def test_the_chosen_rule_is_this_run(name: str, mine: str, said: str) -> None:
    assert policy_name(name, mine) == said


BUDGETS = [0.1, 0.4, 0.25, 0.25]
EVENTS = [
    ("spending", {"type": "drag", "shape": "budget-0", "y0": 0.2, "y1": 0.2}, Changes({"budgets": [0.2, 0.4, 0.25, 0.25]}, True)),
    ("spending", {"type": "drag", "shape": "budget-1", "y0": 0.4, "y1": 0.1234}, Changes({"budgets": [0.1, 0.123, 0.25, 0.25]}, True)),
    ("spending", {"type": "drag", "shape": "budget-1", "y0": 7, "y1": 7}, Changes({"budgets": [0.1, 0.6, 0.25, 0.25]}, True)),
    ("spending", {"type": "drag", "shape": "budget-0", "y0": -1, "y1": -1}, Changes({"budgets": [0.02, 0.4, 0.25, 0.25]}, True)),
    ("spending", {"type": "drag", "shape": "budget-9", "y0": 0.1, "y1": 0.1}, None),
    ("spending", {"type": "drag", "shape": None, "y0": 0.1, "y1": 0.1}, None),
    ("spending", {"type": "drag", "shape": "budget-0", "y0": float("nan"), "y1": 0.1}, None),
    ("spending", {"type": "click", "x": 0, "y": 0.1}, None),
    ("prices", {"type": "drag", "shape": "budget-0", "y0": 0.1, "y1": 0.1}, None),
    ("controls", {"type": "upload", "field": "trace"}, Changes({"preset_instance": "trace", "configurations": 3}, True)),
    ("controls", {"type": "upload", "field": "other"}, None),
]


@pytest.mark.parametrize(("view", "event", "expected"), EVENTS, ids=lambda v: str(v)[:40])
def test_what_an_event_means(view: str, event: dict[str, Any], expected: Changes | None) -> None:
    assert page.on_event(view, event, {"budgets": BUDGETS}) == expected


def test_the_budget_lines_can_be_held() -> None:
    drawn = views()["spending"]
    assert drawn.layout["meta"]["editable"] is True
    assert [(s["name"], s["y0"]) for s in drawn.layout["shapes"]] == [("budget-0", 0.1), ("budget-1", 0.4)]


def test_names_from_a_file_are_text() -> None:
    params, frames = ran()
    hostile = Frame(1.0, "", frames[-1].metrics, {**frames[-1].data, "resources": ["<img src=x>", "$method"]})
    assert b"<img" not in orjson.dumps([view_json(view) for view in page.views(hostile, params)])
