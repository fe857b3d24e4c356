"""Places by weight, in the order of asking, also between processes."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.contract import Stopped, Weight
from backends.places import HostLock, Places, Release
from backends.runtime.folders import ROOT
from tests.fakes import WAIT_S


class Taker:
    """One who asks for a place in a thread of its own."""

    def __init__(self, places: Places, weight: Weight, device: str = "cpu") -> None:
        self.has, self.leave, self.shown = threading.Event(), threading.Event(), [0]
        self.fault: BaseException | None = None
        self.release: Release = lambda: None
        self._thread = threading.Thread(target=self._take, args=(places, weight, device), daemon=True)
        self._thread.start()

    def _take(self, places: Places, weight: Weight, device: str) -> None:
        def check() -> None:
            if self.leave.is_set():
                raise Stopped

        try:
            self.release = places.take(weight, device, check, self.shown.append)
            self.has.set()
        except Stopped as error:
            self.fault = error

    def join(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(2, HostLock(tmp_path / "timing.lock"))


def test_cpu_runs_share_the_places_in_order_and_light_ones_need_none(places: Places) -> None:
    takers = []
    for _ in range(5):
        takers.append(Taker(places, "cpu"))
        until(lambda: takers[-1].has.is_set() or takers[-1].shown[-1] > 0)
    assert [t.has.is_set() for t in takers] == [True, True, False, False, False]
    assert [t.shown[-1] for t in takers[2:]] == [1, 2, 3]
    assert Taker(places, "light").has.wait(WAIT_S)
    takers[1].release()
    takers[1].release()  # harmless when called twice
    assert takers[2].has.wait(WAIT_S)
    until(lambda: [t.shown[-1] for t in takers[3:]] == [1, 2])
    takers[3].leave.set()  # stopped while waiting
    takers[3].join()
    assert isinstance(takers[3].fault, Stopped)
    until(lambda: takers[4].shown[-1] == 1)
    takers[0].release()
    takers[2].release()
    assert takers[4].has.wait(WAIT_S)
    takers[4].release()
    assert not places._active
    assert not places._waiting


def test_a_timing_run_waits_for_all_and_holds_all_and_nobody_overtakes_it(places: Places) -> None:
    cpu = Taker(places, "cpu")
    assert cpu.has.wait(WAIT_S)
    timing = Taker(places, "timing")
    until(lambda: timing.shown[-1] == 1)
    later = Taker(places, "cpu")  # a place is free, but the timing run is first in line
    until(lambda: later.shown[-1] == 2)
    assert not later.has.is_set()
    cpu.release()
    assert timing.has.wait(WAIT_S)
    until(lambda: later.shown[-1] == 1)
    assert not later.has.is_set()
    timing.release()
    assert later.has.wait(WAIT_S)
    later.release()


def test_a_gpu_run_takes_its_device_alone(places: Places) -> None:
    first, other = Taker(places, "gpu", "cuda:0"), Taker(places, "gpu", "cuda:1")
    assert first.has.wait(WAIT_S)
    assert other.has.wait(WAIT_S)
    second = Taker(places, "gpu", "cuda:0")
    until(lambda: second.shown[-1] == 1)
    cpu = Taker(places, "cpu")
    assert cpu.has.wait(WAIT_S), "another line"
    first.release()
    assert second.has.wait(WAIT_S)


HOLD = """
import sys
from pathlib import Path
from backends.places import HostLock, Places
release = Places(2, HostLock(Path(sys.argv[1]))).take(sys.argv[2], "cpu", lambda: None, lambda place: None)
print("has", flush=True)
sys.stdin.readline()
release()
print("gave back", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize(("there", "here", "together"), [("timing", "cpu", False), ("cpu", "timing", False), ("timing", "timing", False), ("cpu", "cpu", True)])
def test_the_lock_file_holds_between_processes(tmp_path: Path, there: str, here: Weight, together: bool) -> None:
    lock = tmp_path / "timing.lock"
    command = [sys.executable, "-c", HOLD, str(lock), there]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "has\n"
            mine = Taker(Places(2, HostLock(lock)), here)
            if together:
                assert mine.has.wait(WAIT_S)
            else:
                until(lambda: mine.shown[-1] == 1)
                assert not mine.has.wait(0.15)
                child.stdin.write("\n")
                child.stdin.flush()
                assert child.stdout.readline() == "gave back\n"
                assert mine.has.wait(WAIT_S)
            mine.release()
        finally:
            child.kill()


def test_a_process_that_dies_gives_the_lock_back(tmp_path: Path) -> None:
    lock = tmp_path / "timing.lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(lock), "timing"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "has\n"
        mine = Taker(Places(2, HostLock(lock)), "cpu")
        until(lambda: mine.shown[-1] == 1)
        child.kill()
    assert mine.has.wait(WAIT_S)
