"""The text of the pre-training experiment: the King James Version (1611), shipped compressed, one verse a line; its BPE of 4,096 pieces."""

from __future__ import annotations

import lzma
from functools import cache

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from backends.runtime.folders import ROOT

WEIGHTS = ROOT / "static" / "weights" / "attention-sink"
CORPUS = WEIGHTS / "corpus.txt.xz"
TOKENIZER = WEIGHTS / "tokenizer.json"
CHUNK = 100  # verses of one chunk; every twentieth chunk is validation text, so that both parts hold all books
VALIDATION_EVERY = 20


def verses() -> list[str]:
    """The 31,102 verses in order."""
    return lzma.decompress(CORPUS.read_bytes()).decode("utf-8").splitlines()


def split(lines: list[str]) -> tuple[list[str], list[str]]:
    """(training, validation) lines: every twentieth chunk of 100 verses is held out.

    >>> training, validation = split([str(i) for i in range(4000)])
    >>> len(training), validation[0], len(validation)
    (3800, '1900', 200)
    """
    held_out = [i // CHUNK % VALIDATION_EVERY == VALIDATION_EVERY - 1 for i in range(len(lines))]
    return [v for v, held in zip(lines, held_out, strict=True) if not held], [v for v, held in zip(lines, held_out, strict=True) if held]


def train_tokenizer(vocabulary: int) -> Tokenizer:
    """A byte-level BPE of the training text; the same text gives the same tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(split(verses())[0], trainer)
    return tokenizer


@cache
def tokenizer() -> Tokenizer:
    """The shipped tokenizer."""
    return Tokenizer.from_file(str(TOKENIZER))


@cache
def tokens() -> tuple[np.ndarray, np.ndarray]:
    """(training, validation) token ids, one long row each; a line feed follows each verse."""
    training, validation = (np.asarray(tokenizer().encode("\n".join(lines)).ids, dtype=np.int64) for lines in split(verses()))
    return training, validation


def batch(ids: np.ndarray, sequences: int, length: int, seed: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(inputs, targets), each (sequences, length), from random places. They depend on seed and step alone, so a resumed run sees the same."""
    starts = np.random.default_rng([seed, step]).integers(0, len(ids) - length, sequences)
    rows = torch.from_numpy(np.stack([ids[s : s + length + 1] for s in starts]))
    return rows[:, :-1], rows[:, 1:]


def validation_windows(ids: np.ndarray, length: int, limit: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first ``limit`` windows of ``length`` tokens that follow one another: (inputs, targets), each (windows, length)."""
    count = min(limit, (len(ids) - 1) // length)
    flat = torch.from_numpy(ids[: count * length + 1])
    return flat[:-1].view(count, length), flat[1:].view(count, length)
