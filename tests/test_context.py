"""The Context of a running method: randomness, stop and pause, stored values, streams, secrets."""

from __future__ import annotations

import pickle
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from backends.contract import ContextSpec, Stopped
from backends.runtime import memo
from backends.runtime.context import Control, RunContext
from tests.fakes import WAIT_S


@pytest.fixture(autouse=True)
def _own_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "SHARED", memo.MemoStore())
    monkeypatch.setattr(memo, "PRIVATE", memo.MemoStore())


def context(**more: Any) -> RunContext:
    return RunContext(ContextSpec(more.pop("seed", 0)), **more)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)


# randomness ---------------------------------------------------------------------------------------------------


def test_the_seed_alone_makes_the_numbers_and_no_global_state_is_touched() -> None:
    np_before, py_before = np.random.get_state()[1].copy(), random.getstate()  # type: ignore[index, union-attr]  # noqa: NPY002 - the global state is what is watched
    first = context(seed=3).rng.normal(size=4)
    rebuilt = RunContext(pickle.loads(pickle.dumps(context(seed=3).spec)))
    np.testing.assert_array_equal(first, rebuilt.rng.normal(size=4))
    assert not np.array_equal(first, context(seed=4).rng.normal(size=4))
    one = context(seed=3)
    assert one.rng is one.rng
    np.testing.assert_array_equal(np_before, np.random.get_state()[1])  # type: ignore[index]  # noqa: NPY002
    assert py_before == random.getstate()


def test_the_torch_generator_follows_the_seed_too() -> None:
    import torch

    before = torch.get_rng_state()
    draws = [torch.rand(3, generator=context(seed=s).torch_generator).tolist() for s in (3, 3, 4)]
    assert draws[0] == draws[1] != draws[2]
    assert torch.equal(before, torch.get_rng_state())


# stop and pause -----------------------------------------------------------------------------------------------


def test_check_raises_what_no_except_exception_can_swallow() -> None:
    control = Control()
    ctx = context(control=control)
    ctx.check()
    control.stop()
    with pytest.raises(Stopped):
        ctx.check()
    assert not issubclass(Stopped, Exception)
    with pytest.raises(Stopped):
        ctx.memo("a", 1, lambda: 1)
    control.pause()
    assert not control.paused, "what is stopped is not paused any more"


@pytest.mark.parametrize("end", ["resume", "stop"])
def test_check_waits_while_paused_and_gives_back_and_takes_again(end: str) -> None:
    calls: list[str] = []
    control = Control(on_pause=lambda: calls.append("gave back"), on_resume=lambda: calls.append("queued again"))
    ended: list[Any] = []

    def work() -> None:
        ctx = context(control=control)
        try:
            while not ended:
                ctx.check()
                time.sleep(0.001)
        except Stopped:
            ended.append("stopped")

    control.pause()
    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: calls == ["gave back"])
    assert control.held
    getattr(control, end)()
    if end == "resume":
        until(lambda: calls == ["gave back", "queued again"])
        ended.append("done")
    thread.join(WAIT_S)
    assert ended == (["done"] if end == "resume" else ["stopped"])
    assert not control.held


def test_a_helper_thread_does_not_wait_in_a_pause_but_learns_of_a_stop() -> None:
    control = Control()
    ctx = context(control=control)
    control.pause()
    seen: list[str] = []

    def helper() -> None:
        ctx.check()
        seen.append("went on")
        control.stop()
        try:
            ctx.check()
        except Stopped:
            seen.append("stopped")

    thread = threading.Thread(target=helper)
    thread.start()
    thread.join(WAIT_S)
    assert seen == ["went on", "stopped"]


# memo ---------------------------------------------------------------------------------------------------------


