"""Shared loads: once per process, going on when their asker stops, tried again when they failed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from backends.contract import Stopped
from backends.runtime.models import Models
from tests.fakes import WAIT_S


@pytest.fixture(autouse=True)
def _no_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Models, "_loads", {})


class Load:
    """A load that ends when told, and counts."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.number, self.fault = 0, fault
        self.started, self.go = threading.Event(), threading.Event()

    def __call__(self, say: Callable[[str], None]) -> str:
        self.number += 1
        say("loading weights")
        self.started.set()
        assert self.go.wait(WAIT_S)
        if self.fault:
            raise self.fault
        return "model"


def ask(load: Load, check: Callable[[], None] = lambda: None, said: list[str] | None = None) -> tuple[threading.Thread, list[Any]]:
    got: list[Any] = []
    models = Models((said if said is not None else []).append, check)

    def work() -> None:
        try:
            got.append(models.load("small", load))
        except BaseException as error:  # noqa: BLE001 - compared by the test
            got.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, got


def test_many_askers_cost_one_load_and_all_hear_what_it_says() -> None:
    load, said = Load(), [[] for _ in range(10)]  # type: ignore[var-annotated]
    asking = [ask(load, said=said[i]) for i in range(10)]
    assert load.started.wait(WAIT_S)
    for thread, _ in asking:
        thread.join(0.02)
    load.go.set()
    for thread, got in asking:
        thread.join(WAIT_S)
        assert got == ["model"]
    assert load.number == 1
    assert all(words[-1:] == ["loading weights"] for words in said)


def test_a_load_goes_on_when_its_asker_stops() -> None:
    load, stopped = Load(), threading.Event()

    def check() -> None:
        if stopped.is_set():
            raise Stopped

    first, first_got = ask(load, check)
    assert load.started.wait(WAIT_S)
    stopped.set()
    first.join(1.0)
    assert isinstance(first_got[0], Stopped)
    second, second_got = ask(load)
    load.go.set()
    second.join(WAIT_S)
    assert second_got == ["model"]
    assert load.number == 1


def test_a_failed_load_reaches_all_who_wait_and_is_tried_again_by_the_next() -> None:
    load = Load(OSError("the file is cut"))
    asking = [ask(load) for _ in range(3)]
    load.go.set()
    for thread, got in asking:
        thread.join(WAIT_S)
        assert isinstance(got[0], OSError)
    failed = load.number
    load.fault = None
    thread, got = ask(load)
    thread.join(WAIT_S)
    assert got == ["model"]
    assert load.number == failed + 1


def test_two_keys_load_side_by_side() -> None:
    slow, quick = Load(), Load()
    thread, got = ask(slow)
    assert slow.started.wait(WAIT_S)
    quick.go.set()
    assert Models(lambda _: None, lambda: None).load("other", quick) == "model"
    slow.go.set()
    thread.join(WAIT_S)
    assert got == ["model"]
