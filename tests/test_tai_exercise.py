"""The three steps of tai's exercise, measured on their presets, and the card's end-to-end figures of the code task."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from backends import registry
from backends.contract import ContextSpec, Frame
from backends.runtime.context import RunContext
from backends.tai import benchmark, pool
from backends.tai.dialogue import Rules
from backends.tai.distances import text_distance
from backends.tai.draws import Geometry
from backends.tai.tasks.code import CodeTask
from backends.validation import validate

METHOD = registry.get("tai")
RIGHT, WRONG = benchmark.Condition(0.0, 0.0), benchmark.Condition(0.1, 0.1)


@lru_cache
def last(preset: str, **values: Any) -> Frame:
    params = validate(METHOD.Params, {**METHOD.card.preset(preset).params, **values})
    *_, frame = METHOD.run(params, RunContext(ContextSpec(params.seed), scope="exercise"))
    return frame


def style(frame: Frame) -> list[dict[str, Any]]:
    return [row for row in frame.data["transcript"] if row["source"] == "style"]


def test_step_one_eig_likes_questions_of_style() -> None:
    by_eig, by_teig = last("by-eig"), last("by-teig")
    assert by_eig.data["dealt"] == by_teig.data["dealt"], "the same wish"
    assert (by_teig.metrics["turns"], len(style(by_teig))) == (4, 0)
    assert (by_eig.metrics["turns"], len(style(by_eig))) == (9, 6)
    assert by_eig.metrics["right"] is by_teig.metrics["right"] is True
    likes = style(by_eig)[0]
    assert likes["eig"] > 0.6 > 0.2 > likes["teig"], "nearly a full bit less the noise, most of it waste"


def test_step_two_the_distance_of_texts_does_not_know_the_intents() -> None:
    by_text, by_behaviour = last("by-text"), last("by-teig")
    assert by_behaviour.metrics["partition_recovered"] is True
    assert by_text.metrics["partition_recovered"] is False
    assert (by_behaviour.metrics["clusters"], by_text.metrics["clusters"]) == (17, 48)
    assert (by_behaviour.metrics["turns"], by_text.metrics["turns"]) == (4, 12)
    found = CodeTask(seed=0, quirk_rate=0.2, prior_skew=0.6).draw(48, np.random.default_rng(0))
    assert found.intents is not None

    def kept(distance: np.ndarray, codes: np.ndarray) -> float:
        """Share of the candidates whose nearest other has the same code."""
        return float((codes[(distance + 2 * np.eye(len(distance))).argmin(1)] == codes).mean())

    texts = text_distance(found.texts)
    assert kept(found.distance, found.intents) > kept(texts, found.intents)
    loop, names = found.nuisance[0].codes, found.nuisance[1].codes
    assert min(kept(texts, names), kept(texts, loop)) > 0.5 > kept(texts, found.intents)


def test_step_three_the_right_intent_comes_back_where_errors_are_assumed_and_that_has_a_price() -> None:
    final, recovers = last("wrong-answers"), last("wrong-answers", error_rate=0.2)
    assert final.metrics["right"] is False
    assert recovers.metrics["right"] is True
    assert (final.metrics["turns"], recovers.metrics["turns"]) == (4, 12)
    price = 1 + 0.2 * math.log2(0.2) + 0.8 * math.log2(0.8)
    assert price == pytest.approx(0.2781, abs=1e-4)
    assert max(row["teig"] for row in recovers.data["transcript"]) <= price + 1e-9


def turns(monkeypatch: pytest.MonkeyPatch, dialogues: int, **conditions: benchmark.Condition) -> dict[str, dict[str, dict[str, float]]]:
    """condition -> strategy -> summary, with the card's pool: yes/no questions about probes and questions of style, no hyperplanes."""
    monkeypatch.setattr(pool, "hyperplane_questions", lambda *given: [])
    monkeypatch.setattr(benchmark, "STRATEGIES", {name: name for name in ("teig", "eig", "random")})
    task = CodeTask(seed=0, quirk_rate=0.2, prior_skew=0.6)
    *_, played = benchmark.run(task, 48, Geometry(), Rules(binary=True), conditions, dialogues)
    return {name: {strategy: benchmark.summary(found) for strategy, found in of.items()} for name, of in played.items()}


def test_the_cards_pool_orders_the_ways_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    of = turns(monkeypatch, 6, right=RIGHT)["right"]
    assert of["teig"]["turns"] < of["eig"]["turns"] < of["random"]["turns"]
    assert of["teig"]["right"] == 1.0
    assert of["teig"]["style"] < of["eig"]["style"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_forty_dialogues_with_the_cards_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 6 of the card: TEIG 4.0, EIG 5.1, random 12.1 questions; with a tenth of wrong answers 7.3, 9.9, 23.9.

    How long random questions take hangs on whether those stay that tell nothing of the living candidates any more; the card does not say.
    """
    renewed = turns(monkeypatch, 40, right=RIGHT, wrong=WRONG)
    questions = pool.Pool.questions
    monkeypatch.setattr(pool.Pool, "questions", lambda self, weights, living, struck=(): questions(self, weights, np.ones_like(living), struck))
    stale = turns(monkeypatch, 40, right=RIGHT, wrong=WRONG)
    for of in (renewed, stale):
        assert [of["right"][s]["turns"] for s in ("teig", "eig")] == pytest.approx([4.0, 5.1], abs=0.6)
        assert [of["wrong"][s]["turns"] for s in ("teig", "eig")] == pytest.approx([7.3, 9.9], abs=0.6)
        assert min(of["wrong"][s]["right"] for s in ("teig", "eig", "random")) >= 0.95
        for found in of.values():
            assert found["teig"]["turns"] < found["eig"]["turns"] < found["random"]["turns"]
    for name, random in (("right", 12.1), ("wrong", 23.9)):
        assert renewed[name]["random"]["turns"] < random < stale[name]["random"]["turns"]
