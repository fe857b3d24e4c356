"""What conformal-ksos refuses and what it makes of a person's table: each fault named with its argument."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from backends.conformal_ksos import conformal_quantile, distance_covariance, fit_band, solve, solver
from backends.conformal_ksos.card import CARD, Params
from backends.conformal_ksos.conformal import rank_needed
from backends.conformal_ksos.kernel import matern52
from backends.conformal_ksos.method import run
from backends.conformal_ksos.rows import load
from backends.contract import ContextSpec, Frame, InputError, Upload
from backends.runtime.context import RunContext
from tests.hostile_csv import hostile_files

TWELVE = np.linspace(-1, 1, 12)[:, None]
RESIDUALS = np.array([0.3, -0.1, 0.5, -0.4, 0.9, -0.2, 1.2, -0.6, 0.7, -0.3, 1.5, -0.2])
GRAM = matern52(TWELVE, TWELVE, 0.5) + 1e-8 * np.eye(12)


def frames(live: str | None = None, **values: Any) -> list[Frame]:
    params = Params(**values)
    return list(run(params, RunContext(ContextSpec(seed=params.seed), live=live)))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"K": np.full((12, 12), np.nan)}, "K"),
        ({"K": np.eye(3)}, "residuals"),
        ({"K": np.ones((2, 3))}, "K"),
        ({"K": -np.eye(12)}, "K"),
        ({"K": np.triu(np.ones((12, 12)))}, "K"),
        ({"K": [["a"]]}, "K"),
        ({"residuals": RESIDUALS * np.inf}, "residuals"),
        ({"lambda2": 0.0}, "lambda2"),
        ({"lambda1": -1.0}, "lambda1"),
        ({"lambda3": -1.0}, "lambda3"),
        ({"lambda3": math.nan}, "lambda3"),
        ({"b": math.inf}, "b"),
        ({"penalty": "both"}, "penalty"),
        ({"penalty": None}, "penalty"),
        ({"penalty": ["pointwise"]}, "penalty"),
        ({"b": "a"}, "b"),
        ({"lambda3": "a"}, "lambda3"),
        ({"lambda3": None}, "lambda3"),
        ({"lambda3": [1]}, "lambda3"),
        ({"lambda3": "symmetric"}, "lambda3"),
        ({"lambda1": 1j}, "lambda1"),
        ({"lambda1": 10**400}, "lambda1"),
        ({"lambda2": 1e-300}, "lambda2"),
        ({"b": True}, "b"),
        ({"K": GRAM + 0j}, "K"),
        ({"K": np.zeros((12, 12))}, "K"),
        ({"K": 1e200 * GRAM}, "K"),
        ({"K": None}, "K"),
        ({"residuals": 1e200 * RESIDUALS}, "residuals"),
        ({"residuals": ["a"] * 12}, "residuals"),
        ({"residuals": [None] * 12}, "residuals"),
    ],
)
def test_solve_refuses(change: dict[str, Any], field: str) -> None:
    given = {"K": GRAM, "residuals": RESIDUALS, "b": 1.0, "lambda1": 0.1, "lambda2": 0.1, "lambda3": 1.0, "penalty": "pointwise"}
    with pytest.raises(InputError) as caught:
        solve(**(given | change))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({}, (150, 225, 375)),
        ({"n": 5000}, (150, 1500, 3350)),
        ({"n": 90}, (40, 27, 23)),
        ({"n": 90, "calibration_fraction": 0.6}, (31, 54, 5)),
        ({"train_fraction": 0.2}, (150, 225, 375)),
        ({"data": "engel"}, (106, 70, 59)),
        (CARD.preset("engel").params, (100, 75, 60)),
        ({"data": "diabetes"}, (199, 133, 110)),
    ],
)
def test_parts(values: dict[str, Any], parts: tuple[int, int, int]) -> None:
    rows = load(Params(**values))
    assert (len(rows.train), len(rows.calibration), len(rows.test)) == parts
    assert len(np.unique(np.concatenate([rows.train, rows.calibration, rows.test]))) == sum(parts)


@pytest.mark.parametrize("n", [30, 31, 34, 50, 100])
def test_a_small_table_gets_a_finite_band(n: int) -> None:
    rng = np.random.default_rng(n)
    text = "x,y\n" + "\n".join(f"{a:.3f},{b:.3f}" for a, b in rng.normal(size=(n, 2)))
    last = frames(data="csv", csv=Upload.of("small.csv", text.encode()), length_scale=1.0)[-1]
    assert last.metrics["mean_width"] is not None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"X": np.ones(40)}, "X"),
        ({"y": np.ones(40)}, "y"),
        ({"y": np.full(40, np.nan)}, "y"),
        ({"X": np.arange(20.0), "y": np.arange(20.0)}, "X"),
        ({"y": 2 * np.arange(40.0)}, "predictor"),
        ({"alpha": 1.5}, "alpha"),
        ({"symmetry": "most"}, "symmetry"),
        ({"symmetry": -1.0}, "symmetry"),
        ({"predictor": "oracle"}, "predictor"),
        ({"length_scale": 0.0}, "length_scale"),
        ({"calibration_fraction": 1.0}, "calibration_fraction"),
        ({"X": [["a", "b"]]}, "X"),
        ({"X": [[1], [1, 2]]}, "X"),
        ({"X": None}, "X"),
        ({"X": 1.0}, "X"),
        ({"X": np.arange(40) + 0j}, "X"),
        ({"y": ["a"] * 40}, "y"),
        ({"alpha": "a"}, "alpha"),
        ({"alpha": math.nan}, "alpha"),
        ({"alpha": None}, "alpha"),
        ({"symmetry": None}, "symmetry"),
        ({"symmetry": math.nan}, "symmetry"),
        ({"symmetry": [1.0]}, "symmetry"),
        ({"predictor": None}, "predictor"),
        ({"predictor": ["linear"]}, "predictor"),
        ({"length_scale": "long"}, "length_scale"),
        ({"length_scale": math.inf}, "length_scale"),
        ({"calibration_fraction": "a"}, "calibration_fraction"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"seed": "a"}, "seed"),
        ({"seed": None}, "seed"),
        ({"solver": "newton"}, "solver"),
        ({"settings": {"b": 1}}, "settings"),
    ],
)
def test_fit_band_refuses(change: dict[str, Any], field: str) -> None:
    given: dict[str, Any] = {"X": np.arange(40.0), "y": np.random.default_rng(0).normal(size=40)} | change
    with pytest.raises(InputError) as caught:
        fit_band(given.pop("X"), given.pop("y"), **given)
    assert caught.value.field == field


def test_features_may_be_a_list_of_names() -> None:
    assert Params(features=["a", 'b, "c"']).features == 'a,"b, ""c"""'
    assert Params(features=[]).features == ""


