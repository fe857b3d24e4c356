"""A plain page that stands in for Gradio: the browser side alone, without the lab."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.parts.demonstration import Handler, opened

WAIT_MS = 20_000


@pytest.fixture
def asked() -> list[str]:
    """The addresses below /m/ that the page asked for."""
    return []


@pytest.fixture
def address(asked: list[str]) -> Iterator[str]:
    handler = type("Served", (Handler,), {"asked": asked})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=functools.partial(server.serve_forever, poll_interval=0.05), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def demo(browser: Browser, address: str) -> Iterator[Page]:
    """The demonstration page at a laptop's size; faults of the console and requests elsewhere fail the test."""
    context = browser.new_context(base_url=address, viewport={"width": 1440, "height": 900}, permissions=["clipboard-read", "clipboard-write"])
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: faults.append(request.url) if not request.url.startswith((address, "data:", "blob:")) else None)
    opened(page)
    yield page
    context.close()
    assert not faults, "\n".join(faults)
