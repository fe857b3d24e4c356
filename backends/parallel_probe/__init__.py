"""Parallel-Probe: stop an ensemble of thoughts when its vote is stable, and cut the branches that keep disagreeing."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "controller": ["Outcome", "Swept", "control", "sweep"],
        "peers": ["adaptive_consistency", "early_consistency", "own_convergence", "self_consistency"],
        "pools": ["TRACE", "Branch", "Pool", "onset_ratio", "read", "replays", "votes"],
    },
)
