"""How far a network's local geometry moved: the change of its input Jacobian, and how much of its inputs the allowed directions see."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn


def jacobians(body: nn.Module, head: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """(n, c, d): derivative of each output with respect to each input, at each of x (n, d). A backward pass an output."""
    with torch.enable_grad():
        given = x.detach().clone().requires_grad_(True)
        logits = head(body(given))
        rows = [torch.autograd.grad(logits[:, c].sum(), given, retain_graph=c < logits.shape[1] - 1)[0] for c in range(logits.shape[1])]
    return torch.stack(rows, dim=1)


def drift(now: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """||J_x(theta_1) - J_x(theta_0)||_F at each input; now, before: (n, c, d). Returns (n,)."""
    return (now - before).flatten(1).norm(dim=1)


def grid(low: tuple[float, float], high: tuple[float, float], points: int) -> torch.Tensor:
    """(points^2, 2): a square grid, row by row from the lowest y."""
    x, y = (torch.linspace(a, b, points) for a, b in zip(low, high, strict=True))
    return torch.stack([x.repeat(points), y.repeat_interleave(points)], dim=1)


@torch.no_grad()
def seen(body: nn.Module, names: list[str], directions: list[np.ndarray], x: torch.Tensor) -> Iterator[tuple[float, float]]:
    """For each layer the root mean square of ||Q^T x|| / ||x|| over what the layer is given for these inputs, and what a random Q would see.

    names: of the layers; directions: Q (d_in, k) of each. Only the weights are protected exactly: this is how far activations are.
    """
    given: dict[str, torch.Tensor] = {}
    handles = [body.get_submodule(name).register_forward_hook(_keep(given, name)) for name in names]
    try:
        body(x)
    finally:
        for handle in handles:
            handle.remove()
    for name, Q in zip(names, directions, strict=True):
        rows = given[name].flatten(0, -2)
        whole = float((rows**2).sum())
        inside = float(((rows @ torch.from_numpy(Q.copy())) ** 2).sum())
        yield (inside / whole) ** 0.5 if whole > 0 else 0.0, (Q.shape[1] / Q.shape[0]) ** 0.5


def _keep(store: dict[str, torch.Tensor], name: str) -> Callable[..., None]:
    def hook(_: nn.Module, given: tuple[torch.Tensor, ...], __: torch.Tensor) -> None:
        store[name] = given[0].detach()

    return hook
