"""The words of lcs's page: prompts that are made of chips."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.pages import lcs as page
from app.pages._lcs_words import Words, read, write
from app.plotting import Changes
from backends.runtime.scenes import SHAPES, WORDS


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("wall", [None, "brick"])
def test_a_prompt_of_chips_reads_back_and_is_known_to_the_model(shape: str, wall: str | None) -> None:
    for words in (Words((shape,), "orange", wall), Words((shape,), None, wall), Words((), "red", wall), Words(("ring", "star"), None, wall)):
        assert read(write(words)) == words
        assert set(re.findall(r"\w+", write(words))) <= set(WORDS)


PRESSES = [
    ({"id": "shape star", "pressed": True}, {"prompt": "a circle and a star on a wall"}),
    ({"id": "shape circle", "pressed": False}, {"prompt": "a wall", "objects": ""}),
    ({"id": "color red", "pressed": True}, {"prompt": "a red circle on a wall"}),
    ({"id": "texture brick", "pressed": True}, {"prompt": "a circle on a brick wall"}),
]


@pytest.mark.parametrize(("press", "expected"), PRESSES, ids=lambda v: str(v)[:30])
def test_a_chip_changes_one_word(press: dict[str, Any], expected: dict[str, Any]) -> None:
    given = {"prompt": "a circle on a wall", "objects": "circle"}
    assert page.on_event("words", {"type": "click", **press}, given) == Changes(expected, True)


def test_object_words_follow_the_shapes() -> None:
    given = {"prompt": "a circle and a star on a wall", "objects": "circle"}
    changes = page.on_event("words", {"type": "click", "id": "shape heart", "pressed": True}, given)
    assert changes == Changes({"prompt": "a star and a heart on a wall", "objects": "heart"}, True)
