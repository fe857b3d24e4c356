"""The last blocks of a language model as the body that is adapted; the shared model is read and never changed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from backends.plate.tasks import Data, Pair, Task
from backends.runtime import texts
from backends.runtime.language_model import Decoder

BLOCKS = 4  # that are adapted, the last ones
LENGTH = 64  # tokens of a sample
HELD_OUT = 8  # samples for testing, of each language
BATCH = 2


class Tail(nn.Module):
    """The last blocks and the final norm, copied from the model, so that training leaves the shared weights alone.

    angles: cosines and sines of the rotary positions; mask: (1, 1, T, T), what each token may not see is very negative.
    """

    def __init__(self, model: Any, length: int = LENGTH, blocks: int = BLOCKS) -> None:
        super().__init__()
        inner = model.model
        self.layers = nn.ModuleList(copy.deepcopy(layer) for layer in inner.layers[-blocks:])
        self.norm = copy.deepcopy(inner.norm)
        positions = torch.arange(length)[None]
        self.angles = inner.rotary_emb(torch.zeros(1, length, model.config.hidden_size), positions)
        self.register_buffer("mask", torch.full((1, 1, length, length), torch.finfo(torch.float32).min).triu(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (n, T, d) states entering these blocks. Returns (n, T, d) states that the head reads."""
        for layer in self.layers:
            x = layer(x, attention_mask=self.mask, position_embeddings=self.angles)
        out: torch.Tensor = self.norm(x)
        return out


class WordHead(nn.Module):
    """The model's own map from states to words, shared and frozen: a copy of it would be as large as the rest."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._shared = (model.lm_head,)  # in a tuple: no module of ours, so nobody trains, moves or copies it

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (n, T, d) -> logits (n, T, V)."""
        out: torch.Tensor = self._shared[0](x)
        return out

    def __deepcopy__(self, memo: dict[int, Any]) -> WordHead:
        return self


@dataclass(frozen=True, slots=True)
class Lines:
    """Token ids (n, T + 1) of one language: each sample and the word after it; what is not trained on is for testing."""

    train: np.ndarray | None
    test: np.ndarray


def samples(tokenizer: Any, parts: list[str], length: int = LENGTH) -> np.ndarray:
    """(n, length + 1) token ids: each text cut into samples that do not overlap, its rest left out."""
    cut = []
    for part in parts:
        ids = np.array(tokenizer(part, add_special_tokens=False)["input_ids"])
        count = len(ids) // (length + 1)
        cut.append(ids[: count * (length + 1)].reshape(count, length + 1))
    return np.concatenate(cut)


def read(tokenizer: Any) -> tuple[Lines, Lines]:
    """Old language: English passages of today's spelling, for testing only; new language: Chaucer's Middle English, its last lines held out."""
    old = samples(tokenizer, [passage.text for passage in texts.passages()])[:HELD_OUT]
    new = samples(tokenizer, [texts.chaucer().text])
    return Lines(None, old), Lines(new[:-HELD_OUT], new[-HELD_OUT:])


@torch.no_grad()
def entering(model: Any, ids: np.ndarray, check: Callable[[], None], blocks: int = BLOCKS) -> np.ndarray:
    """(n, T, d) states that enter the last blocks. ids: (n, T) token ids."""
    states = []
    for row in ids:
        check()
        found = model.model(input_ids=torch.from_numpy(row)[None], use_cache=False, output_hidden_states=True)
        states.append(found.hidden_states[-1 - blocks].numpy())
    return np.concatenate(states)


def pair(decoder: Decoder, memo: Callable[..., Any], check: Callable[[], None]) -> Pair:
    """The two languages as tasks on the states that enter the last blocks: everything before them is frozen, so it is computed once."""

    def states(ids: np.ndarray) -> Data:
        found = memo("states", (decoder.name, ids), lambda: entering(decoder.model, ids[:, :-1], check))
        return Data(torch.from_numpy(found.copy()), torch.from_numpy(ids[:, 1:].astype(np.int64)))

    old, new = read(decoder.tokenizer)
    nothing = Data(torch.empty(0, LENGTH), torch.empty(0, LENGTH, dtype=torch.int64))
    tasks = [Task(nothing if lines.train is None else states(lines.train), states(lines.test)) for lines in (old, new)]
    source = "English passages of the public domain, then lines of Chaucer's General Prologue"
    return Pair(tasks[0], tasks[1], (), 0, source)
