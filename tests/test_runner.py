"""The runner, sentence by sentence: single flight, replay, stop, pause, weights, live runs, faults, leaks."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends import registry, runner, runs
from backends.contract import Context, Frame, InputError, Upload
from backends.runner import Runner
from backends.runtime import memo, threads
from tests.fakes import FakeParams, Steps, eventually, fake, frame, watch

Make = Callable[..., Runner]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes a runner with one cpu place that knows the given fakes and nothing else."""
    made: list[Runner] = []
    monkeypatch.setattr(threads, "cores", lambda: 2)
    monkeypatch.setattr(runner, "JANITOR_S", 0.02)

    def make(*fakes: Any, render: Any = None) -> Runner:
        known = {f.card.slug: f for f in fakes}
        monkeypatch.setattr(registry, "methods", lambda: known)
        made.append(Runner(render, folder=tmp_path))
        return made[-1]

    yield make
    for one in made:
        one.close()


# single flight and newest frame -------------------------------------------------------------------------------


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


# replay -------------------------------------------------------------------------------------------------------


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
        lab_runner = lab(fake(Steps_of(1)), render=render)
        await watch(lab_runner, n=1).end()
        last = await watch(lab_runner, n=1).end()
        assert last.state == "failed"
        assert "/secret" not in last.message

    asyncio.run(scene())


def Steps_of(number: int) -> Steps:  # noqa: N802 - a maker of Steps that need no pushing
    steps = Steps()
    steps.go(number)
    return steps


# stop, lost connections, reconnecting -------------------------------------------------------------------------


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


# pause --------------------------------------------------------------------------------------------------------


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


# places -------------------------------------------------------------------------------------------------------


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


# live runs ----------------------------------------------------------------------------------------------------


def test_a_live_run_is_never_stored_and_the_newest_replaces_the_older(lab: Make) -> None:
    steps, seen = Steps(), []

    def body(params: Any, context: Context) -> Iterator[Frame]:
        seen.append(context.live)
        yield from steps(params.model_copy(update={"n": 1}) if context.live else params, context)

    async def scene() -> None:
        lab_runner = lab(fake(body, weight="timing"))
        older = watch(lab_runner, live="level", level=0.1)
        await older.state("running")
        newer = watch(lab_runner, live="level", level=0.2)
        assert (await older.end()).state == "cancelled"
        other = watch(lab_runner, "bob", live="level", level=0.1)  # of another visitor: left alone
        await other.state("running")
        steps.go(2)
        for w in (newer, other):
            assert (await w.end()).state == "done"
            assert len({id(u.frame) for u in w.updates if u.frame is not None}) == 1
        assert seen == ["level"] * 3
        assert all(lab_runner.stored("fake", FakeParams(level=x)) is None for x in (0.1, 0.2))
        assert not lab_runner._live

    asyncio.run(scene())


# faults -------------------------------------------------------------------------------------------------------


def _raises(error: BaseException) -> Any:
    def body(params: Any, context: Context) -> Iterator[Frame]:
        yield frame(1, 2)
        raise error

    return body


def _nothing(params: Any, context: Context) -> Iterator[Frame]:
    return iter(())


def _no_frame(params: Any, context: Context) -> Any:
    return iter(["no frame"])


def _nan(params: Any, context: Context) -> Iterator[Frame]:
    yield Frame(1.0, "done", {"v": float("nan")})


def _at_call(params: Any, context: Context) -> Iterator[Frame]:
    raise OSError("/etc/hidden/path")


@pytest.mark.parametrize("live", [None, "level"])
@pytest.mark.parametrize(
    "body",
    [_raises(RuntimeError("/srv/x.py\nline 2")), _raises(SystemExit(1)), _raises(KeyboardInterrupt()), _nothing, _no_frame, _nan, _at_call],
)
def test_any_fault_ends_the_run_in_one_plain_line(lab: Make, capfd: pytest.CaptureFixture[str], body: Any, live: str | None) -> None:
    async def scene() -> None:
        lab_runner = lab(fake(body, weight="cpu"))
        last = await watch(lab_runner, live=live).end()
        assert last.state == "failed"
        assert last.error is not None
        assert last.message.startswith("run: the computation failed (")
        for forbidden in ("/", "\n", "Traceback", "line 2"):
            assert forbidden not in last.message
        assert not lab_runner._runs
        assert lab_runner.stored("fake", FakeParams()) is None
        assert (await watch(lab_runner, live=live).end()).state == "failed"  # the place is free and the fault was not kept

    asyncio.run(scene())
    assert "Traceback" in capfd.readouterr().err, "the operator sees all of it"


