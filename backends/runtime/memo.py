"""Stored intermediate results: bounded, content-keyed, computed once however many ask."""

from __future__ import annotations

import hashlib
import pickle
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

T = TypeVar("T")

LIMIT_BYTES = 512_000_000
PRIVATE_LIMIT_BYTES = 128_000_000
PRIVATE_SECONDS = 3600.0
POLL_S = 0.05


def content_key(*parts: Any) -> str:
    """A key of the content: equal content of the same types gives an equal key, whatever object carries it.

    1, 1.0 and True differ, because a result may depend on which one it was made of.

    >>> content_key("a", {"x": 1, "y": 2}) == content_key("a", {"y": 2, "x": 1})
    True
    """
    return _digest(parts).hex()


def _digest(value: Any) -> bytes:
    # Not one pickle of the whole: a pickle says also which of its parts are one object, and equal content would get two keys.
    if hasattr(value, "model_dump"):
        return _joined(type(value).__qualname__, [_digest(value.model_dump(mode="json"))])
    if isinstance(value, Mapping):
        return _joined("mapping", sorted(_digest(k) + _digest(v) for k, v in value.items()))
    if isinstance(value, tuple | list):
        return _joined("list", [_digest(v) for v in value])
    if isinstance(value, set | frozenset):
        return _joined("set", sorted(_digest(v) for v in value))
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        if value.dtype == object:  # its bytes are addresses
            return _joined(f"object {value.shape}", [_digest(value.tolist())])
        return _joined(f"{value.dtype} {getattr(value, 'shape', ())}", [value.tobytes()])
    if is_dataclass(value) and not isinstance(value, type):
        return _joined(type(value).__qualname__, [_digest(getattr(value, f.name)) for f in fields(value)])
    return _joined(type(value).__qualname__, [pickle.dumps(value, protocol=5)])


def _joined(kind: str, parts: Sequence[bytes]) -> bytes:
    digest = hashlib.sha256()
    for part in (kind.encode(), *parts):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def size_bytes(value: Any) -> int:
    """About how much memory a value keeps: its arrays exactly (a view keeps the whole of its base), the rest by its pickle."""
    if hasattr(value, "nbytes") and not getattr(value, "dtype", None) == object:  # noqa: SIM201, E721 - a dtype, compared with what it holds
        return int(getattr(getattr(value, "base", None), "nbytes", value.nbytes))
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


def _protect(value: Any) -> None:
    """Write-protects the arrays of a value: one run's step in place would change the results of all others."""
    if isinstance(value, Mapping):
        parts: Iterable[Any] = value.values()
    elif isinstance(value, tuple | list):
        parts = value
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, f.name) for f in fields(value)]
    else:
        if hasattr(value, "setflags"):
            value.setflags(write=False)
        return
    for part in parts:
        _protect(part)


@dataclass(slots=True)
class _Entry:
    value: Any
    size: int
    until: float


class _Making:
    """One who makes a value."""

    def __init__(self, held: Callable[[], bool]) -> None:
        self.held, self.thread, self.done = held, threading.get_ident(), threading.Event()


class MemoStore:
    """Values by key, with write-protected arrays, at most ``limit_bytes`` in all; the least recently used go first.

    ``get`` computes a missing value in the asker's thread, once: others who ask meanwhile wait for it, and
    when the maker fails, is stopped or is held in a pause, the next of them makes it. ``seconds`` bounds a value's age.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES, seconds: float = float("inf"), clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_bytes, self.seconds, self._clock = limit_bytes, seconds, clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._making: dict[Hashable, _Making] = {}
        self._bytes = 0

    def get(self, key: Hashable, make: Callable[[], T], check: Callable[[], None] = lambda: None, held: Callable[[], bool] = lambda: False) -> T:
        """The value of ``key``; ``check`` is called while waiting for another maker and may raise.

        held: says whether the asker's run is paused, so that nobody waits for a maker who stands still. Raises
        RuntimeError when ``make`` asks for its own key.
        """
        mine = _Making(held)
        while True:
            with self._lock:
                self._expire()
                entry = self._entries.get(key)
                if entry is not None:
                    self._entries.move_to_end(key)
                    return entry.value  # type: ignore[no-any-return]
                busy = self._making.get(key)
                if busy is None or busy.held():
                    self._making[key] = mine
                    break
            if busy.thread == mine.thread:
                raise RuntimeError("a stored value asks for itself while it is made")
            while not busy.done.wait(POLL_S):
                check()
                if busy.held():
                    break
        try:
            value = make()
            _protect(value)
            size = size_bytes(value)
            with self._lock:
                self._put(key, value, size)
            return value
        finally:
            with self._lock:
                if self._making.get(key) is mine:
                    del self._making[key]
            mine.done.set()

    def _put(self, key: Hashable, value: Any, size: int) -> None:
        former = self._entries.pop(key, None)
        self._bytes -= former.size if former else 0
        if size > self.limit_bytes:
            return
        self._entries[key] = _Entry(value, size, self._clock() + self.seconds)
        self._bytes += size
        while self._bytes > self.limit_bytes:
            _, old = self._entries.popitem(last=False)
            self._bytes -= old.size

    def expire(self) -> None:
        """Forgets what is too old; ``get`` does so as well."""
        with self._lock:
            self._expire()

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
