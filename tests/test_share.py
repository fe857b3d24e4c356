"""Params as a link and back, also of links that people cut, edit or forge."""

from __future__ import annotations

import base64
import json
import random
import string
import zlib
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs, urlencode

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import Field, model_validator

from app import share
from backends import contract
from backends.contract import Color, Upload
from tests.fakes import fake

JSON_WORDS = ["", " ", "1", "-0.5", "true", "false", "null", '"', '""', '"x"', "[]", "[1]", "{}", "NaN", "Infinity", "_preset", "a=b&c", "ä €", "\u202e", "\n"]


class Everything(contract.Params):
    """A field of every kind that the design's table names."""

    word: str = Field("hello", max_length=20_000, description="Text")
    maybe_word: str | None = Field(None, max_length=100, description="Text or nothing")
    choice: Literal["auto", "1", "true", "null"] = Field("auto", description="Words that look like JSON")
    maybe_choice: Literal["one", "null"] | None = Field("one", description="A word or nothing")
    mixed: Literal["1", 1, 2] = Field("1", description="Words and numbers")
    flag: bool = Field(True, description="A flag")
    count: int = Field(20, ge=1, le=200, description="Bounded")
    level: float = Field(0.1, ge=0.01, le=0.3, description="Bounded")
    maybe_level: float | None = Field(0.5, ge=0, le=1, description="Bounded or nothing")
    free: float = Field(1.0, description="Unbounded")
    symmetry: Annotated[float, Field(ge=0, le=1e6)] | Literal["auto", "separate"] = Field("auto", description="A number or a word")
    colour: Color = Field("#336699", description="A colour")
    point: list[float] = Field([0.0, 1.0], min_length=2, max_length=2, description="Two numbers", json_schema_extra={"labels": ["x", "y"]})
    table: list[dict[str, int | bool | str | None]] = Field([{"a": 1}], description="Hidden")
    csv: Upload | None = Field(None, description="A file")


METHOD = fake(lambda p, c: iter(()), params=Everything, presets={"default": {}, "other": {"level": 0.2, "maybe_level": None, "word": "set"}})
text = st.sampled_from(JSON_WORDS) | st.text(st.characters(codec="utf-8"), max_size=40)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "word": text,
    "maybe_word": text | st.none(),
    "choice": st.sampled_from(["auto", "1", "true", "null"]),
    "maybe_choice": st.sampled_from(["one", "null", None]),
    "mixed": st.sampled_from(["1", 1, 2]),
    "flag": st.booleans(),
    "count": st.integers(1, 200),
    "level": st.floats(0.01, 0.3),
    "maybe_level": st.floats(0, 1) | st.none(),
    "free": st.floats(allow_nan=False, allow_infinity=False),
    "symmetry": st.sampled_from(["auto", "separate"]) | st.floats(0, 1e6),
    "colour": st.text("0123456789abcdef", min_size=6, max_size=6).map(lambda t: f"#{t}"),
    "point": st.lists(st.floats(-10, 10), min_size=2, max_size=2),
    "table": st.lists(st.dictionaries(st.text(string.ascii_letters, max_size=5), st.integers() | st.booleans() | text | st.none(), max_size=3), max_size=3),
    "csv": st.none() | text.map(lambda name: Upload(name=name, sha256="a" * 64)),
    "seed": st.integers(0, 2**31 - 1),
}


@settings(deadline=None, max_examples=150)
@given(values=st.fixed_dictionaries({}, optional=VALUES), preset=st.sampled_from([None, "other"]))
@example(values={"table": [{"a": True}]}, preset=None)  # True == 1, but they are not the same
@example(values={"maybe_word": None, "word": "null"}, preset="other")
@example(values={"word": "x" * 15_000}, preset=None)
def test_every_field_survives_the_link(values: dict[str, Any], preset: str | None) -> None:
    params = Everything(**values)
    link = share.query(METHOD, params, preset)
    if link is None:
        return
    assert len(link) <= share.LINK_LIMIT
    assert link.isascii()
    back = share.read(METHOD, link)
    assert (back.params.model_dump(), back.notes, back.preset) == (params.model_dump(), (), preset)
    assert all(type(a) is type(b) for (_, a), (_, b) in zip(back.params, params, strict=True))


def test_a_link_carries_only_what_differs_from_its_preset_in_readable_form() -> None:
    other = Everything(level=0.2, maybe_level=None, word="set", count=30)
    assert parse_qs(share.query(METHOD, other, "other") or "") == {"_preset": ["other"], "count": ["30"], "_v": ["1"]}
    assert share.query(METHOD, Everything()) == "_v=1"


