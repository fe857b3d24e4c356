"""CONTRIBUTING.md is followed word by word on a copy of the project: the new method appears everywhere and keeps the contract."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

COPIED = ("app", "backends", "kernels", "static", "tests", "pyproject.toml", "README.md")
FILES = ("backends/my_method/card.py", "backends/my_method/method.py", "app/pages/my_method.py")
LIMIT_S = 240


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the method of CONTRIBUTING.md in it."""
    folder = tmp_path_factory.mktemp("project")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == len(FILES)
    for name, block in zip(FILES, blocks, strict=True):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(block, encoding="utf-8")
    (folder / "backends/my_method/__init__.py").write_text('"""A series that converges."""\n', encoding="utf-8")
    return folder


def call(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PLAYABLE_CACHE": str(project / "cache"), "PYTHONPATH": str(project)}
    return subprocess.run([sys.executable, "-m", *arguments], cwd=project, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)


@pytest.mark.timeout(LIMIT_S)
def test_the_method_keeps_every_check_of_the_contract(project: Path) -> None:
    golden = call(project, "tests.contract.golden_results", "my-method", "--tolerance", "1e-9", "--reason", "exact arithmetic")
    assert golden.returncode == 0, golden.stderr
    done = call(project, "pytest", "tests/contract", "-k", "my-method", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout[-4000:]
    assert "skipped" not in done.stdout.splitlines()[-1]


def test_the_command_line_runs_and_lists_it(project: Path) -> None:
    done = call(project, "app", "run", "my-method", "--set", "noise=0", "--quiet")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sum"] == pytest.approx(1 - 2**-20)
    assert "`my-method`" in call(project, "app", "list", "--markdown").stdout


def test_its_files_are_clean(project: Path) -> None:
    ruff = call(project, "ruff", "check", "--no-cache", *FILES)
    assert ruff.returncode == 0, ruff.stdout