def test_other_numeric_columns_and_predictions_of_a_table() -> None:
    rng = np.random.default_rng(0)
    lines = ["name;a;b;c;d;guess;y"]
    lines += [f"row{i};{a:.3f};{b:.3f};{c:.3f};{d:.3f};{a:.3f};{a + 0.1 * e:.3f}" for i, (a, b, c, d, e) in enumerate(rng.normal(size=(120, 5)))]
    upload = Upload.of("table.csv", "\n".join(lines).replace(".", ",").encode())
    last = frames(data="csv", csv=upload, features=["a", "c"], prediction_column="guess", length_scale=1.0)[-1]
    columns = last.data["columns"]
    assert (columns["delimiter"], columns["decimal"], columns["target"], columns["features"]) == ("semicolon", "comma", "y", ["a", "c"])
    assert {c["name"]: c["role"] for c in columns["table"]}["guess"] == "prediction"
    assert columns["used"] == 120
    assert "guess" in last.data["made_by"]["model"]
    assert load(Params(data="csv", csv=upload)).columns["features"] == ["a", "b", "c"]


@pytest.mark.parametrize("file", hostile_files(), ids=lambda f: f.name)
def test_hostile_files(file: Any) -> None:
    params = Params(data="csv", csv=Upload.of(file.name, file.content), length_scale=1.0)
    if file.fault is None:
        assert load(params).columns["rows"] == 80
        return
    with pytest.raises(InputError) as caught:
        frames(**dict(params))
    assert caught.value.field == "csv"
    assert file.fault in str(caught.value)


