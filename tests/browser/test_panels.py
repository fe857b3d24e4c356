"""The browser side alone: plots, run bar, ranges, drawer and panels on a plain page that stands in for Gradio."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plotly
import pytest
from playwright.sync_api import Browser, Page, expect

HERE = Path(__file__).parent
STATIC = HERE.parents[1] / "static"
PLOTLY_JS = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html; charset=utf-8"}
ABOUT = (
    "<p>The band comes from a dual problem.</p><math display='block'><mi>f</mi><mo>=</mo><mn>1</mn></math>"
    "<p><button data-claim='width'>measure now</button> <button data-preset='engel'>show</button></p><pre><code>playable run demo</code></pre>"
)
WAIT_MS = 20_000


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves static/, plotly's own script, the demonstration page, and texts for the drawer."""

    asked: list[str]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        file = {"/plotly.js": PLOTLY_JS, "/": HERE / "harness.html", "/harness.js": HERE / "harness.js"}.get(path, STATIC / path.removeprefix("/lab/"))
        if path.startswith("/m/"):
            self.asked.append(self.path)
            self.answer(200, ABOUT.encode(), TYPES[".html"]) if "/about/" in path else self.answer(204, b"", "text/plain")
        elif file.is_file():
            self.answer(200, file.read_bytes(), TYPES[file.suffix])
        else:
            self.answer(404, b"", "text/plain")

    def answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def asked() -> list[str]:
    """The addresses below /m/ that the page asked for."""
    return []


@pytest.fixture
def address(asked: list[str]) -> Iterator[str]:
    handler = type("Served", (Handler,), {"asked": asked})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=functools.partial(server.serve_forever, poll_interval=0.05), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def demo(browser: Browser, address: str) -> Iterator[Page]:
    """The demonstration page at a laptop's size; faults of the console and requests elsewhere fail the test."""
    context = browser.new_context(base_url=address, viewport={"width": 1440, "height": 900}, permissions=["clipboard-read", "clipboard-write"])
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: faults.append(request.url) if not request.url.startswith((address, "data:", "blob:")) else None)
    opened(page)
    yield page
    context.close()
    assert not faults, "\n".join(faults)


def opened(page: Page, query: str = "") -> None:
    page.goto(f"/{query}")
    page.wait_for_selector(".pp-run")
    page.wait_for_selector("#demo--rows-slider")


def events(page: Page, component: str) -> list[dict[str, Any]]:
    return page.evaluate(f"components.{component}.events")


def staged(page: Page, run: str = "r1", tie: float = 0, views: str = "true") -> None:
    """Shows the demonstration's pictures, of those views for which the expression in ``view`` holds."""
    page.evaluate(
        f"(() => {{ const value = stageValue('{run}', {tie}); value.views = value.views.filter((view) => {views}); components.stage.set(value); }})()"
    )


def drawn(page: Page, view: str = "band") -> None:
    page.locator(f"#demo--view-{view} .main-svg").first.wait_for()


def barred(page: Page, **value: Any) -> None:
    page.evaluate("(more) => components.bar.set(barValue(more))", value)


# ------------------------------------------------------------------------------------------------------ plots

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
    box = demo.locator("#demo--view-band").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 905
    assert box["height"] >= 450
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


def test_metrics_have_four_digits_a_direction_and_the_papers_figure(demo: Page) -> None:
    staged(demo)
    strip = demo.locator(".pp-metrics")
    texts = strip.inner_text()
    for part in ("0.9012", "1.325", "separate", "4.100e\u22127", "undefined", "paper 0.90", "measured here"):
        assert part in texts
    assert strip.get_by_text("lower is better").count() == 4


# ----------------------------------------------------------------------------------------------------- run bar


def test_run_and_stop_are_one_button_that_keeps_the_focus(demo: Page) -> None:
    button = demo.locator(".pp-run")
    expect(button).to_have_text("Run")
    button.focus()
    demo.keyboard.press("Enter")
    assert events(demo, "bar") == [{"sent": "run", "fresh": False}]
    barred(demo, state="running", progress=0.4, message="fold 3 of 5", run="r1")
    expect(button).to_have_text("Stop")
    assert button.evaluate("node => node === document.activeElement")
    expect(demo.locator(".pp-message")).to_have_text("fold 3 of 5")
    expect(demo.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "40")
    demo.keyboard.press("Escape")
    barred(demo, state="cancelled", run="r1")
    expect(button).to_have_text("Run")
    demo.keyboard.press("Control+Enter")
    assert [e["sent"] for e in events(demo, "bar")] == ["run", "stop", "run"]


