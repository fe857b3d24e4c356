"""The pictures of compressed-doco: learners on their graph, the fan of their surrogates, the U-curve, and what stands behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from app.dragging import is_number, moved_end
from app.pages import _compressed_doco_curves as curves
from app.pages._compressed_doco_learners import learners, plane
from app.plotting import Changes, View
from backends.compressed_doco.card import BLOCKS, Params
from backends.contract import Frame

SHORTEST, LONGEST = 2, 100  # rounds of a block that can be chosen by hand
GOSSIP_MOST, COMPENSATION_SHARE = 80, 0.2


def views(frame: Frame, params: Any) -> list[View]:
    """What can be drawn of this frame, the main picture first; a picture waits until its data is there."""
    data = frame.data
    if "graph" not in data:
        return []
    made: list[View | None] = [
        learners(data, params, animated=frame.progress == 1),
        curves.regret(data),
        curves.regret_by_bits(data),
        curves.course(data),
        plane(data),
        curves.contraction(data),
        curves.ablation(data),
        curves.constants(data),
    ]
    return [view for view in made if view is not None]


def on_event(view: str, event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    """The block line dragged, or a point of the U-curve clicked, chooses the length of a block and starts a run."""
    if view != "learners":
        return None
    kind, position = event.get("type"), None
    if kind == "drag" and event.get("shape") == "block":
        position = moved_end(event, _length(params))
    elif kind == "click" and event.get("trace") == "U-curve":
        position = event.get("x")
    if not is_number(position, limit=9):
        return None
    gossip, compensation = block_of(10**position)
    return Changes({"gossip_rounds": gossip, "compensation_rounds": compensation}, run=True)


def _length(params: Mapping[str, Any]) -> float | None:
    """Where the block line stands: log10 of the rounds of a block."""
    rounds = [params.get(name, Params.model_fields[name].default) for name in ("gossip_rounds", "compensation_rounds")]
    return math.log10(sum(rounds)) if all(isinstance(value, int) for value in rounds) and sum(rounds) > 0 else None


def block_of(length: float) -> tuple[int, int]:
    """L1 and L2 of a block of about this many rounds: as in the U-curve, elsewhere a fifth for compensation.

    >>> block_of(25.2), block_of(7), block_of(60), block_of(1e9)
    ((20, 5), (5, 2), (48, 12), (80, 20))
    """
    rounds = round(min(max(length, SHORTEST), LONGEST))
    known = {sum(pair): pair for pair in BLOCKS}
    if rounds in known:
        return known[rounds]
    gossip = min(GOSSIP_MOST, rounds - round(COMPENSATION_SHARE * rounds))
    return gossip, rounds - gossip