def test_memo_is_shared_by_all_unless_input_is_private() -> None:
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return len(made)

    ann, bob = context(scope="m v1"), context(scope="m v1")
    assert ann.memo("grid", {"n": 3, "x": np.ones(2)}, make) == bob.memo("grid", {"x": np.ones(2), "n": 3}, make) == 1
    assert context(scope="m v2").memo("grid", {"n": 3, "x": np.ones(2)}, make) == 2, "another version"
    assert ann.memo("other", {"n": 3, "x": np.ones(2)}, make) == 3, "another name"
    private = [context(scope="m v1", visitor=v).memo("grid", {"n": 3, "x": np.ones(2)}, make) for v in ("ann", "bob", "ann")]
    assert private == [4, 5, 4]
    assert len(memo.SHARED) == 3
    assert len(memo.PRIVATE) == 2


# messages and secrets -----------------------------------------------------------------------------------------


def test_say_is_one_line_from_any_thread() -> None:
    said: list[str] = []
    ctx = context(control=Control(on_say=said.append))
    thread = threading.Thread(target=lambda: ctx.say("loading\n  the\tmodel "))
    thread.start()
    thread.join(WAIT_S)
    assert said == ["loading the model"]


def test_a_secret_comes_from_the_page_first_and_then_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_KEY", "of the operator")
    assert context(secrets={"LAB_KEY": "of the visitor"}).secret("LAB_KEY") == "of the visitor"
    assert context(secrets={"LAB_KEY": ""}).secret("LAB_KEY") == "of the operator"
    assert context().secret("LAB_KEY") == "of the operator"
    assert context().secret("NOT_THERE") is None


# stream -------------------------------------------------------------------------------------------------------


def test_stream_gives_everything_in_order() -> None:
    def steps(emit: Callable[[int], None]) -> None:
        for i in range(200):
            emit(i)

    assert list(context().stream(steps)) == list(range(200))
    assert list(context().stream(lambda emit: None)) == []


def test_stream_passes_exceptions_after_what_came_before() -> None:
    def steps(emit: Callable[[int], None]) -> None:
        emit(1)
        raise KeyError("broken")

    seen: list[int] = []
    with pytest.raises(KeyError, match="broken"):
        seen.extend(context().stream(steps))
    stream = context().stream(steps)
    assert next(stream) == 1
    with pytest.raises(KeyError):
        next(stream)


class Worker:
    """Emits for ever; says when it ended and by what."""

    def __init__(self) -> None:
        self.by: BaseException | None = None
        self.ended = threading.Event()

    def __call__(self, emit: Callable[[int], None]) -> None:
        try:
            for i in range(10**9):
                emit(i)
        except BaseException as error:
            self.by = error
            raise
        finally:
            self.ended.set()


def test_leaving_the_loop_stops_the_worker() -> None:
    worker, before = Worker(), threading.active_count()
    for item in context().stream(worker):
        if item == 5:
            break
    assert worker.ended.wait(1.0)
    assert isinstance(worker.by, Stopped)
    until(lambda: threading.active_count() <= before)


def test_a_stop_ends_the_stream_and_its_worker() -> None:
    worker, control = Worker(), Control()
    stream = context(control=control).stream(worker)
    next(stream)
    control.stop()
    with pytest.raises(Stopped):
        list(stream)
    assert worker.ended.wait(1.0)


def test_a_stop_does_not_wait_for_a_worker_that_never_emits() -> None:
    release = threading.Event()
    control = Control()

    def deaf(emit: Callable[[int], None]) -> None:
        release.wait(WAIT_S)

    def stop_soon() -> None:
        time.sleep(0.05)
        control.stop()

    threading.Thread(target=stop_soon).start()
    started = time.monotonic()
    with pytest.raises(Stopped):
        list(context(control=control).stream(deaf))
    assert time.monotonic() - started < 1.5
    release.set()


def test_a_slow_consumer_holds_the_worker_back() -> None:
    emitted: list[int] = []

    def steps(emit: Callable[[int], None]) -> None:
        for i in range(50):
            emit(i)
            emitted.append(i)

    stream: Iterator[int] = context().stream(steps)
    next(stream)
    time.sleep(0.1)
    assert len(emitted) <= 4, "no heap of pictures grows while the page draws"
    assert list(stream) == list(range(1, 50))
