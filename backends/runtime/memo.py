"""Stored intermediate results: bounded, content-keyed, computed once however many ask."""

from __future__ import annotations

import hashlib
import pickle
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

LIMIT_BYTES = 512_000_000
PRIVATE_LIMIT_BYTES = 128_000_000
PRIVATE_SECONDS = 3600.0
POLL_S = 0.05


def content_key(*parts: Any) -> str:
    """A key of the content: equal content gives an equal key, whatever object carries it.

    >>> content_key("a", {"x": 1, "y": 2}) == content_key("a", {"y": 2, "x": 1})
    True
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(pickle.dumps(_canonical(part), protocol=5))
        digest.update(b"\0")
    return digest.hexdigest()


def _canonical(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return type(value).__qualname__, _canonical(value.model_dump(mode="json"))
    if isinstance(value, Mapping):
        return {str(k): _canonical(value[k]) for k in sorted(value, key=str)}
    if isinstance(value, tuple | list):
        return [_canonical(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted((_canonical(v) for v in value), key=repr)
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        return str(value.dtype), tuple(getattr(value, "shape", ())), value.tobytes()
    return value


def size_bytes(value: Any) -> int:
    """About how much memory a value holds: its arrays exactly, the rest by its pickle."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, Mapping):
        return sum(size_bytes(v) for v in value.values()) + 64
    if isinstance(value, tuple | list):
        return sum(size_bytes(v) for v in value) + 64
    if hasattr(value, "__dataclass_fields__"):
        return sum(size_bytes(getattr(value, f, None)) for f in value.__dataclass_fields__) + 64
    try:
        return len(pickle.dumps(value, protocol=5))
    except Exception:  # noqa: BLE001 - not everything pickles (locks, compiled functions); such values are small handles
        return 1024


@dataclass(slots=True)
class _Entry:
    value: Any
    size: int
    until: float


class MemoStore:
    """Values by key, at most ``limit_bytes`` in all; the least recently used go first.

    ``get`` computes a missing value in the asker's thread, once: others who ask meanwhile wait for it, and
    when the maker fails or is stopped, the next of them makes it. ``seconds`` bounds a value's age.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES, seconds: float = float("inf"), clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_bytes, self.seconds, self._clock = limit_bytes, seconds, clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._making: dict[Hashable, threading.Event] = {}
        self._bytes = 0

    def get(self, key: Hashable, make: Callable[[], T], check: Callable[[], None] = lambda: None) -> T:
        """The value of ``key``; ``check`` is called while waiting for another maker and may raise."""
        while True:
            with self._lock:
                self._expire()
                entry = self._entries.get(key)
                if entry is not None:
                    self._entries.move_to_end(key)
                    return entry.value  # type: ignore[no-any-return]
                busy = self._making.get(key)
                if busy is None:
                    busy = self._making[key] = threading.Event()
                    break
            while not busy.wait(POLL_S):
                check()
        try:
            value = make()
            with self._lock:
                self._put(key, value)
            return value
        finally:
            with self._lock:
                del self._making[key]
            busy.set()

    def _put(self, key: Hashable, value: Any) -> None:
        size = size_bytes(value)
        if size > self.limit_bytes:
            return
        self._entries[key] = _Entry(value, size, self._clock() + self.seconds)
        self._bytes += size
        while self._bytes > self.limit_bytes:
            _, old = self._entries.popitem(last=False)
            self._bytes -= old.size

    def _expire(self) -> None:
        now = self._clock()
        for key in [k for k, e in self._entries.items() if e.until < now]:
            self._bytes -= self._entries.pop(key).size

    def __len__(self) -> int:
        with self._lock:
            self._expire()
            return len(self._entries)


SHARED = MemoStore()
PRIVATE = MemoStore(PRIVATE_LIMIT_BYTES, PRIVATE_SECONDS)
