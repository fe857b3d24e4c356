"""The contract between a method and the lab.

A method is a package ``backends/<method>/`` with ``card.py`` (``CARD``, ``Params`` and, where it is not
``"cpu"``, ``weight``) and ``method.py`` (``run``). From these alone the lab makes the method's page, its
command-line call, its HTTP and MCP tool, its link, its cache key, its downloads and its contract tests.
"""

from __future__ import annotations

import base64
import builtins
import hashlib
import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_serializer, model_validator

if TYPE_CHECKING:
    import torch

    from backends.runtime.models import Models

T = TypeVar("T")
Weight = Literal["light", "cpu", "gpu", "timing"]
Theme = Literal["uncertainty", "look-inside", "images", "agents", "code", "decisions", "adapt", "worlds"]
MetricValue = float | str | bool | None

UPLOAD_LIMIT_BYTES = 10_000_000
BASE64_LIMIT_BYTES = 1_000_000


class InputError(ValueError):
    """Bad input, in one shape for every face: which field, what is wrong, what to do.

    >>> str(InputError("alpha", "1.5 is above 0.3", "choose a value from 0.01 to 0.3"))
    'alpha: 1.5 is above 0.3; choose a value from 0.01 to 0.3'
    """

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(field, problem, remedy)
        self.field, self.problem, self.remedy = field, problem, remedy

    def __str__(self) -> str:
        line = " ".join(f"{self.field}: {self.problem}; {self.remedy}".split())
        return "".join(c if c.isprintable() else "?" for c in line)  # whatever was given, also in a terminal

    def to_dict(self) -> dict[str, str]:
        return {"field": self.field, "problem": self.problem, "remedy": self.remedy}


class Stopped(BaseException):
    """Raised inside a method by ``context.check()`` when its run was stopped.

    Derives from BaseException so that a method's ``except Exception`` cannot swallow it.
    """


class Upload(BaseModel):
    """A file a person brought: its name, its SHA-256 and, unless it came by a link, its bytes.

    A string is never taken for a path. Accepted in place of an Upload: ``{name, bytes}``,
    ``{name, base64}`` (at most 1 MB of text) and ``{name, sha256}`` (a link: the file itself is missing).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = Field(max_length=200)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    bytes: builtins.bytes | None = Field(default=None, max_length=UPLOAD_LIMIT_BYTES, repr=False)

    @classmethod
    def of(cls, name: str, content: builtins.bytes) -> Upload:
        """An upload of these bytes; only the last part of the name is kept.

        >>> Upload.of("../a.csv", b"x").name
        'a.csv'
        """
        return cls(name=name, sha256=hashlib.sha256(content).hexdigest(), bytes=content)

    @model_validator(mode="before")
    @classmethod
    def _from_plain(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        given = dict(value)
        if isinstance(given.setdefault("name", "file"), str):
            given["name"] = _file_name(given["name"])
        if "base64" in given:
            text = given.pop("base64")
            if not isinstance(text, str) or len(text) > BASE64_LIMIT_BYTES:
                raise ValueError(f"base64 must be text of at most {BASE64_LIMIT_BYTES:,} characters")
            try:
                given["bytes"] = base64.b64decode(text, validate=True)
            except ValueError:
                raise ValueError("the text is not valid base64") from None
        content = given.get("bytes")
        if isinstance(content, builtins.bytes):
            if len(content) > UPLOAD_LIMIT_BYTES:
                raise ValueError(f"the file has {len(content):,} bytes, the limit is {UPLOAD_LIMIT_BYTES:,}")
            digest = hashlib.sha256(content).hexdigest()
            if given.setdefault("sha256", digest) != digest:
                raise ValueError("the file's content does not have the SHA-256 that was stated")
        return given

    @field_serializer("bytes", when_used="json")
    def _hide_bytes(self, _: builtins.bytes | None) -> None:
        return None

    def read(self, field: str) -> builtins.bytes:
        """The bytes; raises InputError for ``field`` when the upload is known by its hash only."""
        if self.bytes is None:
            raise InputError(field, f"the link names the file {self.name} but does not carry it", "choose the file again")
        return self.bytes


def _file_name(text: str) -> str:
    """The last part of a path, printable, at most 200 characters."""
    name = PurePath(text.replace("\\", "/")).name
    return "".join(c if c.isprintable() else "?" for c in name)[-200:].strip() or "file"


_HEX_COLOR = re.compile(r"#(?:[0-9a-f]{3}|[0-9a-f]{6}|[0-9a-f]{8})")
_RGB_COLOR = re.compile(r"rgba?\(\s*([0-9.]+)\s*,\s*([0-9.]+)\s*,\s*([0-9.]+)\s*(?:,\s*[0-9.]+%?\s*)?\)")


def _color(value: str) -> str:
    """``#rrggbb`` of what people and colour pickers write; a picker's opacity is dropped."""
    text = value.strip().lower()
    if _HEX_COLOR.fullmatch(text):
        return "#" + "".join(2 * c for c in text[1:]) if len(text) == 4 else text[:7]
    found = _RGB_COLOR.fullmatch(text)
    try:
        parts = [round(float(part)) for part in found.groups()] if found else []
    except ValueError:
        parts = []
    if not parts or max(parts) > 255:
        raise ValueError("this is not a colour")
    return "#" + "".join(f"{part:02x}" for part in parts)


