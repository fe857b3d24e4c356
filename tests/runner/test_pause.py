"""Pause and the places of the queue."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from backends import runs
from backends.contract import Context, Frame, InputError
from tests.fakes import Steps, eventually, fake, watch
from tests.runner.conftest import Make


@pytest.mark.parametrize("weight", ["cpu", "timing"])
def test_pause_alone_gives_the_place_back_at_once_and_resume_queues_again(lab: Make, weight: Any) -> None:
    held, other = Steps(), Steps()

    async def scene() -> None:
        lab_runner = lab(fake(held, slug="held", weight=weight), fake(other, slug="other", weight="timing"))
        ann = watch(lab_runner, "ann", "held")
        held.go()
        run = (await ann.until(lambda u: u.message == "step 1")).run
        bob = watch(lab_runner, "bob", "other")
        assert (await bob.until(lambda u: u.place is not None)).place == 1
        assert await lab_runner.pause(run, "ann")
        await ann.state("paused")
        await bob.state("running")  # the place and the timing lock are free
        assert await lab_runner.resume(run, "ann")
        await ann.until(lambda u: u.state == "queued" and u.place == 1)
        other.go(3)
        await bob.end()
        held.go(2)
        assert (await ann.end()).state == "done"
        assert held.runs == 1, "it went on where it was"

    asyncio.run(scene())


def test_pause_while_queued_leaves_the_line(lab: Make) -> None:
    busy, second, third = Steps(), Steps(), Steps()

    async def scene() -> None:
        lab_runner = lab(*(fake(s, slug=n, weight="cpu") for n, s in {"busy": busy, "second": second, "third": third}.items()))
        ann = watch(lab_runner, "ann", "busy")
        await ann.state("running")
        bob = watch(lab_runner, "bob", "second")
        run = (await bob.until(lambda u: u.place == 1)).run
        carl = watch(lab_runner, "carl", "third")
        await carl.until(lambda u: u.place == 2)
        await lab_runner.pause(run, "bob")
        await bob.state("paused")
        await carl.until(lambda u: u.place == 1)
        busy.go(3)
        await carl.state("running")
        assert not second.started.is_set()
        await lab_runner.resume(run, "bob")
        await bob.until(lambda u: u.state == "queued" and u.place == 1)
        third.go(3)
        second.go(3)
        assert (await bob.end()).state == "done"

    asyncio.run(scene())


def test_pause_while_others_watch_holds_only_the_pressers_view(lab: Make) -> None:
    steps = Steps()

    async def scene() -> None:
        lab_runner = lab(fake(steps))
        ann, bob = watch(lab_runner, "ann", n=4), watch(lab_runner, "bob", n=4)
        run = (await ann.state("running")).run
        await bob.state("running")
        await lab_runner.pause(run, "ann")
        assert "goes on" in (await ann.state("paused")).message
        held = len(ann.updates)
        for k in (1, 2, 3):
            steps.go()
            await bob.until(lambda u, k=k: u.message == f"step {k}")
        assert len(ann.updates) == held, "her view stands still"
        await lab_runner.resume(run, "ann")
        assert (await ann.state("running")).message == "step 3"
        await lab_runner.pause(run, "ann")
        await ann.state("paused")
        steps.go()
        assert (await bob.end()).state == "done"
        assert ann.updates[-1].state == "paused"
        assert await lab_runner.resume(run, "ann"), "a run that ended meanwhile is still hers to continue"
        assert (await ann.end()).state == "done"

    asyncio.run(scene())


def test_an_attaching_visitor_wakes_a_paused_run(lab: Make) -> None:
    steps = Steps()

    async def scene() -> None:
        lab_runner = lab(fake(steps, weight="cpu"))
        ann = watch(lab_runner, "ann")
        run = (await ann.state("running")).run
        await lab_runner.pause(run, "ann")
        await ann.state("paused")
        bob = watch(lab_runner, "bob")
        await bob.state("running")
        steps.go(3)
        assert (await bob.end()).state == "done"
        assert ann.updates[-1].state == "paused"
        await lab_runner.stop(run, "ann")
        assert (await ann.end()).state == "cancelled"
        assert steps.runs == 1

    asyncio.run(scene())


def test_a_paused_run_is_cancelled_after_its_limit_also_when_its_visitor_goes(lab: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runs.PAUSED_LIMIT_S == 600.0
    monkeypatch.setattr(runs, "PAUSED_LIMIT_S", 0.2)
    steps = Steps()

    async def scene() -> None:
        lab_runner = lab(fake(steps))
        for goes in (False, True):
            w = watch(lab_runner)
            run = (await w.state("running")).run
            await lab_runner.pause(run, "ann")
            await w.state("paused")
            if goes:
                await w.drop()  # the minute of a lost connection does not make the pause longer
                await eventually(lambda: not lab_runner._runs, 1.0)
            else:
                assert (await w.end()).state == "cancelled"

    asyncio.run(scene())


def test_a_run_paused_while_it_makes_a_shared_value_does_not_block_the_others(lab: Make) -> None:
    """Else A waits for the place that B holds, and B for the value that A makes: for ever."""
    making, finish = threading.Event(), threading.Event()

    def body(params: Any, context: Context) -> Iterator[Frame]:
        def make() -> int:
            if params.kind == "one":
                making.set()
                while not finish.is_set():
                    time.sleep(0.005)
                    context.check()
            return 5

        yield Frame(1.0, "done", {"v": context.memo("grid", ("shared", id(making)), make)})

    async def scene() -> None:
        lab_runner = lab(fake(body, weight="cpu"))
        ann = watch(lab_runner, "ann", kind="one")
        run = (await ann.state("running")).run
        await eventually(making.is_set)
        bob = watch(lab_runner, "bob", kind="two")
        await bob.state("queued")
        await lab_runner.pause(run, "ann")
        await eventually(lambda: bob.updates[-1].state != "queued")
        await lab_runner.resume(run, "ann")
        assert (await bob.end()).state == "done"
        finish.set()
        assert (await ann.end()).state == "done"

    asyncio.run(scene())


def test_light_goes_at_once_cpu_in_turn_and_the_places_are_shown(lab: Make) -> None:
    steps = {name: Steps() for name in ("a", "b", "c", "quick")}

    async def scene() -> None:
        lab_runner = lab(*(fake(s, slug=n, weight="light" if n == "quick" else "cpu") for n, s in steps.items()))
        a = watch(lab_runner, "v1", "a")
        await a.state("running")
        b = watch(lab_runner, "v2", "b")
        assert (await b.until(lambda u: u.place is not None)).place == 1
        c = watch(lab_runner, "v3", "c")
        assert (await c.until(lambda u: u.place is not None)).place == 2
        steps["quick"].go(3)
        assert (await watch(lab_runner, "v4", "quick").end()).state == "done"
        assert not steps["b"].started.is_set()
        steps["a"].go(3)
        await b.state("running")
        assert (await c.until(lambda u: u.place == 1)).state == "queued"
        steps["b"].go(3)
        assert (await c.state("running")).place is None
        steps["c"].go(3)
        await c.end()

    asyncio.run(scene())


def test_a_visitor_has_at_most_three_runs_waiting_also_when_the_tabs_are_closed(lab: Make) -> None:
    steps, quick = Steps(), Steps()

    async def scene() -> None:
        lab_runner = lab(fake(steps, weight="cpu"), fake(quick, slug="quick"))
        going = watch(lab_runner, seed=0)
        await going.state("running")
        waiting = [watch(lab_runner, seed=i) for i in (1, 2, 3)]
        for w in waiting:
            await w.until(lambda u: u.place is not None)
        await waiting[0].drop()
        with pytest.raises(InputError, match="3 runs waiting"):
            await watch(lab_runner, seed=4).end()
        await watch(lab_runner, "bob", seed=1).state("queued")  # others are free to attach
        many = [watch(lab_runner, slug="quick", seed=i) for i in range(6)]  # a light run never waits
        quick.go(18)
        assert {(await w.end()).state for w in many} == {"done"}
        await lab_runner.stop(waiting[1].updates[-1].run, "ann")
        await waiting[1].end()
        await watch(lab_runner, seed=4).state("queued")

    asyncio.run(scene())
