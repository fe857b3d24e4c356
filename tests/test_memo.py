"""Stored intermediate results: keys by content, one maker, bounds."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from backends.contract import Stopped, Upload
from backends.runtime.memo import MemoStore, content_key, size_bytes
from tests.fakes import WAIT_S, FakeParams


@dataclass(frozen=True)
class Spec:
    name: str
    values: np.ndarray


def _apart(text: str) -> str:
    """Equal text in another object."""
    return "".join(list(text))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"x": 1, "y": [2, {"z": 3}]}, {"y": [2, {"z": 3}], "x": 1}),
        (["grid", "grid"], ["grid", _apart("grid")]),  # pickle writes the first as a reference to itself
        (np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3))),
        (np.arange(10)[::2], np.array([0, 2, 4, 6, 8])),
        (FakeParams(n=5), FakeParams(n=5, kind="one")),
        (Spec("a", np.ones(3)), Spec(_apart("a"), np.ones(3))),
        ({"b", "a"}, {"a", "b"}),
        (np.array(["x", 1], dtype=object), np.array([_apart("x"), 1], dtype=object)),
        (Upload.of("a.csv", b"1"), Upload.of("a.csv", b"1")),
        ((1, None, "x"), [1, None, "x"]),
    ],
    ids=range(10),
)
def test_equal_content_has_one_key(a: Any, b: Any) -> None:
    assert content_key("name", a) == content_key("name", b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.zeros(4), np.zeros(4, dtype=np.float32)),
        (np.zeros(4), np.zeros((2, 2))),
        (np.zeros(2, dtype=np.int64), np.zeros(2)),
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        ("1", 1),
        (None, "None"),
        (b"a", "a"),
        ({1: "x"}, {"1": "x"}),
        ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
        ([1, [2, 3]], [[1, 2], 3]),
        ([], {}),
        (["ab", "c"], ["a", "bc"]),
        (FakeParams(n=5), FakeParams(n=6)),
        (Upload.of("a.csv", b"1"), Upload.of("a.csv", b"2")),
        (np.array([["a"], 1], dtype=object), np.array([["b"], 1], dtype=object)),
    ],
    ids=range(17),
)
def test_other_content_has_another_key(a: Any, b: Any) -> None:
    assert content_key("name", a) != content_key("name", b)


def test_parts_do_not_run_together() -> None:
    assert content_key("a", "b") != content_key("ab")
    assert content_key("a\0b") != content_key("a", "b")


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        (np.zeros(1000), 8000, 8100),
        ({"x": np.zeros(1000), "y": [np.zeros(1000)]}, 16_000, 17_000),
        (Spec("a", np.zeros(1000)), 8000, 8300),
        ("x" * 5000, 5000, 5200),
        (b"x" * 5000, 5000, 5200),
        (threading.Lock(), 1, 5000),
        (np.zeros(100_000)[:10], 800_000, 801_000),  # a small view keeps the large array alive
        (np.array(["x" * 5000], dtype=object), 5000, 6000),
    ],
    ids=range(8),
)
def test_sizes_are_about_right(value: Any, low: int, high: int) -> None:
    assert low <= size_bytes(value) <= high


def _ask(store: MemoStore, number: int, make: Any, **more: Any) -> tuple[list[threading.Thread], list[Any]]:
    got: list[Any] = []

    def work() -> None:
        try:
            got.append(store.get("k", make, **more))
        except BaseException as error:  # noqa: BLE001 - compared by the test
            got.append(error)

    asking = [threading.Thread(target=work) for _ in range(number)]
    for thread in asking:
        thread.start()
    return asking, got


def _join(asking: list[threading.Thread]) -> None:
    for thread in asking:
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in asking)


def test_forty_askers_cost_one_making() -> None:
    made, go = [], threading.Event()

    def make() -> np.ndarray:
        made.append(1)
        go.wait(WAIT_S)
        return np.ones(3)

    asking, got = _ask(MemoStore(), 40, make)
    go.set()
    _join(asking)
    assert len(made) == 1
    assert len({id(value) for value in got}) == 1


@pytest.mark.parametrize("fault", [ValueError("no"), Stopped()])
def test_when_the_maker_fails_or_is_stopped_the_next_one_makes(fault: BaseException) -> None:
    made, lock, go = [], threading.Lock(), threading.Event()

    def make() -> int:
        with lock:
            made.append(1)
            first = len(made) == 1
        if first:
            go.wait(WAIT_S)
            raise fault
        return 5

    store = MemoStore()
    asking, got = _ask(store, 10, make)
    go.set()
    _join(asking)
    assert len(made) == 2
    assert [g for g in got if g is fault] == [fault]
    assert sorted(g for g in got if g is not fault) == [5] * 9
    assert not store._making


def test_one_who_waits_can_be_stopped() -> None:
    go, making = threading.Event(), threading.Event()

    def make() -> int:
        making.set()
        go.wait(WAIT_S)
        return 1

    def stopped() -> None:
        raise Stopped

    store = MemoStore()
    asking, _ = _ask(store, 1, make)
    assert making.wait(WAIT_S)
    started = time.monotonic()
    with pytest.raises(Stopped):
        store.get("k", make, stopped)
    assert time.monotonic() - started < 0.5
    go.set()
    _join(asking)


def test_nobody_waits_for_a_maker_who_is_held() -> None:
    held, go, making = threading.Event(), threading.Event(), threading.Event()

    def slow() -> str:
        making.set()
        go.wait(WAIT_S)
        return "slow"

    store = MemoStore()
    first, got = _ask(store, 1, slow, held=held.is_set)
    assert making.wait(WAIT_S)
    others, other_got = _ask(store, 5, lambda: "quick")
    held.set()
    _join(others)
    assert other_got == ["quick"] * 5
    go.set()
    _join(first)
    assert got == ["slow"]
    assert store._bytes == sum(e.size for e in store._entries.values()), "a second value of a key is counted once"
    assert not store._making


def test_a_value_that_asks_for_itself_is_an_error_and_no_deadlock() -> None:
    store = MemoStore()
    with pytest.raises(RuntimeError, match="itself"):
        store.get("k", lambda: store.get("k", lambda: 1))
    assert store.get("k", lambda: store.get("inner", lambda: 1)) == 1


def test_the_store_is_bounded_and_the_least_recently_used_goes_first() -> None:
    store = MemoStore(limit_bytes=3 * 800)
    for name in "abc":
        store.get(name, lambda: np.zeros(100))
    store.get("a", lambda: pytest.fail("a is here"))
    store.get("d", lambda: np.zeros(100))
    assert list(store._entries) == ["c", "a", "d"]
    assert store._bytes <= store.limit_bytes
    assert store.get("large", lambda: np.zeros(1000)).shape == (1000,), "too large to keep, but given"
    assert list(store._entries) == ["c", "a", "d"]


def test_nobody_can_change_what_all_share() -> None:
    store = MemoStore()
    value = store.get("k", lambda: {"x": np.ones(3), "deep": [Spec("a", np.ones(2))], "text": "t"})
    for array in (value["x"], value["deep"][0].values):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5


def test_values_are_forgotten_after_their_time() -> None:
    now = [0.0]
    store = MemoStore(seconds=3600, clock=lambda: now[0])
    store.get("k", lambda: 1)
    now[0] = 3599
    assert store.get("k", lambda: 2) == 1
    now[0] = 3601
    store.expire()
    assert not store._entries
    assert store._bytes == 0
    assert store.get("k", lambda: 2) == 2
