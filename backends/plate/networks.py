"""The small networks: a body that is adapted, and a linear head for each task."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping

import numpy as np
import torch
from torch import nn


def linear(d_in: int, d_out: int, generator: torch.Generator) -> nn.Linear:
    """A linear layer with He's start, normal of variance 2 / d_in and no bias, drawn from this generator and not from the global one.

    The smaller start of the library's own would be overgrown by the old task: features too poor for a new head, and ten times the forgetting.
    """
    layer = nn.utils.skip_init(nn.Linear, d_in, d_out)
    with torch.no_grad():
        layer.weight.normal_(0, (2 / d_in) ** 0.5, generator=generator)
        layer.bias.zero_()
    return layer


class Body(nn.Module):
    """Linear layers, each followed by a ReLU; ``names`` are l1, l2, ... of their inputs' order."""

    def __init__(self, sizes: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        for number, (d_in, d_out) in enumerate(itertools.pairwise(sizes), 1):
            self.add_module(f"l{number}", linear(d_in, d_out, generator))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (n, d_in) -> features (n, d_out)."""
        for layer in self.children():
            x = torch.relu(layer(x))
        return x


class Net(nn.Module):
    """A body and one head."""

    def __init__(self, sizes: tuple[int, ...], outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        self.body = Body(sizes, generator)
        self.head = linear(sizes[-1], outputs, generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.head(self.body(x))
        return features


def weights(module: nn.Module) -> dict[str, np.ndarray]:
    """Copies of all weights, to be stored."""
    return {name: value.detach().numpy().copy() for name, value in module.state_dict().items()}


def with_weights(module: nn.Module, values: Mapping[str, np.ndarray]) -> nn.Module:
    """A copy of the module with these weights."""
    made = copy.deepcopy(module)
    made.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in values.items()})
    return made


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy; with one output the two classes are its signs. logits: (..., c); labels: (...) integers."""
    if logits.shape[-1] == 1:
        return nn.functional.binary_cross_entropy_with_logits(logits[..., 0], labels.to(logits.dtype))
    return nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


@torch.no_grad()
def accuracy(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of right answers. logits: (..., c); labels: (...)."""
    said = (logits[..., 0] > 0).long() if logits.shape[-1] == 1 else logits.argmax(dim=-1)
    return float((said == labels).double().mean())
