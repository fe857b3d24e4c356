"""Makes the recordings that are shown where nothing can be compiled: ``python -m backends.kernelband.c.record [kernel ...]``.

Each is a table of measured schedules of one kernel, with the machine and the date in it. It holds the host's timing lock, so that neither a
served lab nor a command line times anything meanwhile; the machine should have nothing else to do.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from backends.contract import InputError
from backends.kernelband.bench import LiveBench
from backends.kernelband.c import CSubstrate
from backends.kernelband.c.kernels import KERNELS
from backends.kernelband.landscape import fill
from backends.kernelband.recording import FOLDER, Recording
from backends.places import HostLock
from backends.runtime import folders
from backends.runtime import threads as host_threads

SCHEDULES = 120
ROUNDS = 20
WAIT_S = 1.0


def record(kernel: str, size: int | None, schedules: int, threads: int, folder: Path) -> Path:
    """Measures one kernel and returns the file that was written. size None: the card's."""
    substrate = CSubstrate(threads)
    try:
        baseline = substrate.naive(kernel, substrate.default_size(kernel) if size is None else size)
        filling = fill(substrate, LiveBench(substrate), baseline, schedules, ROUNDS, threads)
        while True:
            try:
                done = next(filling)
            except StopIteration as end:
                made: Recording = end.value
                return made.save(folder)
            print(f"\r{kernel}: {done} of {schedules}", end="", file=sys.stderr, flush=True)
    finally:
        substrate.close()
        print(file=sys.stderr)


def main(given: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m backends.kernelband.c.record", description="Measures schedules of each kernel on this host and keeps them."
    )
    parser.add_argument("kernel", nargs="*", help="kernels; all of them without one")
    parser.add_argument("--size", type=int, help="leading size; the card's without it")
    parser.add_argument("--schedules", type=int, default=SCHEDULES, help="how many schedules of each are measured")
    parser.add_argument("--threads", type=int, default=1, help="threads of OpenMP")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the recordings go")
    chosen = parser.parse_args(given)
    host_threads.configure()
    lock = HostLock(folders.cache() / "timing.lock")  # the one that the runner takes for runs of weight "timing"
    while (release := lock.attempt(alone=True)) is None:
        time.sleep(WAIT_S)
    try:
        for kernel in chosen.kernel or KERNELS:
            print(record(kernel, chosen.size, chosen.schedules, chosen.threads, chosen.folder))
    except InputError as error:
        parser.error(str(error))
    finally:
        release()


if __name__ == "__main__":
    main()
