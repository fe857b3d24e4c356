"""The page of sp-ucb-olp in a real Chromium: a run, a budget that is dragged, the preset that fails."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

SHORT = "/m/sp-ucb-olp?horizon=400"
SLOW_MS = 120_000  # a guard against hanging on a busy machine, not a bar


def bench(page: Page) -> Locator:
    return page.locator("#m-sp-ucb-olp")


def run_to_end(page: Page) -> None:
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", re.compile("done|failed|cancelled"), timeout=SLOW_MS)
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", "done")


def view(page: Page, title: str) -> Locator:
    return bench(page).locator(".pp-view", has=page.get_by_role("heading", name=title))


def test_a_run_draws_the_learner_between_the_rays(page: Page) -> None:
    page.goto(SHORT)
    bench(page).locator(".pp-run").click()
    run_to_end(page)
    expect(bench(page).locator(".pp-view-title").first).to_have_text(re.compile(r"^\d+% of the best mixture's reward"))
    plot = bench(page).locator(".js-plotly-plot").first
    expect(plot).to_be_visible(timeout=SLOW_MS)
    assert {"best mixture", "best fixed", "this method", "learned fixed"} <= set(plot.evaluate("node => node.data.map((trace) => trace.name)"))
    expect(bench(page).locator(".pp-metric[data-metric='v_mix'] .pp-metric-value")).to_have_text(re.compile(r"^0\.375"))


def test_a_dragged_budget_runs_again(page: Page) -> None:
    page.goto(f"{SHORT}&seed=62")  # a seed of its own: a stored run would be taken for the end of this one
    bench(page).locator(".pp-run").click()
    run_to_end(page)
    spending = view(page, "Where the budget goes")
    spending.scroll_into_view_if_needed()  # a picture is drawn when it comes into sight
    handle = spending.locator(".shapelayer path").first
    expect(handle).to_be_attached(timeout=SLOW_MS)  # a level line has no height, and counts as hidden
    box = handle.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y + 40, steps=8)
    page.mouse.up()
    first = bench(page).get_by_label("Budget 1 (units a round)")
    expect(first).not_to_have_value("0.25", timeout=SLOW_MS)
    assert 0.02 <= float(first.input_value()) < 0.25
    expect(bench(page).locator(".pp-metric[data-metric='v_mix'] .pp-metric-value")).not_to_have_text(re.compile(r"^0\.375"), timeout=SLOW_MS)


def test_the_failing_preset_falls_below_the_best_fixed_configuration(page: Page) -> None:
    page.goto("/m/sp-ucb-olp")
    bench(page).locator("[data-preset='exploration-off']").click()  # which starts the run
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", re.compile("running|done"), timeout=SLOW_MS)
    run_to_end(page)
    expect(bench(page).locator(".pp-metric[data-metric='competitive_ratio'] .pp-metric-value")).to_have_text(re.compile(r"^0\.75"))
    expect(bench(page).locator(".pp-view-title").first).to_have_text("75% of the best mixture's reward; the best fixed configuration could earn 87%")
