"""The checks are checked: the good fake passes all of them, and each check catches the violation planted for it."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ConfigDict, Field, create_model

from app.plotting import Changes, Panel
from backends import contract
from backends.contract import Claim, Frame, InputError, Metric, Preset, Step, Upload
from tests.contract import card_checks, golden_results, input_checks, page_checks, preset_checks, run_checks, running, stop_checks
from tests.contract import selftest as fakes
from tests.contract.collection import ALL, checks_of, name_of
from tests.contract.selftest import GOOD_CARD, Fake, GoodParams, good_run, good_views, installed, with_card, with_data, with_field, with_frames, with_metrics

GOOD = Fake()
BOUNDED = {"ge": 0, "le": 1, "description": "One more"}


class Unbounded(GoodParams):
    model_config = ConfigDict(extra="ignore")


class PathTaker(GoodParams):
    """Takes a path as text: the fault that would let a visitor read the server's files."""

    table: Upload | str | None = Field(None, description="Numbers")


class Foreign(GoodParams):
    def __init__(self, **values: Any) -> None:
        if values.get("note") == "":
            raise RuntimeError("not an InputError")
        super().__init__(**values)


class Unpicklable(GoodParams):
    def __reduce__(self) -> Any:
        return GoodParams, ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    __hash__ = None  # type: ignore[assignment]


def refuses_with(problem: str) -> Fake:
    def act(params: Any, context: Any) -> None:
        if params.note:
            raise InputError("note", problem, "choose another")

    return fakes.before_run(act)


def needs_no_file(params: Any, context: Any) -> Iterator[Frame]:
    yield from good_run(params.model_copy(update={"source": "walk"}), context)


def crashes_on_text(params: Any, context: Any) -> None:
    if "\0" in params.note:
        raise ValueError("embedded null byte")


def fails_to_number(params: Any, context: Any) -> Iterator[Frame]:
    yield from good_run(params.model_copy(update={"seed": 0}), context)


def ignores_note(params: Any, context: Any) -> Iterator[Frame]:
    yield from good_run(params.model_copy(update={"note": ""}), context)


def moves_by_itself_elsewhere(params: Any, context: Any) -> Iterator[Frame]:
    for frame in ignores_note(params, context):
        yield dataclasses.replace(frame, data={**frame.data, "clock": time.monotonic()}) if params.source == "table" else frame


def shows_note_elsewhere(params: Any, context: Any) -> Iterator[Frame]:
    for frame in ignores_note(params, context):
        yield dataclasses.replace(frame, data={**frame.data, "caption": params.note}) if params.source == "table" else frame


def two_live_frames(params: Any, context: Any) -> Iterator[Frame]:
    for frame in good_run(params, context):
        yield frame
        yield frame


def changes_its_params(params: Any, context: Any) -> None:
    object.__setattr__(params, "note", "changed")


def writes_a_global(params: Any, context: Any) -> None:
    fakes.SEEN.append(1)


def seeds_numpy(params: Any, context: Any) -> None:
    np.random.seed(params.seed)  # noqa: NPY002 - this is the fault


def drops_views_when_live(frame: Frame, params: Any) -> list[Any]:
    return good_views(frame, params) if "positions" in frame.data else []


def bare_live(params: Any, context: Any) -> Iterator[Frame]:
    for frame in good_run(params, context):
        yield dataclasses.replace(frame, data={k: v for k, v in frame.data.items() if k != "positions"}) if context.live else frame


def retitled(**changes: Any) -> Fake:
    return Fake(views=lambda frame, params: [dataclasses.replace(v, **changes) for v in good_views(frame, params)])


def without_units(frame: Frame, params: Any) -> list[Any]:
    figure = good_views(frame, params)[0]
    figure.layout["yaxis"]["title"]["text"] = "position"
    return [figure]


def lists_only_when_stored(frame: Frame, params: Any) -> list[Any]:
    assert frame.data["positions"].shape  # an array: a stored run has a list here
    return good_views(frame, params)


def raises_on_event(view: str, event: Any, params: Any) -> Changes | None:
    return Changes({"steps": int(event["x"])}, run=True)


def many_fields() -> Fake:
    fake = GOOD
    for number in range(30):
        fake = Fake(Params=_more(fake.Params, f"more_{number}"))
    return fake


def _more(model: Any, name: str) -> Any:
    return create_model("More", __base__=model, **{name: (float, Field(0.5, ge=0, le=1, description="One more " * 4))})


