"""The page of kernelband in a real Chromium: a short search, a comparison, and Stop in the middle of a search."""

from __future__ import annotations

import re
import shutil

import pytest
from playwright.sync_api import Locator, Page, expect

from backends.kernelband.c.compiler import COMPILERS

SMALL = "/m/kernelband?kernel=row-sum&size=64"
SLOW_MS = 180_000  # a guard against hanging on a busy machine, not a bar

pytestmark = pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="no C compiler here")


def bench(page: Page) -> Locator:
    return page.locator("#m-kernelband")


def wait_for_end(page: Page) -> None:
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", re.compile("done|failed|cancelled"), timeout=SLOW_MS)
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", "done")


def titles(page: Page) -> Locator:
    return bench(page).locator(".pp-view-title")


def test_a_short_search_is_drawn_attempt_by_attempt(page: Page) -> None:
    page.goto(f"{SMALL}&rounds=4&seed=3")
    bench(page).locator(".pp-run").click()
    wait_for_end(page)
    expect(titles(page).first).to_have_text(re.compile("^In the end "))
    expect(bench(page).locator(".pp-metric[data-metric='rounds'] .pp-metric-value")).to_have_text(re.compile(r"^4\b"))
    plot = bench(page).locator(".js-plotly-plot").first
    expect(plot).to_be_visible(timeout=SLOW_MS)
    names = plot.evaluate("node => node.data.map((trace) => trace.name)")
    assert {"best so far", "roofline", "naive", "arms", "closed arms"} <= set(names)
    assert plot.evaluate("node => node.data.find((trace) => trace.name === 'arms').text.flat().reduce((sum, n) => sum + Number(n), 0)") == 18 + 4
    expect(bench(page).locator(".pp-diff")).to_contain_text("for (")


def test_a_comparison_names_its_seeds_and_draws_every_policy(page: Page) -> None:
    page.goto(f"{SMALL}&mode=compare&rounds=3&seeds=5")
    bench(page).locator(".pp-run").click()
    wait_for_end(page)
    expect(titles(page).first).to_have_text(re.compile("^Policies at the same budget, 5 seeds each"))
    plot = bench(page).locator(".js-plotly-plot").first
    expect(plot).to_be_visible(timeout=SLOW_MS)
    names = plot.evaluate("node => node.data.map((trace) => trace.name)")
    assert {"kernelband", "random", "best-of-n", "tpe", "kernelband, 95 %"} <= set(names)


def test_the_compare_preset_sets_its_mode_and_a_search_can_be_stopped(page: Page) -> None:
    page.goto(f"{SMALL}&rounds=60&seed=5")
    button = bench(page).locator(".pp-run")
    button.click()
    expect(titles(page).first).to_be_visible(timeout=SLOW_MS)  # the naive kernel is measured, the search is under way
    expect(button).to_have_text("Stop")
    button.click()
    expect(button).to_have_text("Run", timeout=SLOW_MS)
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", "cancelled")
    bench(page).locator("[data-preset='compare']").click()
    expect(page.locator("[id='kernelband--mode'] input[value='compare']")).to_be_checked()
