"""What the checks share: a method driven to its end, alone or in a thread, and results that can be compared."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from backends.contract import ContextSpec, Frame, InputError, Method, Params, Stopped
from backends.runtime import device, memo
from backends.runtime.context import Control, RunContext
from backends.validation import validate

HANG_FACTOR = 10  # a preset is hung, not slow, at ten times its stated time
CHEAP_SECONDS = 1.0  # what a card says of its cheap params
STOP_LIMIT_S = 1.0
SIGN_OF_LIFE_S = 1.0
# A busy host stretches everything; a check of times asks for the stated limit only beyond this.
LOAD_MARGIN_S = 1.0


@dataclass(frozen=True)
class Result:
    """What one run gave: its sealed frames, the moments (seconds from the start) of each sign of life, all its seconds."""

    frames: tuple[Frame, ...]
    signs: tuple[float, ...]
    first_frame_s: float
    seconds: float

    @property
    def last(self) -> Frame:
        return self.frames[-1]


def exact(method: Method, frame: Frame) -> dict[str, Any]:
    """The frame's metrics that must repeat; measured ones (seconds, speeds) are left out."""
    return {n: v for n, v in frame.metrics.items() if n in method.card.metrics and method.card.metrics[n].kind == "exact"}


def data_keys(frame: Frame) -> dict[str, str]:
    """A fingerprint of each entry of the frame's data."""
    return {name: memo.content_key(value) for name, value in frame.data.items()}


def repeatable(method: Method, params: Params) -> bool:
    """What the card says: does the same seed give the same exact metrics for these params?"""
    says = method.card.deterministic
    return says if isinstance(says, bool) else bool(says(params))


def cheap(method: Method, **changes: Any) -> Params:
    """The card's cheap params, with changes. Raises InputError where these do not fit."""
    return validate(method.Params, {**method.card.cheap, **changes})


def refusal(model: type[Params], values: Mapping[str, Any]) -> InputError | None:
    """How validation refuses these values; None when it takes them."""
    try:
        validate(model, values)
    except InputError as error:
        return error
    return None


def context_of(method: Method, params: Params, control: Control | None = None, live: str | None = None) -> RunContext:
    """A Context as the runner makes it, in the calling thread."""
    where = device.default() if method.weight(params) == "gpu" else "cpu"
    return RunContext(
        ContextSpec(params.seed, where, "contract"),
        control=control,
        live=live,
        scope=f"{method.card.slug} {method.version}",
        visitor="contract" if params.private else None,
    )


def run(method: Method, params: Params, *, live: str | None = None, limit_s: float = HANG_FACTOR * CHEAP_SECONDS + 20) -> Result:
    """Runs to the end in this thread. Raises InputError as the method does; AssertionError when it takes longer than ``limit_s``."""
    started = time.monotonic()
    signs: list[float] = []
    frames: list[Frame] = []
    first = 0.0

    def sign(*_: Any) -> None:
        signs.append(time.monotonic() - started)

    control = Control(on_say=sign, on_check=sign)
    watchdog = threading.Timer(limit_s, control.stop)
    watchdog.daemon = True
    watchdog.start()
    try:
        for frame in method.run(params, context_of(method, params, control, live)):
            sign()
            first = first or signs[-1]
            frames.append(frame.sealed())
    except Stopped:
        raise AssertionError(f"{method.card.slug}: {params!r} did not end within {limit_s:g} s") from None
    finally:
        watchdog.cancel()
    assert frames, f"{method.card.slug} gave no frame for {params!r}"
    return Result(tuple(frames), tuple(signs), first, time.monotonic() - started)


def run_for(method: Method, params: Params, seconds: float) -> None:
    """Runs for at most so many seconds; what it raises until then is raised here."""
    control = Control()
    watchdog = threading.Timer(seconds, control.stop)
    watchdog.daemon = True
    watchdog.start()
    try:
        for _ in method.run(params, context_of(method, params, control)):
            pass
    except Stopped:
        pass
    finally:
        watchdog.cancel()


@contextlib.contextmanager
def fresh_memo() -> Iterator[None]:
    """An empty store of intermediate results, as in a process that has just started."""
    shared, private = memo.SHARED, memo.PRIVATE
    memo.SHARED, memo.PRIVATE = memo.MemoStore(), memo.MemoStore(memo.PRIVATE_LIMIT_BYTES, memo.PRIVATE_SECONDS)
    try:
        yield
    finally:
        memo.SHARED, memo.PRIVATE = shared, private


