"""The page of plate in a real Chromium: a short run with its trails, a point of the dial clicked, the failing preset."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

SMALL = "/m/plate?data=moons&steps=50"
SLOW_MS = 180_000  # a guard against hanging on a busy machine, not a bar


def bench(page: Page) -> Locator:
    return page.locator("#m-plate")


def wait_for_end(page: Page) -> None:
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", re.compile("done|failed|cancelled"), timeout=SLOW_MS)
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", "done")


def run(page: Page, address: str) -> Locator:
    page.goto(address)
    bench(page).locator(".pp-run").click()
    plot = bench(page).locator(".js-plotly-plot").first
    expect(plot).to_be_visible(timeout=SLOW_MS)
    wait_for_end(page)
    return plot


def test_trails_are_drawn_and_can_be_played(page: Page) -> None:
    plot = run(page, SMALL + "&seed=7101")
    player = bench(page).locator(".pp-frames").first
    expect(player).to_be_visible(timeout=SLOW_MS)
    names = plot.evaluate("node => node.data.map((trace) => trace.name)")
    assert {"PLATE", "LoRA 16", "full", "head only", "EWC, old data", "replay, old data", "OSF"} <= set(names)
    player.locator("input").evaluate("node => { node.value = 1; node.dispatchEvent(new Event('input')); }")
    expect(player.locator(".pp-frame-name")).to_have_text("step 25")


def test_a_point_of_the_dial_sets_the_rows_and_runs(page: Page) -> None:
    run(page, SMALL + "&seed=7102")
    plot = page.locator("#plate--view-ranks .pp-plot")
    plot.scroll_into_view_if_needed(timeout=SLOW_MS)
    expect(plot.locator(".main-svg").first).to_be_visible(timeout=SLOW_MS)
    spot = plot.evaluate(
        """node => {
          const { xaxis: x, yaxis: y } = node._fullLayout, curve = node.data.find((t) => t.name === 'not learned'), box = node.getBoundingClientRect();
          return [box.left + x._offset + x.d2p(curve.x[0]), box.top + y._offset + y.d2p(curve.y[0])];
        }"""
    )
    page.mouse.move(*spot)
    page.wait_for_timeout(300)  # Plotly takes a click for one on the point that it hovers
    page.mouse.click(*spot)
    expect(page.locator("[id='plate--rank'] input[type='number']")).to_have_value("8", timeout=SLOW_MS)
    wait_for_end(page)


def test_the_failing_preset_says_that_too_little_may_move(page: Page) -> None:
    page.goto(SMALL)
    bench(page).locator("[data-preset='too-small']").click()  # a preset starts its run
    wait_for_end(page)
    expect(bench(page).locator(".pp-view-title").first).to_have_text(re.compile("Too little may move"), timeout=SLOW_MS)
