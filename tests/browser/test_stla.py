"""The page of stla in a real Chromium: a short run, a rounding by hand, the failing preset."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

SMALL = "/m/stla?layer=0&iterations=12&calibration_tokens=256&seed=801"
SLOW_MS = 180_000  # a guard against hanging on a busy machine, not a bar


def bench(page: Page) -> Locator:
    return page.locator("#m-stla")


def wait_for_end(page: Page) -> None:
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", re.compile("done|failed|cancelled"), timeout=SLOW_MS)
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", "done")


def test_a_matrix_fills_and_a_rounding_is_made_by_hand(page: Page) -> None:
    page.goto(SMALL)
    bench(page).locator(".pp-run").click()
    wait_for_end(page)
    plot = bench(page).locator(".js-plotly-plot").first
    expect(plot).to_be_visible(timeout=SLOW_MS)
    names = plot.evaluate("node => node.data.map((trace) => trace.name)")
    assert names == ["error", "local", "remaining", "sum"]
    view = bench(page).locator(".pp-view", has=page.get_by_role("heading", name="By hand: three weights"))
    view.scroll_into_view_if_needed()  # what is off the screen is not drawn
    example = view.locator(".js-plotly-plot")
    expect(example.locator(".bars .point").first).to_be_visible(timeout=SLOW_MS)
    spot = example.evaluate(
        """node => {
          const { xaxis: x, yaxis: y } = node._fullLayout, bars = node.data.find((t) => t.name === 'looking ahead'), box = node.getBoundingClientRect();
          return [box.left + x._offset + x.d2p(bars.x[2]), box.top + y._offset + y.d2p(bars.y[2] / 2)];
        }"""
    )
    page.mouse.move(*spot)
    page.wait_for_timeout(300)  # Plotly takes a click for one on the bar that it hovers
    page.mouse.click(*spot)
    expect(bench(page).get_by_text(re.compile("You round the first two to 1, 0")).first).to_be_attached(timeout=SLOW_MS)


def test_the_failing_preset_ends(page: Page) -> None:
    page.goto(SMALL)
    bench(page).locator("[data-preset='no-push']").click()  # a preset starts its run
    wait_for_end(page)
    expect(bench(page).locator(".pp-bar")).to_contain_text("nearest loses", timeout=SLOW_MS)
