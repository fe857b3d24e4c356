"""The tiny reasoner: a small decoder that reduces expressions character by character, and that can be asked for an answer at any time."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from backends.parallel_probe import expressions
from backends.parallel_probe.pools import ERROR, Branch, Pool
from backends.runtime.folders import ROOT

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM

WIDTH = 128
LAYERS = 4
HEADS = 4
MLP_WIDTH = 352
WEIGHTS = ROOT / "static" / "weights" / "parallel-probe" / "reasoner.safetensors"


def build() -> LlamaForCausalLM:
    """A decoder of about 0.8 million parameters with fresh weights, from torch's current seed."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=expressions.VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=MLP_WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=2 * expressions.BLOCK_TOKENS,
        bos_token_id=None,
        eos_token_id=expressions.END,
        pad_token_id=expressions.END,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config)


@functools.cache
def load(path: Path = WEIGHTS) -> LlamaForCausalLM:
    """The trained reasoner, in float32 for evaluation."""
    from safetensors.torch import load_file

    model = build()
    model.load_state_dict({name: value.float() for name, value in load_file(path).items()})
    return model.eval()


@dataclass
class Thinking:
    """Branches as they grow. texts: what each has written after the expression. tokens: (N,) how much that is. done: (N,) whether it ended.

    probes: what each answered when it was probed, one list a branch. finals: the own answer of each that ended, else None.
    """

    texts: list[str]
    tokens: np.ndarray
    done: np.ndarray
    probes: list[list[str]]
    finals: list[str | None]
    interval: int
    gold: str
    question: str

    def pool(self) -> Pool:
        """What is there as a pool. Raises ValueError while a branch still thinks."""
        if not self.done.all():
            raise ValueError(f"{int((~self.done).sum())} branches still think")
        branches = zip(self.probes, self.tokens, self.finals, strict=True)
        return Pool(tuple(Branch(tuple(p), int(n), f) for p, n, f in branches), self.interval, self.gold, self.question)


def think(
    model: LlamaForCausalLM,
    question: str,
    branches: int,
    interval: int,
    temperature: float,
    generator: torch.Generator,
    longest: int = expressions.BLOCK_TOKENS,
) -> Iterator[Thinking]:
    """Lets all branches reason side by side and probes each every ``interval`` characters; yields the growing state after each probe.

    A probe puts the answer sign behind the branch's untouched prefix, reads the likeliest character, and forgets both (the cache is cropped):
    the branch goes on as if it had never been asked. A branch that has not ended after ``longest`` characters gives the answer of a probe.
    Raises ValueError for an expression that cannot be read, branches or interval below 1, a temperature that is not positive.
    """
    import torch
    from transformers import DynamicCache

    for name, value, held in (("branches", branches, branches >= 1), ("interval", interval, interval >= 1), ("temperature", temperature, temperature > 0)):
        if not held:
            raise ValueError(f"{name} is {value}")
    prompt = torch.tensor(expressions.encode(question + expressions.STEP)).expand(branches, -1)
    gold = str(expressions.value(question))
    state = Thinking([""] * branches, np.zeros(branches, int), np.zeros(branches, bool), [[] for _ in range(branches)], [None] * branches, interval, gold, question)
    sign = expressions.encode(expressions.ANSWER)[0]
    with torch.inference_mode():
        cache = DynamicCache(config=model.config)
        logits = model(prompt, cache=cache).logits[:, -1]
        rows = np.arange(branches)  # which branch each row of the cache belongs to
        for written in range(1, longest + 1):
            drawn = torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=generator)
            characters = drawn[:, 0].tolist()
            for row, character in zip(rows, characters, strict=True):
                if character != expressions.END:
                    state.texts[row] += expressions.CHARACTERS[character]
                    state.tokens[row] += 1
            ended = np.array([character == expressions.END for character in characters])
            for row in rows[ended]:
                state.finals[row] = final_answer(state.texts[row])
                state.done[row] = True
            if ended.any():
                staying = torch.from_numpy(np.flatnonzero(~ended))
                rows, drawn = rows[~ended], drawn[staying]
                if rows.size:
                    cache.batch_select_indices(staying)
            if rows.size == 0:
                break
            logits = model(drawn, cache=cache).logits[:, -1]
            if written % interval == 0 or written == longest:
                answers = _probe(model, cache, len(rows), sign)
                if written % interval == 0:
                    for row, answer in zip(rows, answers, strict=True):
                        state.probes[row].append(answer)
                if written == longest:
                    for row, answer in zip(rows, answers, strict=True):
                        state.finals[row] = answer
                    state.done[:] = True
                yield state
        if rows.size == 0:
            yield state


def _probe(model: LlamaForCausalLM, cache: object, rows: int, sign: int) -> list[str]:
    import torch

    logits = model(torch.full((rows, 1), sign), cache=cache).logits[:, -1]
    cache.crop(-1)  # type: ignore[attr-defined]
    return [expressions.CHARACTERS[i] if i < 10 else ERROR for i in logits.argmax(-1).tolist()]


def final_answer(text: str) -> str:
    """The digit behind the last answer sign; ``ERR`` where there is none."""
    _, sign, tail = text.rpartition(expressions.ANSWER)
    return tail if sign and len(tail) == 1 and tail.isdigit() else ERROR
