"""lcs inside real FluxPipeline calls with random weights: many sizes, guidance of both kinds, batches, half precision; nothing here is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.models.transformers.transformer_flux import FluxAttnProcessor

from backends.contract import InputError
from backends.lcs import LCS, Steering, denoise, encode_solids, explained_variance, find, first_token, fit, flux1_dev, hsl_of, install, noise_levels
from backends.lcs import models as lcs_models
from backends.lcs.models import Steerable, of_pipe
from backends.lcs.sampling import early_step
from backends.lcs.solids import encode, pack
from backends.lcs.trajectory import follow, starting_noise
from backends.runtime.models import Models
from tests.flux_pipelines import pipeline, steerable

PROMPT, TARGET = "a circle on a red wall", hsl_of("#2060d0")
STEPS, STEP = 8, 2


@pytest.fixture(scope="module")
def model() -> Steerable:
    return steerable()


@pytest.fixture(scope="module")
def lcs(model: Steerable) -> LCS:
    return find(model.pipe.vae)


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Call:
    """One call of ``denoise`` with a Steering inside; keeps the latents after each step."""

    def __init__(
        self, model: Steerable, lcs: LCS, latents: torch.Tensor, step: int, *, first: int = 0, tokens: Any = (), prompt: Any = PROMPT, guidance: float = 2.5
    ) -> None:
        self.latents: dict[int, torch.Tensor] = {first: latents}
        self.sigmas: dict[int, float] = {}
        with model.maps.recorded() as passes:
            self.steering = Steering(lcs, TARGET, step, model.grid, tokens=tokens, passes=passes, first=first, on_step=self.keep)
            self.end = denoise(model, prompt, STEPS, guidance, self.steering, latents=latents, first=first)

    def keep(self, done: int, sigma: float, latents: torch.Tensor) -> None:
        self.latents[done], self.sigmas[done] = latents, sigma


def noise(model: Steerable, pictures: int = 1) -> torch.Tensor:
    return starting_noise(model, generator(), pictures)


def outside(change: torch.Tensor, lcs: LCS) -> float:
    """Share of a change that lies outside the row space of B."""
    change = change.float()
    return 1 - float((change @ lcs.B.T).square().sum() / change.square().sum())


def test_find_works_on_any_autoencoder_of_sixteen_channels() -> None:
    solids = encode_solids(pipeline(scales=4).vae)
    lcs = fit(solids)
    assert solids.latents.shape == (156, 64)
    assert 0 < explained_variance(solids, lcs) < 1
    assert np.allclose(lcs.coordinates(solids.latents).mean(0), 0, atol=1e-4)
    vae = pipeline().vae
    vae.register_to_config(latent_channels=4)
    with pytest.raises(InputError, match="4 latent channels"):
        find(vae)


def test_solids_are_encoded_and_packed_as_the_sampler_does(model: Steerable) -> None:
    pictures = torch.rand(2, 3, 64, 64, generator=generator())
    z = encode(model.pipe.vae, pictures)
    tokens = pack(z)
    assert tokens.shape == (2, 64, 64)
    assert torch.equal(tokens[1, 9, 4 * 7 + 2 * 1 + 0], z[1, 7, 3, 2])  # token 9 is row 1, column 1 of 8; channel 7, lower left
    decoded = model.decode(tokens[0].numpy())
    with torch.no_grad():
        direct = model.pipe.vae.decode(z[:1] / model.pipe.vae.config.scaling_factor + model.pipe.vae.config.shift_factor).sample
    assert np.abs(decoded.astype(int) - ((direct[0] / 2 + 0.5).clamp(0, 1) * 255).permute(1, 2, 0).numpy()).max() <= 0.51


@pytest.mark.parametrize(("steps", "tokens"), [(4, 64), (28, 64), (50, 1024)])
def test_noise_levels_are_those_of_the_scheduler(steps: int, tokens: int) -> None:
    sigmas = noise_levels(pipeline(), steps, tokens)
    mu = 0.5 + (tokens - 256) * 0.65 / 3840
    s = np.linspace(1, 1 / steps, steps)
    assert sigmas == pytest.approx(np.append(np.exp(mu) / (np.exp(mu) + 1 / s - 1), 0), abs=1e-6)
    assert early_step(sigmas) >= 1


def test_flux_is_steered_at_the_papers_step_by_default() -> None:
    assert early_step(noise_levels(pipeline(), 50, 1024)) == 9


def test_a_run_that_begins_in_the_middle_is_the_same_run(model: Steerable, lcs: LCS) -> None:
    """The unsteered prefix is computed once: what a second colour starts from has the very bits of a whole run."""
    start = noise(model)
    whole = Call(model, lcs, start, -1)
    rest = Call(model, lcs, whole.latents[STEP], -1, first=STEP)
    assert torch.equal(rest.end, whole.end)
    assert rest.sigmas == {t: s for t, s in whole.sigmas.items() if t > STEP}
    assert [whole.sigmas[t] for t in range(1, STEPS + 1)] == pytest.approx(noise_levels(model.pipe, STEPS, 64)[1:])
    token = [[first_token(model.pipe.tokenizer_2, PROMPT, "circle")]]
    steered_whole = Call(model, lcs, start, STEP, tokens=token)
    steered_rest = Call(model, lcs, whole.latents[STEP - 1], STEP, first=STEP - 1, tokens=token)
    assert torch.equal(steered_rest.end, steered_whole.end)
    assert torch.equal(steered_rest.steering.masks[0], steered_whole.steering.masks[0])


def test_steering_is_not_recolouring(model: Steerable, lcs: LCS) -> None:
    """At the step itself only the subspace changes; the steps that follow carry the change beyond it."""
    start = noise(model)
    plain, steered = Call(model, lcs, start, -1), Call(model, lcs, start, STEP)
    assert torch.equal(plain.latents[STEP - 1], steered.latents[STEP - 1])
    assert outside(steered.latents[STEP] - plain.latents[STEP], lcs) < 1e-5
    assert outside(steered.end - plain.end, lcs) > 0.01


def test_a_local_run_leaves_the_other_tokens_alone_at_its_step(model: Steerable, lcs: LCS) -> None:
    start = noise(model)
    plain = Call(model, lcs, start, -1)
    two = [[first_token(model.pipe.tokenizer_2, PROMPT, word)] for word in ("circle", "wall")]
    steered = Call(model, lcs, start, STEP, tokens=two)
    assert len(steered.steering.masks) == 2
    either = steered.steering.masks[0] | steered.steering.masks[1]
    moved = (steered.latents[STEP] != plain.latents[STEP]).any(-1)
    assert torch.equal(moved, either)
    assert not bool(either.all())


@pytest.mark.parametrize(
    ("guidance_embeds", "text_tokens", "size", "scales", "dtype"),
    [
        (True, 512, 64, 3, torch.float32),
        (True, 16, 128, 4, torch.bfloat16),
        (False, 512, 48, 3, torch.float32),
        (False, 16, 64, 3, torch.bfloat16),
    ],
)
def test_pipelines_of_other_sizes(guidance_embeds: bool, text_tokens: int, size: int, scales: int, dtype: torch.dtype) -> None:
    other = steerable(guidance_embeds=guidance_embeds, text_tokens=text_tokens, size=size, scales=scales, dtype=dtype, block=None)
    start = noise(other)
    length = (size // (2 ** (scales - 1) * 2)) ** 2
    assert start.shape == (1, length, 64)
    token = first_token(other.pipe.tokenizer_2, PROMPT, "circle")
    subspace = flux1_dev()
    plain, steered = Call(other, subspace, start, -1), Call(other, subspace, start, STEP, tokens=[[token]])
    assert steered.end.dtype == dtype
    change = (steered.latents[STEP] - plain.latents[STEP]).float()
    mask = steered.steering.masks[0][0]
    assert 0 < int(mask.sum()) < length
    assert torch.equal(change.abs().sum(-1)[0] > 0, mask)
    assert outside(change, subspace) < (1e-5 if dtype == torch.float32 else 1e-2)  # bf16 rounds each of the 64 numbers
    assert other.decode(steered.end[0].float().numpy()).shape == (size, size, 3)


@pytest.mark.parametrize("guidance_embeds", [True, False])
def test_two_prompts_in_a_batch_are_steered_as_each_alone(guidance_embeds: bool) -> None:
    other = steerable(guidance_embeds=guidance_embeds)
    prompts = ["a circle on a red wall", "a wall with a big circle"]
    tokens = [first_token(other.pipe.tokenizer_2, prompt, "circle") for prompt in prompts]
    assert tokens[0] != tokens[1]
    start, subspace = noise(other, 2), find(other.pipe.vae)
    both = Call(other, subspace, start, STEP, prompt=prompts, tokens=[tokens])
    for row in range(2):
        alone = Call(other, subspace, start[row : row + 1], STEP, prompt=prompts[row], tokens=[[tokens[row]]])
        assert torch.equal(both.steering.masks[0][row], alone.steering.masks[0][0])
        assert torch.allclose(both.end[row], alone.end[0], atol=1e-4)


def test_only_one_processor_is_replaced_and_changes_nothing(model: Steerable, lcs: LCS) -> None:
    blocks = model.pipe.transformer.transformer_blocks
    assert [type(block.attn.processor) is FluxAttnProcessor for block in blocks] == [True, True, False, True]
    start = noise(model)
    with_maps = Call(model, lcs, start, -1).end
    without = denoise(model, PROMPT, STEPS, 2.5, lambda *_: {}, latents=start)  # nobody records: the library's own processor runs
    assert torch.equal(with_maps, without)
    with pytest.raises(InputError, match="none is number 9"):
        install(pipeline().transformer, 9)


def test_maps_are_the_softmax_over_text_and_picture(model: Steerable) -> None:
    recorded: list[torch.Tensor] = []

    def callback(pipe: Any, i: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        recorded.extend(passes)
        passes.clear()
        return tensors

    for guidance, expected in ((2.5, 2), (1.0, 1)):
        recorded.clear()
        with model.maps.recorded() as passes:
            denoise(model, PROMPT, 2, guidance, callback, latents=noise(model))
        assert len(recorded) == 2 * expected
        assert {tuple(weights.shape) for weights in recorded} == {(1, 64, 16)}
        share = recorded[0].sum(-1)
        assert 0 < float(share.min()) < float(share.max()) < 1  # the rest goes to the picture's own tokens


def test_the_unsteered_sampling_keeps_what_steering_needs(model: Steerable, lcs: LCS) -> None:
    seen: list[int] = []
    found = follow(model, PROMPT, STEPS, 2.5, generator(), lambda done, latents, picture: seen.append(done), lambda: None)
    token = first_token(model.pipe.tokenizer_2, PROMPT, "circle")
    steered = Call(model, lcs, noise(model), STEP, tokens=[[token]])
    assert found.latents.shape == (STEPS + 1, 64, 64)
    assert np.array_equal(found.latents[STEP - 1], steered.latents[STEP - 1][0].numpy())
    assert found.attention.shape == (STEPS, 64, 7)  # six words and the end mark
    assert seen == sorted(found.decoded) == list(range(STEPS + 1))
    assert np.array_equal(found.picture, model.decode(found.latents[-1]))


def test_objects_need_a_step_before(lcs: LCS) -> None:
    with pytest.raises(InputError, match="before the first step"):
        Steering(lcs, TARGET, 0, (8, 8), tokens=[[1]])


def test_a_size_that_is_no_whole_number_of_tokens_is_refused() -> None:
    with pytest.raises(InputError, match="no whole number of tokens"):
        of_pipe(pipeline(), name="x", title="x", size=60, words=16)


@pytest.mark.parametrize(("name", "device", "words"), [
    ("black-forest-labs/FLUX.1-dev", "cpu", "needs a GPU"),
    ("no-such-model", "cpu", "is not the name of a model"),
    ("../etc/passwd", "cpu", "is not the name of a model"),
])  # fmt: skip
def test_a_model_that_is_not_here_is_refused_in_words(name: str, device: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        lcs_models.load(name, Models(lambda _: None, lambda: None), device)
    assert error.value.field == "model"


def test_the_hub_without_a_network_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    from diffusers import FluxPipeline

    def unreachable(*_: Any, **__: Any) -> Sequence[int]:
        raise OSError("cannot reach https://example.org")

    monkeypatch.setattr(FluxPipeline, "from_pretrained", unreachable)
    with pytest.raises(InputError, match="check the name and the network") as error:
        lcs_models.load("someone/some-flux", Models(lambda _: None, lambda: None), "cuda")
    assert "https" not in str(error.value)
