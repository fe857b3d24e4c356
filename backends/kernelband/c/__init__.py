"""KernelBand's kernels in C, compiled and timed on this host's processor; the public functions load on first use."""

from lazy_loader import attach

__getattr__, __dir__, __all__ = attach(__name__, submod_attrs={"schedule": ["Schedule"], "substrate": ["CSubstrate"]})
