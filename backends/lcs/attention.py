"""Where an object lies, read from one double-stream block: the image-to-text attention of its word, thresholded by mass (section 4.G)."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Any

import torch
from diffusers.models.transformers.transformer_flux import FluxAttnProcessor
from torch.nn import functional

from backends.contract import InputError
from backends.runtime.little_flux.attention import WordAttention

CLOSINGS = ((24, 5), (12, 3))  # from this many cells a side on: the size of the closing; a smaller grid takes none


class AttentionMaps(WordAttention):
    """The processor of one block, installed once and shared by all runs; keeps weights only for a thread that is inside ``recorded``.

    Each forward pass of the model adds one (B, L, text tokens) tensor; with guidance the conditional pass is the first of a step.
    """

    def __init__(self) -> None:
        super().__init__()
        self._local = threading.local()

    @property
    def weights(self) -> torch.Tensor:
        return self._local.passes[-1]

    @weights.setter
    def weights(self, value: torch.Tensor) -> None:
        self._local.passes.append(value.float())

    def __call__(self, attn: Any, *arguments: Any, **named: Any) -> Any:
        if getattr(self._local, "passes", None) is None:
            return FluxAttnProcessor.__call__(self, attn, *arguments, **named)
        return super().__call__(attn, *arguments, **named)

    @contextlib.contextmanager
    def recorded(self) -> Iterator[list[torch.Tensor]]:
        """The list that this thread's passes fill; whoever reads a step empties it."""
        self._local.passes = []
        try:
            yield self._local.passes
        finally:
            self._local.passes = None


def install(transformer: Any, block: int) -> AttentionMaps:
    """Replaces the attention processor of ``transformer_blocks[block]`` and of no other. Raises InputError for a block that is not there."""
    blocks = transformer.transformer_blocks
    if not 0 <= block < len(blocks):
        raise InputError("model", f"it has {len(blocks)} double-stream blocks, none is number {block}", "choose a FLUX.1 model")
    maps = AttentionMaps()
    blocks[block].attn.set_processor(maps)
    return maps


def first_token(tokenizer: Any, prompt: str, word: str) -> int:
    """Number of the first token of a word of the prompt, as the tokenizer counts them.

    Raises InputError (field objects) when the word is not in the prompt, or lies beyond what the tokenizer reads.
    """
    found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", prompt, re.IGNORECASE) if word else None
    if found is None:
        raise InputError("objects", f"“{word}” is not a word of the prompt", "name a word that stands in the prompt")
    # A piece's span may begin with the blank before its word, or be that blank alone.
    spans = tokenizer(prompt, return_offsets_mapping=True, truncation=True)["offset_mapping"]
    for number, (start, end) in enumerate(spans):
        if prompt[max(start, found.start()) : min(end, found.end())].strip():
            return number
    raise InputError("objects", f"“{word}” stands beyond the {len(spans)} tokens that the model reads", "move it to the front, or shorten the prompt")


def attention_mask(attention: torch.Tensor, grid: tuple[int, int], mass: float) -> torch.Tensor:
    """The cells that hold ``mass`` of the attention, the crossing one included: bool (N, L).

    attention: (N, L), one word's column, row by row over a grid (height, width). Larger grids are closed first: a hole of the word's own
    pattern belongs to the object. Raises InputError for L that is not height times width, and for a mass outside 0 to 1.
    """
    height, width = grid
    if attention.shape[-1] != height * width:
        raise InputError("grid", f"{attention.shape[-1]} tokens do not fill {height} x {width} cells", "give the picture's size in tokens")
    if not 0.0 < mass <= 1.0:
        raise InputError("mask_mass", f"{mass} is no share of the attention", "choose a value above 0, up to 1")
    cells = attention.float().reshape(-1, 1, height, width)
    size = next((size for side, size in CLOSINGS if min(grid) >= side), 1)
    widened = functional.max_pool2d(cells, size, 1, size // 2)
    closed = -functional.max_pool2d(-widened, size, 1, size // 2)
    ordered, order = closed.flatten(1).sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    kept = before < mass * ordered.sum(-1, keepdim=True)
    return torch.zeros_like(kept).scatter(-1, order, kept)
