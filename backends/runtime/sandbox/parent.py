"""The lab's side of the sandbox: starts children, reads what they answer, ends them, and shares the places fairly.

Each request runs in a child of its own that nobody used before; spares are started ahead, so that none waits for a start. While
others wait, a child holds one of few places for at most ``SLICE_S``, and an overrun gives the place back too: whoever waits longest
comes next, so that an endless loop of one visitor delays another by a fraction of a second and not by the whole of his request. A
paused request holds no place: its child is stopped, or it lets those behind it pass.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import psutil

from backends.runtime import threads
from backends.runtime.sandbox.places import POLL_S, Check, Places

Kind = Literal["value", "exception", "timeout", "memory", "forbidden", "syntax", "too-large", "killed"]
KINDS = frozenset(get_args(Kind))

CHILD = Path(__file__).with_name("child.py")
LOOK_S = 0.25  # wall time between two looks at Stop, and at the clock of the child
SLICE_S = 0.5  # processor time of one child while others wait
STUCK_S = 5.0  # wall time without an answer: a child that uses no processor time is not stopped by its own clock
LINE_BYTES = 64_000
SOURCE_CHARS = 20_000  # a longer source is answered by "syntax" unread
CALL_CHARS = 10_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What a candidate may use.

    call_s: processor seconds of one call (and of reading one source). overruns: ends of the child by one source (time, memory, crash)
    after which its other calls are not tried. request_s: processor seconds of the whole request; what is left then is answered by
    "timeout". memory_bytes: address space of the child. text_chars: longest literal of a value. Wall time limits only a child that
    does nothing, so that outcomes do not depend on how busy the host is.
    """

    call_s: float = 0.1
    overruns: int = 2
    request_s: float = 5.0
    memory_bytes: int = 256_000_000
    text_chars: int = 2_000


DEFAULT = Limits()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call came to.

    kind and text: "value" and its Python literal (sets and dicts in a fixed order; ``<generator>`` and the like for what is no plain
    data), "exception" and the name of its type, "forbidden" and the name or syntax that is not allowed, "syntax" and what is wrong;
    "timeout", "memory", "too-large" and "killed" (the process ended by itself) with a sentence. line: of the source, or None.
    """

    kind: Kind
    text: str
    line: int | None = None

    def __str__(self) -> str:
        """In words for the person.

        >>> print(Outcome("value", "[1, 2]"), Outcome("exception", "ValueError"), Outcome("forbidden", "open", 3), sep="; ")
        [1, 2]; raises ValueError; may not use open (line 3)
        """
        where = f" (line {self.line})" if self.line else ""
        before = {"exception": "raises ", "forbidden": "may not use ", "syntax": "cannot be read: "}
        return f"{before.get(self.kind, '')}{self.text}{where}"


class BadCall(ValueError):  # noqa: N818 - not a fault of the sandbox
    """An argument list is not one of plain literals; args: its index, what is wrong."""


TIMEOUT = Outcome("timeout", "runs too long")
MEMORY = Outcome("memory", "uses too much memory")
KILLED = Outcome("killed", "ended the process")
ENDED = {-signal.SIGPROF: TIMEOUT, -signal.SIGXCPU: TIMEOUT, 9: MEMORY}  # by exit code; 9 is the child's MEMORY_EXIT
NOT_RUN = Outcome("timeout", "not run, the time for all candidates was over")


class _Child:
    """One clean process: own empty folder that is already gone, empty environment, no site packages, two pipes."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="playable-sandbox-")
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-s", "-S", "-W", "ignore", str(CHILD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={"PYTHONHASHSEED": "0"},  # sets are walked in the same order each time
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # the child stands in a folder in which nothing can be made
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.buffer = b""
        self.poll = select.poll()
        self.poll.register(self.stdout, select.POLLIN)

    def ask(self, request: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # it ended while it waited: the first read tells
            self.stdin.write(json.dumps(request).encode() + b"\n")
            self.stdin.close()

    def lines(self) -> Iterator[list[Any] | None]:
        """What it answers until it ends, None where nothing came; TimeoutError when that lasts, ValueError when it is not what a child writes."""
        idle_s = 0.0  # counted, not read from the clock: the child may have been stopped meanwhile
        while idle_s < STUCK_S:
            if not self.poll.poll(POLL_S * 1000):
                idle_s += POLL_S
                yield None
                continue
            piece = os.read(self.stdout.fileno(), LINE_BYTES)
            if not piece:
                return
            idle_s = 0.0
            *whole, self.buffer = (self.buffer + piece).split(b"\n")
            for line in whole:
                message = json.loads(line)
                if not isinstance(message, list):
                    raise ValueError("a line is not a list")
                yield message
            if len(self.buffer) > LINE_BYTES:
                raise ValueError("a line is too long")
        raise TimeoutError

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """It does not run inside."""
        os.kill(self.process.pid, signal.SIGSTOP)  # not by Popen, which would take note of its end and lose its processor time
        try:
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)

    def cpu_s(self) -> float:
        """Processor seconds so far; also of one that ended and was not waited for."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def end(self) -> int:
        """Kills it unless it ended by itself; its exit code, negative for a signal."""
        self.stdin.close()
        self.stdout.close()
        self.process.kill()
        return self.process.wait()

    def exit_code(self) -> int:
        """After its last line: how it ended; one that only closed its pipe is killed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        return self.end()


