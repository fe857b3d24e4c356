"""Triton kernels, one operation a file, each beside its torch reference. Imports nothing of app or backends."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

HAS_TRITON = find_spec("triton") is not None


def use_triton(x: torch.Tensor) -> bool:
    """True where a Triton kernel can run on this tensor: it lies on a CUDA device and Triton is installed."""
    return HAS_TRITON and x.is_cuda
