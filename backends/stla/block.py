"""All seven linear maps of one block, rounded one way (card 4.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from backends.stla import blocks, peers
from backends.stla.blocks import STAGES, Chunk, Moments
from backends.stla.ordering import Order
from backends.stla.rounding import Learning
from backends.stla.sweep import UNWATCHED, Quantised, Watch, stla

METHODS = ("rtn", "gptq", "stla", "stla-local")  # gptq: with activation order


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
    """block: a copy of its own with rounded weights. losses: L(Q) of each map."""

    block: Any
    losses: dict[str, float]


def round_layer(weights: Any, found: Moments, method: str, setting: Setting, watch: Watch = UNWATCHED) -> Quantised:
    """One linear map by one of ``METHODS``. weights: (R, C). Raises ValueError as ``stla`` does."""
    shared: dict[str, Any] = {"bits": setting.bits, "group": setting.group, "damping": setting.damping, "watch": watch}
    if method == "rtn":
        return peers.rtn(weights, found.second, dtype=setting.learning.dtype, **shared)
    if method == "gptq":
        return peers.gptq(weights, found.second, order="act", dtype=setting.learning.dtype, **shared)
    return stla(
        weights,
        found.second,
        cluster=setting.cluster,
        order=setting.order,
        objective="local" if method == "stla-local" else "global",
        learning=setting.learning,
        drift=found.drift,
        **shared,
    )


def quantise(
    block: Any,
    chunks: Sequence[Chunk],
    method: str,
    setting: Setting,
    *,
    exact: tuple[Any, Sequence[Chunk]] | None = None,
    watch: Watch = UNWATCHED,
    done: Callable[[str, float], None] = lambda *_: None,
) -> QuantisedBlock:
    """Rounds a copy of the block; all its inputs are read before any of its maps is rounded, as in the authors' code.

    chunks: what enters it. exact: the full-precision block and what enters it there, for the asymmetric correction. done: called with each map's name and loss.
    """
    own, losses = blocks.own_copy(block), {}
    for stage, found in zip(STAGES, blocks.moments(block, chunks, STAGES, watch.check, exact), strict=True):
        for matrix in stage:
            rounded = round_layer(blocks.weight_of(block, matrix), found, method, setting, watch)
            blocks.set_weight(own, matrix, rounded.weights)
            losses[matrix] = rounded.loss
            done(matrix, rounded.loss)
    return QuantisedBlock(own, losses)
