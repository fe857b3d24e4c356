"""The adapter itself: a frozen linear layer of which r rows may move along k input directions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class Plan:
    """What a layer's weights alone decide. rows: (r_eff,) indices, B of the paper; Q: (d_in, k) orthonormal columns."""

    rows: torch.Tensor
    Q: torch.Tensor

    @property
    def trainable(self) -> int:
        return len(self.rows) * self.Q.shape[1]


def weight_of(layer: nn.Module) -> torch.Tensor:
    """The weight of a linear layer as (d_out, d_in); a Conv1D of transformers stores it transposed.

    Raises ValueError for a module that is no linear layer.
    """
    if isinstance(layer, PlateLinear):
        return layer.weight()
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.ndim != 2 or isinstance(layer, nn.Embedding):
        raise ValueError(f"a {type(layer).__name__} is no linear layer")
    return weight.detach().T if _is_transposed(layer) else weight.detach()


def _is_transposed(layer: nn.Module) -> bool:
    return type(layer).__name__ == "Conv1D"  # by name: importing transformers for this takes seconds


class PlateLinear(nn.Module):
    """y = W x + rho B (A (Q^T x)): rows and Q come from W once and stay; only A (r_eff, k) is trained, from zero.

    base: a linear layer (d_out, d_in), or another PlateLinear; its parameters are frozen in place.
    plan: rows and Q. scale: rho. Raises ValueError when rows or Q do not fit the layer, or rows repeat.
    """

    rows: torch.Tensor
    Q: torch.Tensor

    def __init__(self, base: nn.Module, plan: Plan, scale: float = 1.0) -> None:
        super().__init__()
        weight = weight_of(base)
        _check(plan, weight)
        if isinstance(base, PlateLinear):
            shared = set(plan.rows.tolist()) & set(base.rows.tolist())
            if shared:
                warnings.warn(f"{len(shared)} rows are moved by two adapters: what is promised holds for their sum only", stacklevel=2)
        self.base = base.requires_grad_(False)
        self.scale = scale
        self.register_buffer("rows", plan.rows.clone())
        self.register_buffer("Q", plan.Q.to(weight.dtype))
        self.A = nn.Parameter(torch.zeros(len(plan.rows), plan.Q.shape[1], dtype=weight.dtype))
        self._kept: torch.Tensor | None = None  # the moved rows as they were, while merged

    @property
    def merged(self) -> bool:
        return self._kept is not None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., d_in). Returns (..., d_out)."""
        out: torch.Tensor = self.base(x)
        if self.merged:
            return out
        return out.index_add(-1, self.rows, ((x @ self.Q) @ self.A.T).to(out.dtype), alpha=self.scale)

    def delta(self) -> torch.Tensor:
        """rho B A Q^T as a matrix (d_out, d_in)."""
        weight = weight_of(self.base)
        moved = torch.zeros_like(weight)
        moved[self.rows] = self.scale * (self.A.detach() @ self.Q.T)
        return moved

    def weight(self) -> torch.Tensor:
        """The weight in effect (d_out, d_in)."""
        return weight_of(self.base) if self.merged else weight_of(self.base) + self.delta()

    def merge(self) -> None:
        """Adds rho B A Q^T to W. Raises ValueError when it is merged already."""
        if self.merged:
            raise ValueError("this adapter is merged already: unmerge it first")
        weight = weight_of(self.base)
        kept = weight[self.rows].clone()
        weight[self.rows] += self.scale * (self.A.detach() @ self.Q.T)
        self._kept = kept

    def unmerge(self) -> None:
        """Puts the moved rows back as they were, bit for bit. Raises ValueError when it is not merged."""
        if self._kept is None:
            raise ValueError("this adapter is not merged")
        weight_of(self.base)[self.rows] = self._kept
        self._kept = None


def _check(plan: Plan, weight: torch.Tensor) -> None:
    d_out, d_in = weight.shape
    rows, Q = plan.rows, plan.Q
    if rows.ndim != 1 or len(rows) == 0 or int(rows.min()) < 0 or int(rows.max()) >= d_out or len(rows.unique()) < len(rows):
        raise ValueError(f"rows must be different indices from 0 to {d_out - 1}")
    if Q.ndim != 2 or Q.shape[0] != d_in or not 1 <= Q.shape[1] <= d_in:
        raise ValueError(f"Q must have {d_in} rows and 1 to {d_in} columns, its shape is {tuple(Q.shape)}")


def target_layers(model: nn.Module, targets: Iterable[str]) -> dict[str, nn.Module]:
    """The linear layers whose last name is among ``targets``, each once: a weight that two modules share is found under its first name.

    Raises ValueError naming each target that matches no linear layer.
    """
    wanted, found, seen = list(targets), {}, set()
    matched = set()
    for name, module in model.named_modules():
        last = name.rsplit(".", 1)[-1]
        weight = getattr(module, "weight", None)
        is_linear = isinstance(module, nn.Linear) or _is_transposed(module)
        if last not in wanted or not is_linear or not isinstance(weight, torch.Tensor):
            continue
        matched.add(last)
        if id(weight) not in seen:
            seen.add(id(weight))
            found[name] = module
    missing = [name for name in wanted if name not in matched]
    if missing:
        raise ValueError(f"no linear layer is called {', '.join(missing)}")
    return found


def attach(model: nn.Module, plans: dict[str, Plan], scale: float = 1.0) -> dict[str, PlateLinear]:
    """Puts an adapter in the place of each named layer of ``model``, which is changed, and freezes all else.

    plans: full name of a layer -> its plan. Gradient checkpointing is switched off, as the authors do. Returns the adapters by name.
    """
    switch_off: Any = getattr(model, "gradient_checkpointing_disable", None)
    if callable(switch_off) and getattr(model, "is_gradient_checkpointing", False):
        switch_off()
    model.requires_grad_(False)
    adapters = {}
    for name, plan in plans.items():
        parent, _, last = name.rpartition(".")
        adapters[name] = PlateLinear(model.get_submodule(name), plan, scale)
        setattr(model.get_submodule(parent), last, adapters[name])
    return adapters


def adapters_of(model: nn.Module) -> Iterator[PlateLinear]:
    """The adapters of a model, in order."""
    return (module for module in model.modules() if isinstance(module, PlateLinear))
