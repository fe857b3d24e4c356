"""What is known to fail, each with its reason and the date it was found. A test fails when one of these passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Expected:
    """Why a test fails, and since when (YYYY-MM-DD)."""

    reason: str
    date: str


# The test's id, as pytest prints it (tests/contract/test_contract.py::test_contract[method-check]).
TABLE: Mapping[str, Expected] = {}


def apply(items: Iterable[pytest.Item], table: Mapping[str, Expected] = TABLE) -> None:
    """Marks the tests of the table; strict, so that a pass is a failure."""
    for item in items:
        known = table.get(item.nodeid)
        if known is not None:
            item.add_marker(pytest.mark.xfail(reason=f"{known.reason} (since {known.date})", strict=True))
