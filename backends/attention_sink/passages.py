"""Token ids to average over: English passages in the public domain, and texts without language."""

from __future__ import annotations

from typing import Any

import numpy as np

from backends.runtime.texts import passages

Array = np.ndarray


def random_ids(vocabulary: int, number: int, length: int) -> Array:
    """Texts without language, (number, length): id_i = (1000 c + 37 i^2 + 11 i) mod vocabulary for c = 1 to ``number``."""
    i = np.arange(length, dtype=np.int64)
    return (1000 * np.arange(1, number + 1)[:, None] + 37 * i * i + 11 * i) % vocabulary


def passage_ids(tokenizer: Any, number: int, length: int) -> Array:
    """The first ``length`` token ids of the first ``number`` passages, without a start token: (number, length)."""
    rows = [tokenizer(passage.text, add_special_tokens=False)["input_ids"][:length] for passage in passages()[:number]]
    shortest = min(len(row) for row in rows)
    return np.array([row[:shortest] for row in rows], np.int64)
