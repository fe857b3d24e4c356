"""Checks every kernel of kernels/ on a CUDA device against its reference and times it against torch eager and torch.compile.

``python -m tests.benchmarks.gpu_kernels`` prints a table (``--check``: the errors alone, ``--json FILE``: all figures, or kernels by name). Each time
is the median with a cold L2 cache, all contenders in one process, one after the other; what the budget of seconds does not reach is checked and not
timed. A kernel is any module of kernels/ with ``triton_kernels``; its sizes stand in ``contests/``. Without a CUDA device it says so and exits.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

import kernels
from tests.benchmarks.contest import TOLERANCE, Contest, contests, kernel_names

BUDGET_S = 240.0


def run(contest: Contest, *, timed: bool) -> dict[str, Any]:
    """Largest relative error and, where timed, milliseconds of ours, eager and torch.compile, with the two ratios."""
    row: dict[str, Any] = {"name": contest.name, "dtype": str(contest.dtype).removeprefix("torch."), "error": contest.error()}
    row["passed"] = row["error"] <= TOLERANCE[contest.dtype]
    if timed:
        from triton.testing import do_bench

        torch.compiler.reset()  # else the ninth function in a row is silently not compiled
        given, compiled = contest.make(), torch.compile(contest.plain, dynamic=False)
        compiled(*given)
        for name, function in (("ours", contest.ours), ("eager", contest.plain), ("compile", compiled)):
            row[f"{name}_ms"] = do_bench(lambda function=function: function(*given), return_mode="median")  # type: ignore[misc]
        row["against_eager"], row["against_compile"] = row["eager_ms"] / row["ours_ms"], row["compile_ms"] / row["ours_ms"]
    return row


def main() -> int:
    names = kernel_names()
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu_kernels")
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=f"of {', '.join(names)}; all without a name")
    parser.add_argument("--check", action="store_true", help="errors only, no times")
    parser.add_argument("--budget", type=float, default=BUDGET_S, metavar="SECONDS", help="after so many seconds nothing more is timed")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    without = [name for name in (given.kernels or names) if importlib.util.find_spec(f"tests.benchmarks.contests.{name}") is None]
    if without:
        print(f"no contest for: {', '.join(without)}")
        return 1
    if not (kernels.HAS_TRITON and torch.cuda.is_available()):
        print("no CUDA device here: nothing was checked or timed")
        return 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    rows, deadline = [], time.monotonic() + given.budget
    for name in given.kernels or names:
        for contest in contests(name, "cuda"):
            wanted = contest.timed and not given.check
            timed = wanted and time.monotonic() < deadline
            with torch.set_grad_enabled("backward" in contest.name):
                row = run(contest, timed=timed)
            rows.append(row)
            times = f"  ours {row['ours_ms']:.3f} ms  eager {row['eager_ms']:.3f}  compile {row['compile_ms']:.3f}" if timed else ""
            late = "  not timed: the budget is spent" if wanted and not timed else ""
            print(f"{'ok  ' if row['passed'] else 'FAIL'} {row['name']} {row['dtype']}: error {row['error']:.1e}{times}{late}", flush=True)
    if given.json:
        given.json.write_text(json.dumps({"device": torch.cuda.get_device_name(), "rows": rows}, indent=1))
    return 0 if all(row["passed"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
