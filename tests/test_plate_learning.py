"""Learning the new task: nobody but the references sees old data, what each learner trains, the Fisher information, local drift."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from backends.plate import bench as benches
from backends.plate import drift, fisher_diagonal, jacobians, learners, training
from backends.plate.bench import Bench, Trail
from backends.plate.card import Params
from backends.plate.layer import PlateLinear
from backends.plate.learners import Learner
from backends.plate.method import _Run
from backends.plate.networks import Net, accuracy, linear, loss_of
from backends.plate.tasks import Data, Pair

STEPS = 30
DATA_FREE = ("plate", "lora", "full", "head", "osf")
SEES_OLD = ("ewc", "replay")


class Kept:
    """Old data that must not be touched: any use of it fails the test."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"old data was asked for its {name}")


class Context:
    """A context without a store: everything is computed."""

    device, live = "cpu", None
    models = SimpleNamespace(load=lambda key, load: load(lambda message: None))

    def check(self) -> None: ...

    def say(self, message: str) -> None: ...

    def memo(self, name: str, key: Any, make: Any) -> Any:
        return make()

    def stream(self, fn: Any) -> Iterator[Any]:
        out: list[Any] = []
        fn(out.append)
        return iter(out)


@pytest.fixture(scope="module")
def start() -> Bench:
    return benches.small(Params(data="digits"), lambda name, key, make: make(), lambda: None)


def race(start: Bench, pair: Pair, **values: Any) -> _Run:
    """A run on this start with these tasks."""
    made = _Run(Params(data="digits", **values), Context())  # type: ignore[arg-type]
    made.__dict__["bench"] = Bench(pair, start.body, start.old_head, start.new_head, STEPS, 64, 25, start.shown, start.drift_at, start.before)
    return made


def entries(run: _Run) -> dict[str, Any]:
    return {name: make for name, _, _, make in run.entries()}


def learned(run: _Run, learner: Learner) -> dict[str, torch.Tensor]:
    """The weights after training, without any measurement."""
    for _ in training.adapt(learner, run.bench.pair.new.train, STEPS, 1e-3, np.random.default_rng(0), lambda: None):
        pass
    return learner.body.state_dict() | {f"head {k}": v for k, v in learner.head.state_dict().items()}


# ----------------------------------------------------------------------------------------------------- no old data


@pytest.mark.parametrize("name", DATA_FREE)
def test_rows_directions_and_training_never_touch_old_data(start: Bench, name: str) -> None:
    """With an old task that raises at any access the same weights come out, bit for bit."""
    kept: Any = Kept()
    blind = race(start, Pair(kept, start.pair.new, start.pair.sizes, 5, "digits"))
    without = learned(blind, entries(blind)[name]())
    seeing = race(start, start.pair)
    within = learned(seeing, entries(seeing)[name]())
    assert without.keys() == within.keys()
    assert all(torch.equal(without[key], within[key]) for key in within)


@pytest.mark.parametrize("name", SEES_OLD)
def test_the_references_do_ask_for_old_data_and_say_so(start: Bench, name: str) -> None:
    kept: Any = Kept()
    blind = race(start, Pair(kept, start.pair.new, start.pair.sizes, 5, "digits"))
    with pytest.raises(AssertionError, match="old data was asked"):
        entries(blind)[name]()
    seeing = race(start, start.pair)
    assert "old" in entries(seeing)[name]().keeps
    assert not any(entries(seeing)[free]().keeps for free in DATA_FREE)


def test_the_start_is_left_as_it_was_by_every_method(start: Bench) -> None:
    before = {k: v.clone() for k, v in start.body.state_dict().items()}
    head = start.old_head.weight.clone()
    run = race(start, start.pair)
    for make in entries(run).values():
        learned(run, make())
    assert all(torch.equal(before[key], value) for key, value in start.body.state_dict().items())
    assert torch.equal(head, start.old_head.weight)
    assert not any(isinstance(module, PlateLinear) for module in start.body.modules())


# ------------------------------------------------------------------------------------------------ what each one trains


def test_each_method_trains_what_it_says(start: Bench) -> None:
    run = race(start, start.pair)
    sizes = {name: make().trainable for name, make in entries(run).items()}
    assert sizes["head"] == 0
    assert sizes["full"] == sizes["ewc"] == sizes["replay"] == 147_456
    assert sizes["lora"] == 16 * (64 + 256 + 2 * (256 + 256))
    assert entries(race(start, start.pair, lora_rank=4))["lora"]().trainable == 5_376
    layers = run.choices(run.params)
    assert sizes["plate"] == sum(len(choice.rows) * choice.Q.shape[1] for choice in layers.values())
    assert sizes["plate"] == pytest.approx(11_296, abs=200), "the card's figure for 32 rows and a fence of 0.8"


