"""What the runner's tests share: a runner with one cpu place that knows the given fakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backends import registry, runner
from backends.runner import Runner
from backends.runtime import threads

Make = Callable[..., Runner]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes a runner with one cpu place that knows the given fakes and nothing else."""
    made: list[Runner] = []
    monkeypatch.setattr(threads, "cores", lambda: 2)
    monkeypatch.setattr(runner, "JANITOR_S", 0.02)

    def make(*fakes: Any, render: Any = None) -> Runner:
        known = {f.card.slug: f for f in fakes}
        monkeypatch.setattr(registry, "methods", lambda: known)
        made.append(Runner(render, folder=tmp_path))
        return made[-1]

    yield make
    for one in made:
        one.close()
