"""What enters one matrix of the bundled model, in one forward that stops at its block."""

from __future__ import annotations

from typing import Any

import torch

from backends.stla import blocks
from backends.stla.blocks import STAGES, Check, Moments
from backends.stla.grids import full_range


def moments_of(model: Any, ids: torch.Tensor, layer: int, matrix: str, check: Check, rounded: tuple[int, int | None] | None = None) -> Moments:
    """H of the input of one matrix. ids: (windows, T). rounded: bits and group to which every matrix before it is rounded to nearest on its full range,
    so that X is not X_fp; as the model is without one, and where nothing comes before."""
    layers = blocks.layers_of(model)
    stage = next(s for s in STAGES if matrix in s)
    before = STAGES[: STAGES.index(stage)]
    chunks = exact = blocks.enter(model, ids)
    for block in layers[:layer]:
        if rounded:
            chunks = blocks.pass_on(_nearest(block, STAGES, *rounded), chunks, check)
        exact = blocks.pass_on(block, exact, check)
    if not rounded or (layer == 0 and not before):
        return blocks.moments(layers[layer], exact, (stage,), check)[0]
    return blocks.moments(_nearest(layers[layer], before, *rounded), chunks, (stage,), check, (layers[layer], exact))[0]


def _nearest(block: Any, stages: Any, bits: int, group: int | None) -> Any:
    """A copy with the matrices of these stages rounded to nearest."""
    own = blocks.own_copy(block)
    for matrix in (m for stage in stages for m in stage):
        weights = blocks.weight_of(block, matrix)
        grouped = weights.reshape(-1, group or weights.shape[1])
        blocks.set_weight(own, matrix, full_range(grouped, bits).nearest(grouped).view_as(weights))
    return own
