"""The runner: single flight, stored runs, places, stop, pause. The faces ask it and nothing else.

Gradio's queue only carries; waiting, weights, single flight and cache exist here alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
import traceback
import uuid
import weakref
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from backends import registry
from backends.contract import InputError, Params
from backends.places import HostLock, Places
from backends.registry import Registered
from backends.runs import Listener, Run, Update, plain_fault
from backends.runtime import device, folders, memo, threads
from backends.store import Render, Store, StoredRun

__all__ = ["LAB", "Runner", "Update"]

JANITOR_S = 1.0
REPLAY_S = 2.0
REPLAY_INTERVAL_S = 0.1
CLOSE_S = 2.0  # in which runs hear that they are stopped
CLOSE_POLL_S = 0.01
LAB = "the lab itself"  # the visitor in whose name the server prepares what others will ask for
WAITING_LIMIT = 3  # runs in the queue, a visitor
RUN_ID_CHARACTERS = 20


class Runner:
    """Runs methods for many visitors in one process.

    render: makes a frame's views one string, called once a frame in the computing thread and shared by all who
    watch. folder: the cache folder (the host's by default).
    """

    def __init__(self, render: Render | None = None, *, folder: Path | None = None) -> None:
        threads.configure()
        home = folder or folders.cache()
        home.mkdir(parents=True, exist_ok=True)
        self.render = render
        self.store = Store(home / "runs")
        self._places = Places(max(1, threads.cores() - 1), HostLock(home / "timing.lock"))
        self._lock = threading.Lock()
        self._runs: dict[str, Run] = {}
        self._live: dict[tuple[str, str], Run] = {}
        self._known: weakref.WeakSet[Run] = weakref.WeakSet()  # also runs that ended, or were replaced, under a paused view
        self._closed = threading.Event()
        self.computations = 0  # started for visitors
        threading.Thread(target=self._janitor, name="janitor", daemon=True).start()

    def run_id(self, method: Registered, params: Params, visitor: str) -> str:
        """The id of a run: a hash of its key (slug, version, params, device; the visitor too for private input)."""
        key = [method.card.slug, method.version, params.model_dump(mode="json"), device.default(), visitor if params.private else None]
        return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:RUN_ID_CHARACTERS]

    def stored(self, slug: str, params: Params, visitor: str = "") -> StoredRun | None:
        """The stored run of these params, or None; never starts a computation."""
        return self.store.get(self.run_id(registry.get(slug), params, visitor))

    async def subscribe(
        self,
        slug: str,
        params: Params,
        visitor: str,
        *,
        fresh: bool = False,
        live: str | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Update]:
        """Yields the newest state of the run of these params until it ends.

        Attaches to a run in flight, replays a stored one (marked ``source="cache"``) unless ``fresh``, else starts
        it. ``live`` names the live field that caused it: such a run gives one frame, is never stored, and replaces
        the visitor's former live run of the method. Raises InputError when the visitor has three runs waiting.
        """
        method = registry.get(slug)
        try:
            found = self._attach(method, params, visitor, fresh, live, secrets)
        except InputError:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of the card, in plain words like any other
            traceback.print_exc()
            raise plain_fault(error) from None
        if isinstance(found, StoredRun):
            async for update in self._replay(found):
                yield update
            return
        run, listener = found
        try:
            while True:
                update_or_none = run.take(listener)
                if update_or_none is not None:
                    yield update_or_none
                    if update_or_none.ended:
                        return
                await listener.news.wait()
        finally:
            run.leave(listener)

    def _attach(
        self, method: Registered, params: Params, visitor: str, fresh: bool, live: str | None, secrets: Mapping[str, str] | None
    ) -> tuple[Run, Listener] | StoredRun:
        key = f"live-{uuid.uuid4().hex[:12]}" if live else self.run_id(method, params, visitor)
        with self._lock:
            run = self._runs.get(key)
            listener = run.listen(visitor) if run is not None else None
            if run is not None and listener is not None:
                return run, listener
            stored = None if fresh or live else self.store.get(key)
            if stored is not None:
                return stored
            run = Run(
                key,
                method,
                params,
                places=self._places,
                render=self.render,
                on_end=self._ended,
                live=live,
                visitor=visitor if params.private else None,
                secrets=secrets,
            )
            if run.waits and self._waiting(visitor) >= WAITING_LIMIT:
                raise InputError("run", f"you have {WAITING_LIMIT} runs waiting already", "wait for one of them or stop it")
            self._runs[key] = run
            self._known.add(run)
            if live:
                former = self._live.get((visitor, method.card.slug))
                if former is not None:
                    former.control.stop()
                self._live[visitor, method.card.slug] = run
            self.computations += visitor != LAB
            listener = run.listen(visitor)
        run.start()
        assert listener is not None  # nobody can have stopped it yet
        return run, listener

    def _waiting(self, visitor: str) -> int:
        return sum(run.waits and visitor in run.askers for run in self._runs.values())

    def _ended(self, run: Run) -> None:
        """In the computing thread: the result is stored before the run leaves the table, so that no asker misses both."""
        made = run.update.made
        if made is not None and not run.live:
            try:
                bare = run.params if not run.params.private else _without_bytes(run.params)
                self.store.put(StoredRun(run.id, run.method.card.slug, bare, run.keeper.frames(), made), private=run.params.private)
            except Exception:  # noqa: BLE001 - a full disk or frames that do not pickle: those who watch get the result all the same
                traceback.print_exc()
        with self._lock:
            if self._runs.get(run.id) is run:
                del self._runs[run.id]
            for key in [k for k, v in self._live.items() if v is run]:
                del self._live[key]

    async def _replay(self, stored: StoredRun) -> AsyncIterator[Update]:
        """At most two seconds: frames that are late are left out, the last one never."""
        started, slowest, index = time.monotonic(), 0.0, 0
        number = len(stored.frames)
        interval = min(REPLAY_INTERVAL_S, REPLAY_S / number)
        while True:
            asked = time.monotonic()
            try:
                rendered = await asyncio.to_thread(stored.rendered, index, self.render)
            except Exception as error:  # noqa: BLE001 - a picture that cannot be drawn, in plain words as in a live run
                traceback.print_exc()
                fault = plain_fault(error)
                yield Update("failed", stored.run, source="cache", message=str(fault), made=stored.made, error=fault)
                return
            slowest = max(slowest, time.monotonic() - asked)
            frame, last = stored.frames[index], index == number - 1
            yield Update(
                "done" if last else "running",
                stored.run,
                frame=frame,
                rendered=rendered,
                source="cache",
                progress=1.0 if last else frame.progress,
                message=frame.message,
                made=stored.made,
            )
            if last:
                return
            elapsed = time.monotonic() - started
            index = number - 1 if elapsed + 2 * slowest > REPLAY_S else min(max(index + 1, int(elapsed / interval) + 1), number - 1)
            await asyncio.sleep(max(0.0, min(index * interval, REPLAY_S - slowest) - elapsed))

    async def stop(self, run: str, visitor: str) -> bool:
        """Ends the visitor's view of a run, and its computation when nobody else watches; False when there is none."""
        return sum(known.stop(visitor) for known in self._all(run)) > 0

    async def pause(self, run: str, visitor: str) -> bool:
        """Holds the computation when the visitor is alone with it, else only his view; False when there is none."""
        return sum(known.pause(visitor) for known in self._all(run)) > 0

    async def resume(self, run: str, visitor: str) -> bool:
        """Goes on after a pause; a held computation queues again. False when there is none."""
        return sum(known.resume(visitor) for known in self._all(run)) > 0

    def _all(self, run: str) -> list[Run]:
        with self._lock:
            return [known for known in self._known if known.id == run]

    def _janitor(self) -> None:
        while not self._closed.wait(JANITOR_S):
            self._sweep()

    def _sweep(self) -> None:
        """Cancels runs that nobody has watched for a minute, or that have been paused for ten; forgets old private input."""
        self.store.expire()
        memo.PRIVATE.expire()
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            with run.lock:
                if run.deadline is not None and run.deadline < time.monotonic():
                    run.control.stop()

    def close(self) -> None:
        """Stops every run, waits at most ``CLOSE_S`` until they have ended, and closes the store."""
        self._closed.set()
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            run.control.stop()
        # A thread that is still in compiled code when the interpreter ends takes the process with it (SIGABRT).
        deadline = time.monotonic() + CLOSE_S
        while self._runs and time.monotonic() < deadline:
            time.sleep(CLOSE_POLL_S)
        self.store.close()


def _without_bytes(params: Params) -> Params:
    return params.model_copy(update={name: upload.model_copy(update={"bytes": None}) for name, upload in params.uploads().items()})
