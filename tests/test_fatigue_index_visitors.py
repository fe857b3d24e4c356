"""Several visitors watch texts of one shared model at once, while its tokens stream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends import registry
from backends.fatigue_index.card import Params
from backends.runner import Runner
from backends.runtime import language_model, threads
from backends.validation import validate
from tests.contract.running import data_keys, exact, fresh_memo, run
from tests.fakes import Watch

METHOD = registry.get("fatigue-index")
LIMIT_S = 300.0  # where others compute too; seconds on a quiet machine
ASKED: tuple[dict[str, Any], ...] = (
    {"prompt": "What is 2 + 2?", "temperature": 0.3},
    {"prompt": "What is the capital of France?", "decoding": "greedy"},
    {"prompt": "Say hi.", "temperature": 0.3, "state": "before", "kappa": 1500},
    {"prompt": "What is 2 + 2?", "decoding": "greedy", "drop_first": True},
)


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    """A runner with a place for everybody, whatever this machine has."""
    with monkeypatch.context() as patched:
        patched.setattr(threads, "cores", lambda: len(ASKED) + 1)
        made = Runner(folder=tmp_path)
    yield made
    made.close()


def hooks(decoder: language_model.Decoder) -> int:
    """Of all parts; the library has some of its own, which act only on a call that asks for inner states."""
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in decoder.model.modules())


@pytest.mark.timeout(2 * LIMIT_S)
def test_texts_that_stream_at_once_are_those_written_alone(decoder: language_model.Decoder, runner: Runner) -> None:
    params = [validate(Params, {"max_new": 20, **values}) for values in ASKED]
    before = hooks(decoder)

    async def scene() -> list[Any]:
        watches = [Watch(runner.subscribe("fatigue-index", p, f"visitor {number}")) for number, p in enumerate(params)]
        await asyncio.wait_for(asyncio.gather(*(w.task for w in watches)), LIMIT_S)
        return [w.updates for w in watches]

    with fresh_memo():
        seen = asyncio.run(scene())
    assert all((updates[-1].state, updates[-1].source) == ("done", "live") for updates in seen)
    for updates in seen:
        assert len({len(u.frame.data["tokens"]) for u in updates if u.frame is not None and "tokens" in u.frame.data}) > 2, "the text did not stream"
    with fresh_memo():
        # From the last to the first: a value kept under a key that says too little would fall to another run than before.
        for wanted, updates in reversed(list(zip(params, seen, strict=True))):
            alone = run(METHOD, wanted, limit_s=LIMIT_S).last
            assert exact(METHOD, updates[-1].frame) == exact(METHOD, alone)
            assert data_keys(updates[-1].frame)["signals"] == data_keys(alone)["signals"]
    assert hooks(decoder) == before, "a run left a hook on the shared model"
