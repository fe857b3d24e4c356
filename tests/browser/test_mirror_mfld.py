"""The page of mirror-mfld in a real Chromium: the default run, the target dragged inside the triangle, the trap."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

SLOW_MS = 120_000  # a guard against hanging on a busy machine, not a bar
FEW = "particles=200&steps=300"


def cloud(page: Page) -> Locator:
    return page.locator("#mirror-mfld--view-cloud")


def run(page: Page, address: str) -> None:
    page.goto(address)
    page.locator("#m-mirror-mfld .pp-run").click(timeout=SLOW_MS)
    expect(cloud(page).locator(".js-plotly-plot .main-svg").first).to_be_visible(timeout=SLOW_MS)
    wait_for_end(page)


def wait_for_end(page: Page) -> None:
    expect(page.locator("#m-mirror-mfld .pp-bar")).to_have_attribute("data-state", re.compile("done|failed|cancelled"), timeout=SLOW_MS)
    expect(page.locator("#m-mirror-mfld .pp-bar")).to_have_attribute("data-state", "done")


def test_the_default_run_draws_both_clouds(page: Page) -> None:
    run(page, "/m/mirror-mfld")
    expect(cloud(page).locator(".pp-view-title")).to_have_text("Two clouds in a triangle")
    expect(page.locator("#m-mirror-mfld .pp-metrics")).to_contain_text("2,000", timeout=SLOW_MS)


def test_the_target_is_dragged_and_the_cloud_follows(page: Page) -> None:
    run(page, f"/m/mirror-mfld?{FEW}")
    ring = cloud(page).locator(".shapelayer path").first
    ring.wait_for(state="attached", timeout=SLOW_MS)
    box = ring.bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 20, middle[1] + 140, steps=6)
    page.mouse.up()
    expect(page).to_have_url(re.compile("[?&]q="), timeout=SLOW_MS)
    wait_for_end(page)
    found = page.evaluate("JSON.parse(new URLSearchParams(location.search).get('q'))")
    assert abs(sum(found) - 1) < 1e-6
    assert found[0] < 0.5, "the ring was dragged away from the first corner"


def test_the_trap_is_shown(page: Page) -> None:
    run(page, f"/m/mirror-mfld?_preset=trap&{FEW}&step=0.03")
    expect(cloud(page).locator(".pp-view-title")).to_contain_text("The trap", timeout=SLOW_MS)
    expect(page.locator("#m-mirror-mfld .pp-notes")).to_contain_text("not safe")
