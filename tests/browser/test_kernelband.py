"""The page of kernelband in a real Chromium: a short search, a comparison, Stop and Pause in the middle of one, and two visitors at once."""

from __future__ import annotations

import re
import shutil

import pytest
from playwright.sync_api import Locator, Page, expect

from backends.kernelband.c.compiler import COMPILERS
from tests.browser.conftest import NewPage

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


def drawn(page: Page, name: str) -> Locator:
    """The main plot, once it holds this trace: the browser draws when it has time."""
    there = "name => document.querySelector('#m-kernelband .js-plotly-plot')?.data?.some((trace) => trace.name === name)"
    page.wait_for_function(there, arg=name, timeout=SLOW_MS)
    return bench(page).locator(".js-plotly-plot").first


def wait_for_pulls(page: Page, number: int) -> None:
    """Until the heat map's counts add up to this."""
    arms = "document.querySelector('#m-kernelband .js-plotly-plot').data.find((trace) => trace.name === 'arms')"
    page.wait_for_function(f"number => {arms}.text.flat().reduce((sum, n) => sum + Number(n), 0) === number", arg=number, timeout=SLOW_MS)


def test_a_short_search_is_drawn_attempt_by_attempt(page: Page) -> None:
    page.goto(f"{SMALL}&rounds=4&seed=3")
    bench(page).locator(".pp-run").click()
    wait_for_end(page)
    expect(titles(page).first).to_have_text(re.compile("^In the end "))
    expect(bench(page).locator(".pp-metric[data-metric='rounds'] .pp-metric-value")).to_have_text(re.compile(r"^4\b"))
    plot = drawn(page, "closed arms")
    names = plot.evaluate("node => node.data.map((trace) => trace.name)")
    assert {"best so far", "roofline", "naive", "arms", "closed arms"} <= set(names)
    wait_for_pulls(page, 18 + 4)
    for diff in bench(page).locator(".pp-diff").all():
        expect(diff).to_contain_text("for (")


def test_a_comparison_names_its_seeds_and_draws_every_policy(page: Page) -> None:
    page.goto(f"{SMALL}&mode=compare&rounds=3&seeds=5")
    bench(page).locator(".pp-run").click()
    wait_for_end(page)
    expect(titles(page).first).to_have_text(re.compile("^Policies at the same budget, 5 seeds each"))
    plot = drawn(page, "kernelband")
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


def test_two_visitors_search_one_after_the_other(new_page: NewPage) -> None:
    """One timing job at a time on the host; who pauses lets the other one in, and goes on from where he stood."""
    first, second = new_page(), new_page()
    first.goto(f"{SMALL}&rounds=60&seed=11")
    second.goto(f"{SMALL}&rounds=3&seed=12")
    bench(first).locator(".pp-run").click()
    expect(titles(first).first).to_be_visible(timeout=SLOW_MS)
    bench(second).locator(".pp-run").click()
    expect(bench(second).locator(".pp-bar")).to_have_attribute("data-state", "queued", timeout=SLOW_MS)
    expect(bench(second).locator(".pp-bar")).to_contain_text("1st in line")
    bench(first).locator(".pp-pause").click()
    expect(bench(first).locator(".pp-bar")).to_have_attribute("data-state", "paused", timeout=SLOW_MS)
    wait_for_end(second)
    done = bench(first).locator(".pp-metric[data-metric='rounds'] .pp-metric-value")
    stood = int(done.inner_text())
    assert 0 <= stood < 60
    bench(first).get_by_text("Continue", exact=True).click()
    wait_for_end(first)
    assert int(done.inner_text()) == 60
    drawn(first, "arms")
    wait_for_pulls(first, 18 + 60)  # no attempt was made twice or lost
