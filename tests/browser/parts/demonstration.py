"""The demonstration page: what serves it, and how tests speak to it."""

from __future__ import annotations

import http.server
from pathlib import Path
from typing import Any

import plotly
from playwright.sync_api import Page

HERE = Path(__file__).parent
STATIC = HERE.parents[2] / "static"
PLOTLY_JS = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html; charset=utf-8"}
ABOUT = (
    "<p>The band comes from a dual problem.</p><math display='block'><mi>f</mi><mo>=</mo><mn>1</mn></math>"
    "<p><button data-claim='width'>measure now</button> <button data-preset='engel'>show</button></p><pre><code>playable run demo</code></pre>"
)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves static/, plotly's own script, the demonstration page, and texts for the drawer."""

    asked: list[str]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        file = {"/plotly.js": PLOTLY_JS, "/": HERE / "harness.html", "/harness.js": HERE / "harness.js"}.get(path, STATIC / path.removeprefix("/lab/"))
        if path.startswith("/m/"):
            self.asked.append(self.path)
            self.answer(200, ABOUT.encode(), TYPES[".html"]) if "/about/" in path else self.answer(204, b"", "text/plain")
        elif file.is_file():
            self.answer(200, file.read_bytes(), TYPES[file.suffix])
        else:
            self.answer(404, b"", "text/plain")

    def answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def opened(page: Page, query: str = "") -> None:
    page.goto(f"/{query}")
    page.wait_for_selector(".pp-run")
    page.wait_for_selector("#demo--rows-slider")


def events(page: Page, component: str) -> list[dict[str, Any]]:
    return page.evaluate(f"components.{component}.events")


def staged(page: Page, run: str = "r1", tie: float = 0, views: str = "true") -> None:
    """Shows the demonstration's pictures, of those views for which the expression in ``view`` holds."""
    page.evaluate(
        f"(() => {{ const value = stageValue('{run}', {tie}); value.views = value.views.filter((view) => {views}); components.stage.set(value); }})()"
    )


def drawn(page: Page, view: str = "band") -> None:
    page.locator(f"#demo--view-{view} .main-svg").first.wait_for()


def barred(page: Page, **value: Any) -> None:
    page.evaluate("(more) => components.bar.set(barValue(more))", value)


def acted(page: Page) -> list[dict[str, Any]]:
    return [event["event"] for event in events(page, "stage")]