class _Request:
    """Sources and calls with the outcomes so far, in order: source by source, call by call."""

    def __init__(self, sources: Sequence[str], calls: Sequence[str], function: str | None, limits: Limits) -> None:
        self.sources, self.calls, self.function, self.limits = sources, calls, function, limits
        self.outcomes: list[list[Outcome]] = [[] for _ in sources]
        self.overruns = [0] * len(sources)
        self.suspect: int | None = None  # the source that a child ended in: its calls are answered one by one
        self.unstarted = 0  # children that ended before they ran anything
        for source, done in zip(sources, self.outcomes, strict=True):
            if len(source) > SOURCE_CHARS:
                done += [Outcome("syntax", f"it has more than {SOURCE_CHARS:,} characters")] * len(calls)

    def pending(self) -> list[int]:
        return [i for i, done in enumerate(self.outcomes) if len(done) < len(self.calls)]

    def message(self, pending: Sequence[int]) -> dict[str, Any]:
        """What a child is asked; it begins with the first call that has no outcome."""
        limits = self.limits
        return {
            "sources": [self.sources[i] for i in pending],
            "calls": list(self.calls),
            "function": self.function,
            "first_call": len(self.outcomes[pending[0]]),
            "call_s": limits.call_s,
            "cpu_s": math.ceil(limits.request_s) + 1,
            "memory_bytes": limits.memory_bytes,
            "text_chars": limits.text_chars,
            "careful": self.suspect == pending[0],
        }

    def take(self, message: list[Any], pending: Sequence[int]) -> None:
        """Stores one answer; ValueError unless it is exactly the next one and of the right types."""
        i, p, kind, text, line = message
        if type(i) is not int or type(p) is not int or not 0 <= i < len(pending):  # bool is an int, which a forged answer might use
            raise ValueError("an answer to nothing that was asked")
        done = self.outcomes[pending[i]]
        in_turn = p == len(done) < len(self.calls) and (i == 0 or len(self.outcomes[pending[i - 1]]) == len(self.calls))
        if not in_turn or not isinstance(kind, str) or kind not in KINDS:
            raise ValueError("an answer out of turn")
        if not isinstance(text, str) or len(text) > self.limits.text_chars or not (line is None or type(line) is int):
            raise ValueError("an answer of the wrong form")
        done.append(Outcome(cast(Kind, kind), text, line))

    def overrun(self, outcome: Outcome) -> None:
        """The child ended. First it is asked again, call by call; then the call is known, and after ``limits.overruns`` of these the
        source's other calls are not tried."""
        i = self.pending()[0]
        if self.suspect != i:
            self.suspect = i
            return
        self.overruns[i] += 1
        last = self.overruns[i] >= self.limits.overruns
        self.outcomes[i] += [outcome] * (len(self.calls) - len(self.outcomes[i]) if last else 1)

    def give_up(self) -> None:
        for done in self.outcomes:
            done += [NOT_RUN] * (len(self.calls) - len(done))

    def refusal(self, message: list[Any]) -> BadCall:
        """Which argument list the child could not read; ValueError where it says something else before it is ready."""
        said, number, problem = message
        if said != "call" or type(number) is not int or not 0 <= number < len(self.calls) or not isinstance(problem, str):
            raise ValueError("an answer before it is ready")
        return BadCall(number, problem[:200])


