"""One run: its computing thread, its newest state, and those who watch it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from backends.contract import ContextSpec, Frame, InputError, Stopped, Weight
from backends.places import Places, Release
from backends.registry import Registered
from backends.runtime import device
from backends.runtime.context import Control, RunContext
from backends.store import FrameKeeper, Made, Render

log = logging.getLogger(__name__)
State = Literal["queued", "running", "paused", "done", "failed", "cancelled"]
ENDED = ("done", "failed", "cancelled")
FRAME_INTERVAL_S = 0.1  # ten frames a second for one figure
HEAVY_INTERVAL_S = 0.25  # four for many: three plots at ten a second block a browser's main thread
HEAVY_BYTES = 30_000
GRACE_S = 60.0  # a run whose last stream was closed without Stop goes on for so long
PAUSED_LIMIT_S = 600.0


def plain_fault(error: BaseException) -> InputError:
    """What a person reads of an unforeseen exception: its kind, never its text, which may hold paths."""
    return InputError("run", f"the computation failed ({type(error).__name__})", "the operator finds the cause in the server's log")


class _PausedInLineError(Exception):
    """Leaves the line for a place: whoever is paused waits for none."""


@dataclass(frozen=True, slots=True)
class Update:
    """The newest state of a run as one visitor sees it. ``rendered`` is what the runner's render made of ``frame``."""

    state: State
    run: str
    place: int | None = None  # 1 = next, while queued
    frame: Frame | None = None
    rendered: str | None = None
    source: Literal["live", "cache"] = "live"
    progress: float = 0.0
    message: str = ""
    made: Made | None = None
    error: InputError | None = None

    @property
    def ended(self) -> bool:
        return self.state in ENDED


@dataclass(eq=False)
class Listener:
    """One who watches a run. He gets the newest update, each at most once."""

    visitor: str
    loop: asyncio.AbstractEventLoop
    news: asyncio.Event = field(default_factory=asyncio.Event)
    seen: int = 0
    paused: bool = False  # his view only; the computation goes on for the others
    left: bool = False  # he pressed Stop
    told: State | None = None
    called: bool = False  # since he last looked: one call is enough however much happens meanwhile

    def wake(self) -> bool:
        """False when his loop is closed: he is gone without a word. Called with the run's lock held."""
        if not self.called:
            self.called = True
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.news.set)
        return not self.loop.is_closed()


