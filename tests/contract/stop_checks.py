"""Checks of a run that is stopped or paused, as a person does it."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

from backends.contract import Method, Params, Stopped
from backends.validation import validate
from tests.contract.run_checks import RUN_LIMIT_S, assert_equal, assert_progress
from tests.contract.running import LOAD_MARGIN_S, STOP_LIMIT_S, Background, cheap, fresh_memo, reference, repeatable

HOLD_S = 0.3  # how long a pause is watched
PAUSE_AT = (1, 5, 12)  # the checks at which a run is paused
STOP_AFTER_S = 0.7  # into the default preset: past its imports and loads, which the reference run has made


def check_stop_ends_it_within_a_second(method: Method) -> None:
    """Stopped before its first frame, after it, and in the middle of the default preset: no thread stays, the generator is closed."""
    reference(method)
    default = validate(method.Params, method.card.presets[0].params)
    with fresh_memo():
        _stop(method, cheap(method), after_frame=0)
    with fresh_memo():
        _stop(method, default, after_s=0.0)
    with fresh_memo():
        _stop(method, default, after_s=min(STOP_AFTER_S, method.card.presets[0].seconds / 3))


def _stop(method: Method, params: Params, *, after_frame: int | None = None, after_s: float = 0.0) -> None:
    threads = set(threading.enumerate())
    stopped_at: list[float] = []

    def on_frame(number: int) -> None:
        if number == after_frame:
            stopped_at.append(time.monotonic())
            task.control.stop()

    task = Background(method, params, on_frame=on_frame)
    task.start()
    if after_frame is None:
        task.thread.join(after_s)
        stopped_at.append(time.monotonic())
        task.control.stop()
    limit = STOP_LIMIT_S + LOAD_MARGIN_S
    task.thread.join(RUN_LIMIT_S)
    assert not task.thread.is_alive(), "a stopped run goes on and on"
    took = task.ended_at - (stopped_at or [task.ended_at])[0]
    assert took <= limit, f"stop took {took:.1f} s; call context.check() at least each half second of work"
    assert task.fault is None or isinstance(task.fault, Stopped), f"a stopped run failed: {task.fault!r}"
    assert getattr(task.generator, "gi_frame", None) is None, "the generator is still open: its finally has not run"
    _assert_no_thread_left(threads)


def _assert_no_thread_left(before: set[threading.Thread]) -> None:
    deadline = time.monotonic() + STOP_LIMIT_S + LOAD_MARGIN_S
    while time.monotonic() < deadline:
        # A shared load ("load ...") goes on when its asker stops, and is meant to.
        left = [t.name for t in set(threading.enumerate()) - before if not t.name.startswith("load ")]
        if not left:
            return
        time.sleep(0.02)
    raise AssertionError(f"threads are left behind: {left}")


def check_pause_holds_and_resume_goes_on(method: Method) -> None:
    """Paused at some of its checks; a pause lasts while nothing moves, and the result is the same."""
    params = cheap(method)
    expected = reference(method).last
    held = threading.Event()
    checks = itertools.count(1)

    def on_check() -> None:
        if next(checks) in PAUSE_AT:
            task.control.pause()

    task = Background(method, params, on_pause=held.set, on_check=on_check)
    with fresh_memo():
        task.start()
        times = 0
        while task.thread.is_alive():
            if held.wait(0.05):
                held.clear()
                times += 1
                _assert_holds(task)
                task.control.resume()
        last = task.result(RUN_LIMIT_S)
    assert times, "pause was never obeyed"
    assert_progress(tuple(task.frames))
    if repeatable(method, params):
        assert_equal(method, expected, last, "a run that was paused")


def _assert_holds(task: Background) -> None:
    number = len(task.frames)
    time.sleep(HOLD_S)
    assert len(task.frames) == number, "a paused run gave a frame"
    assert task.thread.is_alive(), "a paused run ended"


CHECKS: tuple[Any, ...] = tuple(value for name, value in list(globals().items()) if name.startswith("check_"))
