"""The served lab in a real Chromium: every page in light, dark and at phone width; running, stopping, links, visitors."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import FilePayload, Locator, Page, expect

from backends import registry
from tests.browser.conftest import DESKTOP, NewPage
from tests.conftest import Lab

PHONE = {"width": 390, "height": 844}
METHODS = list(registry.methods())
PAGES = ["/", "/about", *(f"/m/{slug}" for slug in METHODS)]
SLOW_MS = 90_000  # a guard against hanging on a busy machine, not a bar
KSOS = "/m/conformal-ksos"
LONG = "n=5000&train_fraction=0.6&solver=fista&tolerance=1e-6&penalty=operator"  # several seconds, so that there is time to stop it


def bench(page: Page, slug: str = "conformal-ksos") -> Locator:
    return page.locator(f"#m-{slug}")


def run_button(page: Page) -> Locator:
    return bench(page).locator(".pp-run")


def wait_for_end(page: Page) -> None:
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", re.compile("done|failed|cancelled"), timeout=SLOW_MS)


def test_one_page_a_theme_and_the_gallery_names_every_method(page: Page) -> None:
    page.goto("/")
    for slug in METHODS:
        expect(page.locator(f"a.pp-card[href='/m/{slug}']")).to_be_visible()
    page.get_by_role("searchbox").fill("no such words")
    expect(page.get_by_text("No method has these words.")).to_be_visible()


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_every_page_fits_and_is_silent(new_page: NewPage, path: str, scheme: str, viewport: dict[str, int]) -> None:
    page = new_page(viewport=viewport, color_scheme=scheme)
    page.goto(f"{path}?__theme={scheme}")
    expect(page.locator("h1, h2").first).to_be_visible()
    if path.startswith("/m/"):
        expect(run_button(page) if path == KSOS else page.locator(".pp-run:visible").first).to_be_visible()
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{path} scrolls sideways by {wide} px"
    ground, ink = page.evaluate("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('h1, h2')).color]")
    assert (brightness(ground) > brightness(ink)) == (scheme == "light")


def brightness(colour: str) -> float:
    return sum(float(x) for x in re.findall(r"[\d.]+", colour)[:3])


def test_run_and_the_main_controls_are_seen_without_scrolling(page: Page) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(KSOS)
    expect(run_button(page)).to_be_in_viewport()
    for field in ("data", "symmetry", "alpha"):
        expect(page.locator(f"[id='conformal-ksos--{field}']")).to_be_in_viewport()
    run_button(page).click()
    plot = bench(page).locator(".js-plotly-plot").first
    expect(plot).to_be_in_viewport(ratio=0.8, timeout=SLOW_MS)
    box = plot.bounding_box()
    assert box is not None
    assert box["width"] * box["height"] >= 0.3 * 1440 * 900


def test_run_and_stop_by_keyboard_keep_the_focus(page: Page) -> None:
    page.goto(f"{KSOS}?seed=41&{LONG}")
    button = run_button(page)
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_text("Stop", timeout=SLOW_MS)
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    expect(button).to_have_text("Run", timeout=SLOW_MS)
    expect(button).to_be_focused()
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", "cancelled")


def test_streaming_keeps_the_plot_node_and_zoom(page: Page) -> None:
    page.goto(f"{KSOS}?seed=42")
    run_button(page).click()
    plot = bench(page).locator(".js-plotly-plot").first
    expect(plot).to_be_visible(timeout=SLOW_MS)
    plot.evaluate("node => { node.dataset.mine = 'yes'; }")
    wait_for_end(page)
    assert plot.evaluate("node => node.dataset.mine") == "yes"
    assert plot.evaluate("node => node.data.length") > 3


def test_a_slider_moves_the_band_live(page: Page) -> None:
    page.goto(f"{KSOS}?seed=43&symmetry=separate")
    run_button(page).click()
    wait_for_end(page)
    width = bench(page).locator(".pp-metric[data-metric='mean_width'] .pp-metric-value")
    before = width.inner_text()
    slider = page.locator("[id='conformal-ksos--symmetry'] input[type=range]")
    slider.focus()
    page.keyboard.press("End")
    expect(width).not_to_have_text(before, timeout=SLOW_MS)
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", "done")


def test_a_link_restores_all_controls(new_page: NewPage) -> None:
    first = new_page()
    query = "alpha=0.2&symmetry=2.5&predictor=linear&bias=0.5&outliers=2&penalty=operator&seed=44"
    first.goto(f"{KSOS}?{query}")
    expect(first.locator("#conformal-ksos--symmetry-number")).to_have_value("2.5")
    run_button(first).click()
    wait_for_end(first)
    address = first.evaluate("location.search")
    for part in query.split("&"):
        assert part in address
    second = new_page()
    second.goto(first.url)
    expect(second.locator("#conformal-ksos--symmetry-number")).to_have_value("2.5")
    expect(second.locator("#conformal-ksos--alpha-number")).to_have_value("0.2")
    # what the first visitor computed is there at once, and marked as stored
    expect(bench(second).locator(".pp-stamp")).to_contain_text("computed", timeout=SLOW_MS)
    bench(second).get_by_text("More", exact=True).click()
    expect(second.locator("#conformal-ksos--outliers-number")).to_have_value("2")
    expect(second.locator("[id='conformal-ksos--penalty'] input[value='operator']")).to_be_checked()


def test_a_hand_out_hides_and_holds_controls(page: Page) -> None:
    page.goto(f"{KSOS}?_hide=predictor&_pin=alpha&alpha=0.2")
    expect(page.locator("#conformal-ksos--alpha-number")).to_have_value("0.2")
    expect(page.locator("[id='conformal-ksos--predictor']")).to_be_hidden()
    expect(page.locator("[id='conformal-ksos--alpha'].pp-pinned")).to_be_visible()


def test_run_pressed_at_once_goes_by_the_link_and_not_by_the_defaults(page: Page) -> None:
    page.goto(f"{KSOS}?seed=51&alpha=0.2")
    run_button(page).click()  # as early as anybody can, before the controls show what the link says
    wait_for_end(page)
    expect(bench(page).locator(".pp-ran")).to_contain_text("seed 51")
    expect(page.locator("#conformal-ksos--alpha-number")).to_have_value("0.2")


def test_run_pressed_at_once_is_that_of_the_method_in_the_address(page: Page) -> None:
    page.goto("/m/voronoi-pc?data=two-centroids&splits=10&n=100&seed=52")  # not the first tab of its theme
    page.locator(".pp-run:visible").first.click()
    expect(page.locator("#m-voronoi-pc .pp-ran")).to_contain_text("seed 52", timeout=SLOW_MS)


def test_two_visitors_do_not_cross(new_page: NewPage) -> None:
    pages = [new_page(), new_page()]
    for page, seed in zip(pages, (45, 46), strict=True):
        page.goto(f"{KSOS}?seed={seed}")
        run_button(page).click()
    for page, seed in zip(pages, (45, 46), strict=True):
        wait_for_end(page)
        expect(bench(page).locator(".pp-ran")).to_contain_text(f"seed {seed}")
        assert f"seed={seed}" in page.evaluate("location.search")


def test_stop_of_one_visitor_leaves_the_other(new_page: NewPage) -> None:
    stays, goes = new_page(), new_page()
    for page in (stays, goes):
        page.goto(f"{KSOS}?seed=47&{LONG}")
        expect(run_button(page)).to_be_visible()
    for page in (stays, goes):
        run_button(page).click()
    expect(run_button(goes)).to_have_text("Stop", timeout=SLOW_MS)
    run_button(goes).click()
    expect(bench(goes).locator(".pp-bar")).to_have_attribute("data-state", "cancelled", timeout=SLOW_MS)
    wait_for_end(stays)
    expect(bench(stays).locator(".pp-bar")).to_have_attribute("data-state", "done")


def test_a_stream_cut_in_the_middle_is_resumed(new_page: NewPage) -> None:
    page = new_page(expected=["AbortError", "Connection errored out"])
    page.goto(f"{KSOS}?seed=48&{LONG}")
    run_button(page).click()
    expect(run_button(page)).to_have_text("Stop", timeout=SLOW_MS)
    before = page.request.get("/healthz").json()["computations"]
    page.reload()  # the stream is gone without a Stop, as on a lost connection: the page comes back to its run by itself
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", "done", timeout=SLOW_MS)
    expect(bench(page).locator(".pp-ran")).to_contain_text("seed 48")
    assert page.request.get("/healthz").json()["computations"] == before


def test_bad_input_is_told_at_its_control(page: Page) -> None:
    page.goto(f"{KSOS}?data=csv")
    run_button(page).click()
    expect(bench(page).locator(".pp-alert")).to_be_visible(timeout=SLOW_MS)
    control = page.locator("[id='conformal-ksos--csv']")
    expect(control.locator("[aria-invalid=true]").or_(page.locator("[id='conformal-ksos--csv'][aria-invalid=true]")).first).to_be_attached()


def test_a_persons_csv_runs_and_chooses_its_columns(page: Page) -> None:
    rows = "\n".join(f"{i / 40:.3f};{(i / 40) ** 2 + (i * 7919 % 13) / 20:.3f};{i % 5}" for i in range(200))
    page.goto(KSOS)
    file: FilePayload = {"name": "mine.csv", "mimeType": "text/csv", "buffer": f"t;y;k\n{rows}\n".encode()}
    page.locator("[id='conformal-ksos--csv'] input[type=file]").set_input_files(file)
    wait_for_end(page)
    expect(bench(page).locator(".pp-bar")).to_have_attribute("data-state", "done")
    expect(bench(page).locator(".pp-stage")).to_contain_text("semicolon")


def test_the_drawer_is_reached_by_keyboard_and_shows_code(page: Page) -> None:
    page.goto(KSOS)
    tab = bench(page).get_by_role("tab", name="How it works")
    tab.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(bench(page).get_by_role("tab", name="Code")).to_be_focused()
    expect(bench(page).get_by_role("tabpanel")).to_contain_text("playable run conformal-ksos")


def test_dark_and_light_switch_at_once(page: Page) -> None:
    page.goto(f"{KSOS}?__theme=light")
    switch = page.get_by_role("button", name="Switch between light and dark")
    expect(switch).to_be_visible()
    before = brightness(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    switch.click()
    after = brightness(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert abs(before - after) > 200
    page.wait_for_function("localStorage.getItem('playable-theme')")  # a press before the script was there is kept by it
    page.goto(KSOS)
    page.wait_for_function("document.documentElement.style.colorScheme")
    assert brightness(page.evaluate("getComputedStyle(document.body).backgroundColor")) == after


def test_nobodys_page_load_starts_a_computation(new_page: NewPage, lab: Lab) -> None:
    before = new_page().request.get("/healthz").json()["computations"]
    page = new_page()
    page.goto(f"{KSOS}?seed=999")
    expect(run_button(page)).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert page.request.get("/healthz").json()["computations"] == before
