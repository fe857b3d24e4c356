"""The pages of tai: what is drawn of real runs, what a button or a drag means, what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import orjson
import plotly.graph_objects as go
import pytest

from app.export import to_plotly
from app.pages import _tai_chat, _tai_cloud, _tai_marks, load
from app.pages import tai as page
from app.plotting import Changes, Figure, Panel, view_json
from app.thumbnails import svg
from backends.contract import ContextSpec, Frame
from backends.registry import get
from backends.runtime.context import RunContext
from backends.tai.card import Params
from backends.validation import validate
from tests.contract.page_checks import assert_labelled

FRAME_BYTES = 90_000
SIMULATED = {"answerer": "simulated", "options": "binary"}
RUNS: Mapping[str, Mapping[str, Any]] = {
    "code": {},
    "code to the end": SIMULATED,
    "chart": {"task": "visualisation", "options": "binary"},
    "route": {"task": "navigation", "options": "binary", "candidates": 16},
    "route to the end": {"task": "navigation", "candidates": 16, **SIMULATED},
    "own": {"task": "own"},
}
WHOLE = {"map", "chat", "leading", "belief", "barcode", "diagram", "entropy", "distances", "coverage"}


@cache
def run(name: str) -> tuple[Params, tuple[Frame, ...]]:
    method = get("tai")
    params = validate(method.Params, dict(RUNS[name]))
    return params, tuple(f.sealed() for f in method.run(params, RunContext(ContextSpec(seed=params.seed))))  # type: ignore[return-value]


def last(name: str, **changes: Any) -> dict[str, Any]:
    """The views of the last frame of a run, entries of its data changed."""
    params, frames = run(name)
    found = frames[-1]
    return {v.name: v for v in page.views(Frame(1.0, found.message, found.metrics, {**found.data, **changes}), params)}


def traces(view: Figure, name: str) -> list[Mapping[str, Any]]:
    return [t for t in view.traces if t["name"] == name]


@pytest.mark.parametrize("name", RUNS)
def test_every_frame_is_drawn_labelled_and_small(name: str) -> None:
    params, frames = run(name)
    for found in frames:
        made = page.views(found, params)
        assert [v.name for v in made if v.span == "main"] == [v.name for v in made[:1]]
        for view in made:
            assert_labelled(view)
            if isinstance(view, Figure):
                go.Figure(to_plotly(view))
        assert len(orjson.dumps([view_json(v) for v in made])) < FRAME_BYTES
    assert set(last(name)) >= WHOLE
    assert ("questions" in last(name)) == (params.answerer == "me")


def test_the_chat_stands_second_beside_the_map() -> None:
    params, frames = run("code")
    made = page.views(frames[-1], params)
    assert [v.name for v in made[:2]] == ["map", "chat"]
    assert isinstance(made[1], Panel)
    assert made[1].data["lead"] is True


@pytest.mark.parametrize("name", ["code", "chart", "route", "own", "code to the end"])
def test_no_picture_stands_alone_above_the_wide_table(name: str) -> None:
    params, frames = run(name)
    names = [v.name for v in page.views(frames[-1], params)]
    between = names[2 : names.index("questions")] if "questions" in names else []
    assert len(between) % 2 == 0


def test_an_answer_does_not_make_the_page_begin_anew() -> None:
    params, frames = run("code")
    found = frames[-1]
    asked = params.model_copy(update={"answers": [[found.data["question"]["id"], "not-sure"]]})
    assert all(page.views(f, asked) == [] for f in frames if "arrived" not in f.data), "what was shown stays until the answer is taken"
    turn = {**found.data["question"], "reply": {"id": "not-sure", "text": "not sure"}, "teig": 1.0, "eig": 1.0, "explanation": "Nothing changes."}
    taken = Frame(1.0, "", found.metrics, {**found.data, "transcript": [turn]})
    assert page.views(taken, asked)


# -------------------------------------------------------------------------------------------------------- the chat


def test_answers_that_may_not_be_taken_can_be_dropped() -> None:
    arriving = Frame(0.1, "", {}, {"mode": "dialogue", "task": "code", "arrived": {"done": 3, "total": 48, "caption": "a"}})
    for answers, offered in (([], []), ([["0" * 12, "none"]], ["anew"])):
        params = validate(Params, {"answers": answers})
        chat = next(v for v in page.views(arriving, params) if v.name == "chat")
        assert [o["id"] for o in chat.data["options"]] == offered  # type: ignore[union-attr]


def test_the_buttons_are_the_options_of_the_question() -> None:
    question = run("code")[1][-1].data["question"]
    chat = last("code")["chat"].data
    assert chat["prompt"] == question["text"]
    loud = [o for o in chat["options"] if not o.get("quiet")]
    assert [o["text"] for o in loud] == [o["text"] for o in question["options"]]
    meant = page.on_event("chat", {"type": "answer", "id": loud[1]["id"]}, {"answers": []})
    assert meant == Changes({"answers": [[question["id"], question["options"][1]["id"]]]}, run=True)
    quiet = {o["text"]: page.on_event("chat", {"type": "answer", "id": o["id"]}, {"answers": []}) for o in chat["options"] if o.get("quiet")}
    assert {c.params["answers"][0][1] for c in quiet.values() if c} == {"not-sure", "none"}


def test_a_pressed_answer_is_one_that_the_run_takes() -> None:
    params, _ = run("route")
    chat = last("route")["chat"].data
    changes = page.on_event("chat", {"type": "answer", "id": chat["options"][0]["id"]}, params.model_dump())
    assert changes is not None
    method = get("tai")
    further = validate(method.Params, {**params.model_dump(), **changes.params})
    end = list(method.run(further, RunContext(ContextSpec(seed=0))))[-1]
    said = [turn["text"] for turn in {v.name: v for v in page.views(end, further)}["chat"].data["turns"]]  # type: ignore[union-attr]
    assert said[2:4] == [chat["prompt"], chat["options"][0]["text"]]
    back = next(o["id"] for o in {v.name: v for v in page.views(end, further)}["chat"].data["options"] if o["text"] == "Back")  # type: ignore[union-attr]
    assert page.on_event("chat", {"type": "answer", "id": back}, further.model_dump()) == Changes({"answers": []}, run=True)


def test_the_end_names_the_solution_and_what_others_need() -> None:
    frame = run("code to the end")[1][-1]
    chat = last("code to the end")["chat"].data
    spoken = chat["turns"][-1]["text"]
    assert frame.data["solution"]["name"] in spoken
    assert f"EIG needs {frame.data['baselines']['eig']['turns']}" in spoken
    assert "That is what was wished." in spoken
    wrong = dict(frame.metrics) | {"right": False}
    params = run("code to the end")[0]
    other = next(v for v in page.views(Frame(1.0, "", wrong, frame.data), params) if v.name == "chat")
    assert f"What was wished: {frame.data['dealt']['name']}." in other.data["turns"][-1]["text"]  # type: ignore[union-attr]
    assert [o["text"] for o in chat["options"]] == ["Answer yourself"]


def test_what_it_could_mean_is_told_on_demand() -> None:
    data = run("code")[1][-1].data
    meanings, wish = last("code")["chat"].data["folds"]
    assert meanings["lines"] == [m["name"] for m in data["meanings"]]
    assert wish["lines"] == [data["dealt"]["name"]]
    assert wish["code"].startswith("def ")
    assert last("route")["chat"].data["folds"][1]["code"] is None


ONE = [["1f", "2e"]]
EVENTS = [
    ("chat", {"type": "answer", "id": "say 0 1f none"}, [], Changes({"answers": [["1f", "none"]]}, True)),
    ("chat", {"type": "answer", "id": "say 0 1f 2e"}, ONE, None),
    ("chat", {"type": "answer", "id": "say 1 1f"}, ONE, None),
    ("chat", {"type": "answer", "id": "say 1 3a 4b"}, ONE, Changes({"answers": [*ONE, ["3a", "4b"]]}, True)),
    ("chat", {"type": "answer", "id": "back 1"}, ONE, Changes({"answers": []}, True)),
    ("chat", {"type": "answer", "id": "back 0"}, [], None),
    ("chat", {"type": "answer", "id": "anew"}, ONE, Changes({"answers": []}, True)),
    ("chat", {"type": "answer", "id": "self"}, ONE, Changes({"answers": [], "answerer": "me"}, True)),
    ("chat", {"type": "answer", "id": 3}, ONE, None),
    ("chat", {"type": "click", "id": "anew"}, ONE, None),
    ("barcode", {"type": "drag", "shape": "tau 0.100000", "x0": 0.3, "x1": 0.3}, ONE, Changes({"threshold": 0.3, "answers": []}, True)),
    ("barcode", {"type": "drag", "shape": "tau 0.100000", "x0": 0.1, "x1": 0.25}, ONE, Changes({"threshold": 0.25, "answers": []}, True)),
    ("barcode", {"type": "drag", "shape": "tau 0.100000", "x0": 0.02, "x1": 0.1}, ONE, Changes({"threshold": 0.02, "answers": []}, True)),
    ("barcode", {"type": "drag", "shape": "tau x", "x0": -0.4, "x1": 0.1}, ONE, Changes({"threshold": 0.0, "answers": []}, True)),
    ("barcode", {"type": "drag", "shape": "tau 0.1"}, ONE, None),
    ("barcode", {"type": "click", "customdata": 0.125}, ONE, Changes({"threshold": 0.125, "answers": []}, True)),
    ("barcode", {"type": "click", "customdata": True}, ONE, None),
    ("barcode", {"type": "click", "customdata": float("nan")}, ONE, None),
    ("map", {"type": "click", "x": 0.1}, ONE, None),
]


@pytest.mark.parametrize(("view", "event", "answers", "expected"), EVENTS, ids=lambda v: str(v)[:48])
def test_what_an_event_means(view: str, event: dict[str, Any], answers: list[list[str]], expected: Changes | None) -> None:
    assert load("tai").on_event(view, event, {"answers": answers}) == expected


def test_answers_that_are_no_list_count_as_none() -> None:
    assert _tai_chat.answered("say 0 1f 2e", None) == Changes({"answers": [["1f", "2e"]]}, True)


# ------------------------------------------------------------------------------------------------- cloud and topology


def test_opacity_is_weight_and_every_solution_is_on_the_map() -> None:
    data = run("code to the end")[1][-1].data
    marks = traces(last("code to the end")["map"], "solutions")
    opacity = np.concatenate([t["marker"]["opacity"] for t in marks])
    assert opacity.size == len(data["weights"])
    weights = np.sort(np.asarray(data["weights"]))
    assert np.sort(opacity) == pytest.approx(0.12 + 0.88 * weights / weights[-1])


def test_a_hull_holds_the_marks_of_its_meaning() -> None:
    view = last("code")["map"]
    data = run("code")[1][-1].data
    for row in data["belief"]:
        (edge,) = traces(view, _tai_marks.letter(row["colour"]))
        places = _tai_cloud.spread(np.asarray(data["map"]), _tai_cloud.STEP * float(np.ptp(data["map"], axis=0).max()))
        inside = places[np.asarray(data["labels"]) == row["cluster"]]
        assert (inside.min(0) > [edge["x"].min(), edge["y"].min()]).all()
        assert (inside.max(0) < [edge["x"].max(), edge["y"].max()]).all()


def test_hull_of_one_point_is_a_circle_and_of_a_square_is_round_it() -> None:
    circle = _tai_cloud.hull(np.array([[2.0, 1.0]]), 0.5)
    assert np.hypot(*(circle - [2, 1]).T) == pytest.approx(0.5)
    assert circle[0] == pytest.approx(circle[-1])
    square = _tai_cloud.hull(np.array([[0.0, 0], [1, 0], [0, 1], [1, 1], [0.5, 0.5]]), 0.1)
    assert [square.min(), square.max()] == pytest.approx([-0.1, 1.1])


def test_what_coincides_is_fanned_out_and_the_rest_stays() -> None:
    places = np.array([[0.0, 0], [1, 1], [0, 0], [0, 0]])
    fanned = _tai_cloud.spread(places, 0.1)
    assert fanned[:2] == pytest.approx(places[:2])
    assert np.hypot(*(fanned[[2, 3]] - places[[2, 3]]).T) == pytest.approx([0.1, 0.1 * np.sqrt(2)])


def test_the_barcode_draws_each_bar_to_its_death_and_the_cut_can_be_dragged() -> None:
    data = run("code")[1][-1].data["barcode"]
    view = last("code")["barcode"]
    ends = np.concatenate([np.asarray(t["x"])[1::3] for t in traces(view, "bar")])
    assert np.sort(ends) == pytest.approx(np.asarray(data["deaths"]))
    (handle,) = (s for s in view.layout["shapes"] if s.get("editable"))
    assert handle["x0"] == handle["x1"] == pytest.approx(data["tau"])
    assert view.layout["meta"]["editable"] is True
    moved = page.on_event("barcode", {"type": "drag", "shape": handle["name"], "x0": handle["x0"], "x1": 0.5}, {})
    assert moved == Changes({"threshold": 0.5, "answers": []}, True)
    above = int((np.asarray(data["deaths"]) > data["tau"]).sum()) + 1
    assert view.summary.startswith(f"{above} of {data['alive']} bars")


def test_a_click_on_a_bar_cuts_between_it_and_the_next_longer_one() -> None:
    view = last("code")["barcode"]
    deaths = np.asarray(run("code")[1][-1].data["barcode"]["deaths"])
    (ends,) = traces(view, "ends")
    for death, cut in zip(deaths, ends["customdata"], strict=True):
        longer = deaths[deaths > death]
        assert death < cut or cut == 1.0
        assert not longer.size or cut < longer.min()


def test_without_a_cut_the_handle_waits_at_the_edge() -> None:
    found = {**run("code")[1][-1].data["barcode"], "tau": None}
    view = last("code", barcode=found)["barcode"]
    assert view.layout["shapes"][0]["x0"] == pytest.approx(view.layout["xaxis"]["range"][1])
    assert view.summary.startswith("1 of 48")
    assert last("code", barcode=found)["diagram"].layout["shapes"] == []


def test_the_diagram_counts_every_component() -> None:
    data = run("code")[1][-1].data["barcode"]
    view = last("code")["diagram"]
    counted = [int(t.split()[0]) for name in ("joined below the cut", "kept apart") for trace in traces(view, name) for t in trace["text"]]
    assert sum(counted) == len(data["deaths"])


def test_loops_stand_in_the_diagram_as_they_were_found() -> None:
    loops = np.asarray(run("code")[1][-1].data["loops"])
    view = last("code")["diagram"]
    (drawn,) = traces(view, "loops")
    assert sum(int(t.split()[0]) for t in drawn["text"]) == len(loops) > 0
    assert set(zip(np.round(drawn["x"], 6), np.round(drawn["y"], 6), strict=True)) == {tuple(row) for row in loops.round(6).tolist()}
    assert (np.asarray(drawn["y"]) > np.asarray(drawn["x"])).all()
    assert f"{len(loops)} loops (degree 1) among all 48 solutions" in view.summary
    assert not traces(last("code", loops=[])["diagram"], "loops")


def test_what_density_groups_claims_no_cut() -> None:
    found = {**run("code")[1][-1].data["barcode"], "tau": None, "clustering": "tomato"}
    drawn = last("code", barcode=found)
    assert "grouped by density" in drawn["barcode"].summary
    assert "no cut: grouped by density" in [note["text"] for note in drawn["barcode"].layout["annotations"]]
    assert "outlive" not in drawn["diagram"].summary


# -------------------------------------------------------------------------------------------------------- questions


def test_the_table_marks_the_question_that_is_asked() -> None:
    data = run("code")[1][-1].data
    view = last("code")["questions"]
    row = view.data["rows"][view.data["marked"]]
    assert row[0].startswith("\u25b8 " + data["question"]["text"])
    assert sum(cells[0].startswith("\u25b8") for cells in view.data["rows"]) == 1
    best = {f["text"]: f for f in data["questions"]}
    for cells in view.data["rows"]:
        found = best[cells[0].removeprefix("\u25b8 ").split("  [")[0]]
        assert cells[1:4] == pytest.approx([found["teig"], found["eig"], found["waste"]], abs=5e-4)
        assert cells[2] == pytest.approx(cells[1] + cells[3], abs=2e-3)
    gains = [cells[1] for cells in view.data["rows"]]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] == pytest.approx(max(f["teig"] for f in data["questions"]), abs=5e-4)
    about = [cells[4] for cells in view.data["rows"]]
    assert about.count("style") == 3, "what EIG likes and TEIG does not stands beside the best, without scrolling"
    assert len(about) == 8


def test_a_question_that_chance_picks_is_in_the_table_wherever_it_ranks() -> None:
    found = [{**row, "chosen": False} for row in run("code")[1][-1].data["questions"]]
    found[-1]["chosen"] = True
    view = last("code", questions=found)["questions"]
    assert view.data["rows"][view.data["marked"]][0].startswith("\u25b8 " + found[-1]["text"])
    assert view.data["marked"] == len(view.data["rows"]) - 1


def test_the_gains_lie_on_or_below_the_line_of_no_waste() -> None:
    view = last("code")["gains"]
    drawn = [t for t in view.traces if t["name"] in ("what happens", "which of two", "style")]
    assert sum(np.size(t["x"]) for t in drawn) == len(run("code")[1][-1].data["questions"])
    assert all((np.asarray(t["y"]) <= np.asarray(t["x"]) + 1e-9).all() for t in drawn)


def test_the_belief_bars_add_up_to_all_of_it() -> None:
    (rows,) = last("code")["belief"].traces
    assert np.sum(rows["x"]) == pytest.approx(1)
    assert rows["text"][-1].endswith("9 others together")
    (with_none,) = last("code", outside=0.25)["belief"].traces
    assert (with_none["x"][-1], with_none["marker"]["color"][-1]) == (0.25, "$warning")


def test_entropy_ends_where_the_dialogue_does_and_shows_the_baselines() -> None:
    data = run("code to the end")[1][-1].data
    view = last("code to the end")["entropy"]
    (mine,) = traces(view, "this dialogue")
    assert np.asarray(mine["y"]) == pytest.approx(data["entropy"])
    assert {t["name"]: np.size(t["y"]) - 1 for t in view.traces if t["name"] != "this dialogue"} == {
        "by TEIG": data["baselines"]["teig"]["turns"],
        "by EIG": data["baselines"]["eig"]["turns"],
        "at random": data["baselines"]["random"]["turns"],
    }
    assert view.layout["shapes"][0]["y0"] == pytest.approx(data["log2_k"])
    assert len(traces(last("code")["entropy"], "by EIG")) == 0


def test_an_axis_that_no_probe_sees_is_called_invisible() -> None:
    view = last("code", axis_coverage={"letter case": 0.0, "which match": 0.5})["coverage"]
    assert "No probe sees letter case" in view.summary
    assert view.traces[0]["marker"]["color"] == ["$warning", "$method"]


# --------------------------------------------------------------------------------------------------------- the whole


def test_names_are_text_and_not_markup() -> None:
    data = run("code")[1][-1].data
    evil = "<img src=x onerror=a()> $method"
    belief = [{**row, "name": evil} for row in data["belief"]]
    captions = [evil] * len(data["candidates"]["captions"])
    made = last("code", belief=belief, candidates={**data["candidates"], "captions": captions})
    text = orjson.dumps([view_json(v)["figure"] for v in made.values() if isinstance(v, Figure)]).decode()
    assert "<img" not in text
    assert " $method" not in text


def test_colours_letters_and_symbols_tell_42_meanings_apart() -> None:
    signs = {(_tai_marks.colour_of(i), _tai_marks.symbol_of(i)) for i in range(42)}
    assert len(signs) == 42
    assert [_tai_marks.letter(i) for i in (0, 25, 26, 51, 52, 701, 702)] == ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]


def test_the_thumbnail_shows_islands_in_their_colours() -> None:
    drawing = svg(last("code")["map"], "agents", "Clarifying questions")
    assert drawing.count("<path") > 20
    assert len(drawing) < 30_000
    assert len({part.split('"')[0] for part in drawing.split('fill="')[1:]}) >= 5
