"""Pictures as plain data: strict JSON, typed arrays, house colours, and what plotly itself says of every trace."""

from __future__ import annotations

import base64
import itertools
import math

import numpy as np
import orjson
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import plotting as p
from app.export import to_plotly
from app.plotting import Figure, Panel, view_json

X = np.linspace(0.0, 1.0, 50)


def decoded(array: dict[str, str]) -> np.ndarray:
    flat = np.frombuffer(base64.b64decode(array["bdata"]), np.dtype("<" + array["dtype"]))
    return flat.reshape([int(n) for n in array["shape"].split(",")]) if "shape" in array else flat


def figure(*traces: p.Trace, **layout: object) -> Figure:
    return Figure("f", "Title", list(traces), p.layout(p.axis("x", "m"), p.axis("y", "s"), **layout), "Summary", height=300)


EVERY_TRACE = {
    "line": p.line(X, X**2, "line", ghost=True),
    "band": p.band(X, X - 1, X + 1, "band"),
    "outline": p.outline(X, X - 1, X + 1, "outline", "$peer-1"),
    "scatter": p.scatter(X, X, "scatter", symbol="circle-open"),
    "intervals": p.intervals(X, X, X - 0.1, X + 0.2, "intervals"),
    "bars": p.bars(X, X, "bars", width=0.01),
    "histogram": p.histogram(X, np.linspace(0, 1, 5), "histogram", down=True),
    "heatmap": p.heatmap(X, X[:3], np.outer(X[:3], X), "heat", unit="W"),
    "gl": p.scatter(np.zeros(p.GL_POINTS + 1), np.zeros(p.GL_POINTS + 1), "gl"),
}


@pytest.mark.parametrize("name", EVERY_TRACE)
def test_plotly_accepts_every_trace(name: str) -> None:
    view = figure(EVERY_TRACE[name], annotations=[p.label(0, 0, "a")], shapes=[p.rule(0.5, "r"), p.rule(0.5, "r", across="y")])
    go.Figure(to_plotly(view))
    assert orjson.loads(orjson.dumps(view_json(view)))["figure"]["layout"]["meta"]["height"] == 300


def test_many_points_go_to_the_gpu() -> None:
    assert (EVERY_TRACE["gl"]["type"], EVERY_TRACE["scatter"]["type"]) == ("scattergl", "scatter")


def test_ghosts_are_marked() -> None:
    assert EVERY_TRACE["line"]["meta"] == {"ghost": True}
    assert "meta" not in EVERY_TRACE["bars"]


def test_peers_bring_distinct_dashes() -> None:
    assert len({p.line(X, X, "", f"$peer-{i}")["line"]["dash"] for i in (1, 2, 3)}) == 3


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "uint8", "uint64", "bool", "int16", ">f8"])
def test_typed_arrays_hold_the_values(dtype: str) -> None:
    array = (np.arange(40) % 2 if dtype == "bool" else np.arange(40)).astype(dtype)
    assert np.array_equal(decoded(p.typed_array(array)), array.astype(float))


def test_typed_arrays_keep_nan_and_shape() -> None:
    array = np.arange(24.0).reshape(4, 6)
    array[1, 2] = np.nan
    sent = p.typed_array(array)
    assert sent["shape"] == "4, 6"
    assert sent["dtype"] == "f4"
    assert np.array_equal(decoded(sent), array, equal_nan=True)


def test_narrow_values_far_from_zero_keep_their_digits() -> None:
    years = 2024 + np.arange(50) / 365
    assert np.array_equal(decoded(p.typed_array(years)), years)
    assert p.typed_array(np.arange(20) + 2**40)["dtype"] == "f8"


def test_json_is_strict() -> None:
    layout = p.layout(
        p.axis("x"), p.axis("y"), meta={"a": np.float64(2), "b": math.nan, "c": np.int64(3), "d": np.bool_(True), "e": (1, np.array([np.inf, 1.0]))}
    )
    sent = view_json(Figure("f", "t", [p.line(X, X, "a")], layout, "s", frames=[{"data": [{"y": X}]}]))
    text = orjson.dumps(sent)
    assert b"NaN" not in text
    figure_json = orjson.loads(text)["figure"]
    assert figure_json["layout"]["meta"] == {"a": 2.0, "b": None, "c": 3, "d": True, "e": [1, [None, 1.0]]}
    assert figure_json["frames"][0]["data"][0]["y"]["dtype"] == "f4"


