"""The host's C compiler, called with limits, and each distinct source only once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backends.contract import InputError
from backends.kernelband.substrate import Failure

# Never -O3 or -ffast-math: the edits are to show, not what a compiler does behind one's back.
FLAGS = ("-O2", "-march=native", "-fopenmp", "-fno-math-errno", "-fPIC", "-shared")
LIBRARIES = ("-lm",)
COMPILERS = ("gcc", "clang", "cc")
LIMIT_S = 20
MEMORY_KB = 2_000_000
FILE_BLOCKS = 100_000  # of 512 bytes: what it prints or writes
POLL_S = 0.02
LOG_CHARACTERS = 4000
INCLUDES = {"math.h", "stddef.h", "stdint.h", "stdlib.h", "string.h", "float.h", "limits.h", "immintrin.h", "omp.h"}
_INCLUDE = re.compile(r"^[ \t]*(?:#|%:|\?\?=)[ \t]*(?:include(?:_next)?|import|embed)\b(.*)$", re.MULTILINE)
_ASSEMBLER = re.compile(r"\b(?:asm|__asm|__asm__)\b|##|%:%:")


@dataclass(frozen=True, slots=True)
class Compiled:
    """library: the shared object. seconds: what the compiler took, 0 from the store."""

    library: Path
    log: str
    seconds: float


def find() -> str:
    """The compiler: ``$CC``, gcc, clang or cc. Raises InputError where there is none, and on a system that cannot share memory with the child."""
    if not hasattr(os, "memfd_create"):
        raise InputError("substrate", "C kernels are timed on Linux only", "use a Linux host, or open a recorded run")
    named = os.environ.get("CC", "").split()
    for name in [*named[:1], *COMPILERS]:
        found = shutil.which(name)
        if found:
            return found
    raise InputError("substrate", "this host has no C compiler", "install gcc or clang (on Debian: apt-get install gcc), or open a recorded run")


def key_of(source: str) -> str:
    """sha256 of source and flags, the same on every host."""
    return hashlib.sha256("\0".join([source, *FLAGS, *LIBRARIES]).encode()).hexdigest()


class Compiler:
    """Compiles into ``folder``. calls: how often the compiler really ran, once for each distinct source."""

    def __init__(self, folder: Path, check: Callable[[], None] = lambda: None) -> None:
        self.path, self.calls = find(), 0
        self._folder, self._check = folder, check
        self._done: dict[str, Compiled | Failure] = {}
        self._lock = threading.Lock()
        self.version = _first_line([self.path, "--version"])

    def compile(self, source: str) -> Compiled | Failure:
        """The shared object of this text, or the compiler's own words."""
        key = key_of(source)
        with self._lock:
            if key in self._done:
                done = self._done[key]
                return Compiled(done.library, done.log, 0.0) if isinstance(done, Compiled) else done
            self._done[key] = result = _refused(source) or self._run(key, source)
            return result

    def _run(self, key: str, source: str) -> Compiled | Failure:
        self.calls += 1
        text, library = self._folder / f"{key}.c", self._folder / f"{key}.so"
        text.write_text(source, encoding="utf-8", errors="replace")
        start = time.monotonic()
        failed, log = run_limited([self.path, *FLAGS, text.name, "-o", library.name, *LIBRARIES], self._folder, self._check)
        log = log.replace(f"{key}.c", "kernel.c")[:LOG_CHARACTERS]
        if failed or not library.exists():
            return Failure("compile-error", log or f"{Path(self.path).name} ended without a word")
        return Compiled(library, log, time.monotonic() - start)


def run_limited(command: list[str], folder: Path, check: Callable[[], None] = lambda: None) -> tuple[bool, str]:
    """(failed, what it printed) of a tool run in ``folder``, with limits on wall time, processor time and memory, without the visitor's secrets."""
    shell = f'ulimit -t {LIMIT_S}; ulimit -v {MEMORY_KB}; ulimit -f {FILE_BLOCKS}; exec "$@"'
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TMPDIR": str(folder)}
    with (folder / "output.txt").open("w+b") as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", shell, "sh", *command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + LIMIT_S
            while process.poll() is None and time.monotonic() < deadline:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_S)
                check()
            late = process.poll() is None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # the compiler proper is a child of its driver
                process.wait()
        output.seek(0)
        log = output.read().decode(errors="replace")
    return late or process.returncode != 0, f"{log}\nended after {LIMIT_S} s".strip() if late else log


def _refused(source: str) -> Failure | None:
    """Text that could read this host's files, or bring machine code that the screening does not see, is not compiled."""
    joined = source.replace("\\\n", "")
    for name in _INCLUDE.findall(joined):
        if name.strip().strip('<>"') not in INCLUDES:
            return Failure("cheat", f"it includes {name.strip()[:80]}; allowed are " + ", ".join(sorted(INCLUDES)))
    found = _ASSEMBLER.search(joined)
    return Failure("cheat", f"it uses {found.group()}, which hides machine code from the screening") if found else None


def _first_line(command: list[str]) -> str:
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return command[0]
    return (found.stdout or found.stderr).strip().partition("\n")[0]