def test_pause_place_in_line_stored_stamp_and_link(demo: Page) -> None:
    barred(demo, state="queued", place=3)
    expect(demo.locator(".pp-message")).to_have_text("3rd in line")
    barred(demo, state="paused", run="r1")
    demo.get_by_role("button", name="Continue").click()
    barred(demo, state="done", source="cache", run="r1", stamp="computed 14:02, 9.8 s, on cpu", query="alpha=0.2&_v=1", href="/m/demo?alpha=0.2")
    expect(demo.locator(".pp-stamp")).to_have_text("computed 14:02, 9.8 s, on cpu")
    demo.get_by_role("button", name="run again").click()
    assert events(demo, "bar") == [{"sent": "resume"}, {"sent": "run", "fresh": True}]
    assert "alpha=0.2" in demo.url
    assert "_m=demo" in demo.url
    demo.get_by_role("button", name="copy link").click()
    expect(demo.get_by_role("button", name="copied")).to_be_visible()
    assert demo.evaluate("navigator.clipboard.readText()").endswith("/m/demo?alpha=0.2")


def test_presets_and_the_guided_exercise_work_by_keyboard(demo: Page) -> None:
    demo.get_by_role("button", name="Skewed noise").focus()
    demo.keyboard.press("ArrowRight")
    demo.keyboard.press("Enter")
    assert events(demo, "bar")[-1] == {"sent": "preset", "name": "engel"}
    barred(demo, state="done", run="r1", query="_preset=engel&_v=1")
    expect(demo.get_by_role("button", name="Engel food data")).to_have_attribute("aria-pressed", "true")
    barred(demo, state="done", run="r2", query="_preset=engel&alpha=0.2&_v=1")
    expect(demo.get_by_role("button", name="Engel food data")).to_have_attribute("aria-pressed", "false")
    demo.get_by_role("button", name="Exercise, step 2").press("Enter")
    expect(demo.get_by_text("How many calibration points does 90 % need?")).to_be_visible()
    demo.get_by_role("button", name="Show me").press("Enter")
    assert events(demo, "bar")[-1] == {"sent": "preset", "name": "tiny"}


def test_bad_input_is_said_at_the_control_and_cleared_by_the_next_run(demo: Page) -> None:
    barred(demo, state="failed", error={"field": "alpha", "problem": "1.5 is above 0.3", "remedy": "choose a value from 0.01 to 0.3"})
    expect(demo.get_by_role("alert").filter(has_text="Alpha: 1.5 is above 0.3; choose a value from 0.01 to 0.3.")).to_be_visible()
    control = demo.locator("#demo--alpha-number")
    expect(control).to_have_attribute("aria-invalid", "true")
    described = control.get_attribute("aria-describedby")
    expect(demo.locator(f"#{described}")).to_have_text("1.5 is above 0.3; choose a value from 0.01 to 0.3.")
    demo.locator(".pp-run").click()
    assert control.get_attribute("aria-invalid") is None
    assert demo.locator(f"#{described}").count() == 0


def test_a_lost_stream_asks_for_the_same_run_again(demo: Page) -> None:
    demo.clock.install()
    opened(demo)
    barred(demo, state="running", progress=0.1, message="working", run="r1")
    demo.evaluate("dispatchEvent(new Event('offline'))")
    demo.clock.fast_forward(15_000)
    assert events(demo, "bar") == []
    demo.clock.fast_forward(15_000)
    assert events(demo, "bar") == [{"sent": "run", "fresh": False}]


def test_an_opened_page_shows_the_stored_run_and_says_so(demo: Page) -> None:
    expect(demo.get_by_text("Press Run to see the method work.")).to_be_visible()
    stored = demo.evaluate(
        "({ bar: barValue({ state: 'done', source: 'cache', run: 'r0', stamp: 'computed 09:00, 3.1 s, on cpu' }), stage: stageValue('r0') })"
    )
    demo.route("**/m/demo/stored**", lambda route: route.fulfill(json=stored))
    opened(demo, "?_m=demo&alpha=0.2")
    drawn(demo)
    expect(demo.locator(".pp-stamp")).to_have_text("computed 09:00, 3.1 s, on cpu")
    barred(demo, state="idle", note="The link names a file; choose it again.")
    expect(demo.locator(".pp-stamp")).to_be_visible()
    expect(demo.get_by_text("The link names a file; choose it again.")).to_be_visible()
    assert events(demo, "bar") == []


def test_mounting_twice_or_after_the_root_was_replaced_is_harmless(demo: Page) -> None:
    demo.evaluate("components.bar.mount()")
    demo.locator(".pp-run").click()
    assert len(events(demo, "bar")) == 1
    demo.evaluate("(() => { const { element } = components.bar; element.innerHTML = element.firstChild.cloneNode(false).outerHTML; })()")
    barred(demo, state="done", message="back again")
    expect(demo.locator(".pp-message")).to_have_text("back again")
    demo.evaluate("document.dispatchEvent(new CustomEvent('playable:preset', { detail: { slug: 'demo', wanted: { name: 'tiny' } } }))")
    assert [e["sent"] for e in events(demo, "bar")] == ["run", "preset"], "the replaced bar no longer listens"
    assert demo.locator(".pp-run").count() == 1


