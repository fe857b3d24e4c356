"""Values to try on a field of a Params class: legal ones, and ones that must be refused in words."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping
from typing import Any

from app.controls import kind_of
from backends.contract import UPLOAD_LIMIT_BYTES, Params, Upload
from backends.validation import schema

# Three columns, 60 rows, no two numbers alike: small enough for any method, large enough to be split three ways.
SAMPLE_ROWS = 60
LISTED = 12  # entries of a list that no control shows
WIDE = 50  # from here on a range of numbers counts in factors


def sample_file(kind: str = "csv") -> Upload:
    """A small file that a person might bring."""
    if kind == "image":
        pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
        return Upload.of("sample.png", base64.b64decode(pixel))
    rows = [f"{i / 10:.1f},{math.sin(i):.4f},{math.cos(1.7 * i) + i / 20:.4f}" for i in range(SAMPLE_ROWS)]
    return Upload.of("sample.csv", ("time,speed,load\n" + "\n".join(rows) + "\n").encode())


def legal(model: type[Params], field: str) -> list[Any]:
    """Values that the field's schema allows, the field's default among the first."""
    kind, node, optional = kind_of(model, field)
    default = model.model_fields[field].get_default(call_default_factory=True)
    values: list[Any] = [default]
    if kind == "choice":
        values += node["enum"]
    elif kind == "flag":
        values += [True, False]
    elif kind in ("range", "number"):
        values += [*node.get("words", []), *_numbers(node)]
    elif kind == "text":
        values += _texts(node)
    elif kind == "color":
        values += ["#336699", "#cc0000"]
    elif kind == "upload":
        values += [sample_file(node.get("control", "csv"))]
    elif kind == "numbers":
        inner = _numbers(node["items"])
        values += [[v] * len(node["labels"]) for v in inner]
    elif kind == "hidden" and node.get("items", {}).get("type") in ("number", "integer"):
        length = max(node.get("minItems", 0), min(LISTED, node.get("maxItems", LISTED)))
        values += [[v] * length for v in _numbers(node["items"])]
    elif kind == "hidden" and node.get("items", {}).get("items", {}).get("type") == "string":
        values += [[["x"] * node["items"].get("minItems", 1)]]  # rows of texts: what they name is known to the method alone
    if optional:
        values.append(None)
    kept: list[Any] = []
    for value in values:
        if not any(type(value) is type(k) and value == k for k in kept):
            kept.append(value)
    return kept


def others(model: type[Params], field: str, now: Any) -> list[Any]:
    """Legal values that are not ``now``; an empty text and None count as one."""
    return [v for v in legal(model, field) if v != now and not (v in ("", None) and now in ("", None))]


def _numbers(node: Mapping[str, Any]) -> list[Any]:
    low = node.get("minimum", node.get("exclusiveMinimum", -10.0 if "maximum" not in node else node["maximum"] - 10.0))
    high = node.get("maximum", node.get("exclusiveMaximum", low + 20.0))
    whole, step = node.get("type") == "integer", node.get("multipleOf")
    # Sizes (30 to 5,000 rows) are tried at their geometric middle: a far value would only cost time.
    if node.get("scale") == "log" or (low > 0 and high / low > WIDE):
        floor = low if low > 0 else node.get("slider", [high * 1e-6])[0]
        inner = [floor ** (1 - share) * high**share for share in (0.4, 0.6)]
    else:
        inner = [low + share * (high - low) for share in (0.3, 0.7)]
    if step:
        inner = [round(v / step) * step for v in inner]
    return [round(v) for v in inner] if whole else [float(v) for v in inner]


def _texts(node: Mapping[str, Any]) -> list[str]:
    short, long = int(node.get("minLength", 0)), int(node.get("maxLength", 1000))
    return [t for t in ("speed", "speed, load", "x") if short <= len(t) <= long]


HUGE = 10**400  # a whole number that no float holds
NASTY_TEXTS = ("", "x", "Zürich, 東京", "a\0b", "../../etc/passwd", "<script>alert(1)</script>", "=1+1", "a\nb")
WRONG_TYPES: tuple[Any, ...] = (object(), b"bytes", {"a": 1}, [[]], [None] * 1000, 1 + 2j, float)


def refused(model: type[Params], field: str) -> Iterator[Any]:
    """Values that the field must refuse."""
    kind, node, _ = kind_of(model, field)
    if kind != "hidden":
        yield from (object(), {"a": 1}, 1 + 2j)
    if kind in ("range", "number"):
        yield from ("", "much", math.nan, math.inf, -math.inf, [1])
        yield from (node[key] + sign for key, sign in (("minimum", -1), ("maximum", 1)) if key in node)
        yield from (HUGE, -HUGE) if "maximum" in node and "minimum" in node else ()
    elif kind == "choice":
        yield from ("", "no-such-choice", math.nan, "x" * 100_000, "a\0b", [], 12345.5)
    elif kind == "flag":
        yield from ("perhaps", 7, math.nan)
    elif kind == "text":
        yield from (3.5, "x" * (int(node.get("maxLength", 10**9)) + 1) if "maxLength" in node else 3)
    elif kind == "color":
        yield from ("", "no colour", 5, "#12345")
    elif kind == "upload":
        yield from refused_files()
    elif kind == "numbers":
        yield from ("", [], [math.nan] * len(node["labels"]), [1.0] * (len(node["labels"]) + 1), ["x"] * len(node["labels"]))


def refused_files() -> Iterator[Any]:
    """A path as text, a file above the limit, a hash that is not the content's, text that is not base64."""
    yield "/etc/hostname"
    yield {"path": "/etc/hostname"}
    yield {"name": "a.csv", "bytes": b"0" * (UPLOAD_LIMIT_BYTES + 1)}
    yield {"name": "a.csv", "base64": "0" * 2_000_000}
    yield {"name": "a.csv", "base64": "not base64!"}
    yield {"name": "a.csv", "bytes": b"x", "sha256": "0" * 64}
    yield {"name": "a.csv"}
    yield 5


def awkward(model: type[Params], field: str) -> Iterator[Any]:
    """Values that may be taken or refused, but never more than that: they are run when they are taken."""
    kind, node, _ = kind_of(model, field)
    if kind == "text":
        longest = int(node.get("maxLength", 2_000))
        yield from (t[:longest] for t in NASTY_TEXTS)
        yield "ü" * longest
    elif kind == "hidden":
        yield from ([], {}, "", [1], {"a": None})
    elif kind in ("range", "number"):
        yield from (node[k] for k in ("minimum", "maximum") if k in node)
    elif kind == "upload":
        yield from (Upload.of("empty.csv", b""), Upload.of("one.csv", b"1"), Upload.of("nul.csv", b"a,b\n\0,1\n"), Upload.of("x.png", b"\x89PNG\r\n"))


def described(model: type[Params], field: str) -> bool:
    """True when the field says its bounds: numbers a least and a largest value, texts a length, words a Literal."""
    kind, node, _ = kind_of(model, field)
    if kind in ("range", "number"):
        return any(k in node for k in ("minimum", "exclusiveMinimum")) and any(k in node for k in ("maximum", "exclusiveMaximum"))
    if kind == "text":
        return "maxLength" in node or "pattern" in node
    if kind == "hidden":
        whole = schema(model)[field]
        return any(k in n for n in whole.get("anyOf", [whole]) for k in ("maxItems", "maxProperties"))
    return True
