"""Tokens a second of both engines of ``sample`` at batch 1 and 16, against plain ``transformers.generate`` in the same run.

Aims: 5 times for text at batch 1 (llama.cpp), 1.5 times for the token loop in float32. The peer has the weights as ``from_pretrained``
gives them, by rows. Seconds are processor seconds: all three
compute in one thread, and other work on the host then counts for none of them. The rounds alternate, the median of each is taken.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from backends.runtime import language_model
from backends.runtime.models import Models

PROMPT = "The letters of the alphabet are a b c d e f"
BATCHES = (1, 16)
TOKENS = 64
ROUNDS = 3


def seconds(work: Callable[[], int], expected: int) -> float:
    """Processor seconds of ``work``, which returns how many tokens it wrote."""
    began = time.process_time()
    written = work()
    spent = time.process_time() - began
    if written != expected:
        raise AssertionError(f"{written} tokens instead of {expected}: a text ended early")
    return spent


def rows() -> Iterator[dict[str, Any]]:
    """One row for each engine and batch; growth is not measured here."""
    import torch

    models = Models(lambda _: None, lambda: None)
    decoder = language_model.load(models)
    plain = copy.deepcopy(decoder.model)
    for module in plain.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.data = module.weight.data.contiguous()
    for batch in BATCHES:
        prompts = [PROMPT] * batch

        def peer(prompts: list[str] = prompts) -> int:
            ids = decoder.tokenizer(prompts, return_tensors="pt").input_ids
            with torch.inference_mode():
                made = plain.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False)
            return int(made[:, ids.shape[1] :].numel())

        def ours(engine: Any, prompts: list[str] = prompts) -> int:
            made = language_model.sample(decoder, prompts, models=models, engine=engine, max_new=TOKENS, temperature=0.0, batch=len(prompts))
            return sum(s.tokens for s in made)

        engines = ("llama.cpp", "transformers")
        times: dict[str, list[float]] = {name: [] for name in (*engines, "generate")}
        for _ in range(ROUNDS):
            times["generate"].append(seconds(peer, batch * TOKENS))
            for engine in engines:
                times[engine].append(seconds(lambda engine=engine: ours(engine), batch * TOKENS))
        peer_s = float(np.median(times["generate"]))
        for engine in engines:
            ours_s = float(np.median(times[engine]))
            yield {
                "method": "language model",
                "work": f"text by {engine}, {TOKENS} tokens a prompt",
                "size": batch,
                "ours_s": ours_s,
                "peer": "transformers.generate",
                "peer_s": peer_s,
                "ratio": peer_s / ours_s,
                "growth": None,
                "note": f"{batch * TOKENS / ours_s:.0f} against {batch * TOKENS / peer_s:.0f} tokens a processor second",
            }