_REFERENCES: dict[int, tuple[Method, Result]] = {}


def reference(method: Method) -> Result:
    """The run of the cheap params, made once a method; imports and shared loads are over when it returns."""
    if id(method) not in _REFERENCES:
        params = cheap(method)
        with fresh_memo():
            # The first run imports and loads; what is timed and compared is a second one.
            run(method, params, limit_s=100.0)
        with fresh_memo():
            _REFERENCES[id(method)] = method, run(method, params)
    return _REFERENCES[id(method)][1]


@dataclass
class Background:
    """A run in a thread of its own, which can be stopped and paused as the runner does it.

    ``on_frame`` is called in the computing thread after each frame, ``on_check`` at each check.
    """

    method: Method
    params: Params
    on_frame: Callable[[int], None] = lambda _: None
    on_pause: Callable[[], None] = lambda: None
    on_check: Callable[[], None] = lambda: None
    frames: list[Frame] = field(default_factory=list)
    fault: BaseException | None = None
    generator: Any = None
    ended_at: float = 0.0

    @cached_property
    def control(self) -> Control:
        return Control(on_pause=self.on_pause, on_check=self.on_check)

    @cached_property
    def thread(self) -> threading.Thread:
        return threading.Thread(target=self._work, name="contract run", daemon=True)

    def start(self) -> Background:
        assert self.control is not None  # made here: the thread must not race for it
        self.thread.start()
        return self

    def _work(self) -> None:
        try:
            context = context_of(self.method, self.params, self.control)
            self.generator = self.method.run(self.params, context)
            for number, frame in enumerate(self.generator):
                self.frames.append(frame.sealed())
                self.on_frame(number)
                self.control.check()
        except Stopped as error:
            self.fault = error
            # Leaving by the check above is the runner's own doing: it closes the generator, and so does this.
            close = getattr(self.generator, "close", None)
            if close is not None:
                close()
        except BaseException as error:  # noqa: BLE001 - judged by the check that started it
            self.fault = error
        finally:
            self.ended_at = time.monotonic()

    def result(self, limit_s: float) -> Frame:
        """The last frame; AssertionError when it has not ended within ``limit_s`` or failed."""
        self.thread.join(limit_s)
        assert not self.thread.is_alive(), f"{self.method.card.slug} did not end within {limit_s:g} s"
        assert self.fault is None, f"{self.method.card.slug} failed: {self.fault!r}"
        return self.frames[-1]


@dataclass(frozen=True)
class Outcome:
    """What a person sees of a run: metrics and data, or the words of the refusal."""

    error: tuple[str, str, str] | None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)

    def differs(self, other: Outcome, keys: set[str]) -> bool:
        """True when a refusal, an exact metric or one of the named data differs."""
        if self.error != other.error or self.metrics != other.metrics:
            return True
        return any(self.data.get(k) != other.data.get(k) for k in keys)


def outcome(method: Method, values: Mapping[str, Any]) -> Outcome:
    """Runs what ``values`` say; a refusal is an outcome too."""
    try:
        last = run(method, validate(method.Params, values)).last
    except InputError as error:
        return Outcome((error.field, error.problem, error.remedy))
    return Outcome(None, exact(method, last), data_keys(last))


def same_values(a: Any, b: Any) -> bool:
    """Deep equality in which an array equals the list of its numbers and NaN equals None, as JSON leaves them."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        left, right = np.asarray(a), np.asarray(b)
        if left.dtype.kind not in "biufO" or right.dtype.kind not in "biufO":
            return left.tolist() == right.tolist()
        return left.shape == right.shape and bool(np.array_equal(_floats(left), _floats(right), equal_nan=True))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return {str(k) for k in a} == {str(k) for k in b} and all(same_values(v, b.get(k, b.get(str(k)))) for k, v in a.items())
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same_values(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and not np.isfinite(a):
        return b is None or (isinstance(b, float) and not np.isfinite(b))
    return bool(a == b)


def _floats(array: np.ndarray) -> np.ndarray:
    values = np.array([np.nan if v is None else v for v in array.ravel()], float) if array.dtype.kind == "O" else array.ravel().astype(float)
    return np.where(np.isfinite(values), values, np.nan)  # infinity too leaves JSON as None


def modules_of(method: Method) -> list[Any]:
    """The loaded modules of the method's own package."""
    home = getattr(method, "module", None) or type(method).__module__
    return [m for name, m in sorted(sys.modules.items()) if m is not None and (name == home or name.startswith(home + "."))]
