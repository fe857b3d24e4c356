"""From what a person gave to Params, with every fault in plain words."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import ValidationError

from backends.contract import InputError, Params

P = TypeVar("P", bound=Params)
SHOWN_CHARACTERS = 60


@lru_cache(maxsize=256)
def schema(model: type[Params]) -> dict[str, dict[str, Any]]:
    """The JSON schema of each field of a Params class, references resolved."""
    whole = model.model_json_schema()
    definitions = whole.get("$defs", {})

    def resolve(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                rest = {k: v for k, v in node.items() if k != "$ref"}
                return resolve(definitions[node["$ref"].rsplit("/", 1)[1]]) | resolve(rest)
            return {k: resolve(v) for k, v in node.items()}
        if isinstance(node, list):
            return [resolve(v) for v in node]
        return node

    return {name: resolve(node) for name, node in whole["properties"].items()}


def number_text(value: float) -> str:
    """A bound as people write it.

    >>> number_text(1e6), number_text(0.01), number_text(1e-9)
    ('1,000,000', '0.01', '1e-09')
    """
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:g}"


def allowed(model: type[Params], field: str) -> str:
    """What a field takes, in words: ``a number from 0.01 to 0.3`` or ``one of auto, separate``."""
    return _allowed(schema(model)[field])


def _allowed(node: Mapping[str, Any]) -> str:
    if node.get("title") == "Upload" or "sha256" in node.get("properties", {}):
        return "a file"
    if "anyOf" in node:
        return ", or ".join(dict.fromkeys(_allowed(n) for n in node["anyOf"]))
    if "const" in node:
        return f"the word {node['const']}" if isinstance(node["const"], str) else str(node["const"])
    if "enum" in node:
        return "one of " + ", ".join(str(v) for v in node["enum"])
    kind = node.get("type")
    if kind in ("number", "integer"):
        noun = "a whole number" if kind == "integer" else "a number"
        low, high = node.get("minimum"), node.get("maximum")
        above, below = node.get("exclusiveMinimum"), node.get("exclusiveMaximum")
        multiple = f", a multiple of {number_text(node['multipleOf'])}" if "multipleOf" in node else ""
        if low is not None and high is not None:
            return f"{noun} from {number_text(low)} to {number_text(high)}{multiple}"
        words = [
            *([f"at least {number_text(low)}"] if low is not None else []),
            *([f"above {number_text(above)}"] if above is not None else []),
            *([f"at most {number_text(high)}"] if high is not None else []),
            *([f"below {number_text(below)}"] if below is not None else []),
        ]
        return " ".join([noun, " and ".join(words)]).strip() + multiple
    if kind == "string":
        pattern = " like #rrggbb" if node.get("format") == "color" else ""
        return f"text of at most {number_text(node['maxLength'])} characters" if "maxLength" in node else f"text{pattern}"
    if kind == "array":
        inner = _allowed(node.get("items", {})) if node.get("items") else "entries"
        return f"a list of {inner}"
    return {"boolean": "true or false", "null": "nothing", "object": "a table of names and values"}.get(kind or "", "another value")


def validate(model: type[P], values: Mapping[str, Any]) -> P:
    """Params made of ``values``; raises InputError(field, problem, remedy) at the first fault."""
    unknown = [str(name) for name in values if name not in model.model_fields]
    if unknown:
        near = difflib.get_close_matches(unknown[0], model.model_fields, n=1, cutoff=0.5)
        remedy = f"did you mean {near[0]}?" if near else "known are " + ", ".join(model.model_fields)
        raise InputError(unknown[0][:SHOWN_CHARACTERS], "there is no such control", remedy)
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise _plain(model, values, error) from None


def _plain(model: type[Params], values: Mapping[str, Any], error: ValidationError) -> InputError:
    first = error.errors(include_url=False, include_context=True)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):  # a validator of the method's own that names field and remedy
        return cause
    field = str(first["loc"][0]) if first["loc"] else "params"
    if field not in model.model_fields:
        return InputError(field, "the values do not go together", str(first["msg"]).removeprefix("Value error, "))
    given = values.get(field)
    kind = first["type"]
    if kind == "value_error":
        return InputError(field, str(first["msg"]).removeprefix("Value error, "), f"give {allowed(model, field)}")
    if kind == "missing":
        return InputError(field, "nothing was given", f"give {allowed(model, field)}")
    return InputError(field, f"{shown(given)} {_reason(kind, first.get('ctx', {}), given)}", f"give {allowed(model, field)}")


def _reason(kind: str, context: Mapping[str, Any], given: Any) -> str:
    if isinstance(given, float) and not math.isfinite(given):
        return "is not a finite number"
    bounds = {
        "greater_than_equal": ("ge", "is below"),
        "greater_than": ("gt", "is not above"),
        "less_than_equal": ("le", "is above"),
        "less_than": ("lt", "is not below"),
    }
    if kind in bounds and not isinstance(given, str | list | dict):
        name, words = bounds[kind]
        return f"{words} {number_text(float(context[name]))}"
    if kind in ("string_too_long", "too_long", "bytes_too_long"):
        return "is too long"
    if kind in ("string_too_short", "too_short"):
        return "is too short"
    return "does not fit here"


def shown(value: Any) -> str:
    """A value as it may stand in a message: one line, short.

    >>> shown("a" * 100)[-3:]
    '...'
    """
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = "this value"
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."
