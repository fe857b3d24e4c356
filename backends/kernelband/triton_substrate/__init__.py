"""KernelBand over Triton schedules of the lab's own kernels: timed on a GPU, static facts without one."""

from lazy_loader import attach

__getattr__, __dir__, __all__ = attach(__name__, submod_attrs={"substrate": ["TritonSubstrate"], "schedules": ["Schedule"]})