def test_an_input_error_passes_through_in_one_line(lab: Make) -> None:
    async def scene() -> None:
        last = await watch(lab(fake(_raises(InputError("csv", "line 3:\nno number", "put one there"))))).end()
        assert (last.state, last.error.field if last.error else None) == ("failed", "csv")
        assert last.message == "csv: line 3: no number; put one there"

    asyncio.run(scene())


@pytest.mark.parametrize("data", [{"lock": threading.Lock()}, {"call": lambda: None}])
def test_a_result_that_cannot_be_stored_still_reaches_the_visitor(lab: Make, data: Any) -> None:
    async def scene() -> None:
        lab_runner = lab(fake(lambda params, context: iter([Frame(1.0, "done", {}, data)])))
        last = await watch(lab_runner).end()
        assert (last.state, last.message) == ("done", "done")
        assert not lab_runner._runs

    asyncio.run(scene())


def test_a_picture_that_cannot_be_drawn_fails_the_run_even_in_a_method_that_swallows_exceptions(lab: Make) -> None:
    def body(params: Any, context: Context) -> Iterator[Frame]:
        yield frame(1, 3)
        for _ in range(100):
            try:
                time.sleep(0.01)
                context.check()
            except Exception:  # noqa: BLE001 - the very thing under test
                pass
        yield frame(3, 3)

    def render(slug: str, shown: Frame, params: Any) -> str:
        raise KeyError("/srv/page.py")

    async def scene() -> None:
        last = await watch(lab(fake(body), render=render)).end()
        assert last.state == "failed"
        assert "/srv" not in last.message

    asyncio.run(scene())


def test_a_method_that_swallows_exceptions_and_cleans_up_slowly_is_stopped_all_the_same(lab: Make) -> None:
    cleaned = threading.Event()

    def body(params: Any, context: Context) -> Iterator[Frame]:
        try:
            while True:
                try:
                    context.check()
                    time.sleep(0.005)
                except Exception:  # noqa: BLE001 - Stopped is no Exception
                    pass
        finally:
            time.sleep(0.4)
            cleaned.set()
        yield frame(1, 1)

    async def scene() -> None:
        lab_runner = lab(fake(body, weight="cpu"), fake(Steps_of(3), slug="next", weight="cpu"))
        w = watch(lab_runner)
        run = (await w.state("running")).run
        started = time.monotonic()
        await lab_runner.stop(run, "ann")
        assert (await w.end()).state == "cancelled"
        assert time.monotonic() - started < 0.3, "the visitor does not wait for the cleaning"
        assert (await watch(lab_runner, slug="next").end()).state == "done"
        assert cleaned.is_set(), "the place is given back after the cleaning"

    asyncio.run(scene())


def test_a_method_that_never_checks_ends_at_its_next_frame_and_answers_a_stop_at_once(lab: Make) -> None:
    """The most that threads allow: the visitor is free at once, the place only when the method comes back."""
    wait, closed = threading.Event(), threading.Event()

    def body(params: Any, context: Context) -> Iterator[Frame]:
        try:
            for k in range(1, 100):
                wait.wait(5)
                yield frame(k, 100)
        finally:
            closed.set()

    async def scene() -> None:
        lab_runner = lab(fake(body, weight="cpu"))
        w = watch(lab_runner)
        run = (await w.state("running")).run
        await lab_runner.stop(run, "ann")
        assert (await w.end()).state == "cancelled"
        assert not closed.is_set()
        wait.set()
        await eventually(closed.is_set, 1.0)

    asyncio.run(scene())


def test_an_error_while_stopping_is_no_failure(lab: Make) -> None:
    def body(params: Any, context: Context) -> Iterator[Frame]:
        try:
            while True:
                context.check()
                time.sleep(0.005)
        finally:
            raise RuntimeError("the cleaning failed")
        yield frame(1, 1)

    ended = []

    async def scene() -> None:
        lab_runner = lab(fake(body))
        w = watch(lab_runner)
        run_id = (await w.state("running")).run
        run = lab_runner._runs[run_id]
        await lab_runner.stop(run_id, "ann")
        await eventually(lambda: run.update.ended)
        ended.append(run.update.state)

    asyncio.run(scene())
    assert ended == ["cancelled"]


