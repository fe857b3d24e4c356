"""Runs of tai as a person has them: frames, answers in the params, links of another version, bad input."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from backends import registry
from backends.contract import ContextSpec, Frame, InputError
from backends.runtime.context import RunContext
from backends.tai.candidates import Candidates
from backends.tai.tasks import navigation, visualisation
from backends.tai.tasks.grammar import coverage, zipf
from backends.validation import validate

METHOD = registry.get("tai")
ROUTE: dict[str, Any] = {"task": "navigation", "candidates": 24}


def frames(**values: Any) -> list[Frame]:
    params = validate(METHOD.Params, {**ROUTE, **values})
    return [frame.sealed() for frame in METHOD.run(params, RunContext(ContextSpec(params.seed), scope="test"))]


def last(**values: Any) -> Frame:
    return frames(**values)[-1]


def answered(frame: Frame, text: str | None = None, option: int = 0) -> list[str]:
    question = frame.data["question"]
    return [question["id"], text or question["options"][option]["id"]]


@pytest.mark.parametrize("task", ["navigation", "visualisation", "code", "own"])
def test_a_run_ends_at_the_open_question(task: str) -> None:
    seen = frames(task=task, candidates=24)
    end = seen[-1]
    assert end.progress == 1
    assert end.data["stop"] is None
    assert set(end.data["question"]) >= {"id", "text", "options"}
    assert all({"id", "text"} <= set(option) for option in end.data["question"]["options"])
    assert end.data["transcript"] == []
    assert end.metrics["turns"] == 0
    assert end.metrics["entropy_bits"] == pytest.approx(end.data["entropy"][0])
    chosen = [row for row in end.data["questions"] if row["chosen"]]
    assert [row["id"] for row in chosen] == [end.data["question"]["id"]]
    assert chosen[0]["teig"] == max(row["teig"] for row in end.data["questions"])
    for row in end.data["questions"]:
        assert row["eig"] == pytest.approx(row["teig"] + row["waste"], abs=1e-9)
    assert end.data["weights"].sum() == pytest.approx(1.0)
    assert len(end.data["barcode"]["deaths"]) == end.data["candidates"]["total"] - 1
    assert sum(row["belief"] for row in end.data["belief"]) == pytest.approx(1.0, abs=1e-6)
    json.dumps(end.to_json(), allow_nan=False)


@pytest.mark.parametrize("task", ["navigation", "visualisation", "code"])
def test_generated_intents_are_recovered(task: str) -> None:
    end = last(task=task, candidates=48, seed=4)
    assert end.metrics["partition_recovered"] is True
    assert end.metrics["clusters"] == end.metrics["true_intents"]
    assert end.data["log2_k"] == pytest.approx(math.log2(float(end.metrics["clusters"] or 1)))


@pytest.mark.parametrize("task", ["navigation", "visualisation", "code"])
def test_a_dialogue_comes_to_its_right_end(task: str) -> None:
    """A person with the dealt wish in mind answers by what the options show."""
    end = last(task=task, candidates=48, answerer="simulated", seed=2)
    assert end.metrics["right"] is True
    assert end.data["question"] is None
    assert end.data["stop"]
    assert end.data["solution"]["belief"] >= 0.9
    assert set(end.data["baselines"]) == {"teig", "eig", "random"}
    assert len(end.data["entropy"]) == end.metrics["turns"] + 1
    answers = [[row["id"], row["reply"]["id"]] for row in end.data["transcript"]]
    again = last(task=task, candidates=48, answers=answers, seed=2)
    assert again.data["solution"]["name"] == end.data["solution"]["name"]
    assert again.data["entropy"] == pytest.approx(end.data["entropy"])
    assert again.metrics["right"] is None  # only the person knows


def test_answers_are_played_and_taken_back() -> None:
    start = last()
    one = [answered(start)]
    after = last(answers=one)
    assert after.metrics["turns"] == 1
    assert after.data["transcript"][0]["reply"]["id"] == one[0][1]
    assert "meanings" in after.data["transcript"][0]["explanation"]
    two = [*one, answered(after, "not-sure")]
    unsure = last(answers=two)
    assert unsure.metrics["entropy_bits"] == pytest.approx(after.metrics["entropy_bits"])
    assert unsure.data["question"]["id"] not in (one[0][0], two[1][0])
    undone = last(answers=one)
    assert undone.data["entropy"] == after.data["entropy"]
    assert undone.data["question"] == after.data["question"]


def test_another_row_of_the_table_can_be_answered() -> None:
    start = last()
    row = next(r for r in start.data["questions"] if not r["chosen"])
    unsure = last(answers=[[row["id"], "not-sure"]])
    assert unsure.data["transcript"][0]["text"] == row["text"]


def test_none_of_these_draws_afresh_or_ends() -> None:
    end = last(answers=[answered(last(), "none")])
    assert end.metrics["turns"] == 1
    assert end.data["stop"] or end.data["outside"] < 0.9


@pytest.mark.parametrize("answers", [[["0" * 12, "0" * 12]], [["", "none"]]])
def test_ids_of_another_version_are_refused(answers: list[list[str]]) -> None:
    with pytest.raises(InputError, match="answers"):
        last(answers=answers)
    if answers[0][0]:
        with pytest.raises(InputError, match="this link was made by another version"):
            last(answers=answers)
        with pytest.raises(InputError, match="this link was made by another version"):
            last(answers=[answered(last(), "f" * 12)])


def test_the_cut_can_be_put_anywhere_and_the_ends_are_warned_of() -> None:
    below, above = last(threshold=0.0, seed=1), last(threshold=1.0, seed=1)
    assert below.metrics["clusters"] > 8
    assert above.metrics["clusters"] == 1
    assert any("above every bar" in note for note in above.data["notes"])
    assert any("below every bar" in note for note in below.data["notes"])
    far = last(threshold=0.01, task="own")
    assert far.metrics["clusters"] >= 4
    assert last(threshold="absolute", task="code").metrics["clusters"] < last(task="code").metrics["clusters"]
    assert last(threshold="bootstrap").data["barcode"]["tau"] is not None


def test_text_in_place_of_behaviour_loses_the_intents() -> None:
    end = last(task="code", candidates=48, text_weight=1.0)
    assert end.metrics["partition_recovered"] is False


def test_candidates_arrive_and_each_frame_is_whole() -> None:
    seen = frames(task="visualisation", seed=77)
    assert "made_by" in seen[0].data
    with_candidates = [frame for frame in seen if "candidates" in frame.data]
    assert len(with_candidates) >= 3
    assert [f.progress for f in seen] == sorted(f.progress for f in seen)
    forms = with_candidates[-1].data["candidates"]
    assert {form["kind"] for form in forms["shown"]} == {"chart"}
    assert forms["of"].max() < len(forms["shown"])


def test_the_benchmark_streams_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    from backends.tai import benchmark

    monkeypatch.setattr(benchmark.run, "__defaults__", (3, *benchmark.run.__defaults__[1:]))  # three wishes instead of forty
    monkeypatch.setattr(benchmark, "DIALOGUES", 3)
    seen = frames(mode="benchmark", options="binary", true_error_rate=0.1, error_rate=0.1)
    assert len(seen) == 4
    rows = seen[-1].data["benchmark"]
    assert {row["condition"] for row in rows} == {"right answers", "wrong answers"}
    assert len(rows) == 2 * len(benchmark.STRATEGIES)
    noisy = next(row for row in rows if row["condition"] == "wrong answers" and row["strategy"] == "teig")
    assert seen[-1].metrics["teig_turns_mean"] == noisy["turns"]
    assert noisy["dialogues"] == 3


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_forty_dialogues_of_the_code_task() -> None:
    """Section 6 of the card: 4.0 questions by TEIG without errors, 5.1 by EIG; 7.3 with a tenth of wrong answers, nearly all right."""
    end = last(task="code", candidates=48, mode="benchmark", options="binary", true_error_rate=0.1, error_rate=0.1)
    of = {(row["condition"], row["strategy"]): row for row in end.data["benchmark"]}
    clean, noisy = ({s: of[c, s]["turns"] for s in ("teig", "eig", "random")} for c in ("right answers", "wrong answers"))
    assert clean["teig"] == pytest.approx(4.0, abs=0.6)
    assert clean["eig"] == pytest.approx(5.1, abs=0.6)
    assert noisy["teig"] == pytest.approx(7.3, abs=0.9)
    for turns in (clean, noisy):
        assert turns["teig"] < turns["eig"] < turns["random"]
    assert of["wrong answers", "teig"]["right"] >= 0.95
    assert of["right answers", "eig"]["style"] > 1 > of["right answers", "teig"]["style"]


# --------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("candidates", 3),
        ("candidates", 401),
        ("error_rate", 0.5),
        ("true_error_rate", 0.41),
        ("stop_at", 1.0),
        ("threshold", -0.1),
        ("threshold", "widest"),
        ("text_weight", 1.5),
        ("request", "x" * 2001),
        ("answers", [["one"]]),
        ("answers", [[1, 2]]),
    ],
)
def test_values_out_of_range_are_refused(field: str, value: Any) -> None:
    with pytest.raises(InputError) as refused:
        validate(METHOD.Params, {field: value})
    assert refused.value.field == field


# -------------------------------------------------------------------------------------------------------- the tasks


def drawn(task: Any, count: int = 48, seed: int = 0) -> Candidates:
    return task.draw(count, np.random.default_rng(seed))


def test_the_prior_is_skewed_and_shuffled_by_the_seed() -> None:
    assert np.sort(zipf(5, 0.6, 3))[::-1] == pytest.approx(np.arange(1, 6) ** -0.6 / (np.arange(1, 6) ** -0.6).sum())
    assert zipf(9, 0.6, 1).tolist() != zipf(9, 0.6, 2).tolist()


@pytest.mark.parametrize("module", [navigation, visualisation])
def test_behaviour_distances_are_metrics(module: Any) -> None:
    make = module.NavigationTask if module is navigation else module.VisualisationTask
    D = drawn(make(seed=1, quirk_rate=0.5, prior_skew=0.6)).distance
    assert D.min() == 0
    assert D.max() <= 1
    assert np.array_equal(D, D.T)
    assert (D[:, None] <= D[:, :, None] + D[None] + 1e-9).all()


def test_frechet_distances_against_the_recursion() -> None:
    def slowly(a: Any, b: Any, i: int, j: int, seen: dict[tuple[int, int], float]) -> float:
        if (i, j) not in seen:
            here = math.dist(a[i], b[j])
            before = [slowly(a, b, *at, seen) for at in ((i - 1, j), (i, j - 1), (i - 1, j - 1)) if min(at) >= 0]
            seen[i, j] = max(here, min(before)) if before else here
        return seen[i, j]

    rng = np.random.default_rng(0)
    routes = [tuple(map(tuple, rng.integers(20, size=(n, 2)).tolist())) for n in (5, 9, 12, 1)]
    expected = [[slowly(a, b, len(a) - 1, len(b) - 1, {}) for b in routes] for a in routes]
    assert navigation.frechet(routes, routes) == pytest.approx(np.array(expected), abs=1e-12)


def test_routes_are_walks_around_the_obstacles_to_their_shop() -> None:
    task = navigation.NavigationTask(seed=3, quirk_rate=0.5, prior_skew=0.6)
    for intent, (shop, lake, hill) in enumerate(task.intents):
        route = task.route(intent, 0)
        assert (route[0], route[-1]) == (navigation.START, navigation.SHOPS[shop])
        assert np.abs(np.diff(np.array(route), axis=0)).max() == 1
        blocked = {(x, y) for x0, y0, x1, y1 in navigation.OBSTACLES.values() for x in range(x0, x1 + 1) for y in range(y0, y1 + 1)}
        assert not blocked & set(route)
        assert navigation.caption(route) == f"to {shop}, {lake} of the lake, {hill} of the hill"
        assert task.route(intent, 0, 1) != route


def test_charts_draw_the_table() -> None:
    task = visualisation.VisualisationTask(seed=0, quirk_rate=0.0, prior_skew=0.6)
    shares = visualisation.execute(visualisation.Intent("sources over the years", "share", "area"), task.table, -1)
    assert len(shares.cells) == 51
    assert sum(v for (year, _), v in shares.cells.items() if year == "2010") == pytest.approx(100, abs=0.2)
    totals = visualisation.execute(visualisation.Intent("years", "amount", "bar"), task.table, -1)
    assert totals.cells["2001", ""] == sum(v for (year, _), v in task.table.items() if year == "2001")
    assert len(visualisation.execute(visualisation.Intent("years", "amount", "bar"), task.table, 0).cells) == 16


def test_coverage_counts_the_probes_that_tell_an_axis() -> None:
    values = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    prints = np.array([[0, 0, 0, 5], [0, 0, 1, 5], [1, 2, 0, 5], [1, 2, 1, 5]])
    assert coverage(values, ["a", "b"], prints) == {"a": 0.5, "b": 0.25}
