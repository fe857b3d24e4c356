"""The child process that runs compiled kernels: a plain script without the project's packages, so that it starts at once and has one thread.

It is started with the number of a socket. Each request is one line of JSON; the answer is one line. It never sees a reference result, so no
kernel can find one in its memory.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import resource
import socket
import struct
import sys
import time
from typing import Any

PROT_NONE, MAP_FIXED, MAP_NORESERVE = 0, 0x10, 0x4000
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
MAP_FAILED = ctypes.c_void_p(-1).value
CLONE_THREAD, X32 = 0x10000, 0x40000000
# machine -> (AUDIT_ARCH, clone3, clone, what a kernel has no need of: other processes, programs, connections, timers, clocks that can be set)
ARCHITECTURES = {
    "x86_64": (0xC000003E, 435, 56, (57, 58, 59, 322, 101, 310, 311, 41, 42, 37, 38, 222, 159, 164, 227, 305, 425)),
    "aarch64": (0xC00000B7, 435, 220, (221, 281, 117, 270, 271, 198, 203, 103, 107, 171, 170, 112, 266, 425)),
}


class Worker:
    """Maps buffers, loads shared objects, calls functions."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        self._buffers: dict[int, list[int]] = {}
        self._function: Any = None

    def isolate(self) -> None:
        """No network where the host lets a process give it up, no core file, no file written."""
        self._libc.unshare(CLONE_NEWUSER | CLONE_NEWNET)  # refused inside some containers; the screening of imports stands anyway
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        self._filter_system_calls()

    def _filter_system_calls(self) -> None:
        """A seccomp filter that ends the process: machine code may hide in numbers, where no screening of a disassembly sees it. Threads may start."""
        if os.uname().machine not in ARCHITECTURES:
            return
        arch, clone3, clone, denied = ARCHITECTURES[os.uname().machine]
        load, equal, at_least, any_bit, answer = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ, JGE and JSET|K, BPF_RET|K
        end, allow, unknown = (answer, 0, 0, 0x80000000), (answer, 0, 0, 0x7FFF0000), (answer, 0, 0, 0x00050000 | 38)  # ENOSYS: glibc then calls clone
        steps = [(load, 0, 0, 4), (equal, 1, 0, arch), end, (load, 0, 0, 0), (at_least, 0, 1, X32), end, (equal, 0, 1, clone3), unknown]
        for number in denied:
            steps += [(equal, 0, 1, number), end]
        steps += [(equal, 0, 3, clone), (load, 0, 0, 16), (any_bit, 1, 0, CLONE_THREAD), end, allow]
        program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
        pointer = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(program)))
        self._libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
        self._libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(pointer)), 0, 0)  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER

    def map(self, arena: int, regions: list[list[int]], descriptor: int) -> dict[str, Any]:
        """regions: (offset in the file, length, offset of the data in the region), lengths whole pages. A page that cannot be touched stands around each."""
        page = mmap.PAGESIZE
        total = sum(length + page for _, length, _ in regions) + page
        base = self._libc.mmap(None, total, PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        if base == MAP_FAILED:
            return {"error": f"no memory for buffers of {total / 1e6:.0f} MB"}
        at, found = base + page, []
        for offset, length, data in regions:
            if self._libc.mmap(at, length, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | MAP_FIXED, descriptor, offset) != at:
                return {"error": f"no memory for a buffer of {length / 1e6:.0f} MB"}
            found.append(at + data)
            at += length + page
        os.close(descriptor)
        self._buffers[arena] = found
        return {}

    def load(self, path: str, symbol: str) -> dict[str, Any]:
        try:
            self._function = getattr(ctypes.CDLL(path), symbol)
        except (OSError, AttributeError) as error:
            return {"error": str(error)[-300:]}
        self._function.restype = None
        return {}

    def call(self, arena: int, sizes: list[int], cpu_s: int) -> dict[str, Any]:
        """One timed call. threads: how many this process has the moment the function returns."""
        arguments = [ctypes.c_void_p(address) for address in self._buffers[arena]] + [ctypes.c_long(size) for size in sizes]
        function, clock = self._function, time.perf_counter_ns
        used = resource.getrusage(resource.RUSAGE_SELF)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + cpu_s, resource.RLIM_INFINITY))
        start = clock()
        function(*arguments)
        end = clock()
        return {"ns": end - start, "threads": len(os.listdir("/proc/self/task"))}

    def memory(self, extra: int) -> dict[str, Any]:
        """Bounds the address space to what is in use now and ``extra`` bytes."""
        with open("/proc/self/statm") as status:
            pages = int(status.read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * mmap.PAGESIZE + extra, resource.RLIM_INFINITY))
        return {}


def main() -> None:
    """Answers requests until the other side closes."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    worker = Worker()
    worker.isolate()
    pending = b""
    while True:
        received, descriptors, _, _ = socket.recv_fds(channel, 65536, 1)
        if not received:
            return
        pending += received
        while b"\n" in pending:
            line, pending = pending.split(b"\n", 1)
            request = json.loads(line)
            name = request.pop("do")
            if name == "map":
                request["descriptor"] = descriptors[0]
            channel.sendall(json.dumps(getattr(worker, name)(**request)).encode() + b"\n")


if __name__ == "__main__":
    main()