def csv_of(header: str, *rows: str) -> Upload:
    return Upload.of("t.csv", "\n".join([header, *rows]).encode())


ROWS = [f"{i},{i % 7},{(i * 37) % 11}" for i in range(60)]


@pytest.mark.parametrize(
    ("values", "field", "said"),
    [
        ({"data": "csv"}, "csv", "no file"),
        ({"data": "csv", "csv": Upload(name="a.csv", sha256="0" * 64)}, "csv", "does not carry it"),
        ({"data": "csv", "csv": csv_of("a,b,c", *ROWS[:20])}, "csv", "20 rows"),
        ({"data": "csv", "csv": csv_of("a,b,c", *ROWS), "target": "z"}, "target", "no column 'z'"),
        ({"data": "csv", "csv": csv_of("a,b,c", *ROWS), "features": "a,z"}, "features", "'z'"),
        ({"data": "csv", "csv": csv_of("a,b,c", *ROWS), "features": "a,a"}, "features", "twice"),
        ({"data": "csv", "csv": csv_of("a,b,c", *ROWS), "predictor": "column"}, "prediction_column", "no column of predictions"),
        ({"data": "csv", "csv": csv_of("a,b,c", *ROWS), "prediction_column": "z"}, "prediction_column", "no column 'z'"),
        ({"data": "csv", "csv": csv_of("a,b", *[f"{i},x" for i in range(60)])}, "csv", "1 of 2 columns"),
        ({"data": "csv", "csv": csv_of("a,b", *[f"{i},inf" if i == 9 else f"{i},{i % 5}" for i in range(60)])}, "csv", "line 11"),
        ({"data": "csv", "csv": csv_of("a,b", *[f"{i},3" for i in range(60)])}, "target", "never changes"),
        ({"data": "csv", "csv": csv_of("a,b", *[f"3,{i % 5}" for i in range(60)])}, "features", "never changes"),
        ({"data": "csv", "csv": csv_of("a,b", *[f"{i},{2 * i}" for i in range(60)])}, "predictor", "reproduces"),
        ({"data": "csv", "csv": csv_of("a,b,c", *[f"{i},{i % 5},{i % 5}" for i in range(60)]), "prediction_column": "b"}, "predictor", "reproduces"),
        ({"data": "engel", "predictor": "column"}, "predictor", "no column of predictions"),
        ({"data": "diabetes", "features": "bmi,bp,age,s1"}, "features", "4 columns"),
        ({"train_fraction": 0.6, "calibration_fraction": 0.6}, "calibration_fraction", "120%"),
    ],
)
def test_bad_input_names_its_field(values: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        frames(**values)
    assert caught.value.field == field
    assert said in caught.value.problem


def test_doubts_about_a_table_are_told() -> None:
    table = csv_of(";a;y", *[f"{i};{1 + i % 9}.{100 + (i * 37) % 11};{2 + i % 7}.125" for i in range(60)])
    notes = load(Params(data="csv", csv=table)).notes
    assert "only counts the rows" in notes[0]
    assert "column 'a': 1.100 is read as 1.100" in notes[1]
    with pytest.raises(InputError) as caught:
        load(Params(data="csv", csv=csv_of("a,y", *[f"{i},{i}%" for i in range(60)])))
    assert "1 of 2 columns hold numbers; line 2, column 'y'" in caught.value.problem
    assert "percent sign" in caught.value.remedy


def test_warnings_are_told() -> None:
    sides = frames(**{**CARD.cheap, "bias": -2.0, "data": "exponential"})[-1].data["notes"]
    assert any("above the line" in note for note in sides)
    table = csv_of("a,y", *[f"{i % 9},{(i * 37) % 11}" for i in range(2000)])
    rows = load(Params(data="csv", csv=table))
    assert len(rows.train) == 600
    assert any("600 training rows" in note for note in rows.notes)
    assert any("singular" in note for note in rows.notes)


@pytest.mark.parametrize("penalty", ["pointwise", "operator"])
@pytest.mark.parametrize(("k", "s"), [(1.0, 1e-6), (1.0, 1e6), (1e-4, 1.0), (1e6, 1e6), (1e3, 1e-3)])
def test_the_units_of_kernel_and_residuals_do_not_matter(penalty: Any, k: float, s: float) -> None:
    """With b s^2, lambda1 s^2/k, ... divided out, the same problem in other units has the same optimum, s^2 times the envelopes."""
    base = solve(GRAM, RESIDUALS, 1.0, 0.1, 0.1, 1.0, penalty)
    lambda3 = 1.0 / s**4 if penalty == "pointwise" else k**2 / s**4
    other = solve(k * GRAM, s * RESIDUALS, 1.0 / s**2, 0.1 * k / s**2, 0.1 * k**2 / s**4, lambda3, penalty)
    assert other.value == pytest.approx(base.value, rel=1e-6)
    np.testing.assert_allclose(other.f_upper, s**2 * base.f_upper, rtol=1e-3, atol=1e-6 * s**2)
    assert other.gap < 1e-6


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("k", "s", "weights"),
    [
        (1.0, 1e-4, (1.0, 0.1, 0.1, 1.0)),
        (1.0, 1e-6, (1.0, 0.1, 0.1, 1.0)),
        (1e-4, 1.0, (1.0, 0.1, 0.1, 1.0)),
        (1e6, 1e6, (1.0, 0.1, 0.1, 1.0)),
        (1.0, 1.0, (1.0, 1e-6, 1e-6, 1.0)),
        (1.0, 1.0, (1.0, 0.1, 0.1, 1e9)),
        (1.0, 1.0, (1.0, 0.1, 0.1, 1e30)),
        (1.0, 1.0, (1.0, 0.1, 0.1, 1e300)),
        (1.0, 1.0, (0.0, 0.0, 0.1, 1.0)),
    ],
)
def test_badly_scaled_problems_keep_the_promised_gap(k: float, s: float, weights: tuple[float, float, float, float]) -> None:
    found = solve(k * GRAM, s * RESIDUALS, *weights, "pointwise")
    assert found.gap <= 1e-6
    assert np.all(found.f_upper[RESIDUALS > 0] >= (s * RESIDUALS[RESIDUALS > 0]) ** 2 * (1 - 1e-9))


