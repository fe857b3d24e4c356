"""The pictures of auxiliary-mcmc, made from real runs: what is drawn, and what a click or a drag means."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import orjson
import plotly.graph_objects as go
import pytest

from app.export import to_plotly
from app.pages import auxiliary_mcmc as page
from app.plotting import Changes, Figure, view_json
from backends.contract import ContextSpec, Frame, Params
from backends.registry import get
from backends.runtime.context import RunContext
from backends.validation import validate

METHOD = get("auxiliary-mcmc")
CHEAP = dict(METHOD.card.cheap)
FIGURES = ["main", "race", "effective", "marginals", "ratio", "gap", "traces"]


@cache
def last(scene: str) -> tuple[Params, Frame]:
    params = validate(METHOD.Params, CHEAP | {"scene": scene})
    return params, list(METHOD.run(params, RunContext(ContextSpec(seed=params.seed))))[-1]


def views_of(scene: str) -> dict[str, Figure]:
    params, frame = last(scene)
    return {view.name: view for view in page.views(frame, params) if isinstance(view, Figure)}


def test_a_full_run_has_all_pictures_the_chains_first() -> None:
    made = views_of("gaussian-2d")
    assert list(made) == FIGURES
    for view in made.values():
        go.Figure(to_plotly(view))  # plotly's own schema


def test_the_rows_lit_are_those_just_read() -> None:
    _, frame = last("gaussian-2d")
    main = views_of("gaussian-2d")["main"]
    lit = next(t for t in main.traces if t["name"] == "read now")
    assert len(lit["x"]) == len(np.asarray(frame.data["lit"]["x"]))
    assert f"{frame.data['lit']['count']:,} read now" in main.layout["annotations"][0]["text"]
    assert frame.data["lit"]["count"] >= len(lit["x"]) > 100


def test_the_exact_answer_and_sgld_stand_beside_the_chains() -> None:
    names = [t["name"] for t in views_of("gaussian-2d")["main"].traces]
    assert {"exact", "SGLD, 90 %", "chains", "draws"} <= set(names)


def test_the_ellipse_holds_ninety_percent() -> None:
    covariance = np.array([[2.0, 0.6], [0.6, 0.5]])
    drawn = np.random.default_rng(0).multivariate_normal([1, -1], covariance, 100_000)
    ring = page._ellipse(np.array([1.0, -1.0]), covariance)
    radius = np.einsum("ij,jk,ik->i", drawn - [1, -1], np.linalg.inv(covariance), drawn - [1, -1])
    edge = np.einsum("ji,jk,ki->i", ring - [[1], [-1]], np.linalg.inv(covariance), ring - [[1], [-1]])
    assert edge == pytest.approx(np.full(73, edge[0]))
    assert (radius < edge[0]).mean() == pytest.approx(0.9, abs=0.005)


def test_the_lattice_has_its_own_picture() -> None:
    made = views_of("ising")
    assert "gap" not in made
    law = next(t for t in made["main"].traces if t["name"] == "law of S")
    assert float(np.sum(law["y"])) == pytest.approx(1)


def test_column_names_are_text() -> None:
    params, frame = last("gaussian-2d")
    hostile = {**frame.data, "posterior": {**frame.data["posterior"], "names": ["<img src=x>", "$method"]}}
    text = orjson.dumps([view_json(v) for v in page.views(Frame(1.0, "", frame.metrics, hostile), params)])
    assert b"<img" not in text


EVENTS: list[tuple[str, dict[str, Any], dict[str, Any], Changes | None]] = [
    ("gap", {"type": "click", "x": 0.0123}, {"sampler": "auto", "scene": "gaussian-2d"}, Changes({"kappa": 0.012}, True)),
    ("gap", {"type": "click", "x": 50.0}, {"sampler": "auto", "scene": "gaussian-2d"}, Changes({"kappa": 1.0}, True)),
    ("gap", {"type": "click", "x": 0.01}, {"sampler": "auto", "scene": "logistic"}, Changes({"chi": 0.01}, True)),
    ("gap", {"type": "drag", "x0": 0.1, "x1": 0.01}, {"sampler": "poisson-mh", "kappa": 0.01}, Changes({"kappa": 0.1}, True)),
    ("gap", {"type": "drag", "x0": 0.1, "x1": 0.1}, {"sampler": "poisson-mh", "kappa": "auto"}, Changes({"kappa": 0.1}, True)),
    ("gap", {"type": "drag", "x0": None, "x1": None}, {"kappa": 0.1}, None),
    ("gap", {"type": "click", "x": -1.0}, {}, None),
    ("gap", {"type": "click", "x": True}, {}, None),
    ("gap", {"type": "click", "x": "1"}, {}, None),
    ("main", {"type": "click", "x": 0.1}, {}, None),
    ("controls", {"type": "upload", "field": "csv"}, {}, Changes({"scene": "csv"}, True)),
    ("controls", {"type": "upload", "field": "other"}, {}, None),
]


@pytest.mark.parametrize(("view", "event", "params", "expected"), EVENTS, ids=lambda v: str(v)[:40])
def test_what_an_event_means(view: str, event: dict[str, Any], params: dict[str, Any], expected: Changes | None) -> None:
    assert page.on_event(view, event, params) == expected