GOOD_STEP = Step("default", "Why?", "Because.")
BAD_METRIC = {**GOOD_CARD.metrics, "end": Metric("", "where it ends")}
PLANTS: dict[Callable[[Any], None], list[Fake]] = {
    card_checks.check_card_is_complete: [with_card(how=" "), with_card(slug="No_Slug"), with_card(theme="nowhere")],
    card_checks.check_aha_is_one_sentence: [with_card(aha="One. Two."), with_card(aha="no end")],
    card_checks.check_metrics_are_explained: [with_card(metrics=BAD_METRIC), with_card(metrics={})],
    card_checks.check_presets: [
        with_card(presets=GOOD_CARD.presets[:1]),
        with_card(presets=(*GOOD_CARD.presets, Preset("bad", "Bad", {"steps": 1000}, 1.0))),
    ],
    card_checks.check_default_preset_is_the_default: [with_card(presets=(Preset("a", "A", {"steps": 7}, 1.0), *GOOD_CARD.presets))],
    card_checks.check_exercise: [with_card(exercise=(GOOD_STEP,)), with_card(exercise=(GOOD_STEP, GOOD_STEP, Step("none", "Why?", "So.")))],
    card_checks.check_claims_name_preset_and_metric: [
        with_card(claims=(dataclasses.replace(GOOD_CARD.claims[0], metric="none"),)),
        with_card(claims=(dataclasses.replace(GOOD_CARD.claims[0], preset="none"),)),
    ],
    card_checks.check_defaults_are_within_bounds: [with_field(default=7.0, **BOUNDED)],
    card_checks.check_params_are_frozen_and_closed: [Fake(Params=Unbounded)],
    card_checks.check_every_field_is_described: [with_field(ge=0, le=1)],
    card_checks.check_every_field_has_bounds: [with_field(description="One more"), with_field("word", str, default="a", description="A word")],
    card_checks.check_field_names: [with_field("view", **BOUNDED), with_field("deep_link", **BOUNDED)],
    card_checks.check_extra_keys: [
        with_field(json_schema_extra={"colour": "red"}, **BOUNDED),
        with_field(json_schema_extra={"inert": "no"}, **BOUNDED),
        with_field(json_schema_extra={"cleared_by": ["nothing"]}, **BOUNDED),
    ],
    card_checks.check_every_field_has_a_control: [with_field(annotation=tuple[int, str] | float, description="No control takes this")],
    card_checks.check_controls_round_trip: [],
    card_checks.check_params_pickle: [Fake(Params=Unpicklable)],
    card_checks.check_method_has_version_and_weight: [Fake(version=""), Fake(weighs="heavy")],  # type: ignore[arg-type]
    card_checks.check_near_names_find_it: [],
    card_checks.check_imports_stay_in_the_package: [],
    input_checks.check_bad_values_are_refused: [
        with_field("loose", str, default="a", max_length=5, description="a", coerce_numbers_to_str=True),
        Fake(Params=PathTaker),
    ],
    input_checks.check_unknown_field_is_refused: [],
    input_checks.check_awkward_values_run_or_are_refused: [fakes.before_run(crashes_on_text), refuses_with("see https://errors.pydantic.dev/")],
    input_checks.check_files_come_as_bytes_only: [Fake(body=needs_no_file)],
    input_checks.check_fuzzed_validation: [Fake(Params=Foreign)],
    run_checks.check_cheap_params_end: [fakes.late(0.7)],
    run_checks.check_first_frame_and_sign_of_life: [fakes.late(0.7)],
    run_checks.check_progress_rises_to_one: [
        with_frames(lambda frame, n: dataclasses.replace(frame, progress=0.5)),
        with_frames(lambda frame, n: dataclasses.replace(frame, progress=0.9) if n == 0 else frame),
    ],
    run_checks.check_metrics_are_declared_and_plain: [with_metrics(extra=1.0), with_metrics(end=math.nan)],
    run_checks.check_last_frame_has_every_metric: [with_frames(lambda f, n: dataclasses.replace(f, metrics={"end": 0.0}))],
    run_checks.check_every_frame_says_what_made_it: [
        with_data(made_by={"model": "walk"}),
        with_frames(lambda f, n: f if n else dataclasses.replace(f, data={})),
    ],
    run_checks.check_frames_survive_pickle_and_json: [with_data(pair=complex(1, 2)), with_data(keys={1: {2, 3}})],
    run_checks.check_frames_are_whole_and_own_their_data: [fakes.reuses_its_array()],
    run_checks.check_stored_run_is_small: [with_data(large=np.zeros(1_100_000))],
    run_checks.check_equal_seed_equal_result: [fakes.end_metric(lambda params, context: random.random())],
    run_checks.check_warm_store_changes_nothing: [fakes.end_metric(fakes.counts_runs)],
    run_checks.check_other_seed_other_result: [Fake(body=fails_to_number)],
    run_checks.check_every_control_matters: [Fake(body=ignores_note), Fake(body=moves_by_itself_elsewhere)],
    run_checks.check_live_run_equals_full_run: [fakes.live_differs(), Fake(body=two_live_frames)],
    run_checks.check_interleaved_runs_equal_runs_in_a_row: [fakes.shared_scratch()],
    run_checks.check_inputs_are_unchanged: [fakes.before_run(changes_its_params)],
    run_checks.check_no_module_state_changes: [fakes.before_run(writes_a_global)],
    run_checks.check_global_random_state_is_untouched: [fakes.before_run(fakes.draws_globally), fakes.before_run(seeds_numpy)],
    stop_checks.check_stop_ends_it_within_a_second: [Fake(body=fakes.ignores_stop), fakes.before_run(fakes.leaves_a_thread)],
    stop_checks.check_pause_holds_and_resume_goes_on: [Fake(body=fakes.ends_when_paused)],
    page_checks.check_page_draws_every_frame: [Fake(views=lambda frame, params: []), Fake(views=lists_only_when_stored)],
    page_checks.check_views_are_labelled: [retitled(title=""), retitled(summary=""), Fake(views=without_units)],
    page_checks.check_render_is_one_json_string: [with_data(made_by={"model": "", "data": "a", "size": "1", "device": "CPU"})],
    page_checks.check_events_never_raise: [Fake(on_event=raises_on_event)],
    page_checks.check_page_is_small: [many_fields()],
    page_checks.check_tool_names_every_field: [],
    page_checks.check_live_frame_draws_too: [Fake(body=bare_live, views=drops_views_when_live)],
}
# What needs more than a broken fake stands in a test of its own below.
APART = {
    card_checks.check_controls_round_trip,
    card_checks.check_near_names_find_it,
    card_checks.check_imports_stay_in_the_package,
    input_checks.check_unknown_field_is_refused,
    page_checks.check_tool_names_every_field,
}


