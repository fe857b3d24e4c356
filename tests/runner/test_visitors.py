"""Live runs, privacy, leaks."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends import runs
from backends.contract import Context, Frame, Upload
from backends.runtime import memo
from tests.fakes import FakeParams, Steps, eventually, fake, frame, watch
from tests.runner.conftest import Make


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
