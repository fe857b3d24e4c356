"""Stop, lost connections and coming back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from backends import runs
from backends.contract import Context, Frame
from tests.fakes import FakeParams, Steps, eventually, fake, watch
from tests.runner.conftest import Make


def test_stop_by_one_leaves_the_others_run_going_and_by_the_last_ends_it_within_a_second(lab: Make) -> None:
    steps = Steps()

    async def scene() -> None:
        lab_runner = lab(fake(steps, weight="cpu"))
        ann, bob = watch(lab_runner, "ann"), watch(lab_runner, "bob")
        run = (await ann.state("running")).run
        await bob.state("running")
        assert await lab_runner.stop(run, "ann")
        assert (await ann.end()).state == "cancelled"
        steps.go()
        await bob.until(lambda u: u.message == "step 1")
        assert not await lab_runner.stop(run, "carl"), "who does not watch cannot stop"
        assert not steps.ended.is_set()
        started = time.monotonic()
        assert await lab_runner.stop(run, "bob")
        assert (await bob.end()).state == "cancelled"
        await eventually(steps.ended.is_set, 1.0)
        await eventually(lambda: not lab_runner._runs, 1.0)
        assert time.monotonic() - started < 1.0
        assert lab_runner.stored("fake", FakeParams()) is None, "half a run is no result"
        assert not await lab_runner.stop(run, "bob")

    asyncio.run(scene())


def test_a_lost_connection_leaves_the_run_going_and_asking_again_attaches(lab: Make) -> None:
    steps = Steps()

    async def scene() -> None:
        lab_runner = lab(fake(steps))
        first = watch(lab_runner)
        steps.go()
        await first.until(lambda u: u.message == "step 1")
        await first.drop()
        again = watch(lab_runner)
        assert (await again.until(lambda u: True)).message == "step 1"
        await again.drop()
        steps.go(2)  # nobody watches: the result is kept all the same
        await eventually(lambda: not lab_runner._runs)
        assert (await watch(lab_runner).end()).source == "cache"
        assert steps.runs == 1

    asyncio.run(scene())


def test_a_run_that_nobody_watches_ends_after_the_grace(lab: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runs.GRACE_S == 60.0
    monkeypatch.setattr(runs, "GRACE_S", 0.15)
    steps = Steps()

    async def scene() -> None:
        lab_runner = lab(fake(steps))
        w = watch(lab_runner)
        await w.state("running")
        await w.drop()
        await asyncio.sleep(0.08)
        assert not steps.ended.is_set(), "a lost connection may come back"
        await eventually(steps.ended.is_set, 1.0)
        await eventually(lambda: not lab_runner._runs, 1.0)

    asyncio.run(scene())


def test_a_loop_that_closes_under_its_listener_counts_as_a_lost_connection(lab: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "GRACE_S", 0.1)
    steps = Steps()
    lab_runner = lab(fake(steps))
    loop = asyncio.new_event_loop()
    stream = lab_runner.subscribe("fake", FakeParams(n=99), "ann")
    assert loop.run_until_complete(anext(stream)).state in ("queued", "running")
    loop.close()  # no aclose: nobody tells the runner
    steps.go(3)

    async def scene() -> None:
        await eventually(steps.ended.is_set, 2.0)
        await eventually(lambda: not lab_runner._runs, 1.0)

    asyncio.run(scene())
    del stream


def test_closing_waits_until_a_run_has_put_its_things_away(lab: Make) -> None:
    left = []

    def body(params: Any, context: Context) -> Iterator[Frame]:
        try:
            while True:
                context.check()
                time.sleep(0.005)
        finally:
            time.sleep(0.2)  # as compiled code does that is in the middle of a layer
            left.append("away")
        yield  # a generator, as every method's run is

    async def scene() -> None:
        lab_runner = lab(fake(body))
        await watch(lab_runner).state("running")
        lab_runner.close()
        assert left == ["away"]

    asyncio.run(scene())
