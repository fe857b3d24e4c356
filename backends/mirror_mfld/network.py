"""A two-layer ReLU classifier as a functional of the law of its neurons in the unit ball (section 4.5, experiment 3)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from backends.mirror_mfld.domains import Domain, normal
from backends.mirror_mfld.functionals import Functional, KernelBasis, MomentForm

XOR_SPREAD = 0.35


def xor_data(n: int, generator: torch.Generator | None = None, spread: float = XOR_SPREAD) -> tuple[Tensor, Tensor]:
    """(x (n, 2), y (n,) of -1 and 1): Gaussian noise around the corners (+-1, +-1), the label the product of the corner's signs."""
    corner = 2.0 * (torch.rand((n, 2), generator=generator) < 0.5).double() - 1
    return corner + spread * normal((n, 2), generator), corner.prod(-1)


class XorNetwork(Functional):
    """F = mean of log(1 + exp(-y f(x))) over the data, f(x) = (R/N) sum_j a_j relu(w_j . x).

    Neurons w_j (..., N, d) are the particles; a_j = 1 for the first half, -1 for the others, fixed. inputs: (n, d); labels: (n,) of -1 and 1.
    """

    def __init__(self, domain: Domain, inputs: Any, labels: Any, scale: float = 8.0) -> None:
        super().__init__(domain)
        self.inputs, self.labels = torch.as_tensor(inputs, dtype=torch.float64), torch.as_tensor(labels, dtype=torch.float64)
        if self.inputs.ndim != 2 or self.inputs.shape[1:] != domain.shape or self.labels.shape != self.inputs.shape[:1]:
            raise ValueError(f"inputs must be (n, {domain.shape[0]}) and labels (n,)")
        if not bool((self.labels.abs() == 1).all()):
            raise ValueError("labels must be -1 or 1")
        self.scale = float(scale)

    @staticmethod
    def signs(n: int) -> Tensor:
        """(n,) output weights a_j."""
        return torch.where(torch.arange(n) < n // 2, 1.0, -1.0).double()

    def outputs(self, w: Tensor, inputs: Tensor | None = None) -> Tensor:
        """f(x) at the inputs (n, d), (..., n)."""
        points = self.inputs if inputs is None else inputs
        active = torch.relu(points @ w.mT)
        return self.scale * (active @ self.signs(w.shape[-2])) / w.shape[-2]

    def statistics(self, x: Tensor) -> Tensor:
        """Slope of the loss in f(x) at each datum, divided by their number: (..., n)."""
        return -self.labels * torch.sigmoid(-self.labels * self.outputs(x)) / len(self.labels)

    def gradient(self, x: Tensor, statistics: Tensor) -> Tensor:
        active = (x @ self.inputs.mT > 0).double()
        return self.scale * self.signs(x.shape[-2])[:, None] * (active @ (statistics[..., None] * self.inputs))

    def value(self, x: Tensor) -> Tensor:
        return torch.nn.functional.softplus(-self.labels * self.outputs(x)).mean(-1)

    def accuracy(self, x: Tensor) -> float:
        """Share of the data on the right side."""
        return float((self.outputs(x) * self.labels > 0).double().mean())

    def moment_form(self, nodes: Tensor, basis: KernelBasis | None = None) -> MomentForm | None:
        return None
