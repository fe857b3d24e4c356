"""The Context of a running method: randomness, stop and pause, stored values, messages."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from backends.contract import ContextSpec, Stopped
from backends.runtime import memo
from backends.runtime.models import Models

if TYPE_CHECKING:
    import numpy as np
    import torch

T = TypeVar("T")
_END = object()
JOIN_S = 1.0


class Control:
    """Stop and pause of one run, set from outside, obeyed by ``Context.check``.

    ``on_pause`` and ``on_resume`` are called in the computing thread around a pause, so that a paused run
    gives back its place and queues again. ``on_say`` takes messages; ``on_check`` runs at each check.
    """

    def __init__(
        self,
        on_say: Callable[[str], None] = lambda _: None,
        on_pause: Callable[[], None] = lambda: None,
        on_resume: Callable[[], None] = lambda: None,
        on_check: Callable[[], None] = lambda: None,
    ) -> None:
        self.on_say, self.on_pause, self.on_resume, self.on_check = on_say, on_pause, on_resume, on_check
        self._stopped = threading.Event()
        self._going = threading.Event()
        self._going.set()
        self._held = False

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    @property
    def paused(self) -> bool:
        return not self._going.is_set()

    @property
    def held(self) -> bool:
        """True from the pause until the run computes again: it has no place, and others must not wait for what it makes."""
        return self._held

    def stop(self) -> None:
        self._stopped.set()
        self._going.set()

    def pause(self) -> None:
        if not self.stopped:
            self._going.clear()

    def resume(self) -> None:
        self._going.set()

    def check(self, *, may_wait: bool = True) -> None:
        if self.stopped:
            raise Stopped
        if not may_wait:
            return
        self.on_check()
        if self.paused:
            self._held = True
            try:
                self.on_pause()
                self.wait()
                self.on_resume()
            finally:
                self._held = False

    def detach(self) -> None:
        """Forgets the callbacks at the end of a run, so that its frames are freed at once and not by the next full garbage collection."""
        idle = Control()
        self.on_say, self.on_pause, self.on_resume, self.on_check = idle.on_say, idle.on_pause, idle.on_resume, idle.on_check

    def wait(self) -> None:
        """Waits for the end of a pause."""
        self._going.wait()
        if self.stopped:
            raise Stopped


class RunContext:
    """A Context (see backends/contract.py) that can be rebuilt anywhere from its spec.

    scope: prefix of the memo keys (slug and version). visitor: set when the input is private, so that
    nothing stored crosses visitors. secrets: of the visitor's page, before the environment.
    """

    def __init__(
        self,
        spec: ContextSpec,
        *,
        control: Control | None = None,
        live: str | None = None,
        scope: str = "",
        visitor: str | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self.spec, self.live = spec, live
        self.device = spec.device
        self.control = control or Control()
        self._scope, self._visitor, self._secrets = scope, visitor, dict(secrets or {})
        self._pausable_thread = threading.get_ident()
        self.models = Models(self.say, self.check)

    @cached_property
    def rng(self) -> np.random.Generator:
        import numpy as np

        return np.random.default_rng(self.spec.seed)

    @cached_property
    def torch_generator(self) -> torch.Generator:
        import torch

        return torch.Generator(device="cpu").manual_seed(self.spec.seed)

    def check(self) -> None:
        # Only the thread that holds the run's place may wait in a pause; a helper thread just learns of a stop.
        self.control.check(may_wait=threading.get_ident() == self._pausable_thread)

    def bind_thread(self) -> None:
        """Makes the calling thread the one that pauses; the runner calls it where the method computes."""
        self._pausable_thread = threading.get_ident()

    def memo(self, name: str, key: Hashable, make: Callable[[], T]) -> T:
        self.check()
        store = memo.SHARED if self._visitor is None else memo.PRIVATE
        return store.get(memo.content_key(self._scope, self._visitor, name, key), make, self.check, lambda: self.control.held)

    def say(self, message: str) -> None:
        self.control.on_say(" ".join(message.split()))

    def stream(self, fn: Callable[[Callable[[T], None]], Any]) -> Iterator[T]:
        """Yields what ``fn`` emits; a stop, or leaving the loop, raises Stopped at its next ``emit``."""
        items: queue.Queue[Any] = queue.Queue(maxsize=2)
        left = threading.Event()

        def put(item: Any) -> None:
            while not left.is_set() and not self.control.stopped:
                try:
                    return items.put(item, timeout=memo.POLL_S)
                except queue.Full:
                    continue
            raise Stopped

        def work() -> None:
            try:
                fn(put)
                put(_END)
            except Stopped:
                pass
            except BaseException as error:  # noqa: BLE001 - raised again in the method's own thread
                with contextlib.suppress(Stopped):
                    put(error)

        worker = threading.Thread(target=work, name="stream", daemon=True)
        worker.start()
        try:
            while True:
                self.check()
                try:
                    item = items.get(timeout=memo.POLL_S)
                except queue.Empty:
                    continue
                if item is _END:
                    return
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            left.set()
            worker.join(JOIN_S)

    def secret(self, name: str) -> str | None:
        return self._secrets.get(name) or os.environ.get(name) or None
