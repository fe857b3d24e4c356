"""``python -m tests.benchmarks.visitors [--visitors 60] [--json FILE]``: a class of visitors on one served lab.

The lab runs in a child process with an empty cache folder; the visitors are ``gradio_client`` clients in a few more
processes, each with its configuration fetched before the clock starts. Scenes: all on one preset; each on a seed of his own; all on one
preset while a method in pure Python computes in the server. Server and visitors share this machine's cores: ``server_cpu`` and
``visitors_cpu`` (seconds of computing) and ``load`` say how much of a delay is the lab's own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from app.cli import aligned
from backends import registry
from backends.runtime import device, folders, threads
from tests.benchmarks.busy import BUSY_SECONDS, BUSY_TOOL

CLIENT_PROCESSES = 4
START_LIMIT_S = 120.0
CONNECT_LIMIT_S = 300.0
END_LIMIT_S = 300.0
PRESS_DELAY_S = 1.0
POLL_S = 0.02
FIRST_FRAME_AIM_S = 2.0


@dataclass(frozen=True)
class Visit:
    """One visitor's run: seconds from the press to the first frame and to the end, or what went wrong."""

    first_s: float | None
    end_s: float | None
    error: str | None


@dataclass(frozen=True)
class Scene:
    """What a scene showed; times in seconds, memory in MiB."""

    scene: str
    visitors: int
    first_p50: float
    first_p95: float
    end_p50: float
    end_p95: float
    errors: int
    computations: int
    rss_before: int
    rss_after: int
    server_cpu: float
    visitors_cpu: float
    load: float  # of the last minute, when it ended
    first_error: str | None


