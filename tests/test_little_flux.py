"""The little FLUX's parts: what is trained is what FluxPipeline runs, and a training that was stopped goes on where it was."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKL
from diffusers.models.transformers.transformer_flux import FluxAttnProcessor

from backends.runtime import little_flux, scenes
from backends.runtime.little_flux import configuration, data, flow, flow_training, pipeline, schedule, train, vae_training
from backends.runtime.little_flux.tokens import ids_of, tokenizer, word_index
from backends.runtime.models import Models


@pytest.fixture(scope="module")
def shipped():
    return pipeline.read()


@pytest.fixture
def random_flow():
    """A flow whose modulations are not zero, so that every weight matters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = flow.Flow()
        for parameter in made.transformer.parameters():
            if not parameter.any():
                torch.nn.init.normal_(parameter, std=0.05)
    return made.eval()


@pytest.fixture
def few() -> data.Pictures:
    return data.make(24, seed=9)


def draws(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def test_every_word_that_a_caption_can_hold_is_one_token():
    assert set(scenes.WORDS) == set(little_flux.VOCABULARY)
    assert len(set(ids_of(" ".join(little_flux.VOCABULARY[:10])))) == 12  # and the end mark, and padding
    table = tokenizer().get_vocab()
    assert table[configuration.PAD] == 0
    assert table[configuration.END] == configuration.CLIP["eos_token_id"] != 2
    assert ids_of("zebra") == [table[configuration.UNKNOWN], table[configuration.END], *[0] * 14]
    assert ids_of("A  Red STAR") == ids_of("a red star")
    assert len(ids_of("red " * 40)) == little_flux.SEQUENCE_LENGTH


def test_the_place_of_a_word_is_the_place_of_its_token():
    text = "a big red star on a blue wall"
    assert ids_of(text)[word_index(text, "star")] == ids_of("star")[0]
    assert word_index(text, "ring") == -1


def test_tokens_are_packed_channel_first_then_the_two_by_two_square():
    latents = torch.arange(2 * 16 * 16 * 16.0).view(2, 16, 16, 16)
    tokens = flow.pack(latents)
    assert tokens.shape == (2, 64, 64)
    assert tokens[1, 8 * 3 + 5, 4 * 7 + 2 * 1 + 0] == latents[1, 7, 2 * 3 + 1, 2 * 5]


def test_noise_levels_lean_to_the_noisy_end_and_reach_both():
    levels = flow.noise_levels(20_000, torch.Generator().manual_seed(0))
    assert float(levels.min()) >= 1e-3
    assert float(levels.max()) < 1
    assert float((levels > 0.9).float().mean()) > 0.15
    assert 0.02 < float((levels < 0.2).float().mean()) < 0.15


def test_the_word_loss_is_least_where_words_look_at_their_things():
    cover = torch.zeros(2, 2, 8, 8)
    cover[0, 0, 2:5, 2:5] = 1
    word = torch.tensor([[3, -1], [-1, -1]])
    right, wrong = torch.full((2, 64, 16), 1e-6), torch.full((2, 64, 16), 1e-6)
    right[0, cover[0, 0].flatten() > 0, 3] = 0.1
    wrong[0, cover[0, 0].flatten() == 0, 3] = 0.1
    even = flow.word_loss(torch.ones(2, 64, 16), word, cover)
    assert float(even) == pytest.approx(np.log(64), abs=1e-4)
    assert float(flow.word_loss(right, word, cover)) == pytest.approx(np.log(9), abs=0.01)
    assert float(flow.word_loss(wrong, word, cover)) > float(even)


def test_reading_word_attention_changes_nothing_and_is_the_softmax(random_flow):
    tokens, sigma = torch.tensor([ids_of("a red star"), ids_of("a wall")]), torch.tensor([0.9, 0.4])
    x = draws(2, 64, 64)
    with torch.no_grad():
        read = random_flow(x, sigma, tokens)
        weights = random_flow.words.weights
        own = copy.deepcopy(random_flow)
        own.transformer.set_attn_processor(FluxAttnProcessor())
        assert torch.equal(read, own(x, sigma, tokens))
    assert weights.shape == (2, 64, 16)
    assert float(weights.min()) > 0
    assert float(weights.sum(-1).max()) < 1  # the rest goes to image tokens


def test_word_attention_shows_what_the_values_are_weighted_with(random_flow):
    """With values that are one-hot in the text tokens, FLUX's own output is the attention itself."""
    attention = random_flow.transformer.transformer_blocks[configuration.MASK_BLOCK].attn
    image, text = draws(1, 64, 128), draws(1, 16, 128)
    rotary = random_flow.transformer.pos_embed(torch.cat([random_flow.txt_ids, random_flow.img_ids]))
    attention = copy.deepcopy(attention)
    with torch.no_grad():
        for part in (attention.to_v, attention.add_v_proj, attention.to_out[0]):
            part.weight.zero_()
            part.bias.zero_()
        attention.add_v_proj.bias.view(4, 32)[:, 0] = 1  # every text token is worth 1 in the first number of each head
        attention.to_out[0].weight[0, ::32] = 0.25  # mean over heads
        out, _ = attention(image, text, image_rotary_emb=rotary)
    assert torch.allclose(out[0, :, 0], attention.processor.weights[0].sum(-1), atol=1e-6)


def test_the_pipeline_samples_what_the_trained_flow_says(random_flow):
    vae = AutoencoderKL(**configuration.VAE, scaling_factor=0.8, shift_factor=-0.05)
    pipe = pipeline.assemble(vae, random_flow)
    x = draws(1, 64, 64)
    made = pipe("a red star", num_inference_steps=4, latents=x.clone(), output_type="latent", **pipeline.call_settings()).images
    levels = pipe.scheduler.sigmas
    with torch.no_grad():
        for here, after in itertools.pairwise(levels):
            x = x + (after - here) * random_flow(x, here[None], torch.tensor([ids_of("a red star")]))
    assert torch.allclose(made, x, atol=1e-4)
    assert type(pipe.transformer.transformer_blocks[configuration.MASK_BLOCK].attn.processor) is FluxAttnProcessor


def test_pictures_are_the_same_from_the_same_seed_and_from_their_file(tmp_path: Path, few: data.Pictures):
    again, stored = data.make(24, seed=9), data.load_or_make(tmp_path / "p.npz", 24, 9)
    loaded = data.load_or_make(tmp_path / "p.npz", 24, 9)
    for other in (again, stored, loaded):
        assert np.array_equal(few.images, other.images)
        assert np.array_equal(few.tokens, other.tokens)
    assert few.pixels(slice(0, 2)).shape == (2, 3, 64, 64)
    assert -1 <= float(few.pixels(slice(0, 9)).min()) < 0 < float(few.pixels(slice(0, 9)).max()) <= 1


def test_the_word_of_a_thing_points_at_its_shape_in_each_wording(few: data.Pictures):
    names = {ids_of(shape)[0] for shape in scenes.SHAPES}
    rows, wordings, things = np.nonzero(few.word >= 0)
    assert rows.size > 20
    assert set(few.tokens[rows, wordings, few.word[rows, wordings, things]].tolist()) <= names
    assert (few.cover[rows, things].max(axis=(1, 2)) > 200).all()


def test_the_rate_rises_stays_and_lands_at_zero_by_the_clock():
    clock = schedule.Clock(minutes=10)
    assert clock.rate(1.0) == pytest.approx(0.01)
    clock.step, clock.wall_s = 500, 120
    assert clock.rate(1.0) == 1
    clock.wall_s = 0.75 * 600
    assert clock.rate(1.0) == pytest.approx(0.5)
    clock.wall_s = 700
    assert clock.done == 1
    assert clock.rate(1.0) == 0


def test_the_average_follows_fast_at_first_and_slowly_later():
    module = torch.nn.Linear(1, 1, bias=False)
    average = schedule.Average(module, 0.999)
    with torch.no_grad():
        module.weight.fill_(1.0)
        average.module.weight.fill_(0.0)
    average.update(module, 0)
    assert float(average.module.weight) == pytest.approx(0.9)
    with torch.no_grad():
        average.module.weight.fill_(0.0)
    average.update(module, 10**6)
    assert float(average.module.weight) == pytest.approx(0.001, rel=1e-3)


def test_a_flow_training_learns_and_goes_on_from_its_checkpoint(tmp_path: Path, few: data.Pictures, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flow_training, "BATCH", 6)
    latents = draws(24, 64, 64).half() * 0.1  # hardly any picture, so that predicting the noise is soon learnt
    with torch.random.fork_rng(devices=[]):
        training = flow_training.FlowTraining(tmp_path / "flow.pt", minutes=60)
        figures = list(itertools.islice(training.steps(few, latents), 16))
        training.save()
        again = flow_training.FlowTraining(tmp_path / "flow.pt", minutes=60)
    assert np.mean([f[2] for f in figures[-3:]]) < figures[0][2] - 0.01
    assert again.clock.step == training.clock.step == 16
    assert again.clock.wall_s == training.clock.wall_s
    for name in ("flow", "places"):
        for a, b in zip(getattr(training, name).parameters(), getattr(again, name).parameters(), strict=True):
            assert torch.equal(a, b)
    assert again.optimiser.state_dict()["state"][0]["step"] == 16


def test_an_autoencoder_training_learns_and_goes_on_from_its_checkpoint(tmp_path: Path, few: data.Pictures, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(vae_training, "BATCH", 4)
    with torch.random.fork_rng(devices=[]):
        training = vae_training.VaeTraining(tmp_path / "vae.pt", minutes=60)
        errors = list(itertools.islice(training.steps(few), 20))
        training.save()
        again = vae_training.VaeTraining(tmp_path / "vae.pt", minutes=60)
        vae, psnr = vae_training.finished(again, few)
    assert np.mean(errors[-4:]) < 0.9 * np.mean(errors[:4])
    assert again.clock.step == 20
    means = vae_training.encode(vae, few).float()
    assert float(((means - vae.config.shift_factor) * vae.config.scaling_factor).std()) == pytest.approx(1, abs=0.01)
    assert 0 < psnr < 30


def test_the_command_trains_both_parts_goes_on_and_ships_a_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(train, "UNSEEN", 20)
    monkeypatch.setattr(flow_training, "BATCH", 4)
    seconds = itertools.count(0.0)
    monkeypatch.setattr(schedule, "time", SimpleNamespace(perf_counter=lambda: next(seconds), process_time=lambda: 0.0))  # a step takes a second
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)  # the command's own choice, not this process's

    def command(part: str, *more: str) -> str:
        monkeypatch.setattr("sys.argv", ["train", part, "--out", str(tmp_path), "--pictures", "30", *more])
        with torch.random.fork_rng(devices=[]):
            train.main()
        return capsys.readouterr().out

    def steps() -> int:
        return torch.load(tmp_path / "flow.pt", weights_only=True)["clock"][2]

    assert "dB on 20 unseen pictures" in command("vae", "--minutes", "0.05")
    command("flow", "--minutes", "0.05")
    assert steps() == 3
    command("flow", "--minutes", "0.1")
    assert steps() == 6
    assert str(tmp_path / "made") in command("ship", "--folder", str(tmp_path / "made"))
    assert pipeline.read(tmp_path / "made").transformer.config.num_layers == 4


def test_what_is_shipped_can_be_trained_on(tmp_path: Path):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        training = flow_training.FlowTraining(tmp_path / "none.pt", minutes=1)
    training.start_from(pipeline.FOLDER)
    shipped = pipeline.read()
    for a, b in zip(training.average.module.transformer.parameters(), shipped.transformer.parameters(), strict=True):
        assert torch.equal(a, b)
    near = [
        float((a - b).detach().norm() / (a.detach().norm() + 1e-9))
        for a, b in zip(training.flow.parameters(), training.average.module.parameters(), strict=True)
    ]
    assert 0 < np.mean(near) < 0.5


def test_the_shipped_folder_says_what_diffusers_does_not_keep_and_is_small(shipped):
    stated = json.loads((pipeline.FOLDER / "lab.json").read_text())
    assert stated == {"mask_block": little_flux.MASK_BLOCK, "image_size": little_flux.IMAGE_SIZE, "sequence_length": little_flux.SEQUENCE_LENGTH}
    assert sum(file.stat().st_size for file in pipeline.FOLDER.rglob("*")) < 30e6
    assert not any(str(Path(__file__).parents[1]) in file.read_text() for file in pipeline.FOLDER.rglob("*.json"))
    assert shipped.tokenizer_2.get_vocab() == tokenizer().get_vocab()
    assert shipped.transformer.config.num_layers > little_flux.MASK_BLOCK


def test_one_load_serves_all_and_sampling_leaves_the_weights_alone(shipped):
    models = Models(lambda _: None, lambda: None)
    first = little_flux.load(models)
    assert little_flux.load(models) is first
    before = {name: value.clone() for name, value in first.transformer.state_dict().items()}
    picture = first("a red wall", num_inference_steps=2, output_type="np", **little_flux.call_settings()).images
    assert picture.shape == (1, 64, 64, 3)
    assert all(torch.equal(value, before[name]) for name, value in first.transformer.state_dict().items())
