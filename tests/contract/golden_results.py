"""Small stored results: the exact metrics of a method's cheap params, with a tolerance and the reason for it.

``python -m tests.contract.golden_results SLUG --tolerance 1e-6 --reason "..."`` writes ``golden/<slug>.json``. Write it anew only
when a result is meant to change, and say why in the commit.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backends import registry
from backends.contract import Method
from tests.contract.running import cheap, exact, reference

FOLDER = Path(__file__).parent / "golden"


def path_of(method: Method) -> Path:
    return FOLDER / f"{method.card.slug}.json"


def differences(stored: Mapping[str, Any], now: Mapping[str, Any], tolerance: float) -> dict[str, tuple[Any, Any]]:
    """The metrics that differ by more than ``tolerance``, relative for numbers above 1 and absolute below.

    >>> differences({"a": 1.0, "b": "x"}, {"a": 1.05, "b": "x"}, 0.01)
    {'a': (1.0, 1.05)}
    """
    return {name: (stored.get(name), now.get(name)) for name in stored.keys() | now.keys() if not _close(stored.get(name), now.get(name), tolerance)}


def _close(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, bool) or isinstance(b, bool) or not (isinstance(a, int | float) and isinstance(b, int | float)):
        return bool(a == b)
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)


def check_golden_result(method: Method) -> None:
    """The cheap params give the stored result."""
    stored = json.loads(path_of(method).read_text(encoding="utf-8"))
    assert stored["reason"].strip(), "a golden result states the reason of its tolerance"
    assert stored["tolerance"] > 0
    params = cheap(method).model_dump(mode="json")
    assert stored["params"] == params, "the params of the golden result are no longer the card's cheap ones; write it anew"
    wrong = differences(stored["metrics"], exact(method, reference(method).last), stored["tolerance"])
    assert not wrong, f"other than stored (stored, now): {wrong}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.contract.golden_results", description="Stores the result of a method's cheap params.")
    parser.add_argument("slug")
    parser.add_argument("--tolerance", type=float, required=True, help="relative above 1, absolute below")
    parser.add_argument("--reason", required=True, help="why it is not zero")
    options = parser.parse_args(arguments)
    method = registry.get(options.slug)
    record = {
        "params": cheap(method).model_dump(mode="json"),
        "tolerance": options.tolerance,
        "reason": options.reason,
        "metrics": dict(sorted(exact(method, reference(method).last).items())),
    }
    FOLDER.mkdir(exist_ok=True)
    path_of(method).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {path_of(method).name}")


if __name__ == "__main__":
    main()
