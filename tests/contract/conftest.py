"""The contract tests know what is expected to fail."""

from __future__ import annotations

import pytest

from tests import expected_failures


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    expected_failures.apply(items)
