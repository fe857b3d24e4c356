"""The page of voronoi-pc in a real Chromium: a run with its frames, a centroid moved by hand, the preset that fails."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

SLOW_MS = 240_000  # a guard against hanging on a busy machine, not a bar
SCENE = "data=two-centroids&n=300&splits=200"

pytestmark = pytest.mark.timeout(600)


def view(page: Page, name: str) -> Locator:
    return page.locator(f"#voronoi-pc--view-{name}")


def wait_for_end(page: Page) -> None:
    expect(page.locator("#m-voronoi-pc .pp-bar")).to_have_attribute("data-state", re.compile("done|failed|cancelled"), timeout=SLOW_MS)
    expect(page.locator("#m-voronoi-pc .pp-bar")).to_have_attribute("data-state", "done")


def run(page: Page) -> None:
    page.locator("#m-voronoi-pc .pp-run").click()
    expect(view(page, "plane").locator(".js-plotly-plot .main-svg").first).to_be_visible(timeout=SLOW_MS)
    wait_for_end(page)


def test_a_run_trains_refines_and_answers(page: Page) -> None:
    page.goto("/m/voronoi-pc?n=600&epochs=6&splits=300")
    run(page)
    expect(view(page, "plane").locator(".pp-view-title")).to_contain_text("squeeze Z")
    expect(view(page, "conditional")).to_contain_text("P(x2 > 0 | x1 = 0.5) is between")
    expect(view(page, "plane")).to_contain_text("lies between")


def test_a_centroid_is_moved_by_hand(page: Page) -> None:
    page.goto(f"/m/voronoi-pc?{SCENE}")
    run(page)
    plot = view(page, "plane").locator(".js-plotly-plot")
    before = view(page, "plane").inner_text()
    place = plot.evaluate(
        """node => {
            const {xaxis, yaxis} = node._fullLayout, box = node.getBoundingClientRect(), {x0, y0} = node._fullLayout.shapes[1];
            return [box.x + xaxis._offset + xaxis.d2p(x0), box.y + yaxis._offset + yaxis.d2p(y0)];
        }"""
    )
    page.mouse.move(*place)
    page.mouse.down()
    page.mouse.move(place[0] + 60, place[1] + 30, steps=6)
    page.mouse.up()
    expect(view(page, "centroids").locator("table")).to_be_visible(timeout=SLOW_MS)
    wait_for_end(page)
    assert view(page, "plane").inner_text() != before
    expect(view(page, "hold")).to_contain_text("Held by hand")


def test_the_preset_that_fails_shows_useless_bounds(page: Page) -> None:
    page.goto("/m/voronoi-pc?_preset=six-dimensions&splits=300&n=300")
    run(page)
    expect(view(page, "plane")).to_contain_text("first two of 6 variables")
    expect(view(page, "curse")).to_be_visible()
