"""From a pydantic field to its Gradio control and back (the table "Field to control" of the design)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import gradio as gr

from app.assets import mount_script, tags
from backends.contract import UPLOAD_LIMIT_BYTES, InputError, Params, Upload
from backends.registry import Registered
from backends.validation import schema

Kind = Literal["choice", "flag", "range", "number", "text", "color", "upload", "numbers", "hidden"]
RADIO_LIMIT = 4
NUMBERS_LIMIT = 4


@dataclass(frozen=True)
class Control:
    """One field's control: its components (one, or one an entry for short lists of numbers) and both directions."""

    field: str
    kind: Kind
    components: tuple[Any, ...]
    optional: bool
    live: bool
    private: bool

    def read(self, values: tuple[Any, ...]) -> Any:
        """The param value of what the components hold; raises InputError for a file from elsewhere."""
        if self.kind == "numbers":
            return None if self.optional and set(values) == {None} else list(values)
        value = values[0]
        if self.kind == "upload":
            return _read_file(self.field, value)
        if value == "" and self.optional:
            return None
        if self.kind == "number" and isinstance(value, float) and value.is_integer():
            return int(value)
        if self.kind == "range" and isinstance(value, str):
            return _number_or_word(value)
        return value

    def write(self, value: Any) -> tuple[Any, ...]:
        """What the components show for a param value."""
        if self.kind == "numbers":
            return (None,) * len(self.components) if value is None else tuple(value)
        if self.kind == "upload":
            return (gr.skip() if value is not None and value.bytes is not None else None,)  # a file stays where the person put it
        return (value,)


def kind_of(model: type[Params], field: str) -> tuple[Kind, Mapping[str, Any], bool]:
    """The kind of control, the field's schema without its ``None``, and whether it may be empty.

    Raises TypeError for a type that the table does not hold.
    """
    node = dict(schema(model)[field])
    options = [n for n in node.get("anyOf", []) if n.get("type") != "null"]
    optional = len(options) < len(node.get("anyOf", []))
    if len(options) == 1:
        node = {**node, **options[0]}
        options = []
    if options:
        numbers = [n for n in options if n.get("type") in ("number", "integer")]
        words = [w for n in options if "enum" in n or "const" in n for w in n.get("enum", [n.get("const")])]
        if len(numbers) == 1 and len(options) == 2 and words and _bounded(numbers[0]):
            return "range", {**node, **numbers[0], "words": words}, optional
        raise TypeError(f"{field}: a union must be a bounded number and words")
    if "sha256" in node.get("properties", {}):
        return "upload", node, True
    if "enum" in node:
        return "choice", node, optional
    kind = node.get("type")
    if "const" in node:
        return "choice", {**node, "enum": [node["const"]]}, optional
    if kind == "boolean":
        return "flag", node, optional
    if kind in ("number", "integer"):
        typed = node.get("control") == "number" or not _bounded(node)
        return ("number" if typed else "range"), node, optional
    if kind == "string" and node.get("format") in (None, "color"):
        return ("color" if node.get("format") == "color" else "text"), node, optional
    if kind == "array" and node.get("labels"):
        if len(node["labels"]) > NUMBERS_LIMIT or node.get("minItems") != node.get("maxItems") or node.get("maxItems") != len(node["labels"]):
            raise TypeError(f"{field}: a list shown as fields has one label an entry, at most {NUMBERS_LIMIT}, and a fixed length")
        if node["items"].get("type") not in ("number", "integer") or not _bounded(node["items"]):
            raise TypeError(f"{field}: a list shown as fields holds bounded numbers")
        return "numbers", node, optional
    if kind in ("array", "object"):
        return "hidden", node, optional
    raise TypeError(f"{field}: there is no control for {node}")


@cache
def live_fields(model: type[Params]) -> tuple[str, ...]:
    """The fields whose control answers while it is moved; asked once a frame, so remembered."""
    return tuple(field for field in model.model_fields if kind_of(model, field)[1].get("live"))


def _bounded(node: Mapping[str, Any]) -> bool:
    return "minimum" in node and "maximum" in node


