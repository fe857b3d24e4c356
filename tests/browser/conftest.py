"""A real Chromium whose pages must stay silent: no console error, no page error, no request to an outside host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from tests.conftest import Lab

# Without the last ones Chromium itself asks outside hosts.
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
DESKTOP = {"width": 1366, "height": 768}
WAIT_LIMIT_MS = 20_000

NewPage = Callable[..., Page]


@pytest.fixture(scope="session")
def browser(chromium: Path) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def new_page(browser: Browser, lab: Lab) -> Iterator[NewPage]:
    """Opens pages, each a visitor of its own: ``new_page(viewport=..., color_scheme=...)``; all are watched for faults.

    expected: texts of console errors that a test causes on purpose, such as Gradio's own about a stream that was cut.
    """
    faults: list[str] = []
    contexts: list[BrowserContext] = []

    def hear(message: ConsoleMessage, expected: Sequence[str]) -> None:
        if message.type == "error" and not any(text in message.text for text in expected):
            faults.append(f"console: {message.text} ({message.location.get('url')})")

    def watch(page: Page, expected: Sequence[str]) -> None:
        page.on("console", lambda message: hear(message, expected))
        page.on("pageerror", lambda error: faults.append(f"page error: {error}"))
        page.on("request", lambda request: faults.append(f"outside host: {request.url}") if _is_outside(request.url, lab.url) else None)

    def open_page(*, expected: Sequence[str] = (), **options: Any) -> Page:
        context = browser.new_context(**{"base_url": lab.url, "viewport": DESKTOP, **options})
        contexts.append(context)
        context.set_default_timeout(WAIT_LIMIT_MS)
        context.on("page", lambda page: watch(page, expected))
        return context.new_page()

    yield open_page
    for context in contexts:
        context.close()
    assert not faults, "\n".join(dict.fromkeys(faults))


@pytest.fixture
def page(new_page: NewPage) -> Page:
    """One visitor's page at a laptop's size."""
    return new_page()


def _is_outside(url: str, own: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != urlsplit(own).netloc
