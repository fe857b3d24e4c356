"""The tiny reasoner: a small decoder that reduces expressions character by character, and that can be asked for an answer at any time."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from backends.parallel_probe import expressions
from backends.parallel_probe.forking import Speech
from backends.parallel_probe.pools import ERROR
from backends.runtime.folders import ROOT

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

WIDTH = 128
LAYERS = 4
HEADS = 4
MLP_WIDTH = 352
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"  # one matrix
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
    """The trained reasoner, in float32 for evaluation; one object for all, never to be changed."""
    from safetensors.torch import load_file

    weights = {name: value.float() for name, value in load_file(path).items()}
    model = build()
    model.load_state_dict(weights | {HEAD: weights[EMBEDDING]})
    return model.eval().requires_grad_(False)


def ship(model: LlamaForCausalLM, path: Path = WEIGHTS) -> None:
    """Writes the weights in half precision, those that are tied once."""
    import torch
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.to(torch.float16).contiguous() for name, value in model.state_dict().items() if name != HEAD}, path)


def speech(question: str) -> Speech:
    """How the reasoner is asked for the worth of an expression. Raises ValueError for one that cannot be read."""
    prompt = expressions.encode(question + expressions.STEP)
    return Speech(
        question,
        str(expressions.value(question)),
        prompt,
        stop=[expressions.END],
        ask=expressions.encode(expressions.ANSWER),
        answer_tokens=1,
        heard=lambda ids: expressions.CHARACTERS[ids[0]] if ids[0] < 10 else ERROR,
        final=lambda ids: final_answer(expressions.decode(ids)),
        text=expressions.decode,
    )


def parameters() -> int:
    """How many weights the reasoner has; those of the embedding are those of the head."""
    block = 4 * WIDTH**2 + 3 * WIDTH * MLP_WIDTH + 2 * WIDTH
    return LAYERS * block + WIDTH + expressions.VOCABULARY * WIDTH


def final_answer(text: str) -> str:
    """The digit behind the last answer sign; ``ERR`` where there is none."""
    _, sign, tail = text.rpartition(expressions.ANSWER)
    return tail if sign and len(tail) == 1 and tail.isdigit() else ERROR
