"""Faults in plain words, whatever a method does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from backends.contract import Context, Frame, InputError
from tests.fakes import FakeParams, Steps, eventually, fake, frame, watch
from tests.runner.conftest import Make


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
def test_any_fault_ends_the_run_in_one_plain_line(lab: Make, caplog: pytest.LogCaptureFixture, body: Any, live: str | None) -> None:
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
    assert "Traceback" in caplog.text, "the operator sees all of it"


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
        lab_runner = lab(fake(body, weight="cpu"), fake(Steps.ready(3), slug="next", weight="cpu"))
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
