"""Which device computes here."""

from __future__ import annotations

import functools
import os


@functools.cache
def default() -> str:
    """``$PLAYABLE_DEVICE``, else ``cuda`` where a GPU answers, else ``cpu``. Does not import torch on a host without a driver."""
    chosen = os.environ.get("PLAYABLE_DEVICE")
    if chosen:
        return chosen
    if not os.path.exists("/proc/driver/nvidia/version"):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@functools.cache
def describe() -> str:
    """The device in words, as it stands below each result."""
    if default().startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(torch.device(default()))
    from backends.runtime import threads

    return f"CPU, {threads.COMPUTE_THREADS} of {threads.cores()} cores"
