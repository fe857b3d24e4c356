"""From a field to its control and back: the table "Field to control", row by row."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import gradio as gr
import pytest
from gradio.utils import get_upload_folder
from pydantic import Field, create_model

from app import controls
from app.controls import Control
from backends.contract import UPLOAD_LIMIT_BYTES, Color, InputError, Params, Upload
from backends.validation import validate
from tests.fakes import fake

Number = Annotated[float, Field(ge=0, le=1)]


def model(kind: Any, default: Any, **field: Any) -> type[Params]:
    """Params with one field ``f``."""
    return create_model("One", __base__=Params, f=(kind, Field(default, description="What it does", **field)))


@pytest.fixture(scope="module", autouse=True)
def _page() -> Iterator[None]:
    """One page for all tests: Gradio takes a second to make one."""
    with gr.Blocks():
        yield


def built(kind: Any, default: Any, **field: Any) -> Control:
    return controls.build(fake(lambda p, c: iter(()), params=model(kind, default, **field)), "f")


ROWS: list[tuple[Any, Any, dict[str, Any], str, type]] = [
    (Literal["a", "b", "c", "d"], "a", {}, "choice", gr.Radio),
    (Literal["a", "b", "c", "d", "e"], "a", {}, "choice", gr.Dropdown),
    (Literal["a"], "a", {}, "choice", gr.Radio),
    (Literal["a", "b"] | None, None, {}, "choice", gr.Radio),
    (bool, True, {}, "flag", gr.Checkbox),
    (float, 0.5, {"ge": 0, "le": 1}, "range", gr.HTML),
    (int, 5, {"ge": 0, "le": 10}, "range", gr.HTML),
    (float, 1.0, {"ge": 0.001, "le": 1000, "json_schema_extra": {"scale": "log"}}, "range", gr.HTML),
    (float | None, None, {"ge": 0, "le": 1}, "range", gr.HTML),
    (Number | Literal["auto", "off"], "auto", {}, "range", gr.HTML),
    (Number | Literal["auto"] | None, None, {}, "range", gr.HTML),
    (float, 0.5, {}, "number", gr.Number),
    (float, 0.5, {"ge": 0}, "number", gr.Number),
    (int, 5, {"ge": 0, "le": 10, "json_schema_extra": {"control": "number"}}, "number", gr.Number),
    (int | None, None, {}, "number", gr.Number),
    (str, "a", {"max_length": 100}, "text", gr.Textbox),
    (str | None, None, {}, "text", gr.Textbox),
    (Color, "#336699", {}, "color", gr.ColorPicker),
    (Upload | None, None, {}, "upload", gr.File),
    (Upload | None, None, {"json_schema_extra": {"control": "image"}}, "upload", gr.Image),
    (list[Number], [0.0, 1.0], {"min_length": 2, "max_length": 2, "json_schema_extra": {"labels": ["x", "y"]}}, "numbers", gr.Number),
    (list[Number] | None, None, {"min_length": 2, "max_length": 2, "json_schema_extra": {"labels": ["x", "y"]}}, "numbers", gr.Number),
    (list[float], [0.0], {}, "hidden", gr.JSON),
    (list[str], [], {}, "hidden", gr.JSON),
    (dict[str, int], {}, {}, "hidden", gr.JSON),
]


@pytest.mark.parametrize(("kind", "default", "field", "expected", "component"), ROWS, ids=[f"{r[3]}-{i}" for i, r in enumerate(ROWS)])
def test_the_table(kind: Any, default: Any, field: dict[str, Any], expected: str, component: type) -> None:
    control = built(kind, default, **field)
    assert control.kind == expected
    assert all(isinstance(c, component) for c in control.components)
    shown = control.write(default)
    assert len(shown) == len(control.components)
    assert validate(model(kind, default, **field), {"f": control.read(shown)}).f == default  # type: ignore[attr-defined]


def test_a_hidden_list_is_invisible_but_there() -> None:
    assert built(list[float], [0.0]).components[0].visible == "hidden"


@pytest.mark.parametrize(
    ("kind", "default", "field"),
    [
        (Any, 1, {}),
        (float | Literal["auto"], "auto", {}),
        (int | str, 1, {}),
        (float | bool, 1.0, {}),
        (datetime.date, datetime.date(2026, 1, 1), {}),
        (Decimal, Decimal(1), {}),
        (bytes, b"", {}),
        (list[Number], [0.0], {"json_schema_extra": {"labels": ["x"]}}),
        (list[Number], [0.0] * 5, {"min_length": 5, "max_length": 5, "json_schema_extra": {"labels": list("abcde")}}),
        (list[Number], [0.0] * 2, {"min_length": 2, "max_length": 2, "json_schema_extra": {"labels": ["x"]}}),
        (list[str], ["a"], {"min_length": 1, "max_length": 1, "json_schema_extra": {"labels": ["x"]}}),
        (list[float], [0.0], {"min_length": 1, "max_length": 1, "json_schema_extra": {"labels": ["x"]}}),
    ],
    ids=range(12),
)
def test_a_type_outside_the_table_is_an_error(kind: Any, default: Any, field: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"^f: "):
        controls.kind_of(model(kind, default, **field), "f")


@pytest.mark.parametrize(
    ("kind", "default", "field", "held", "value"),
    [
        (float, 0.5, {"ge": 0, "le": 1}, 0.25, 0.25),
        (int, 5, {"ge": 0, "le": 10}, 7, 7),
        (int, 5, {"ge": 0}, 7.0, 7),
        (float | None, 0.5, {"ge": 0, "le": 1}, "", None),
        (float | None, 0.5, {"ge": 0, "le": 1}, None, None),
        (str | None, "a", {}, "", None),
        (str, "a", {}, "", ""),
        (Number | Literal["auto", "off"], "auto", {}, "0.5", 0.5),
        (Number | Literal["auto", "off"], "auto", {}, 0.5, 0.5),
        (Number | Literal["auto", "off"], "auto", {}, "off", "off"),
        (Color, "#336699", {}, "rgba(255, 0, 16, 1)", "#ff0010"),
        (Upload | None, None, {}, None, None),
        (list[float], [0.0], {}, [1.0, 2.0], [1.0, 2.0]),
    ],
    ids=range(13),
)
def test_what_a_component_holds_becomes_the_param(kind: Any, default: Any, field: dict[str, Any], held: Any, value: Any) -> None:
    control = built(kind, default, **field)
    assert validate(model(kind, default, **field), {"f": control.read((held,))}).f == value  # type: ignore[attr-defined]


@pytest.mark.parametrize("held", ["NaN", "Infinity", "9" * 5000, "[" * 100_000, "null", "", "2", None, [], {}, True, "<script>"], ids=range(12))
def test_a_forged_range_value_is_a_plain_fault(held: Any) -> None:
    control = built(Number | Literal["auto"], "auto")
    params = model(Number | Literal["auto"], "auto")
    if held is True:
        assert validate(params, {"f": control.read((held,))}).f == 1.0  # type: ignore[attr-defined]
        return
    with pytest.raises(InputError, match=r"^f: "):
        validate(params, {"f": control.read((held,))})


# files --------------------------------------------------------------------------------------------------------


@pytest.fixture
def upload_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "uploads"))
    folder = Path(get_upload_folder())
    folder.mkdir(parents=True, exist_ok=True)
    assert folder.is_relative_to(tmp_path)
    return folder


def test_an_uploaded_file_is_read_and_keeps_its_name(upload_folder: Path) -> None:
    (upload_folder / "abc").mkdir()
    (upload_folder / "abc" / "my data.csv").write_bytes(b"x,y")
    upload = built(Upload | None, None).read((str(upload_folder / "abc" / "my data.csv"),))
    assert upload == Upload.of("my data.csv", b"x,y")


FOREIGN: list[Callable[[Path], Any]] = [
    lambda folder: "/etc/passwd",
    lambda folder: str(folder / ".." / "secret.txt"),
    lambda folder: str(folder) + "_beside/x",
    lambda folder: str(folder / "link"),
    lambda folder: str(folder),
    lambda folder: str(folder / "nobody.csv"),
    lambda folder: "secret.txt",
    lambda folder: "file:///etc/passwd",
    lambda folder: f"{folder}/a\0b",
    lambda folder: f"{folder}/" + "a" * 5000,
    lambda folder: {"path": "/etc/passwd"},
    lambda folder: ["/etc/passwd"],
    lambda folder: 0,
    lambda folder: "~/secret",
]


@pytest.mark.parametrize("path", FOREIGN, ids=range(len(FOREIGN)))
def test_a_path_from_elsewhere_is_refused(upload_folder: Path, path: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    secret = upload_folder.parent / "secret.txt"
    secret.write_text("secret")
    (upload_folder / "link").symlink_to(secret)
    monkeypatch.chdir(upload_folder.parent)
    with pytest.raises(InputError, match="f: this is not a file that you uploaded here; choose the file again"):
        built(Upload | None, None).read((path(upload_folder),))


def test_a_file_that_is_too_large_is_refused_before_it_is_read(upload_folder: Path) -> None:
    large = upload_folder / "large.csv"
    with large.open("wb") as file:
        file.truncate(UPLOAD_LIMIT_BYTES + 1)
    with pytest.raises(InputError, match="10,000,001 bytes"):
        built(Upload | None, None).read((str(large),))


def test_a_file_stays_where_the_person_put_it_and_one_known_by_its_hash_shows_nothing() -> None:
    control = built(Upload | None, None)
    assert control.write(Upload.of("a.csv", b"1")) == (gr.skip(),)
    assert control.write(Upload(name="a.csv", sha256="a" * 64)) == (None,)


def test_texts_of_a_card_cannot_leave_their_attribute() -> None:
    text = controls.attribute({"help": "'><script>${alert(1)}{{x}}&amp;\u2028"})
    assert not any(sign in text for sign in ("'", "<", "${", "{{"))
