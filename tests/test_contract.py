"""The contract's own types: faults, uploads, colours, params, frames."""

from __future__ import annotations

import base64
import hashlib
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from backends import contract
from backends.contract import BASE64_LIMIT_BYTES, UPLOAD_LIMIT_BYTES, Card, Color, ContextSpec, Frame, InputError, Params, Upload
from backends.validation import schema, validate
from tests.fakes import FakeParams, card

SHA = hashlib.sha256(b"x,y").hexdigest()


class Painted(Params):
    colour: Color = Field("#336699", description="A colour")
    csv: Upload | None = Field(None, description="A file")


# faults -------------------------------------------------------------------------------------------------------


def test_an_input_error_is_one_line_and_pickles() -> None:
    error = InputError("csv", "line 3:\n'a\nb' is no number", "put one\tthere")
    assert str(error) == "csv: line 3: 'a b' is no number; put one there"
    again = pickle.loads(pickle.dumps(error))
    assert again.to_dict() == error.to_dict() == {"field": "csv", "problem": error.problem, "remedy": error.remedy}


# uploads ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        Upload.of("a.csv", b"x,y"),
        {"name": "a.csv", "bytes": b"x,y"},
        {"name": "a.csv", "base64": base64.b64encode(b"x,y").decode()},
        {"name": "a.csv", "bytes": b"x,y", "sha256": SHA},
        {"name": "a.csv", "sha256": SHA},
    ],
    ids=range(5),
)
def test_every_form_of_an_upload(form: Any) -> None:
    upload = validate(Painted, {"csv": form}).csv
    assert upload is not None
    assert (upload.name, upload.sha256) == ("a.csv", SHA)
    if upload.bytes is None:
        with pytest.raises(InputError, match=r"csv: the link names the file a.csv but does not carry it"):
            upload.read("csv")
    else:
        assert upload.read("csv") == b"x,y"


@pytest.mark.parametrize(
    "form",
    [
        "/etc/passwd",
        "a.csv",
        b"x,y",
        7,
        [],
        {},
        {"name": "/etc/passwd"},
        {"path": "/etc/passwd"},
        {"name": "/etc/passwd", "path": "/etc/passwd", "sha256": SHA},
        {"name": "a.csv", "bytes": "x,y"},
        {"name": "a.csv", "base64": "no base64!"},
        {"name": "a.csv", "base64": 5},
        {"name": "a.csv", "base64": "A" * (BASE64_LIMIT_BYTES + 4)},
        {"name": "a.csv", "bytes": b"x" * (UPLOAD_LIMIT_BYTES + 1)},
        {"name": "a.csv", "bytes": b"x,y", "sha256": "0" * 64},
        {"name": "a.csv", "sha256": "../" + "0" * 61},
        {"name": "a.csv", "sha256": SHA.upper()},
        {"name": None, "sha256": SHA},
    ],
    ids=range(18),
)
def test_a_string_is_never_a_path_and_a_wrong_upload_is_a_plain_fault(form: Any) -> None:
    with pytest.raises(InputError) as caught:
        validate(Painted, {"csv": form})
    assert caught.value.field == "csv"
    assert "a file" in caught.value.remedy
    assert len(str(caught.value)) < 250
    assert "pydantic" not in str(caught.value)


@pytest.mark.parametrize(
    ("given_name", "kept"),
    [("../../etc/passwd", "passwd"), ("C:\\a\\b.csv", "b.csv"), ("", "file"), ("/", "file"), ("a\nb\0.csv", "a?b?.csv"), ("ä" * 300, "ä" * 200)],
)
def test_only_a_printable_last_part_of_the_name_is_kept(given_name: str, kept: str) -> None:
    assert Upload.of(given_name, b"").name == kept
    assert Upload(name=given_name, sha256=SHA).name == kept


def test_the_bytes_are_neither_shown_nor_written() -> None:
    upload = Upload.of("a.csv", b"secret")
    assert "secret" not in repr(upload)
    assert upload.model_dump(mode="json") == {"name": "a.csv", "sha256": upload.sha256, "bytes": None}
    assert pickle.loads(pickle.dumps(upload)).read("csv") == b"secret"


# colours ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "colour"),
    [
        ("#A1B2C3", "#a1b2c3"),
        ("#abc", "#aabbcc"),
        ("#a1b2c3ff", "#a1b2c3"),
        ("rgb(1, 2, 255)", "#0102ff"),
        ("RGB(1,2,255)", "#0102ff"),
        ("rgba(16.4, 31.6, 255, 0.5)", "#1020ff"),
        (" rgba(0, 0, 0, 50%) ", "#000000"),
    ],
)
def test_a_colour_is_written_one_way(text: str, colour: str) -> None:
    assert validate(Painted, {"colour": text}).colour == colour