def test_every_learner_begins_at_the_same_point(start: Bench) -> None:
    run = race(start, start.pair)
    x = start.pair.new.test.x
    expected = training.answers(start.body, start.new_head, x)
    for name, make in entries(run).items():
        learner = make()
        got = training.answers(learner.body, learner.head, x)
        if name == "osf":  # it writes the weight as a sum of singular parts
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
        else:
            assert torch.equal(got, expected), name


def test_plate_moves_nothing_but_a_and_the_head(start: Bench) -> None:
    run = race(start, start.pair)
    learner = entries(run)["plate"]()
    before = {name: value.clone() for name, value in learner.body.state_dict().items()}
    learned(run, learner)
    moved = {name for name, value in learner.body.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {"l1.A", "l2.A", "l3.A"}
    adapters = [module for module in learner.body.modules() if isinstance(module, PlateLinear)]
    outside = [float((d - (d @ a.Q) @ a.Q.T).norm() / d.norm()) for a in adapters for d in [a.delta()]]
    assert max(outside) < 1e-5


def test_the_old_task_is_tested_through_the_adapted_body_with_the_old_head(start: Bench) -> None:
    run = race(start, start.pair)
    learner = entries(run)["full"]()
    learned(run, learner)
    trail = Trail()
    benches.measure(run.bench, learner, STEPS, trail)
    old, new = start.pair.old.test, start.pair.new.test
    assert trail.old == [accuracy(start.old_head(learner.body(old.x)), old.y)]
    assert trail.new == [accuracy(learner.head(learner.body(new.x)), new.y)]
    assert trail.drift[0] > 0


# --------------------------------------------------------------------------------------------- Fisher, drift, batches


def small_net(outputs: int) -> tuple[Net, Data]:
    net = Net((3, 7, 5), outputs, torch.Generator().manual_seed(0))
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.integers(max(2, outputs), size=11))
    return net, Data(torch.from_numpy(rng.normal(size=(11, 3))).float(), y)


@pytest.mark.parametrize("outputs", [1, 4])
def test_the_fisher_information_agrees_with_a_loop_over_samples_and_answers(outputs: int) -> None:
    net, data = small_net(outputs)
    found = fisher_diagonal(net.body, net.head, data)
    expected = {name: torch.zeros_like(layer.weight) for name, layer in learners.linears(net.body).items()}
    for x in data.x:
        for answer in range(max(2, outputs)):
            net.zero_grad()
            logits = net(x[None])
            loss = loss_of(logits, torch.tensor([answer]))
            loss.backward()
            for name, layer in learners.linears(net.body).items():
                assert layer.weight.grad is not None
                expected[name] += float((-loss).detach().exp()) * layer.weight.grad**2 / len(data.y)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-7)


def test_ewc_is_held_where_the_old_data_leans(start: Bench) -> None:
    ones = {name: torch.ones_like(layer.weight) for name, layer in learners.linears(start.body).items()}
    learner = learners.ewc(start.body, start.new_head, ones, 2.0)
    assert learner.penalty is not None
    assert float(learner.penalty()) == 0
    with torch.no_grad():
        learners.linears(learner.body)["l1"].weight[0, 0] += 3.0
    assert float(learner.penalty()) == pytest.approx(9.0)


def test_jacobians_agree_with_torch_and_drift_is_their_distance() -> None:
    net, data = small_net(4)
    found = jacobians(net.body, net.head, data.x)
    expected = torch.stack([torch.autograd.functional.jacobian(lambda row: net(row[None])[0], x) for x in data.x])
    torch.testing.assert_close(found, expected)
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.head.weight.mul_(2)
    torch.testing.assert_close(drift(jacobians(other.body, other.head, data.x), found), found.flatten(1).norm(dim=1))


def test_batches_are_shuffled_passes() -> None:
    chosen = training.batches(10, 7, np.random.default_rng(0), 4)
    assert chosen.shape == (7, 4)
    for first in (0, 10):
        assert sorted(chosen.ravel()[first : first + 10].tolist()) == list(range(10))


def test_one_output_is_the_logistic_loss() -> None:
    logits, y = torch.tensor([[2.0], [-1.0]]), torch.tensor([1, 1])
    assert float(loss_of(logits, y)) == pytest.approx(float(np.mean(np.log1p(np.exp([-2.0, 1.0])))))
    assert accuracy(logits, y) == 0.5
    assert linear(4, 2, torch.Generator().manual_seed(0)).bias.tolist() == [0, 0]