@pytest.fixture
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fakes break limits of a few tenths of a second instead of seconds."""
    for name, value in {"LOAD_MARGIN_S": 0.1, "STOP_LIMIT_S": 0.3, "SIGN_OF_LIFE_S": 0.3, "FIRST_FRAME_S": 0.3, "HANG_FACTOR": 0.5}.items():
        for module in (run_checks, stop_checks):
            monkeypatch.setattr(module, name, value, raising=False)


def caught(check: Callable[[Any], None], fake: Fake) -> bool:
    """True when the check fails on the fake."""
    with installed(fake):
        try:
            check(fake)
        except Exception:  # noqa: BLE001 - a check may fail by an assertion or by what the method raised
            return True
    return False


def test_every_check_has_a_planted_violation() -> None:
    assert set(PLANTS) == set(ALL)
    assert {check for check, bad in PLANTS.items() if not bad} == APART


@pytest.mark.parametrize("check", [pytest.param(c, id=name_of(c)) for c in ALL])
def test_good_fake_passes(check: Callable[[Any], None]) -> None:
    with installed(GOOD):
        check(GOOD)


@pytest.mark.usefixtures("short_limits")
@pytest.mark.parametrize(("check", "fake"), [pytest.param(c, f, id=f"{name_of(c)}-{i}") for c, bad in PLANTS.items() for i, f in enumerate(bad)])
def test_violation_is_caught(check: Callable[[Any], None], fake: Fake) -> None:
    assert caught(check, fake), f"{check.__name__} let the planted violation pass"


def test_checks_are_chosen_by_what_a_method_says() -> None:
    names = dict(checks_of(GOOD))
    assert "live-run-equals-full-run" in names
    assert "files-come-as-bytes-only" in names
    assert "live-run-equals-full-run" not in dict(checks_of(Fake(Params=contract.Params)))
    assert "equal-seed-equal-result" not in dict(checks_of(with_card(deterministic=False)))


@pytest.mark.usefixtures("short_limits")
def test_a_control_may_matter_beside_one_choice_only() -> None:
    with installed(Fake(body=shows_note_elsewhere)) as fake:
        run_checks.check_every_control_matters(fake)


def test_a_control_that_loses_a_value_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_checks.controls.Control, "read", lambda self, values: round(values[0]) if isinstance(values[0], float) else values[0])
    assert caught(card_checks.check_controls_round_trip, GOOD)


def test_a_refusal_without_near_names_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(GOOD):
        monkeypatch.setattr(card_checks.registry.difflib, "get_close_matches", lambda *_, **__: ["other"])
        with pytest.raises(AssertionError, match="near name"):
            card_checks.check_near_names_find_it(GOOD)


def test_an_unknown_control_without_near_names_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.validation.difflib.get_close_matches", lambda *_, **__: [])
    assert caught(input_checks.check_unknown_field_is_refused, GOOD)


def test_a_tool_that_hides_a_field_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.tools._docstring", lambda method, files: "A tool.\n\nParameters:\n    steps: any number")
    assert caught(page_checks.check_tool_names_every_field, GOOD)


FORBIDDEN = ["import gradio", "def f():\n    from app import render", "from backends.other_method import solve", "from ..other_method import x"]


@pytest.mark.parametrize("line", FORBIDDEN)
def test_a_forbidden_import_is_caught(line: str, tmp_path: Path) -> None:
    (tmp_path / "method.py").write_text(line + "\n")
    with installed(dataclasses.replace(GOOD, card=dataclasses.replace(GOOD_CARD, slug="other-method"))), pytest.raises(AssertionError):
        card_checks.assert_imports(card_checks.imports_of(tmp_path), "mine")


def test_a_hung_run_is_ended() -> None:
    def endless(params: Any, context: Any) -> Iterator[Frame]:
        while True:
            context.check()
            time.sleep(0.01)
            yield Frame(0.0, "on and on")

    with pytest.raises(AssertionError, match="did not end"):
        running.run(Fake(body=endless), GoodParams(), limit_s=0.3)


@pytest.mark.parametrize("fake", [GOOD, with_frames(lambda f, n: dataclasses.replace(f, progress=0.5))], ids=["good", "bad"])
def test_presets_are_judged(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preset_checks, "_RUNS", {})
    with installed(fake):
        if fake is GOOD:
            preset_checks.check_preset(fake, fake.card.presets[0])
            return
        with pytest.raises(AssertionError):
            preset_checks.check_preset(fake, fake.card.presets[0])


@pytest.mark.parametrize(("value", "tolerance", "holds"), [(0.0, 100.0, True), (50.0, 0.1, False)])
def test_claims_are_measured_again(value: float, tolerance: float, holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preset_checks, "_RUNS", {})
    claim = Claim("end", "It ends near zero", value, "two steps", "example", "short", "end", tolerance)
    fake = with_card(claims=(claim,))
    with installed(fake):
        if holds:
            preset_checks.check_claim(fake, claim)
            return
        with pytest.raises(AssertionError, match="stated"):
            preset_checks.check_claim(fake, claim)


def test_a_preset_and_its_claim_share_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preset_checks, "_RUNS", {})
    with installed(GOOD):
        preset_checks.check_preset(GOOD, GOOD.card.presets[0])
        preset_checks.check_claim(GOOD, GOOD.card.claims[0])
    assert len(preset_checks._RUNS) == 1


@pytest.mark.parametrize(("shift", "holds"), [(0.0, True), (1e-3, False)])
def test_golden_results_are_compared(shift: float, holds: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden_results, "FOLDER", tmp_path)
    metrics = running.exact(GOOD, running.reference(GOOD).last)
    metrics["end"] += shift
    record = {"params": running.cheap(GOOD).model_dump(mode="json"), "tolerance": 1e-6, "reason": "rounding", "metrics": metrics}
    golden_results.path_of(GOOD).write_text(json.dumps(record))
    assert caught(golden_results.check_golden_result, GOOD) is not holds


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (np.array([1.0, math.nan]), [1.0, None], True),
        (np.arange(100), np.arange(100), True),
        (np.arange(100), np.arange(100) + 1, False),
        ({"a": [1, 2]}, {"a": [1, 3]}, False),
        ((1, "a"), [1, "a"], True),
        (np.zeros(3), np.zeros(4), False),
    ],
)
def test_same_values_sees_through_json(left: Any, right: Any, equal: bool) -> None:
    assert running.same_values(left, right) is equal


def test_panels_are_judged_too() -> None:
    page_checks.assert_labelled(Panel("chips", "chips", "Columns", {}, "Three columns are here"))
    with pytest.raises(AssertionError, match="no panel"):
        page_checks.assert_labelled(Panel("chips", "carousel", "Columns", {}, "Three columns are here"))
