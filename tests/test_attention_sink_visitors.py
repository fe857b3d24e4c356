"""Twenty visitors look into one shared model at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends import registry
from backends.attention_sink.card import Params
from backends.runner import Runner
from backends.runtime import language_model, threads
from backends.runtime.models import Models
from backends.validation import validate
from tests.contract.running import data_keys, exact, fresh_memo, run
from tests.fakes import Watch

METHOD = registry.get("attention-sink")
VISITORS, TOKENS = 20, 8
LIMIT_S = 300.0  # half a minute on a quiet machine, where others compute several times as long
TEXTS = (  # of eight tokens each
    "The capital of France is Paris again today",
    "The quick brown fox jumps over lazy dogs",
    "A cat sat on the warm red mat",
    "Rain fell on the old stone bridge again",
)


def asked() -> list[Params]:
    """Isolate, each visitor another text, word, layer and head; the controls beside every third one."""
    made = []
    for number in range(VISITORS):
        values = {"text": TEXTS[number % 4], "target": 2 + number // 4 % 5, "layer": 3 + number, "head": number % 9, "controls": "off" if number % 3 else "on"}
        made.append(validate(Params, values))
    return made


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    """A runner with a place for everybody, whatever this machine has."""
    with monkeypatch.context() as patched:
        patched.setattr(threads, "cores", lambda: VISITORS + 1)
        made = Runner(folder=tmp_path)
    yield made
    made.close()


@pytest.mark.timeout(2 * LIMIT_S)
def test_twenty_visitors_share_one_load_without_crossing(decoder: language_model.Decoder, runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[str] = []
    everybody = threading.Event()
    load = language_model._load

    def counted(name: str, *more: Any) -> language_model.Decoder:
        loads.append(name)
        assert everybody.wait(LIMIT_S), "not all visitors came to wait for the load"
        return load(name, *more)

    monkeypatch.setattr(Models, "_loads", {})
    monkeypatch.setattr(language_model, "_load", counted)
    params = asked()

    async def scene() -> list[Any]:
        watches = [Watch(runner.subscribe("attention-sink", p, f"visitor {number}")) for number, p in enumerate(params)]
        await asyncio.gather(*(w.state("running") for w in watches))
        everybody.set()
        await asyncio.wait_for(asyncio.gather(*(w.task for w in watches)), LIMIT_S)
        return [w.updates[-1] for w in watches]

    with fresh_memo():
        ends = asyncio.run(scene())
    assert loads == [language_model.DEFAULT], "the model was not loaded once"
    assert len({end.run for end in ends}) == VISITORS
    assert all((end.state, end.source) == ("done", "live") for end in ends), {end.message for end in ends}
    assert {end.frame.metrics["tokens"] for end in ends} == {TOKENS}
    assert len({end.frame.metrics["norm_target_after"] for end in ends}) == VISITORS, "the runs do not differ, so a crossing would not be seen"
    with fresh_memo():
        # From the last to the first: a value kept under a key that says too little would fall to another run than before.
        for wanted, end in reversed(list(zip(params, ends, strict=True))):
            alone = run(METHOD, wanted, limit_s=LIMIT_S).last
            assert exact(METHOD, end.frame) == exact(METHOD, alone)
            assert data_keys(end.frame) == data_keys(alone)
