"""The page of auxiliary-mcmc in a real Chromium: a run with its pictures, a value set by a click, the preset that fails."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

SLOW_MS = 120_000  # a guard against hanging on a busy machine, not a bar


def done(page: Page) -> None:
    expect(page.locator("#m-auxiliary-mcmc .pp-bar")).to_have_attribute("data-state", "done", timeout=SLOW_MS)


def opened(page: Page, query: str) -> Locator:
    page.goto(f"/m/auxiliary-mcmc?{query}")
    page.locator("#m-auxiliary-mcmc .pp-run").click(timeout=SLOW_MS)
    done(page)
    return page.locator("#auxiliary-mcmc--view-main .pp-plot")


def test_a_run_draws_rows_and_chains_and_a_click_sets_kappa(page: Page) -> None:
    plot = opened(page, "scene=gaussian-2d&n=2000&budget=400")
    expect(plot.locator(".main-svg").first).to_be_visible(timeout=SLOW_MS)
    expect(plot).to_contain_text("read now")
    gap = page.locator("#auxiliary-mcmc--view-gap .pp-plot")
    gap.scroll_into_view_if_needed()
    area = gap.locator(".nsewdrag").last
    area.wait_for(state="attached", timeout=SLOW_MS)
    box = area.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 0.25 * box["width"], box["y"] + 0.85 * box["height"])
    page.wait_for_function("location.search.includes('kappa=')", timeout=SLOW_MS)
    done(page)


def test_the_failing_preset_says_that_all_rows_are_cheaper(page: Page) -> None:
    page.goto("/m/auxiliary-mcmc")
    page.locator("#m-auxiliary-mcmc").get_by_role("button", name="Where it fails: no tempering").click(timeout=SLOW_MS)
    expect(page.locator("#m-auxiliary-mcmc")).to_contain_text("reading all of them is cheaper", timeout=SLOW_MS)
