"""Drawer texts, snippets and downloads: true to the params, safe against what a person typed."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import plotly.graph_objects as go
import pytest
from typer.testing import CliRunner

from app import about, cli, export, thumbnails
from app.pages import load
from backends.contract import ContextSpec, Frame, InputError, Params, Upload
from backends.registry import get, methods
from backends.runtime.context import RunContext
from backends.store import Made, StoredRun
from backends.validation import validate
from tests.conftest import ROOT, Lab

SLUG = "conformal-ksos"
METHOD = get(SLUG)
CHEAP = dict(METHOD.card.cheap)
TABLE = "y,x\n" + "".join(f"{(i * 37) % 101},{i}\n" for i in range(90))
HOSTILE = "</script><script>alert(1)</script>'\"$(id)`id`\\"
DIFFERENT = CHEAP | {"symmetry": 1.0, "data": "gaussian", "seed": 4}


def nothing(_: Params) -> None:
    return None


@cache
def ran(seed: int = 0) -> tuple[Params, Frame]:
    params = validate(METHOD.Params, CHEAP | {"seed": seed})
    return params, list(METHOD.run(params, RunContext(ContextSpec(seed=seed))))[-1]


def stored(params: Params) -> StoredRun:
    return StoredRun("0" * 20, SLUG, params, (ran()[1],), Made(0.0, 1.5, "CPU", "v"))


def exact(metrics: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if METHOD.card.metrics[name].kind == "exact"}


# ------------------------------------------------------------------------------------------------------ fragments


@pytest.mark.parametrize("slug", methods())
@pytest.mark.parametrize("tab", about.TABS)
def test_every_tab_of_every_method_is_well_formed(slug: str, tab: str) -> None:
    method = get(slug)
    text = about.fragment(slug, tab, validate(method.Params, method.card.presets[0].params), nothing)
    assert ElementTree.fromstring(f"<div>{text.replace('<br>', '<br/>')}</div>").itertext()
    assert "$$" not in text


def test_formulas_become_mathml() -> None:
    text = about.markdown(r"Let $x_i^2$ and" + "\n\n$$\\sum_i \\alpha_i\n\\|G\\|_F^2$$\n\nfor \\$5, 3$ and $4.")
    assert text.count("<math") == 2
    assert 'display="block"' in text
    assert "<msubsup>" in text
    assert "$5, 3$ and $4" in text


def test_markdown_shows_markup_as_text() -> None:
    assert "<script" not in about.markdown("<script>alert(1)</script> [a](javascript:alert(1))")


def test_claims_show_stated_and_measured() -> None:
    for claim in METHOD.card.claims:
        text = about.fragment(SLUG, "claims", METHOD.Params(), stored)
        assert f'data-claim="{claim.name}"' in text
        assert "measure now" in text
    assert "not measured yet" not in about.fragment(SLUG, "claims", METHOD.Params(), stored)


def test_exercise_buttons_name_presets() -> None:
    text = about.fragment(SLUG, "exercise", METHOD.Params(), nothing)
    assert re.findall(r'data-preset="([^"]+)"', text) == [step.preset for step in METHOD.card.exercise]


def test_data_links_the_stored_run_only() -> None:
    assert "/runs/" not in about.fragment(SLUG, "data", METHOD.Params(), nothing)
    text = about.fragment(SLUG, "data", METHOD.Params(), stored)
    assert all(f"/runs/{'0' * 20}.{kind}" in text for kind in ("json", "csv", "html", "ipynb"))


def test_an_unknown_tab_is_refused() -> None:
    with pytest.raises(InputError, match="choose one of how"):
        about.fragment(SLUG, "<b>", METHOD.Params(), nothing)


def test_what_a_person_typed_stays_text() -> None:
    params = validate(METHOD.Params, {"target": HOSTILE[:100], "csv": {"name": HOSTILE, "bytes": b"x"}})
    for tab in about.TABS:
        assert "<script" not in about.fragment(SLUG, tab, params, nothing, base=HOSTILE)


# ------------------------------------------------------------------------------------------------------- snippets


def test_snippets_name_only_what_differs() -> None:
    params = validate(METHOD.Params, {"symmetry": 1.0, "alpha": METHOD.Params.model_fields["alpha"].default})
    for text in (about.python_snippet(SLUG, params), about.cli_snippet(SLUG, params), about.curl_snippet(SLUG, params), about.client_snippet(SLUG, params)):
        assert "symmetry" in text
        assert "alpha" not in text


def words_of(command: str) -> list[str]:
    """The words of a command as a shell reads them; shlex does not join continued lines."""
    return shlex.split(command.replace("\\\n", ""))


TYPED = [{"target": text} for text in ("1", "true", "a b'c", '"q"', HOSTILE[:100])] + [{"symmetry": 0.05}, {"symmetry": "separate"}]


@pytest.mark.parametrize("values", TYPED, ids=str)
def test_the_command_line_reads_back_what_was_written(values: dict[str, Any]) -> None:
    words = words_of(about.cli_snippet(SLUG, validate(METHOD.Params, values)))
    assert words[:3] == ["playable", "run", SLUG]
    settings = [b for a, b in itertools.pairwise(words) if a == "--set"]
    assert cli.read_settings(METHOD.Params, settings) == values


def test_python_command_line_and_direct_run_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYABLE_CACHE", str(tmp_path))
    params = validate(METHOD.Params, DIFFERENT)
    space: dict[str, Any] = {}
    exec(about.python_snippet(SLUG, params), space)
    words = words_of(about.cli_snippet(SLUG, params))
    result = CliRunner().invoke(cli.app, [*words[1:], "--quiet"])
    assert result.exit_code == 0, result.output
    direct = list(METHOD.run(params, RunContext(ContextSpec(seed=params.seed))))[-1]
    assert exact(space["frame"].metrics) == exact(direct.metrics) == exact(json.loads(result.stdout))


def test_http_and_client_agree_with_the_direct_run(lab: Lab, tmp_path: Path) -> None:
    params = validate(METHOD.Params, DIFFERENT)
    direct = exact(list(METHOD.run(params, RunContext(ContextSpec(seed=params.seed))))[-1].metrics)
    assert by_curl(about.curl_snippet(SLUG, params, lab.url), tmp_path) == direct
    assert by_script(about.client_snippet(SLUG, params, lab.url), 'result["metrics"]', tmp_path) == direct


def test_a_file_is_named_and_read_by_every_snippet(tmp_path: Path, lab: Lab) -> None:
    (tmp_path / "my table.csv").write_text(TABLE)
    params = validate(METHOD.Params, CHEAP | {"data": "csv", "csv": Upload.of("my table.csv", TABLE.encode())})
    direct = exact(list(METHOD.run(params, RunContext(ContextSpec(seed=0))))[-1].metrics)
    assert by_script(about.python_snippet(SLUG, params), "dict(frame.metrics)", tmp_path) == direct
    assert by_script(about.client_snippet(SLUG, params, lab.url), 'result["metrics"]', tmp_path) == direct
    assert by_curl(about.curl_snippet(SLUG, params, lab.url), tmp_path) == direct
    assert "csv=@my table.csv" in words_of(about.cli_snippet(SLUG, params))


def by_script(text: str, expression: str, folder: Path) -> dict[str, Any]:
    """The exact metrics that ``expression`` holds after a Python snippet ran in ``folder``."""
    script = f"{text}\nimport json\nprint('METRICS' + json.dumps({expression}))"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PLAYABLE_CACHE": str(folder / "cache")}
    printed = subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=True).stdout
    return exact(json.loads(printed.rpartition("METRICS")[2]))


def by_curl(text: str, folder: Path) -> dict[str, Any]:
    """The exact metrics of the last event that the curl snippet printed."""
    printed = subprocess.run(["bash", "-c", text], cwd=folder, capture_output=True, text=True, timeout=120, check=True).stdout
    events = [line.removeprefix("data: ") for line in printed.splitlines() if line.startswith("data: ") and '"metrics"' in line]
    return exact(json.loads(events[-1])[0]["metrics"])


# ------------------------------------------------------------------------------------------------------ downloads


def test_the_page_is_whole_and_asks_for_nothing() -> None:
    params, frame = ran()
    page = export.html_page(SLUG, params, frame)
    outside = re.sub(r"<script type=\"text/plain\" id=\"plotly\">.*?</script>", "", page, flags=re.DOTALL)
    assert not re.findall(r"(?:src|href)=\"(?!https://arxiv)[^\"#]+\"", outside)
    assert "../icons/" not in page
    assert f"{METHOD.card.title}</title>" in page
    assert "playable run conformal-ksos" in page


def test_a_hostile_name_does_not_leave_the_pages_data() -> None:
    params, frame = ran()
    hostile = Frame(1.0, HOSTILE, frame.metrics, {**frame.data, "axes": {"x": HOSTILE, "y": HOSTILE}, "notes": [HOSTILE]})
    assert "<script>alert" not in export.html_page(SLUG, params, hostile)


def test_the_table_is_tidy_and_harmless() -> None:
    frame = Frame(
        1.0,
        "done",
        {"coverage": 0.9, "word": "=cmd()", "none": None},
        {
            "points": {"x": np.array([-1.5, 2.0]), "role": np.array([0, 1], np.uint8)},
            "note": "+1",
            "deep": {"a": {"b": [1, "@x"]}},
            "rows": [{"name": "-a", "n": 2}],
        },
    )
    rows = list(csv.reader(io.StringIO(export.csv_text(frame))))
    assert rows[0] == ["group", "name", "index", "value"]
    assert ["metrics", "coverage", "", "0.9"] in rows
    assert ["metrics", "none", "", ""] in rows
    assert ["points", "x", "0", "-1.5"] in rows
    assert ["deep.a", "b", "1", "'@x"] in rows
    assert ["data.rows", "name", "0", "'-a"] in rows
    numbers = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
    assert all(not cell or cell[0] not in "=+-@" or numbers.fullmatch(cell) for row in rows for cell in row)


def test_the_table_of_a_run_holds_every_metric_and_array() -> None:
    _, frame = ran()
    rows = list(csv.DictReader(io.StringIO(export.csv_text(frame))))
    assert {r["name"] for r in rows if r["group"] == "metrics"} == set(frame.metrics)
    x = [float(r["value"]) for r in rows if r["group"] == "points" and r["name"] == "x"]
    assert np.array_equal(x, frame.data["points"]["x"])


def test_the_notebook_runs_and_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    params, frame = ran()
    made = json.loads(json.dumps(export.notebook(SLUG, params, frame)))
    assert (made["nbformat"], [c["cell_type"] for c in made["cells"]]) == (4, ["markdown", "code", "code"])
    shown: list[go.Figure] = []
    monkeypatch.setattr(go.Figure, "show", lambda figure: shown.append(figure))
    space: dict[str, Any] = {}
    for cell in made["cells"][1:]:
        exec("".join(cell["source"]), space)
    assert exact(space["frame"].metrics) == exact(frame.metrics)
    assert len(shown) == len(load(SLUG).views(frame, params))


def test_the_thumbnail_is_a_small_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYABLE_CACHE", str(tmp_path))
    assert thumbnails.read(SLUG) is None
    path = thumbnails.write(SLUG, ran()[1], ran()[0])
    svg = thumbnails.read(SLUG)
    assert path.is_relative_to(tmp_path)
    assert svg is not None
    assert len(svg) < 20_000
    drawing = ElementTree.fromstring(svg)
    assert len(drawing.findall(".//{http://www.w3.org/2000/svg}path")) >= 6
    assert b"NaN" not in svg
    assert b"nan" not in svg
    assert b"$" not in svg
    assert thumbnails.read("../" + SLUG) is None
    with pytest.raises(LookupError, match="no figure"):
        thumbnails.write(SLUG, Frame(0.0, "empty"), ran()[0])