def test_a_gap_above_the_promise_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "MAX_ITERATIONS", 5)
    with pytest.warns(RuntimeWarning, match="the gap is"):
        found = solve(GRAM, RESIDUALS, 1.0, 0.1, 1e-8, 1.0)
    assert found.gap > 1e-6


def test_numpy_scalars_of_any_width_are_numbers() -> None:
    expected = solve(GRAM, RESIDUALS, 1.0, 0.125, 0.125, 1.0)
    narrow = solve(GRAM, RESIDUALS, np.float32(1), np.float32(0.125), np.float16(0.125), np.int64(1))
    assert narrow.value == expected.value
    assert narrow.f_upper.dtype == np.float64
    assert solve(GRAM.astype(np.float32), RESIDUALS.astype(np.float32), *map(np.float32, (1, 0.125, 0.125, 1))).gap < 1e-6
    assert conformal_quantile([1, 2, 3], np.float32(0.5)) == 2
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 60)).astype(np.float32)
    options = {"alpha": np.float32(0.25), "symmetry": np.int64(1), "length_scale": np.float32(1), "calibration_fraction": np.float64(0.5)}
    band = fit_band(x, y, **options, seed=np.int64(3))
    assert band.lambda3 == 1
    assert np.isfinite(band.predict(x[:3]).upper).all()


