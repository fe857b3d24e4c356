"""All methods, found by walking the packages of ``backends/``.

Importing this, and listing the methods with their cards and params, loads neither torch nor any optional
package: a method's ``run`` is imported when it is first called.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import backends
from backends.contract import Card, Context, Frame, InputError, Params, Weight

THEMES = {
    "uncertainty": "Uncertainty",
    "look-inside": "Look inside",
    "images": "Images",
    "agents": "Agents",
    "code": "Code",
    "decisions": "Decisions",
    "adapt": "Adapt",
    "worlds": "Worlds",
}


@dataclass(frozen=True)
class Registered:
    """One method (see ``backends.contract.Method``); its code is imported at the first ``run``."""

    card: Card
    Params: type[Params]
    module: str
    _weight: Callable[[Any], Weight]

    def weight(self, params: Any) -> Weight:
        return self._weight(params)

    def run(self, params: Any, context: Context) -> Iterator[Frame]:
        run: Callable[[Any, Context], Iterator[Frame]] = importlib.import_module(f"{self.module}.method").run
        return run(params, context)

    @functools.cached_property
    def version(self) -> str:
        """Changes with the method's code and with what it stands on, so that no stored run outlives a correction."""
        root = Path(backends.__file__).parent
        folders = [root / self.card.package, root / "runtime", root.parent / "kernels"]
        digest = hashlib.sha256()
        for path in sorted(p for folder in folders for p in folder.rglob("*.py")):
            digest.update(path.read_bytes())
        return digest.hexdigest()[:10]


def _cpu(_: Any) -> Weight:
    return "cpu"


@functools.cache
def methods() -> dict[str, Registered]:
    """Every method by slug, sorted by theme and title. Raises ValueError for a card that contradicts its place."""
    found = {}
    for info in pkgutil.iter_modules(backends.__path__):
        if not info.ispkg or info.name == "runtime":
            continue
        module = f"backends.{info.name}"
        card_module = importlib.import_module(f"{module}.card")
        card: Card = card_module.CARD
        if card.package != info.name:
            raise ValueError(f"the card in {module} has the slug {card.slug}; its package must be named {card.package}")
        found[card.slug] = Registered(card, card_module.Params, module, getattr(card_module, "weight", _cpu))
    order = list(THEMES)
    return dict(sorted(found.items(), key=lambda item: (order.index(item[1].card.theme), item[1].card.title.lower())))


def get(slug: str) -> Registered:
    """The method of this slug; raises InputError that names near matches."""
    known = methods()
    if slug in known:
        return known[slug]
    near = difflib.get_close_matches(slug, known, n=3, cutoff=0.4)
    remedy = f"did you mean {' or '.join(near)}?" if near else "choose one of " + ", ".join(known)
    raise InputError("method", f"there is no method {slug[:60]!r}", remedy)


def by_theme() -> dict[str, list[Registered]]:
    """The registered methods of each theme that has any, in the themes' order."""
    groups: dict[str, list[Registered]] = {}
    for method in methods().values():
        groups.setdefault(method.card.theme, []).append(method)
    return groups
