"""A small method that keeps the whole contract, and ways to break it: each check must catch what it is there for.

Nothing of this is registered; ``installed`` puts a fake and its page in place while a test runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pydantic
from pydantic import Field

from app.plotting import Changes, Figure, View, axis, layout, line
from backends import contract, registry
from backends.contract import Card, Claim, Context, Frame, InputError, Metric, Paper, Preset, Step, Upload, Weight

STEP_S = 0.01
Body = Callable[[Any, Context], Iterator[Frame]]
SEEN: list[int] = []  # a planted violation writes here


class GoodParams(contract.Params):
    """One field of each common kind."""

    steps: int = Field(30, ge=2, le=60, description="Steps of the walk")
    scale: float = Field(1.0, ge=0.1, le=10, description="Length of a step", json_schema_extra={"live": True, "scale": "log", "unit": "m"})
    source: Literal["walk", "table"] = Field("walk", description="Where the numbers come from")
    note: str = Field("", max_length=40, description="Word under the picture")
    table: Upload | None = Field(None, description="Numbers, one a line")


def walk(context: Context, params: Any) -> np.ndarray:
    """(steps,) positions of a random walk, before the live scale."""
    if params.source == "table":
        if params.table is None:
            raise InputError("table", "no file was chosen", "choose a file of numbers")
        text = params.table.read("table").decode("utf-8", errors="replace")
        found = [word for word in text.replace(",", "\n").split() if word.replace(".", "", 1).lstrip("-").isdigit()]
        if len(found) < 2:
            raise InputError("table", "the file has fewer than two numbers", "choose a file of numbers")
        return np.cumsum(np.array(found[: params.steps], float))
    return np.cumsum(np.random.default_rng(params.seed).normal(size=params.steps))


def made_by(n: int) -> dict[str, Any]:
    return {"model": "random walk", "data": "generated", "size": f"{n} steps", "device": "CPU"}


def good_run(params: Any, context: Context) -> Iterator[Frame]:
    started = time.monotonic()
    positions = context.memo("walk", (params.source, params.table, params.steps, params.seed), lambda: walk(context, params)) * params.scale
    number = len(positions)
    first = number if context.live else 1
    for n in range(first, number + 1):
        context.check()
        if not context.live:
            time.sleep(STEP_S)
        shown = positions[:n]
        metrics = {"end": float(shown[-1]), "longest": float(np.abs(shown).max()), "seconds": time.monotonic() - started}
        yield Frame(n / number, f"step {n}", metrics, {"made_by": made_by(number), "positions": shown, "note": params.note})


GOOD_CARD = Card(
    slug="contract-fake",
    title="A walk",
    theme="uncertainty",
    paper=Paper("A paper", "A. Author", "https://example.org/paper"),
    aha="Each step adds to the last.",
    how="Steps are added.",
    reconstructed="Nothing.",
    metrics={
        "end": Metric("m", "where the walk ends"),
        "longest": Metric("m", "how far it came", "lower"),
        "seconds": Metric("s", "wall time", "lower", "measured"),
    },
    presets=(Preset("default", "A walk", {}, 0.6), Preset("short", "Where it fails: two steps", {"steps": 2}, 0.2, fails=True)),
    exercise=(Step("default", "Where does it end?", "Somewhere."), Step("short", "And now?", "Near."), Step("default", "Why?", "Chance.")),
    claims=(Claim("end", "The walk ends near zero", 0.0, "30 steps", "example", "default", "end", 100.0),),
    cheap={"steps": 5},
)


def good_views(frame: Frame, params: Any) -> list[View]:
    positions = np.asarray(frame.data["positions"], float)
    plot = layout(axis("step", "count"), axis("position", "m"))
    return [Figure("walk", "The walk", [line(np.arange(len(positions)), positions, "walk")], plot, f"The walk after {len(positions)} steps.", "main")]


def good_event(view: str, event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    x = event.get("x")
    if view != "walk" or isinstance(x, bool) or not isinstance(x, int | float) or not 2 <= x <= 60:
        return None
    return Changes({"steps": round(x)}, run=True)


@dataclass(frozen=True, eq=False)
class Fake:
    """A method, and its page, that a test can break one part of."""

    card: Card = GOOD_CARD
    Params: type[contract.Params] = GoodParams
    body: Body = good_run
    version: str = "v1"
    views: Callable[[Frame, Any], list[View]] = good_views
    on_event: Callable[[str, Mapping[str, Any], Mapping[str, Any]], Any] = good_event
    weighs: Weight = "cpu"
    imports: frozenset[str] = field(default_factory=frozenset)

    def weight(self, params: Any) -> Weight:
        return self.weighs

    def run(self, params: Any, context: Context) -> Iterator[Frame]:
        return self.body(params, context)


@contextlib.contextmanager
def installed(fake: Fake) -> Iterator[Fake]:
    """The fake as the only registered method, with its page importable."""
    page = types.ModuleType(f"app.pages.{fake.card.package}")
    page.views, page.on_event = fake.views, fake.on_event  # type: ignore[attr-defined]
    former = registry.methods
    sys.modules[page.__name__] = page
    registry.methods = lambda: {fake.card.slug: fake}  # type: ignore[assignment, dict-item, return-value]
    try:
        yield fake
    finally:
        registry.methods = former
        del sys.modules[page.__name__]


# --------------------------------------------------------------------------------------------- ways to break it


def with_card(**changes: Any) -> Fake:
    return Fake(card=dataclasses.replace(GOOD_CARD, **changes))


def with_field(name: str = "extra", annotation: Any = float, **options: Any) -> Fake:
    """One more field; without ``description`` or bounds where these are not given."""
    default = options.pop("default", 0.5)
    model = pydantic.create_model("Broken", __base__=GoodParams, **{name: (annotation, Field(default, **options))})
    return Fake(Params=model)


def with_frames(change: Callable[[Frame, int], Frame | None]) -> Fake:
    """Each frame passes through ``change(frame, number)``; None leaves it out."""

    def body(params: Any, context: Context) -> Iterator[Frame]:
        for number, frame in enumerate(good_run(params, context)):
            changed = change(frame, number)
            if changed is not None:
                yield changed

    return Fake(body=body)


def with_metrics(**more: Any) -> Fake:
    return with_frames(lambda frame, _: dataclasses.replace(frame, metrics={**frame.metrics, **more}))


def with_data(**more: Any) -> Fake:
    return with_frames(lambda frame, _: dataclasses.replace(frame, data={**frame.data, **more}))


def before_run(act: Callable[[Any, Context], Any]) -> Fake:
    """``act`` is called before the good run."""

    def body(params: Any, context: Context) -> Iterator[Frame]:
        act(params, context)
        yield from good_run(params, context)

    return Fake(body=body)


def end_metric(value: Callable[[Any, Context], float]) -> Fake:
    """The metric ``end`` is what ``value`` says, once a run."""

    def body(params: Any, context: Context) -> Iterator[Frame]:
        end = value(params, context)
        for frame in good_run(params, context):
            yield dataclasses.replace(frame, metrics={**frame.metrics, "end": end})

    return Fake(body=body)


def ignores_stop(params: Any, context: Context) -> Iterator[Frame]:
    """Works for a second and a half without asking."""
    yield from good_run(params.model_copy(update={"steps": 2}), context)
    time.sleep(1.5)


def leaves_a_thread(params: Any, context: Context) -> None:
    threading.Thread(target=time.sleep, args=(3.0,), name="left behind", daemon=True).start()


def ends_when_paused(params: Any, context: Context) -> Iterator[Frame]:
    """Goes on after a pause with another result."""
    paused = 0
    for frame in good_run(params, context):
        started = time.monotonic()
        context.check()
        paused += time.monotonic() - started > 0.2
        yield dataclasses.replace(frame, metrics={**frame.metrics, "end": float(paused)})


def late(seconds: float) -> Fake:
    return before_run(lambda params, context: time.sleep(seconds))


def counts_runs(params: Any, context: Context) -> float:
    """Depends on what was run before."""
    seen: list[int] = context.memo("runs", "all", list)
    seen.append(1)
    return float(len(seen))


def shared_scratch() -> Fake:
    """Two runs at once write into one array."""
    scratch = np.zeros(1)

    def body(params: Any, context: Context) -> Iterator[Frame]:
        scratch[0] = params.seed
        for frame in good_run(params, context):
            yield dataclasses.replace(frame, metrics={**frame.metrics, "end": float(scratch[0])})

    return Fake(body=body)


def live_differs() -> Fake:
    return end_metric(lambda params, context: 1.0 if context.live else 2.0)


def draws_globally(params: Any, context: Context) -> None:
    random.random()


def reuses_its_array() -> Fake:
    """Every frame holds the same object, which later steps change."""

    class Box:
        def __init__(self) -> None:
            self.value = 0

        def __reduce__(self) -> Any:
            return int, (self.value,)

    def body(params: Any, context: Context) -> Iterator[Frame]:
        box = Box()
        for frame in good_run(params, context):
            box.value += 1
            yield dataclasses.replace(frame, data={**frame.data, "box": box})

    return Fake(body=body)