# ------------------------------------------------------------------------------------------------------- range


def test_a_log_range_takes_slider_number_and_words(demo: Page) -> None:
    slider, number = demo.locator("#demo--symmetry-slider"), demo.locator("#demo--symmetry-number")
    slider.focus()
    demo.keyboard.press("End")
    expect(number).to_have_value("1000")
    assert demo.evaluate("components.symmetry.props.value") == 1000
    number.fill("250000")  # beyond the slider, within the bounds
    number.press("Enter")
    assert demo.evaluate("components.symmetry.props.value") == 250000
    expect(slider).to_have_value("400")
    demo.get_by_role("button", name="separate").click()
    assert demo.evaluate("components.symmetry.props.value") == "separate"
    expect(slider).to_have_attribute("aria-valuetext", "separate")
    demo.wait_for_timeout(50)
    assert {e["sent"] for e in events(demo, "symmetry")} == {"input", "change"}


def test_a_range_refuses_what_is_out_of_bounds(demo: Page) -> None:
    number = demo.locator("#demo--rows-number")
    number.fill("20.5")
    number.press("Enter")
    expect(demo.locator("#demo--rows .pp-error")).to_have_text("choose a whole number from 20 to 2000")
    expect(number).to_have_attribute("aria-invalid", "true")
    assert events(demo, "rows") == []
    assert demo.evaluate("components.rows.props.value") == 300
    number.fill("400")
    number.press("Enter")
    expect(demo.locator("#demo--rows .pp-error")).to_be_hidden()
    assert number.get_attribute("aria-invalid") is None


def test_a_range_follows_an_outside_value_without_sending_it_back(demo: Page) -> None:
    demo.evaluate("components.alpha.set(0.25); components.symmetry.set('symmetric'); components.rows.set('20')")
    expect(demo.locator("#demo--alpha-number")).to_have_value("0.25")
    expect(demo.get_by_role("button", name="symmetric")).to_have_attribute("aria-pressed", "true")
    expect(demo.locator("#demo--rows-slider")).to_have_value("0")
    demo.wait_for_timeout(50)
    assert [events(demo, name) for name in ("alpha", "symmetry", "rows")] == [[], [], []]


def test_a_held_range_cannot_be_moved(demo: Page) -> None:
    demo.evaluate("components.alpha.element.classList.add('pp-pinned')")
    expect(demo.locator("#demo--alpha-slider")).to_be_disabled()
    expect(demo.locator("#demo--alpha-number")).to_be_disabled()


# ------------------------------------------------------------------------------------------------------ drawer


def test_the_drawer_fetches_a_text_once_and_follows_the_run(demo: Page, asked: list[str]) -> None:
    first = demo.get_by_role("tab", name="How it works")
    first.scroll_into_view_if_needed()
    expect(demo.get_by_text("The band comes from a dual problem.").first).to_be_visible()
    first.focus()
    for _ in range(3):
        demo.keyboard.press("ArrowRight")
    expect(demo.get_by_role("tab", name="Code")).to_have_attribute("aria-selected", "true")
    demo.keyboard.press("Home")
    demo.keyboard.press("End")
    demo.wait_for_load_state("networkidle")
    texts = sorted(path for path in asked if "/about/" in path)
    assert texts == sorted(f"/m/demo/about/{name}" for name in ("how", "exercise", "claims", "code", "data"))
    barred(demo, state="done", run="r7", query="alpha=0.2")
    demo.wait_for_timeout(700)
    assert asked[-1] == "/m/demo/about/data?alpha=0.2&_run=r7"
    panel = demo.get_by_role("tabpanel")
    panel.get_by_role("button", name="measure now").click()
    panel.get_by_role("button", name="show").click()
    assert events(demo, "bar") == [{"sent": "preset", "claim": "width"}, {"sent": "preset", "name": "engel"}]
    panel.get_by_role("button", name="copy").click()
    expect(panel.get_by_role("button", name="copied")).to_be_visible()
    assert demo.evaluate("navigator.clipboard.readText()") == "playable run demo"


# ------------------------------------------------------------------------------------------------------ panels


def test_tokens_are_chosen_and_shown_as_text(demo: Page) -> None:
    staged(demo, views="view.name === 'tokens'")
    panel = demo.locator("#demo--view-tokens")
    expect(panel.get_by_role("button", name="<b>.")).to_be_visible()
    assert panel.locator("b").count() == 0
    expect(panel.get_by_role("button", name="cat, 0.9000")).to_have_attribute("aria-pressed", "true")
    panel.get_by_role("button", name="sat").press("Enter")
    assert acted(demo) == [{"type": "click", "index": 2, "text": " sat"}]


