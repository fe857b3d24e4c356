"""The panels, and what holds for the whole page: no sideways scroll, a run button in sight, the gallery's search."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.parts.demonstration import acted, barred, drawn, staged


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


def chatting(demo: Page, more: str) -> None:
    """Shows the demonstration's chat with ``data`` changed by a piece of JavaScript."""
    demo.evaluate(
        "(() => { const value = stageValue('r1'); value.views = value.views.filter(v => v.span === 'main' || v.name === 'chat');"
        f"const {{ data }} = value.views.find(v => v.name === 'chat'); {more}; components.stage.set(value); }})()"
    )


def test_what_is_no_answer_is_quiet_and_texts_unfold_on_demand(demo: Page) -> None:
    chatting(demo, "data.options.push({id: 'back', text: 'Back', quiet: true}); data.folds = [{title: 'Meanings', lines: ['<b>one', 'two'], code: 'def f'}]")
    expect(demo.get_by_role("button", name="Back")).to_have_class("pp-quiet")
    expect(demo.get_by_role("button", name="Plan B")).to_have_class("pp-button")
    expect(demo.get_by_text("<b>one")).to_be_hidden()
    demo.get_by_text("Meanings").click()
    expect(demo.get_by_text("<b>one")).to_be_visible()
    further = "data.turns.push({who: 'person', text: 'Plan B'}); data.person = 'Simulated person';"
    chatting(demo, further + " data.folds = [{title: 'Meanings', lines: ['<b>one', 'two'], code: 'def f'}]")
    expect(demo.get_by_role("log")).to_contain_text("Simulated person")
    expect(demo.get_by_text("def f")).to_be_visible()  # an answer does not fold it up


def test_a_dialogue_that_leads_stands_beside_the_main_picture_and_above_it_on_a_phone(demo: Page) -> None:
    boxes = []
    for width in (1440, 390):
        demo.set_viewport_size({"width": width, "height": 900})
        chatting(demo, "data.lead = true")
        demo.locator(".pp-dialogue-lead").wait_for()
        drawn(demo)
        boxes.append([demo.locator(f"#demo--view-{name}").bounding_box() for name in ("chat", "band")])
    (chat, band), (chat_on_phone, band_on_phone) = boxes
    assert chat is not None and band is not None and chat_on_phone is not None and band_on_phone is not None  # noqa: PT018 - for the type checker
    assert chat["y"] == band["y"]
    assert chat["x"] + chat["width"] <= band["x"]
    assert chat_on_phone["y"] + chat_on_phone["height"] <= band_on_phone["y"]


def test_pictures_stay_until_there_are_new_ones(demo: Page) -> None:
    chatting(demo, "data.prompt = 'Still here?'")
    expect(demo.get_by_text("Still here?")).to_be_visible()  # of two values in one frame the stage draws the last only
    demo.evaluate("components.stage.set({...stageValue('r2'), progress: 0.1, views: []})")
    demo.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    expect(demo.get_by_text("Still here?")).to_be_visible()
    demo.evaluate("components.stage.set({...stageValue('r2'), progress: 1, views: []})")
    expect(demo.get_by_text("Still here?")).to_be_hidden()


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


def test_a_marked_row_of_a_table_stands_out(demo: Page) -> None:
    demo.evaluate(
        "(() => { const value = stageValue('r1'); value.views = value.views.filter(v => v.name === 'table');"
        "value.views[0].data.marked = 1; components.stage.set(value); })()"
    )
    rows = demo.locator("#demo--view-table tbody tr")
    expect(rows.nth(1)).to_have_attribute("aria-current", "true")
    expect(demo.locator("#demo--view-table [aria-current]")).to_have_count(1)


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
