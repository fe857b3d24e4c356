"""Attention made in blocks of queries: each block's weights are reduced to what is kept and dropped before the next one is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from backends.attention_sink.architecture import Architecture
from backends.contract import InputError

Array = np.ndarray
NAME = "reduced in blocks"  # of this attention among those of the library
MAP_SIDE = 160  # rows and columns of the largest map that is kept; longer texts are reduced by the maximum of blocks
QUERIES = 128  # of a block, about: 9 heads x 128 x 2,000 weights take 9 MB


@dataclass(frozen=True, slots=True)
class Asked:
    """What is kept of one run. watched: keys whose received attention is kept for each query. maps: also keep the maps."""

    watched: Sequence[int]
    maps: bool


@dataclass(frozen=True, slots=True)
class Reduced:
    """One layer's attention of one run. received: (T, W), the head mean of what each query gives to the watched keys. sink: (T,), of every key
    over the queries after it. positive_share: of the pairs of head and query after the first, those with q . k_0 > 0. map, head_maps: (m, m)
    and (H, m, m) fp16, the maximum of each block of tokens; None where not asked for."""

    received: Array
    sink: Array
    positive_share: float | None
    map: Array | None
    head_maps: Array | None


def map_block(length: int) -> int:
    """Tokens that one row of a map stands for."""
    return math.ceil(length / MAP_SIDE)


def reduce_in(parts: Architecture, asked: Sequence[Asked], keep: Callable[[int, Reduced], None], check: Callable[[], None]) -> None:
    """Makes a private view compute its attention here. keep(run, reduced) is called once a layer and run, check several times in between."""
    from transformers import AttentionInterface

    def compute(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
        output = []
        for index, (one, key, value, allowed) in enumerate(zip(q, k, v, mask[:, 0], strict=True)):
            mixed, reduced = attend(one, key, value, allowed, scale, asked[index], check)
            keep(index, reduced)
            output.append(mixed)
        return torch.stack(output)

    AttentionInterface.register(NAME, _library)
    for layer in parts.layers:
        layer.self_attn.reduced_attention = compute
    parts.model.set_attn_implementation(NAME)


def _library(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor, scaling: float, **more: Any
) -> tuple[torch.Tensor, None]:
    """As the library calls an attention: q (B, H, T, d_k), k and v (B, H_kv, T, d_k); gives (B, T, H, d_k)."""
    for name in ("softcap", "s_aux"):
        if more.get(name) is not None:
            raise InputError("model", f"its attention is not a plain softmax ({name})", "use a decoder such as Llama, Qwen2 and Mistral")
    return module.reduced_attention(query, key, value, attention_mask, scaling), None


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float, asked: Asked, check: Callable[[], None]
) -> tuple[torch.Tensor, Reduced]:
    """Output (T, H, d_k) and what is kept; q: (H, T, d_k); k, v: (H_kv, T, d_k); mask: (T, T), added, causal. Scores and sums are fp32."""
    heads, length, _ = q.shape
    block = map_block(length)
    step = block * max(1, QUERIES // block)  # no block of the map is cut
    side = math.ceil(length / block)
    k, v = (x.repeat_interleave(heads // len(k), 0) for x in (k, v))
    output = torch.empty(length, heads, v.shape[-1], dtype=q.dtype, device=q.device)
    received = torch.zeros(length, len(asked.watched), device=q.device)
    mass = torch.zeros(length, device=q.device)
    mean_map, head_maps = (torch.zeros(*size, side, side, device=q.device) for size in ((), (heads,))) if asked.maps else (None, None)
    watched = torch.as_tensor(list(asked.watched), device=q.device)
    for start in range(0, length, step):
        check()
        stop = min(start + step, length)
        # Causal: no query of the block sees a key after its last one.
        scores = (q[:, start:stop] @ k[:, :stop].transpose(1, 2)).float().mul_(scale).add_(mask[start:stop, :stop])
        weights = scores.softmax(-1)
        output[start:stop] = (weights.to(v.dtype) @ v[:, :stop]).transpose(0, 1)
        mean = weights.mean(0)
        inside = watched < stop
        received[start:stop, inside] = mean[:, watched[inside]]
        mass[:stop] += mean.sum(0)
        mass[start:stop] -= mean[:, start:stop].diagonal()
        if mean_map is not None and head_maps is not None:
            rows, columns = slice(start // block, math.ceil(stop / block)), slice(0, math.ceil(stop / block))
            mean_map[rows, columns] = _largest(mean[None], block)[0]
            head_maps[:, rows, columns] = _largest(weights, block)
    later = torch.arange(length - 1, -1, -1, device=q.device).clamp(min=1)
    positive = float(((q[:, 1:] * k[:, :1]).sum(-1) > 0).float().mean()) if length > 1 else None
    return output, Reduced(
        received=received.cpu().numpy(),
        sink=(mass / later).cpu().numpy(),
        positive_share=positive,
        map=None if mean_map is None else mean_map.cpu().numpy(),
        head_maps=None if head_maps is None else head_maps.half().cpu().numpy(),
    )


def _largest(weights: torch.Tensor, block: int) -> torch.Tensor:
    """(n, rows, columns) to the maximum of each block of tokens."""
    return weights if block == 1 else torch.nn.functional.max_pool2d(weights[:, None], block, ceil_mode=True)[:, 0]
