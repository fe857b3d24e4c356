"""Head-wise RMSNorm: the pre-training change that takes the variance discrepancy away, and the exact block that shows it.

Position t of a causal head averages t + 1 values, so the width-wise standard deviation of its output falls as sigma / sqrt(t + 1). The
norm after value aggregation and before W_O gives every position the same root mean square.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from kernels import headwise_rmsnorm

EPS = 1e-6
INIT_POSITIONS = 64  # positions of N(0, 1) inputs from which gamma is initialised


class HeadwiseRMSNorm(nn.Module):
    """o_hat[t, h] = gamma * o[t, h] / sqrt(mean_i o[t, h, i]^2 + eps), after value aggregation, before W_O.

    heads: H. width: d_k of one head. shared: one gamma (d_k) for all heads instead of one per head (H, d_k).

    >>> norm = HeadwiseRMSNorm(heads=2, width=4)
    >>> norm(torch.ones(1, 3, 8) * 5).unique().round(decimals=4).tolist()
    [1.0]
    """

    def __init__(self, heads: int, width: int, *, shared: bool = False, eps: float = EPS) -> None:
        super().__init__()
        self.heads, self.width, self.eps = heads, width, eps
        self.gamma = nn.Parameter(torch.ones(width) if shared else torch.ones(heads, width))

    @property
    def shared(self) -> bool:
        return self.gamma.dim() == 1

    def forward(self, o: torch.Tensor) -> torch.Tensor:
        """o: (..., T, H * d_k), the heads side by side as W_O reads them. Same shape out; raises ValueError for another width."""
        if o.shape[-1] != self.heads * self.width:
            raise ValueError(f"the last axis has {o.shape[-1]} entries, {self.heads} heads of {self.width} need {self.heads * self.width}")
        return headwise_rmsnorm.op(o.unflatten(-1, (self.heads, self.width)), self.gamma, self.eps).flatten(-2)

    @torch.no_grad()
    def initialise(self, w_q: torch.Tensor, w_k: torch.Tensor, w_v: torch.Tensor, generator: torch.Generator) -> None:
        """Sets gamma from the layer's own projections (each (H * d_k, d)), so that the norm starts at the scale that the first token has.

        64 positions of N(0, 1) inputs go through q, k, v and causal softmax attention without RoPE; gamma_h is the population standard
        deviation over the d_k entries of the first position's output, the same number for all entries of the head (their mean where shared).
        """
        x = torch.randn(INIT_POSITIONS, w_v.shape[1], generator=generator)
        o = causal_block(x, w_q, w_k, w_v, self.heads)
        scale = o[0].unflatten(-1, (self.heads, self.width)).std(-1, unbiased=False)
        self.gamma.copy_(scale.mean() if self.shared else scale[:, None])


def causal_block(x: torch.Tensor, w_q: torch.Tensor, w_k: torch.Tensor, w_v: torch.Tensor, heads: int) -> torch.Tensor:
    """o (T, H * d_k): the aggregated values of one causal softmax attention without RoPE; x: (T, d), weights: (H * d_k, d)."""
    q, k, v = ((x @ w.T).unflatten(-1, (heads, -1)).transpose(0, 1) for w in (w_q, w_k, w_v))
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    attention = scores.masked_fill(future, -torch.inf).softmax(-1)
    return (attention @ v).transpose(0, 1).flatten(1)


@dataclass(frozen=True, slots=True)
class BlockSpread:
    """Width-wise standard deviation of o_t by position, mean over draws; each array has T entries."""

    plain: torch.Tensor
    normalised: torch.Tensor
    theory: torch.Tensor  # sigma / sqrt(t + 1)
    gamma: float  # mean gamma of the initialised norm


def block_spread(
    positions: int, *, width: int = 768, heads: int = 12, weight_std: float = 0.02 / math.sqrt(24), draws: int = 8, shared: bool = False, seed: int = 0
) -> BlockSpread:
    """std(o_t) of a random-init block with and without head-wise RMSNorm against sigma / sqrt(t + 1), exact, nothing trained.

    positions: T. width: d. weight_std: of every entry of W_Q, W_K, W_V (the notebook's toy: 0.02 / sqrt(24), d = 768, 12 heads, which makes
    sigma 0.1131). Inputs have unit root mean square, as after a block's RMSNorm. draws: independent blocks that are averaged.
    Raises ValueError when the heads do not divide the width.
    """
    if width % heads:
        raise ValueError(f"{heads} heads do not divide a width of {width}")
    generator = torch.Generator().manual_seed(seed)
    plain, normalised, gamma = torch.zeros(positions), torch.zeros(positions), 0.0
    for _ in range(draws):
        w_q, w_k, w_v = (torch.randn(width, width, generator=generator) * weight_std for _ in range(3))
        norm = HeadwiseRMSNorm(heads, width // heads, shared=shared)
        norm.initialise(w_q, w_k, w_v, generator)
        x = torch.randn(positions, width, generator=generator)
        o = causal_block(x / x.square().mean(-1, keepdim=True).sqrt(), w_q, w_k, w_v, heads)
        with torch.no_grad():
            plain += o.std(-1, unbiased=False) / draws
            normalised += norm(o).std(-1, unbiased=False) / draws
            gamma += float(norm.gamma.mean()) / draws
    sigma = weight_std * math.sqrt(width)
    return BlockSpread(plain, normalised, sigma / torch.arange(1, positions + 1).sqrt(), gamma)
