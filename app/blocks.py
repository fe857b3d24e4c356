"""Gradio's Blocks for many visitors: a leaner page that opens on the method it was asked for, and a first event that does not build
every component anew."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, cast
from urllib.parse import parse_qs

import gradio as gr
from gradio.blocks import Block, BlocksConfig
from gradio.components import Component
from gradio.renderable import Renderable
from starlette.types import ASGIApp, Receive, Scope, Send

from app.preview import said_of

_asked: ContextVar[str | None] = ContextVar("asked", default=None)  # the method that the request at hand names

# What a page never reads: types for API callers (a file's alone are 4 kB), ids of custom components, keys of re-renders.
_UNREAD = ("api_info", "api_info_as_input", "api_info_as_output", "example_inputs", "component_class_id", "key")
_UNREAD_PROPS = ("_retryable", "_undoable", "likeable", "streamable", "preserved_by_key", "component_class_name")


class KeptConfig(BlocksConfig):
    """A configuration that remembers what each component's entry looks like.

    Gradio makes the entry of every component of every page at a visitor's first event, by inspecting signatures:
    30 ms a visitor with one method, most of what sixty visitors cost the server. Only a component that was replaced
    for a visitor needs a new entry.
    """

    entries: dict[int, tuple[Block, dict[str, Any]]]

    def __copy__(self) -> KeptConfig:
        new = super().__copy__()
        new.__class__ = KeptConfig
        new.entries = self.entries
        return new

    def config_for_block(  # type: ignore[override]  # static there, but always called on the instance
        self, _id: int, rendered_ids: list[int], block: Block | Component, renderable: Renderable | None = None
    ) -> dict[Any, Any]:
        kept = self.entries.get(_id)
        if kept is None or kept[0] is not block or renderable is not None:
            return super().config_for_block(_id, rendered_ids, block, renderable)
        return {**kept[1], "props": dict(kept[1]["props"])}  # Gradio writes a visitor's values into the props


class MethodOfRequest:
    """ASGI middleware: remembers the method that a request's address names (``_m``) while the request is answered."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        named = parse_qs(scope["query_string"].decode("latin-1")).get("_m") if scope["type"] == "http" else None
        token = _asked.set(named[0] if named else None)
        try:
            await self.app(scope, receive, send)
        finally:
            _asked.reset(token)


class LabBlocks(gr.Blocks):
    """Gradio's Blocks with a leaner page configuration: each page load copies and sends all of it."""

    @property
    def config(self) -> Any:
        """What Gradio sends with a page. The tab of the method that the address names is chosen in it: chosen by the page's load event, the
        theme's first method would be seen before it, and a Run pressed at once would be that one's. Words for a preview of the link too."""
        named = _asked.get()
        page = {**self._config, **said_of(named)}
        tabs = self._tabs_of.get(named) if named else None
        if tabs is None:
            return page
        chosen = [{**c, "props": {**c["props"], "selected": named}} if c["id"] == tabs else c for c in self._config["components"]]
        return {**page, "components": chosen}

    @config.setter
    def config(self, value: Any) -> None:
        self._config = value
        parents = [block for block in self.blocks.values() if isinstance(block, gr.Tabs)]
        self._tabs_of = {child.id: tabs._id for tabs in parents for child in tabs.children if isinstance(child, gr.Tab)}

    def keep_configs(self) -> None:
        """Called once, when all pages are built."""
        config = self.default_config
        entries = {_id: (block, config.config_for_block(_id, [], block)) for _id, block in config.blocks.items()}
        kept = cast(KeptConfig, config)
        kept.__class__ = KeptConfig
        kept.entries = entries

    def get_config_file(self) -> Any:
        config = super().get_config_file()
        public = {c._id for fn in self.fns.values() if fn.api_visibility != "private" for c in (*fn.inputs, *fn.outputs)}
        for component in config["components"]:
            if component["id"] not in public:
                for name in _UNREAD:
                    component.pop(name, None)
                for name in _UNREAD_PROPS:
                    component["props"].pop(name, None)
        for event in config["dependencies"]:
            if event["api_visibility"] == "private":
                for name in [k for k, v in event.items() if v is None]:
                    del event[name]
        return config
