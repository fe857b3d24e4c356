"""What the shipped little FLUX must do, measured on its weights: the rows of the table in its MODEL_CARD.md. Each test prints its figures (pytest -rP)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from backends.lcs import attention_mask, encode_solids, explained_variance, fit
from backends.lcs.models import Steerable, of_pipe
from backends.lcs.readout import AffineReadout, hsl_of, mean_rgb
from backends.lcs.sampling import Steering, denoise, noise_levels
from backends.lcs.solids import to_rgb
from backends.lcs.subspace import HUE_ORDER
from backends.runtime import little_flux, scenes
from backends.runtime.little_flux import flow, measures, pipeline
from backends.runtime.little_flux.tokens import word_index

STEPS, EARLY = 20, 0.88
TARGETS = ("#e02020", "#ff8c14", "#f8e828", "#22a03a", "#30d0c0", "#2040e0", "#8c28c0", "#f020d0", "#7a4a22", "#f6f6f6", "#101010", "#848484")
STEERED_SHAPES = ("circle", "square", "triangle", "star", "ring", "cross", "heart", "circle", "square", "star", "cross", "heart")
STEERED_WALLS = ("white", "blue", "purple", "pink", "navy", "yellow", "mint", "black", "cyan", "green", "orange", "teal")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model() -> Steerable:
    return of_pipe(pipeline.read(), name="little-flux", title="", size=little_flux.IMAGE_SIZE, words=little_flux.SEQUENCE_LENGTH, block=little_flux.MASK_BLOCK)


@pytest.fixture(scope="module")
def solids(model: Steerable):
    return encode_solids(model.pipe.vae)


@pytest.fixture(scope="module")
def lcs(solids):
    return fit(solids)


@pytest.fixture(scope="module")
def levels(model: Steerable) -> np.ndarray:
    return noise_levels(model.pipe, STEPS, 64)


def nearest(levels: np.ndarray, sigma: float) -> int:
    return int(np.abs(levels - sigma).argmin())


def pictures(model: Steerable, latents: torch.Tensor) -> np.ndarray:
    return np.stack([model.decode(x.numpy(), model.grid) for x in latents])


def sampled(model: Steerable, prompts: list[str], callback: Callable[..., Any], steps: int = STEPS, seed: int = 0) -> np.ndarray:
    """Pictures (N, 64, 64, 3) at guidance 2.5, the same noise for the same seed."""
    return pictures(model, denoise(model, prompts, steps, measures.GUIDANCE, callback, generator=torch.Generator().manual_seed(seed)))


def untouched(pipe: Any, i: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    return {"latents": tensors["latents"]}


@dataclass
class Pair:
    """Pictures with and without steering, each towards its own target; ``words``: the object's word, "" steers the whole picture."""

    plain: np.ndarray
    steered: np.ndarray
    masks: np.ndarray


