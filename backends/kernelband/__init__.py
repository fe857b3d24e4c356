"""KernelBand: a bandit that decides where the next attempt at a faster kernel is spent; the public functions load on first use."""

from lazy_loader import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "bandit": ["Bandit", "mask", "parent_weights", "reward", "strategy_targets"],
        "clustering": ["Clustering"],
    },
)
