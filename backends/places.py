"""Who computes now: places by weight, in the order of asking.

light runs take no place. cpu runs share ``max(1, cores - 1)`` places; a timing run waits until all of them are
free and holds them all; a gpu run takes its device. A timing run also holds a lock *file*, because a server, a
command line and a test run may share one host: cpu runs of every process hold it shared, a timing run alone.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from backends.contract import Weight

POLL_S = 0.05
Release = Callable[[], None]


def _nothing() -> None:
    pass


class HostLock:
    """A lock file that many processes may hold shared or one alone; without waiting. Unix only: elsewhere it always succeeds."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def attempt(self, *, alone: bool) -> Release | None:
        """A function that releases the lock, or None when another process holds it."""
        try:
            import fcntl
        except ImportError:
            return _nothing
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return None
        return lambda: os.close(handle)


class _Ticket:
    def __init__(self, weight: Weight, line: str) -> None:
        self.weight, self.line = weight, line


class Places:
    """The places of one process. ``take`` blocks the computing thread until it may go."""

    def __init__(self, cpu: int, lock: HostLock) -> None:
        self.cpu, self._lock = cpu, lock
        self._changed = threading.Condition()
        self._waiting: list[_Ticket] = []
        self._active: list[_Ticket] = []

    def take(self, weight: Weight, device: str, check: Callable[[], None], on_place: Callable[[int], None]) -> Release:
        """Waits for a place and returns the function that gives it back (harmless when called twice).

        check: called while waiting; what it raises leaves the line. on_place: called with 1 for "next" and so on,
        whenever the place in the line changes.
        """
        if weight == "light":
            return _nothing
        ticket = _Ticket(weight, device if weight == "gpu" else "cpu")
        shown = 0
        with self._changed:
            self._waiting.append(ticket)
        try:
            while True:
                with self._changed:
                    line = [t for t in self._waiting if t.line == ticket.line]
                    place = line.index(ticket) + 1
                    unlock = self._admit(ticket) if place == 1 else None
                    if unlock is not None:
                        self._waiting.remove(ticket)
                        self._active.append(ticket)
                        self._changed.notify_all()
                        return self._release(ticket, unlock)
                    if place == shown:
                        self._changed.wait(POLL_S)
                        place = 1 + [t for t in self._waiting if t.line == ticket.line].index(ticket)
                if place != shown:
                    shown = place
                    on_place(place)
                check()
        except BaseException:
            with self._changed:
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
                self._changed.notify_all()
            raise

    def _admit(self, ticket: _Ticket) -> Release | None:
        busy = [t for t in self._active if t.line == ticket.line]
        if ticket.weight == "gpu":
            return None if busy else _nothing
        if ticket.weight == "timing":
            return None if busy else self._lock.attempt(alone=True)
        if len(busy) >= self.cpu or any(t.weight == "timing" for t in busy):
            return None
        return self._lock.attempt(alone=False)

    def _release(self, ticket: _Ticket, unlock: Release) -> Release:
        def release() -> None:
            with self._changed, contextlib.suppress(ValueError):
                self._active.remove(ticket)  # a second call finds nothing and leaves the lock alone
                unlock()
                self._changed.notify_all()

        return release
