"""The command line as a person meets it: what goes to which stream, which code it ends with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from pydantic import Field
from typer.testing import CliRunner, Result

from app import share
from app.cli import app, read_settings
from backends import registry
from backends.contract import Card, Claim, Context, Frame, InputError, Metric, Paper, Params, Preset, Upload
from backends.registry import Registered
from tests.conftest import ROOT

SLUG = "mean-of-draws"


class MeanParams(Params):
    """A method small enough to see each rule of the command line by itself."""

    draws: int = Field(10, ge=1, le=1000, description="Number of draws")
    scale: float = Field(1.0, gt=0, le=10, description="Scale of a draw")
    name: str = Field("", max_length=20, description="A label")
    numbers: Upload | None = Field(None, description="A file of numbers, one a line")
    fault: Literal["none", "input", "crash"] = Field("none", description="What goes wrong")


CARD = Card(
    slug=SLUG,
    title="Mean of draws",
    theme="uncertainty",
    paper=Paper("On means", "N. N.", "https://example.org"),
    aha="More draws, a steadier mean.",
    how="Draw, then average.",
    reconstructed="Nothing.",
    metrics={"mean": Metric("", "mean of the draws"), "count": Metric("", "number of draws")},
    presets=(Preset("few", "Few draws", {"draws": 5}, 0.1), Preset("many", "Many draws", {"draws": 1000}, 0.1)),
    exercise=(),
    claims=(
        Claim("zero", "the mean nears zero", 0.0, "1000 draws", "card", "many", "mean", 0.2),
        Claim("hundred", "a hundred draws", 100.0, "5 draws", "card", "few", "count", 0.5),
        Claim("none", "nothing to see", 1.0, "5 draws", "card", "few", "absent", 0.5),
    ),
    cheap={"draws": 2},
    deterministic=lambda _: True,
)


def run_mean(params: MeanParams, context: Context) -> Iterator[Frame]:
    if params.fault == "input":
        raise InputError("numbers", "line 3 is no number", "correct line 3")
    if params.fault == "crash":
        raise ZeroDivisionError
    drawn = context.rng.normal(size=params.draws) * params.scale
    if params.numbers is not None:
        drawn = np.array([float(line) for line in params.numbers.read("numbers").split()])
    yield Frame(0.5, "drawn", {"mean": None, "count": len(drawn)})
    yield Frame(1.0, "averaged", {"mean": float(drawn.mean()), "count": len(drawn)}, {"drawn": drawn})


@pytest.fixture
def mean_of_draws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Registers the small method, and gives the command a cache folder of its own."""
    module = types.ModuleType("mean_of_draws.method")
    module.run = run_mean  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mean_of_draws.method", module)
    method = Registered(CARD, MeanParams, "mean_of_draws", lambda _: "light")
    monkeypatch.setattr(registry, "methods", lambda: {SLUG: method})
    monkeypatch.setenv("PLAYABLE_CACHE", str(tmp_path / "cache"))


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def metrics_of(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    assert result.stdout.count("\n") == 1
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.usefixtures("mean_of_draws")
class TestRun:
    def test_metrics_go_to_stdout_and_progress_to_stderr(self) -> None:
        result = call("run", SLUG, "--set", "draws=7", "--set", "seed=3")
        found = metrics_of(result)
        assert set(found) == set(CARD.metrics)
        assert found["count"] == 7
        assert "100% averaged" in result.stderr

    def test_quiet_says_nothing_on_stderr(self) -> None:
        for _ in range(2):  # live, then stored
            assert call("run", SLUG, "--quiet").stderr == ""

    def test_a_stored_run_is_marked_and_fresh_computes_again(self) -> None:
        first = call("run", SLUG)
        again, fresh = call("run", SLUG), call("run", SLUG, "--fresh")
        assert metrics_of(first) == metrics_of(again) == metrics_of(fresh)
        assert "computed" not in first.stderr + fresh.stderr
        assert "stored run, computed" in again.stderr

    def test_a_preset_is_where_settings_start_from(self) -> None:
        assert metrics_of(call("run", SLUG, "--preset", "few"))["count"] == 5
        assert metrics_of(call("run", SLUG, "--preset", "few", "--set", "draws=6"))["count"] == 6
        assert metrics_of(call("run", SLUG))["count"] == MeanParams().draws

    def test_a_folder_in_the_place_of_a_file_is_refused_before_the_work(self, tmp_path: Path) -> None:
        result = call("run", SLUG, "--json", str(tmp_path))
        assert result.exit_code == 2
        assert "is a folder" in result.stderr

    def test_settings_saved_by_a_page_start_a_run(self, tmp_path: Path) -> None:
        file = tmp_path / "settings.json"
        file.write_text(share.settings(registry.get(SLUG), MeanParams(draws=7, name="from a page")))
        assert metrics_of(call("run", SLUG, "--params", str(file)))["count"] == 7
        assert metrics_of(call("run", SLUG, "--params", str(file), "--set", "draws=8"))["count"] == 8
        file.write_text('{"method": "another", "params": {}}')
        assert call("run", SLUG, "--params", str(file)).exit_code == 2
        file.write_text("no JSON")
        assert call("run", SLUG, "--params", str(file)).exit_code == 2

    def test_a_file_enters_by_its_at_sign(self, tmp_path: Path) -> None:
        (tmp_path / "n.txt").write_text("1\n2\n6\n")
        assert metrics_of(call("run", SLUG, "--set", f"numbers=@{tmp_path / 'n.txt'}")) == {"mean": 3.0, "count": 3}

    def test_json_holds_the_last_frame_whole(self, tmp_path: Path) -> None:
        result = call("run", SLUG, "--set", "draws=200", "--json", str(tmp_path / "f.json"))
        frame = Frame.from_json(json.loads((tmp_path / "f.json").read_text()))
        assert frame.metrics == metrics_of(result)
        assert frame.data["drawn"].shape == (200,)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["mean-of-drawz"], "mean-of-draws"),
            ([SLUG, "--set", "drawz=3"], "draws"),
            ([SLUG, "--set", "draws=0"], "draws: 0 is below 1"),
            ([SLUG, "--set", "draws=many"], "a whole number from 1 to 1,000"),
            ([SLUG, "--set", "scale=NaN"], "scale"),
            ([SLUG, "--set", "draws"], "--set name=value"),
            ([SLUG, "--set", "numbers=@/no/such/file"], "numbers: /no/such/file cannot be read"),
            ([SLUG, "--set", "numbers=/etc/passwd"], "numbers"),
            ([SLUG, "--preset", "huge"], "few, many"),
            ([SLUG, "--json", "/no/such/folder/f.json"], "/no/such/folder"),
            ([SLUG, "--set", "fault=input"], "numbers: line 3 is no number"),
        ],
    )
    def test_bad_input_is_one_plain_line_and_code_2(self, arguments: list[str], words: str) -> None:
        result = call("run", "--quiet", *arguments)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert words in result.stderr
        assert result.stderr.count("\n") == 1
        assert "Traceback" not in result.stderr

    def test_a_failed_computation_is_code_1(self) -> None:
        result = call("run", SLUG, "--set", "fault=crash")
        assert result.exit_code == 1
        assert result.stdout == ""
        assert "the computation failed (ZeroDivisionError)" in result.stderr
        assert "Traceback" not in result.stderr
        assert result.stderr.count("the computation failed") == 1, "said once"
        assert len(result.stderr.strip().splitlines()) <= 2, "besides the fault at most the line of the start, which a quick run may pass over"


