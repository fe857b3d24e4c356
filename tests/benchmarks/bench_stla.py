"""Our GPTQ and STLA on a real layer against a float64 transcription of the published GPTQ loop: equal result, ratio of times; and what looking ahead buys.

The transcription updates the whole inverse column by column, as the formulas stand. Its weights must agree to 1e-9, or the benchmark fails. The loss rows
count no seconds: ratio is the peer's loss over ours, so above 1 is a win.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from backends.runtime import language_model
from backends.runtime.models import Models
from backends.stla import Learning, blocks, damped, gptq, search_grid, stla, windows
from backends.stla.inputs import moments_of

AGREE = 1e-9
LAYER, TOKENS = 3, 2048
SIZES = (144, 288, 576)


def published(weights: np.ndarray, second: np.ndarray, bits: int = 3) -> np.ndarray:
    """GPTQ's loop with one grid a row, on damped H."""
    grid = search_grid(torch.as_tensor(weights), bits, torch.as_tensor(second))
    scale, zero, top = grid.scale.numpy()[:, 0], grid.zero.numpy()[:, 0], 2**bits - 1
    now, out, inverse = weights.copy(), np.empty_like(weights), np.linalg.inv(second)
    for j in range(weights.shape[1]):
        out[:, j] = scale * (np.clip(np.round(now[:, j] / scale) + zero, 0, top) - zero)
        now[:, j + 1 :] -= np.outer((now[:, j] - out[:, j]) / inverse[0, 0], inverse[0, 1:])
        inverse = inverse[1:, 1:] - np.outer(inverse[1:, 0], inverse[0, 1:]) / inverse[0, 0]
    return out


def row(work: str, size: int, ours_s: float, peer: str, peer_s: float, ratio: float, growth: float | None, note: str) -> dict[str, Any]:
    figures = {"ours_s": ours_s, "peer": peer, "peer_s": peer_s, "ratio": ratio, "growth": growth, "note": note}
    return {"method": "stla", "work": work, "size": size, **figures}


def rows() -> Iterator[dict[str, Any]]:
    decoder = language_model.load(Models(lambda _: None, lambda: None))
    ids = windows.calibration(decoder.tokenizer, TOKENS, np.random.default_rng(0))
    found = moments_of(decoder.model, ids, LAYER, "v", lambda: None)
    weights = blocks.weight_of(blocks.layers_of(decoder.model)[LAYER], "v")
    before: tuple[int, float] | None = None
    for columns in SIZES:
        kept, second = damped(weights[:, :columns], found.second[:columns, :columns])
        began = time.perf_counter()
        ours = gptq(kept, second, group=None, damping=0)
        ours_s = time.perf_counter() - began
        began = time.perf_counter()
        theirs = published(kept.numpy(), second.numpy())
        peer_s = time.perf_counter() - began
        apart = float(np.abs(ours.weights.numpy() - theirs).max())
        if apart > AGREE:
            raise AssertionError(f"{columns} columns: the weights are {apart:.1e} apart")
        growth = float(np.log(ours_s / before[1]) / np.log(columns / before[0])) if before else None
        before = (columns, ours_s)
        yield row("GPTQ, one grid a row", columns, ours_s, "published loop", peer_s, peer_s / ours_s, growth, f"{apart:.0e} apart")
    learning = Learning(dtype=torch.float32)
    began = time.perf_counter()
    ahead = stla(weights, found.second, learning=learning)
    ours_s = time.perf_counter() - began
    for name, peer in (
        ("GPTQ", lambda: gptq(weights, found.second)),
        ("GPTQ, act order", lambda: gptq(weights, found.second, order="act")),
        ("judged locally", lambda: stla(weights, found.second, objective="local", learning=learning)),
    ):
        began = time.perf_counter()
        other = peer()
        yield row(
            "STLA: loss ratio", 576, ours_s, name, time.perf_counter() - began, other.loss / ahead.loss, None, f"loss {ahead.loss:.3f} and {other.loss:.3f}"
        )