# A colour as "#rrggbb"; also takes "#RRGGBB", "#rgb", "rgb(r, g, b)" and the "rgba(r, g, b, a)" of Gradio's picker.
Color = Annotated[str, AfterValidator(_color), Field(json_schema_extra={"format": "color"})]


def in_group(group: str, *, advanced: bool = True, **more: Any) -> dict[str, Any]:
    """The ``json_schema_extra`` of a param that stands under this heading; an advanced one waits behind a fold.

    >>> in_group("Block", advanced=False, unit="rounds")
    {'group': 'Block', 'unit': 'rounds'}
    """
    return {"group": group, **({"advanced": True} if advanced else {}), **more}


class Params(BaseModel):
    """What a method takes. Each field has a type, a default, bounds or a Literal, and a description.

    Keys of ``json_schema_extra`` that the faces read: unit, control, scale, live, group, advanced,
    private, lines, labels, inert; cleared_by: names of the fields whose change by hand sets this one back to its default.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    seed: int = Field(0, ge=0, le=2**31 - 1, description="Seed of every random draw", json_schema_extra={"advanced": True, "control": "number"})

    def uploads(self) -> dict[str, Upload]:
        """The fields that hold a person's file."""
        return {name: value for name, value in self if isinstance(value, Upload)}

    @property
    def private(self) -> bool:
        """True when results must not be shared between visitors."""
        marked = (n for n, f in type(self).model_fields.items() if isinstance(f.json_schema_extra, dict) and f.json_schema_extra.get("private"))
        return bool(self.uploads()) or any(getattr(self, n) not in (None, "", type(self).model_fields[n].default) for n in marked)


