"""A pool: the branches of one question, what each answered when it was probed, how long it was, and its own final answer."""

from __future__ import annotations

import functools
import json
import math
import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError

from backends.contract import InputError

ERROR = "ERR"  # a probe whose answer could not be read; it votes like any other answer


@dataclass(frozen=True, slots=True)
class Branch:
    """One line of thought. probes: provisional answers, one each ``interval`` tokens. tokens: its full length. final: its own answer."""

    probes: tuple[Hashable, ...]
    tokens: int
    final: Hashable


@dataclass(frozen=True)
class Pool:
    """The branches of one question, probed each ``interval`` tokens. gold: the right answer, None where it is not known.

    Raises ValueError: no branch, interval below 1, a branch shorter than its probes say, an answer that is not hashable.
    """

    branches: tuple[Branch, ...]
    interval: int
    gold: Hashable | None = None
    question: str = ""

    def __post_init__(self) -> None:
        if not self.branches:
            raise ValueError("the pool has no branch")
        if self.interval < 1:
            raise ValueError(f"the probe interval is {self.interval} tokens; it must be at least 1")
        for number, branch in enumerate(self.branches):
            if branch.tokens < self.interval * len(branch.probes):
                raise ValueError(f"branch {number} has {branch.tokens} tokens, but {len(branch.probes)} probes every {self.interval} tokens need more")
            for answer in (*branch.probes, branch.final):
                if not isinstance(answer, Hashable):
                    raise ValueError(f"branch {number} has an answer that cannot be compared: {answer!r}")

    def __len__(self) -> int:
        return len(self.branches)

    @functools.cached_property
    def answers(self) -> tuple[Hashable, ...]:
        """All answers of the pool, in the order in which they are met; codes count along this."""
        seen: dict[Hashable, None] = {}
        for branch in self.branches:
            seen.update(dict.fromkeys((*branch.probes, branch.final)))
        return tuple(seen)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """(N,) tokens of each branch."""
        return np.array([branch.tokens for branch in self.branches])

    @functools.cached_property
    def depths(self) -> np.ndarray:
        """(N,) number of probes of each branch."""
        return np.array([len(branch.probes) for branch in self.branches])

    @functools.cached_property
    def finals(self) -> np.ndarray:
        """(N,) code of each branch's own answer."""
        code = {answer: i for i, answer in enumerate(self.answers)}
        return np.array([code[branch.final] for branch in self.branches])

    @functools.cached_property
    def gold_code(self) -> int | None:
        """The right answer's code; -1 where nobody ever gives it, None where it is not known."""
        if self.gold is None:
            return None
        return self.answers.index(self.gold) if self.gold in self.answers else -1

    @functools.cached_property
    def columns(self) -> np.ndarray:
        """(N, T) codes; past its last probe a branch shows its final answer. T is one more than the most probes, so the last column is all final."""
        code = {answer: i for i, answer in enumerate(self.answers)}
        table = np.tile(self.finals[:, None], (1, int(self.depths.max(initial=0)) + 1))
        for row, branch in enumerate(self.branches):
            table[row, : len(branch.probes)] = [code[answer] for answer in branch.probes]
        return table

    def first(self, count: int, order: Sequence[int] | None = None) -> Pool:
        """The pool of ``count`` branches, the first ones, or the first in ``order``. Raises ValueError when there are fewer."""
        chosen = range(len(self)) if order is None else order
        if count > len(self):
            raise ValueError(f"{count} branches are asked for, the pool has {len(self)}")
        return Pool(tuple(self.branches[i] for i in chosen[:count]), self.interval, self.gold, self.question)

    def every(self, interval: int) -> Pool:
        """The same branches, probed each ``interval`` tokens only. Raises ValueError when that is no multiple of the interval that there is."""
        step, rest = divmod(interval, self.interval)
        if rest or step < 1:
            raise ValueError(f"the pool was probed every {self.interval} tokens, so {interval} cannot be had")
        thinned = tuple(Branch(branch.probes[step - 1 :: step], branch.tokens, branch.final) for branch in self.branches)
        return Pool(thinned, interval, self.gold, self.question)

    def right(self, answer: Hashable) -> bool | None:
        """Whether an answer is the right one; None where that is not known."""
        return None if self.gold is None else answer == self.gold


