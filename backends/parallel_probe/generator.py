"""Synthetic pools with the statistics of the published Qwen3-8B pools; always shown as synthetic.

A question has a difficulty; it sets how often a branch comes out right and how long branches are. A branch chatters before its own onset and
repeats its own answer after it. What is known of the real pools stands in the method's card; design and constants are reconstructed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backends.parallel_probe.pools import ERROR, Branch, Pool

INTERVAL_TOKENS = 500
CAP_TOKENS = 41_500
SHORTEST_TOKENS = 1_000


@dataclass(frozen=True, slots=True)
class Shape:
    """The generator's constants.

    difficulty: of a Beta law on [0, 1]. medians: tokens of the easiest and of the hardest question, between them log-linear. between: spread
    of a question's log-median around that. spread: of a branch's log-length inside a question. wrong_longer: added to a wrong branch's
    log-length. onset: Beta law of the share of its length after which a branch sticks to its own answer. sticky: chance that chatter repeats
    itself. guess: weight of the right answer in chatter, for each unit of its chance. errors: least and greatest share of unreadable chatter.
    lure: the share of wrong branches that end with the one attractive wrong answer, on the easiest and on the hardest question. bait: its
    weight in the chatter of the hardest question. others: further wrong answers, of weight 1 in all.
    """

    difficulty: tuple[float, float] = (0.45, 0.8)
    medians: tuple[float, float] = (7_000, 27_000)
    spread: float = 0.30
    wrong_longer: float = 0.25
    onset: tuple[float, float] = (2.6, 1.15)
    between: float = 0.3
    sticky: float = 0.6
    guess: float = 0.06
    errors: tuple[float, float] = (0.05, 0.08)
    lure: tuple[float, float] = (0.4, 0.9)
    bait: float = 0.15
    others: int = 12


def pool(rng: np.random.Generator, branches: int, difficulty: float | None = None, shape: Shape = Shape(), interval: int = INTERVAL_TOKENS) -> Pool:
    """One synthetic question. difficulty: in [0, 1], drawn where it is None. Answers are "right", "lure" and "other 1", ...; gold is "right".

    Raises ValueError: no branch, difficulty outside [0, 1].
    """
    if branches < 1:
        raise ValueError(f"{branches} branches; at least 1 is needed")
    hard = float(rng.beta(*shape.difficulty)) if difficulty is None else difficulty
    if not 0 <= hard <= 1:
        raise ValueError(f"the difficulty is {hard}; it lies between 0 and 1")
    names = np.array(["right", "lure", *(f"other {i + 1}" for i in range(shape.others)), ERROR], dtype=object)
    own, lengths = _ends(rng, branches, hard, shape)
    depths = np.maximum(1, lengths // interval)
    columns = int(depths.max())
    onset = rng.beta(*shape.onset, size=branches) * depths
    chatter = _chatter(rng, (branches, columns), hard, shape)
    codes = np.where(np.arange(columns) >= onset[:, None], own[:, None], chatter)
    rows = (names[codes[i, : depths[i]]] for i in range(branches))
    made = tuple(Branch(tuple(row), int(length), str(names[code])) for row, length, code in zip(rows, lengths, own, strict=True))
    return Pool(made, interval, "right", f"Synthetic question of difficulty {hard:.2f}")


def chance(hard: float) -> float:
    """P(a branch comes out right) on a question of this difficulty."""
    return float(0.98 - 0.95 * hard**1.3)


def _ends(rng: np.random.Generator, branches: int, hard: float, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """(N,) codes of the branches' own answers and (N,) lengths in tokens."""
    is_right = rng.random(branches) < chance(hard)
    is_lure = rng.random(branches) < shape.lure[0] + (shape.lure[1] - shape.lure[0]) * hard
    own = np.where(is_right, 0, np.where(is_lure, 1, 2 + rng.integers(shape.others, size=branches)))
    middle = (1 - hard) * np.log(shape.medians[0]) + hard * np.log(shape.medians[1]) + shape.between * rng.standard_normal()
    logs = middle + shape.spread * rng.standard_normal(branches) + shape.wrong_longer * ~is_right
    return own, np.clip(np.exp(logs), SHORTEST_TOKENS, CAP_TOKENS).astype(int)


def _chatter(rng: np.random.Generator, size: tuple[int, int], hard: float, shape: Shape) -> np.ndarray:
    """(N, T) codes of answers before the onset: sticky, drawn from right, lure, others and unreadable."""
    errors = shape.errors[0] + (shape.errors[1] - shape.errors[0]) * hard
    weights = np.array([shape.guess * chance(hard) + 0.02, shape.bait * hard, *[1 / shape.others] * shape.others])
    weights = np.append(weights / weights.sum() * (1 - errors), errors)
    fresh = rng.choice(len(weights), size=size, p=weights)
    anew = rng.random(size) >= shape.sticky
    anew[:, 0] = True
    newest = np.maximum.accumulate(np.where(anew, np.arange(size[1]), 0), axis=1)
    return np.take_along_axis(fresh, newest, axis=1)