def _number_or_word(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _read_file(field: str, path: Any) -> Upload | None:
    """The upload behind a path that Gradio gave us; a path outside its upload folder is refused."""
    if path is None or path == "":
        return None
    from gradio.utils import get_upload_folder

    file = Path(str(path))
    try:
        file = file.resolve()
        ours = file.is_relative_to(Path(get_upload_folder()).resolve()) and file.is_file()
    except (ValueError, OSError):  # a name that no file can have
        ours = False
    if not ours:
        raise InputError(field, "this is not a file that you uploaded here", "choose the file again")
    if file.stat().st_size > UPLOAD_LIMIT_BYTES:
        raise InputError(field, f"the file has {file.stat().st_size:,} bytes", f"choose one of at most {UPLOAD_LIMIT_BYTES:,} bytes")
    return Upload.of(file.name, file.read_bytes())


def label_of(model: type[Params], field: str) -> str:
    """The label of a field: its title, else its name in words, with the unit.

    >>> from backends.contract import Params
    >>> label_of(Params, "seed")
    'Seed'
    """
    info = model.model_fields[field]
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    name = info.title or field.replace("_", " ").capitalize()
    return f"{name} ({extra['unit']})" if extra.get("unit") else name


def attribute(meta: Mapping[str, Any]) -> str:
    """JSON for a single-quoted HTML attribute inside a Gradio template, which is a JavaScript template literal and Handlebars."""
    text = json.dumps(meta, separators=(",", ":"))  # its double quotes stay: escaped they would double the size
    for sign, code in (("&", "&amp;"), ("<", "&lt;"), ("'", "&#39;"), ("$", "&#36;"), ("\\", "&#92;"), ("`", "&#96;"), ("{{", "{ {")):
        text = text.replace(sign, code)
    return text


def element_id(slug: str, field: str) -> str:
    """The id of a control's element on the page."""
    return f"{slug}--{field}"


def build(method: Registered, field: str) -> Control:
    """Makes the components of one field inside the current Gradio layout."""
    model, slug = method.Params, method.card.slug
    kind, node, optional = kind_of(model, field)
    info = model.model_fields[field]
    default = method.card.presets[0].params.get(field, info.get_default(call_default_factory=True)) if method.card.presets else info.default
    common: dict[str, Any] = {"label": label_of(model, field), "elem_id": element_id(slug, field), "elem_classes": ["pp-control", f"pp-{kind}"]}
    told: dict[str, Any] = {"info": info.description}
    component: Any
    if kind == "numbers":
        with gr.Row(elem_id=common.pop("elem_id"), elem_classes=common["elem_classes"]):
            parts = tuple(gr.Number(v, label=text) for text, v in zip(node["labels"], default or [None] * len(node["labels"]), strict=True))
        return Control(field, kind, parts, optional, bool(node.get("live")), bool(node.get("private")))
    if kind == "choice":
        choices = [(_words(v), v) for v in node["enum"]]
        make = gr.Radio if len(choices) <= RADIO_LIMIT else gr.Dropdown
        component = make(choices, value=default, **common, **told)
    elif kind == "flag":
        component = gr.Checkbox(default, **common, **told)
    elif kind == "range":
        component = _range(common, node, default, info.description or "")
    elif kind == "number":
        component = gr.Number(default, precision=0 if node.get("type") == "integer" else None, **common, **told)
    elif kind == "text":
        component = gr.Textbox(default, lines=int(node.get("lines", 1)), max_length=node.get("maxLength"), **common, **told)
    elif kind == "color":
        component = gr.ColorPicker(default, **common, **told)
    elif kind == "upload":
        if node.get("control") == "image":
            component = gr.Image(type="filepath", **common)
        else:
            component = gr.File(type="filepath", file_count="single", height=96, **common)
    else:
        component = gr.JSON(default, visible="hidden", **common)
    return Control(field, kind, (component,), optional, bool(node.get("live")), bool(node.get("private")))


def _words(value: Any) -> str:
    return str(value).replace("-", " ")


def _range(common: dict[str, Any], node: Mapping[str, Any], default: Any, text: str) -> gr.HTML:
    meta = {
        "id": common["elem_id"],
        "label": common["label"],
        "min": node["minimum"],
        "max": node["maximum"],
        "slider": node.get("slider"),
        "log": node.get("scale") == "log",
        "integer": node.get("type") == "integer",
        "step": node.get("multipleOf"),
        "words": node.get("words"),
        "help": text,
        "default": default,
    }
    given = {k: v for k, v in meta.items() if v not in (None, False)}
    return own_component("range", given, ("input", "change"), value=default, elem_id=common["elem_id"], elem_classes=common["elem_classes"])


def own_component(kind: str, meta: Mapping[str, Any], events: Iterable[str], *, value: Any = "", inside: str = "", **options: Any) -> gr.HTML:
    """A component drawn by ``static/js/<kind>.js`` from ``meta``; its template is constant, so that its nodes live on.

    inside: HTML that stands there until the script has loaded.
    """
    template = f"<div class='pp-{kind}' data-meta='{attribute(meta)}'>{inside}</div>"
    return gr.HTML(value, html_template=template, head=tags(), js_on_load=mount_script(kind, *events), apply_default_css=False, **options)
