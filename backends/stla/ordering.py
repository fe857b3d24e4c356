"""In which order columns are quantised, and so which of them share a cluster (card 4.5)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from backends.stla.tensors import hessian, matrix

Order = Literal["spin", "act", "none"]
ORDERS = ("spin", "act", "none")


def column_order(second: Any, cluster: int, order: Order) -> torch.Tensor:
    """The column that is quantised first, second, ...; (C,) of int64 on the CPU.

    second: H, (C, C). cluster: c, used by spin alone. Raises ValueError for an unknown order, or an H that is not symmetric.

    >>> column_order([[1, 0.5, 0], [0.5, 3, 0], [0, 0, 2]], 2, "spin").tolist()
    [1, 0, 2]
    """
    found = hessian(second, len(matrix(second, "H"))).cpu().numpy()
    if order == "none":
        return torch.arange(len(found))
    if order == "act":
        return torch.as_tensor(np.argsort(-found.diagonal(), kind="stable"))
    if order == "spin":
        return torch.as_tensor(_spin(found, cluster))
    raise ValueError(f"there is no order {order!r}; choose one of {', '.join(ORDERS)}")


def _spin(second: np.ndarray, cluster: int) -> np.ndarray:
    """Greedy antiferromagnet: each cluster gathers columns whose errors can cancel. Each choice needs the one before it."""
    if cluster < 1:
        raise ValueError(f"clusters of {cluster} columns cannot be formed")
    columns = len(second)
    energy = np.sqrt(second.diagonal())
    safe = np.where(energy > 0, energy, 1.0)
    coupling = second / safe / safe[:, None]
    np.fill_diagonal(coupling, 0.0)
    free = np.ones(columns, bool)
    placed = np.empty(columns, np.int64)
    potential = np.zeros(columns)
    for position in range(columns):
        if position % cluster == 0:
            chosen = int(np.where(free, second.diagonal(), -np.inf).argmax())
            potential = coupling[chosen].copy()
        else:
            chosen = int(np.where(free, np.abs(potential) * energy, -np.inf).argmax())
            potential += (-1.0 if potential[chosen] > 0 else 1.0) * coupling[chosen]
        placed[position] = chosen
        free[chosen] = False
    return placed
