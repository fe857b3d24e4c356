"""The page of compressed-doco in a real Chromium: a short run, a block chosen on the U-curve, the failing preset."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

SMALL = "/m/compressed-doco?horizon=300&learners=5"
SLOW_MS = 120_000  # a guard against hanging on a busy machine, not a bar


def bench(page: Page) -> Locator:
    return page.locator("#m-compressed-doco")


def wait_for_end(page: Page) -> None:
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", re.compile("done|failed|cancelled"), timeout=SLOW_MS)
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", "done")


def run(page: Page, address: str) -> Locator:
    page.goto(address)
    bench(page).locator(".pp-run").click()
    wait_for_end(page)
    plot = bench(page).locator(".js-plotly-plot").first
    expect(plot).to_be_visible(timeout=SLOW_MS)
    return plot


def test_learners_fan_and_u_curve_are_drawn_and_a_block_can_be_played(page: Page) -> None:
    plot = run(page, SMALL)
    names = plot.evaluate("node => node.data.map((trace) => trace.name)")
    assert {"learners", "deviation", "surrogates", "U-curve", "DC-DOGD", "best fixed"} <= set(names)
    player = bench(page).locator(".pp-frames").first
    expect(player).to_be_visible()
    last = plot.evaluate("node => Array.from(node.data.find((t) => t.name === 'learners').marker.color)")
    player.locator("input").evaluate("node => { node.value = Number(node.max) - 1; node.dispatchEvent(new Event('input')); }")
    expect(player.locator(".pp-frame-name")).to_have_text(re.compile("^round "))
    page.wait_for_function(
        "(before) => JSON.stringify(Array.from(document.querySelector('#m-compressed-doco .js-plotly-plot')"
        ".data.find((t) => t.name === 'learners').marker.color)) !== JSON.stringify(before)",
        arg=last,
    )


def test_a_point_of_the_u_curve_sets_the_block_and_runs(page: Page) -> None:
    plot = run(page, SMALL)
    expect(bench(page).locator(".pp-frames").first).to_be_visible()  # the last frame is drawn
    plot.scroll_into_view_if_needed()
    # The first point that no line crosses: blocks of 4 rounds.
    spot = plot.evaluate(
        """node => {
          const { xaxis3: x, yaxis3: y } = node._fullLayout, curve = node.data.find((t) => t.name === 'U-curve'), box = node.getBoundingClientRect();
          return [box.left + x._offset + x.d2p(curve.x[0]), box.top + y._offset + y.d2p(curve.y[0])];
        }"""
    )
    page.mouse.move(*spot)
    page.wait_for_timeout(300)  # Plotly takes a click for one on the point that it hovers
    page.mouse.click(*spot)
    expect(page.locator("[id='compressed-doco--gossip_rounds'] input[type='number']")).to_have_value("3", timeout=SLOW_MS)
    wait_for_end(page)
    expect(bench(page).locator(".pp-bar")).to_contain_text("blocks of 4 rounds", timeout=SLOW_MS)


def test_the_failing_preset_says_that_they_hardly_agree(page: Page) -> None:
    page.goto(SMALL)
    bench(page).locator("[data-preset='theory']").click()  # a preset starts its run
    wait_for_end(page)
    expect(bench(page).locator(".pp-view-title").first).to_have_text(re.compile("hardly agree"), timeout=SLOW_MS)
