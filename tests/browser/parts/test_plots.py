"""Plots and metrics: frames stream in place, colours follow the scheme, drawing leaves the page free."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.parts.demonstration import barred, drawn, events, staged

EDGE = "#demo--view-gap .pp-plot"


def test_frames_stream_into_the_same_node_and_the_newest_is_shown(demo: Page) -> None:
    staged(demo, views="view.name === 'band'")
    drawn(demo)
    demo.evaluate("document.querySelector('.pp-plot').kept = true")
    box = demo.locator(".pp-plot .nsewdrag").bounding_box()
    assert box is not None
    demo.mouse.move(box["x"] + 200, box["y"] + 60)
    demo.mouse.down()
    demo.mouse.move(box["x"] + 500, box["y"] + 260, steps=6)
    demo.mouse.up()
    demo.wait_for_function("document.querySelector('.pp-plot').layout.xaxis.range[0] > 0.1")
    zoomed = demo.evaluate("document.querySelector('.pp-plot').layout.xaxis.range")
    for step in range(20):
        staged(demo, tie=step / 20, views="view.name === 'band'")
    demo.wait_for_function("Math.abs(document.querySelector('.pp-plot')._fullData[2].y[119] - stageValue('r1', 0.95).views[0].figure.data[2].y[119]) < 1e-9")
    node = demo.locator(".pp-plot")
    assert node.evaluate("node => node.kept")
    assert node.evaluate("node => node.layout.xaxis.range") == zoomed


def test_a_narrow_plot_takes_the_layout_that_is_meant_for_it_and_a_wide_one_does_not(demo: Page) -> None:
    def shown(width: int) -> tuple[float, str]:
        demo.set_viewport_size({"width": width, "height": 900})
        demo.evaluate(
            "(() => { const value = stageValue('r1'); value.views = value.views.filter(v => v.name === 'band');"
            "value.views[0].figure.layout.meta = {narrow: {xaxis: {title: {text: 'narrow'}}, meta: {height: 432}}}; components.stage.set(value); })()"
        )
        drawn(demo)
        demo.wait_for_function("(width) => (document.querySelector('.pp-plot').layout.xaxis.title.text === 'narrow') === (width < 560)", arg=width)
        node = demo.locator(".pp-plot")
        return node.evaluate("node => node.clientHeight"), node.evaluate("node => node.layout.yaxis.title.text")

    (wide_px, wide_title), (narrow_px, narrow_title) = shown(1440), shown(390)
    assert narrow_px == 432 != wide_px
    assert narrow_title == wide_title  # what is not named stays


def test_a_typed_array_of_the_same_length_is_drawn_anew(demo: Page) -> None:
    staged(demo, views="view.name === 'gap'")
    drawn(demo, "gap")
    path = demo.locator(f"{EDGE} .scatterlayer .trace").nth(1).locator("path.js-line")
    before = path.get_attribute("d")
    demo.evaluate(
        "(() => { const value = stageValue('r1'); value.views = value.views.filter(v => v.name === 'gap');"
        "const flat = Float64Array.from(grid, () => 0.9);"
        "value.views[0].figure.data[1].y.bdata = btoa(String.fromCharCode(...new Uint8Array(flat.buffer))); components.stage.set(value); })()"
    )
    expect(path).not_to_have_attribute("d", before or "")


def test_a_new_run_leaves_the_former_traces_behind_as_a_ghost(demo: Page) -> None:
    staged(demo, "r1", views="view.name === 'band'")
    drawn(demo)
    demo.wait_for_timeout(900)  # runs that follow faster belong to one drag
    staged(demo, "r2", 1, views="view.name === 'band'")
    demo.wait_for_function("document.querySelector('.pp-plot').data.length === 10")
    ghosts = demo.evaluate("document.querySelector('.pp-plot').data.slice(7).map(t => [t.name, t.opacity, t.showlegend])")
    assert ghosts == [["band", 0.25, False], ["this band", 0.25, False], ["lower edge", 0.25, False]]
    staged(demo, "r3", 0.5, views="view.name === 'band'")
    demo.wait_for_timeout(300)
    assert demo.evaluate("document.querySelector('.pp-plot').livePlot.ghosts[2].y[0]") == pytest.approx(-0.2), "the ghost stands before the drag"
    demo.locator("#demo--view-band .pp-menu summary").click()
    demo.get_by_text("Clear ghost").click()
    demo.wait_for_function("document.querySelector('.pp-plot').data.length === 7")


def test_colours_follow_the_switch_between_light_and_dark_at_once(demo: Page) -> None:
    staged(demo, views="view.name === 'band'")
    drawn(demo)
    colour = "getComputedStyle(document.querySelector('.pp-plot .js-line')).stroke"
    light = demo.evaluate(colour)
    demo.locator("[data-theme-toggle]").click()
    demo.wait_for_function(f"{colour} !== '{light}'")
    method = demo.evaluate("getComputedStyle(document.querySelector('.pp-stage')).getPropertyValue('--method').trim()")
    line = demo.evaluate("document.querySelector('.pp-plot').data[1].line.color")
    assert line == method
    assert demo.evaluate("document.querySelector('.pp-plot').data[0].fillcolor").startswith("rgba(")
    demo.reload()
    demo.wait_for_function("document.body.classList.contains('dark')")


def test_the_main_picture_is_large_and_whole_on_a_laptop(demo: Page) -> None:
    barred(demo, state="done", run="r1")
    staged(demo)
    drawn(demo)
    box = demo.locator("#demo--view-band .pp-plot").bounding_box()  # its summary follows below
    assert box is not None
    assert box["y"] + box["height"] <= 900
    assert box["height"] >= 450  # half of the screen
    assert box["width"] >= 1000
    assert demo.locator(".pp-run").is_visible()


def test_pictures_out_of_sight_are_drawn_when_they_come_into_view(demo: Page) -> None:
    staged(demo)
    drawn(demo)
    demo.wait_for_timeout(500)
    assert demo.locator("#demo--view-flow .main-svg").count() == 0
    demo.locator("#demo--view-flow").scroll_into_view_if_needed()
    drawn(demo, "flow")


def test_drawing_leaves_half_of_the_main_thread_free(demo: Page) -> None:
    staged(demo)
    for view in ("band", "gap", "kernel"):
        demo.locator(f"#demo--view-{view}").scroll_into_view_if_needed()
        drawn(demo, view)
    busy_ms = demo.evaluate(
        "new Promise(done => { let busy = 0; new PerformanceObserver(list => list.getEntries().forEach(e => busy += e.duration)).observe({type: 'longtask'});"
        "let step = 0; const timer = setInterval(() => components.stage.set(stageValue('r1', (step++ % 20) / 20)), 100);"
        "setTimeout(() => { clearInterval(timer); done(busy); }, 3000); })"
    )
    assert busy_ms < 0.65 * 3000


def test_a_click_on_a_point_and_a_dragged_shape_are_sent(demo: Page) -> None:
    staged(demo, views="view.name === 'gap'")
    drawn(demo, "gap")
    point = demo.locator(f"{EDGE} .point").nth(4)
    box = point.bounding_box()
    assert box is not None
    demo.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    demo.wait_for_selector(".hoverlayer .hovertext")
    demo.mouse.down()
    demo.mouse.up()
    demo.wait_for_function("components.stage.events.length === 1")
    sent = events(demo, "stage")[0]
    assert sent["view"] == "gap"
    assert [sent["event"][key] for key in ("type", "trace", "pointNumber")] == ["click", "this method", 4]
    line = demo.locator(f"{EDGE} .shapelayer path").first.bounding_box()
    assert line is not None
    x, y = line["x"] + line["width"] * 0.5, line["y"] + line["height"] / 2
    demo.mouse.move(x, y)
    demo.mouse.down()
    demo.mouse.move(x, y - 40, steps=6)
    demo.mouse.up()
    demo.wait_for_function("components.stage.events.some(e => e.event.type === 'drag')")
    drag = [e["event"] for e in events(demo, "stage") if e["event"]["type"] == "drag"][-1]
    assert drag["shape"] == "threshold"
    assert drag["y0"] == drag["y1"] > 0.5


def test_an_animated_figure_plays_and_can_be_stepped(demo: Page) -> None:
    staged(demo, views="view.name === 'flow'")
    drawn(demo, "flow")
    steps = demo.get_by_label("Step of the animation")
    steps.focus()
    demo.keyboard.press("Home")
    demo.wait_for_function("document.querySelector('.pp-plot')._fullData[0].y[0] === 0")
    demo.get_by_label("Play").click()
    demo.wait_for_function("document.querySelector('.pp-frame-name').textContent === 'step 7'")
    expect(demo.get_by_label("Play")).to_be_visible()


def test_a_picture_is_saved_as_svg(demo: Page) -> None:
    staged(demo, views="view.name === 'band'")
    drawn(demo)
    demo.locator("#demo--view-band .pp-menu summary").click()
    with demo.expect_download() as download:
        demo.get_by_text("Save as SVG").click()
    assert download.value.suggested_filename == "demo-band.svg"


def test_every_picture_says_in_words_what_it_shows(demo: Page) -> None:
    staged(demo)
    drawn(demo)
    for figure in demo.locator("figure.pp-view").all():
        summary = demo.locator(f"#{figure.get_attribute('aria-describedby')}")
        assert summary.count() == 1
    assert "The band: what the picture shows" in demo.locator("#demo--view-band-summary").inner_text()


def test_metrics_have_four_digits_a_direction_and_the_stated_figure(demo: Page) -> None:
    staged(demo)
    strip = demo.locator(".pp-metrics")
    texts = strip.inner_text()
    for part in ("0.9012", "1.325", "separate", "4.100e\u22127", "undefined", "stated 0.90", "measured here"):
        assert part in texts
    assert strip.get_by_text("lower is better").count() == 4
