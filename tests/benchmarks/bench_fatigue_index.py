"""Watching a text against writing it without a look, and against the library's forward pass with everything it can show.

The issue's aim is 100 watched tokens within 12 s on two cores; peers are the same token loop unwatched, and the library's forward pass
with attention and states of all layers. Seconds are processor seconds, medians of rounds that alternate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from backends.fatigue_index.generation import Plan, generate
from backends.fatigue_index.prompts import STUDY, encode
from backends.runtime import language_model, token_loop
from backends.runtime.models import Models

TOKENS, ROUNDS = 100, 3
AGREE = 1e-3


def rows() -> Iterator[dict[str, Any]]:
    """One row a peer; the signals of the library's pass must agree with ours."""
    import torch

    decoder = language_model.load(Models(lambda _: None, lambda: None))
    prompt = encode(decoder, STUDY[0]).ids
    plan = Plan(max_new=TOKENS, temperature=0.0)
    *_, (trace,) = generate(decoder, [prompt], plan)
    ids = trace.ids

    def watched() -> None:
        for _ in generate(decoder, [prompt], plan):
            pass

    def unwatched() -> None:
        loop = token_loop.begin(decoder.model, [0], len(prompt) + len(ids))
        loop.read(torch.tensor([prompt]))
        for token in ids[:-1]:
            loop.read(torch.tensor([[token]]))

    def library() -> None:
        from transformers import DynamicCache

        cache, read, first = DynamicCache(config=decoder.model.config), torch.tensor([prompt]), []
        with torch.inference_mode():
            for token in ids:
                seen = decoder.model(read, cache=cache, use_cache=True, output_attentions=True, output_hidden_states=True)
                first.append(float(seen.attentions[-1][0, :, -1, 0].mean()))
                read = torch.tensor([[token]])
        apart = np.abs(np.array(first) - np.array(trace.rows)[:, 0]).max()
        if apart > AGREE:
            raise AssertionError(f"attention to token 0 differs by {apart}")

    works: dict[str, Callable[[], None]] = {"watched": watched, "token loop, unwatched": unwatched, "library, all layers": library}
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            began = time.process_time()
            work()
            times[name].append(time.process_time() - began)
    ours = float(np.median(times["watched"]))
    for peer in list(works)[1:]:
        theirs = float(np.median(times[peer]))
        yield {
            "method": "fatigue-index",
            "work": "a watched text",
            "size": len(ids),
            "ours_s": ours,
            "peer": peer,
            "peer_s": theirs,
            "ratio": theirs / ours,
            "growth": None,
            "note": f"{len(ids) / ours:.1f} tokens a processor second",
        }
