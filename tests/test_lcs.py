"""lcs against the reference figures of FLUX.1 [dev]: the published subspace, its solids, and 24 real walls, two of them with all their tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from backends.contract import InputError
from backends.lcs import LCS, AffineReadout, Solids, StepStatistics, explained_variance, fit, flux1_dev, hsl_of
from backends.lcs.solids import grid_colours, to_rgb
from backends.lcs.subspace import ANCHOR_COLOURS, HUE_ORDER
from backends.runtime import scenes
from kernels import lcs as kernel

VARIANTS = ("corrected", "released")
TEAL, PURPLE = hsl_of("#40bfbf"), hsl_of("#952dd7")


@pytest.fixture(scope="module")
def figures(shared: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shared / "data" / "lcs_flux1_dev.json").read_text())
    return found


@pytest.fixture(scope="module")
def measured(figures: dict[str, Any]) -> dict[str, LCS]:
    """Both variants with the measured table of 50 steps in place of the closed form."""
    table = StepStatistics(figures["sigma_51"], figures["alpha_51x3"], figures["beta_51x3"])
    ends = figures["B_3x64"], figures["mu_64"], figures["anchors_8x3"], figures["alpha_51x3"][-1]
    return {"corrected": LCS(*ends, "corrected", table), "released": LCS(*ends, "released", table)}


@pytest.fixture(scope="module")
def walls(shared: Path) -> dict[str, Any]:
    return {name: np.load(shared / "data" / f"lcs_walls_{name}.npz") for name in ("bright_orange-12", "dark_green-15")}


def solid_coordinates(figures: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """(156, 3) coordinates and sRGB."""
    table = figures["solid_colour_coordinates"]
    return np.array(list(table.values()), np.float32), np.array([to_rgb(c) for c in table])


def at(wall: Any, t: int) -> np.ndarray:
    return np.asarray(wall["latents"][list(wall["t"]).index(t)], np.float32)


# ------------------------------------------------------------------------------------------------------ the subspace


def test_the_grid_has_the_published_colours(shared: Path) -> None:
    published = np.load(shared / "data" / "lcs_solid_latents_156x64.npz")["hex"]
    assert grid_colours() == tuple(sorted(str(c).lower() for c in published))


def test_a_refit_finds_the_published_directions(shared: Path, figures: dict[str, Any]) -> None:
    stored = np.load(shared / "data" / "lcs_solid_latents_156x64.npz")
    solids = Solids(tuple(str(c).lower() for c in stored["hex"]), stored["mean_latent"])
    found, published = fit(solids), np.array(figures["B_3x64"])
    cosines = np.linalg.svd(found.B.numpy() @ published.T)[1]
    assert cosines == pytest.approx(np.ones(3), abs=1e-5)
    signs = np.sign((found.B.numpy() * published).sum(1))
    assert np.abs(found.B.numpy() * signs[:, None] - published).max() <= 3e-4
    assert found.anchors.numpy() * signs == pytest.approx(np.array(figures["anchors_8x3"]), abs=0.02)
    # All 64 directions stand in the denominator: the three kept ones alone would give 1.
    assert explained_variance(solids, found) == pytest.approx(0.9499, abs=1e-4)
    values = np.linalg.svd(stored["mean_latent"] - stored["mean_latent"].mean(0), compute_uv=False) ** 2
    assert (values / values.sum())[:5] == pytest.approx([0.3937, 0.3304, 0.2258, 0.0454, 0.0019], abs=1e-4)


def test_the_shipped_figures_are_the_published_ones(figures: dict[str, Any]) -> None:
    lcs = flux1_dev()
    for name, key in (("B", "B_3x64"), ("mu", "mu_64"), ("anchors", "anchors_8x3")):
        assert np.array_equal(getattr(lcs, name).numpy(), np.array(figures[key], np.float32)), name
    assert [c.lower() for c in figures["anchor_hex"]] == list(ANCHOR_COLOURS)


def test_the_subspace_is_one_of_channels() -> None:
    lcs = flux1_dev()
    assert torch.allclose(lcs.B @ lcs.B.T, torch.eye(3), atol=1e-6)
    by_channel = lcs.B.reshape(3, 16, 4)
    constant = by_channel.mean(-1, keepdim=True).expand_as(by_channel)
    assert float(constant.square().sum() / by_channel.square().sum()) == pytest.approx(1.0, abs=5e-4)


def test_the_anchors_form_a_tilted_double_cone() -> None:
    lcs = flux1_dev()
    length = lcs.cone.axis.norm()
    axis, hues = lcs.cone.axis / length, lcs.anchors[list(HUE_ORDER)] - lcs.cone.black
    along = hues @ axis
    outward = hues - along[:, None] * axis
    first = outward[0] / outward[0].norm()
    angle = torch.rad2deg(torch.atan2(outward @ torch.linalg.cross(axis, first), outward @ first)) % 360
    assert float(length) == pytest.approx(38.40, abs=0.01)
    assert (along / length).tolist() == pytest.approx([0.378, 0.633, 0.445, 0.619, 0.392, 0.564], abs=1e-3)
    assert ((-angle) % 360)[1:].tolist() == pytest.approx([66, 124, 177, 248, 305], abs=0.6)  # in the card's orientation
    assert 14.1 < float(outward.norm(dim=-1).min()) < float(outward.norm(dim=-1).max()) < 16.6


def test_greys_lie_near_the_axis_and_rgb_is_nearly_affine(figures: dict[str, Any]) -> None:
    lcs = flux1_dev()
    table = figures["solid_colour_coordinates"]
    lightness, off = [], []
    for grey in ("#333333", "#666666", "#999999", "#CCCCCC"):
        from_black = torch.tensor(table[grey]) - lcs.cone.black
        along = from_black @ lcs.cone.axis / lcs.cone.axis.square().sum()
        lightness.append(float(along))
        off.append(float((from_black - along * lcs.cone.axis).norm()))
    assert lightness == pytest.approx([0.189, 0.370, 0.547, 0.764], abs=1e-3)
    assert 1.3 < min(off) < max(off) < 2.0
    coordinates, rgb = solid_coordinates(figures)
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    for values, share in ((rgb, 0.930), (linear, 0.824)):
        inputs = np.column_stack([values, np.ones(len(values))])
        residual = coordinates - inputs @ np.linalg.lstsq(inputs, coordinates, rcond=None)[0]
        assert 1 - np.square(residual).sum() / np.square(coordinates - coordinates.mean(0)).sum() == pytest.approx(share, abs=1e-3)


# ------------------------------------------------------------------------------------------------- HSL there and back


@pytest.mark.parametrize(
    ("variant", "color", "coordinates"),
    [
        ("corrected", "#ff0000", (-7.024, -7.780, 13.268)),
        ("corrected", "#952dd7", (-3.000, -10.243, -3.884)),
        ("corrected", "#40bfbf", (6.605, -0.039, -6.294)),
        ("corrected", "#808080", (2.303, -2.725, 0.109)),
        ("released", "#ff0000", (-4.634, -10.582, 13.853)),
        ("released", "#952dd7", (-1.187, -12.042, -3.737)),
        ("released", "#40bfbf", (7.795, -1.434, -6.002)),
    ],
)
def test_colours_have_their_coordinates(variant: Any, color: str, coordinates: tuple[float, ...]) -> None:
    assert flux1_dev(variant).to_lcs(hsl_of(color)) == pytest.approx(coordinates, abs=2e-3)


def test_the_origins_of_both_variants() -> None:
    corrected, released = flux1_dev("corrected"), flux1_dev("released")
    assert (corrected.anchors[0] - corrected.cone.hues[0]).tolist() == pytest.approx([2.479, -2.713, 0.674], abs=1e-3)
    assert (released.anchors[0] - released.cone.hues[0]).tolist() == pytest.approx([0.0892] * 3, abs=5e-4)


def test_the_anchors_read_as_hsl() -> None:
    lcs = flux1_dev()
    unclipped = kernel.decode(lcs.anchors, lcs.cone)
    wanted = [  # in the anchors' order: red, green, blue, yellow, magenta, cyan
        (0.991, 1.308, 0.378), (0.361, 1.089, 0.445), (0.711, 1.210, 0.392), (0.211, 1.401, 0.633), (0.859, 1.096, 0.564), (0.482, 1.252, 0.619)
    ]  # fmt: skip
    assert unclipped[:6].numpy() == pytest.approx(np.array(wanted), abs=2e-3)
    assert unclipped[6:, 2].tolist() == pytest.approx([0.0, 1.0], abs=1e-6)
    clipped = lcs.to_hsl(lcs.anchors)
    assert torch.equal(clipped, torch.cat((unclipped[:, :1], unclipped[:, 1:2].clamp(max=1), unclipped[:, 2:]), 1))
    assert torch.equal(flux1_dev("released").to_hsl(lcs.anchors), kernel.decode(lcs.anchors, flux1_dev("released").cone))


@pytest.mark.parametrize(("variant", "worst", "mean"), [("corrected", 7.1, 12.4), ("released", 13.9, 12.8)])
def test_solids_read_as_their_colours(figures: dict[str, Any], variant: Any, worst: float, mean: float) -> None:
    lcs = flux1_dev(variant)
    true = np.array([to_rgb(c) for c in ANCHOR_COLOURS])
    assert scenes.delta_e(lcs.to_rgb(lcs.anchors).numpy(), true).max() == pytest.approx(worst, abs=0.1)
    coordinates, rgb = solid_coordinates(figures)
    assert scenes.delta_e(lcs.to_rgb(coordinates), rgb).mean() == pytest.approx(mean, abs=0.15)


def test_there_and_back_is_near_but_not_exact() -> None:
    lcs = flux1_dev()
    colours = np.array([hsl_of(f"#{n:06x}") for n in np.random.default_rng(0).integers(0, 2**24, 3000)])
    back = kernel.decode(torch.tensor(lcs.to_lcs(colours)), lcs.cone).numpy()
    turned = np.abs((back[:, 0] - colours[:, 0] + 0.5) % 1 - 0.5)
    assert 1e-3 < turned.mean() < 0.03
    assert np.abs(back - colours)[:, 1].mean() == pytest.approx(0.055, abs=0.01)
    assert np.abs(back - colours)[:, 2].mean() == pytest.approx(0.023, abs=0.01)


# ---------------------------------------------------------------------------------------------- reading the real walls


def test_the_schedule_is_flux_own(figures: dict[str, Any]) -> None:
    s = np.linspace(1, 1 / 50, 50)
    shift = np.exp(0.63)
    sigma = np.append(shift / (shift + 1 / s - 1), 0)
    assert sigma == pytest.approx(np.array(figures["sigma_51"]), abs=2e-4)
    assert sigma[[9, 20, 30]] == pytest.approx([0.8953, 0.7380, 0.5559], abs=2e-4)


def test_the_closed_form_holds_on_the_walls(figures: dict[str, Any]) -> None:
    pairs = [flux1_dev().alpha_beta(sigma) for sigma in figures["sigma_51"]]
    alpha, beta = (torch.stack([pair[k] for pair in pairs]).numpy() for k in (0, 1))
    assert np.abs(beta - np.array(figures["beta_51x3"])).max() <= 0.0085
    apart = np.abs(alpha - np.array(figures["alpha_51x3"])).max(0)
    assert (apart <= [0.012, 0.032, 0.012]).all(), apart


def test_the_table_replaces_the_closed_form(figures: dict[str, Any], measured: dict[str, LCS]) -> None:
    for t in (0, 10, 50):
        alpha, beta = measured["corrected"].alpha_beta(figures["sigma_51"][t])
        assert alpha.numpy() == pytest.approx(np.array(figures["alpha_51x3"][t]), abs=1e-5)
        assert beta.numpy() == pytest.approx(np.array(figures["beta_51x3"][t]), abs=1e-6)


@pytest.mark.parametrize(("variant", "late"), [("corrected", (9.4, 9.2, 9.5, 9.6)), ("released", (11.0, 10.3, 10.6, 10.5))], ids=VARIANTS)
def test_the_average_colour_is_read_early(figures: dict[str, Any], measured: dict[str, LCS], variant: str, late: tuple[float, ...]) -> None:
    """Tolerance 1.2: the reference is the mean over 26 walls, of which 24 are here."""
    lcs, table = measured[variant], figures["wall_mean_coordinates_every5"]
    names = list(figures["wall_average_rgb_0_255"])
    means = torch.tensor([table[name] for name in names])
    true = np.array([figures["wall_average_rgb_0_255"][name] for name in names]) / 255

    def apart(t: int) -> float:
        plane = lcs.plane(figures["sigma_51"][t])
        return float(scenes.delta_e(lcs.to_rgb(means[:, table["t"].index(t)] * plane.gain + plane.shift).numpy(), true).mean())

    assert [apart(t) for t in (10, 20, 30, 50)] == pytest.approx(late, abs=1.2)
    assert apart(0) == pytest.approx(37.1, abs=1.2)


def test_the_affine_read_out_predicts_better(figures: dict[str, Any], measured: dict[str, LCS]) -> None:
    affine = AffineReadout.fit(*solid_coordinates(figures))
    table = figures["wall_mean_coordinates_every5"]
    names = list(figures["wall_average_rgb_0_255"])
    ends = np.array([table[name][-1] for name in names], np.float32)
    true = np.array([figures["wall_average_rgb_0_255"][name] for name in names]) / 255
    by_affine = scenes.delta_e(affine.rgb(ends), true).mean()
    assert by_affine == pytest.approx(5.3, abs=0.5)
    assert by_affine < scenes.delta_e(measured["corrected"].to_rgb(ends), true).mean() < scenes.delta_e(measured["released"].to_rgb(ends), true).mean()


def test_patches_settle_later_than_their_average(figures: dict[str, Any], measured: dict[str, LCS], walls: dict[str, Any]) -> None:
    lcs = measured["corrected"]
    patches: dict[int, list[float]] = {t: [] for t in (10, 20, 30, 50)}
    for wall in walls.values():
        for t, found in patches.items():
            seen = lcs.observe(at(wall, t), figures["sigma_51"][t])
            found.append(float(scenes.delta_e(seen.rgb, wall["patch_rgb_32x32"].reshape(-1, 3) / 255).mean()))
    means = [float(np.mean(found)) for found in patches.values()]
    assert means == sorted(means, reverse=True)
    assert means == pytest.approx([28.5, 16.6, 12.1, 10.0], abs=3.0)  # the reference is over 26 walls
    orange = walls["bright_orange-12"]
    for t, wanted in ((10, (0.98, -2.97, 14.70)), (50, (1.01, -2.94, 14.59))):
        assert lcs.observe(at(orange, t), figures["sigma_51"][t]).coordinates.mean(0) == pytest.approx(wanted, abs=0.01)


# --------------------------------------------------------------------------------------------- steering the real walls


@pytest.mark.parametrize(("wall", "added"), [("bright_orange-12", (0.6640, 0.3470, -2.4960)), ("dark_green-15", (0.8182, -0.7463, -0.5445))])
def test_type_one_adds_one_vector_to_all_tokens(figures: dict[str, Any], measured: dict[str, LCS], walls: dict[str, Any], wall: str, added: Any) -> None:
    x = at(walls[wall], 10)
    change = measured["corrected"].steer(x, TEAL, figures["sigma_51"][10], kind="type1") - x
    assert np.ptp(change, axis=0).max() <= 2e-6
    assert change[0] @ np.array(figures["B_3x64"]).T == pytest.approx(added, abs=2e-3)
    assert np.linalg.norm(change[0]) == pytest.approx(np.linalg.norm(added), abs=2e-3)


def test_type_two_and_the_blend_on_the_orange_wall(figures: dict[str, Any], measured: dict[str, LCS], walls: dict[str, Any]) -> None:
    lcs, x, sigma = measured["corrected"], at(walls["bright_orange-12"], 30), figures["sigma_51"][30]
    seen = lcs.observe(torch.tensor(x), sigma)
    move = lcs.move(kernel.Observation(*(part[None] for part in seen)), torch.tensor(TEAL), torch.ones(1, len(x)).bool(), 1.0)
    before = torch.tensor(TEAL) - move.turn[0]
    before[0] %= 1
    assert before.tolist() == pytest.approx([0.0801, 0.9391, 0.4689], abs=1e-3)
    for kind, wanted in (("type2", (5.976, -0.195, -5.721)), ("blend", (6.325, -0.108, -6.039))):
        after = lcs.observe(lcs.steer(x, TEAL, sigma, kind=kind), sigma).coordinates.mean(0)  # type: ignore[arg-type]
        assert after == pytest.approx(wanted, abs=1e-2), kind


def test_released_type_two_paints_grey_early(figures: dict[str, Any], measured: dict[str, LCS], walls: dict[str, Any]) -> None:
    """Tokens beyond white have saturations of order 1e6; their mean swallows every hue. The correction keeps the hue."""
    sigma = figures["sigma_51"][10]
    for wall in walls.values():
        x = at(wall, 10)
        released = measured["released"].observe(measured["released"].steer(x, PURPLE, sigma, kind="type2"), sigma).coordinates.mean(0)
        assert released == pytest.approx([2.53, -2.89, 0.10], abs=0.02)
        corrected = measured["corrected"]
        seen = corrected.observe(corrected.steer(x, PURPLE, sigma, kind="type2"), sigma).coordinates.mean(0)
        assert np.linalg.norm(seen - corrected.to_lcs(PURPLE)) < np.linalg.norm(released - corrected.to_lcs(PURPLE)) - 2


def test_a_measured_table_that_cannot_be_used_is_refused(figures: dict[str, Any]) -> None:
    sigma, alpha, beta = (np.array(figures[key]) for key in ("sigma_51", "alpha_51x3", "beta_51x3"))
    ends = figures["B_3x64"], figures["mu_64"], figures["anchors_8x3"], alpha[-1]
    for table in (StepStatistics(sigma[::-1], alpha, beta), StepStatistics(sigma, alpha, beta * 0), StepStatistics(sigma[:9], alpha, beta)):
        with pytest.raises(InputError, match="statistics"):
            LCS(*ends, "corrected", table)
