"""A whole run of conformal-ksos: its frames, its live runs, and what they may depend on."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest

from backends.conformal_ksos.card import CARD, Params
from backends.conformal_ksos.method import run
from backends.conformal_ksos.rows import load
from backends.contract import ContextSpec, Frame, Upload
from backends.runtime.context import RunContext


def frames(live: str | None = None, **values: Any) -> list[Frame]:
    params = Params(**values)
    return list(run(params, RunContext(ContextSpec(seed=params.seed), live=live)))


def exact(frame: Frame) -> dict[str, Any]:
    return {name: value for name, value in frame.metrics.items() if CARD.metrics[name].kind == "exact"}


def test_frames_grow_to_the_end() -> None:
    seen = frames(**CARD.cheap)
    progress = [frame.progress for frame in seen]
    assert progress == sorted(progress)
    assert progress[-1] == 1
    assert len(seen) > 10
    last = seen[-1]
    assert set(last.metrics) == set(CARD.metrics)
    assert {"made_by", "axes", "points", "grid", "truth", "path", "local", "scores", "law", "spectrum", "convergence", "notes"} <= set(last.data)
    assert last.data["convergence"]["gap"][-1] == pytest.approx(last.metrics["duality_gap"])
    assert len(last.data["path"]["width"]) == len(last.data["path"]["labels"]) == 6
    assert Frame.from_json(last.to_json()).metrics == last.metrics


@pytest.mark.parametrize(("name", "value"), [("symmetry", 3.0), ("symmetry", "separate"), ("symmetry", "symmetric"), ("alpha", 0.23)])
def test_a_live_run_is_one_frame_and_equals_the_full_one(name: str, value: Any) -> None:
    full = frames(**CARD.cheap, **{name: value})[-1]
    live = frames(name, **CARD.cheap, **{name: value})
    assert len(live) == 1
    assert live[0].progress == 1
    assert exact(live[0]) == exact(full)
    np.testing.assert_array_equal(live[0].data["grid"]["upper"], full.data["grid"]["upper"])


def test_results_do_not_depend_on_what_was_done_before() -> None:
    code = "from tests.test_conformal_ksos_run import CARD, exact, frames\nimport json\nprint(json.dumps(exact(frames(**CARD.cheap, symmetry=2.0)[-1])))"
    fresh = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100).stdout
    for value in (0.01, 900.0, "auto"):
        frames("symmetry", **CARD.cheap, symmetry=value)
    assert json.loads(fresh) == exact(frames("symmetry", **CARD.cheap, symmetry=2.0)[-1])


def test_peers_agree_with_our_own_constant_width() -> None:
    last = frames(**CARD.cheap)[-1]
    grid = last.data["grid"]
    assert last.metrics["mean_width_mapie_split"] == pytest.approx(np.mean(grid["upper_constant"] - grid["lower_constant"]))


def test_too_few_calibration_rows_give_an_infinite_band_that_says_so() -> None:
    last = frames(**{**CARD.cheap, "n": 100, "calibration_fraction": 0.05})[-1]
    assert last.metrics["mean_width"] is None
    assert last.metrics["coverage"] == 1
    assert last.metrics["coverage_mapie_split"] is None
    assert "at least 9 are needed" in last.message
    assert "upper" not in last.data["grid"]
    assert last.data["scores"]["quantile"] is None
    assert np.isnan(last.data["path"]["width"]).all()


def test_nothing_fitted_sees_calibration_or_test_rows() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.uniform(0, 1, 90), rng.normal(size=90)
    params = partial(Params, data="csv", length_scale=1.0, target="y")

    def table(values: np.ndarray) -> Upload:
        return Upload.of("t.csv", ("x,y\n" + "\n".join(f"{a},{b}" for a, b in zip(x, values, strict=True))).encode())

    held = np.setdiff1d(np.arange(90), load(params(csv=table(y))).train)
    changed = y.copy()
    changed[held] = 10 * y[held] + 3
    before, after = (list(run(params(csv=table(v)), RunContext(ContextSpec(seed=0))))[-1] for v in (y, changed))
    for name in ("dcov", "p_value", "chosen"):
        np.testing.assert_array_equal(before.data["path"][name], after.data["path"][name])
    np.testing.assert_array_equal(before.data["spectrum"]["upper"], after.data["spectrum"]["upper"])
    assert before.metrics["mean_width"] != after.metrics["mean_width"]


@pytest.mark.parametrize(
    "values",
    [
        {"data": "engel", "length_scale": 2.0},
        {"data": "diabetes", "features": ["bmi"], "predictor": "random-forest", "length_scale": 2.0},
        {"predictor": "kernel-ridge", "penalty": "operator", "solver": "fista", "symmetry": 5.0},
        {"outliers": 3, "bias": 1.0, "criterion": "hsic"},
        {"data": "biased", "predictor": "linear", "symmetry": 0.0},
    ],
    ids=str,
)
def test_every_kind_of_run_ends(values: dict[str, Any]) -> None:
    last = frames(**{**CARD.cheap, **values})[-1]
    assert last.progress == 1
    assert last.metrics["coverage"] is not None
    assert last.metrics["duality_gap"] <= 1e-3


def test_the_card_needs_no_heavy_import() -> None:
    heavy = ("scipy", "sklearn", "torch", "pandas", "mapie")
    code = f"import sys, backends.conformal_ksos.card as c; c.Params(); print(*(m for m in {heavy} if m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout.strip() == ""
