"""B: which output rows of a frozen layer may move, because the others nearly say the same."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from backends.plate.arrays import as_matrix, like

RowRule = Literal["redundant", "random", "least-redundant"]
FROZEN_TENTHS = 1  # of ten rows that must stay, whatever r asks
PROJECTION, ANCHORS, PROJECTION_SEED = 128, 256, 42  # of the released code


def redundancy_scores(W: Any) -> Any:
    """How much each row resembles the others: score_i = mean over all rows a of |cos(w_i, w_a)|, its own included.

    W: (d_out, d_in). Returns (d_out,) in [0, 1]; a row of zeros scores 0. Raises ValueError for NaN or a wrong shape.

    >>> redundancy_scores([[2, 0], [2, 0], [0, 1]]).round(3).tolist()
    [0.667, 0.667, 0.333]
    """
    return like(cosines(as_matrix(W)).mean(dim=1), W)


def cosines(W: torch.Tensor) -> torch.Tensor:
    """|cos| of all pairs of rows. W: (d_out, d_in) float64. Returns (d_out, d_out); a row of zeros has cosine 0 with all."""
    unit = W / W.norm(dim=1, keepdim=True).clamp_min(torch.finfo(W.dtype).tiny)
    return (unit @ unit.T).abs_()


def projected_scores(W: Any, projection: int = PROJECTION, anchors: int = ANCHORS, seed: int = PROJECTION_SEED) -> Any:
    """The released code's fast scores: rows through a Gaussian matrix, against anchors at a regular stride, products in bfloat16.

    W: (d_out, d_in). projection: columns of the Gaussian matrix. anchors: rows compared with (all when d_out is no more).
    Returns (d_out,). They depend on the seed, and with 128 columns noise outweighs the spread of real scores: of the 64 most redundant
    rows of a language model's matrices they find 12 to 53 %, with 4,096 columns 50 to 97 %.
    """
    matrix = as_matrix(W)
    draws = torch.randn(matrix.shape[1], projection, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) / projection**0.5
    short = ((matrix @ draws) / matrix.norm(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)).to(torch.bfloat16)
    rows = len(matrix)
    chosen = torch.arange(min(rows, anchors)) * rows // min(rows, anchors)
    return like((short @ short[chosen].T).abs().double().mean(dim=1), W)


def movable(d_out: int, r: int) -> int:
    """How many rows may move: r, but a tenth of the rows stays frozen.

    Raises ValueError for r below 1, and for a layer of one row, which would leave none frozen.

    >>> movable(256, 32), movable(256, 250)
    (32, 230)
    """
    if r < 1:
        raise ValueError(f"r = {r} rows cannot move: choose at least 1")
    if d_out < 2:
        raise ValueError("a layer with one output has no frozen row to keep: leave it out")
    return min(r, (10 - FROZEN_TENTHS) * d_out // 10)


def redundant_rows(W: Any, r: int) -> Any:
    """The rows that may move: the r of the highest ``redundancy_scores``, best first; equal scores in order of their index.

    W: (d_out, d_in). r: rows asked for, at most nine tenths of d_out are given; a row of zeros is never chosen.
    Returns indices (r_eff,), 0-based. Raises ValueError for r below 1, d_out = 1, NaN, or when no row may be chosen.

    >>> redundant_rows([[2, 0, 0, 0], [2, .1, 0, 0], [1.9, 0, .1, 0], [0, 1, 0, 0], [0, 0, .5, 0]], 2).tolist()
    [2, 1]
    """
    return like(choose_rows(as_matrix(W), r, "redundant"), W)


def choose_rows(W: torch.Tensor, r: int, rule: RowRule, rng: np.random.Generator | None = None, scores: torch.Tensor | None = None) -> torch.Tensor:
    """Indices (r_eff,) by one of the rules; only ``random`` needs ``rng``. W: (d_out, d_in) float64; scores: (d_out,) when known."""
    count = movable(len(W), r)
    alive = W.norm(dim=1) > 0
    count = min(count, int(alive.sum()))
    if count == 0:
        raise ValueError("all rows of this layer are zero: none can be chosen")
    if rule == "random":
        if rng is None:
            raise ValueError("random rows need a generator")
        return torch.from_numpy(np.sort(rng.choice(np.flatnonzero(alive.numpy()), count, replace=False)))
    known = redundancy_scores(W) if scores is None else scores
    ranked = known if rule == "redundant" else -known
    return torch.where(alive, ranked, -torch.inf).argsort(descending=True, stable=True)[:count]
