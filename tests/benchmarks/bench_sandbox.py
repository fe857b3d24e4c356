"""Candidates of the code task through the sandbox, against a fresh isolated interpreter for each candidate without any check.

Seconds are processor seconds of this process and of its children: other work on the host then counts for neither.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from backends.runtime.sandbox import Sandbox
from backends.tai.tasks import code

SIZES = (12, 48, 192)
ROUNDS = 3
PLAIN = """
import json, sys
source, calls = json.load(sys.stdin)
space = {}
exec(source, space)
f = [v for k, v in space.items() if callable(v)][-1]
found = []
for call in calls:
    try:
        found.append(repr(eval(f"f({call})", {"f": f})))
    except Exception as error:
        found.append(type(error).__name__)
print(json.dumps(found))
"""


def seconds(work: Callable[[], list[list[str]]], expected: list[list[str]]) -> float:
    """Processor seconds of ``work``, whose outcomes must be the expected ones."""
    began = sum(os.times()[:4])
    found = work()
    spent = sum(os.times()[:4]) - began
    if found != expected:
        raise AssertionError("the two do not agree on the outcomes")
    return spent


def alone(sources: Sequence[str]) -> list[list[str]]:
    """One interpreter a candidate."""
    command = [sys.executable, "-I", "-S", "-c", PLAIN]
    asked = [json.dumps([source, code.CALLS]) for source in sources]
    return [json.loads(subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout) for text in asked]


def rows() -> Iterator[dict[str, Any]]:
    """One row for each number of candidates."""
    styles = itertools.product(*(range(len(style.labels)) for style in code.STYLES))
    sources = [code.source(intent, style) for style, intent in itertools.product(styles, code.INTENTS)]
    taken: list[float] = []
    for size in SIZES:
        part = sources[:size]
        expected = alone(part)
        times: dict[str, list[float]] = {"ours": [], "peer": []}
        sandbox = Sandbox(places=1)
        for _ in range(ROUNDS):
            times["peer"].append(seconds(lambda part=part: alone(part), expected))
            times["ours"].append(seconds(lambda part=part, box=sandbox: [[o.text for o in row] for row in box.run(part, code.CALLS)], expected))
        sandbox.close()
        ours_s, peer_s = float(np.median(times["ours"])), float(np.median(times["peer"]))
        taken.append(ours_s)
        yield {
            "method": "sandbox",
            "work": f"{len(code.CALLS)} calls a candidate",
            "size": size,
            "ours_s": ours_s,
            "peer": "an interpreter each",
            "peer_s": peer_s,
            "ratio": peer_s / ours_s,
            "growth": float(np.log(taken[-1] / taken[0]) / np.log(size / SIZES[0])) if len(taken) > 1 else None,
            "note": "the peer checks and limits nothing",
        }
