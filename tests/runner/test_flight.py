"""Single flight, newest frame, replays: sixty visitors cost one run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from backends import runs
from backends.contract import Context, Frame
from tests.fakes import FakeParams, Steps, fake, watch
from tests.runner.conftest import Make


def test_sixty_visitors_cost_one_computation_and_one_rendering_a_frame(lab: Make) -> None:
    steps, drawn = Steps(), []

    def render(slug: str, shown: Frame, params: Any) -> str:
        drawn.append((shown.message, threading.current_thread().name))
        return f"views of {shown.message}"

    async def scene() -> None:
        lab_runner = lab(fake(steps, weight="cpu"), render=render)
        watches = [watch(lab_runner, f"visitor {i}") for i in range(60)]
        for k in (1, 2, 3):
            steps.go()
            for w in watches:
                await w.until(lambda u, k=k: u.frame is not None and u.frame.metrics["k"] == k)
        ends = [await w.end() for w in watches]
        assert steps.runs == lab_runner.computations == 1
        assert {e.state for e in ends} == {"done"}
        assert len({id(e.rendered) for e in ends}) == 1, "one string object for all"
        assert [message for message, _ in drawn] == ["step 1", "step 2", "step 3"]
        assert all(name.startswith("run ") for _, name in drawn), "drawn in the computing thread"

    asyncio.run(scene())


def test_a_newcomer_gets_the_newest_frame_at_once_and_a_slow_one_only_the_newest(lab: Make) -> None:
    steps = Steps()

    async def scene() -> None:
        lab_runner = lab(fake(steps))
        first = watch(lab_runner, "ann", n=9)
        steps.go(2)
        await first.until(lambda u: u.message == "step 2")
        slow = lab_runner.subscribe("fake", FakeParams(n=9), "bob")
        newcomer = await anext(slow)
        assert newcomer.message == "step 2"
        assert newcomer.frame is not None
        for k in range(3, 7):  # bob does not ask for more
            steps.go()
            await first.until(lambda u, k=k: u.message == f"step {k}")
        assert (await anext(slow)).message == "step 6"
        await slow.aclose()

    asyncio.run(scene())


def test_progress_that_falls_does_not_fall_on_the_page(lab: Make) -> None:
    def body(params: Any, context: Context) -> Iterator[Frame]:
        for progress in (0.5, 0.2, 0.9):
            yield Frame(progress, "on the way")
            time.sleep(runs.FRAME_INTERVAL_S + 0.02)

    async def scene() -> None:
        w = watch(lab(fake(body)))
        await w.end()
        seen = [u.progress for u in w.updates]
        assert seen == sorted(seen)
        assert seen[-1] == 1.0

    asyncio.run(scene())


def test_frames_are_copies_that_nobody_can_change(lab: Make) -> None:
    x = np.zeros(3)

    def body(params: Any, context: Context) -> Iterator[Frame]:
        yield Frame(0.5, "first", {}, {"x": x, "nested": {"list": [x]}})
        x[:] = 7.0
        time.sleep(runs.FRAME_INTERVAL_S + 0.02)
        context.check()
        yield Frame(1.0, "second", {}, {"x": x})

    async def scene() -> None:
        lab_runner = lab(fake(body))
        w = watch(lab_runner)
        await w.end()
        first = next(u.frame for u in w.updates if u.frame is not None and u.message == "first")
        replayed = (await watch(lab_runner).end()).frame
        lab_runner.store._recent.clear()
        from_disk = (await watch(lab_runner).end()).frame
        assert replayed is not None
        assert from_disk is not None
        for array in (first.data["x"], first.data["nested"]["list"][0], replayed.data["x"], from_disk.data["x"]):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1.0
        assert first.data["x"].tolist() == [0, 0, 0]

    asyncio.run(scene())


def test_a_replay_is_marked_costs_nothing_and_ends_within_two_seconds_even_when_drawing_is_slow(lab: Make) -> None:
    steps = Steps()

    def render(slug: str, shown: Frame, params: Any) -> str:
        if threading.current_thread().name.startswith("run "):
            return "live"
        time.sleep(0.15)  # 24 of these are 3.6 s
        return f"views of {shown.message}"

    async def scene() -> None:
        lab_runner = lab(fake(steps), render=render)
        steps.go(100)
        live = await watch(lab_runner, n=100).end()
        assert (live.source, live.state) == ("live", "done")
        assert live.made is not None
        started = time.monotonic()
        replay = watch(lab_runner, "bob", n=100)
        last = await replay.end()
        assert time.monotonic() - started < 2.2
        assert steps.runs == 1
        assert {u.source for u in replay.updates} == {"cache"}
        assert all(u.made == live.made for u in replay.updates)
        assert last.made is not None
        assert "computed" in last.made.stamp()
        assert last.frame is not None
        assert last.frame.metrics == {"k": 100}
        assert last.rendered == "views of step 100"
        assert 3 <= len(replay.updates) <= 25

    asyncio.run(scene())


def test_fresh_computes_again_and_replaces_what_was_stored(lab: Make) -> None:
    runs_done = []

    def body(params: Any, context: Context) -> Iterator[Frame]:
        runs_done.append(1)
        yield Frame(1.0, "done", {"run": len(runs_done)})

    async def scene() -> None:
        lab_runner = lab(fake(body))
        found = [await watch(lab_runner, fresh=fresh).end() for fresh in (False, False, True, False)]
        assert [(u.frame.metrics["run"], u.source) for u in found if u.frame] == [(1, "live"), (1, "cache"), (2, "live"), (2, "cache")]
        stored = lab_runner.stored("fake", FakeParams())
        assert stored is not None
        assert stored.frames[-1].metrics == {"run": 2}

    asyncio.run(scene())


def test_a_replay_that_cannot_be_drawn_fails_in_plain_words(lab: Make) -> None:
    def render(slug: str, shown: Frame, params: Any) -> str:
        if threading.current_thread().name.startswith("run "):
            return "live"
        raise KeyError("/secret/path.py")

    async def scene() -> None:
        lab_runner = lab(fake(Steps.ready(1)), render=render)
        await watch(lab_runner, n=1).end()
        last = await watch(lab_runner, n=1).end()
        assert last.state == "failed"
        assert "/secret" not in last.message

    asyncio.run(scene())
