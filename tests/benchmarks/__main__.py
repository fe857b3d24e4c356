"""``python -m tests.benchmarks [NAME ...] [--json FILE]``: every ``bench_*.py`` here, as one table.

A benchmark module has ``rows()``, an iterator of ``{method, work, size, ours_s, peer, peer_s, ratio, growth, note}``:
seconds of ours and of the peer, ratio = peer_s / ours_s, growth = how ours_s grows with size (the exponent).
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backends.runtime import threads

threads.configure()

from app.cli import aligned
from backends.runtime import device

COLUMNS = ("method", "work", "size", "ours_s", "peer", "peer_s", "ratio", "growth", "note")


def names() -> list[str]:
    """The benchmarks of this folder, without the prefix."""
    return sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def cell(value: Any) -> str:
    """A value of the table; numbers with three digits, nothing as a dash.

    >>> cell(0.012345), cell(None), cell(1000)
    ('0.0123', '-', '1000')
    """
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Measures the methods against their peers.")
    parser.add_argument("names", nargs="*", help="which benchmarks; all without one: " + ", ".join(names()))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here too")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in names()]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]}; there are {', '.join(names())}")
    rows = []
    for name in options.names or names():
        for row in importlib.import_module(f"tests.benchmarks.bench_{name}").rows():
            if set(row) != set(COLUMNS):
                raise ValueError(f"a row of bench_{name} has {sorted(row)}, not {sorted(COLUMNS)}")
            print(f"measured: {row['method']}, {row['work']}, {row['size']}", flush=True)
            rows.append(row)
    print(aligned(COLUMNS, [[cell(row[column]) for column in COLUMNS] for row in rows]))
    if options.json is not None:
        host = {"machine": platform.machine(), "device": device.describe(), "python": platform.python_version(), "at": time.strftime("%FT%T%z")}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"host": host, "rows": rows}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