def pair(model: Steerable, lcs: Any, prompts: list[str], targets: tuple[str, ...], step: int, words: tuple[str, ...] = (), steps: int = STEPS) -> Pair:
    """One prompt and one target a picture: the callback steers row by row."""
    places = [word_index(prompt, word) for prompt, word in zip(prompts, words, strict=False)]
    masks: list[torch.Tensor] = []

    def steer(pipe: Any, i: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        latents = tensors["latents"]
        if i + 1 == step:
            sigma, rows = float(pipe.scheduler.sigmas[i + 1]), []
            for row, target in enumerate(targets):
                own = Steering(lcs, hsl_of(target), step, model.grid, tokens=[[places[row]]] if places else (), passes=[p[row : row + 1] for p in passes])
                rows.append(own.steer(latents[row : row + 1], sigma))
                masks.extend(own.masks)
            latents = torch.cat(rows)
        passes.clear()
        return {"latents": latents}

    plain = sampled(model, prompts, untouched, steps)
    with model.maps.recorded() as passes:
        steered = sampled(model, prompts, steer, steps)
    return Pair(plain, steered, torch.cat(masks).numpy() if masks else np.empty(0))


def distance(image: np.ndarray, colour: str, mask: np.ndarray | None = None) -> float:
    return float(scenes.delta_e(mean_rgb(image, mask), np.asarray(to_rgb(colour))))


def walls_at(model: Steerable, guidance: float) -> tuple[np.ndarray, torch.Tensor]:
    """26 "<colour> wall" samples: the pictures, and the latents (T + 1, 26, 64, 64) after every step."""
    kept = [torch.randn(26, 64, 64, generator=torch.Generator().manual_seed(0))]

    def keep(pipe: Any, i: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        kept.append(tensors["latents"].clone())
        return {"latents": tensors["latents"]}

    prompts = [f"a {name} wall" for name in scenes.COLOURS]
    end = denoise(model, prompts, STEPS, guidance, keep, latents=kept[0].clone())
    return pictures(model, end), torch.stack(kept)


@pytest.fixture(scope="module")
def walls(model: Steerable):
    return walls_at(model, measures.GUIDANCE)


@pytest.fixture(scope="module")
def named(model: Steerable) -> measures.Objects:
    return measures.objects(model.pipe, steps=STEPS)


@pytest.fixture(scope="module")
def local(model: Steerable, lcs, levels: np.ndarray) -> Pair:
    prompts = [f"a {shape} on a {wall} wall".replace("a orange", "an orange") for shape, wall in zip(STEERED_SHAPES, STEERED_WALLS, strict=True)]
    return pair(model, lcs, prompts, TARGETS, nearest(levels, EARLY), STEERED_SHAPES)


def test_solid_colours_are_reconstructed(model: Steerable, solids):
    flat = (solids.rgb[:, None, None] * 255).round() / 255 * np.ones((1, 64, 64, 1))
    with torch.no_grad():
        posterior = model.pipe.vae.encode(torch.from_numpy(2 * flat - 1).permute(0, 3, 1, 2).float()).latent_dist
        shown = (model.pipe.vae.decode(posterior.mode()).sample.clamp(-1, 1) + 1) / 2
    error = scenes.delta_e(shown.mean((2, 3)).numpy(), solids.rgb)
    print(f"solids: dE {error.mean():.2f}, at most {error.max():.1f}")
    assert error.mean() < 1.5


def test_three_directions_hold_the_colours_and_the_hues_go_round_in_order(solids, lcs):
    held = explained_variance(solids, lcs)
    axis = (lcs.cone.axis / lcs.cone.axis.norm()).numpy()
    flat = lcs.cone.hues.numpy() @ (np.eye(3) - np.outer(axis, axis))
    first = flat[0] / np.linalg.norm(flat[0])
    angles = np.degrees(np.arctan2(flat @ np.cross(axis, first), flat @ first)) % 360
    if angles[1] > 180:  # principal directions have no sign: either sense of turning is the same cone
        angles = -angles % 360
    print(f"variance in 3 directions {held:.3f}; hues " + " ".join(f"{a:.0f}" for a in angles))
    assert held >= 0.95
    assert len(HUE_ORDER) == 6
    assert np.all(np.diff(angles) > 0)


def test_the_spread_of_colours_shrinks_as_one_minus_sigma(model: Steerable, walls, lcs, levels: np.ndarray):
    """The closed form speaks of the flow itself, so without guidance; what guidance adds is printed beside it."""

    def error(latents: torch.Tensor) -> float:
        coordinates = np.stack([lcs.coordinates(x.mean(1)).numpy() for x in latents])  # (T + 1, 26, 3)
        spread = np.abs(coordinates - coordinates.mean(1, keepdims=True)).mean(1)
        return float(np.abs(spread / spread[-1] - (1 - levels[:, None])).max())

    own = error(walls_at(model, 1.0)[1])
    print(f"max abs(beta - (1 - sigma)) {own:.3f}, at guidance 2.5 {error(walls[1]):.3f}")
    assert own < 0.05


def test_the_final_colour_is_read_early(walls, lcs, solids, levels: np.ndarray):
    images, latents = walls
    final = np.stack([mean_rgb(image) for image in images])

    def predicted(step: int) -> np.ndarray:
        return np.stack([lcs.to_rgb(lcs.observe(x, float(levels[step])).coordinates.mean(0)).numpy() for x in latents[step]])

    early, end = (float(scenes.delta_e(predicted(t), final).mean()) for t in (STEPS // 5, STEPS))
    affine = AffineReadout.fit(lcs.coordinates(solids.latents), solids.rgb).rgb(np.stack([lcs.coordinates(x).mean(0).numpy() for x in latents[-1]]))
    print(f"predicted average colour: dE {early:.1f} at 20 % of the steps, {end:.1f} at the end, affine {float(scenes.delta_e(affine, final).mean()):.1f}")
    assert early < 10
    assert end < 8


def test_a_named_wall_has_the_named_colour(walls):
    error = [float(scenes.delta_e(mean_rgb(image), colour)) for image, colour in zip(walls[0], scenes.COLOURS.values(), strict=True)]
    print(f"named wall colour: dE {np.mean(error):.1f}, at most {max(error):.1f}")
    assert np.mean(error) <= 5


def test_the_whole_picture_is_steered(model: Steerable, lcs, levels: np.ndarray):
    made = pair(model, lcs, ["a wall"] * len(TARGETS), TARGETS, nearest(levels, EARLY))
    before, after = (np.mean([distance(i, t) for i, t in zip(images, TARGETS, strict=True)]) for images in (made.plain, made.steered))
    print(f"global steering: dE {before:.1f} -> {after:.1f}")
    assert after <= 5
    assert after < before / 5


def test_one_object_is_steered_and_its_background_stays(local: Pair):
    before, after, moved = [], [], []
    for plain, steered, target in zip(local.plain, local.steered, TARGETS, strict=True):
        old, new = scenes.segment(plain), scenes.segment(steered)
        before.append(distance(plain, target, old))
        after.append(distance(steered, target, new))
        moved.append(float(scenes.delta_e(mean_rgb(plain, ~(old | new)), mean_rgb(steered, ~(old | new)))))
    print(f"local steering: dE {np.mean(before):.1f} -> {np.mean(after):.1f}; background moved {np.mean(moved):.1f}")
    assert np.mean(after) <= 12
    assert np.mean(moved) < 5


def test_the_shape_survives_the_steering(local: Pair):
    kept = [scenes.overlap(scenes.segment(a), scenes.segment(b)) for a, b in zip(local.plain, local.steered, strict=True)]
    print(f"shape IoU steered against unsteered: {np.mean(kept):.2f}")
    assert np.mean(kept) >= 0.7


def test_the_words_attention_lies_on_the_object(model: Steerable):
    rng = np.random.default_rng(77)
    some = [scenes.draw_one(rng, spread=0.5) for _ in range(48)]
    shown = [scenes.render(scene) for scene in some]
    pixels = torch.from_numpy(np.stack([s.image for s in shown])).permute(0, 3, 1, 2).float() / 127.5 - 1
    vae = model.pipe.vae
    with torch.no_grad():
        x0 = flow.pack((vae.encode(pixels).latent_dist.mode() - vae.config.shift_factor) * vae.config.scaling_factor)
        noise = torch.randn(x0.shape, generator=torch.Generator().manual_seed(0))
        with model.maps.recorded() as passes:
            texts, pooled, text_ids = model.pipe.encode_prompt([s.caption for s in some], None, max_sequence_length=model.words)
            model.pipe.transformer(
                hidden_states=(1 - EARLY) * x0 + EARLY * noise,
                timestep=torch.full((48,), EARLY),
                encoder_hidden_states=texts,
                pooled_projections=pooled,
                txt_ids=text_ids,
                img_ids=model.pipe._prepare_latent_image_ids(48, *model.grid, torch.device("cpu"), torch.float32),
            )
            words = [word_index(s.caption, s.things[0].shape) for s in some]
            masks = attention_mask(passes[0][torch.arange(48), :, words], model.grid, 0.8).numpy()
    truth = [s.cover[0].reshape(8, 8, 8, 8).mean((1, 3)).ravel() >= 0.5 for s in shown]
    found = [scenes.overlap(a, b) for a, b in zip(masks, truth, strict=True)]
    print(f"mask IoU at sigma {EARLY}: {np.mean(found):.2f}")
    assert np.mean(found) >= 0.55


def test_the_latent_beats_the_colour_word_early_on_and_the_word_wins_against_a_steering_that_is_too_early(model: Steerable, lcs):
    prompts, targets = ["a red wall", "a green wall", "a blue wall", "a yellow wall"], ("#2040e0", "#f020d0", "#ff8c14", "#182068")
    found = []
    for step in (2, 9):
        made = pair(model, lcs, prompts, targets, step, steps=50)
        found.append(np.mean([distance(i, t) for i, t in zip(made.steered, targets, strict=True)]))
    print(f"colour word against latent: dE {found[0]:.1f} at t = 2, {found[1]:.1f} at t = 9 of 50")
    assert found[0] > 40
    assert found[1] < 10


def test_object_and_background_both_take_their_named_colours(named: measures.Objects):
    print(f"both named: object dE {named.thing.mean():.1f}, background {named.wall.mean():.1f}")
    assert named.thing.mean() <= 12
    assert named.wall.mean() <= 12


def test_the_named_shape_is_recognised(named: measures.Objects):
    each = {shape: np.mean([b == shape for a, b in zip(named.asked, named.seen, strict=True) if a == shape]) for shape in scenes.SHAPES}
    print(f"named shape recognised: {named.recognised:.2f}; " + ", ".join(f"{shape} {share:.2f}" for shape, share in each.items()))
    assert named.recognised >= 0.6