@dataclass(frozen=True, slots=True)
class Frame:
    """The newest state of a run, whole, never a delta.

    progress: 0 to 1, never falls within a run. message: one line. metrics: never NaN or infinite; None is
    "undefined", and the message says why. data: what the pictures need (numpy arrays, str, numbers, lists,
    small tables). Raises ValueError when a rule is broken.
    """

    progress: float
    message: str
    metrics: Mapping[str, MetricValue] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0.0 <= self.progress <= 1.0:
            raise ValueError(f"progress {self.progress} is outside 0 to 1")
        if "\n" in self.message:
            raise ValueError("the message has more than one line")
        for name, value in self.metrics.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"metric {name} is {value}; use None and say why in the message")
            if not isinstance(value, float | int | str | bool | None):
                raise ValueError(f"metric {name} is a {type(value).__name__}; use a plain number, text, bool or None")

    def sealed(self) -> Frame:
        """A copy whose arrays are copies and write-protected, so that no later step can change it."""
        metrics = {k: float(v) if isinstance(v, float) else v for k, v in self.metrics.items()}  # numpy's float64 is a float that not every JSON writer takes
        return Frame(float(self.progress), self.message, metrics, {k: _seal(v) for k, v in self.data.items()})

    def to_json(self) -> dict[str, Any]:
        """Plain JSON: arrays above 64 numbers as {dtype, shape, base64}, pictures as PNG, the rest as lists."""
        from backends.frame_json import encode

        return {"progress": self.progress, "message": self.message, "metrics": dict(self.metrics), "data": encode(self.data)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Frame:
        """The frame that ``to_json`` wrote."""
        from backends.frame_json import decode

        return cls(value["progress"], value["message"], value["metrics"], decode(value["data"]))


def _seal(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        copy = value.copy()
        copy.flags.writeable = False
        return copy
    if isinstance(value, Mapping):
        return {k: _seal(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_seal(v) for v in value]
    return value


@dataclass(frozen=True, slots=True)
class Paper:
    title: str
    authors: str
    url: str
    venue: str = "ICML 2026"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of the metric strip. ``better`` is the good direction; ``kind`` measured = not repeatable."""

    unit: str
    meaning: str
    better: Literal["higher", "lower", "target", None] = None
    kind: Literal["exact", "measured"] = "exact"


@dataclass(frozen=True, slots=True)
class Preset:
    """Params that show something; ``seconds`` is the stated wall time on 2 cores."""

    name: str
    title: str
    params: Mapping[str, Any]
    seconds: float
    fails: bool = False  # the preset that shows where the method fails


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the guided exercise."""

    preset: str
    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure that the paper (or its card) states, and how the lab re-measures it."""

    name: str
    text: str
    value: float
    setting: str
    source: str
    preset: str
    metric: str
    tolerance: float
    params: Mapping[str, Any] = field(default_factory=dict)  # on top of the preset


@dataclass(frozen=True)
class Card:
    """All that is said of a method without running it."""

    slug: str
    title: str
    theme: Theme
    paper: Paper
    aha: str  # one sentence, the largest text of the page
    how: str  # Markdown with LaTeX
    reconstructed: str  # what is reconstructed and not stated in the paper
    metrics: Mapping[str, Metric]
    presets: tuple[Preset, ...]  # the first is the default
    exercise: tuple[Step, ...]
    claims: tuple[Claim, ...]
    cheap: Mapping[str, Any]  # params that end in < 1 s, for tests
    needs: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()  # names a run may ask by context.secret(); the page offers a field for each, kept nowhere
    deterministic: bool | Callable[[Any], bool] = True

    @cached_property
    def package(self) -> str:
        return self.slug.replace("-", "_")

    def preset(self, name: str | None = None) -> Preset:
        """The preset of this name, the default without one; raises InputError with what there is."""
        if name is None:
            return self.presets[0]
        for preset in self.presets:
            if preset.name == name:
                return preset
        raise InputError("preset", f"{self.slug} has no preset {name!r}", "choose one of " + ", ".join(p.name for p in self.presets))


@dataclass(frozen=True, slots=True)
class ContextSpec:
    """What a worker needs to rebuild a run's Context; it pickles."""

    seed: int = 0
    device: str = "cpu"
    run: str = "direct"


class Context(Protocol):
    """What the lab gives a running method."""

    device: str
    live: str | None  # the live field that caused this run, or None
    models: Models

    @property
    def rng(self) -> np.random.Generator: ...
    @property
    def torch_generator(self) -> torch.Generator: ...

    def check(self) -> None:
        """Raises Stopped when the run was stopped and waits while it is paused; call it each 0.5 s of work.

        Without it a run can be stopped and paused only at its next frame, and holds its place until then.
        """

    def memo(self, name: str, key: Hashable, make: Callable[[], T]) -> T:
        """The stored value of ``make()`` for this content key, its arrays write-protected; shared by all visitors unless input is private."""

    def say(self, message: str) -> None:
        """Updates the line below the progress bar, from any thread."""

    def stream(self, fn: Callable[[Callable[[T], None]], Any]) -> Iterator[T]:
        """Runs ``fn(emit)`` in a second thread and yields what it emits."""

    def secret(self, name: str) -> str | None:
        """A secret of the visitor's page or of the environment; secrets are never params."""


@runtime_checkable
class Method(Protocol):
    """A registered method, as the faces and the runner see it."""

    @property
    def card(self) -> Card: ...
    @property
    def Params(self) -> type[Params]: ...  # noqa: N802 - the class of its params
    @property
    def version(self) -> str: ...

    def weight(self, params: Any) -> Weight: ...
    def run(self, params: Any, context: Context) -> Iterator[Frame]: ...
