"""The subspace without reference data: what must hold for any one, on the published figures of FLUX.1 [dev], and what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

from backends.contract import InputError
from backends.lcs import LCS, StepStatistics, attention_mask, first_token, flux1_dev, hsl_of, recolour
from backends.lcs.readout import cell_rgb, difference, hex_of, mean_rgb, measured_region
from backends.lcs.trajectory import shown_steps, thumbnail
from kernels import lcs as kernel
from tests.flux_pipelines import tokenizer

TARGET = hsl_of("#40bfbf")


@pytest.fixture(scope="module")
def lcs() -> LCS:
    return flux1_dev()


def cloud(lcs: LCS, tokens: int = 50, sigma: float = 0.7, *, spread: float = 4.0, seed: int = 0) -> torch.Tensor:
    """Noisy latents (tokens, 64) around the middle of the cone."""
    generator = torch.Generator().manual_seed(seed)
    clean = lcs.mu + spread * torch.randn(tokens, 64, generator=generator)
    return (1 - sigma) * clean + sigma * torch.randn(tokens, 64, generator=generator)


def outside(change: torch.Tensor, lcs: LCS) -> float:
    return float((change - change @ lcs.B.T @ lcs.B).abs().max())


@pytest.mark.parametrize("kind", ["type1", "type2", "blend"])
def test_the_change_lies_in_the_row_space(lcs: LCS, kind: Any) -> None:
    x = cloud(lcs)
    change = lcs.steer(x, TARGET, 0.7, kind=kind) - x
    assert float(change.abs().max()) > 0.1
    assert outside(change, lcs) < 1e-5


def test_type_one_to_the_present_mean_changes_nothing(lcs: LCS) -> None:
    there = lcs.steer(cloud(lcs), TARGET, 0.7, kind="type1")
    assert torch.allclose(lcs.steer(there, TARGET, 0.7, kind="type1"), there, atol=1e-5)


@pytest.mark.parametrize("sigma", [0.0, 0.3, 0.9, 0.99])
def test_gamma_one_puts_the_mean_on_the_target(lcs: LCS, sigma: float) -> None:
    moved = lcs.steer(cloud(lcs, sigma=sigma), TARGET, sigma, gamma=1.0)
    assert lcs.observe(moved, sigma).coordinates.mean(0).tolist() == pytest.approx(lcs.to_lcs(TARGET).tolist(), abs=5e-3)


def test_gamma_is_the_noise_level_unless_it_is_given(lcs: LCS) -> None:
    x = cloud(lcs)
    assert torch.equal(lcs.steer(x, TARGET, 0.7), lcs.steer(x, TARGET, 0.7, gamma=0.7))
    first, second = (lcs.steer(x, TARGET, 0.7, kind=kind) for kind in ("type1", "type2"))
    assert torch.allclose(lcs.steer(x, TARGET, 0.7), 0.7 * first + 0.3 * second, atol=1e-5)
    assert torch.equal(lcs.steer(x, TARGET, 0.7, gamma=1.0), first)
    assert torch.equal(lcs.steer(x, TARGET, 0.7, gamma=0.0), second)


def test_what_is_not_masked_keeps_its_bits_and_has_no_say(lcs: LCS) -> None:
    x = cloud(lcs)
    mask = torch.arange(len(x)) % 3 == 0
    moved = lcs.steer(x, TARGET, 0.7, mask)
    assert torch.equal(moved[~mask], x[~mask])
    other = torch.where(mask[:, None], x, torch.full_like(x, 1e9))
    assert torch.equal(lcs.steer(other, TARGET, 0.7, mask)[mask], moved[mask])
    assert torch.allclose(lcs.steer(x[mask], TARGET, 0.7), moved[mask], atol=1e-6)


def test_two_pictures_are_steered_as_each_alone(lcs: LCS) -> None:
    pictures = torch.stack([cloud(lcs, seed=1), cloud(lcs, seed=2, spread=8)])
    masks = torch.rand(2, 50, generator=torch.Generator().manual_seed(0)) < 0.4
    both = lcs.steer(pictures, TARGET, 0.7, masks)
    for one, mask, steered in zip(pictures, masks, both, strict=True):
        assert torch.allclose(lcs.steer(one, TARGET, 0.7, mask), steered, atol=1e-6)


def test_half_precision_is_computed_in_fp32(lcs: LCS) -> None:
    x = cloud(lcs).bfloat16()
    moved = lcs.steer(x, TARGET, 0.7)
    assert moved.dtype == torch.bfloat16
    assert torch.equal(moved, lcs.steer(x.float(), TARGET, 0.7).bfloat16())
    seen = lcs.observe(x, 0.7)
    assert {part.dtype for part in seen} == {torch.float32}


def test_arrays_in_give_arrays_out(lcs: LCS) -> None:
    x = cloud(lcs)
    assert isinstance(lcs.steer(x.numpy(), TARGET, 0.7), np.ndarray)
    assert np.array_equal(lcs.steer(x.numpy(), TARGET, 0.7), lcs.steer(x, TARGET, 0.7).numpy())
    assert isinstance(lcs.to_lcs(TARGET), np.ndarray)
    assert isinstance(lcs.to_hsl(lcs.anchors), torch.Tensor)
    assert lcs.steer(x, TARGET, 0.7, kind="off") is x
    assert torch.equal(pickle.loads(pickle.dumps(lcs)).cone.hues, lcs.cone.hues)


def test_the_mean_hue_is_circular(lcs: LCS) -> None:
    """Two reds on both sides of the wrap: turned to their own circular mean nothing moves much; a plain mean would be teal."""
    reds = torch.tensor([[0.97, 0.8, 0.5], [0.03, 0.8, 0.5]])
    x = lcs.mu + lcs.to_lcs(reds) @ lcs.B
    seen = kernel.observe(x[None], lcs.plane(0.0), lcs.cone, clip=True)
    move = lcs.move(seen, torch.tensor([0.0, 0.8, 0.5]), torch.ones(1, 2).bool(), 0.0)
    assert abs(float(move.turn[0, 0])) < 0.05


def test_the_closed_form_does_not_need_the_mean_of_the_end(lcs: LCS) -> None:
    """alpha_end cancels, so a subspace that was fitted on solids alone is as good."""
    x = cloud(lcs)
    bare = LCS(lcs.B, lcs.mu, lcs.anchors, torch.zeros(3))
    assert torch.allclose(bare.observe(x, 0.7).coordinates, lcs.observe(x, 0.7).coordinates, atol=1e-3)
    assert torch.allclose(bare.steer(x, TARGET, 0.7), lcs.steer(x, TARGET, 0.7), atol=1e-4)


def test_a_mean_of_noise_is_steered_and_finite_at_the_start(lcs: LCS) -> None:
    noise = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    moved = lcs.steer(noise, TARGET, 1.0)
    assert bool(moved.isfinite().all())
    assert not torch.equal(moved, noise)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"B": torch.ones(3, 64)}, "B"),
        ({"B": torch.eye(64)[:2]}, "B"),
        ({"mu": torch.zeros(3)}, "mu"),
        ({"mu": torch.full((64,), float("nan"))}, "mu"),
        ({"anchors": torch.zeros(8, 3)}, "anchors"),
        ({"anchors": torch.randn(7, 3)}, "anchors"),
        ({"variant": "other"}, "variant"),
        ({"statistics": StepStatistics([1.0, 0.5, 0.6, 0.0], np.zeros((4, 3)), np.ones((4, 3)))}, "statistics"),
    ],
)
def test_figures_that_are_no_subspace_are_refused(lcs: LCS, change: dict[str, Any], field: str) -> None:
    given = {"B": lcs.B, "mu": lcs.mu, "anchors": lcs.anchors, "alpha_end": lcs.alpha_end} | change
    with pytest.raises(InputError) as error:
        LCS(**given)
    assert error.value.field == field


def test_two_equal_hue_anchors_are_refused(lcs: LCS) -> None:
    anchors = lcs.anchors.clone()
    anchors[3] = anchors[0]
    with pytest.raises(InputError, match="coincide"):
        LCS(lcs.B, lcs.mu, anchors, lcs.alpha_end)


def test_what_cannot_be_steered_is_refused(lcs: LCS) -> None:
    x = cloud(lcs)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("x", {"x": x[:, :32]}),
        ("x", {"x": x[0]}),
        ("x", {"x": x[:0]}),
        ("hsl", {"hsl": (0.5, 2.0, 0.5)}),
        ("hsl", {"hsl": (0.5, float("nan"), 0.5)}),
        ("sigma", {"sigma": 1.5}),
        ("mask", {"mask": torch.zeros(50).bool()}),
        ("mask", {"mask": torch.ones(49).bool()}),
        ("gamma", {"gamma": 1.5}),
        ("gamma", {"kind": "type3"}),
    ]
    for field, change in calls:
        with pytest.raises(InputError) as error:
            lcs.steer(**{"x": x, "hsl": TARGET, "sigma": 0.7, **change})
        assert error.value.field == field, change


# -------------------------------------------------------------------------------------------------- masks and pictures


def test_the_mask_holds_the_mass_with_the_crossing_cell() -> None:
    attention = torch.tensor([[0.5, 0.25, 0.15, 0.1], [0.05, 0.1, 0.1, 0.75]])
    found = attention_mask(attention, (2, 2), 0.8)
    assert found[0].tolist() == [True, True, True, False]
    assert int(found[1].sum()) == 2
    assert bool(found[1, 3])
    assert attention_mask(attention, (2, 2), 0.75)[0].tolist() == [True, True, False, False]


@pytest.mark.parametrize(("side", "filled"), [(8, False), (12, True), (32, True)])
def test_a_hole_is_closed_on_a_larger_grid(side: int, filled: bool) -> None:
    attention = torch.zeros(side, side)
    attention[2:7, 2:7] = 1.0
    attention[4, 4] = 0.0
    mask = attention_mask(attention.reshape(1, -1), (side, side), 1.0).reshape(side, side)
    assert bool(mask[4, 4]) == filled
    assert bool(mask[2:4, 2:7].all())


def test_a_mask_that_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(InputError, match="do not fill"):
        attention_mask(torch.ones(1, 10), (3, 3), 0.8)
    with pytest.raises(InputError, match="no share"):
        attention_mask(torch.ones(1, 9), (3, 3), 0.0)


def test_an_object_is_found_by_its_first_token() -> None:
    words = tokenizer(16)
    assert first_token(words, "a red Circle on a wall", "circle") == 2
    assert first_token(words, "a red circle on a wall", "a") == 0
    for prompt, word in (("a red circle", "square"), ("a red circle", "circ"), ("a red circle", "")):
        with pytest.raises(InputError, match="objects"):
            first_token(words, prompt, word)
    with pytest.raises(InputError, match="stands beyond"):
        first_token(words, "a " * 20 + "circle", "circle")


def test_recolouring_moves_the_means_of_the_region_alone() -> None:
    picture = np.full((8, 8, 3), 200, np.uint8)
    picture[2:6, 2:6] = (200, 40, 40)
    region = np.zeros((8, 8), bool)
    region[2:6, 2:6] = True
    found = recolour(picture, "#2060d0", region)
    assert np.array_equal(found[~region], picture[~region])
    assert difference(mean_rgb(found, region), "#2060d0").delta_e < 1
    assert hex_of(mean_rgb(found, region)) == "#2060d0"


def test_colours_are_compared_in_their_own_units() -> None:
    found = difference(np.array([1.0, 0.0, 0.0]), "#ff00ff")
    assert (found.color, found.delta_h) == ("#ff0000", pytest.approx(60))
    assert difference(np.array([0.5, 0.5, 0.5]), "#808080").delta_e < 1


def test_the_measured_region_is_the_object_that_the_mask_means() -> None:
    picture = np.full((16, 16, 3), 230, np.uint8)
    picture[4:12, 4:12] = (20, 60, 200)
    mask = np.zeros((4, 4), bool)
    mask[1:3, 1:3] = True
    region, agreement = measured_region(picture, mask.ravel(), (4, 4))
    assert agreement == pytest.approx(1.0)
    assert region.sum() == 64
    wrong, agreement = measured_region(picture, ~mask.ravel(), (4, 4))
    assert agreement == 0.0
    assert np.array_equal(wrong, ~region)
    assert measured_region(picture, None, (4, 4))[0].all()


def test_pictures_are_averaged_by_cell_and_kept_small() -> None:
    picture = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    cells = cell_rgb(picture, (2, 3))
    assert cells[4] == pytest.approx(picture[2:4, 2:4].reshape(-1, 3).mean(0) / 255)
    assert thumbnail(picture) is picture
    assert thumbnail(np.zeros((512, 300, 3), np.uint8)).shape == (128, 75, 3)
    assert [shown_steps(steps)[-1] for steps in (4, 28, 50)] == [4, 28, 50]
    assert max(len(shown_steps(steps)) for steps in range(4, 51)) <= 13