def test_unknown_types_are_named() -> None:
    with pytest.raises(TypeError, match="holds a set"):
        view_json(Panel("p", "chips", "t", {"a": {1}}, "s"))


def test_panels_keep_their_data() -> None:
    assert view_json(Panel("p", "chips", "t", {"n": np.arange(2)}, "s", "wide")) == {
        "name": "p",
        "kind": "panel",
        "panel": "chips",
        "title": "t",
        "summary": "s",
        "span": "wide",
        "data": {"n": [0, 1]},
    }


@given(st.integers(4, 60), st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=300))
def test_downsampling_keeps_the_extremes(n: int, values: list[float]) -> None:
    y = np.array(values)
    x = np.arange(y.size, dtype=float)
    small_x, small_y = p.downsample_minmax(x, y, n)
    assert small_x.size <= n
    assert (np.diff(small_x) > 0).all()
    assert small_x[0] == 0
    assert small_x[-1] == x[-1]
    if not np.isnan(y).all():
        assert np.nanmin(small_y) == np.nanmin(y)
        assert np.nanmax(small_y) == np.nanmax(y)


@pytest.mark.parametrize(("x", "n"), [(np.zeros(5), 3), (np.zeros(4), 10), (np.zeros((5, 1)), 10)])
def test_downsampling_refuses_what_it_cannot_do(x: np.ndarray, n: int) -> None:
    with pytest.raises(ValueError, match="cannot downsample"):
        p.downsample_minmax(x, np.zeros(5), n)


@given(st.lists(st.floats(-2, 3), min_size=1, max_size=8))
def test_end_labels_do_not_cover_each_other(heights: list[float]) -> None:
    labels = p.end_labels([(h, str(i), "$ink") for i, h in enumerate(heights)], (0.0, 1.0), 300)
    places = sorted(a["y"] * 300 + a["yshift"] for a in labels)
    assert all(b - a >= p.FONT_PX for a, b in itertools.pairwise(places))
    assert places[0] >= -1e-6
    assert places[-1] <= 300 + 1e-6


def test_a_key_stands_in_one_row() -> None:
    row = p.key_row(("a", "$ink"), ("bcd", "$method"))
    assert row[0]["xshift"] < row[1]["xshift"]
    assert row[0]["yshift"] == row[1]["yshift"]


def test_histogram_counts_every_value_once() -> None:
    trace = p.histogram([0.1, 0.4, 0.4, 1.0], np.array([0, 0.5, 1.0]), "h", down=True)
    assert trace["y"].tolist() == [-3, -1]
    assert trace["customdata"].tolist() == [3, 1]


def test_log_axes_label_decades_or_their_parts() -> None:
    assert p.log_axis("v", "u", np.array([1e-6, 1.0, np.nan, 0.0]))["dtick"] == 2
    assert p.log_axis("v", "u", np.array([1.0, 3.0]))["dtick"] == "D2"
    assert p.log_axis("v", "u", np.array([np.nan]))["dtick"] == "D2"


def test_text_from_outside_is_neither_markup_nor_token() -> None:
    view = figure(p.line(X, X, "a"), annotations=[p.label(0, 0, p.plain_text("$method <a href='x'>"))])
    text = to_plotly(view)["layout"]["annotations"][0]["text"]
    assert "<a" not in text
    assert "method" in text


def test_a_message_says_why_there_is_nothing() -> None:
    view = p.message("m", "Title", "because")
    go.Figure(to_plotly(view))
    assert view.summary == "because"


def test_two_plots_stand_one_above_the_other_where_it_is_narrow() -> None:
    left, right, inside = p.label(0, 1, "left", xref="paper", yref="paper"), p.label(0.6, 1, "right", xref="paper", yref="paper"), p.label(0.9, 3, "at a point")
    narrow = p.stacked_when_narrow([left, right, inside], 0.6, upper=0.5, lower=0.3)["narrow"]
    assert narrow["annotations"] == [left, right | {"x": 0, "y": 0.3}, inside]
    assert (narrow["yaxis"]["domain"], narrow["yaxis2"]["domain"]) == ([0.5, 1], [0, 0.3])
