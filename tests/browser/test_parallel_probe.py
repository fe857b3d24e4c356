"""The page of parallel-probe in a real Chromium: a live question, a dragged warm-up, the failing preset."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

SMALL = "/m/parallel-probe?branches=8&leaves=4&seed=41"
SLOW_MS = 120_000  # a guard against hanging on a busy machine, not a bar


def bench(page: Page) -> Locator:
    return page.locator("#m-parallel-probe")


def wait_for_end(page: Page) -> None:
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", re.compile("done|failed|cancelled"), timeout=SLOW_MS)
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", "done")


def test_a_live_question_is_drawn_and_the_warm_up_can_be_dragged(page: Page) -> None:
    page.goto(SMALL)
    bench(page).locator(".pp-run").click()
    wait_for_end(page)
    plot = bench(page).locator(".js-plotly-plot").first
    expect(plot).to_be_visible(timeout=SLOW_MS)
    names = plot.evaluate("node => node.data.map((trace) => trace.name)")
    assert {"answer", "cut, would say", "own answer", "vote"} <= set(names)
    expect(bench(page).locator(".pp-table").first).to_be_visible()
    plot.scroll_into_view_if_needed()
    start, end, height = plot.evaluate(
        """node => {
          const { xaxis: x, yaxis: y } = node._fullLayout, box = node.getBoundingClientRect();
          const line = node.layout.shapes.find((shape) => shape.name === 'warm-up');
          return [box.left + x._offset + x.d2p(line.x0), box.left + x._offset + x.d2p(2.5), box.top + y._offset + y._length / 2];
        }"""
    )
    page.mouse.move(start, height)
    page.mouse.down()
    page.mouse.move(end, height, steps=8)
    page.mouse.up()
    expect(page.locator("[id='parallel-probe--warmup'] input[type='number']")).to_have_value("1", timeout=SLOW_MS)
    wait_for_end(page)


def test_the_failing_preset_loses_a_right_minority(page: Page) -> None:
    page.goto("/m/parallel-probe?seed=43")
    bench(page).locator("[data-preset='minority']").click()  # a preset starts its run
    wait_for_end(page)
    expect(bench(page).locator(".pp-summary").first).to_contain_text("of which would have come out right", timeout=SLOW_MS)
