"""Whole runs of voronoi-pc: what the exercise and the presets say is measured, and bad input is refused in words."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from backends.contract import ContextSpec, Frame, InputError, Params, Upload
from backends.registry import get
from backends.runtime.context import RunContext
from backends.validation import validate

METHOD = get("voronoi-pc")
CHEAP = dict(METHOD.card.cheap)


@cache
def _ran(values: str, live: str | None) -> tuple[Frame, ...]:
    params: Params = validate(METHOD.Params, json.loads(values))
    return tuple(METHOD.run(params, RunContext(ContextSpec(seed=params.seed), live=live)))


def ran(live: str | None = None, **values: Any) -> tuple[Frame, ...]:
    return _ran(json.dumps(values), live)


def last(**values: Any) -> Frame:
    return ran(**values)[-1]


def preset(name: str, **more: Any) -> Frame:
    return last(**{**METHOD.card.preset(name).params, **more})


def cheap(**more: Any) -> Frame:
    return last(**{**CHEAP, **more})


def gap(frame: Frame) -> float:
    return float(frame.metrics["z_upper"]) - float(frame.metrics["z_lower"])  # type: ignore[arg-type]


def number(frame: Frame, name: str) -> float:
    value = frame.metrics[name]
    assert isinstance(value, int | float)
    return float(value)


def table(rows: int, columns: int = 3, flat: bool = False) -> Upload:
    names = ",".join(f"c{i}" for i in range(columns))
    lines = [",".join(f"{math.sin(i * (j + 1.3)) if not (flat and j == 1) else 2.0:.4f}" for j in range(columns)) for i in range(rows)]
    return Upload.of("mine.csv", (names + "\n" + "\n".join(lines) + "\n").encode())


def test_the_first_step_of_the_exercise() -> None:
    upright = preset("upright")
    assert gap(upright) < 1e-9
    assert upright.data["bounds"]["splits"][-1] == 2
    turned = preset("upright", angle=45.0)
    assert gap(turned) == pytest.approx(0.012, abs=0.001)
    assert gap(turned) / gap(preset("upright", angle=45.0, splits=2000)) == pytest.approx(2, rel=0.15)
    assert number(turned, "z_exact") == pytest.approx(number(upright, "z_exact"), abs=1e-9)
    hfv = preset("upright", gate="hfv")
    assert number(hfv, "z_exact") == pytest.approx(0.841345, abs=1e-6)
    assert gap(hfv) == 0


def test_the_second_step_of_the_exercise() -> None:
    plain, named = preset("spiral"), preset("spiral", loss="normalised")

    def width(frame: Frame) -> float:
        return number(frame, "log_likelihood_upper") - number(frame, "log_likelihood_lower")

    assert number(plain, "z_exact") == pytest.approx(0.94, abs=0.02)
    assert number(named, "z_exact") == pytest.approx(0.87, abs=0.02)
    assert number(named, "z_exact") < number(plain, "z_exact")
    assert width(plain) == pytest.approx(0.04, abs=0.01)
    assert width(named) == pytest.approx(0.07, abs=0.015)
    mixture = number(plain, "log_likelihood_mixture")
    assert mixture == pytest.approx(-1.79, abs=0.02)
    assert mixture > max(number(plain, "log_likelihood_upper"), number(named, "log_likelihood_upper"))


def test_the_third_step_of_the_exercise() -> None:
    slanted, upright = preset("six-dimensions"), preset("six-dimensions", gate="hfv")
    assert (number(slanted, "z_lower"), number(slanted, "z_upper")) == pytest.approx((0.33, 1.0), abs=0.02)
    assert slanted.metrics["z_exact"] is None
    assert gap(upright) == 0
    assert number(upright, "z_exact") == pytest.approx(0.70, abs=0.02)
    assert number(upright, "log_likelihood_lower") == pytest.approx(-8.6, abs=0.1)
    assert number(slanted, "log_likelihood_lower") == pytest.approx(-7.6, abs=0.1)


@pytest.mark.parametrize("gate", ["voronoi", "hfv", "constant"])
@pytest.mark.parametrize("expert", ["gaussian", "mixture-of-4"])
def test_every_gate_answers_within_its_bounds(gate: str, expert: str) -> None:
    frame = cheap(gate=gate, expert=expert)
    assert number(frame, "z_lower") <= number(frame, "z_exact") <= number(frame, "z_upper")
    assert number(frame, "log_likelihood_lower") <= number(frame, "log_likelihood_upper")
    query = frame.data["query"]
    assert query["lower"] - 1e-9 <= query["exact"] <= query["upper"] + 1e-9
    for name in ("marginal", "conditional"):
        found = frame.data[name]
        exact = np.asarray(found["exact"])
        assert (np.asarray(found["lower"]) <= exact + 1e-7).all()
        assert (exact <= np.asarray(found["upper"]) + 1e-7).all()


def test_the_likelihood_interval_is_log_f_less_the_logs_of_the_bounds() -> None:
    frame = cheap()
    spread = number(frame, "log_likelihood_upper") - number(frame, "log_likelihood_lower")
    assert spread == pytest.approx(math.log(number(frame, "z_upper") / number(frame, "z_lower")), abs=1e-9)


def test_boxes_refine_monotonely_through_the_frames() -> None:
    frames = [
        f
        for f in ran(
            **CHEAP,
        )
        if f.metrics["z_lower"] is not None
    ]
    lower, upper = ([number(f, name) for f in frames] for name in ("z_lower", "z_upper"))
    assert lower == sorted(lower)
    assert upper == sorted(upper, reverse=True)
    assert len(frames) > 5


def test_the_marginal_integrates_to_about_one() -> None:
    found = preset("two-centroids").data["marginal"]
    at = np.asarray(found["at"])
    assert np.trapezoid(np.asarray(found["exact"]), at) == pytest.approx(1, abs=0.02)


def test_interval_evidence_and_interval_events_are_answered() -> None:
    query = preset("two-centroids", evidence="x1 in [-1, 0.5]", event="x2 in [-0.5, 1]").data["query"]
    assert query["lower"] <= query["exact"] <= query["upper"]
    assert query["upper"] - query["lower"] < 0.05
    nothing = preset("two-centroids", evidence="", event="x1 > 0").data["query"]
    assert nothing["exact"] == pytest.approx(0.5, abs=1e-6)


def test_a_moved_wall_changes_the_mass_and_stays_certified() -> None:
    moved = preset("two-centroids", centroids=[-0.5, -1.0, 1.5, 0.2])
    assert number(moved, "z_lower") <= number(moved, "z_exact") <= number(moved, "z_upper")
    assert number(moved, "z_exact") != pytest.approx(0.841345, abs=0.01)


def test_centroids_that_coincide_are_merged_and_told() -> None:
    frame = cheap(centroids=[0.0, 0.0, 0.0, 0.0, 1.0, 0.0])
    assert len(frame.data["plane"]["centroids"]) == 2
    assert any("merged" in note for note in frame.data["notes"])


def test_empty_cells_are_told() -> None:
    frame = cheap(centroids=[0.0, 0.0, 1.0, 0.0, 40.0, 40.0])
    assert any("no training point" in note for note in frame.data["notes"])


def test_a_live_run_trains_nothing_anew() -> None:
    full = ran(**CHEAP)
    (only,) = ran(live="splits", **CHEAP)
    assert {k: v for k, v in only.metrics.items() if k != "seconds"} == {k: v for k, v in full[-1].metrics.items() if k != "seconds"}


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"gate": "hfv", "gate_scope": "pair"}, "gate_scope", "does not factorise"),
        ({"data": "wine"}, "beyond_eight", "13 variables"),
        ({"evidence": "x1 = 1e6"}, "evidence", "density 0"),
        ({"evidence": "x1 = 900", "gate": "hfv"}, "evidence", "mass 0"),
        ({"evidence": "x3 = 1"}, "evidence", "no x3"),
        ({"evidence": "speed"}, "evidence", "cannot be read"),
        ({"evidence": "x1 = 0, x2 = 0", "event": ""}, "evidence", "every variable"),
        ({"event": "x2 = 1"}, "event", "probability 0"),
        ({"event": "x1 > 0"}, "event", "fixed by the evidence"),
        ({"event": "x2 > 1, x2 < 0"}, "event", "leave nothing"),
        ({"data": "iris", "centroids": [0.0, 1.0]}, "centroids", "4 variables"),
        ({"data": "two-centroids", "centroids": [0.0, 1.0, 1.0, 1.0, 2.0, 2.0]}, "centroids", "2 experts"),
        ({"data": "two-centroids", "centroids": [0.0, 1.0, 0.0, 1.0]}, "centroids", "coincide"),
        ({"data": "csv"}, "csv", "no file"),
        ({"data": "csv", "csv": table(40), "columns": "speed"}, "columns", "no column"),
        ({"data": "csv", "csv": table(40), "columns": "c0"}, "columns", "1 columns"),
        ({"data": "csv", "csv": table(40, flat=True)}, "csv", "never changes"),
        ({"data": "csv", "csv": table(30), "cells": 64}, "cells", "21 distinct"),
        ({"data": "csv", "csv": Upload.of("nan.csv", b"a,b\n" + b"1,2\n" * 30 + b"nan,3\n")}, "csv", "nan"),
    ],
)
def test_bad_input_is_refused_at_its_field(values: dict[str, Any], field: str, words: str) -> None:
    params = validate(METHOD.Params, {**CHEAP, **values})
    with pytest.raises(InputError) as refused:
        list(METHOD.run(params, RunContext(ContextSpec(seed=0))))
    assert refused.value.field == field
    assert words in str(refused.value)


def test_an_odd_list_of_coordinates_is_refused() -> None:
    with pytest.raises(InputError, match="pairs"):
        validate(METHOD.Params, {"centroids": [1.0, 2.0, 3.0]})


def test_a_persons_table_is_standardised_and_named() -> None:
    params = validate(METHOD.Params, {**CHEAP, "data": "csv", "csv": table(80), "columns": "c2, c0"})
    frame = list(METHOD.run(params, RunContext(ContextSpec(seed=0), visitor="ann")))[-1]
    assert any("x1 is c2, x2 is c0" in note for note in frame.data["notes"])
    assert abs(float(torch.as_tensor(np.asarray(frame.data["plane"]["points"])).mean())) < 0.3


def test_thirteen_variables_are_exact_with_upright_walls_and_useless_without() -> None:
    exact = cheap(data="wine", gate="hfv")
    assert gap(exact) == 0
    assert gap(cheap(data="wine", beyond_eight=True)) > 0.9
