"""The process in which candidates are compiled and run: it imports once, then gives every request a fork of its own with limits.

Started by ``process.Worker`` as ``python -m backends.kernelband.triton_substrate.worker``. Requests and answers are JSON, one object a line.
A fork can crash, hang or spoil its device context without harm to the next. This process itself never touches a GPU, which a fork could not share.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from backends.kernelband.triton_substrate import tasks

MEMORY_BYTES = 16 << 30  # address space of a fork without a GPU; a GPU's driver reserves far more
FILE_BYTES = 256 << 20


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Runs one request in a fork, within ``limit_s`` seconds; {"failure", "text"} when it ends in any other way than with a result."""
    limit_s = float(request["limit_s"])
    with tempfile.TemporaryDirectory(prefix="kernelband-") as folder:
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(receive)
            _child(request, Path(folder), send)
        os.close(send)
        said, ended = _read(receive, limit_s)
        os.close(receive)
        if not ended:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if not ended:
        return {"failure": "timeout", "text": f"it did not end within {limit_s:.3g} s"}
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        kind = "timeout" if number == signal.SIGXCPU else "crash"
        return {"failure": kind, "text": f"it ended with {signal.Signals(number).name}"}
    return dict(json.loads(said)) if said else {"failure": "crash", "text": f"it ended with code {os.WEXITSTATUS(status)}"}


def _child(request: dict[str, Any], folder: Path, send: int) -> None:
    """Does the work and never returns."""
    try:
        for stream, path in enumerate((os.devnull, os.devnull, str(folder / tasks.SAID))):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), stream)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
        if request["device"] == "cpu":
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        reply = json.dumps(tasks.run(request, folder)).encode()
        with os.fdopen(send, "wb") as channel:
            channel.write(reply)
        os._exit(0)
    except BaseException as error:  # noqa: BLE001 - nothing may unwind into the parent's code
        with contextlib.suppress(OSError):
            os.write(send, json.dumps({"failure": "crash", "text": f"{type(error).__name__}: {error}"[:4000]}).encode())
        os._exit(1)


def _read(channel: int, limit_s: float) -> tuple[bytes, bool]:
    """(what was sent, True when the sender is done)."""
    deadline = time.monotonic() + limit_s
    parts: list[bytes] = []
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([channel], [], [], left)[0]:
            break
        part = os.read(channel, 1 << 16)
        if not part:
            return b"".join(parts), True
        parts.append(part)
    return b"", False


def main() -> None:
    """Answers until the other side closes."""
    tasks.warm()
    print(json.dumps({"result": "ready"}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
