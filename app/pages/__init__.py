"""The pictures of each method: a module ``app.pages.<method>`` with ``views()`` and ``on_event()``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol, cast

from app.plotting import Changes, View
from backends.contract import Frame


class Page(Protocol):
    """What a page module offers."""

    def views(self, frame: Frame, params: Any) -> list[View]:
        """The pictures of this frame, the main one first; quick enough for ten frames a second."""

    def on_event(self, view: str, event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
        """What a click, a drag or an answer on a view means; None when it means nothing."""


def load(slug: str) -> Page:
    """The page of a registered method. Raises LookupError when it has none.

    >>> load("conformal-ksos").on_event("band", {"type": "click"}, {}) is None
    True
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug):
        raise LookupError(f"{slug!r} is not a method's slug")
    name = f"app.pages.{slug.replace('-', '_')}"
    try:
        return cast(Page, import_module(name))
    except ModuleNotFoundError as error:
        if error.name == name:
            raise LookupError(f"{slug} has no page; write {name.replace('.', '/')}.py with views() and on_event()") from None
        raise
