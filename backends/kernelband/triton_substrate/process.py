"""The parent's side of the worker: started when first asked, ended by a stop, started again after a fault."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backends.kernelband.substrate import Failure

ROOT = Path(__file__).resolve().parents[3]
START_S = 120.0  # torch and Triton are read from a cold disk once
POLL_S = 0.1
EXTRA_S = 5.0  # beyond a request's own limit, after which the worker itself must be stuck


class Worker:
    """One process with a folder of its own for what Triton compiles. interpret: kernels run in Triton's interpreter, which a whole process does or not.

    check: called while waiting; what it raises ends the process.
    """

    def __init__(self, check: Callable[[], None], *, interpret: bool = False) -> None:
        self._check, self._interpret = check, interpret
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="kernelband-triton-")

    def ask(self, limit_s: float, **request: Any) -> Any | Failure:
        """The result of one request, or why there is none."""
        try:
            if self._process is None:
                self._start()
            assert self._process is not None
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"limit_s": limit_s, **request}).encode() + b"\n")
            self._process.stdin.flush()
            said = self._read(limit_s + EXTRA_S)
        except OSError as error:
            self.kill()
            return Failure("crash", f"the worker is gone: {error}")
        except BaseException:
            self.kill()  # a stop, or anything else that leaves an answer unread
            raise
        return Failure(said["failure"], said["text"]) if "failure" in said else said["result"]

    def kill(self) -> None:
        """Ends the process and its forks, if there are any."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.wait()
        self._process = None

    def close(self) -> None:
        """Ends the process for good and removes its folder."""
        self.kill()
        self._folder.cleanup()

    def _start(self) -> None:
        environment = {
            **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "LANG")},
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "TMPDIR": self._folder.name,
            "TRITON_CACHE_DIR": self._folder.name,
            "TRITON_DEFAULT_FP_FUSION": "1",
            "TRITON_INTERPRET": "1" if self._interpret else "0",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "backends.kernelband.triton_substrate.worker"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._read(START_S)

    def _read(self, limit_s: float) -> dict[str, Any]:
        """The next line. Raises OSError when the process is gone or stuck."""
        assert self._process is not None
        assert self._process.stdout is not None
        channel, deadline, received = self._process.stdout.fileno(), time.monotonic() + limit_s, b""
        while not received.endswith(b"\n"):
            if time.monotonic() > deadline:
                raise OSError(f"no answer within {limit_s:.0f} s")
            self._check()
            if not select.select([channel], [], [], POLL_S)[0]:
                continue
            part = os.read(channel, 1 << 16)
            if not part:
                raise OSError("it ended")
            received += part
        return dict(json.loads(received))
