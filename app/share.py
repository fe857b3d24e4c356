"""Params as a link and back.

A link carries what differs from its preset. Names of ours start with ``_``: ``_preset``, ``_hide`` and ``_pin``
(a teacher's hand-out: controls taken out of sight or held, a view and not a lock), ``_v`` (the scheme's version)
and ``_z`` (everything deflated, for long ones).
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from backends.contract import InputError, Params
from backends.registry import Registered
from backends.validation import schema, shown, validate

SCHEME = 1
PLAIN_LIMIT = 2_000  # characters; longer ones are deflated
LINK_LIMIT = 6_000  # longer ones are offered as a file
INFLATED_LIMIT = 200_000


@dataclass(frozen=True)
class Shared:
    """What a link says: params, the preset it starts from, hand-out, and what could not be taken."""

    params: Params
    preset: str | None = None
    hide: tuple[str, ...] = ()
    pin: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def differences(method: Registered, params: Params, preset: str | None = None) -> dict[str, Any]:
    """The plain values of ``params`` that differ from the preset (the default one without a name)."""
    base = validate(method.Params, method.card.preset(preset).params).model_dump(mode="json")
    plain = params.model_dump(mode="json")
    return {name: value for name, value in plain.items() if json.dumps(value) != json.dumps(base[name])}  # 1 and true are equal in Python only


def query(method: Registered, params: Params, preset: str | None = None, hide: Iterable[str] = (), pin: Iterable[str] = ()) -> str | None:
    """The link's query, or None when it would be longer than 6 kB: offer ``settings`` as a file then."""
    pairs: dict[str, str] = {} if preset is None else {"_preset": preset}
    for name, value in differences(method, params, preset).items():
        if isinstance(value, dict) and "sha256" in value:
            value = {"name": value["name"], "sha256": value["sha256"]}
        pairs[name] = _write(method, name, value)
    if hide:
        pairs["_hide"] = ",".join(hide)
    if pin:
        pairs["_pin"] = ",".join(pin)
    pairs["_v"] = str(SCHEME)
    text = urlencode(pairs)
    if len(text) > PLAIN_LIMIT:
        packed = zlib.compress(json.dumps(pairs, separators=(",", ":")).encode(), 9)
        text = urlencode({"_z": base64.urlsafe_b64encode(packed).decode().rstrip("="), "_v": str(SCHEME)})
    return text if len(text) <= LINK_LIMIT else None


def settings(method: Registered, params: Params) -> str:
    """The params as a JSON file, for what is too long for a link; ``playable run`` takes it by ``--params``."""
    return json.dumps({"method": method.card.slug, "params": params.model_dump(mode="json")}, indent=1)


def read(method: Registered, text: str | Mapping[str, str]) -> Shared:
    """What a link says. Unknown names are left out and values out of bounds are clamped; ``notes`` says so."""
    pairs = dict(text) if isinstance(text, Mapping) else dict(parse_qsl(text, keep_blank_values=True))
    notes: list[str] = []
    if pairs.get("_v", str(SCHEME)) != str(SCHEME):
        notes.append(f"the link was written by another version of the lab (scheme {shown(pairs['_v'])}); what is known here was taken")
    if "_z" in pairs:
        pairs = _inflate(pairs["_z"], notes) | {k: v for k, v in pairs.items() if k.startswith("_") and k != "_z"}
    preset = pairs.get("_preset")
    try:
        base = dict(method.card.preset(preset).params)
    except InputError as error:
        notes.append(str(error))
        preset, base = None, dict(method.card.preset(None).params)
    given = {name: _read(method, name, raw) for name, raw in pairs.items() if name in method.Params.model_fields}
    for name in pairs:
        if name not in given and not name.startswith("_"):
            notes.append(f"the link's {shown(name)} is not a control here and was left out")
    return Shared(_taken(method, base, given, notes), preset, _names(method, pairs.get("_hide")), _names(method, pairs.get("_pin")), tuple(notes))


def _taken(method: Registered, base: Mapping[str, Any], given: Mapping[str, Any], notes: list[str]) -> Params:
    """The preset with the given values: all at once, since some only go together, else one after the other as far as they fit."""
    try:
        return validate(method.Params, {**base, **given})
    except InputError:
        values = dict(base)
    for name, value in given.items():
        try:
            validate(method.Params, values | {name: value})
        except InputError as error:
            clamped = _clamp(method, values, name, value)
            if clamped is None:
                notes.append(f"{error}; the link's value was left out")
                continue
            notes.append(f"{name}: {error.problem}; it was set to {clamped:g}")
            value = clamped
        values[name] = value
    return validate(method.Params, values)


def _names(method: Registered, text: str | None) -> tuple[str, ...]:
    return tuple(n for n in (text or "").split(",") if n in method.Params.model_fields)


def _inflate(text: str, notes: list[str]) -> dict[str, str]:
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        plain = zlib.decompressobj().decompress(packed, INFLATED_LIMIT)
        pairs = json.loads(plain)
        return {str(k): str(v) for k, v in pairs.items()}
    except (ValueError, zlib.error, AttributeError, RecursionError):
        notes.append("the link is cut short; the defaults are shown")
        return {}


def _write(method: Registered, name: str, value: Any) -> str:
    """The shortest text that ``_read`` takes for this value: a word as it stands, unless it looks like JSON there."""
    if isinstance(value, str) and _read(method, name, value) == value:
        return value
    return json.dumps(value, separators=(",", ":"))


def _read(method: Registered, name: str, raw: str) -> Any:
    node = schema(method.Params)[name]
    kinds = {option.get("type") for option in node.get("anyOf", [node])}
    if kinds == {"string"}:
        return raw  # a text field takes "1" and "true" as they stand
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return raw
    if kinds == {"string", "null"} and not (value is None or isinstance(value, str)):
        return raw
    return value


def _clamp(method: Registered, values: Mapping[str, Any], name: str, value: Any) -> float | int | None:
    """The nearest allowed number, or None where the field or the value is no number, or where it does not go with the other values."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    node = schema(method.Params)[name]
    for option in node.get("anyOf", [node]):
        if option.get("type") in ("number", "integer") and "minimum" in option and "maximum" in option:
            bounded = min(max(value, option["minimum"]), option["maximum"])
            nearest = round(bounded) if option["type"] == "integer" else float(bounded)
            try:
                validate(method.Params, {**values, name: nearest})
            except InputError:
                return None
            return nearest
    return None
