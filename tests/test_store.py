"""Stored runs: which frames are kept, how much, for whom and for how long."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from backends.contract import Frame
from backends.store import RECENT_KEPT, RUN_LIMIT_BYTES, FrameKeeper, Made, Store, StoredRun
from tests.fakes import FakeParams, frame

MADE = Made(0.0, 9.84, "CPU", "v1")


def stored(run: str, number: int = 1, size: int = 1) -> StoredRun:
    return StoredRun(run, "fake", FakeParams(), tuple(frame(k, number, x=np.zeros(size)).sealed() for k in range(1, number + 1)), MADE)


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def store(tmp_path: Path, now: list[float]) -> Iterator[Store]:
    made = Store(tmp_path / "runs", clock=lambda: now[0])
    yield made
    made.close()


@pytest.mark.parametrize("number", [1, 2, 23, 24, 25, 47, 48, 49, 100, 5000])
def test_at_most_24_evenly_spaced_frames_the_last_one_among_them(number: int) -> None:
    keeper = FrameKeeper()
    for k in range(1, number + 1):
        keeper.add(frame(k, number))
        assert len(keeper._kept) < 48
    kept = [f.metrics["k"] for f in keeper.frames()]
    assert kept[-1] == number
    assert len(kept) == number if number <= 24 else 12 <= len(kept) <= 24
    assert kept == sorted(set(kept))
    assert kept[0] == 1
    gaps = np.diff(kept)
    assert gaps.size == 0 or gaps.max() <= 3 * gaps[:-1].min(initial=gaps.max())


@pytest.mark.parametrize(("megabytes", "number", "low", "high"), [(0.1, 60, 12, 24), (1.0, 60, 2, 7), (7.0, 60, 1, 1), (9.0, 3, 0, 0)])
def test_a_run_keeps_at_most_8_mb(megabytes: float, number: int, low: int, high: int) -> None:
    keeper = FrameKeeper()
    picture = np.zeros(int(megabytes * 1e6 / 8))
    for k in range(1, number + 1):
        keeper.add(frame(k, number, x=picture))
    frames = keeper.frames()
    assert low <= len(frames) <= high
    assert sum(len(pickle.dumps(f, protocol=5)) for f in frames) <= RUN_LIMIT_BYTES
    if frames:
        assert frames[-1].metrics["k"] == number
    assert FrameKeeper().frames() == ()


def test_a_run_survives_the_process_and_its_arrays_stay_protected(store: Store, tmp_path: Path) -> None:
    store.put(stored("a", 3, 10), private=False)
    other = Store(tmp_path / "runs")
    found = other.get("a")
    assert found is not None
    assert (found.slug, found.params, found.made, [f.message for f in found.frames]) == ("fake", FakeParams(), MADE, ["step 1", "step 2", "step 3"])
    with pytest.raises(ValueError, match="read-only"):
        found.frames[0].data["x"][0] = 1.0
    assert other.get("nobody") is None
    other.close()


def test_a_broken_record_is_as_good_as_none_and_goes(store: Store) -> None:
    store._disk.set("a", {"layout": "of another version"})
    store._disk.set("b", 7)
    assert store.get("a") is None
    assert store.get("b") is None
    assert "a" not in store._disk


def test_what_left_the_disk_is_gone_and_memory_keeps_few(store: Store) -> None:
    for i in range(RECENT_KEPT + 20):
        store.put(stored(f"run {i}"), private=False)
        assert len(store._recent) <= RECENT_KEPT
    assert store.get("run 1") is not None, "from the disk"
    assert len(store._recent) <= RECENT_KEPT
    store._disk.delete("run 1")
    assert store.get("run 1") is None


def test_private_runs_stay_off_the_disk_for_an_hour_within_a_bound(store: Store, now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(stored("mine"), private=True)
    assert len(store._disk) == 0
    now[0] = 3599
    assert store.get("mine") is not None
    now[0] = 3601
    store.expire()
    assert not store._private
    assert store.get("mine") is None
    monkeypatch.setattr("backends.store.PRIVATE_LIMIT_BYTES", 5 * 8500)
    for i in range(20):
        store.put(stored(f"p{i}", size=1000), private=True)
    assert list(store._private) == [f"p{i}" for i in range(15, 20)]


def test_a_run_without_frames_is_not_stored(store: Store) -> None:
    store.put(StoredRun("a", "fake", FakeParams(), (), MADE), private=False)
    assert store.get("a") is None


def test_each_stored_frame_is_drawn_once_however_many_replay_it() -> None:
    drawn: list[str] = []

    def render(slug: str, shown: Frame, params: object) -> str:
        time.sleep(0.01)
        drawn.append(shown.message)
        return shown.message

    run = stored("a", 3)
    threads = [threading.Thread(target=run.rendered, args=(i % 3, render)) for i in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(drawn) == ["step 1", "step 2", "step 3"]
    assert run.rendered(-1, render) == "step 3"
    assert run.rendered(0, None) is None


def test_the_mark_of_a_replay_says_when_how_long_and_where() -> None:
    today = Made(time.time(), 9.84, "CPU, 1 of 2 cores", "v1").stamp()
    assert today.startswith("computed ")
    assert today.endswith(", 9.8 s, on CPU, 1 of 2 cores")
    assert len(Made(0.0, 9.84, "CPU", "v1").stamp()) > len("computed 14:02, 9.8 s, on CPU"), "another day is named"
