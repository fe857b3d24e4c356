"""The adapter on a layer: what never moves, merging and putting back, several adapters, finding layers by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from backends.plate import Plan, PlateLinear, adapters_of, choose, target_layers, weight_of
from backends.plate.layer import attach


def layer(d_out: int = 24, d_in: int = 16, seed: int = 0) -> nn.Linear:
    made = nn.utils.skip_init(nn.Linear, d_in, d_out)
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        made.weight.copy_(torch.from_numpy(rng.normal(size=(d_out, d_in))))
        made.bias.copy_(torch.from_numpy(rng.normal(size=d_out)))
    return made


def plan_of(base: nn.Module, r: int = 6, energy: float = 0.8) -> Plan:
    return choose(weight_of(base).numpy(), r, energy, rng=np.random.default_rng(0)).plan()


def trained(scale: float = 0.7) -> tuple[PlateLinear, torch.Tensor]:
    """An adapter whose A is not zero any more, and its weight before."""
    base = layer()
    before = base.weight.detach().clone()
    made = PlateLinear(base, plan_of(base), scale)
    with torch.no_grad():
        made.A.copy_(torch.from_numpy(np.random.default_rng(1).normal(size=made.A.shape)))
    return made, before


def inputs(d_in: int = 16) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(2).normal(size=(5, 3, d_in))).float()


def test_before_training_nothing_differs() -> None:
    base, x = layer(), inputs()
    expected = base(x)
    assert torch.equal(PlateLinear(base, plan_of(base))(x), expected)


def test_only_the_chosen_rows_move_and_only_along_q() -> None:
    made, before = trained()
    delta = made.delta()
    stay = torch.isin(torch.arange(24), made.rows, invert=True)
    assert torch.count_nonzero(delta[stay]) == 0
    assert torch.count_nonzero(delta[made.rows]) > 0
    outside = delta - (delta @ made.Q) @ made.Q.T
    assert float(outside.norm() / delta.norm()) < 1e-6
    assert int(torch.linalg.matrix_rank(delta)) <= min(made.A.shape)
    torch.testing.assert_close(made.weight(), before + delta)


def test_merged_is_unmerged_and_can_be_put_back() -> None:
    made, before = trained()
    x = inputs()
    apart = made(x)
    rows = made.rows
    made.merge()
    torch.testing.assert_close(made(x), apart, rtol=0, atol=1e-5)
    stay = torch.isin(torch.arange(24), rows, invert=True)
    assert torch.equal(weight_of(made.base)[stay], before[stay])
    with pytest.raises(ValueError, match="merged already"):
        made.merge()
    made.unmerge()
    assert torch.equal(weight_of(made.base), before)
    with pytest.raises(ValueError, match="not merged"):
        made.unmerge()


def test_only_a_learns_and_its_size_is_r_times_k() -> None:
    net = nn.Sequential()
    for number in range(2):
        net.add_module(f"l{number}", layer(16, 16, number))
    plans = {name: plan_of(net.get_submodule(name)) for name in ("l0", "l1")}
    made = attach(net, plans)
    net(inputs()).square().sum().backward()
    graded = {name for name, p in net.named_parameters() if p.grad is not None}
    assert graded == {"l0.A", "l1.A"}
    assert sum(p.numel() for p in net.parameters() if p.requires_grad) == sum(len(p.rows) * p.Q.shape[1] for p in plans.values())
    assert list(adapters_of(net)) == list(made.values())


def test_the_gradient_of_a_is_that_of_the_dense_formula() -> None:
    made, before = trained()
    x = inputs()
    made(x).square().sum().backward()
    A = made.A.detach().clone().requires_grad_(True)
    B = nn.functional.one_hot(made.rows, 24).T.float()
    dense = x @ (before + 0.7 * B @ A @ made.Q.T).T + made.base.bias
    dense.square().sum().backward()
    torch.testing.assert_close(made.A.grad, A.grad, rtol=1e-4, atol=1e-3)


def test_two_adapters_on_the_same_rows_are_allowed_with_a_warning() -> None:
    base = layer()
    first = PlateLinear(base, plan_of(base))
    with pytest.warns(UserWarning, match="sum only"):
        second = PlateLinear(first, plan_of(first))
    torch.testing.assert_close(second(inputs()), base(inputs()))


def test_rows_and_directions_must_fit() -> None:
    base = layer()
    good = plan_of(base)
    for rows in ([], [1, 1], [24], [-1]):
        with pytest.raises(ValueError, match="different indices"):
            PlateLinear(base, Plan(torch.tensor(rows, dtype=torch.int64), good.Q))
    with pytest.raises(ValueError, match="16 rows"):
        PlateLinear(base, Plan(good.rows, good.Q[:-1]))
    with pytest.raises(ValueError, match="no linear layer"):
        weight_of(nn.ReLU())


def test_a_transposed_layer_moves_the_right_rows() -> None:
    class Conv1D(nn.Module):  # as transformers stores it: (d_in, d_out)
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(layer(12, 16).weight.detach().T.clone())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight

    made = PlateLinear(Conv1D(), plan_of(Conv1D(), 3))
    with torch.no_grad():
        made.A.fill_(1.0)
    x = inputs()
    apart = made(x)
    made.merge()
    torch.testing.assert_close(made(x), apart, rtol=0, atol=1e-5)


def test_layers_are_found_by_name_each_weight_once() -> None:
    net = nn.ModuleDict({"q": layer(), "v": layer(seed=1), "norm": nn.LayerNorm(4)})
    net["tied"] = nn.ModuleDict({"q": nn.Linear(16, 24)})
    net["tied"]["q"].weight = net["q"].weight
    assert list(target_layers(net, ["q", "v"])) == ["q", "v"]
    with pytest.raises(ValueError, match="called gate, norm"):
        target_layers(net, ["q", "gate", "norm"])


def test_gradient_checkpointing_is_switched_off() -> None:
    class Model(nn.Module):
        is_gradient_checkpointing = True

        def __init__(self) -> None:
            super().__init__()
            self.l1 = layer()

        def gradient_checkpointing_disable(self) -> None:
            self.is_gradient_checkpointing = False

    model = Model()
    attach(model, {"l1": plan_of(model.l1)})
    assert not model.is_gradient_checkpointing
