"""The page of lcs in a real Chromium: the default run, another colour, a step chosen in the film, a person's picture."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import FilePayload, Locator, Page, expect

from backends.runtime import folders

SLOW_MS = 240_000  # a guard against hanging on a busy machine, not a bar
OTHER = "#d0368f"
CHEAP = "steps=8&guidance=1"
WEIGHTS = folders.ROOT / "static" / "weights" / "little-flux" / "model_index.json"


pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def _weights() -> None:
    if not WEIGHTS.is_file():
        pytest.skip("the little FLUX's weights are not here")


def view(page: Page, name: str) -> Locator:
    return page.locator(f"#lcs--view-{name}")


def picture(page: Page, title: str) -> str:
    """The address of the picture with this title in the main view."""
    cell = view(page, "pair").locator(".pp-image-cell").filter(has=page.get_by_text(title, exact=True))
    return cell.locator("img.pp-image").get_attribute("src") or ""


def wait_for_end(page: Page) -> None:
    expect(page.locator("#m-lcs .pp-bar")).to_have_attribute("data-state", re.compile("done|failed|cancelled"), timeout=SLOW_MS)
    expect(page.locator("#m-lcs .pp-bar")).to_have_attribute("data-state", "done")


def run(page: Page) -> None:
    page.locator("#m-lcs .pp-run").click()
    expect(view(page, "pair").get_by_text("Steered", exact=True)).to_be_visible(timeout=SLOW_MS)
    wait_for_end(page)


def test_another_colour_changes_the_pair_and_not_what_was_there_before(page: Page) -> None:
    page.goto("/m/lcs")
    run(page)
    before, after, wanted = (picture(page, title) for title in ("Without steering", "Steered", "Wanted"))
    assert len({before, after, wanted}) == 3
    page.locator("[id='lcs--color'] .dialog-button").click()
    field = page.locator("[id='lcs--color'] .input-wrap input[type=text]")
    field.fill(OTHER)
    field.press("Enter")
    page.locator("#m-lcs .pp-run").click()  # a typed colour is no drag: Gradio's picker tells of it only when the form is sent
    expect(view(page, "pair").get_by_text(OTHER, exact=True)).to_be_visible(timeout=SLOW_MS)
    wait_for_end(page)
    assert picture(page, "Without steering") == before, "the colour changes nothing before the steer step"
    assert picture(page, "Wanted") != wanted
    assert picture(page, "Steered") != after


def test_a_click_in_the_film_sets_the_steer_step(page: Page) -> None:
    page.goto(f"/m/lcs?{CHEAP}&seed=61")  # a seed of its own: a stored run would be taken for the end of this one
    run(page)
    view(page, "film").scroll_into_view_if_needed()
    plot = view(page, "film").locator(".js-plotly-plot")
    expect(plot.locator(".layer-above image, .imagelayer image").first).to_be_visible(timeout=SLOW_MS)
    # The tick "4" stands below its column of pictures.
    tick = plot.locator(".xtick text", has_text=re.compile("^4$")).bounding_box()
    box = plot.bounding_box()
    assert tick is not None
    assert box is not None
    page.mouse.click(tick["x"] + tick["width"] / 2, box["y"] + 50)
    expect(view(page, "pair").locator(".pp-view-title")).to_contain_text("after step 4 of 8", timeout=SLOW_MS)
    wait_for_end(page)
    expect(page.locator("#lcs--steer_step-number")).to_have_value("4")


def test_a_persons_picture_is_read_and_moved(page: Page) -> None:
    file = io.BytesIO()
    across = np.linspace(0, 255, 48).astype(np.uint8)
    Image.fromarray(np.dstack([np.tile(across, (48, 1)), np.full((48, 48), 90, np.uint8), np.tile(across[:, None], (1, 48))])).save(file, "PNG")
    page.goto("/m/lcs?color=%231f6fd0")
    page.locator("#m-lcs").get_by_text("More", exact=True).click()
    given: FilePayload = {"name": "mine.png", "mimeType": "image/png", "buffer": file.getvalue()}
    page.locator("[id='lcs--picture'] input[type=file]").set_input_files(given)
    expect(view(page, "pair").get_by_text("Moved in the latent", exact=True)).to_be_visible(timeout=SLOW_MS)
    wait_for_end(page)
    assert picture(page, "Your picture") != picture(page, "Moved in the latent")
    expect(page.locator("#m-lcs .pp-notes")).to_contain_text("the little autoencoder")
    expect(view(page, "words")).to_have_count(0)
