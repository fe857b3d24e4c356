"""PLATE on the language model: the copied blocks are the model's own, the shared weights stay, the directions of layer 5."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from backends.contract import ContextSpec, Frame
from backends.plate import Spectrum, language, low_energy, projected_scores, redundant_rows, target_layers
from backends.plate.card import Params
from backends.plate.method import run
from backends.runtime import language_model
from backends.runtime.context import RunContext
from backends.runtime.models import Models

TAUS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
LAYER_5 = {  # k at these tau with 64 movable rows, of the method's card
    "q_proj": (503, 447, 406, 344, 291, 232),
    "k_proj": (541, 520, 505, 486, 473, 461),
    "v_proj": (537, 514, 499, 479, 466, 456),
    "o_proj": (502, 450, 411, 350, 296, 236),
    "gate_proj": (446, 350, 285, 194, 127, 70),
    "up_proj": (424, 329, 265, 178, 116, 63),
}


@pytest.fixture(scope="module")
def decoder() -> Any:
    return language_model.load(Models(lambda message: None, lambda: None))


@pytest.fixture(scope="module")
def short_run(decoder: Any) -> tuple[list[Frame], bool]:
    """Two steps of every method, and whether the shared weights are as before."""
    before = {name: value.clone() for name, value in decoder.model.state_dict().items()}
    frames = list(run(Params(data="language", steps=50, rank=16), RunContext(ContextSpec())))
    after = decoder.model.state_dict()
    return frames, before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("name", LAYER_5)
def test_exact_widths_of_layer_5(decoder: Any, name: str) -> None:
    W = target_layers(decoder.model.model.layers[5], [name]).popitem()[1].weight.double()
    rows = redundant_rows(W, 64)
    frozen = W[torch.isin(torch.arange(len(W)), rows, invert=True)]
    spectrum = Spectrum.of(frozen)
    found = [spectrum.d_in - spectrum.n_high(tau) for tau in TAUS]
    np.testing.assert_allclose(found, LAYER_5[name], atol=2)
    assert low_energy(frozen, 0.9, max_rank=1000)[1] == found[3]


def test_fast_scores_choose_the_same_neurons_only_with_a_wide_projection(decoder: Any) -> None:
    """128 random columns, as released, are too few on a real layer: their noise is above the spread of the scores."""
    W = decoder.model.model.layers[5].self_attn.q_proj.weight
    exact = set(redundant_rows(W, 256).tolist())

    def overlap(scores: torch.Tensor) -> float:
        return len(exact & set(scores.argsort(descending=True)[:256].tolist())) / 256

    released, wide = overlap(projected_scores(W)), overlap(projected_scores(W, 4096))
    assert wide >= 0.8
    assert 256 / 576 < released < wide


def test_the_copied_blocks_say_what_the_model_says(decoder: Any) -> None:
    _, lines = language.read(decoder.tokenizer)
    ids = lines.test[:2, :-1]
    states = torch.from_numpy(language.entering(decoder.model, ids, lambda: None))
    with torch.no_grad():
        ours = language.WordHead(decoder.model)(language.Tail(decoder.model)(states))
        whole = decoder.model(input_ids=torch.from_numpy(ids)).logits
    torch.testing.assert_close(ours, whole, rtol=1e-4, atol=1e-3)


def test_held_out_lines_are_not_trained_on(decoder: Any) -> None:
    old, new = language.read(decoder.tokenizer)
    assert old.train is None
    assert new.train is not None
    trained = {row.tobytes() for row in new.train}
    assert not any(row.tobytes() in trained for row in new.test)
    assert new.train.shape[1] == new.test.shape[1] == old.test.shape[1] == language.LENGTH + 1


def test_the_shared_model_is_left_as_it_was(decoder: Any, short_run: tuple[list[Frame], bool]) -> None:
    frames, unchanged = short_run
    assert unchanged
    assert not any("Plate" in type(module).__name__ or "lora" in type(module).__module__ for module in decoder.model.modules())
    assert not any(parameter.requires_grad for parameter in decoder.model.parameters())
    assert frames[-1].progress == 1


def test_a_short_run_learns_a_little_and_says_what_it_leaves_out(short_run: tuple[list[Frame], bool]) -> None:
    last = short_run[0][-1]
    assert set(last.data["trails"]) == {"plate", "lora", "full"}
    assert len(last.data["layers"]) == 28
    for trail in last.data["trails"].values():
        assert trail["new_perplexity"][-1] < trail["new_perplexity"][0]
        assert trail["drift"] == []
    assert "digits and moons only" in last.message
    assert "SmolLM2" in last.data["made_by"]["model"]
