"""Run bar, ranges and drawer, as a person uses them: by mouse and by keyboard."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.parts.demonstration import barred, drawn, events, opened


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
