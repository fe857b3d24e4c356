"""Visitors of tai in dialogues at once: everybody gets what a lone run gets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np

from backends import registry
from backends.contract import ContextSpec, Frame
from backends.runner import Runner
from backends.runtime.context import RunContext
from backends.tai.questions import content_id
from backends.validation import validate

METHOD = registry.get("tai")
ROUTE: dict[str, Any] = {"task": "navigation", "candidates": 24, "seed": 5}
VISITORS = 24


def alone(answers: list[list[str]]) -> Frame:
    params = validate(METHOD.Params, {**ROUTE, "answers": answers})
    *_, frame = METHOD.run(params, RunContext(ContextSpec(params.seed), scope="alone"))
    return frame


def test_visitors_in_dialogues_at_once_do_not_cross(tmp_path: Path) -> None:
    """Each visitor says something else, to one question of the table or another, all at the same time."""
    table = alone([]).data["questions"]
    said = [[row["id"], option] for row in table for option in (content_id(row["text"], row["options"][0]), "not-sure")][:VISITORS]
    assert len(said) == len({tuple(pair) for pair in said}) == VISITORS

    async def one(runner: Runner, number: int) -> Frame:
        params = validate(METHOD.Params, {**ROUTE, "answers": [said[number]]})
        updates = [update async for update in runner.subscribe("tai", params, f"visitor {number}")]
        assert updates[-1].state == "done"
        assert updates[-1].frame is not None
        return updates[-1].frame

    async def scene() -> list[Frame]:
        runner = Runner(folder=tmp_path)
        try:
            return list(await asyncio.gather(*(one(runner, number) for number in range(VISITORS))))
        finally:
            runner.close()

    for pair, frame in zip(said, asyncio.run(scene()), strict=True):
        lone = alone([pair])
        assert [[row["id"], row["reply"]["id"]] for row in frame.data["transcript"]] == [pair]
        assert {k: v for k, v in frame.metrics.items() if k != "seconds"} == {k: v for k, v in lone.metrics.items() if k != "seconds"}
        assert frame.data["question"] == lone.data["question"]
        assert frame.data["transcript"] == lone.data["transcript"]
        assert np.array_equal(frame.data["weights"], lone.data["weights"])
