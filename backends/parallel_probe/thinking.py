"""A real thinking model in the place of the tiny reasoner: the same fork, with its own tokens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from backends.contract import InputError
from backends.parallel_probe.forking import Speech
from backends.parallel_probe.pools import ERROR, normalised

if TYPE_CHECKING:
    from backends.runtime.language_model import Decoder

THINK_END = "</think>"
ASK = "\n\nThe final answer is \\boxed{"
ANSWER_TOKENS = 12
CPU_TOKENS = 2_048  # of all branches together: about two minutes with a model of 135 million parameters on one core
_BOXED = re.compile(r"\\boxed\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_STATED = re.compile(r"answer(?: is|:)?\s*\**\$?\s*(-?[\d.,/]*\d)", re.IGNORECASE)


def speech(decoder: Decoder, question: str, gold: str | None) -> Speech:
    """How this model is asked a question: its own turns; a probe closes the thought where the model thinks in a block, and opens a box."""
    tokenizer = decoder.tokenizer
    thinks = THINK_END in tokenizer.get_vocab()
    ends = decoder.model.generation_config.eos_token_id
    stop = {tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None}
    return Speech(
        question,
        gold,
        prompt=tokenizer(decoder.in_turns(f"{question}\nPut the final answer in \\boxed{{}}."), add_special_tokens=False)["input_ids"],
        stop=sorted(stop),
        ask=tokenizer((f"\n{THINK_END}" if thinks else "") + ASK, add_special_tokens=False)["input_ids"],
        answer_tokens=ANSWER_TOKENS,
        heard=lambda ids: in_box(tokenizer.decode(ids)),
        final=lambda ids: final_answer(tokenizer.decode(ids)),
        text=tokenizer.decode,
    )


def in_box(text: str) -> str:
    r"""The answer in a text that goes on inside an open box.

    >>> in_box("\\frac{1}{2}}. So"), in_box("never closed")
    ('1/2', 'ERR')
    """
    depth = 1
    for place, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return str(normalised(text[:place]))
    return ERROR


def final_answer(text: str) -> str:
    r"""The last boxed answer, else the last that is stated in words; ``ERR`` where there is none.

    >>> final_answer("so \\boxed{1} ... no, \\boxed{42}"), final_answer("The answer is 7."), final_answer("hm")
    ('42', '7', 'ERR')
    """
    found = _BOXED.findall(text) or _STATED.findall(text)
    return str(normalised(found[-1])) if found else ERROR


def refuse_slow(branches: int, longest: int, device: str) -> None:
    """Raises InputError where a CPU would think for hours."""
    if device == "cpu" and branches * longest > CPU_TOKENS:
        problem = f"{branches} branches of {longest:,} tokens of a real model take a GPU, and this host computes on a CPU"
        raise InputError("longest", problem, f"choose the tiny reasoner, or at most {CPU_TOKENS:,} tokens in all, as 8 branches of 256")
