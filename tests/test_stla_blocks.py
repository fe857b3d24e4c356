"""Blocks of a small random decoder, one by one outside the model: inputs, drift, rounding, perplexity; the model itself stays as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from backends.contract import InputError
from backends.stla import blocks
from backends.stla.block import METHODS, Setting, quantise
from backends.stla.inputs import moments_of
from backends.stla.rounding import Learning
from backends.stla.whole_model import measure
from tests.decoders import small

SETTING = Setting(cluster=16, group=16, learning=Learning(20))


@pytest.fixture(scope="module")
def model() -> Any:
    return small("llama")


@pytest.fixture(scope="module")
def ids() -> torch.Tensor:
    return torch.randint(0, 100, (4, 64), generator=torch.Generator().manual_seed(0))


def test_activations_that_are_not_finite_are_refused(model: Any, ids: torch.Tensor) -> None:
    first = blocks.enter(model, ids)
    broken = [replace(chunk, hidden=torch.full_like(chunk.hidden, torch.nan)) for chunk in first]
    with pytest.raises(InputError, match="not finite"):
        blocks.moments(blocks.layers_of(model)[0], broken, blocks.STAGES, lambda: None)


def test_blocks_one_by_one_are_the_model(model: Any, ids: torch.Tensor) -> None:
    chunks = blocks.enter(model, ids)
    for block in blocks.layers_of(model):
        chunks = blocks.pass_on(block, chunks, lambda: None)
    with torch.inference_mode():
        whole = model(input_ids=ids, labels=ids).loss
    assert blocks.perplexity(model, chunks, ids, lambda: None) == pytest.approx(float(whole.exp()), rel=1e-4)


def test_drift_is_that_of_the_rounded_matrices_before(model: Any, ids: torch.Tensor) -> None:
    plain = moments_of(model, ids, 0, "o", lambda: None)
    found = moments_of(model, ids, 0, "o", lambda: None, (3, 16))
    assert found.drift is not None
    assert found.gap is not None
    # X_fp X_fp^T = X X^T + drift + drift^T + gap.
    np.testing.assert_allclose((found.second + found.drift + found.drift.T + found.gap).numpy(), plain.second.numpy(), rtol=1e-2, atol=1e-4)
    weights = blocks.weight_of(blocks.layers_of(model)[0], "o")
    unrounded = found.loss(weights, weights, 0.01)
    assert unrounded == pytest.approx(float(((weights @ found.gap) * weights).sum()), rel=1e-6)
    assert moments_of(model, ids, 0, "q", lambda: None, (3, 16)).drift is None


def test_the_shared_model_stays_as_it_is(model: Any, ids: torch.Tensor) -> None:
    block = blocks.layers_of(model)[0]
    before = {name: tensor.clone() for name, tensor in block.named_parameters()}
    hooks = [len(module._forward_pre_hooks) + len(module._forward_hooks) for module in model.modules()]
    chunks = blocks.enter(model, ids)
    setting = Setting(cluster=16, group=16, asymmetric_correction=True, learning=Learning(2))
    found = quantise(block, chunks, "stla", setting)
    assert all(torch.equal(tensor, before[name]) for name, tensor in block.named_parameters())
    assert hooks == [len(module._forward_pre_hooks) + len(module._forward_hooks) for module in model.modules()]
    assert set(found.losses) == set(blocks.MATRICES)
    changed = [name for name in blocks.MATRICES if not torch.equal(blocks.weight_of(found.block, name), blocks.weight_of(block, name))]
    assert changed == list(blocks.MATRICES)
    assert found.telescoping is None


@pytest.mark.parametrize("method", METHODS)
def test_every_method_rounds_a_block_to_the_grid(model: Any, ids: torch.Tensor, method: str) -> None:
    block, chunks = blocks.layers_of(model)[1], blocks.enter(model, ids)
    begun: list[str] = []
    found = quantise(block, chunks, method, SETTING, begin=begun.append)
    assert begun == list(blocks.MATRICES)
    assert found.telescoping is not None
    assert found.telescoping < 1e-9
    for matrix in blocks.MATRICES:
        rounded = blocks.weight_of(found.block, matrix)
        assert max(len(torch.unique(rounded[0, :16])), len(torch.unique(rounded[1, :16]))) <= 8 if method == "rtn" else torch.isfinite(rounded).all()


def test_the_losses_of_a_block_are_the_changes_of_its_outputs(model: Any, ids: torch.Tensor) -> None:
    block, chunks = blocks.layers_of(model)[0], blocks.enter(model, ids)
    found = quantise(block, chunks, "stla", replace(SETTING, damping=1e-9))
    with torch.inference_mode():
        x = torch.cat([block.input_layernorm(chunk.hidden).flatten(0, 1) for chunk in chunks]).double()
        change = x @ (blocks.weight_of(found.block, "q") - blocks.weight_of(block, "q")).T
    assert found.losses["q"] == pytest.approx(float(2 * change.square().sum() / len(x)), rel=1e-4)


def test_more_rounded_blocks_move_the_model_further(model: Any, ids: torch.Tensor) -> None:
    full, _ = measure(model, ids, ids, "full", SETTING, 3, lambda _: None)
    none, _ = measure(model, ids, ids, "rtn", SETTING, 0, lambda _: None)
    said: list[str] = []
    some, _ = measure(model, ids, ids, "rtn", replace(SETTING, asymmetric_correction=True), 2, said.append)
    assert none == full
    assert some != full
    assert [text.split(",")[0] for text in said] == ["rtn: block 1 of 2", "rtn: block 2 of 2"]