def votes(codes: np.ndarray, voting: np.ndarray) -> np.ndarray:
    """(V,) the most frequent code of each of V ballots; of equally frequent ones, that which is met first.

    codes: (V, N) not negative. voting: (V, N), who takes part. Raises ValueError for a ballot without anyone.
    """
    if not voting.any(axis=1).all():
        raise ValueError("nobody votes")
    place = np.arange(len(codes))[:, None] * (int(codes.max()) + 1) + codes
    counts = np.bincount(place[voting], minlength=int(place.max()) + 1)
    chosen = np.where(voting, counts[place], -1).argmax(axis=1)
    return codes[np.arange(len(codes)), chosen]


def mode(codes: np.ndarray) -> int:
    """The most frequent of (n,) codes; of equally frequent ones, that which is met first. Raises ValueError for none."""
    return int(votes(codes[None], np.ones((1, codes.size), bool))[0])


def replays(pool: Pool, count: int, times: int, seed: int = 0) -> list[Pool]:
    """SCOUT: pools of ``count`` branches, each the first ones of another shuffle, so that controllers differ by nothing that the model drew.

    Shuffles are Python's with the seeds ``seed`` to ``seed + times - 1``, as in the released evaluation. A pool of just ``count`` branches
    is one replay in its own order. Raises ValueError when there are fewer.
    """
    if count >= len(pool):
        return [pool.first(count)]
    made = []
    for number in range(times):
        order = list(range(len(pool)))
        random.Random(seed + number).shuffle(order)
        made.append(pool.first(count, order))
    return made


def onset_ratio(pool: Pool) -> float:
    """Tokens after which the vote of all branches never changes again, over the longest branch (finished branches vote with their own answer)."""
    table = pool.columns.T
    won = votes(table, np.ones(table.shape, bool))
    other = np.flatnonzero(won != won[-1])
    first = 0 if other.size == 0 else int(other[-1]) + 1
    return min(1.0, (first + 1) * pool.interval / max(1, int(pool.lengths.max())))


class _Scout(BaseModel):
    """One question of a pool file: each branch is [probes, tokens, final answer]."""

    question: str = ""
    gold_answer: Any = None
    probe_freq: int
    each_branch: list[tuple[list[Any], int, Any]]


def normalised(answer: Any) -> Hashable:
    """An answer as it votes: without spaces around it, numbers alike however they are written; what cannot be read is ``ERR``.

    Lists and other answers that cannot be compared are kept, so that the pool names them.
    """
    if answer is None:
        return ERROR
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        return answer  # type: ignore[no-any-return]
    text = str(answer).strip().strip("$").replace("\\dfrac", "\\frac").replace("\\left", "").replace("\\right", "").replace(" ", "")
    if text.startswith("\\frac{") and text.endswith("}") and text.count("}{") == 1:
        text = text.removeprefix("\\frac{").removesuffix("}").replace("}{", "/")
    if not text:
        return ERROR
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if math.isfinite(number) and number == int(number) else text


def read(content: bytes, field: str = "pool") -> list[Pool]:
    """The pools of a file in SCOUT's layout: one question or a list of them (``question``, ``gold_answer``, ``probe_freq``, ``each_branch``).

    Raises InputError in plain words: no JSON, another layout, a pool that contradicts itself.
    """
    try:
        loaded = json.loads(content)
    except ValueError as error:
        raise InputError(field, "the file is not JSON", "give a file with question, gold_answer, probe_freq and each_branch") from error
    entries = loaded if isinstance(loaded, list) else [loaded]
    try:
        scouts = TypeAdapter(list[_Scout]).validate_python(entries)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(field, f"{place}: {first['msg'].lower()}", "each branch is [list of probes, tokens, final answer]") from error
    if not scouts:
        raise InputError(field, "the file holds no question", "give at least one")
    pools = []
    for number, scout in enumerate(scouts):
        branches = tuple(Branch(tuple(map(normalised, probes)), tokens, normalised(final)) for probes, tokens, final in scout.each_branch)
        gold = None if scout.gold_answer is None else normalised(scout.gold_answer)
        try:
            pools.append(Pool(branches, scout.probe_freq, gold, scout.question))
        except ValueError as error:
            raise InputError(field, f"question {number}: {error}", "mend the file") from error
    return pools


def _trace() -> Pool:
    rows = (("abccc", 2750, "c"), ("bbcccc", 3100, "c"), ("acccccc", 3600, "c"), ("abddddddddd", 5800, "d"), ("aaaaacccc", 4700, "c"))
    return Pool(tuple(Branch(tuple(probes), tokens, final) for probes, tokens, final in rows), 500, "c", "A worked trace of five branches")


TRACE = _trace()  # small enough to follow by hand; with stable 3, prune 2, warm-up 2 it ends at step 4
