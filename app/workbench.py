"""The page of one method, the same for all: controls, run bar, stage, drawer, and the events between them."""

from __future__ import annotations

import html
import itertools
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from typing import Any

import gradio as gr
import orjson

from app import controls, pages, share
from app.controls import Control, live_fields, own_component
from app.render import claim_params
from backends.contract import InputError, Params
from backends.registry import Registered
from backends.runner import Runner, Update
from backends.validation import validate

VISITORS_KEPT = 4_000
_BEATS = itertools.count()  # two equal answers in a row would be one to the browser, which then keeps waiting
PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
# The button is there with the page; bar.js takes it over and answers a press that came before.
EARLY_RUN = "<div class='pp-bar-controls'><button type='button' class='pp-run' data-action='run' onclick='this.dataset.asked=1'>Run</button></div>"
CARRY: dict[str, Any] = {**PRIVATE, "concurrency_limit": None}  # Gradio's queue only carries


def visitor_of(request: gr.Request | None) -> str:
    """The visitor's token: the page's session, which a reconnecting stream keeps."""
    return str(getattr(request, "session_hash", None) or "")


class Workbench:
    """One method's page. ``build`` makes it inside a Gradio layout; the handlers stream the runner's updates."""

    def __init__(self, method: Registered, runner: Runner) -> None:
        self.method, self.runner, self.card = method, runner, method.card
        self.slug = method.card.slug
        self.controls: list[Control] = []
        self._current: OrderedDict[str, str] = OrderedDict()  # visitor -> the run he watches here

    # layout ------------------------------------------------------------------------------------------------

    def build(self) -> None:
        """Makes the page and binds its events."""
        card, slug = self.card, self.slug
        fields = list(self.method.Params.model_fields)
        fields.append(fields.pop(fields.index("seed")))  # inherited, so first; it matters least
        folded = [f for f in fields if self._extra(f).get("advanced")]
        with gr.Column(elem_classes=["pp-method"], elem_id=f"m-{slug}"):
            gr.HTML(self._title(), apply_default_css=False, js_on_load=None)
            with gr.Row(elem_classes=["pp-body"]):
                with gr.Column(elem_classes=["pp-controls"], min_width=280):
                    made = {f: controls.build(self.method, f) for f in fields if f not in folded}
                    if folded:
                        with gr.Accordion("More", open=False, elem_classes=["pp-more"]):
                            for group in dict.fromkeys(self._extra(f).get("group", "") for f in folded):
                                if group:
                                    gr.HTML(f"<h3 class='pp-controls-group'>{html.escape(group)}</h3>", apply_default_css=False, js_on_load=None)
                                made |= {f: controls.build(self.method, f) for f in folded if self._extra(f).get("group", "") == group}
                    self.secrets = [gr.Textbox(label=name, type="password", info="Used for your runs only; kept nowhere.") for name in card.secrets]
                with gr.Column(elem_classes=["pp-main"], min_width=320):
                    self.bar = self._part("bar", self._bar_meta(), "run", "stop", "pause", "resume", "preset", inside=EARLY_RUN)
                    self.stage = self._part("stage", {"slug": slug, "theme": card.theme}, "act")
                    self._part("drawer", {"slug": slug, "tabs": self._tabs()})
        self.controls = [made[f] for f in self.method.Params.model_fields]
        self._bind()

    def _part(self, kind: str, meta: Mapping[str, Any], *events: str, inside: str = "") -> gr.HTML:
        return own_component(kind, meta, events, inside=inside, elem_id=f"{self.slug}-{kind}")

    def _extra(self, field: str) -> Mapping[str, Any]:
        extra = self.method.Params.model_fields[field].json_schema_extra
        return extra if isinstance(extra, dict) else {}

    def _title(self) -> str:
        paper, text = self.card.paper, html.escape
        return (
            f"<header class='pp-title' data-theme='{self.card.theme}'><h1>{text(self.card.title)}</h1>"
            f"<p class='pp-aha'>{text(self.card.aha)}</p><p class='pp-paper'>"
            f"<a href='{text(paper.url)}' target='_blank' rel='noopener'>{text(paper.title)}</a>, {text(paper.authors)}, {text(paper.venue)}</p></header>"
        )

    def _bar_meta(self) -> dict[str, Any]:
        return {
            "slug": self.slug,
            "seconds": self.card.presets[0].seconds,
            "presets": [{"name": p.name, "title": p.title, "seconds": p.seconds, "fails": p.fails} for p in self.card.presets],
            "steps": [{"preset": s.preset, "question": s.question} for s in self.card.exercise],
            "live": live_fields(self.method.Params),
        }

    @staticmethod
    def _tabs() -> list[dict[str, str]]:
        titles = {"how": "How it works", "exercise": "Exercise", "claims": "Claims", "code": "Code", "data": "Data"}
        return [{"id": name, "title": title} for name, title in titles.items()]

    def _bind(self) -> None:
        parts = [c for control in self.controls for c in control.components]
        given, out = [*parts, *self.secrets], [self.bar, self.stage]
        self.bar.run(self._on_run, given, out, trigger_mode="multiple", **CARRY)
        self.bar.preset(self._on_preset, self.secrets, [*parts, *out], trigger_mode="multiple", **CARRY)
        self.bar.stop(self._on_stop, None, None, queue=False, **PRIVATE)
        self.bar.pause(self._on_pause, None, None, queue=False, **PRIVATE)
        self.bar.resume(self._on_resume, None, None, queue=False, **PRIVATE)
        self.stage.act(self._on_act, given, [*parts, *out], trigger_mode="multiple", **CARRY)
        for control in self.controls:
            for component in control.components:
                if control.kind == "upload":
                    component.upload(self._upload_handler(control.field), given, [*parts, *out], trigger_mode="multiple", **CARRY)
                elif control.live:
                    component.input(self._live_handler(control.field), given, out, trigger_mode="always_last", **CARRY)
        for control in self.controls:
            causes = [c.input for other in self.controls if control.field in self._cleared(other.field) for c in other.components]
            if causes:  # in the browser: what is cleared is no longer there when Run is pressed
                default = json.dumps(self._default(control.field))
                gr.on(causes, None, None, list(control.components), js=f"() => [{default}]", **PRIVATE)

    def _cleared(self, moved: str) -> list[str]:
        """The fields that go back to their default when a person changes this one."""
        return [field for field in self.method.Params.model_fields if moved in self._extra(field).get("cleared_by", ())]

    def _default(self, field: str) -> Any:
        return self.method.Params.model_fields[field].get_default(call_default_factory=True)

    # from the components to params and back -----------------------------------------------------------------

    def _values(self, values: tuple[Any, ...]) -> dict[str, Any]:
        rest, given = list(values), {}
        for control in self.controls:
            number = len(control.components)
            given[control.field] = control.read(tuple(rest[:number]))
            rest = rest[number:]
        return given

    def _keys(self, values: tuple[Any, ...]) -> dict[str, str]:
        """The secrets a visitor typed; they stand last in the values and are never params."""
        typed = values[len(values) - len(self.secrets) :]
        return {name: str(value) for name, value in zip(self.card.secrets, typed, strict=True) if value}

    def write(self, params: Params) -> list[Any]:
        """What every component shows for these params, in the order of the fields."""
        return [value for control in self.controls for value in control.write(getattr(params, control.field))]

    def _same(self) -> list[Any]:
        return [gr.skip() for control in self.controls for _ in control.components]

    # handlers ----------------------------------------------------------------------------------------------

    async def _on_run(self, request: gr.Request, event: gr.EventData, *values: Any) -> AsyncIterator[tuple[Any, Any]]:
        fresh = bool((event._data or {}).get("fresh"))
        try:
            params = validate(self.method.Params, self._values(values))
        except InputError as error:
            yield fault(error), gr.skip()
            return
        async for out in self._follow(params, visitor_of(request), self._keys(values), fresh=fresh):
            yield out

    async def _on_preset(self, request: gr.Request, event: gr.EventData, *values: Any) -> AsyncIterator[list[Any]]:
        wanted = event._data or {}
        try:
            if "query" in wanted:  # a page that lost its connection comes back to its run
                params = share.read(self.method, str(wanted["query"])).params
            elif "claim" in wanted:
                params = claim_params(self.card, self.method.Params, str(wanted["claim"]))
            else:
                params = validate(self.method.Params, self.card.preset(str(wanted.get("name"))).params)
        except (InputError, StopIteration):
            return  # a name that this page never showed
        async for out in self._shown_and_followed(params, request, self._keys(values), run=True):
            yield out

    async def _on_act(self, request: gr.Request, event: gr.EventData, *values: Any) -> AsyncIterator[list[Any]]:
        wanted = event._data or {}
        async for out in self._changed(str(wanted.get("view")), wanted.get("event") or {}, values, request):
            yield out

    def _upload_handler(self, field: str) -> Any:
        async def on_upload(request: gr.Request, *values: Any) -> AsyncIterator[list[Any]]:
            async for out in self._changed("controls", {"type": "upload", "field": field}, values, request):
                yield out

        return on_upload

    def _live_handler(self, field: str) -> Any:
        async def on_live(request: gr.Request, *values: Any) -> AsyncIterator[tuple[Any, Any]]:
            try:
                given = self._values(values) | {name: self._default(name) for name in self._cleared(field)}
                params = validate(self.method.Params, given)
            except InputError as error:
                yield fault(error), gr.skip()
                return
            async for out in self._follow(params, visitor_of(request), self._keys(values), live=field):
                yield out

        return on_live

    async def _changed(self, view: str, event: Mapping[str, Any], values: tuple[Any, ...], request: gr.Request) -> AsyncIterator[list[Any]]:
        """A click, a drag, an answer or an upload: the page says which params it means."""
        try:
            given = self._values(values)
            changes = pages.load(self.slug).on_event(view, event, given)
            if changes is None:
                return
            params = validate(self.method.Params, {**given, **changes.params})
        except InputError as error:
            yield [*self._same(), fault(error), gr.skip()]
            return
        async for out in self._shown_and_followed(params, request, self._keys(values), run=changes.run):
            yield out

    async def _shown_and_followed(self, params: Params, request: gr.Request, keys: Mapping[str, str], *, run: bool) -> AsyncIterator[list[Any]]:
        shown = self.write(params)
        if not run:
            yield [*shown, gr.skip(), gr.skip()]
            return
        async for out in self._follow(params, visitor_of(request), keys):
            yield [*shown, *out]
            shown = self._same()

    async def _follow(
        self, params: Params, visitor: str, keys: Mapping[str, str], *, fresh: bool = False, live: str | None = None
    ) -> AsyncIterator[tuple[Any, Any]]:
        """Streams (bar, stage) for one run; what the visitor watched before ends."""
        former = self._current.pop(visitor, None)
        if former is not None:
            await self.runner.stop(former, visitor)
        shown: str | None = None
        try:
            async for update in self.runner.subscribe(self.slug, params, visitor, fresh=fresh, live=live, secrets=keys):
                self._watch(visitor, update.run)
                picture = update.rendered if update.rendered is not shown and update.rendered is not None else gr.skip()
                shown = update.rendered
                yield self.bar_json(update, params), picture
        except InputError as error:
            yield fault(error), gr.skip()

    def _watch(self, visitor: str, run: str) -> None:
        self._current[visitor] = run
        while len(self._current) > VISITORS_KEPT:
            self._current.popitem(last=False)

    async def _on_stop(self, request: gr.Request) -> None:
        await self.runner.stop(self._current.get(visitor_of(request), ""), visitor_of(request))

    async def _on_pause(self, request: gr.Request) -> None:
        await self.runner.pause(self._current.get(visitor_of(request), ""), visitor_of(request))

    async def _on_resume(self, request: gr.Request) -> None:
        await self.runner.resume(self._current.get(visitor_of(request), ""), visitor_of(request))

    # what the bar shows ------------------------------------------------------------------------------------

    def link(self, params: Params) -> str | None:
        """The query of the shortest link to these params; None when they are too long for one."""
        equal = next((p.name for p in self.card.presets[1:] if not share.differences(self.method, params, p.name)), None)
        return share.query(self.method, params, equal)

    def bar_json(self, update: Update, params: Params) -> str:
        """The bar's JSON string for one update."""
        query = self.link(params)
        bar = {
            "beat": next(_BEATS),
            "state": update.state,
            "place": update.place,
            "progress": update.progress,
            "message": update.message,
            "source": update.source,
            "run": update.run,
            "stamp": update.made.stamp() if update.source == "cache" and update.made else None,
            "query": query or "",
            "href": f"/m/{self.slug}" + (f"?{query}" if query else ""),
            "error": update.error.to_dict() if update.error else None,
            "note": None,
        }
        if query is None:
            bar |= {"settings": share.settings(self.method, params), "note": "These settings are too long for a link; save them as a file instead."}
        return orjson.dumps(bar).decode()

    def idle(self, shared: share.Shared) -> str:
        """The bar's JSON string of a page just opened by a link: what of the link could not be taken."""
        missing = [f"The link names the file {u.name} but does not carry it; choose it again." for u in shared.params.uploads().values()]
        query = self.link(shared.params)
        bar = {"state": "idle", "progress": 0.0, "message": "", "source": "live", "run": None, "query": query or "", "href": f"/m/{self.slug}?{query or ''}"}
        return orjson.dumps(bar | {"note": " ".join([*shared.notes, *missing])}).decode()


def fault(error: InputError) -> str:
    """The bar's JSON string for bad input."""
    bar = {"beat": next(_BEATS), "state": "failed", "progress": 0.0, "message": str(error), "source": "live", "run": None}
    return json.dumps(bar | {"error": error.to_dict()})
