"""``python -m tests.benchmarks.busy PORT``: the lab with one more method, in pure Python, that never lets go of the interpreter.

A part of the visitors benchmark only: the method is registered in this process and has no page.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from app import render, server
from backends import registry
from backends.contract import Card, Context, Frame, Metric, Paper, Params, Preset, Step
from backends.registry import Registered
from backends.runner import Runner

BUSY_SECONDS = 25.0
BUSY_TOOL = "busy_python_run"
FRAME_S = 0.25

CARD = Card(
    slug="busy-python",
    title="Busy Python",
    theme="uncertainty",
    paper=Paper("None", "Nobody", "https://example.org"),
    aha="It counts.",
    how="It counts.",
    reconstructed="Nothing.",
    metrics={"counted": Metric("count", "numbers added", kind="measured")},
    presets=(Preset("default", "Count", {}, BUSY_SECONDS),),
    exercise=(Step("default", "How far?", "Far."),),
    claims=(),
    cheap={},
)


@dataclass(frozen=True)
class Busy(Registered):
    """Adds numbers one by one for ``BUSY_SECONDS``."""

    version = "1"

    def run(self, params: Any, context: Context) -> Iterator[Frame]:
        started = time.monotonic()
        counted = 0
        while (elapsed := time.monotonic() - started) < BUSY_SECONDS:
            until = time.monotonic() + FRAME_S
            while time.monotonic() < until:
                counted += sum(range(1000))
            context.check()
            yield Frame(min(elapsed / BUSY_SECONDS, 1.0), "counting", {"counted": counted})


def main() -> None:
    import uvicorn

    known = dict(registry.methods())
    # It takes no place in the queue: what is measured is the interpreter that it holds, not the line.
    known[CARD.slug] = Busy(CARD, Params, "tests.benchmarks.busy", lambda _: "light")
    registry.methods = lambda: known  # type: ignore[assignment]
    runner = Runner(lambda slug, frame, params: "{}" if slug == CARD.slug else render.render(slug, frame, params))
    uvicorn.run(server.create_app(runner), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", timeout_graceful_shutdown=3)


if __name__ == "__main__":
    main()
