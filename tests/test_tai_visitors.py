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
from backends.validation import validate

METHOD = registry.get("tai")
ROUTE: dict[str, Any] = {"task": "navigation", "candidates": 24, "seed": 5}
VISITORS, TURNS = 60, 2


def alone(answers: list[list[str]]) -> Frame:
    params = validate(METHOD.Params, {**ROUTE, "answers": answers})
    *_, frame = METHOD.run(params, RunContext(ContextSpec(params.seed), scope="alone"))
    return frame


def said_by(number: int, turn: int, question: dict[str, Any]) -> list[str]:
    """What a visitor says: another mixture of options and "not sure" for each."""
    choices = [*(option["id"] for option in question["options"]), "not-sure"]
    return [question["id"], choices[(number // 4**turn) % len(choices)]]


def test_visitors_in_dialogues_at_once_do_not_cross(tmp_path: Path) -> None:
    """Sixty play two turns each at the same time; whoever says the same shares a run, and nobody gets another's."""

    async def one(runner: Runner, number: int) -> tuple[list[list[str]], Frame]:
        answers: list[list[str]] = []
        while True:
            params = validate(METHOD.Params, {**ROUTE, "answers": answers})
            updates = [update async for update in runner.subscribe("tai", params, f"visitor {number}")]
            assert updates[-1].state == "done"
            frame = updates[-1].frame
            assert frame is not None
            assert [[row["id"], row["reply"]["id"]] for row in frame.data["transcript"]] == answers
            if len(answers) == TURNS or frame.data["question"] is None:
                return answers, frame
            answers = [*answers, said_by(number, len(answers), frame.data["question"])]

    async def scene() -> list[tuple[list[list[str]], Frame]]:
        runner = Runner(folder=tmp_path)
        try:
            return list(await asyncio.gather(*(one(runner, number) for number in range(VISITORS))))
        finally:
            runner.close()

    played = asyncio.run(scene())
    lone = {str(answers): alone(answers) for answers, _ in played}
    assert len(lone) > VISITORS / 5, "the visitors say different things"
    assert max(len(answers) for answers, _ in played) == TURNS
    for answers, frame in played:
        mine = lone[str(answers)]
        assert {k: v for k, v in frame.metrics.items() if k != "seconds"} == {k: v for k, v in mine.metrics.items() if k != "seconds"}
        assert frame.data["question"] == mine.data["question"]
        assert frame.data["transcript"] == mine.data["transcript"]
        assert np.array_equal(frame.data["weights"], mine.data["weights"])