class Sandbox:
    """Runs sources in child processes, ``places`` of them at a time, whoever waits longest first."""

    def __init__(self, places: int | None = None) -> None:
        self.places = places or max(1, threads.cores())
        self._line = Places(self.places)
        self._spares: list[_Child] = []
        self._starting = 0
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Starts spare children, so that the next requests do not wait for one; returns at once."""
        while True:
            with self._lock:
                if len(self._spares) + self._starting >= self.places:
                    return
                self._starting += 1
            child = None
            try:
                child = _Child()
            finally:
                with self._lock:
                    self._starting -= 1
                    if child is not None:
                        self._spares.append(child)

    def run(
        self, sources: Sequence[str], calls: Sequence[str], *, function: str | None = None, limits: Limits = DEFAULT, check: Check = lambda: None
    ) -> list[list[Outcome]]:
        """The outcome of each call on each source, (sources, calls).

        sources: Python text that defines a function. calls: argument lists of plain literals, ``"[1, 2], item=2"``. function: its name,
        the last one of the top level without. check: called at least each 0.5 s, also while waiting; may wait or raise.
        Each call runs its source anew with arguments, builtins and modules of its own, so that an outcome depends on nothing but
        source, call and limits. Raises BadCall; RuntimeError when no child can be started.

        >>> [[str(o) for o in row] for row in SHARED.run(["def f(x): return 1 / x"], ["2", "0"])]
        [['0.5', 'raises ZeroDivisionError']]
        """
        for number, text in enumerate(calls):
            if len(text) > CALL_CHARS:
                raise BadCall(number, f"it has more than {CALL_CHARS:,} characters")
        request = _Request(sources, calls, function, limits)
        spent_s = 0.0
        while request.pending():
            check()  # a child that soon overruns its time ends before anybody looks
            if spent_s > limits.request_s:
                request.give_up()
                break
            spent_s += self._advance(request, limits.request_s - spent_s, check)
        return request.outcomes

    def close(self) -> None:
        """Ends the spare children."""
        with self._lock:
            spares, self._spares = self._spares, []
        for child in spares:
            child.end()

    def _advance(self, request: _Request, left_s: float, check: Check) -> float:
        """One child: until all is answered, it ends, or its slice of time is over while others wait. Returns its processor seconds."""
        self._line.take(check)
        held, ready, ended = True, False, KILLED
        used_s, looked = 0.0, time.monotonic()
        pending = request.pending()
        child: _Child | None = None
        try:
            with self._lock:
                child = self._spares.pop() if self._spares else None
            child = child or _Child()
            child.ask(request.message(pending))
            for message in child.lines():
                if message == ["ready"] and not ready:
                    ready = True
                elif message is not None and not ready:
                    raise request.refusal(message)
                elif message is not None:
                    request.take(message, pending)
                if time.monotonic() - looked > LOOK_S:
                    used_s = child.cpu_s()
                    if ready and (used_s > left_s or (used_s > SLICE_S and self._line.wanted())):
                        return used_s  # the call that it is in runs again in another child
                    with child.stopped():
                        self._line.give_back()
                        held = False
                        check()
                        self._line.take(check)
                        held = True
                    looked = time.monotonic()
            used_s = child.cpu_s()
            ended = ENDED.get(child.exit_code(), KILLED)
        except BadCall:
            raise
        except TimeoutError:
            ended = TIMEOUT
        except (ValueError, RecursionError):  # also of json: only what broke out of the child's own code writes such lines
            ended = KILLED
        finally:
            if child is not None:
                child.end()
            self.prepare()
            if held:
                self._line.give_back()
        if not ready:
            request.unstarted += 1
            if request.unstarted > 1:
                raise RuntimeError("the sandbox cannot start a process")
        elif request.pending():
            request.overrun(ended)
        return used_s


SHARED = Sandbox()  # of this process
atexit.register(SHARED.close)
