"""Attention sinks: where they come from, seen inside a real language model; the public functions load on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backends.attention_sink.headnorm import HeadwiseRMSNorm
    from backends.attention_sink.interventions import isolate_mask
    from backends.attention_sink.measures import dominance_ratio, effective_rank, sink_score
    from backends.attention_sink.tracing import Trace, trace

__all__ = ["HeadwiseRMSNorm", "Trace", "dominance_ratio", "effective_rank", "isolate_mask", "sink_score", "trace"]

_HOMES = {
    "HeadwiseRMSNorm": "headnorm",
    "Trace": "tracing",
    "dominance_ratio": "measures",
    "effective_rank": "measures",
    "isolate_mask": "interventions",
    "sink_score": "measures",
    "trace": "tracing",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
