"""The pictures of fatigue-index, from frames made of known signals: what is drawn, what a drag and a chip mean, that each says what it shows."""

from __future__ import annotations

import json
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest

from app.pages import fatigue_index as page
from app.plotting import Changes, Figure, Panel, View, view_json
from backends.contract import Frame
from backends.fatigue_index import picture
from backends.fatigue_index.card import CARD, Params
from backends.fatigue_index.generation import Slice, Trace
from backends.fatigue_index.index import PAPER, Constants
from backends.fatigue_index.study import compare, scores
from backends.validation import validate
from tests.contract.page_checks import assert_labelled

STEPS, PROMPT = 40, 12
OWN = Constants(low=1.8, high=4.2, kappa=88)


def trace(seed: int = 0, repeats: bool = False) -> Trace:
    """Signals of a text that tires: attention falls, drift grows, entropy lies below the band."""
    rng = np.random.default_rng(seed)
    made = Trace(tuple(range(PROMPT)))
    for step in range(STEPS):
        made.ids.append(7 if repeats else step)
        made.entropy.append(float(rng.uniform(0.5, 5)))
        made.after.append(60.0 * step / STEPS)
        made.before.append(1000.0 * step / STEPS)
        made.rows.append(np.full(PROMPT, (1 - 0.7 * step / STEPS) / PROMPT))
        made.nll.append(float(rng.uniform(0, 4)))
        made.temperature.append(1.0)
    return made


@cache
def frame(**changes: Any) -> tuple[Params, Frame]:
    """A frame as the method makes it, read back from its file."""
    params = validate(Params, {"max_new": STEPS, **changes})
    one = trace()
    if params.treatment == "par":
        one.acted.append((20, 3))
    of = Slice(min(params.prefix, PROMPT), 0, params.drop_first)
    found = picture.watch(one, of, PAPER, params)
    ways = {"paper": (of, PAPER), "paper_rest": (Slice(drop_first=True), PAPER), "calibrated": (of, OWN), "calibrated_rest": (Slice(drop_first=True), OWN)}
    data = {
        "prompt": {"text": [f" word{i}" for i in range(PROMPT)], "start": 4, "stop": 9},
        "compared": picture.compared({name: picture.watch(one, s, c, params) for name, (s, c) in ways.items()}),
        "constants": {"paper": picture.constants(PAPER), "asked": picture.constants(PAPER), "calibrated": picture.constants(OWN)},
        "slice": [0, PROMPT, params.drop_first],
        "room": STEPS,
        "notes": ["PAR, companion paper: 50 tokens passed, after token 20"] if params.treatment == "par" else [],
        **picture.text(one, [f" token{i}" for i in range(STEPS)], found, one.attention(Slice(prefix=1))),
    }
    return params, Frame.from_json(json.loads(json.dumps(Frame(1.0, "done", {}, data).to_json(), allow_nan=False)))


def drawn(**changes: Any) -> dict[str, View]:
    params, made = frame(**changes)
    return {view.name: view for view in page.views(made, params)}


def figure(name: str, **changes: Any) -> Figure:
    view = drawn(**changes)[name]
    assert isinstance(view, Figure)
    return view


def test_the_text_leads_and_the_contributions_are_the_main_picture() -> None:
    made = list(drawn().values())
    assert [(v.name, v.span) for v in made[:2]] == [("tokens", "lead"), ("fatigue", "main")]
    assert {v.name for v in made} == {
        *("tokens", "fatigue", "text", "compared", "attention", "entropy", "drift", "prompt", "flips", "repetition", "weights", "known")
    }
    for view in made:
        assert_labelled(view)
        orjson.dumps(view_json(view))


def test_before_the_first_token_it_says_so() -> None:
    (view,) = page.views(Frame(0.01, "reading", {}, {"prompt": {}}), Params())
    assert view.span == "main"
    assert "first token" in view.summary


def test_contributions_stack_to_the_index() -> None:
    _, made = frame()
    bars = [t for t in figure("fatigue").traces if t["type"] == "bar" and "base" not in t]
    assert [t["name"] for t in bars] == ["attention", "entropy", "drift"]
    assert np.sum([t["y"] for t in bars], axis=0) == pytest.approx(np.asarray(made.data["index"]["fi"]), abs=1e-6)


def test_strips_show_when_each_alarm_was_on() -> None:
    _, made = frame()
    for name, key in (("alarm", "alarm"), ("plain threshold", "threshold")):
        strip = next(t for t in figure("fatigue").traces if t["name"] == name)
        assert (np.asarray(strip["x"]) - 1).tolist() == np.flatnonzero(made.data["index"][key]).tolist()
    texts = [note["text"] for note in figure("fatigue").layout["annotations"]]
    assert f"plain: {made.data['flips']['threshold']} flip" in " ".join(texts)


def test_tokens_are_tinted_by_their_index_and_named_where_the_alarm_was_on() -> None:
    _, made = frame()
    panel = drawn()["text"]
    assert isinstance(panel, Panel)
    chips = panel.data["tokens"]
    assert [c["value"] for c in chips] == pytest.approx(np.asarray(made.data["index"]["fi"]), abs=0.006)
    assert [("color" in c) for c in chips] == [bool(x) for x in made.data["index"]["alarm"]]


