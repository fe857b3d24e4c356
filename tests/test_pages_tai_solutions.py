"""The solutions of tai side by side, as code, charts, routes and sentences; and the picture of the benchmark."""

from __future__ import annotations

import numpy as np
import orjson
import plotly.graph_objects as go
import pytest

from app.export import to_plotly
from app.pages import tai as page
from app.plotting import Figure
from backends.contract import Frame
from backends.tai.card import Params
from backends.validation import validate
from tests.contract.page_checks import assert_labelled
from tests.test_pages_tai import last, run, traces


def test_the_leading_two_are_compared_line_by_line() -> None:
    first, second = run("code")[1][-1].data["leading"]
    view = last("code")["leading"]
    assert (view.panel, view.data["before"], view.data["after"]) == ("diff", first["shown"]["source"], second["shown"]["source"])
    alone = last("code", leading=[first])["leading"]
    assert alone.data["before"] == alone.data["after"]
    assert alone.title == "The solution"


def test_charts_draw_the_cells_of_the_solution() -> None:
    leading = run("chart")[1][-1].data["leading"]
    view = last("chart")["leading"]
    for number, row in enumerate(leading):
        place = "x" if number == 0 else "x2"
        drawn = [t for t in view.traces if t.get("xaxis") == place]
        values = np.sort(np.concatenate([t["y"] for t in drawn]))
        assert values == pytest.approx(np.sort([cell["value"] for cell in row["shown"]["cells"]]))


MARKS = ["line", "bar", "area", "point", "pie"]


@pytest.mark.parametrize("mark", MARKS)
def test_every_kind_of_chart_is_drawn(mark: str) -> None:
    cells = [{"x": name, "series": name, "value": value} for name, value in (("coal", 3.0), ("$wind<b>", 2.0))]
    shown = {"kind": "chart", "mark": mark, "x": "source", "y": "% of all", "scale": "log" if mark == "point" else "linear", "cells": cells}
    row = {**run("chart")[1][-1].data["leading"][0], "shown": shown}
    view = last("chart", leading=[row, row])["leading"]
    text = orjson.dumps(to_plotly(view)).decode()
    go.Figure(to_plotly(view))
    assert '<b>"' not in text.replace("</b>", "")
    assert len(view.traces) == (2 if mark == "pie" else 4)


def test_routes_are_drawn_on_the_map_with_the_options_of_the_question() -> None:
    data = run("route")[1][-1].data
    view = last("route")["leading"]
    for row in data["leading"]:
        assert any(np.array_equal(np.stack([t["x"], t["y"]], 1), row["shown"]["cells"]) for t in view.traces if t["line"]["width"] > 2 if "line" in t)
    assert {s["name"] for s in view.layout["shapes"]} == {"the lake", "the hill"}
    options = [o["candidate"] for o in data["question"]["options"]]
    assert ("choices" in last("route")) == (None not in options)


def test_sentences_are_wrapped_and_compared() -> None:
    rows = [
        {**row, "shown": {"kind": "text", "text": f"{word} " * 30}} for row, word in zip(run("code")[1][-1].data["leading"], ("bank", "river"), strict=True)
    ]
    view = last("code", leading=rows)["leading"]
    assert max(map(len, view.data["before"].split("\n"))) <= 72
    assert "river" in view.data["after"]


def counted(turns: float, right: float) -> dict[str, float]:
    low = {"turns_low": turns - 1, "turns_high": turns + 1, "right_low": right - 0.1, "right_high": right}
    return {"turns": turns, "right": right, "style": 0.5, "dialogues": 3.0, **low}


def test_the_benchmark_shows_each_mean_and_each_dialogue() -> None:
    from backends.tai.benchmark import STRATEGIES

    rows, turns = [], {}
    for condition, more, rate in (("right answers", 0, 0.0), ("wrong answers", 4, 0.1)):
        turns[condition] = {s: [more + i, more + i + 1, more + i + 2] for i, s in enumerate(STRATEGIES)}
        rows += [
            {"condition": condition, "true_error_rate": rate, "error_rate": rate, "strategy": s, "name": name, **counted(more + i + 1, 0.9)}
            for i, (s, name) in enumerate(STRATEGIES.items())
        ]
    params = validate(Params, {"mode": "benchmark"})
    waiting = page.views(Frame(0.0, "", {}, {"mode": "benchmark"}), params)
    assert [(v.name, v.span) for v in waiting] == [("benchmark", "main")]
    made = {v.name: v for v in page.views(Frame(0.5, "", {}, {"mode": "benchmark", "benchmark": rows, "benchmark_turns": turns}), params)}
    assert list(made) == ["benchmark", "right", "style"]
    figure = made["benchmark"]
    assert isinstance(figure, Figure)
    assert sorted(float(t["x"][0]) for t in traces(figure, "right answers")) == list(range(1, len(STRATEGIES) + 1))
    assert all(t["error_x"]["array"] == [1] for t in traces(figure, "wrong answers"))
    assert sum(np.size(t["x"]) for t in traces(figure, "dialogues")) == 2 * 3 * len(STRATEGIES)
    for view in made.values():
        assert_labelled(view)
        go.Figure(to_plotly(view))  # type: ignore[arg-type]
    assert "TEIG 1.0" in figure.summary
    named = [note["text"] for note in figure.layout["annotations"]]
    assert f"{STRATEGIES['teig']}: 90%, 90% right" in named
