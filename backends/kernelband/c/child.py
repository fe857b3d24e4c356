"""The parent's side of the child process in which kernels run: started when needed, killed on a crash or an overrun, and started again."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backends.kernelband.c.arena import Arena
from backends.kernelband.substrate import Failure

WORKER = Path(__file__).with_name("worker.py")
START_S = 20.0
POLL_S = 0.1
EXTRA_MEMORY = 1 << 30  # beyond the buffers: a kernel's own scratch, its stack and the threads of OpenMP


class ChildError(Exception):
    """The child is gone; ``failure`` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


class Child:
    """One persistent process with a folder of its own. check: called while waiting; what it raises ends the process."""

    def __init__(self, threads: int, check: Callable[[], None]) -> None:
        self.threads, self._check = threads, check
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._mapped: set[int] = set()
        self._loaded: tuple[Path, str] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="kernelband-child-")

    def prepare(self, arena: Arena, library: Path, symbol: str) -> None:
        """Starts the process where there is none, shows it the buffers and loads the library. Raises ChildError."""
        if self._process is None:
            self._start()
        if arena.number not in self._mapped:
            self._ask({"do": "memory", "extra": arena.nbytes + EXTRA_MEMORY}, START_S)
            self._ask({"do": "map", "arena": arena.number, "regions": arena.regions}, START_S, arena.descriptor)
            self._mapped.add(arena.number)
        if self._loaded != (library, symbol):
            self._ask({"do": "load", "path": str(library), "symbol": symbol}, START_S)
            self._loaded = (library, symbol)

    def call(self, arena: Arena, sizes: tuple[int, ...], limit_s: float) -> tuple[int, int]:
        """(nanoseconds, threads alive at its return) of one call of the loaded function. Raises ChildError."""
        found = self._ask({"do": "call", "arena": arena.number, "sizes": list(sizes), "cpu_s": self.threads * math.ceil(limit_s)}, limit_s)
        return int(found["ns"]), int(found["threads"])

    def cpu_ns(self) -> int:
        """Processor time of the whole process by the operating system's own account, which nothing inside it can change."""
        assert self._process is not None
        return time.clock_gettime_ns((~self._process.pid << 3) | 2)  # clock_getcpuclockid of Linux

    def kill(self) -> None:
        """Ends the process, if there is one."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = self._channel = self._loaded = None
        self._mapped.clear()

    def close(self) -> None:
        """Ends the process for good and removes its folder."""
        self.kill()
        self._folder.cleanup()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        environment = {"OMP_NUM_THREADS": str(self.threads), "OMP_WAIT_POLICY": "passive", "OMP_DYNAMIC": "false", "LC_ALL": "C", "TMPDIR": self._folder.name}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(WORKER), str(theirs.fileno())],
                cwd=self._folder.name,
                env=environment,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._channel = ours

    def _ask(self, request: dict[str, Any], limit_s: float, descriptor: int | None = None) -> dict[str, Any]:
        assert self._channel is not None
        line = json.dumps(request).encode() + b"\n"
        try:
            if descriptor is None:
                self._channel.sendall(line)
            else:
                socket.send_fds(self._channel, [line], [descriptor])
            answer = self._read(limit_s)
        except OSError as error:
            raise ChildError(self._ended()) from error
        except BaseException:
            self.kill()  # a stop, or anything else that leaves an answer unread
            raise
        if "error" in answer:
            raise ChildError(Failure("crash", str(answer["error"])))
        return answer

    def _read(self, limit_s: float) -> dict[str, Any]:
        assert self._channel is not None
        deadline, received = time.monotonic() + limit_s, b""
        while not received.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0:
                raise ChildError(Failure("timeout", f"it did not end within {limit_s:.3g} s"))
            if not select.select([self._channel], [], [], min(left, POLL_S))[0]:
                self._check()
                continue
            part = self._channel.recv(65536)
            if not part:
                raise ChildError(self._ended())
            received += part
        try:
            answer = json.loads(received)
            return {str(k): v for k, v in answer.items()}
        except (ValueError, AttributeError):
            raise ChildError(Failure("cheat", "it wrote into the channel by which its time is reported")) from None

    def _ended(self) -> Failure:
        assert self._process is not None
        try:
            code = self._process.wait(START_S)
        except subprocess.TimeoutExpired:
            return Failure("crash", "the process that ran it stopped answering")
        if code == -signal.SIGXCPU:
            return Failure("timeout", "it used more processor time than its limit")
        if code == -signal.SIGSYS:
            return Failure("cheat", "it asked the operating system for what a kernel has no need of: a process, a timer, a clock or a connection")
        if code < 0:
            name = signal.Signals(-code).name
            hint = " (memory outside its buffers)" if -code in (signal.SIGSEGV, signal.SIGBUS) else ""
            return Failure("crash", f"it ended with {name}{hint}")
        return Failure("crash", f"the process that ran it ended with code {code}")
