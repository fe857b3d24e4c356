"""The page that a run is taken home in opens from disk, with no network."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser

from app import export
from app.pages import load
from backends import registry
from backends.contract import ContextSpec
from backends.runtime.context import RunContext
from backends.validation import validate

SLUG = "conformal-ksos"


def test_the_page_draws_itself_from_disk_without_a_network(tmp_path: Path, browser: Browser) -> None:
    method = registry.get(SLUG)
    params = validate(method.Params, method.card.cheap)
    *_, frame = method.run(params, RunContext(ContextSpec(params.seed)))
    file = tmp_path / "run.html"
    file.write_text(export.html_page(SLUG, params, frame), encoding="utf-8")
    faults: list[str] = []
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("requestfailed", lambda request: faults.append(request.url))
    page.goto(file.as_uri())
    page.locator(".pp-plot .main-svg").first.wait_for()
    assert page.locator("figure.pp-view").count() == len(load(SLUG).views(frame, params))
    context.close()
    assert not faults