@pytest.mark.parametrize("n", [1, 2, 3, 5, 9, 19, 29, 99, 199, 999, 12345, 10**6 - 1])
def test_the_rank_is_that_of_exact_fractions(n: int) -> None:
    for alpha in [Fraction(i, j) for j in (2, 3, 7, 10, 20, 100, 1000) for i in {1, j // 3 or 1, j - 1}]:
        exact = math.ceil((1 - alpha) * (n + 1))
        assert rank_needed(n, float(alpha)) == exact, (n, alpha)
        assert rank_needed(n, 1 - float(1 - alpha)) == exact, (n, alpha)


def test_the_smallest_rank_is_one() -> None:
    assert conformal_quantile([5, 6], 1 - 1e-12) == 5
    assert conformal_quantile([5, 6], math.nextafter(1, 0)) == 5
    assert conformal_quantile([5, 6], math.nextafter(0, 1)) == math.inf
    assert rank_needed(99, 0.01 + 1e-9) == 99
    assert rank_needed(99, 0.01 - 1e-9) == 100
    assert conformal_quantile([1.0, math.inf], 0.34) == math.inf


@pytest.mark.parametrize(
    ("scores", "alpha", "field"),
    [
        (["a"], 0.1, "scores"),
        (["1"], 0.1, "scores"),
        ([[1], [1, 2]], 0.1, "scores"),
        ((x for x in (1, 2)), 0.1, "scores"),
        ([1j], 0.1, "scores"),
        ([None], 0.1, "scores"),
        (3.0, 0.1, "scores"),
        ([1.0], "a", "alpha"),
        ([1.0], None, "alpha"),
        ([1.0], math.nan, "alpha"),
        ([1.0], [0.1], "alpha"),
        ([1.0], True, "alpha"),
    ],
)
def test_conformal_quantile_refuses(scores: Any, alpha: Any, field: str) -> None:
    with pytest.raises(InputError) as caught:
        conformal_quantile(scores, alpha)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("a", "b", "field"),
    [(["a", "b"], [1, 2], "a"), ([1, 2], ["a", "b"], "b"), ([1, 2], [[1], [2, 3]], "b"), ([], [], "a"), (3, 4, "a"), ([1, 2], [1j, 2], "b"), (None, [1], "a")],
)
def test_distance_covariance_refuses(a: Any, b: Any, field: str) -> None:
    with pytest.raises(InputError) as caught:
        distance_covariance(a, b)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("predictor", "said"),
    [
        (lambda rows: rows, "(m, 1)"),
        (lambda rows: rows[:-1, 0], "shape"),
        (lambda rows: np.full(len(rows), math.nan), "NaN"),
        (lambda rows: ["a"] * len(rows), "not a number"),
        (lambda rows: 1.0, "shape"),
    ],
)
def test_what_a_predictor_returns_is_checked(predictor: Any, said: str) -> None:
    x = np.arange(40.0)
    with pytest.raises(InputError) as caught:
        fit_band(x, np.sin(x), predictor=predictor, symmetry=1.0, length_scale=1.0)
    assert caught.value.field == "predictor"
    assert said in caught.value.problem + caught.value.remedy


@pytest.mark.parametrize(
    "rows", [[math.nan], [], np.zeros((3, 3)), np.zeros(3), None, "a", 1.0, [["a", "b"]], np.zeros((2, 2, 2)), [[1, 2], [3]], [[math.inf, 0]]]
)
def test_predict_refuses(rows: Any) -> None:
    rng = np.random.default_rng(0)
    band = fit_band(rng.normal(size=(40, 2)), rng.normal(size=40), symmetry=1.0, length_scale=1.0)
    with pytest.raises(InputError) as caught:
        band.predict(rows)
    assert caught.value.field == "x"
