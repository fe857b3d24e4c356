"""What holds for all methods together: import, names of tools, size of pages, the rules of the tables beside the tests."""

from __future__ import annotations

import datetime
import gzip
import json
import re
import statistics
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from app import shell
from backends import registry
from backends.runner import Runner
from tests import expected_failures
from tests.conftest import ROOT, Lab

HEAVY = ("torch", "gradio", "scipy", "sklearn", "pandas", "plotly", "transformers", "diffusers", "statsmodels", "PIL")
IMPORTS = 3
IMPORT_LIMIT_S = 0.5
THEME_LIMIT_BYTES = 150_000
THEME_LIMIT_GZIP_BYTES = 30_000
THEME_LIMIT_METHODS = 5
IMPORT_SCRIPT = """
import sys, time
started = time.process_time()
from backends import registry
for method in registry.methods().values():
    method.card, method.Params.model_json_schema(), method.weight(method.Params())
print(time.process_time() - started)
print(*sorted(sys.modules))
"""


def test_registry_import_is_light() -> None:
    """Neither torch nor any optional package; the time is stated in seconds of computing, which a busy host stretches least."""
    seconds, loaded = [], set()
    for _ in range(IMPORTS):
        printed = subprocess.run([sys.executable, "-c", IMPORT_SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
        first, second = printed.splitlines()[-2:]
        seconds.append(float(first))
        loaded |= set(second.split())
    print(f"registry import and listing: {statistics.median(seconds):.2f} s of one core (median of {IMPORTS}; aim 0.5 s)")
    assert statistics.median(seconds) < IMPORT_LIMIT_S
    assert not [name for name in HEAVY if name in loaded]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> object:
    runner = Runner(folder=tmp_path_factory.mktemp("runner"))
    yield shell.build(runner)
    runner.close()


def test_public_names_are_the_registry(demo) -> None:  # type: ignore[no-untyped-def]
    """One public tool a method, and nothing else."""
    named = {name.removeprefix("/") for name in demo.get_api_info()["named_endpoints"]}
    assert named == {f"{m.card.package}_run" for m in registry.methods().values()}
    unnamed = demo.get_api_info()["unnamed_endpoints"]
    assert not unnamed


def test_tool_function_and_api_names_are_equal(demo) -> None:  # type: ignore[no-untyped-def]
    """MCP takes the function's name, HTTP the api_name."""
    public = [fn for fn in demo.fns.values() if fn.api_visibility == "public"]
    assert len(public) == len(registry.methods())
    assert all(fn.api_name == fn.fn.__name__ for fn in public)


@pytest.mark.parametrize("theme", list(registry.by_theme()))
def test_theme_page_is_small(theme: str, lab: Lab) -> None:
    """The configuration as the browser receives it; a theme has at most five methods."""
    with urllib.request.urlopen(lab.url + shell.theme_path(theme), timeout=30) as answer:
        page = answer.read().decode()
    found = re.search(r"window\.gradio_config\s*=\s*(\{.*?\});\s*(?:window|</script>)", page, re.DOTALL)
    assert found, "the page carries no configuration"
    config = found[1].encode()
    json.loads(config)
    number = len(registry.by_theme()[theme])
    packed = len(gzip.compress(config))
    print(f"{theme}: {number} methods, {len(config):,} bytes of configuration, {packed:,} gzipped; the whole page {len(page):,}")
    assert number <= THEME_LIMIT_METHODS
    assert len(config) <= THEME_LIMIT_BYTES
    assert packed <= THEME_LIMIT_GZIP_BYTES


def test_expected_failures_say_why_and_since_when() -> None:
    for test, known in expected_failures.TABLE.items():
        assert "::" in test, f"{test} is not a test's id"
        assert (ROOT / test.split("::")[0]).is_file(), f"{test} names a file that is not there"
        assert len(known.reason.split()) >= 3, f"{test} has no reason in words"
        datetime.date.fromisoformat(known.date)


PASSING_EXPECTED_FAILURE = """
import pytest
from tests import expected_failures
from tests.expected_failures import Expected

class Plugin:
    def pytest_collection_modifyitems(self, items):
        expected_failures.apply(items, {items[0].nodeid: Expected("it was thought to fail", "2026-01-01")})

raise SystemExit(pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", ".", "-c", "/dev/null", "test_passes.py"], plugins=[Plugin()]))
"""


def test_an_expected_failure_that_passes_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "test_passes.py").write_text("def test_passes() -> None:\n    pass\n")
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", PASSING_EXPECTED_FAILURE], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "XPASS(strict)" in done.stdout