def test_a_link_names_a_file_and_does_not_carry_it() -> None:
    link = share.query(METHOD, Everything(csv=Upload.of("my data.csv", b"secret,rows")))
    assert link is not None
    assert "secret" not in link
    back = share.read(METHOD, link).params.csv  # type: ignore[attr-defined]
    assert (back.name, back.bytes) == ("my data.csv", None)


def test_long_links_are_deflated_and_longer_ones_become_a_file() -> None:
    params = Everything(word="word " * 1500)
    link = share.query(METHOD, params, None, hide=["count"], pin=["level"])
    assert link is not None
    assert link.startswith("_z=")
    back = share.read(METHOD, link)
    assert (back.params, back.hide, back.pin) == (params, ("count",), ("level",))
    long = Everything(word="".join(random.Random(0).choices(string.printable[:90], k=15_000)))
    assert share.query(METHOD, long) is None
    assert json.loads(share.settings(METHOD, long))["params"]["word"] == long.word


def test_a_hand_out_names_known_controls_only() -> None:
    link = share.query(METHOD, Everything(), hide=["count", "level"], pin=["seed"])
    back = share.read(METHOD, (link or "") + "&_hide=count,level,nobody,")
    assert (back.hide, back.pin) == (("count", "level"), ("seed",))


@pytest.mark.parametrize(
    ("name", "raw", "taken"),
    [
        ("level", "0.9", 0.3),
        ("level", "-1e400", 0.01),
        ("count", "5000", 200),
        ("count", "7.6", 8),
        ("count", "-" + "9" * 4000, 1),
        ("symmetry", "2e6", 1e6),
        ("maybe_level", "7", 1.0),
    ],
)
def test_a_number_out_of_bounds_is_clamped_and_said_so(name: str, raw: str, taken: float) -> None:
    back = share.read(METHOD, {name: raw})
    assert getattr(back.params, name) == taken
    assert len(back.notes) == 1
    assert back.notes[0].startswith(f"{name}: ")
    assert len(back.notes[0]) < 200


BAD = ["NaN", "nan", "Infinity", "x", "", "[", "[" * 50_000, "9" * 5000, "null", "{}", "\0", "\ud800", "a" * 10_000]


@pytest.mark.parametrize("raw", BAD, ids=lambda raw: ascii(raw[:8]))
def test_no_value_breaks_the_reading(raw: str) -> None:
    for name in Everything.model_fields:
        back = share.read(METHOD, {name: raw, "count": "30"} if name != "count" else {name: raw})
        assert isinstance(back.params, Everything)
        if name != "count":
            assert back.params.count == 30, "one bad value takes no other with it"
        for note in back.notes:
            assert "\n" not in note
            assert len(note) < 300
            assert "pydantic" not in note


@pytest.mark.parametrize(
    "query",
    [
        "_z=",
        "_z=%00",
        "_z=ä",
        "_z=AAAA",
        "_z=" + base64.urlsafe_b64encode(zlib.compress(b"[" * 190_000)).decode(),
        "_z=" + base64.urlsafe_b64encode(zlib.compress(b"[1,2]")).decode(),
        "_z=" + base64.urlsafe_b64encode(zlib.compress(b'{"word": "' + b"a" * 50_000_000 + b'"}')).decode(),
        "_preset=nobody",
        "nobody=1",
        "_v=99&_new=1",
        "%FF=%FF",
        "&&==&",
    ],
    ids=range(12),
)
def test_a_forged_link_gives_the_defaults_and_plain_notes(query: str) -> None:
    back = share.read(METHOD, query)
    assert back.params == Everything()
    assert all("\n" not in note and len(note) < 300 for note in back.notes)
    if query.startswith(("_z", "_preset", "nobody")):
        assert back.notes


def test_a_link_cut_anywhere_still_opens() -> None:
    link = share.query(METHOD, Everything(word="word " * 1500)) or ""
    for length in range(3, len(link) - 6, 7):
        assert isinstance(share.read(METHOD, link[:length]).params, Everything)


def test_values_that_only_go_together_are_taken_together() -> None:
    class Pair(contract.Params):
        low: float = Field(0.0, ge=0, le=10, description="Low")
        high: float = Field(1.0, ge=0, le=10, description="High")

        @model_validator(mode="after")
        def _ordered(self) -> Pair:
            if self.low > self.high:
                raise ValueError("low is above high")
            return self

    method = fake(lambda p, c: iter(()), params=Pair)
    link = share.query(method, Pair(low=5, high=6))
    assert share.read(method, link or "").params == Pair(low=5, high=6)
    alone = share.read(method, urlencode({"low": "5"}))
    assert alone.params == Pair()
    assert alone.notes
    assert share.read(method, urlencode({"low": "99"})).params == Pair(), "a clamped value must fit as well"