def test_attention_is_shown_with_and_without_token_0() -> None:
    for dropped in (False, True):
        curves = {t["name"]: np.asarray(t["y"], float) for t in figure("attention", drop_first=dropped).traces}
        assert curves["whole slice"] == pytest.approx(curves["without token 0"] + curves["token 0 alone"], abs=1e-6)
        assert curves["whole slice"][0] == pytest.approx(1, abs=1e-6)


def test_both_sets_of_constants_stand_side_by_side() -> None:
    made = figure("compared")
    assert {t.get("xaxis") for t in made.traces} == {"x", "x2"}
    said = " ".join(note["text"] for note in made.layout["annotations"])
    assert "Paper" in said
    assert "Calibrated here" in said
    bands = [s for s in figure("entropy").layout["shapes"] if s["type"] == "rect"]
    assert [(s["y0"], s["y1"]) for s in bands] == [(3.8, 5.0), (1.8, 4.2)]


def test_a_treatment_is_labelled_with_its_paper() -> None:
    texts = [note["text"] for note in figure("fatigue", treatment="par").layout["annotations"]]
    assert "PAR (companion paper)" in texts
    assert "after token 20" in figure("fatigue", treatment="par").summary
    assert "companion paper" in figure("temperature", treatment="erd").title


def test_what_is_known_quotes_both() -> None:
    panel = drawn()["known"]
    assert isinstance(panel, Panel)
    cells = json.dumps(panel.data)
    for quoted in ("0.848", "0.856", "0.820", "0.976", "0.954", "0.929", "0.307", "0.283 / 0.593 / 0.386", "0.663", "0.722", "42 to 71 %"):
        assert quoted in cells


# ----------------------------------------------------------------------------------------------------------- events


@pytest.mark.parametrize(
    ("shape", "y0", "y1", "expected"),
    [
        ("theta", 0.62, 0.62, {"theta": 0.62}),
        ("theta", 0.1, 0.1, {"theta": 0.4}),
        ("theta", 5.0, 5.0, {"theta": 0.9}),
        ("theta_low", 0.4, 0.31, {"theta_low": 0.31}),
        ("theta_low", 0.8, 0.8, {"theta_low": 0.5}),
        ("theta_low", -3.0, -3.0, {"theta_low": 0.0}),
    ],
)
def test_a_dragged_line_sets_its_level(shape: str, y0: float, y1: float, expected: dict[str, float]) -> None:
    values = {"theta": 0.5, "theta_low": 0.4}
    assert page.on_event("fatigue", {"type": "drag", "shape": shape, "y0": y0, "y1": y1}, values) == Changes(expected, run=True)


def test_chips_set_the_weights() -> None:
    chosen = page.on_event("weights", {"type": "click", "id": "entropy"}, {})
    assert chosen == Changes({"weights": [0.0, 1.0, 0.0]}, run=True)
    assert validate(Params, chosen.params).weights == [0.0, 1.0, 0.0]
    panel = drawn(weights=(0.0, 1.0, 0.0))["weights"]
    assert isinstance(panel, Panel)
    assert [chip["pressed"] for chip in panel.data["groups"][0]["chips"]] == [False, False, True, False]


@pytest.mark.parametrize(
    "event", [{"type": "drag", "shape": "acted", "y0": 1, "y1": 1}, {"type": "drag", "shape": "theta", "y0": None}, {"type": "click", "id": []}]
)
def test_other_events_mean_nothing(event: dict[str, Any]) -> None:
    assert page.on_event("fatigue", event, {"theta": 0.5}) is None
    assert page.on_event("weights", event, {}) is None


# ------------------------------------------------------------------------------------------------------------ study


def study(repeats: int) -> list[View]:
    traces = [trace(i, repeats=i < repeats) for i in range(20)]
    found = scores(traces, [Slice()] * 20, PAPER, "after")
    data = {"study": picture.study(found, compare(found, np.random.default_rng(0)), [f"prompt {i}" for i in range(20)], [STEPS] * 20)}
    made = Frame.from_json(json.loads(json.dumps(Frame(1.0, "done", {}, data).to_json(), allow_nan=False)))
    return page.views(made, SimpleNamespace(study=True))


def test_the_study_is_a_scatter_with_its_interval_and_its_peers() -> None:
    scatter, table, known = study(5)
    assert isinstance(scatter, Figure)
    assert scatter.span == "main"
    assert "\u03c1 = " in scatter.summary
    assert isinstance(table, Panel)
    assert len(table.data["rows"]) == 7
    assert "5 of the twenty" in table.data["note"]
    assert table.data["rows"][0][4] is not None
    assert isinstance(known, Panel)
    for view in (scatter, table, known):
        assert_labelled(view)


def test_a_study_in_which_nothing_repeats_says_so() -> None:
    scatter, table, _ = study(0)
    assert "no text repeats" in scatter.summary
    assert "nothing can be ranked" in table.summary


def test_the_failing_preset_is_marked() -> None:
    assert [p.name for p in CARD.presets if p.fails] == ["greedy"]
