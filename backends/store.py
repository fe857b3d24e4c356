"""Stored runs: on disk for all visitors, in memory for an hour for private input."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import diskcache

from backends.contract import Frame
from backends.runtime.memo import PRIVATE_LIMIT_BYTES, PRIVATE_SECONDS

FRAMES_KEPT = 24
RECENT_KEPT = 24  # stored runs in memory, with their views
RUN_LIMIT_BYTES = 8_000_000
DISK_LIMIT_BYTES = 2_000_000_000
Render = Callable[[str, Frame, Any], str]


@dataclass(frozen=True, slots=True)
class Made:
    """When, how long and where a run was computed."""

    at: float  # seconds since 1970
    seconds: float
    device: str
    version: str

    def stamp(self) -> str:
        """The mark that every replay carries.

        >>> Made(0.0, 9.84, "CPU", "a").stamp()[-15:]
        ', 9.8 s, on CPU'
        """
        when = time.localtime(self.at)
        day = "" if time.strftime("%F", when) == time.strftime("%F") else time.strftime("%d %b ", when)
        return f"computed {day}{time.strftime('%H:%M', when)}, {self.seconds:.1f} s, on {self.device}"


@dataclass
class StoredRun:
    """A finished run: at most 24 evenly spaced frames, the last one always; rendered again when first asked for."""

    run: str
    slug: str
    params: Any  # the method's Params; uploads without their bytes
    frames: tuple[Frame, ...]
    made: Made
    _rendered: dict[int, str] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def rendered(self, index: int, render: Render | None) -> str | None:
        """The views of frame ``index`` as one JSON string, made once however many replay it."""
        if render is None:
            return None
        index %= len(self.frames)
        with self._lock:
            if index not in self._rendered:
                self._rendered[index] = render(self.slug, self.frames[index], self.params)
            return self._rendered[index]


class FrameKeeper:
    """Keeps evenly spaced frames of a run of unknown length in bounded memory."""

    def __init__(self) -> None:
        self._stride, self._count = 1, 0
        self._kept: list[Frame] = []
        self._last: Frame | None = None

    def add(self, frame: Frame) -> None:
        if self._count % self._stride == 0:
            self._kept.append(frame)
            if len(self._kept) >= 2 * FRAMES_KEPT:
                self._kept = self._kept[::2]
                self._stride *= 2
        self._count += 1
        self._last = frame

    def frames(self) -> tuple[Frame, ...]:
        """At most 24 frames and 8 MB, the last among them; empty when the last alone is larger."""
        if self._last is None:
            return ()
        kept = [f for f in self._kept if f is not self._last]
        sizes = {id(f): len(pickle.dumps(f, protocol=5)) for f in (*kept, self._last)}
        if sizes[id(self._last)] > RUN_LIMIT_BYTES:
            return ()
        number = min(len(kept), FRAMES_KEPT - 1)
        while True:
            chosen = [*_spaced(kept, number), self._last]
            if sum(sizes[id(f)] for f in chosen) <= RUN_LIMIT_BYTES:
                return tuple(chosen)
            number //= 2


def _spaced(items: Sequence[Frame], number: int) -> list[Frame]:
    if number <= 0:
        return []
    return [items[i * len(items) // number] for i in range(number)]


class Store:
    """Where finished runs lie. One instance a process; the disk is shared by all processes of the host."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._disk = diskcache.Cache(str(folder), size_limit=DISK_LIMIT_BYTES, eviction_policy="least-recently-used")
        self._clock = clock
        self._lock = threading.Lock()
        self._recent: dict[str, StoredRun] = {}  # shares rendered views between visitors
        self._private: dict[str, tuple[float, int, StoredRun]] = {}

    def get(self, run: str) -> StoredRun | None:
        """The stored run of this id, or None."""
        with self._lock:
            self._expire()
            if run in self._private:
                return self._private[run][2]
            found = self._recent.pop(run, None)
            if found is None or run not in self._disk:
                found = self._read(run)
            if found is not None:
                self._remember(found)
            return found

    def _remember(self, stored: StoredRun) -> None:
        self._recent.pop(stored.run, None)
        self._recent[stored.run] = stored
        while len(self._recent) > RECENT_KEPT:
            del self._recent[next(iter(self._recent))]

    def _read(self, run: str) -> StoredRun | None:
        try:
            record: Mapping[str, Any] | None = self._disk.get(run)
            return None if record is None else StoredRun(run=run, **record)
        except Exception:  # noqa: BLE001 - a record of an older layout, or cut short: as good as none, and it goes
            self._disk.delete(run)
            return None

    def put(self, stored: StoredRun, *, private: bool) -> None:
        """Keeps a finished run; a private one in memory only, for an hour, within a bound."""
        if not stored.frames:
            return
        if not private:
            self._disk.set(stored.run, {"slug": stored.slug, "params": stored.params, "frames": stored.frames, "made": stored.made})
            with self._lock:
                self._remember(stored)
            return
        size = len(pickle.dumps(stored.frames, protocol=5))
        with self._lock:
            self._private[stored.run] = (self._clock() + PRIVATE_SECONDS, size, stored)
            self._expire()
            while sum(s for _, s, _ in self._private.values()) > PRIVATE_LIMIT_BYTES:
                del self._private[next(iter(self._private))]

    def expire(self) -> None:
        """Forgets the private runs of more than an hour ago; ``get`` and ``put`` do so as well."""
        with self._lock:
            self._expire()

    def _expire(self) -> None:
        now = self._clock()
        for run in [r for r, (until, _, _) in self._private.items() if until < now]:
            del self._private[run]

    def close(self) -> None:
        self._disk.close()
