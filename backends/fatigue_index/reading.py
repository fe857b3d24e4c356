"""Reads tokens with a shared model and keeps what the index needs: logits, one row of the last layer's attention, the final hidden state.

Nothing is hooked to the model: the quick loop shows its inner states to the caller alone, and so does the library's own forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from backends.contract import InputError
from backends.runtime import token_loop

Array = np.ndarray
CHUNK_TOKENS = 96  # of all prompts of a batch in one pass: a third of a second on one core, between two looks at Stop


@dataclass(frozen=True, slots=True)
class Reading:
    """At the last position of each of B rows. logits: (B, V). rows: (B, H, P), the last layer's attention to the first P real positions,
    0 where a row's text is shorter. after, before: (B, d), the hidden state after and before the final norm; before is None where
    the library does not show it. All but the logits float64."""

    logits: torch.Tensor
    rows: Array
    after: Array
    before: Array | None


class Reader(Protocol):
    """B rows of text that grow together, each behind its own empty places."""

    def read(self, tokens: torch.Tensor) -> Reading: ...
    def keep(self, rows: Sequence[int]) -> None: ...


class QuickReader:
    """Over the runtime's token loop, whose watch sees the last layer's attention and what enters its two output maps."""

    def __init__(self, model: Any, pads: Sequence[int], capacity: int, shown: int) -> None:
        self.loop = token_loop.TokenLoop(model, pads, capacity)
        self.shown = shown

    def keep(self, rows: Sequence[int]) -> None:
        """Goes on with these rows only."""
        self.loop.keep(rows)

    @torch.inference_mode()
    def read(self, tokens: torch.Tensor) -> Reading:
        """Reads the next n tokens of each row, (B, n)."""
        seen: dict[str, torch.Tensor] = {}
        last = len(self.loop.layers) - 1

        def watch(number: int, part: token_loop.Part, values: torch.Tensor) -> None:
            if number == last:
                seen[part] = (values[:, :, -1] if part == "attention" else values[:, -1]).clone()  # the loop reuses its memory

        logits = self.loop.read(tokens, watch)
        layer = self.loop.layers[-1]
        before = seen["hidden"] + layer.o(seen["values"]) + layer.down(seen["activation"])
        rows = prompt_rows(seen["attention"], self.loop.pads, self.shown)
        return Reading(logits, rows, _float64(self.loop.norm(before)), _float64(before))


class LibraryReader:
    """Over the library's own forward pass, for decoders of any shape.

    The prompt is read without attention but for its last token, so that the weights of all layers are rows of kilobytes and never maps.
    """

    def __init__(self, model: Any, pads: Sequence[int], shown: int) -> None:
        from transformers import DynamicCache

        if getattr(model.config, "_attn_implementation", "eager") != "eager":
            raise _no_weights(f"its {model.config._attn_implementation} attention returns no weights")
        self.model, self.cache, self.shown, self.length = model, DynamicCache(config=model.config), shown, 0
        self.pads = torch.tensor(list(pads), device=model.get_input_embeddings().weight.device)

    def keep(self, rows: Sequence[int]) -> None:
        """Goes on with these rows only."""
        chosen = torch.tensor(list(rows), device=self.pads.device)
        self.cache.batch_select_indices(chosen)
        self.pads = self.pads[chosen]

    @torch.inference_mode()
    def read(self, tokens: torch.Tensor) -> Reading:
        """Reads the next n tokens of each row, (B, n)."""
        if tokens.shape[1] > 1:
            self._forward(tokens[:, :-1], inside=False)
        answer = self._forward(tokens[:, -1:], inside=True)
        if not answer.attentions or answer.attentions[-1] is None:
            raise _no_weights("it returns no attention weights")
        # A cache of fixed size has keys beyond the text, and a sliding one fewer than it: only real positions are counted.
        weights = answer.attentions[-1][:, :, -1, : self.length]
        if weights.shape[-1] < self.length:
            raise InputError("model", "its last layer sees a sliding window only, so the prompt leaves it", "choose a model with full attention")
        return Reading(answer.logits[:, -1], prompt_rows(weights, self.pads, self.shown), _float64(answer.hidden_states[-1][:, -1]), None)

    def _forward(self, tokens: torch.Tensor, *, inside: bool) -> Any:
        self.length += tokens.shape[1]
        place = torch.arange(self.length, device=self.pads.device) - self.pads[:, None]
        places = place.clamp_min(0)[:, -tokens.shape[1] :]
        return self.model(
            tokens,
            attention_mask=(place >= 0).long(),
            position_ids=places,
            cache=self.cache,
            use_cache=True,
            logits_to_keep=1,
            output_attentions=inside,
            output_hidden_states=inside,
        )


def prompt_rows(weights: torch.Tensor, pads: torch.Tensor, shown: int) -> Array:
    """(B, H, S) behind ``pads`` (B,) empty places to (B, H, shown) from each row's first token on, 0 beyond its text."""
    place = pads[:, None] + torch.arange(shown, device=pads.device)
    inside = place < weights.shape[-1]
    index = place.clamp_max(weights.shape[-1] - 1)[:, None].expand(-1, weights.shape[1], -1)
    return _float64(weights.gather(-1, index) * inside[:, None])


def begin(model: Any, pads: Sequence[int], capacity: int, shown: int) -> Reader:
    """The quick reader where the model fits, else the library's. shown: P, positions whose attention is kept."""
    return QuickReader(model, pads, capacity, shown) if token_loop.fits(model) else LibraryReader(model, pads, shown)


def read_prompts(reader: Reader, prompts: Sequence[Sequence[int]], device: Any, check: Callable[[], None]) -> Reading:
    """Reads whole prompts, which end in one column, in pieces; a prompt's own first token comes after its empty places."""
    width = max(map(len, prompts))
    tokens = torch.tensor([[0] * (width - len(row)) + list(row) for row in prompts], device=device)
    step = max(1, CHUNK_TOKENS // len(prompts))
    for start in range(0, width, step):
        check()
        reading = reader.read(tokens[:, start : start + step])
    return reading


def _no_weights(problem: str) -> InputError:
    return InputError("model", problem, "load it with eager attention, which returns them")


def _float64(values: torch.Tensor) -> Array:
    found: Array = values.double().cpu().numpy()
    return found
