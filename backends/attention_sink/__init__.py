"""Attention sinks: where they come from, seen inside a real language model; the public functions load on first use."""

from lazy_loader import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "headnorm": ["HeadwiseRMSNorm"],
        "interventions": ["isolate_mask"],
        "measures": ["dominance_ratio", "effective_rank", "sink_score"],
        "tracing": ["Trace", "trace"],
    },
)
