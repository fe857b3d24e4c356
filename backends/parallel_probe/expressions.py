"""Arithmetic modulo 10 that is reasoned out in the open: expressions, the traces which reduce them step by step, and their characters.

A trace is the expression, then the running expression after each reduction of a random innermost pair, then perhaps a recheck from the start,
then ``#`` and the answer: ``((3+4)*(2-7));(7*(2-7));(7*5);5#5``. Design reconstructed from the description of a tiny probed reasoner.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CHARACTERS = "0123456789+-*();?#"
END = len(CHARACTERS)  # after the answer; also fills shorter rows of a batch
VOCABULARY = END + 1
ANSWER = "#"
RECHECK = "?"
STEP = ";"
BLOCK_TOKENS = 256
LEAVES = (2, 8)  # least and greatest number of digits in an expression
RECHECK_PROBABILITY = 2 / 3  # lengths get a long tail, as those of real branches have
CUT_SHARE = 1 / 3
_PAIR = re.compile(r"\((\d)([+\-*])(\d)\)")
_TO_ID = {character: i for i, character in enumerate(CHARACTERS)}


@dataclass(frozen=True, slots=True)
class Trace:
    """ids: (length,) characters, prompt first. prompt: how many of them are the expression with its first ``;``.
    forced: place of an answer sign that was put in at a cut, hence is no target; -1 where there is none."""

    ids: np.ndarray
    prompt: int
    forced: int


def encode(text: str) -> list[int]:
    """The characters' numbers; raises ValueError for one that is not in the vocabulary."""
    unknown = sorted(set(text) - set(CHARACTERS))
    if unknown:
        raise ValueError(f"only {CHARACTERS} can be read, not {''.join(unknown)!r}")
    return [_TO_ID[character] for character in text]


def decode(ids: Sequence[int]) -> str:
    """The text of the numbers, up to the end sign."""
    return "".join(CHARACTERS[i] for i in ids if i != END)


def expression(leaves: int, rng: np.random.Generator) -> str:
    """A random binary tree with this many digits, each inner node in brackets."""
    if leaves == 1:
        return str(rng.integers(10))
    left = int(rng.integers(1, leaves))
    return f"({expression(left, rng)}{'+-*'[rng.integers(3)]}{expression(leaves - left, rng)})"


def reduced(pair: re.Match[str]) -> str:
    """The digit that an innermost pair is worth, modulo 10."""
    a, sign, b = int(pair[1]), pair[2], int(pair[3])
    return str((a + b if sign == "+" else a - b if sign == "-" else a * b) % 10)


def value(text: str) -> int:
    """What an expression is worth, modulo 10. Raises ValueError where it is none: only digits, + - * and brackets around each pair."""
    while pair := _PAIR.search(text):
        text = text[: pair.start()] + reduced(pair) + text[pair.end() :]
    if not (len(text) == 1 and text.isdigit()):
        raise ValueError("an expression is a digit, or two expressions with + - or * in brackets, as in ((3+4)*2)")
    return int(text)


def _pass(text: str, rng: np.random.Generator) -> list[str]:
    """The running expressions of one way through, the first left out."""
    lines = []
    while pairs := list(_PAIR.finditer(text)):
        pair = pairs[rng.integers(len(pairs))]
        text = text[: pair.start()] + reduced(pair) + text[pair.end() :]
        lines.append(text)
    return lines


def trace(rng: np.random.Generator, leaves: int | None = None, limit: int = BLOCK_TOKENS) -> Trace:
    """One training trace of at most ``limit`` characters: reductions, rechecks while the coin says so and there is room, the answer; or cut."""
    start = expression(leaves or int(rng.integers(LEAVES[0], LEAVES[1] + 1)), rng)
    written = f"{start}{STEP}{STEP.join(_pass(start, rng))}"
    while rng.random() < RECHECK_PROBABILITY:
        again = f"{RECHECK}{start}{STEP}{STEP.join(_pass(start, rng))}"
        if len(written) + len(again) + 3 > limit:
            break
        written += again
    prompt, answer = len(start) + 1, str(value(start))
    cut = rng.random() < CUT_SHARE
    if cut:
        written = written[: rng.integers(prompt, len(written) + 1)]
    ids = np.array([*encode(f"{written}{ANSWER}{answer}"), END])
    return Trace(ids, prompt, len(written) if cut else -1)


def batches(rng: np.random.Generator, tokens: int, pool: int = 512) -> list[tuple[np.ndarray, np.ndarray]]:
    """Batches of about ``tokens`` characters from ``pool`` new traces, those of like length together.

    Each is (ids, weights), both (rows, length); weight 1 where the character is a target: not in the prompt, not a forced sign, not filling.
    """
    traces = sorted((trace(rng) for _ in range(pool)), key=lambda one: len(one.ids))
    made, start = [], 0
    while start < len(traces):
        rows = 1
        while start + rows < len(traces) and (rows + 1) * len(traces[start + rows].ids) <= tokens:
            rows += 1
        part = traces[start : start + rows]
        longest = len(part[-1].ids)
        ids = np.full((rows, longest), END)
        weights = np.zeros((rows, longest), dtype=np.float32)
        for row, one in enumerate(part):
            ids[row, : len(one.ids)] = one.ids
            weights[row, one.prompt : len(one.ids)] = 1
            if one.forced >= 0:
                weights[row, one.forced] = 0
        made.append((ids, weights))
        start += rows
    return [made[i] for i in rng.permutation(len(made))]
