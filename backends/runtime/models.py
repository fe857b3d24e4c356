"""Things loaded once per process and shared by all runs (language models, encoders, pipelines)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from backends.runtime import memo

T = TypeVar("T")
Say = Callable[[str], None]


class _Load:
    """One load in its own thread, so that it goes on when the run that asked for it stops."""

    def __init__(self, key: str, load: Callable[[Say], Any]) -> None:
        self.key, self.message = key, f"loading {key}"
        self.value: Any = None
        self.error: BaseException | None = None
        self.done = threading.Event()
        self._load = load
        threading.Thread(target=self._work, name=f"load {key}", daemon=True).start()

    def _say(self, message: str) -> None:
        self.message = message

    def _work(self) -> None:
        try:
            self.value = self._load(self._say)
        except BaseException as error:  # noqa: BLE001 - handed to every asker, in its own thread
            self.error = error
        finally:
            self.done.set()


class Models:
    """What one run sees of the shared loads: its messages and its stop reach the waiting."""

    _lock = threading.Lock()
    _loads: ClassVar[dict[str, _Load]] = {}

    def __init__(self, say: Say, check: Callable[[], None]) -> None:
        self._say, self._check = say, check

    def load(self, key: str, load: Callable[[Say], T]) -> T:
        """The value of ``load(say)``, made once per process; a failed load is tried again by the next asker."""
        with Models._lock:
            job = Models._loads.get(key)
            if job is None or job.error is not None:
                job = Models._loads[key] = _Load(key, load)
        shown = ""
        while not job.done.wait(memo.POLL_S):
            self._check()
            if job.message != shown:
                shown = job.message
                self._say(shown)
        if job.error is not None:
            raise job.error
        return job.value  # type: ignore[no-any-return]
