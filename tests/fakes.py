"""Methods made for tests: short, driven by the test instead of the clock, registered only while a test runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from pydantic import Field

from backends import contract
from backends.contract import Card, Context, Frame, Metric, Paper, Preset, Step, Upload, Weight
from backends.registry import Registered
from backends.runner import Runner, Update

WAIT_S = 5.0  # a test that waits longer has failed
Body = Callable[[Any, Context], Iterator[Frame]]


class FakeParams(contract.Params):
    """A field of each common kind."""

    n: int = Field(3, ge=1, le=1000, description="Number of frames")
    level: float = Field(0.1, ge=0.01, le=0.3, description="Level", json_schema_extra={"live": True})
    kind: Literal["one", "two"] = Field("one", description="Which one")
    note: str = Field("", max_length=200, description="A private note", json_schema_extra={"private": True})
    csv: Upload | None = Field(None, description="A file")


def card(slug: str = "fake", presets: Mapping[str, Mapping[str, Any]] | None = None) -> Card:
    """A complete card; the first preset is the default."""
    made = tuple(Preset(name, name.capitalize(), params, 1.0) for name, params in (presets or {"default": {}, "long": {"n": 100}}).items())
    return Card(
        slug=slug,
        title="Fake method",
        theme="uncertainty",
        paper=Paper("A paper", "A. Author", "https://example.org"),
        aha="One slider ties two things together.",
        how="How.",
        reconstructed="All.",
        metrics={"k": Metric("", "frames so far")},
        presets=made,
        exercise=(Step(made[0].name, "Why?", "Because."),) * 3,
        claims=(),
        cheap={"n": 1},
    )


@dataclass(frozen=True)
class Fake(Registered):
    """A registered method whose code is a function of the test."""

    body: Body = field(default=lambda params, context: iter(()))
    version = "v1"

    def run(self, params: Any, context: Context) -> Iterator[Frame]:
        return self.body(params, context)


def fake(body: Body, *, slug: str = "fake", weight: Weight = "light", params: type[contract.Params] = FakeParams, **more: Any) -> Fake:
    """A method of this body; ``more`` goes to the card."""
    return Fake(card(slug, **more), params, f"backends.{slug}", lambda _: weight, body)


def frame(k: int, n: int, **data: Any) -> Frame:
    return Frame(k / n, f"step {k}", {"k": k}, data)


class Steps:
    """A method that gives one frame for each ``go()``; counts its runs and says when it started and ended."""

    def __init__(self) -> None:
        self.started, self.ended = threading.Event(), threading.Event()
        self.runs = 0
        self._tickets = threading.Semaphore(0)
        self._lock = threading.Lock()

    @classmethod
    def ready(cls, number: int) -> Steps:
        """Steps of which the first ``number`` need no pushing."""
        steps = cls()
        steps.go(number)
        return steps

    def go(self, number: int = 1) -> None:
        self._tickets.release(number)

    def __call__(self, params: Any, context: Context) -> Iterator[Frame]:
        with self._lock:
            self.runs += 1
        self.ended.clear()
        self.started.set()
        try:
            for k in range(1, params.n + 1):
                while not self._tickets.acquire(timeout=0.005):
                    context.check()
                yield frame(k, params.n, x=np.arange(k))
        finally:
            self.ended.set()


class Watch:
    """One visitor's subscription, collected by a task of the running loop."""

    def __init__(self, stream: AsyncIterator[Update]) -> None:
        self.updates: list[Update] = []
        self._stream = stream
        self.task = asyncio.create_task(self._collect())

    async def _collect(self) -> list[Update]:
        async for update in self._stream:
            self.updates.append(update)
        return self.updates

    async def until(self, wanted: Callable[[Update], bool]) -> Update:
        """The newest update once ``wanted`` holds for it."""
        deadline = time.monotonic() + WAIT_S
        while not (self.updates and wanted(self.updates[-1])):
            if self.task.done():
                self.task.result()
                raise AssertionError(f"the stream ended with {self.updates[-1:]}")
            assert time.monotonic() < deadline, f"waited {WAIT_S} s; last is {self.updates[-1:]}"
            await asyncio.sleep(0.005)
        return self.updates[-1]

    async def state(self, state: str) -> Update:
        return await self.until(lambda u: u.state == state)

    async def end(self) -> Update:
        return (await asyncio.wait_for(asyncio.shield(self.task), WAIT_S))[-1]

    async def drop(self) -> None:
        """The connection is lost: nobody pressed Stop."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def watch(runner: Runner, visitor: str = "ann", slug: str = "fake", *, fresh: bool = False, live: str | None = None, **values: Any) -> Watch:
    """Subscribes a visitor to the run of these params."""
    return Watch(runner.subscribe(slug, FakeParams(**values), visitor, fresh=fresh, live=live))


async def eventually(holds: Callable[[], bool], within_s: float = WAIT_S) -> None:
    """Waits until ``holds()``."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"did not come true within {within_s} s"
        await asyncio.sleep(0.005)
