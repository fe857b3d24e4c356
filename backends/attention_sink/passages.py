"""Twenty short English passages in the public domain, for averages over texts."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from backends.runtime import folders

Array = np.ndarray
FILE = folders.ROOT / "static" / "data" / "english-passages.txt"


@dataclass(frozen=True, slots=True)
class Passage:
    """source: author, work and year."""

    source: str
    text: str


@functools.cache
def passages() -> tuple[Passage, ...]:
    """All passages, each of at least 96 tokens of the bundled model.

    >>> len(passages()), passages()[2].text[:16]
    (20, 'Call me Ishmael.')
    """
    blocks = FILE.read_text(encoding="utf-8").strip().split("\n\n")
    return tuple(Passage(source.removeprefix("# "), text) for source, text in (block.split("\n", 1) for block in blocks))


def random_ids(vocabulary: int, number: int, length: int) -> Array:
    """Texts without language, (number, length): id_i = (1000 c + 37 i^2 + 11 i) mod vocabulary for c = 1 to ``number``."""
    i = np.arange(length, dtype=np.int64)
    return (1000 * np.arange(1, number + 1)[:, None] + 37 * i * i + 11 * i) % vocabulary


def passage_ids(tokenizer: Any, number: int, length: int) -> Array:
    """The first ``length`` token ids of the first ``number`` passages, without a start token: (number, length)."""
    rows = [tokenizer(passage.text, add_special_tokens=False)["input_ids"][:length] for passage in passages()[:number]]
    shortest = min(len(row) for row in rows)
    return np.array([row[:shortest] for row in rows], np.int64)
