"""Checks of a method's faces: its pictures, its events, the size of its page, its tool."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from app import pages
from app.blocks import LabBlocks
from app.plotting import Changes, Figure, Panel, View, view_json
from app.render import render
from app.tools import make_tool, tool_name
from app.workbench import Workbench
from backends.contract import Frame, InputError, Method
from backends.validation import allowed, validate
from tests.contract.input_checks import FUZZ, assert_plain
from tests.contract.running import cheap, fresh_memo, reference, run

PAGE_LIMIT_BYTES = 30_000
COMPONENTS_BESIDE_CONTROLS = 22
PANELS = {"tokens", "chat", "chips", "diff", "table", "images"}
EVENT_EXAMPLES = 300
RENDER_HANG_S = 2.0
# What an axis without a unit may be called: figures, not quantities.
DIMENSIONLESS = re.compile(
    r"\b(share|count|number|rank|probability|density|ratio|score|index|iteration|step|relative|fraction|percent|coverage|log scale|no unit|dimensionless)\b|%",
    re.IGNORECASE,
)
AXIS = re.compile(r"[xyz]axis\d*$")
WITHOUT_AXES = {"pie", "sunburst", "treemap", "icicle", "sankey", "table", "indicator", "parcoords", "parcats"}


def _shown(method: Method) -> list[Frame]:
    frames = reference(method).frames
    return [frames[0], frames[len(frames) // 2], frames[-1]]


def check_page_draws_every_frame(method: Method) -> None:
    """First, middle and last frame, live and as a replay reads them: strict JSON, in well under a second."""
    page, params = pages.load(method.card.slug), cheap(method)
    for frame in _shown(method):
        live = page.views(frame, params)
        names = [v.name for v in live]
        assert len(set(names)) == len(names), f"two views share a name: {names}"
        for view in live:
            orjson.dumps(view_json(view))
        stored = Frame.from_json(json.loads(json.dumps(frame.to_json(), allow_nan=False)))
        assert [v.name for v in page.views(stored, params)] == names, "a frame read back from JSON draws other views"
    last = page.views(_shown(method)[-1], params)
    assert last, "the last frame has no picture"
    first = [v.span for v in last[: 1 + sum(v.span == "lead" for v in last)]]
    assert first in (["main"], ["lead", "main"]), "the main picture comes first, after at most one strip that leads to it"
    assert [v.span for v in last].count("main") == 1, "there is one main picture"


def check_views_are_labelled(method: Method) -> None:
    """Title and summary on each view; a title with a unit, or the word of a figure without one, on each axis."""
    for frame in _shown(method):
        for view in pages.load(method.card.slug).views(frame, cheap(method)):
            assert_labelled(view)


def assert_labelled(view: View) -> None:
    assert view.title.strip(), f"{view.name} has no title"
    assert len(view.summary.split()) >= 3, f"{view.name} has no summary in words: {view.summary!r}"
    if isinstance(view, Panel):
        assert view.panel in PANELS, f"{view.name}: there is no panel {view.panel!r}"
        return
    if not view.traces or all(t.get("type") in WITHOUT_AXES for t in view.traces):
        return
    axes = dict(_axes(view))
    assert axes, f"{view.name} has no axis"
    for name, axis in axes.items():
        title = axis.get("title") or {}
        text = str(title.get("text", "") if isinstance(title, Mapping) else title).strip()
        assert text, f"{view.name}: {name} has no title"
        assert re.search(r"\(.+\)", text) or DIMENSIONLESS.search(text), f"{view.name}: {name} {text!r} has neither a unit nor a word for none"


def _axes(view: Figure) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, value in view.layout.items():
        if not isinstance(value, Mapping):
            continue
        if AXIS.match(name) and value.get("visible", True):
            yield name, value
        if name.startswith("scene"):
            yield from ((f"{name}.{n}", v) for n, v in value.items() if AXIS.match(n) and v.get("visible", True))


def check_render_is_one_json_string(method: Method) -> None:
    """What the runner sends: one string a frame, quickly, with views, metric strip and what ran."""
    started = time.monotonic()
    for frame in _shown(method):
        stage = json.loads(render(method.card.slug, frame, cheap(method)))
        assert {"run", "progress", "views", "metrics", "ran", "notes"} <= stage.keys()
        for key in ("model", "data", "size", "device"):
            assert stage["ran"].get(key), f"what ran does not name {key}"
    seconds = (time.monotonic() - started) / 3
    print(f"{method.card.slug}: {1000 * seconds:.0f} ms a frame to draw, {len(render(method.card.slug, frame, cheap(method))):,} bytes")
    assert seconds < RENDER_HANG_S


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=5,
)
EVENT_KEYS = ("x", "y", "x0", "x1", "y0", "y1", "id", "text", "value", "field", "pressed", "point", "curve", "index", "name", "shape", "z", "row", "column")


def check_events_never_raise(method: Method) -> None:
    """A forged event means something or nothing; what it means is validated like any other input."""
    page = pages.load(method.card.slug)
    names = [v.name for v in page.views(reference(method).last, cheap(method))]
    fields = list(method.Params.model_fields)
    kinds = st.one_of(st.sampled_from(["click", "drag", "answer", "upload", "edit", "select"]), json_values)
    event = st.fixed_dictionaries({}, optional={"type": kinds, **dict.fromkeys(EVENT_KEYS, json_values)})
    fielded = event.flatmap(lambda e: st.sampled_from(fields).map(lambda f: {**e, "field": f}))

    @settings(max_examples=EVENT_EXAMPLES, **FUZZ)
    @given(st.one_of(st.sampled_from([*names, "controls"]), st.text(max_size=10)), st.one_of(event, fielded))
    def try_one(view: str, forged: dict[str, Any]) -> None:
        values = dict(cheap(method))
        changes = page.on_event(view, forged, values)
        assert changes is None or isinstance(changes, Changes), f"on_event gave {changes!r}"
        if changes is None:
            return
        try:
            validate(method.Params, {**values, **changes.params})
        except InputError as error:
            assert_plain(error, fields, None if not isinstance(forged.get("text"), str) else forged["text"])

    try_one()


def check_page_is_small(method: Method) -> None:
    """The method's own share of a page's configuration: components, layout and events."""
    from backends.runner import Runner

    runner = Runner.__new__(Runner)  # building a page asks nothing of it, and a real one would open a store on disk
    with LabBlocks(analytics_enabled=False) as demo:
        bench = Workbench(method, runner)  # type: ignore[arg-type]
        bench.build()
    config = demo.get_config_file()
    own = {key: config[key] for key in ("components", "layout", "dependencies")}  # type: ignore[literal-required]
    text = json.dumps(own, separators=(",", ":"), default=str).encode()
    beside = len(config["components"]) - sum(len(c.components) for c in bench.controls)
    print(f"{method.card.slug}: {len(text):,} bytes of page configuration ({len(gzip.compress(text)):,} gzipped), {beside} components beside its controls")
    assert len(text) <= PAGE_LIMIT_BYTES, f"{len(text):,} bytes of page configuration, above {PAGE_LIMIT_BYTES:,}"
    assert beside <= COMPONENTS_BESIDE_CONTROLS, f"{beside} components beside the controls, above {COMPONENTS_BESIDE_CONTROLS}"


def check_tool_names_every_field(method: Method) -> None:
    """The tool's docstring is all that an MCP client reads: each field, its bounds, its unit."""
    tool = make_tool(method, None)  # type: ignore[arg-type]
    assert tool.__name__ == tool_name(method) == method.card.package + "_run"  # type: ignore[arg-type]
    text = tool.__doc__ or ""
    for name, info in method.Params.model_fields.items():
        line = next((x for x in text.splitlines() if x.strip().startswith(f"{name}:")), None)
        assert line, f"the tool's text does not name {name}"
        takes = allowed(method.Params, name)
        assert takes in line or "file" in takes, f"the tool's text on {name} does not say {takes!r}"
        extra = info.json_schema_extra
        unit = extra.get("unit") if isinstance(extra, dict) else None
        assert not unit or str(unit) in line, f"the tool's text on {name} does not say its unit {unit}"


def check_live_frame_draws_too(method: Method) -> None:
    """The one frame of a live run carries what the page needs for the same pictures."""
    page = pages.load(method.card.slug)
    full = {v.name for v in page.views(reference(method).last, cheap(method))}
    for field, info in method.Params.model_fields.items():
        extra = info.json_schema_extra
        if not isinstance(extra, dict) or not extra.get("live"):
            continue
        with fresh_memo():
            live = run(method, cheap(method), live=field).last
        missing = full - {v.name for v in page.views(live, cheap(method))}
        assert not missing, f"the live run of {field} leaves out the views {sorted(missing)}"


CHECKS: tuple[Any, ...] = tuple(value for name, value in list(globals().items()) if name.startswith("check_"))