def test_a_dialogue_is_answered_and_the_focus_goes_on(demo: Page) -> None:
    staged(demo, views="view.name === 'chat'")
    demo.get_by_role("button", name="Plan B").press("Enter")
    assert acted(demo) == [{"type": "answer", "id": "b"}]
    demo.evaluate(
        "(() => { const value = stageValue('r1'); value.views = value.views.filter(v => v.name === 'chat');"
        "const { data } = value.views[0]; data.turns.push({who: 'person', text: 'Plan B'}); data.options = [{id: 'c', text: 'Plan C'}];"
        "components.stage.set(value); })()"
    )
    expect(demo.get_by_role("button", name="Plan C")).to_be_focused()
    expect(demo.get_by_role("log")).to_contain_text("Plan B")


def test_chips_are_pressed_unless_disabled(demo: Page) -> None:
    staged(demo, views="view.name === 'chips'")
    demo.get_by_role("button", name="age").click()
    demo.get_by_role("button", name="body mass index").click()
    expect(demo.get_by_role("button", name="sex")).to_be_disabled()
    assert acted(demo) == [{"type": "click", "id": "age", "pressed": False}, {"type": "click", "id": "bmi", "pressed": True}]


def test_a_diff_shows_what_went_and_what_came(demo: Page) -> None:
    staged(demo, views="view.name === 'diff'")
    expect(demo.locator(".pp-line-gone")).to_have_count(2)
    expect(demo.locator(".pp-line-new")).to_have_text("+added:     return x + 1\n")
    steps = demo.evaluate("import('/lab/js/panels/diff.js').then(m => m.compareLines(['a', 'b', 'c', 'd'], ['b', 'x', 'c', 'd', 'e']).map(s => s.join('')))")
    assert steps == ["-a", " b", "+x", " c", " d", "+e"]


def test_a_table_cell_is_edited_and_nonsense_is_not_sent(demo: Page) -> None:
    staged(demo, views="view.name === 'table'")
    cell = demo.get_by_label("weight (kg), row 2")
    cell.fill("")
    cell.press("Tab")
    expect(cell).to_have_attribute("aria-invalid", "true")
    cell.fill("3.5")
    cell.press("Tab")
    demo.get_by_label("used, row 1").uncheck()
    assert acted(demo) == [{"type": "edit", "row": 1, "column": 1, "value": 3.5}, {"type": "edit", "row": 0, "column": 2, "value": False}]


def test_two_pictures_can_be_wiped_over_each_other(demo: Page) -> None:
    staged(demo, views="view.name === 'images'")
    demo.get_by_label("lay over each other").check()
    wipe = demo.get_by_label("Wipe between the two pictures")
    wipe.focus()
    demo.keyboard.press("Home")
    assert demo.locator(".pp-images").evaluate("node => node.style.getPropertyValue('--wipe')") == "0%"
    first, second = (cell.bounding_box() for cell in demo.locator(".pp-image-cell").all())
    assert first is not None
    assert second is not None
    assert first["x"] == second["x"]
    expect(demo.get_by_alt_text("before: as given")).to_have_count(1)
    demo.get_by_label("show overlay").uncheck()
    assert demo.locator(".pp-image-overlay").first.evaluate("node => getComputedStyle(node).visibility") == "hidden"


def acted(page: Page) -> list[dict[str, Any]]:
    return [event["event"] for event in events(page, "stage")]


# ------------------------------------------------------------------------------------------------- the whole page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_no_page_scrolls_sideways(demo: Page, width: int, scheme: str) -> None:
    demo.set_viewport_size({"width": width, "height": 844})
    demo.evaluate(f"document.body.classList.toggle('dark', {'true' if scheme == 'dark' else 'false'})")
    barred(demo, state="done", source="cache", run="r1", stamp="computed 14:02, 9.8 s, on cpu", message="coverage 0.940, mean width 2.099", href="/m/demo")
    staged(demo)
    drawn(demo)
    assert demo.evaluate("document.documentElement.scrollWidth") <= width


def test_on_a_phone_the_run_button_stays_in_sight(demo: Page) -> None:
    demo.set_viewport_size({"width": 390, "height": 844})
    staged(demo)
    drawn(demo)
    demo.evaluate("scrollTo(0, document.querySelector('#demo--view-kernel').offsetTop)")
    box = demo.locator(".pp-run").bounding_box()
    assert box is not None
    assert 0 <= box["y"] < 100


def test_the_gallery_is_searched(demo: Page) -> None:
    demo.get_by_label("Search methods").fill("probe answers")
    expect(demo.locator(".pp-card:visible")).to_have_count(1)
    expect(demo.locator(".pp-group:visible")).to_have_count(1)
    demo.get_by_label("Search methods").fill("nothing like it")
    expect(demo.get_by_text("No method has these words.")).to_be_visible()
