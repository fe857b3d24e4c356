"""Prompts that the lab ships: the default one, and twenty for the study and the calibration."""

from __future__ import annotations

from dataclasses import dataclass

from backends.contract import InputError
from backends.fatigue_index.card import DEFAULT_PROMPT
from backends.runtime.language_model import Decoder

STUDY = (
    DEFAULT_PROMPT,
    "Write a short story about a lighthouse keeper who finds a letter.",
    "List ten ways to save water at home.",
    "Describe how a bicycle works to a child.",
    "What are the causes of the seasons?",
    "Write a poem about the rain.",
    "Explain the rules of chess in a few sentences.",
    "Tell me about the history of bread.",
    "How does a computer add two numbers?",
    "Give me a recipe for vegetable soup.",
    "Write a letter to a friend about a journey by train.",
    "Why is the sky blue?",
    "Describe a market in a small town on a Saturday morning.",
    "What is the difference between a star and a planet?",
    "Count from one to fifty in words.",
    "Give advice to somebody who cannot sleep.",
    "Write a dialogue between a cat and a mouse.",
    "Explain what a bank does with the money of its customers.",
    "Repeat the word banana as often as you can.",
    "Describe the life of a bee in the summer.",
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """ids: as the model reads them, in its own turns. start, stop: where the person's words stand among them."""

    ids: tuple[int, ...]
    start: int
    stop: int


def encode(decoder: Decoder, request: str) -> Prompt:
    """The request in the turns that the model was taught. Raises InputError for an empty one."""
    if not request.strip():
        raise InputError("prompt", "the prompt is empty", "write a few words")
    text = decoder.in_turns(request)
    found = decoder.tokenizer(text, return_offsets_mapping=True)
    ids = tuple(int(i) for i in found["input_ids"])
    if not ids:
        raise InputError("prompt", "the model knows no token of this prompt", "write a few words")
    begins = text.rfind(request.strip())
    if begins < 0:  # the template changed the words: the whole prompt is the slice
        return Prompt(ids, 0, len(ids))
    ends = begins + len(request.strip())
    inside = [i for i, (a, b) in enumerate(found["offset_mapping"]) if b > begins and a < ends]
    return Prompt(ids, inside[0], inside[-1] + 1) if inside else Prompt(ids, 0, len(ids))
