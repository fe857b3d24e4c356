"""Scoring a pool of questions in one tensor operation against a loop over the questions, and the time of forty dialogues of each kind.

TEIG and EIG of both must agree to 1e-9 bits, or the benchmark fails.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from backends.tai import benchmark, eig, teig
from backends.tai.dialogue import Dialogue, Look, Rules
from backends.tai.draws import Geometry, analyse
from backends.tai.pool import Pool
from backends.tai.tasks.code import CodeTask

SIZES = (48, 96, 200, 400)
AGREE = 1e-9
REPEATS = 5
RULES = Rules(binary=True)


def loop(look: Look, weights: np.ndarray, error_rate: float) -> np.ndarray:
    """(2, Q) TEIG and EIG, one question after the other by the public functions."""
    labels, found = look.partition.labels, []
    clusters = np.eye(int(labels.max()) + 1)[labels] * weights[:, None]
    for question in look.questions:
        given = np.eye(question.n_options)[question.answers].T @ clusters / look.belief
        about_intent = teig(look.belief, given.T, error_rate)
        found.append((about_intent, eig(weights, question.answers, question.n_options, error_rate)))
    return np.array(found).T


def rows() -> Iterator[dict[str, Any]]:
    """One row a size, with the growth from the size before; then the whole benchmark of the page, which has no peer."""
    task = CodeTask(seed=0, quirk_rate=0.2, prior_skew=0.6)
    before: tuple[int, float] | None = None
    for n in SIZES:
        draw = analyse(task.draw(n, np.random.default_rng(n)), Geometry(), np.random.default_rng(0))
        pool = Pool(draw, RULES.binary)
        led = Dialogue(draw, RULES, shared=pool)
        look = led.look()  # makes the pool, which both ways then score
        ours, theirs = [], []
        for _ in range(REPEATS):
            began = time.perf_counter()
            look = led.look()
            ours.append(time.perf_counter() - began)
            began = time.perf_counter()
            slowly = loop(look, led.weights, RULES.error_rate)
            theirs.append(time.perf_counter() - began)
        apart = float(np.abs(slowly - np.stack([look.teig, look.eig])).max())
        if apart > AGREE:
            raise AssertionError(f"N = {n}: the gains are {apart} bits apart")
        ours_s, peer_s = float(np.median(ours)), float(np.median(theirs))
        growth = math.log(ours_s / before[1]) / math.log(n / before[0]) if before else None
        before = (n, ours_s)
        yield {
            "method": "tai",
            "work": "gains of all questions, and the choice",
            "size": n,
            "ours_s": ours_s,
            "peer": "loop over questions",
            "peer_s": peer_s,
            "ratio": peer_s / ours_s,
            "growth": growth,
            "note": f"{len(look.questions)} questions, gains {apart:.0e} bits apart",
        }
    began = time.perf_counter()
    conditions = {"right": benchmark.Condition(0.0, 0.0), "wrong": benchmark.Condition(0.1, 0.1)}
    *_, played = benchmark.run(task, 48, Geometry(), RULES, conditions)
    yield {
        "method": "tai",
        "work": "forty wishes, five ways to ask, with and without wrong answers",
        "size": 48,
        "ours_s": time.perf_counter() - began,
        "peer": None,
        "peer_s": None,
        "ratio": None,
        "growth": None,
        "note": f"{sum(p.turns for of in played.values() for found in of.values() for p in found)} turns",
    }
