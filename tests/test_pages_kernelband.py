"""The pictures of kernelband: what is drawn of real runs on the substrate of a formula, what a drag means, what it costs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
import plotly.graph_objects as go
import pytest

from app.export import to_plotly
from app.pages import _kernelband_marks as marks
from app.pages import kernelband as page
from app.plotting import Changes, Figure, Panel, floats, view_json
from app.thumbnails import svg
from backends.contract import ContextSpec, Frame
from backends.kernelband import method, picture, proposers, recording
from backends.kernelband.card import Params
from backends.kernelband.substrate import Built, Failure, Profile, Timing
from backends.runtime.context import RunContext
from backends.validation import validate
from tests.toy_kernels import ToySubstrate

FRAME_BYTES = 90_000
SEARCH = ["best", "family", "headroom", "edit", "journey", "verdict", "counters", "roofline", "features"]
COMPARE = ["curves", "final", "spent", "table"]
SURVEY = ["survey", "edit", "output", "counters"]
SETTINGS: dict[str, dict[str, Any]] = {
    "search": {"rounds": 25, "seed": 2, "theta_dram": 3, "theta_l2": 5},  # low, so that masks close arms
    "tpe": {"rounds": 8, "policy": "tpe"},
    "compare": {"mode": "compare", "rounds": 6, "seeds": 8},
    "survey": {"substrate": "triton", "rounds": 9},
}
VIEWS = {"search": SEARCH, "tpe": SEARCH, "compare": COMPARE, "survey": SURVEY}


class Untimed(ToySubstrate):
    """The formula as a host without a GPU sees it: two targets, no time."""

    name = "triton"  # type: ignore[assignment]
    can_time = False

    def time(self, built: Built, parent_ms: float | None) -> Timing | Failure:
        raise AssertionError("nothing can be timed here")

    def profile(self, built: Built, timing: Timing | None) -> Profile:  # type: ignore[override]
        found = super().profile(built, Timing(1.0, 1, 0.0))
        facts = {"sm_80 registers": 40.0, "sm_90 registers": 48.0, "sm_80 warps": 4.0, "sm_90 warps": 4.0}
        return Profile(found.phi * np.nan, found.h * np.nan, found.flops, found.bytes, facts)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Params, list[Frame]]]:
    """One run of each kind, with no recording shipped."""
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(method, "open_substrate", lambda params, context: Untimed() if params.substrate == "triton" else ToySubstrate())
        patch.setattr(recording, "FOLDER", tmp_path_factory.mktemp("recordings"))
        for name, values in SETTINGS.items():
            params = validate(Params, values)
            made[name] = params, [f.sealed() for f in method.run(params, RunContext(ContextSpec(params.seed)))]
    return made


Runs = Mapping[str, tuple[Params, list[Frame]]]


def shown(runs: Runs, kind: str, place: int = -1, **changes: Any) -> dict[str, Any]:
    params, frames = runs[kind]
    return {view.name: view for view in page.views(frames[place], params.model_copy(update=changes))}


def trace(view: Figure, name: str) -> Mapping[str, Any]:
    return next(t for t in view.traces if t["name"] == name)


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_run_has_all_pictures_the_main_one_first(runs: Runs, kind: str) -> None:
    params, frames = runs[kind]
    made = page.views(frames[-1], params)
    assert [v.name for v in made] == VIEWS[kind]
    assert [v.name for v in made if v.span == "main"] == [VIEWS[kind][0]]


@pytest.mark.parametrize("kind", SETTINGS)
def test_every_frame_is_drawn_small_and_as_a_replay_reads_it(runs: Runs, kind: str) -> None:
    params, frames = runs[kind]
    for frame in frames:
        stored = Frame.from_json(orjson.loads(orjson.dumps(frame.to_json())))
        live, replayed = page.views(frame, params), page.views(stored, params)
        assert [(v.name, v.title, v.summary) for v in live] == [(v.name, v.title, v.summary) for v in replayed]
        assert len(orjson.dumps([view_json(v) for v in replayed])) < FRAME_BYTES


@pytest.mark.parametrize("kind", SETTINGS)
def test_plotly_accepts_the_figures_and_their_axes_are_named(runs: Runs, kind: str) -> None:
    for view in shown(runs, kind).values():
        if isinstance(view, Figure):
            drawn = go.Figure(to_plotly(view))
            assert all(drawn.layout[a].title.text for a in drawn.layout if a.startswith(("xaxis", "yaxis")))


def test_the_steps_are_the_best_so_far(runs: Runs) -> None:
    frame = runs["search"][1][-1]
    steps = trace(shown(runs, "search")["best"], "best so far")
    best = [frame.data["drift"]["ms"][0], *frame.data["attempts"]["best_ms"]]
    for round_, time in enumerate(best):
        assert time in steps["y"][steps["x"] == round_]
    assert steps["y"][-1] == frame.metrics["best_ms"]
    assert (np.diff(steps["y"]) <= 0).all()


def test_each_attempt_has_one_mark_of_its_outcome(runs: Runs) -> None:
    frame, view = runs["search"][1][-1], shown(runs, "search")["best"]
    seen: dict[int, str] = {}
    for mark in (*marks.TIMED, *marks.UNTIMED):
        for found in (t for t in view.traces if t["name"] == mark.words):
            seen |= dict.fromkeys(map(int, found["x"]), mark.words)
    words = {outcome: mark.words for mark in (*marks.TIMED, *marks.UNTIMED) for outcome in mark.outcomes}
    attempts = frame.data["attempts"]
    assert seen == {r: words[o] for r, o in zip(attempts["round"], attempts["outcome"], strict=True)}
    assert {"faster", "seen before", "wrong"} <= set(seen.values()), "this run shows the kinds that the test is about"
    timeless = trace(view, "seen before")["y"]
    assert len(set(timeless)) == 1
    assert timeless[0] > max(m for m in attempts["ms"] if m), "what has no time stands above all times"


def struck(frame: Frame) -> np.ndarray:
    """The closed arms of the clusters that have kernels, (K, 6)."""
    arms = frame.data["arms"]
    filled = ~np.isin(np.arange(len(arms["mu"])), arms["empty"])
    closed: np.ndarray = ~arms["open"] & filled[:, None]
    return closed


def test_the_heat_map_shows_pulls_masks_and_the_chosen_arm(runs: Runs) -> None:
    params, frames = runs["search"]
    masked = [f for f in frames if f.data.get("arms") and struck(f).any()]
    assert masked, "this run closes an arm of a cluster that has kernels"
    frame = masked[-1]
    arms, view = frame.data["arms"], page.views(frame, params)[0]
    assert isinstance(view, Figure)
    open_cells, closed = trace(view, "arms"), trace(view, "closed arms")
    np.testing.assert_array_equal(np.isfinite(open_cells["z"]), arms["open"])
    np.testing.assert_array_equal(np.isfinite(closed["z"]), ~arms["open"])
    np.testing.assert_allclose(open_cells["z"][arms["open"]], arms["mu"][arms["open"]])
    assert open_cells["text"] == arms["n"].astype(int).astype(str).tolist()
    shapes = view.layout["shapes"]
    assert sum(s["name"] == "masked" for s in shapes) == struck(frame).sum()
    rect = next(s for s in shapes if s["name"] == "chosen")
    assert [round((rect["y0"] + rect["y1"]) / 2), round((rect["x0"] + rect["x1"]) / 2)] == arms["chosen"]


def test_an_empty_cluster_is_closed_but_not_struck(runs: Runs) -> None:
    params, frames = runs["search"]
    frame = next(f for f in frames if f.data.get("arms") and f.data["arms"]["empty"])
    view = page.views(frame, params)[0]
    assert isinstance(view, Figure)
    empty = set(frame.data["arms"]["empty"])
    assert not [s for s in view.layout["shapes"] if s["name"] == "masked" and round((s["y0"] + s["y1"]) / 2) in empty]


def test_a_sampler_without_arms_has_the_curve_alone(runs: Runs) -> None:
    view = shown(runs, "tpe")["best"]
    assert not any(t["type"] == "heatmap" for t in view.traces)
    assert "domain" not in view.layout["yaxis"]
    assert "no arms" in view.summary


def test_the_family_tree_joins_every_kernel_to_its_parent(runs: Runs) -> None:
    kernels, view = runs["search"][1][-1].data["kernels"], shown(runs, "search")["family"]
    edges = trace(view, "edits")
    joined = set(zip(edges["x"][0::3].tolist(), edges["x"][1::3].tolist(), strict=True))
    assert joined == {(float(kernels["round"][kernels["parent"][k]]), float(kernels["round"][k])) for k in range(1, len(kernels["ms"]))}
    assert (edges["y"][1::3] - edges["y"][0::3] == 1).all()
    assert int(trace(view, "way to the best")["x"][-1]) == kernels["round"][int(np.argmin(kernels["ms"]))]


def test_the_roofline_bounds_every_kernel_by_measured_peaks(runs: Runs) -> None:
    data, view = runs["search"][1][-1].data, shown(runs, "search")["roofline"]
    roof, memory = data["roofline"], trace(view, "memory")
    np.testing.assert_allclose(memory["y"], np.minimum(roof["gflops"], memory["x"] * roof["dram"]))
    drawn = sorted(y for t in view.traces if t["name"].startswith("cluster") for y in t["y"])
    np.testing.assert_allclose(drawn, np.sort(data["kernels"]["gflops"]))
    assert marks.roof_ms(data) == pytest.approx(4e8 / (20e9 * 1.0) * 1e3)


def test_the_headroom_bars_are_grey_from_the_threshold_on(runs: Runs) -> None:
    found, view = runs["search"][1][-1].data["headroom"], shown(runs, "search")["headroom"]
    for cluster, h in enumerate(found["h"]):
        bar = trace(view, f"cluster {cluster + 1}")
        np.testing.assert_allclose(bar["y"], h)
        assert bar["marker"]["color"] == ["$muted" if full else "$method" for full in h >= found["theta"]]
    best = runs["search"][1][-1].data
    np.testing.assert_allclose(trace(view, "best kernel")["y"], best["kernels"]["h"][best["best"]["member"]])
    lines = [s for s in view.layout["shapes"] if s["editable"]]
    assert [(s["name"], s["y0"]) for s in lines] == [("theta_sm", 75), ("theta_dram", 3), ("theta_l2", 5)]
    assert "mask is off" in shown(runs, "search", mask=False)["headroom"].summary
    for kind, frame in (("search", -1), ("tpe", -1), ("search", 4)):
        seen = runs[kind][1][frame].data["headroom"]
        assert shown(runs, kind, frame)["headroom"].summary.startswith("No bar") == (not (np.asarray(seen["h"]) >= seen["theta"]).any())


def test_texts_show_the_edit_its_verdict_and_the_compilers_words(runs: Runs) -> None:
    params, frames = runs["search"]
    for frame in (f for f in frames if f.data.get("phase") == "learn"):
        made = {v.name: v for v in page.views(frame, params)}
        diff, verdict = made["edit"], made["verdict"]
        assert isinstance(diff, Panel)
        assert isinstance(verdict, Panel)
        same = diff.data["before"] == diff.data["after"]
        outcome = frame.data["attempts"]["outcome"][-1]
        assert same == (outcome == "duplicate")
        rows = [row for row in verdict.data["rows"] if row[0] == "output"]
        assert bool(rows) == (verdict.data["note"] is None)
        if outcome == "wrong":
            assert ["output", "element 0 is 1, not 2"] in rows


def test_the_best_program_stands_against_the_naive_one(runs: Runs) -> None:
    params, frames = runs["search"]
    first = next(f for f in frames if "attempts" in f.data)
    start = {v.name: v for v in page.views(first, params)}["journey"]
    assert isinstance(start, Panel)
    assert start.data["before"] == start.data["after"]
    assert "No child" in start.summary
    panel, data = shown(runs, "search")["journey"], frames[-1].data
    kernels, best, toy = data["kernels"], data["best"]["member"], ToySubstrate()
    assert panel.data["before"] == toy.naive("matmul", 384).source
    assert panel.data["after"] == data["best"]["source"] != panel.data["before"]
    words = panel.summary.partition(" by ")[2].rstrip(".").split(", ")
    way = marks.way_to(kernels["parent"], best)
    assert [w.replace(" ", "_") for w in words] == [data["strategies"][kernels["strategy"][k]] for k in way[1:]]
    assert [kernels["parent"][k] for k in way[1:]] == way[:-1]


def test_counters_are_the_frames(runs: Runs) -> None:
    found, panel = runs["search"][1][-1].data["counters"], shown(runs, "search")["counters"]
    numbers = {row[0]: row[1] for row in panel.data["rows"]}
    assert [numbers[n] for n in ("compiler runs", "right", "seen before")] == [found[n] for n in ("compiled", "correct", "duplicates")]
    assert "turned by a mask" not in [row[0] for row in shown(runs, "tpe")["counters"].data["rows"]]


def test_a_recorded_search_says_so_in_its_title(runs: Runs) -> None:
    params, frames = runs["search"]
    told = Frame(1.0, "done", frames[-1].metrics, {**frames[-1].data, "recorded": "recorded on <b>old</b> box, 2026-01-02"})
    made = {v.name: v for v in page.views(told, params)}
    assert made["best"].title.endswith("recorded on &lt;b&gt;old&lt;/b&gt; box, 2026-01-02")
    assert "on this host" not in made["roofline"].summary
    counters = made["counters"]
    assert isinstance(counters, Panel)
    names = [row[0] for row in counters.data["rows"]]
    assert "looked up" in names
    assert not {"compiler runs", "compiler, s", "checks, timing, s"} & set(names)
    assert "recorded" not in shown(runs, "search")["best"].title


def test_a_comparison_draws_every_policy_with_its_band(runs: Runs) -> None:
    data, view = runs["compare"][1][-1].data, shown(runs, "compare")["curves"]
    for name, found in data["policies"].items():
        np.testing.assert_allclose(trace(view, name)["y"], found["mean"])
        half = len(found["low"])
        edges = trace(view, f"{name}, 95 %")["y"]
        np.testing.assert_allclose(edges[:half], found["high"])
        np.testing.assert_allclose(edges[half:], found["low"][::-1])
    assert trace(view, "kernelband")["line"]["color"] == "$method"
    others = {(t["line"]["color"], t["line"]["dash"]) for t in view.traces if t["name"] in data["policies"] and t["name"] != "kernelband"}
    assert len(others) == len(data["policies"]) - 1, "no two peers look alike"


def test_a_comparison_claims_what_the_run_judges(runs: Runs) -> None:
    frame, summary = runs["compare"][1][-1], shown(runs, "compare")["curves"].summary
    said = re.search(r"KernelBand reaches ([\d.]+) times .* \(95 % from ([\d.]+) to ([\d.]+)\): (within noise)?", summary)
    assert said
    ratio, low, high = (float(said[i]) for i in (1, 2, 3))
    assert ratio == pytest.approx(frame.metrics["against_random"], abs=0.006)
    assert bool(said[4]) == (low <= 1 <= high)
    assert f"95 % from {low:.2f} to {high:.2f}" in frame.message


def test_a_comparison_shows_where_attempts_went(runs: Runs) -> None:
    data, view = runs["compare"][1][-1].data, shown(runs, "compare")["spent"]
    share = view.traces[0]["z"]
    np.testing.assert_allclose(share.sum(axis=1), 1.0)
    first = next(iter(data["pulls"].values()))
    np.testing.assert_allclose(share[0], floats(first).sum(axis=0) / floats(first).sum())


def test_a_table_that_is_filled_first_says_how_far_it_is(runs: Runs) -> None:
    params, frames = runs["compare"]
    filling = next(f for f in frames if "landscape" in f.data and "policies" not in f.data)
    view = page.views(filling, params)[0]
    assert view.span == "main"
    assert str(filling.data["landscape"]["schedules"]) in view.summary


def test_a_survey_tables_facts_and_never_a_time(runs: Runs) -> None:
    rows, made = runs["survey"][1][-1].data["rows"], shown(runs, "survey")
    panel = made["survey"]
    assert [c["name"] for c in panel.data["columns"]] == ["program", "strategy", "edit of", "outcome", "registers", "warps"]
    assert len(panel.data["rows"]) == len(rows) == 10
    assert panel.data["rows"][0] == ["0", "baseline", "", "right", "40 / 48", "4"]
    assert "sm_80, sm_90" in panel.data["note"]
    text = orjson.dumps([view_json(v) for v in made.values()]).decode()
    assert not re.search(r"\d ms\b|speed-up|seconds", text)


def test_the_task_is_told_only_where_a_persons_program_can_run(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    assert "task" not in shown(runs, "search")
    monkeypatch.setattr(method, "open_substrate", lambda params, context: ToySubstrate())
    monkeypatch.setenv(proposers.SWITCH, "1")
    params = validate(Params, {"rounds": 1})
    last = list(method.run(params, RunContext(ContextSpec(0))))[-1]
    panel = {v.name: v for v in page.views(last, params)}["task"]
    assert isinstance(panel, Panel)
    assert "\n".join(row[0] for row in panel.data["rows"]) == ToySubstrate().describe("matmul", 384)


LISTING = "softmax for sm_90: 38 registers\n\n//\n.version 8.7\n.target sm_90a\n\n\t.loc\t1 22 0\n\tadd.f32 %r1;  // %bb.0\n\tret;\n\t.section .debug\nmore"


def test_a_survey_shows_the_machine_code_before_and_after_an_edit(runs: Runs) -> None:
    params, frames = runs["survey"]
    found = {"program": 3, "parent": 1, "before": picture.instructions(LISTING), "after": picture.instructions(LISTING.replace("add", "fma"))}
    row = {**frames[-1].data["rows"][-1], "text": LISTING[:200]}
    told = Frame(1.0, "done", {}, {**frames[-1].data, "ptx": found, "rows": [row], "diff": {**frames[-1].data["diff"], "output": LISTING}})
    made = {v.name: v for v in page.views(told, params)}
    panel = made["ptx"]
    assert isinstance(panel, Panel)
    assert [panel.data[at] for at in ("before", "after")] == [f".target sm_90a\n\t{name}.f32 %r1;\n\tret;" for name in ("add", "fma")]
    assert panel.summary == "Program 1 became program 3."
    output = made["output"]
    assert isinstance(output, Panel)
    assert output.data["rows"] == [["softmax for sm_90: 38 registers"]]
    long = "\n".join(f"\tmov {i};" for i in range(500))
    told = Frame(1.0, "done", {}, {**told.data, "ptx": {**found, "before": long, "after": long}})
    panel = {v.name: v for v in page.views(told, params)}["ptx"]
    assert isinstance(panel, Panel)
    assert panel.data["after"].splitlines()[-2:] == ["\tmov 59;", "// 440 more lines"]
    assert "left its PTX as it was" in panel.summary


def test_pictures_wait_for_their_data(runs: Runs) -> None:
    assert page.views(runs["search"][1][0], runs["search"][0]) == []
    assert page.views(Frame(0.0, "loading"), runs["search"][0]) == []
    params, frames = runs["search"]
    first = next(f for f in frames if "attempts" in f.data)
    assert [v.name for v in page.views(first, params)] == ["best", "family", "headroom", "edit", "journey", "counters", "roofline"]


def test_text_from_outside_is_neither_markup_nor_a_colour(runs: Runs) -> None:
    params, frames = runs["search"]
    data = frames[-1].data
    attempts = {**data["attempts"], "text": ["$method <img src=x>"] * len(data["attempts"]["round"])}
    facts = [{"<i>": "$warning"} for _ in data["kernels"]["facts"]]
    forged = Frame(1.0, "done", frames[-1].metrics, {**data, "attempts": attempts, "kernels": {**data["kernels"], "facts": facts}})
    text = orjson.dumps([view_json(v)["figure"] for v in page.views(forged, params) if isinstance(v, Figure)]).decode()
    assert "<img" not in text
    assert "<i>" not in text
    assert not re.search(r'"text":\["\$', text)


def test_the_thumbnail_shows_the_steps(runs: Runs) -> None:
    drawing = svg(shown(runs, "search")["best"], "code", "A bandit that tunes kernels")
    assert drawing.count("<path") >= 4
    assert len(drawing) < 8_000


EVENTS = [
    ("headroom", {"type": "drag", "shape": "theta_dram", "y0": 90.4, "y1": 90.4}, Changes({"theta_dram": 90.0}, True)),
    ("headroom", {"type": "drag", "shape": "theta_sm", "y0": 75.0, "y1": 60.0}, Changes({"theta_sm": 60.0}, True)),
    ("headroom", {"type": "drag", "shape": "theta_l2", "y0": 130, "y1": 130}, Changes({"theta_l2": 100.0}, True)),
    ("headroom", {"type": "drag", "shape": "theta_l2", "y0": -5, "y1": -5}, Changes({"theta_l2": 1.0}, True)),
    ("headroom", {"type": "drag", "shape": "theta_l2", "y0": math.nan, "y1": 3}, None),
    ("headroom", {"type": "drag", "shape": "theta_l2", "y0": True, "y1": 3}, None),
    ("headroom", {"type": "drag", "shape": "seed", "y0": 5, "y1": 5}, None),
    ("headroom", {"type": "drag", "shape": ["theta_sm"], "y0": 5, "y1": 5}, None),
    ("headroom", {"type": "click", "x": 1, "y": 40}, None),
    ("best", {"type": "drag", "shape": "theta_sm", "y0": 5, "y1": 5}, None),
]


@pytest.mark.parametrize(("view", "event", "expected"), EVENTS, ids=lambda v: str(v)[:60])
def test_what_a_drag_means(view: str, event: dict[str, Any], expected: Changes | None) -> None:
    assert page.on_event(view, event, {"theta_sm": 75.0, "theta_dram": 75.0, "theta_l2": 75.0}) == expected
    if expected:
        validate(Params, expected.params)


@pytest.mark.parametrize("values", [[1.0, 1.0], [0.002, 5000.0], [30.0, 90.0], []])
def test_a_log_axis_has_a_few_ticks_in_its_reach(values: list[float]) -> None:
    reach = marks.log_reach(values)
    found = marks.log_ticks(reach)
    assert reach[0] < reach[1]
    assert 1 <= len(found["tickvals"]) <= 9
    assert all(reach[0] <= math.log10(v) <= reach[1] for v in found["tickvals"])