@contextmanager
def served() -> Iterator[tuple[str, psutil.Process]]:
    """The lab with the busy method, in a child process with an empty cache folder: address and process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PLAYABLE_CACHE": folder}
        with subprocess.Popen([sys.executable, "-m", "tests.benchmarks.busy", str(port)], cwd=folders.ROOT, env=environment) as process:
            try:
                url = f"http://127.0.0.1:{port}"
                _wait_until_ready(url, process)
                yield url, psutil.Process(process.pid)
            finally:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with code {process.returncode}")
        try:
            health(url)
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"the server was not ready within {START_LIMIT_S:g} s")


def health(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/healthz", timeout=30) as answer:
        return dict(json.load(answer))


class Crowd:
    """The visitors, connected once: each keeps his client through all scenes, as a person keeps his page."""

    def __init__(self, url: str, visitors: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.sizes = [len(range(i, visitors, CLIENT_PROCESSES)) for i in range(min(CLIENT_PROCESSES, visitors))]
        self.pipes, self.processes = [], []
        for size in self.sizes:
            here, there = context.Pipe()
            process = context.Process(target=_crowd_process, args=(url, size, there), daemon=True)
            process.start()
            self.pipes.append(here)
            self.processes.append(process)
        for pipe in self.pipes:
            if not pipe.poll(CONNECT_LIMIT_S):
                raise SystemExit(f"the visitors were not connected within {CONNECT_LIMIT_S:g} s")
            pipe.recv()

    def press(self, tool: str, calls: list[dict[str, Any]]) -> list[Visit]:
        """Every visitor presses at the same moment; what each of them saw."""
        at = time.monotonic() + PRESS_DELAY_S  # one clock for all processes of a host
        for index, pipe in enumerate(self.pipes):
            pipe.send((tool, calls[index :: len(self.pipes)], at))
        return [visit for pipe in self.pipes for visit in pipe.recv()]

    def cpu_s(self) -> float:
        """Seconds of computing that the visitors have used so far."""
        return sum(_cpu_s(psutil.Process(process.pid)) for process in self.processes)

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
            process.join(10)


def _crowd_process(url: str, visitors: int, pipe: Connection) -> None:
    from gradio_client import Client

    # Plain HTTP: each of a client's requests would otherwise load the certificates anew, 31 ms of computing a time.
    clients = [Client(url, verbose=False, analytics_enabled=False, ssl_verify=False) for _ in range(visitors)]
    pipe.send(len(clients))
    while True:
        tool, calls, at = pipe.recv()
        pipe.send(_press_together(clients, tool, calls, at))


def _press_together(clients: list[Any], tool: str, calls: list[dict[str, Any]], at: float) -> list[Visit]:
    seen: list[Visit] = []
    pairs = list(zip(clients, calls, strict=False))  # fewer calls than visitors: the rest looks on
    crowd = [threading.Thread(target=lambda c=c, v=v: seen.append(visit(c, tool, v, at)), daemon=True) for c, v in pairs]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(max(0.0, at + END_LIMIT_S - time.monotonic()))
    done = list(seen)
    return [*done, *[Visit(None, None, f"no end within {END_LIMIT_S:g} s")] * (len(crowd) - len(done))]


def visit(client: Any, tool: str, values: dict[str, Any], at: float) -> Visit:
    """Presses once at the moment ``at`` and watches: the first answer with progress is the first frame."""
    time.sleep(max(0.0, at - time.monotonic()))
    first: float | None = None
    try:
        job = client.submit(**values, api_name="/" + tool)
        seen = 0
        # Iterating over a job wakes it a thousand times a second: sixty of them took both cores from the server (12.4 s against 5.8 s).
        while not job.done():
            time.sleep(POLL_S)
            answers = job.outputs()
            if first is None and any(a["progress"] > 0 for a in answers[seen:]):
                first = time.monotonic() - at
            seen = len(answers)
        job.result()
        if first is None and any(a["progress"] > 0 for a in job.outputs()):
            first = time.monotonic() - at
    except Exception as error:  # noqa: BLE001 - whatever a visitor meets is a result
        return Visit(first, None, f"{type(error).__name__}: {str(error)[:200]}")
    return Visit(first, time.monotonic() - at, None if first is not None else "no frame came")


def play(scene: str, url: str, server: psutil.Process, crowd: Crowd, tool: str, calls: list[dict[str, Any]], *, busy: bool = False) -> Scene:
    """One scene: all visitors of ``calls`` press at once."""
    before = server.memory_info().rss
    if busy:
        _start_busy(url)
    computed, spent, theirs = health(url)["computations"], _cpu_s(server), crowd.cpu_s()
    visits = crowd.press(tool, calls)
    faults = [v.error for v in visits if v.error]
    found = Scene(
        scene,
        len(calls),
        *_p50_p95([v.first_s for v in visits]),
        *_p50_p95([v.end_s for v in visits]),
        len(faults),
        health(url)["computations"] - computed,
        before >> 20,
        server.memory_info().rss >> 20,
        _cpu_s(server) - spent,
        crowd.cpu_s() - theirs,
        os.getloadavg()[0],
        faults[0] if faults else None,
    )
    print(f"measured: {scene}", flush=True)
    return found


def _cpu_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


def _start_busy(url: str) -> None:
    """Starts the pure-Python method and waits for its first frame: from then on it holds the interpreter."""
    from gradio_client import Client

    job = Client(url, verbose=False, analytics_enabled=False, ssl_verify=False).submit(seed=time.time_ns() % 2**31, api_name="/" + BUSY_TOOL)
    next(iter(job))


def _p50_p95(seconds: Sequence[float | None]) -> tuple[float, float]:
    known = [s for s in seconds if s is not None]
    if len(known) < 2:
        return (known or [float("nan")])[0], (known or [float("nan")])[0]
    return statistics.median(known), statistics.quantiles(known, n=20, method="inclusive")[-1]


def scenes(slug: str, visitors: int) -> list[Scene]:
    """The scenes, each on params that nobody has run before but where it says so."""
    method = registry.get(slug)
    # Another seed than the preset's own, which the server has prepared at its start.
    preset, cheap, tool = {**method.card.presets[0].params, "seed": 5}, dict(method.card.cheap), f"{method.card.package}_run"
    with served() as (url, server):
        crowd = Crowd(url, visitors)
        try:
            return [
                play("one visitor, first imports", url, server, crowd, tool, [{**cheap, "seed": 999}]),
                play("one preset", url, server, crowd, tool, [preset] * visitors),
                play("the same again, stored", url, server, crowd, tool, [preset] * visitors),
                play("a seed each, cheap params", url, server, crowd, tool, [{**cheap, "seed": 1000 + i} for i in range(visitors)]),
                play("one preset beside Python-bound work", url, server, crowd, tool, [{**preset, "seed": 7}] * visitors, busy=True),
            ]
        finally:
            crowd.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.visitors", description="Measures the lab with many visitors at once.")
    parser.add_argument("--visitors", type=int, default=60)
    parser.add_argument("--method", default=next(iter(registry.methods())), help="slug of the method that they press")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    options = parser.parse_args(arguments)
    cores = threads.cores()
    print(f"{options.visitors} visitors in {CLIENT_PROCESSES} processes and the server share {cores} cores; the Python-bound method runs {BUSY_SECONDS:g} s")
    rows = scenes(options.method, options.visitors)
    names = list(asdict(rows[0]))
    print(aligned(names, [[f"{v:.2f}" if isinstance(v, float) else str(v if v is not None else "-") for v in asdict(r).values()] for r in rows]))
    crowd = next(r for r in rows if r.scene == "one preset")
    held = crowd.computations == 1 and crowd.errors == 0 and crowd.first_p95 <= FIRST_FRAME_AIM_S
    print(f"aim on one preset (one computation, no error, p95 of the first frame at most {FIRST_FRAME_AIM_S:g} s): {'held' if held else 'missed'}")
    if options.json is not None:
        host = {"cores": cores, "device": device.describe(), "load_before": os.getloadavg()[0], "at": time.strftime("%FT%T%z")}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"host": host, "scenes": [asdict(r) for r in rows]}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
