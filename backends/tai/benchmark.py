"""Forty simulated dialogues for each way to choose questions, with and without wrong answers, on the same draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from backends.tai.candidates import Candidates, Task
from backends.tai.dialogue import Dialogue, Rules, Selector
from backends.tai.draws import Draw, Geometry, analyse
from backends.tai.homology import components, in_order
from backends.tai.pool import Pool
from backends.tai.simulation import Person, hidden, is_right, person, play

DIALOGUES = 40
MOST_TURNS = 60
WRONG = 0.1  # share of wrong answers in the second condition, unless the params say another
STREAM = 41
FIXED_CUT = 0.3
STRATEGIES: Mapping[str, str] = {
    "teig": "bits about the intent (TEIG)",
    "k-means": "TEIG over k-means clusters",
    "hdbscan": "TEIG over HDBSCAN clusters",
    "fixed cut": "TEIG, bars always cut at 0.3",
    "eig": "bits about the candidate (EIG)",
    "one by one": "candidate by candidate",
    "random": "random question",
}


Peer = Literal["k-means", "hdbscan", "fixed cut"]
PEERS: tuple[Peer, ...] = get_args(Peer)


@dataclass(frozen=True, slots=True)
class Condition:
    """true_error_rate: share of wrong answers; error_rate: what the lab assumes."""

    true_error_rate: float
    error_rate: float


@dataclass(frozen=True, slots=True)
class Played:
    """One dialogue: questions asked, of these about style, and whether the solution is right."""

    turns: int
    style: int
    right: bool


def run(
    task: Task,
    count: int,
    geometry: Geometry,
    rules: Rules,
    conditions: Mapping[str, Condition],
    dialogues: int = DIALOGUES,
    check: Callable[[], None] = lambda: None,
) -> Iterator[dict[str, dict[str, list[Played]]]]:
    """Results so far, condition -> strategy -> dialogues, after each of ``dialogues`` hidden wishes.

    Each wish has a draw of its own, where the task can draw at once. Every dialogue keeps its draw, so that the strategies
    differ by their questions alone. check: called between dialogues, may raise to stop. Raises InputError.
    """
    results: dict[str, dict[str, list[Played]]] = {name: {strategy: [] for strategy in STRATEGIES} for name in conditions}
    draw: Draw | None = None
    for number in range(dialogues):
        if draw is None or task.redraws:
            rng = np.random.default_rng([rules.seed, STREAM, number])
            draw = analyse(task.draw(count, rng), geometry, rng)
            pool = Pool(draw, rules.binary)
            peers: dict[str, Pool] = {name: Pool(regrouped(draw, name, number), rules.binary) for name in PEERS if name in STRATEGIES}
        place = hidden(draw.candidates, rules.seed + number)
        for name, condition in conditions.items():
            who = person(draw.candidates, place, condition.true_error_rate, rules.seed + number)
            for strategy in STRATEGIES:
                check()
                led = replace(rules, error_rate=condition.error_rate, most_turns=MOST_TURNS, seed=rules.seed + number)
                results[name][strategy].append(_played(strategy, peers.get(strategy, pool), led, who))
        yield results


def _played(strategy: str, pool: Pool, rules: Rules, who: Person) -> Played:
    if strategy == "one by one":
        return one_by_one(pool.draw, who, rules.seed)
    selectors: dict[str, Selector] = {"eig": "eig", "random": "random"}
    dialogue = Dialogue(pool.draw, replace(rules, selector=selectors.get(strategy, "teig")), shared=pool)
    look = play(dialogue, who)
    style = sum(turn.reply.question.source == "style" for turn in dialogue.turns)
    return Played(len(dialogue.turns), style, is_right(dialogue, look, who))


def regrouped(draw: Draw, clustering: Peer, seed: int) -> Draw:
    """The draw with the clusters of a peer in place of the persistent ones.

    k-means sees the behaviour and is told how many clusters there are; HDBSCAN sees the distances, and what it takes for noise is
    in no cluster; "fixed cut" is single linkage cut at 0.3 whatever the bars say.
    """
    if clustering == "fixed cut":
        return replace(draw, labels=components(len(draw.labels), draw.deaths, draw.merges, FIXED_CUT), tau=FIXED_CUT)
    return replace(draw, labels=_k_means(draw, seed) if clustering == "k-means" else _hdbscan(draw.distance), clustering="peer")


def _k_means(draw: Draw, seed: int) -> np.ndarray:
    from sklearn.cluster import KMeans

    rows = _behaviour(draw.candidates)
    k = min(int(draw.labels.max()) + 1, len(np.unique(rows, axis=0)))
    return in_order(KMeans(k, n_init=1, random_state=seed).fit_predict(rows))


def _hdbscan(distance: np.ndarray) -> np.ndarray:
    from sklearn.cluster import HDBSCAN

    labels = HDBSCAN(min_cluster_size=2, metric="precomputed", allow_single_cluster=True, copy=True).fit_predict(distance)
    return labels if (labels >= 0).any() else np.zeros(len(labels), dtype=int)


def _behaviour(candidates: Candidates) -> np.ndarray:
    """(N, sum of outcomes) one-hot outcomes of all probes; the features where there are no probes."""
    if not candidates.probes:
        return candidates.features
    return np.concatenate([np.eye(len(p.outcomes))[candidates.codes[:, axis]] for axis, p in enumerate(candidates.probes)], axis=1)


def one_by_one(draw: Draw, who: Person, seed: int) -> Played:
    """Candidates are shown one after the other, likeliest first and equal ones once: "is it this one?".

    A wrong answer takes a wrong candidate, or passes over the right one.
    """
    candidates = draw.candidates
    rng = np.random.default_rng([seed, STREAM])
    _, first, count = np.unique(draw.distance.round(9), axis=0, return_index=True, return_counts=True)  # equal rows: nothing tells them apart
    order = first[np.lexsort((rng.random(len(first)), -count))]
    wished = draw.labels if candidates.intents is None else candidates.intents
    wanted = wished[candidates.texts.index(who.wish.texts[0])] if candidates.intents is None else who.wish.intents[0]  # type: ignore[index]
    for turn, place in enumerate(order, 1):
        fits = bool(wished[place] == wanted)
        if fits != (rng.random() < who.error_rate):
            return Played(turn, 0, fits)
    return Played(len(order), 0, False)


def summary(played: list[Played]) -> dict[str, float]:
    """Mean turns with a 95 % interval (normal), mean style questions, share of right ones with a 95 % interval (Wilson)."""
    turns = np.array([p.turns for p in played], dtype=float)
    half = 1.96 * float(turns.std(ddof=1)) / np.sqrt(len(turns)) if len(turns) > 1 else 0.0
    right = sum(p.right for p in played)
    low, high = _wilson(right, len(played))
    return {
        "turns": float(turns.mean()),
        "turns_low": float(turns.mean() - half),
        "turns_high": float(turns.mean() + half),
        "style": float(np.mean([p.style for p in played])),
        "right": right / len(played),
        "right_low": low,
        "right_high": high,
        "dialogues": float(len(played)),
    }


@lru_cache(maxsize=1024)
def _wilson(right: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share; remembered, since a table is made anew after each wish."""
    from scipy.stats import binomtest

    interval = binomtest(right, total).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)