@pytest.mark.parametrize("text", ["red", "", "#12345", "#ggg", "rgb(1,2)", "rgb(1,2,256)", "rgb(-1,2,3)", "rgb(1.2.3,1,1)", "rgb(nan,1,1)", b"bytes", None, 5])
def test_what_is_no_colour_is_a_plain_fault(text: Any) -> None:
    with pytest.raises(InputError, match=r"^colour: .*; give text like #rrggbb$"):
        validate(Painted, {"colour": text})


@given(st.from_regex(r"#[0-9a-f]{6}", fullmatch=True))
def test_a_normal_colour_stays(colour: str) -> None:
    assert Painted(colour=colour).colour == colour


def test_a_colour_says_what_it_is_in_the_schema_and_keeps_the_fields_own_keys() -> None:
    class Live(Params):
        colour: Color = Field("#fff", description="A colour", json_schema_extra={"live": True})

    assert Live().colour == "#ffffff"
    node = schema(Live)["colour"]
    assert (node["type"], node["format"], node["live"]) == ("string", "color", True)


# params -------------------------------------------------------------------------------------------------------


def test_params_are_frozen_closed_and_finite_and_always_have_a_seed() -> None:
    params = FakeParams()
    assert params.seed == 0
    with pytest.raises(ValidationError):
        params.level = 0.2  # type: ignore[misc]
    for values in ({"nobody": 1}, {"level": float("nan")}, {"seed": -1}, {"seed": 2**31}):
        with pytest.raises(ValidationError):
            FakeParams(**values)  # type: ignore[arg-type]


def test_private_means_a_file_or_a_marked_field_that_was_set() -> None:
    assert not FakeParams().private
    assert not FakeParams(note="").private
    assert FakeParams(note="mine").private
    assert FakeParams(csv=Upload.of("a.csv", b"1")).private
    assert FakeParams(csv=Upload(name="a.csv", sha256=SHA)).private


def test_what_moves_to_a_worker_pickles() -> None:
    for value in (FakeParams(csv=Upload.of("a.csv", b"1")), ContextSpec(3, "cpu", "run"), Frame(0.5, "half", {"k": None}, {"x": [1]})):
        assert pickle.loads(pickle.dumps(value)) == value


# frames -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"progress": -0.1}, "outside 0 to 1"),
        ({"progress": float("nan")}, "outside 0 to 1"),
        ({"message": "two\nlines"}, "more than one line"),
        ({"metrics": {"k": float("nan")}}, "metric k is nan"),
        ({"metrics": {"k": np.float64("inf")}}, "metric k is inf"),
        ({"metrics": {"k": np.float32(1)}}, "metric k is a float32"),
        ({"metrics": {"k": [1]}}, "metric k is a list"),
    ],
)
def test_a_frame_that_breaks_a_rule_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Frame(**({"progress": 0.5, "message": "half"} | change))


def test_a_sealed_frame_shares_no_array_and_no_container_with_the_method() -> None:
    x, inner, metrics = np.zeros((2, 2)), [1], {"k": np.float64(1.5)}
    frame = Frame(1, "done", metrics, {"x": x, "view": x[0], "deep": {"list": [x, (x,)], "inner": inner}})  # type: ignore[arg-type]
    sealed = frame.sealed()
    x[:] = 7
    inner.append(2)
    metrics.clear()
    deep = sealed.data["deep"]
    for array in (sealed.data["x"], sealed.data["view"], deep["list"][0], deep["list"][1][0]):
        assert not array.any()
        assert not array.flags.writeable
    assert deep["inner"] == [1]
    assert sealed.metrics == {"k": 1.5}
    assert type(sealed.metrics["k"]) is float
    assert x.flags.writeable, "the method's own array stays its own"


# cards --------------------------------------------------------------------------------------------------------


def test_a_card_knows_its_presets_and_its_package() -> None:
    made: Card = card("two-words")
    assert made.package == "two_words"
    assert made.preset().name == "default"
    assert made.preset("long").params == {"n": 100}
    with pytest.raises(InputError, match="choose one of default, long"):
        made.preset("nobody")


def test_the_contract_needs_no_torch_and_no_face() -> None:
    assert not {"torch", "gradio", "plotly"} & set(vars(contract))