def test_a_weight_that_fails_is_a_plain_fault(lab: Make) -> None:
    def weight(params: Any) -> Any:
        raise KeyError("/srv/card.py")

    async def scene() -> None:
        lab_runner = lab(replace(fake(Steps()), _weight=weight))
        with pytest.raises(InputError) as caught:
            await watch(lab_runner).end()
        assert str(caught.value).startswith("run: the computation failed (KeyError)")
        assert not lab_runner._runs

    asyncio.run(scene())


def test_a_method_that_talks_without_end_does_not_flood_the_pages(lab: Make) -> None:
    def body(params: Any, context: Context) -> Iterator[Frame]:
        for i in range(20_000):
            context.say(f"line {i}")
        yield Frame(1.0, "done")

    async def scene() -> None:
        loop, calls = asyncio.get_running_loop(), []
        call = loop.call_soon_threadsafe

        def counted(*args: Any, **more: Any) -> Any:
            calls.append(1)
            return call(*args, **more)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        w = watch(lab(fake(body)))
        assert (await w.end()).message == "done"
        assert len(calls) <= 2 * len(w.updates) + 5, "one call for what one look takes"

    asyncio.run(scene())


# privacy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("private", [{"note": "mine"}, {"csv": Upload.of("a.csv", b"x,y")}])
def test_nothing_private_crosses_visitors(lab: Make, tmp_path: Path, private: dict[str, Any]) -> None:
    made = []

    def body(params: Any, context: Context) -> Iterator[Frame]:
        def make() -> int:
            made.append(1)
            return len(made)

        yield Frame(1.0, "done", {"v": context.memo("seen", "same key", make)})

    async def scene() -> None:
        lab_runner = lab(fake(body))
        ann, bob = [await watch(lab_runner, v, **private).end() for v in ("ann", "bob")]
        assert ann.run != bob.run
        assert (ann.source, bob.source) == ("live", "live")
        assert ann.frame is not None
        assert bob.frame is not None
        assert ann.frame.metrics != bob.frame.metrics, "the memo is the visitor's own"
        again = await watch(lab_runner, "ann", **private).end()
        assert (again.source, again.run) == ("cache", ann.run)
        assert lab_runner.stored("fake", FakeParams(**private), "carl") is None
        stored = lab_runner.stored("fake", FakeParams(**private), "ann")
        assert stored is not None
        assert all(u.bytes is None for u in stored.params.uploads().values())
        assert len(lab_runner.store._disk) == 0, "nothing private touches the disk"
        clock = time.monotonic() + 3601
        lab_runner.store._clock = lambda: clock
        await eventually(lambda: not lab_runner.store._private)  # gone although nobody asks

    memo.PRIVATE.__init__()  # type: ignore[misc] - an empty store, whatever ran before
    asyncio.run(scene())


# leaks --------------------------------------------------------------------------------------------------------


def test_two_hundred_runs_leave_nothing_behind(lab: Make) -> None:
    def body(params: Any, context: Context) -> Iterator[Frame]:
        if params.seed % 5 == 0:
            raise RuntimeError("a fault")
        yield frame(1, 2, x=np.zeros(10))
        context.check()
        yield frame(2, 2)

    async def scene() -> None:
        lab_runner = lab(fake(body, weight="cpu"))
        before = threading.active_count()
        gc.disable()
        for start in range(0, 200, 20):
            watches = [watch(lab_runner, f"v{i}", seed=i, live="level" if i % 3 == 0 else None) for i in range(start, start + 20)]
            await asyncio.sleep(0)
            for w in watches:
                await w.end()
        await eventually(lambda: not lab_runner._runs)
        await eventually(lambda: threading.active_count() <= before)
        assert not lab_runner._live
        assert not lab_runner._places._waiting
        assert not lab_runner._places._active
        assert len(lab_runner.store._recent) <= 24
        assert not lab_runner._known, "freed at once, without a garbage collection"

    try:
        asyncio.run(scene())
    finally:
        gc.enable()


def test_a_subscription_cancelled_at_any_moment_leaves_cleanly(lab: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "GRACE_S", 0.0)
    steps = Steps()

    async def scene() -> None:
        lab_runner = lab(fake(steps))
        for wait in (0.0, 0.001, 0.01, 0.03):
            w = watch(lab_runner, n=50)
            await asyncio.sleep(wait)
            await w.drop()
            assert not [x for r in lab_runner._runs.values() for x in r.listeners]
            await eventually(lambda: not lab_runner._runs)

    asyncio.run(scene())
