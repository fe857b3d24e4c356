"""The code that a page shows (Python, command line, HTTP, client) is run as printed, and gives the same exact metrics."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app import about
from backends import registry
from backends.contract import Method
from tests.conftest import ROOT, Lab
from tests.contract.running import cheap, exact, reference, repeatable

LIMIT_S = 120


def _shell(text: str, folder: Path) -> str:
    """What a command prints, with our commands found as in an activated environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "PLAYABLE_CACHE": str(folder / "cache")}
    done = subprocess.run(["bash", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, f"code {done.returncode}:\n{done.stderr[-2000:]}"
    return done.stdout


def _python(text: str, folder: Path) -> dict[str, Any]:
    (folder / "snippet.py").write_text(text, encoding="utf-8")
    return dict(ast.literal_eval(_shell("python snippet.py", folder).strip().splitlines()[-1]))


def _command(text: str, folder: Path) -> dict[str, Any]:
    return dict(json.loads(_shell(text, folder).strip().splitlines()[-1]))


def _events(text: str, folder: Path) -> dict[str, Any]:
    data = [line.removeprefix("data: ") for line in _shell(text, folder).splitlines() if line.startswith("data: ")]
    answers = [json.loads(d) for d in data if '"metrics"' in d]
    return dict(answers[-1][0]["metrics"])


@pytest.mark.timeout(4 * LIMIT_S)
@pytest.mark.parametrize("way", ["python", "cli", "curl", "client"])
@pytest.mark.parametrize("method", [pytest.param(m, id=m.card.slug) for m in registry.methods().values()])
def test_snippet_gives_the_same_metrics(method: Method, way: str, lab: Lab, tmp_path: Path) -> None:
    params, slug = cheap(method), method.card.slug
    if not repeatable(method, params):
        pytest.skip(f"{slug} says that these params do not repeat")
    if way == "curl" and shutil.which("curl") is None:
        pytest.skip("no curl here")
    if way == "python":
        metrics = _python(about.python_snippet(slug, params), tmp_path)
    elif way == "client":
        metrics = _python(about.client_snippet(slug, params, lab.url), tmp_path)
    elif way == "cli":
        metrics = _command(about.cli_snippet(slug, params), tmp_path)
    else:
        metrics = _events(about.curl_snippet(slug, params, lab.url), tmp_path)
    expected = exact(method, reference(method).last)
    assert {name: metrics.get(name) for name in expected} == expected