class Run:
    """A computation that any number of visitors watch. All methods may be called from any thread."""

    def __init__(
        self,
        run: str,
        method: Registered,
        params: Any,
        *,
        places: Places,
        render: Render | None,
        on_end: Callable[[Run], None],
        live: str | None = None,
        visitor: str | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self.id, self.method, self.params, self.live = run, method, params, live
        self.keeper = FrameKeeper()
        self.listeners: list[Listener] = []
        self.askers: set[str] = set()  # who asked for it and has not pressed Stop; a closed tab stays among them
        self.deadline: float | None = None  # when it is cancelled because nobody watches, or it stays paused
        self.lock = threading.RLock()
        self._places, self._render, self._on_end = places, render, on_end
        self._release: Release = lambda: None
        self._update = Update("queued", run, message="waiting for a place")
        self._number = 1
        self._broken: Exception | None = None  # what kept a frame from being drawn
        self._pending: Frame | None = None
        self._published_at, self._interval_s = 0.0, FRAME_INTERVAL_S
        self._weight: Weight = "light" if live else method.weight(params)
        self._device = device.default() if method.weight(params) == "gpu" else "cpu"
        if self._weight == "gpu" and self._device == "cpu":
            self._weight = "cpu"  # no GPU here: the method runs its smaller default
        self.control = Control(self._say, self._on_pause, self._take_place, self._flush_due)
        self.context = RunContext(
            ContextSpec(params.seed, self._device, run),
            control=self.control,
            live=live,
            scope=f"{method.card.slug} {method.version}",
            visitor=visitor,
            secrets=secrets,
        )

    # what the watchers see ---------------------------------------------------------------------------------

    @property
    def update(self) -> Update:
        return self._update

    @property
    def waits(self) -> bool:
        """True while it stands in the line for a place."""
        return self._weight != "light" and self._update.state == "queued"

    def listen(self, visitor: str) -> Listener | None:
        """Adds a watcher, who gets the newest update at once; None when the run is being stopped.

        A pause by somebody else becomes a pause of that one's view only.
        """
        listener = Listener(visitor, asyncio.get_running_loop())
        with self.lock:
            if self.control.stopped:
                return None
            if self.control.paused:
                for other in self.listeners:
                    other.paused = True
                self.control.resume()
            self.listeners.append(listener)
            self.askers.add(visitor)
            self.deadline = None
        return listener

    def take(self, listener: Listener) -> Update | None:
        """The newest update this listener has not had, or None."""
        with self.lock:
            listener.news.clear()
            listener.called = False
            if listener.left:
                return replace(self._update, state="cancelled", message="stopped")
            if listener.paused:
                if listener.told == "paused":
                    return None
                listener.told = "paused"
                return replace(self._update, state="paused", message="your view is paused; others watch this run, so it goes on")
            if listener.seen == self._number:
                return None
            listener.seen, listener.told = self._number, self._update.state
            return self._update

    def _publish(self, **changes: Any) -> None:
        with self.lock:
            if self._update.ended:
                return
            self._update = replace(self._update, **changes)
            self._number += 1
            for listener in [x for x in self.listeners if not x.wake()]:
                self.leave(listener)

    # what the watchers do ----------------------------------------------------------------------------------

    def leave(self, listener: Listener) -> None:
        """A stream was closed without Stop, which looks just like a lost connection: the run goes on for a while."""
        with self.lock:
            if listener in self.listeners:
                self.listeners.remove(listener)
            if not self.listeners and not self._update.ended:
                self._end_after(0.0 if self.live else GRACE_S)

    def _end_after(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self.deadline = deadline if self.deadline is None else min(self.deadline, deadline)

    def stop(self, visitor: str) -> bool:
        """Ends this visitor's view, and the computation when nobody else watches; False when he does not watch."""
        with self.lock:
            mine = [x for x in self.listeners if x.visitor == visitor]
            self.askers.discard(visitor)
            for listener in mine:
                listener.left = True
                listener.wake()
            if mine and all(x.left for x in self.listeners):
                self.control.stop()
            return bool(mine)

    def pause(self, visitor: str) -> bool:
        with self.lock:
            mine = [x for x in self.listeners if x.visitor == visitor and not x.left]
            alone = len(mine) == len([x for x in self.listeners if not x.left])
            if mine and alone:
                self.control.pause()
                self._end_after(PAUSED_LIMIT_S)
            for listener in mine:
                listener.paused = not alone
                listener.wake()
            return bool(mine)

    def resume(self, visitor: str) -> bool:
        with self.lock:
            mine = [x for x in self.listeners if x.visitor == visitor]
            for listener in mine:
                listener.paused, listener.told, listener.seen = False, None, 0
                listener.wake()
            if mine and self.control.paused:
                self.deadline = None
                self.control.resume()
            return bool(mine)

    # the computing thread ----------------------------------------------------------------------------------

    def start(self) -> None:
        threading.Thread(target=self._work, name=f"run {self.id}", daemon=True).start()

    def _work(self) -> None:
        started = time.monotonic()
        self.context.bind_thread()
        try:
            self._take_place()
            started = time.monotonic()
            last = self._compute()
            seconds = time.monotonic() - started
            made = Made(time.time(), seconds, device.describe(), self.method.version)
            self._end(state="done", progress=1.0, message=last.message, made=made)
        except Stopped:
            if self._broken is not None:
                self._fail(self._broken)
            else:
                self._end(state="cancelled", message="stopped")
        except InputError as error:
            self._end(state="failed", message=str(error), error=error.with_traceback(None))  # a traceback would keep the run's arrays
        except BaseException as error:  # noqa: BLE001 - any fault of a method (a library's sys.exit too) ends its run in plain words
            self._fail(error)
        finally:
            self._release()
            self._broken = None
            self.control.detach()

    def _fail(self, error: BaseException) -> None:
        # As text: a handler that keeps records would keep the run's arrays by the traceback's frames.
        log.error("run %s of %s failed\n%s", self.id, self.method.card.slug, "".join(traceback.format_exception(error)))
        if self.control.stopped:  # a fault while the method cleaned up
            self._end(state="cancelled", message="stopped")
        else:
            plain = plain_fault(error)
            self._end(state="failed", message=str(plain), error=plain)

    def _compute(self) -> Frame:
        frames = self.method.run(self.params, self.context)
        last: Frame | None = None
        try:
            for frame in frames:
                last = frame.sealed()
                self.keeper.add(last)
                self._pending = last
                self.control.check()
        finally:
            close = getattr(frames, "close", None)  # a generator frees here what it held
            if close is not None:
                close()
        if last is None:
            raise RuntimeError("the method gave no frame")
        if self._pending is not None:
            self._flush()
        return last

    def _flush_due(self) -> None:
        if self._pending is not None and time.monotonic() - self._published_at >= self._interval_s:
            self._flush()

    def _flush(self) -> None:
        frame, self._pending = self._pending, None
        if frame is None:
            return
        try:
            rendered = self._render(self.method.card.slug, frame, self.params) if self._render else None
        except Exception as error:
            # This may run inside the method's own check(), where an ``except Exception`` must not take it for a fault of its work.
            self._broken = error
            raise Stopped from error
        self._published_at = time.monotonic()
        self._interval_s = HEAVY_INTERVAL_S if rendered and len(rendered) > HEAVY_BYTES else FRAME_INTERVAL_S
        self._publish(frame=frame, rendered=rendered, progress=max(frame.progress, self._update.progress), message=frame.message)

    def _end(self, **changes: Any) -> None:
        if changes["state"] == "done":
            with self.lock:
                self._update = replace(self._update, made=changes["made"])
        self._release()
        try:
            self._on_end(self)  # stored and out of the runner's table before anybody hears of the end
        finally:
            self._publish(place=None, **changes)

    def _say(self, message: str) -> None:
        self._publish(message=message)

    def _take_place(self) -> None:
        while True:
            if self.control.paused:
                self._publish(state="paused", place=None, message="paused")
                self.control.wait()
            if self._weight != "light":
                self._publish(state="queued", message="waiting for a place")
            try:
                self._release = self._places.take(self._weight, self._device, self._check_in_line, lambda place: self._publish(state="queued", place=place))
                break
            except _PausedInLineError:
                continue
        self._publish(state="running", place=None, message=self._update.frame.message if self._update.frame else "starting")

    def _check_in_line(self) -> None:
        self.control.check(may_wait=False)
        if self.control.paused:
            raise _PausedInLineError

    def _on_pause(self) -> None:
        self._release()
        self._publish(state="paused", message="paused")
