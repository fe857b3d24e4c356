"""The small decoder of the pre-training experiment: Llama-style (RoPE, RMSNorm, SwiGLU, tied embeddings), with three kinds of attention."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch
from torch import nn

from backends.attention_sink.headnorm import HeadwiseRMSNorm

Arm = Literal["baseline", "headnorm", "sigmoid"]
ARMS: tuple[Arm, ...] = get_args(Arm)


@dataclass(frozen=True, slots=True)
class Size:
    """Shape of the decoder: the paper's 152 M model scaled down (there: 12 layers, 12 heads, d 768, FFN 3072, block 4096, vocabulary 50,304)."""

    layers: int = 6
    heads: int = 4
    width: int = 128
    ffn: int = 512
    block: int = 128
    vocabulary: int = 4096
    rope_base: float = 10_000.0
    shared_gamma: bool = False

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class LayerTrace:
    """What one layer did: attention (B, H, T, T), o (B, T, H * d_k) before W_O, h (B, T, d) entering and leaving."""

    attention: torch.Tensor
    o: torch.Tensor
    entering: torch.Tensor
    leaving: torch.Tensor


def rope(block: int, width: int, base: float) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin (block, width) of rotary positions, the two halves rotated against each other as in Llama."""
    frequency = base ** (-torch.arange(0, width, 2) / width)
    angle = torch.arange(block)[:, None] * frequency[None, :]
    return torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Layer(nn.Module):
    """Pre-norm attention and SwiGLU."""

    def __init__(self, size: Size, arm: Arm) -> None:
        super().__init__()
        self.heads, self.arm = size.heads, arm
        self.input_norm = nn.RMSNorm(size.width, eps=1e-6)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(size.width, size.width, bias=False) for _ in range(4))
        self.head_norm = HeadwiseRMSNorm(size.heads, size.width // size.heads, shared=size.shared_gamma) if arm == "headnorm" else None
        self.ffn_norm = nn.RMSNorm(size.width, eps=1e-6)
        self.gate_proj, self.up_proj = (nn.Linear(size.width, size.ffn, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(size.ffn, size.width, bias=False)

    def forward(self, h: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, future: torch.Tensor, trace: list[LayerTrace] | None) -> torch.Tensor:
        x = self.input_norm(h)
        q, k, v = (proj(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for proj in (self.q_proj, self.k_proj, self.v_proj))
        scores = rotate(q, cos, sin) @ rotate(k, cos, sin).transpose(-1, -2) / math.sqrt(q.shape[-1]) + future
        attention = scores.sigmoid() if self.arm == "sigmoid" else scores.softmax(-1)
        o = (attention @ v).transpose(1, 2).flatten(2)
        middle = h + self.o_proj(o if self.head_norm is None else self.head_norm(o))
        x = self.ffn_norm(middle)
        out: torch.Tensor = middle + self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))
        if trace is not None:
            trace.append(LayerTrace(attention, o, h, out))
        return out


class SmallDecoder(nn.Module):
    """Token ids (B, T) to logits (B, T, vocabulary). Normal(0, 0.02) weights, W_O and W_down at 0.02 / sqrt(2 L), head norms as HeadwiseRMSNorm says."""

    future: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(self, size: Size, arm: Arm, seed: int = 0) -> None:
        super().__init__()
        if arm not in ARMS:
            raise ValueError(f"there is no arm {arm!r}; choose one of {', '.join(ARMS)}")
        self.size, self.arm = size, arm
        self.embed = nn.Embedding(size.vocabulary, size.width)
        self.layers = nn.ModuleList(Layer(size, arm) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.width, eps=1e-6)
        cos, sin = rope(size.block, size.width // size.heads, size.rope_base)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        # One additive mask serves softmax and sigmoid: exp(-inf) = sigmoid(-inf) = 0.
        self.register_buffer("future", torch.full((size.block, size.block), -torch.inf).triu(1), persistent=False)
        self._initialise(torch.Generator().manual_seed(seed))

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator) -> None:
        # All arms draw the same numbers for the weights that they share; the head norms draw afterwards.
        for name, weight in self.named_parameters():
            if weight.dim() == 2 and "head_norm" not in name:
                into_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                weight.normal_(0, 0.02 / math.sqrt(2 * self.size.layers) if into_residual else 0.02, generator=generator)
        for layer in self.layers:
            if layer.head_norm is not None:
                layer.head_norm.initialise(layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight, generator)

    def forward(self, ids: torch.Tensor, trace: list[LayerTrace] | None = None) -> torch.Tensor:
        """Logits; ``trace`` receives one LayerTrace a layer. Raises ValueError above the block length."""
        length = ids.shape[1]
        if length > self.size.block:
            raise ValueError(f"{length} tokens are more than the block of {self.size.block}")
        h = self.embed(ids)
        for layer in self.layers:
            h = layer(h, self.cos[:length], self.sin[:length], self.future[:length, :length], trace)
        logits: torch.Tensor = nn.functional.linear(self.norm(h), self.embed.weight)
        return logits
