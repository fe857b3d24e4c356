"""All seven linear maps of one block, rounded one way (card 4.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from backends.stla import blocks, peers
from backends.stla.blocks import STAGES, Chunk, Moments
from backends.stla.ordering import Order
from backends.stla.rounding import Learning
from backends.stla.sweep import UNWATCHED, Objective, Quantised, Watch, stla

METHODS = ("rtn", "adaround", "gptq", "gptq-act", "decoupled", "stla", "stla-local")


@dataclass(frozen=True, slots=True)
class Setting:
    """How a layer is rounded, whatever the method. group: None for whole rows."""

    bits: int = 3
    cluster: int = 96
    group: int | None = 96
    order: Order = "spin"
    damping: float = 0.01
    asymmetric_correction: bool = False
    learning: Learning = field(default_factory=Learning)

    def words(self) -> str:
        """In one line.

        >>> Setting().words()
        '3 bits, clusters of 96, groups of 96, order spin, 200 iterations at rate 0.015, lambda 1, damping 0.01'
        """
        grouped = "whole rows" if self.group is None else f"groups of {self.group}"
        learned = f"{self.learning.iterations} iterations at rate {self.learning.learning_rate:g}, lambda {self.learning.regulariser:g}"
        corrected = ", asymmetric correction" if self.asymmetric_correction else ""
        return f"{self.bits} bits, clusters of {self.cluster}, {grouped}, order {self.order}, {learned}, damping {self.damping:g}{corrected}"


@dataclass(frozen=True, slots=True)
class QuantisedBlock:
    """block: a copy of its own with rounded weights. losses: of each map. telescoping: the largest relative error of the identity, None with correction."""

    block: Any
    losses: dict[str, float]
    telescoping: float | None


def round_layer(weights: torch.Tensor, found: Moments, method: str, setting: Setting, watch: Watch = UNWATCHED) -> Quantised:
    """One linear map by one of ``METHODS``. weights: (R, C). Raises ValueError as ``stla`` does."""
    shared: dict[str, Any] = {"bits": setting.bits, "group": setting.group, "damping": setting.damping, "watch": watch}
    if method == "rtn":
        return peers.rtn(weights, found.second, dtype=setting.learning.dtype, **shared)
    if method in ("gptq", "gptq-act"):
        return peers.gptq(weights, found.second, order="act" if method == "gptq-act" else "none", dtype=setting.learning.dtype, **shared)
    if method == "adaround":
        return peers.adaround(weights, found.second, learning=setting.learning, **shared)
    if method == "decoupled":
        return peers.decoupled(weights, found.second, learning=setting.learning, **shared)
    objective: Objective = "local" if method == "stla-local" else "global"
    more: dict[str, Any] = {"cluster": setting.cluster, "order": setting.order, "learning": setting.learning, "drift": found.drift}
    return stla(weights, found.second, objective=objective, **more, **shared)


def quantise(
    block: Any,
    chunks: Sequence[Chunk],
    method: str,
    setting: Setting,
    *,
    exact: Sequence[Chunk] | None = None,
    watch: Watch = UNWATCHED,
    begin: Callable[[str], None] = lambda _: None,
) -> QuantisedBlock:
    """Rounds a copy of the block. All inputs are read before any of its maps is rounded; with the asymmetric correction stage after stage, so that
    each map meets inputs as the rounded ones before it make them.

    chunks: what enters it. exact: what enters it in the full-precision model, for the correction; the same without one. begin: called with each map's name.
    """
    own = blocks.own_copy(block)
    losses: dict[str, float] = {}
    apart: list[float] = []
    read = [] if setting.asymmetric_correction else blocks.moments(block, chunks, STAGES, watch.check)
    for number, stage in enumerate(STAGES):
        found = read[number] if read else blocks.moments(own, chunks, (stage,), watch.check, (block, exact or chunks))[0]
        for matrix in stage:
            begin(matrix)
            weights = blocks.weight_of(block, matrix)
            rounded = round_layer(weights, found, method, setting, watch)
            blocks.set_weight(own, matrix, rounded.weights)
            losses[matrix] = found.loss(weights, rounded.weights, setting.damping)
            apart.append(abs(sum(c.remaining for c in rounded.clusters) - rounded.loss) / max(rounded.loss, 1e-300))
    return QuantisedBlock(own, losses, None if setting.asymmetric_correction else max(apart))
