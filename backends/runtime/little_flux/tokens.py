"""Words to token ids: one token a word, the end mark, then padding."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from backends.runtime.little_flux.configuration import END, PAD, SEQUENCE_LENGTH, SPECIAL, UNKNOWN, VOCABULARY

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """The word tokenizer of both text encoders; lower case, unknown words become ``<unk>``."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    table = {word: number for number, word in enumerate((*SPECIAL, *VOCABULARY))}
    inner = Tokenizer(models.WordLevel(table, unk_token=UNKNOWN))
    inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(single=f"$A {END}", special_tokens=[(END, table[END])])
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token=PAD, eos_token=END, unk_token=UNKNOWN, model_max_length=SEQUENCE_LENGTH)


def ids_of(text: str) -> list[int]:
    """The SEQUENCE_LENGTH token ids of a text, cut and padded."""
    return list(tokenizer()(text, padding="max_length", truncation=True, max_length=SEQUENCE_LENGTH).input_ids)


def word_index(text: str, word: str) -> int:
    """Where the word stands among the tokens of the text, -1 when it is not in it."""
    words = text.lower().split()
    return words.index(word) if word in words else -1