@pytest.mark.usefixtures("mean_of_draws")
def test_claims_are_measured_again_one_run_for_those_that_share_it() -> None:
    result = call("claims", SLUG)
    assert result.exit_code == 0, result.output
    header, *rows = result.stdout.splitlines()
    assert header.split()[:4] == ["method", "claim", "stated", "here"]
    assert [row.split("  ")[0] for row in rows] == [SLUG] * 3
    assert " yes " in rows[0]
    assert " no " in rows[1]
    assert " not defined " in rows[2]
    assert "none: " not in result.stderr  # it shares the run of "hundred"


@pytest.mark.usefixtures("mean_of_draws")
def test_describe_is_the_card_and_the_schema() -> None:
    described = json.loads(call("describe", SLUG).stdout)
    assert described["card"]["slug"] == SLUG
    assert described["card"]["deterministic"] == "depends on the params"
    assert described["card"]["metrics"]["mean"]["kind"] == "exact"
    assert described["params"]["properties"]["draws"]["maximum"] == 1000


def test_settings_are_json_where_they_parse_else_text(tmp_path: Path) -> None:
    (tmp_path / "@x").write_bytes(b"1")
    read = read_settings(MeanParams, ["draws=3", "scale=1e-1", "name=a=b", 'numbers={"name": "n", "base64": "MQ=="}'])
    assert read == {"draws": 3, "scale": 0.1, "name": "a=b", "numbers": {"name": "n", "base64": "MQ=="}}
    assert read_settings(MeanParams, ["name=@x", "scale=Infinity"]) == {"name": "@x", "scale": "Infinity"}  # @ is for files alone
    assert read_settings(MeanParams, [f"numbers=@{tmp_path}/@x"])["numbers"] == Upload.of("@x", b"1")


def test_every_registered_method_is_listed_and_described() -> None:
    listed = call("list").stdout
    for slug, method in registry.methods().items():
        assert slug in listed
        described = json.loads(call("describe", slug).stdout)
        assert described["card"]["title"] == method.card.title
        assert set(described["params"]["properties"]) == set(method.Params.model_fields)


def _hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job hands down that they are ignored


def playable(*arguments: str, cache: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "app", *arguments]
    environment = os.environ | {"PLAYABLE_CACHE": str(cache), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_hear_interrupts)


def test_a_run_writes_a_page_that_needs_nothing_else(tmp_path: Path) -> None:
    method = next(iter(registry.methods().values()))
    settings = [part for name, value in method.card.cheap.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    page = tmp_path / "page.html"
    with playable("run", method.card.slug, *settings, "--html", str(page), cache=tmp_path / "cache") as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert set(json.loads(out)) == set(method.card.metrics)
    text = page.read_text(encoding="utf-8")
    assert method.card.title in text
    assert "<script src=" not in text
    assert "<link" not in text


def test_ctrl_c_stops_the_run_with_code_130(tmp_path: Path) -> None:
    method, preset = max(((m, p) for m in registry.methods().values() for p in m.card.presets), key=lambda pair: pair[1].seconds)
    with playable("run", method.card.slug, "--preset", preset.name, cache=tmp_path / "cache") as process:
        assert process.stderr is not None
        process.stderr.readline()  # it has begun
        pressed = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert out == ""
    assert "stopped" in err
    assert "Traceback" not in err
    assert time.monotonic() - pressed < 5  # a hang guard; the second that a run has to stop is the runner's own test
