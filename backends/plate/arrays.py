"""Weight matrices from whoever brings them: numpy arrays, nested lists or torch tensors, all computed in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def as_matrix(W: Any, name: str = "W") -> torch.Tensor:
    """A finite float64 matrix (rows, columns) of what was given.

    Raises ValueError when it has not two dimensions, is empty, or holds NaN or infinity.
    """
    given = W.detach() if isinstance(W, torch.Tensor) else torch.from_numpy(np.array(W, dtype=np.float64))
    matrix = given.to(torch.float64)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"{name} must be a matrix with rows and columns, its shape is {tuple(matrix.shape)}")
    if not bool(torch.isfinite(matrix).all()):
        raise ValueError(f"{name} holds NaN or infinity, so neither its rows nor its directions can be ranked")
    return matrix


def like(result: torch.Tensor, given: Any) -> Any:
    """The result in the kind of what was given: a tensor of its device and precision, else a numpy array of float64 (or of indices)."""
    if not isinstance(given, torch.Tensor):
        return result.numpy()
    if not result.is_floating_point():
        return result.to(given.device)
    exact = given.dtype in (torch.float32, torch.float64)
    return result.to(given.device, given.dtype if exact else torch.float32)  # directions in half precision are not orthonormal


def check_share(value: float, name: str) -> float:
    """A share from 0 to 1. Raises ValueError elsewhere, NaN included."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is a share from 0 to 1, {value} is not")
    return float(value)
