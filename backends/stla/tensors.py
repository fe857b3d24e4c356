"""What enters the public functions: arrays of numpy or torch, checked once and turned to float64."""

from __future__ import annotations

from typing import Any

import torch


def matrix(value: Any, name: str, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """A copy as a matrix on its device. Raises ValueError unless it has two dimensions, is not empty and holds finite numbers."""
    found = torch.as_tensor(value).detach().to(dtype).clone(memory_format=torch.contiguous_format)
    if found.ndim != 2 or not found.numel():
        raise ValueError(f"{name} has shape {tuple(found.shape)}; give a matrix that is not empty")
    if not bool(torch.isfinite(found).all()):
        raise ValueError(f"{name} holds numbers that are not finite")
    return found


def hessian(value: Any, columns: int, name: str = "H") -> torch.Tensor:
    """A symmetric (C, C) matrix with a diagonal that is nowhere below zero. Raises ValueError otherwise."""
    found = matrix(value, name)
    if found.shape != (columns, columns):
        raise ValueError(f"{name} has shape {tuple(found.shape)}; the weights have {columns} columns")
    if not torch.allclose(found, found.T, rtol=1e-5, atol=1e-8 * float(found.abs().max())):
        raise ValueError(f"{name} is not symmetric")
    if bool((found.diagonal() < 0).any()):
        raise ValueError(f"{name} has a negative number on its diagonal")
    return found


def weights_and_hessian(weights: Any, second: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """W (R, C) and H (C, C) in float64 on the device of W."""
    kept = matrix(weights, "W")
    return kept, hessian(second, kept.shape[1]).to(kept.device)


def check_sizes(columns: int, cluster: int, group: int) -> None:
    """Raises ValueError unless c and g are at least 1, g divides C, and one of c and g divides the other."""
    if cluster < 1 or group < 1:
        raise ValueError(f"clusters of {cluster} columns and groups of {group} cannot be formed")
    if columns % group:
        raise ValueError(f"groups of {group} do not divide {columns} columns")
    if cluster % group and group % cluster:
        raise ValueError(f"clusters of {cluster} and groups of {group} do not fit: one must divide the other")


def check_bits(bits: int) -> None:
    """Raises ValueError outside 2 to 8 bits."""
    if not 2 <= bits <= 8:
        raise ValueError(f"{bits} bits: choose 2 to 8")
