"""The second moments of a layer's inputs: damping, the upper factor of the inverse, and what is left after the future compensates."""

from __future__ import annotations

from typing import Any

import torch

from backends.stla.tensors import hessian, matrix, weights_and_hessian

DEAD_CURVATURE = 1 / 2048  # of an input that is never active


def damped(weights: Any, second: Any, damping: float = 0.01) -> tuple[torch.Tensor, torch.Tensor]:
    """W and H as the sweep takes them (card 4.1): dead columns cleared, damping x mean(diag H) added to the diagonal; both float64.

    weights: (R, C). second: H = (2/n) X X^T, (C, C). damping: relative. Raises ValueError for a negative damping.
    """
    if not damping >= 0:
        raise ValueError(f"a damping of {damping} is below zero")
    kept, found = weights_and_hessian(weights, second)
    dead = found.diagonal() == 0
    kept[:, dead] = 0
    found.diagonal()[dead] = DEAD_CURVATURE
    found.diagonal().add_(damping * float(found.diagonal().mean()))
    return kept, found


def upper_factor(second: torch.Tensor) -> torch.Tensor:
    """U, upper triangular, with H^-1 = U^T U; (C, C). Raises ValueError when H is not positive definite.

    Not a swapped lower factor: that one gives the Schur complement of the past.
    """
    # Reversed rows and columns turn the Cholesky factor of H itself into U^-1, so H^-1 is never formed: half the digits would go.
    lower, failed = torch.linalg.cholesky_ex(second.flip(0, 1))
    # A pivot at the size of the rounding error is a singular H that looks definite.
    floor = torch.finfo(second.dtype).eps * len(second) * float(second.diagonal().max())
    if int(failed) or float(lower.diagonal().square().min()) <= floor:
        raise ValueError("H is not positive definite; raise the damping, or use more calibration tokens")
    one = torch.eye(len(second), dtype=second.dtype, device=second.device)
    return torch.linalg.solve_triangular(lower.flip(0, 1), one, upper=True)


def remaining_metric(upper: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """S_K = (U_KK^T U_KK)^-1 of the columns from ``start`` to ``stop``; (c, c)."""
    block = torch.linalg.solve_triangular(upper[start:stop, start:stop], torch.eye(stop - start, dtype=upper.dtype, device=upper.device), upper=True)
    found = block @ block.T
    return (found + found.T) / 2


def lookahead(second: Any, start: int, stop: int) -> torch.Tensor:
    """S_K = H_KK - H_KF H_FF^-1 H_FK, F all columns after ``stop``: the error that remains once the future has compensated; (c, c).

    second: H, (C, C), positive definite. Computed by this formula itself, not by the factor that the sweep uses. Raises ValueError
    for columns that are not there, or an H that is not symmetric.
    """
    size = len(matrix(second, "H"))
    found = hessian(second, size)
    if not 0 <= start < stop <= size:
        raise ValueError(f"columns {start} to {stop} are not among {size}")
    here, after = slice(start, stop), slice(stop, size)
    if stop == size:
        return found[here, here].clone()
    return found[here, here] - found[here, after] @ torch.linalg.solve(found[after, after], found[after, here])


def quadratic(error: torch.Tensor, metric: torch.Tensor) -> torch.Tensor:
    """e S e^T of each row; error: (R, c), metric: (c, c); gives (R,)."""
    return ((error @ metric) * error).sum(1)


def layer_loss(weights: Any, quantised: Any, second: Any) -> float:
    """L(Q) = tr[(Q - W) H (Q - W)^T]: twice the mean squared change of the output over tokens, summed over rows.

    weights, quantised: (R, C). second: H, (C, C). Raises ValueError where the shapes do not fit.
    """
    kept, metric = weights_and_hessian(weights, second)
    other = matrix(quantised, "Q").to(kept.device)
    if other.shape != kept.shape:
        raise ValueError(f"W has shape {tuple(kept.shape)} and Q {tuple(other.shape)}")
    return float(quadratic(other - kept, metric).sum())
