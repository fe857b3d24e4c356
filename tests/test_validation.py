"""From what people give to params: every fault in plain words, none as a traceback."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, field_validator, model_validator

from backends.contract import InputError, Params, Upload
from backends.validation import allowed, validate


class Kinds(Params):
    level: float = Field(0.1, ge=0.01, le=0.3, description="Level")
    count: int = Field(3, ge=1, le=5000, description="Count")
    above: float = Field(1.0, gt=0, description="Above")
    step: int = Field(16, ge=16, le=64, multiple_of=16, description="Step")
    word: str = Field("a", max_length=10, description="Word")
    kind: Literal["one", "two"] = Field("one", description="Kind")
    only: Literal["it"] = Field("it", description="Only")
    flag: bool = Field(True, description="Flag")
    mixed: Annotated[float, Field(ge=0, le=1e6)] | Literal["auto", "separate"] = Field("auto", description="Mixed")
    maybe: float | None = Field(None, ge=0, le=1, description="Maybe")
    point: list[float] = Field([0.0, 1.0], min_length=2, max_length=2, description="Point")
    table: dict[str, int] = Field({}, description="Table")
    csv: Upload | None = Field(None, description="File")

    @field_validator("word")
    @classmethod
    def _no_x(cls, value: str) -> str:
        if "x" in value:
            raise ValueError("the letter x is not allowed")
        return value

    @model_validator(mode="after")
    def _together(self) -> Kinds:
        if self.level > 0.2 and self.count > 4000:
            raise InputError("count", "4,001 rows at this level take an hour", "lower one of them")
        if self.word == "both" and self.kind == "two":
            raise ValueError("both and two exclude each other")
        return self


def fault_or_none(values: dict[str, Any]) -> InputError | None:
    try:
        validate(Kinds, values)
    except InputError as error:
        return error
    return None


def fault(**values: Any) -> str:
    with pytest.raises(InputError) as caught:
        validate(Kinds, values)
    return str(caught.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"level": 0.5}, "level: 0.5 is above 0.3; give a number from 0.01 to 0.3"),
        ({"level": 0}, "level: 0 is below 0.01; give a number from 0.01 to 0.3"),
        ({"level": float("nan")}, "level: NaN is not a finite number; give a number from 0.01 to 0.3"),
        ({"level": float("-inf")}, "level: -Infinity is not a finite number; give a number from 0.01 to 0.3"),
        ({"level": "high"}, 'level: "high" does not fit here; give a number from 0.01 to 0.3'),
        ({"level": None}, "level: null does not fit here; give a number from 0.01 to 0.3"),
        ({"count": 2.5}, "count: 2.5 does not fit here; give a whole number from 1 to 5,000"),
        ({"above": 0}, "above: 0 is not above 0; give a number above 0"),
        ({"step": 17}, "step: 17 does not fit here; give a whole number from 16 to 64, a multiple of 16"),
        ({"word": "a" * 11}, 'word: "aaaaaaaaaaa" is too long; give text of at most 10 characters'),
        ({"word": "box"}, "word: the letter x is not allowed; give text of at most 10 characters"),
        ({"kind": "three"}, 'kind: "three" does not fit here; give one of one, two'),
        ({"only": "that"}, 'only: "that" does not fit here; give the word it'),
        ({"flag": "perhaps"}, 'flag: "perhaps" does not fit here; give true or false'),
        ({"mixed": 2e6}, "mixed: 2000000.0 is above 1,000,000; give a number from 0 to 1,000,000, or one of auto, separate"),
        ({"mixed": "automatic"}, 'mixed: "automatic" does not fit here; give a number from 0 to 1,000,000, or one of auto, separate'),
        ({"maybe": 2}, "maybe: 2 is above 1; give a number from 0 to 1, or nothing"),
        ({"point": [1.0]}, "point: [1.0] is too short; give a list of a number"),
        ({"table": {"a": "b"}}, 'table: {"a": "b"} does not fit here; give a table of names and values'),
        ({"csv": "/etc/passwd"}, 'csv: "/etc/passwd" does not fit here; give a file, or nothing'),
        ({"levle": 0.1}, "levle: there is no such control; did you mean level?"),
        ({"level": 0.3, "count": 4500}, "count: 4,001 rows at this level take an hour; lower one of them"),
        ({"word": "both", "kind": "two"}, "params: the values do not go together; both and two exclude each other"),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
def test_each_fault_names_the_field_the_value_and_the_rule(values: dict[str, Any], words: str) -> None:
    assert fault(**values) == words


def test_an_unknown_name_without_a_near_one_lists_what_there_is() -> None:
    text = fault(zzzzzzzzzzz=1)
    assert text.startswith("zzzzzzzzzzz: there is no such control; known are seed, level")


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "ä" * 10_000, "", "\ud800"])
def test_a_hostile_name_stays_one_short_line(name: str) -> None:
    text = fault(**{name: 1})
    assert text.isprintable()
    assert len(text) < 400


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


HOSTILE: list[Any] = [
    *(float("nan"), float("inf"), 10**400, -(10**400), "", " ", "\0", "\ud800", "a" * 100_000, "ä\u202e\u2028\n", b"bytes", None, True, [], {}, [[]]),
    *({"a": float("nan")}, {1: 2}, object(), lambda: 1, 1j, {1, 2}, range(3), "1" * 10_000, [0.0] * 10_000, {"name": "a", "bytes": "b"}, _nested(50_000)),
]


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_no_value_gets_past_or_out_as_anything_but_an_input_error(value: Any) -> None:
    for field in Kinds.model_fields:
        error = fault_or_none({field: value})
        if error is not None:
            assert error.field == field
            assert str(error).isprintable()
            assert len(str(error)) < 300
            assert not any(word in str(error) for word in ("pydantic", "Traceback", "0x", "http"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@settings(deadline=None, max_examples=150)
@given(st.dictionaries(st.sampled_from([*Kinds.model_fields, "nobody", ""]), json_values, max_size=4))
def test_any_json_is_params_or_an_input_error(values: dict[str, Any]) -> None:
    error = fault_or_none(values)
    assert error is None or str(error).isprintable()


def test_what_a_field_takes_is_said_in_words() -> None:
    assert allowed(Kinds, "csv") == "a file, or nothing"
    assert allowed(Kinds, "seed") == "a whole number from 0 to 2,147,483,647"
