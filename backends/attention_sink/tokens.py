"""From a text, or token ids, to what the model reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from backends.attention_sink.card import DEFAULT_TEXT, TOKENS_LIMIT, Params
from backends.contract import InputError

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Tokens:
    """ids: (T,). text: of each token alone. source: where they come from, in words. notes: what was cut."""

    ids: Array
    text: tuple[str, ...]
    source: str
    notes: tuple[str, ...]


def read_tokens(params: Params, tokenizer: Any, vocabulary: int, longest: int) -> Tokens:
    """The tokens of ``token_ids`` where there are any, else of ``text``, without a start token.

    longest: what the model takes, 0 where it does not say. Above it, and above 2,000, the rest is cut with a note. Raises InputError for
    an empty text and for ids outside the vocabulary.
    """
    if params.token_ids:
        ids, source = np.array(params.token_ids, np.int64), "given token ids"
        if ids.max() >= vocabulary:
            raise InputError("token_ids", f"id {ids.max()} is not in the vocabulary", f"give ids from 0 to {vocabulary - 1}")
    else:
        if not params.text.strip():
            raise InputError("text", "the text is empty", "write a few words")
        ids = np.array(tokenizer(params.text, add_special_tokens=False)["input_ids"], np.int64)
        source = "Alice's Adventures in Wonderland, 1865" if params.text == DEFAULT_TEXT else "a given text"
        if not ids.size:
            raise InputError("text", "the model knows no token of this text", "write a few words")
    limit = min(TOKENS_LIMIT, longest) if longest else TOKENS_LIMIT
    notes = (f"the text has {len(ids):,} tokens; the first {limit:,} are used",) if len(ids) > limit else ()
    ids = ids[:limit]
    return Tokens(ids, tuple(tokenizer.decode([i]) for i in ids.tolist()), source, notes)
