"""The small pre-training experiment: it learns, resumes to the same numbers, and the shipped logs are true of the shipped weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from backends.attention_sink import pretrain, pretrain_data, pretrained
from backends.attention_sink.pretrain import Recipe, Training, measure
from backends.attention_sink.pretrain_model import ARMS, Arm, LayerTrace, Size, SmallDecoder, rotate
from backends.contract import InputError

SMALL = Size(layers=2, heads=2, width=32, ffn=64, block=32)
QUICK = Recipe(steps=12, sequences=4, warm_up=2, peak_rate=1e-2)


@pytest.fixture(scope="module")
def ids() -> np.ndarray:
    return pretrain_data.tokens()[0]


def test_the_corpus_is_whole_and_its_parts_are_apart() -> None:
    lines = pretrain_data.verses()
    assert len(lines) == 31_102
    assert lines[0] == "In the beginning God created the heaven and the earth."
    training, validation = pretrain_data.split(lines)
    assert len(training) + len(validation) == 31_102
    assert 0.04 < len(validation) / 31_102 < 0.06


def test_the_tokenizer_gives_the_text_back() -> None:
    text = "\n".join(pretrain_data.verses()[:50])
    found = pretrain_data.tokenizer().encode(text).ids
    assert pretrain_data.tokenizer().decode(found) == text
    assert max(found) < Size().vocabulary
    assert len(found) < len(text) / 3


def test_a_batch_depends_on_seed_and_step_alone(ids: np.ndarray) -> None:
    inputs, targets = pretrain_data.batch(ids, 3, 16, seed=1, step=5)
    assert inputs.shape == targets.shape == (3, 16)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert torch.equal(inputs, pretrain_data.batch(ids, 3, 16, seed=1, step=5)[0])
    assert not torch.equal(inputs, pretrain_data.batch(ids, 3, 16, seed=1, step=6)[0])
    assert not torch.equal(inputs, pretrain_data.batch(ids, 3, 16, seed=2, step=5)[0])


@pytest.mark.parametrize("arm", ARMS)
def test_no_arm_sees_the_future(arm: Arm) -> None:
    model = SmallDecoder(SMALL, arm)
    tokens = torch.randint(0, 4096, (2, 20), generator=torch.Generator().manual_seed(0))
    trace: list[LayerTrace] = []
    whole = model(tokens, trace)
    changed = tokens.clone()
    changed[:, 15:] = 7
    assert torch.allclose(model(changed)[:, :15], whole[:, :15], atol=1e-5)
    assert torch.allclose(model(tokens[:, :12]), whole[:, :12], atol=1e-5)
    sums = trace[0].attention.sum(-1)
    assert float(trace[0].attention.detach().triu(1).abs().max()) == 0.0
    assert torch.allclose(sums, torch.ones_like(sums), atol=1e-5) is (arm != "sigmoid")


def test_the_arms_start_from_the_same_weights() -> None:
    states = [SmallDecoder(SMALL, arm, seed=4).state_dict() for arm in ARMS]
    for name in states[0]:
        assert all(torch.equal(states[0][name], state[name]) for state in states[1:]), name
    assert {name for name in states[1] if name not in states[0]} == {f"layers.{i}.head_norm.gamma" for i in range(2)}


def test_head_norm_starts_at_the_scale_of_the_values() -> None:
    model = SmallDecoder(Size(layers=1), "headnorm")
    gamma = model.layers[0].head_norm.gamma.detach()
    assert float(gamma.mean()) == pytest.approx(0.02 * np.sqrt(128), rel=0.15)


def test_positions_are_relative() -> None:
    """RoPE: the scores of the same tokens do not change when all stand later."""
    model = SmallDecoder(SMALL, "baseline")
    q, k = torch.randn(1, 1, 1, 16), torch.randn(1, 1, 1, 16)

    def score(i: int, j: int) -> float:
        return float((rotate(q, model.cos[i], model.sin[i]) * rotate(k, model.cos[j], model.sin[j])).sum())

    assert score(9, 4) == pytest.approx(score(25, 20), abs=1e-4)
    assert score(9, 4) != pytest.approx(score(9, 8), abs=1e-3)


@pytest.mark.parametrize("arm", ARMS)
def test_a_few_steps_lower_the_loss(arm: Arm, ids: np.ndarray) -> None:
    training = Training(arm, SMALL, QUICK)
    for _ in range(12):
        training.step(ids)
    assert training.losses[0] == pytest.approx(np.log(4096), abs=0.2)
    assert training.losses[-1] < training.losses[0] - 0.5


def test_resuming_equals_going_on(ids: np.ndarray, tmp_path: Path) -> None:
    straight, first, second = (Training("headnorm", SMALL, QUICK) for _ in range(3))
    for _ in range(6):
        straight.step(ids)
    for _ in range(3):
        first.step(ids)
    first.save(tmp_path / "state.pt")
    second.resume(tmp_path / "state.pt")
    for _ in range(3):
        second.step(ids)
    assert second.losses == straight.losses
    for name, value in straight.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], value), name


def test_another_recipe_is_not_resumed(ids: np.ndarray, tmp_path: Path) -> None:
    training = Training("baseline", SMALL, QUICK)
    training.save(tmp_path / "state.pt")
    with pytest.raises(ValueError, match="another arm"):
        Training("sigmoid", SMALL, QUICK).resume(tmp_path / "state.pt")


def test_the_command_stops_and_goes_on_and_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrain, "Size", lambda: SMALL)
    command = ["sigmoid", "--steps", "10", "--out", str(tmp_path / "out"), "--ship", str(tmp_path / "ship")]
    pretrain.main([*command, "--minutes", "0"])
    assert not (tmp_path / "ship").exists()
    pretrain.main(command)
    found = pretrained.shipped(tmp_path / "ship")
    assert list(found) == ["sigmoid"]
    assert found["sigmoid"].log["trained_tokens"] == 10 * Recipe().sequences * 32
    again = measure(found["sigmoid"].model(tmp_path / "ship"), pretrain_data.tokens()[1])
    assert again["loss"] == pytest.approx(found["sigmoid"].validation_loss, rel=1e-6)


def test_the_rate_warms_up_and_falls_to_a_tenth() -> None:
    recipe = Recipe(steps=1000, warm_up=100, peak_rate=1.0)
    rates = [recipe.rate(step) for step in range(1000)]
    assert rates[0] == pytest.approx(0.01)
    assert max(rates) == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(0.1, abs=1e-3)


def test_baseline_and_headnorm_are_shipped() -> None:
    assert set(pretrained.shipped()) >= {"baseline", "headnorm"}


@pytest.mark.parametrize("name", list(pretrained.shipped()))
def test_the_shipped_log_is_true_of_the_shipped_weights(name: str) -> None:
    run = pretrained.arm(name)
    again = measure(run.model(), pretrain_data.tokens()[1])
    logged = run.log["measured"]
    assert again["windows"] == logged["windows"]
    for figure in ("loss", "sink", "rank", "dominance", "norm_first", "norm_others"):
        assert again[figure] == pytest.approx(logged[figure], rel=1e-3), figure  # another processor adds in another order
    assert run.log["loss"][-1] < run.log["loss"][0] - 3
    assert run.curve["sink"].shape == (run.log["size"]["layers"],)


def test_the_shipped_runs_differ_in_their_arm_alone() -> None:
    logs = [run.log for run in pretrained.shipped().values()]
    assert all((log["size"], log["recipe"], log["trained_tokens"]) == (logs[0]["size"], logs[0]["recipe"], logs[0]["trained_tokens"]) for log in logs)
    assert f"{logs[0]['recipe']['steps']:,} steps" in pretrained.description()


def test_the_model_card_states_the_figures_of_the_logs() -> None:
    text = (pretrain_data.WEIGHTS / "MODEL_CARD.md").read_text()
    for name, run in pretrained.shipped().items():
        row = next(line for line in text.splitlines() if line.startswith(f"| {name} "))
        measured = json.loads((pretrain_data.WEIGHTS / f"{name}.json").read_text())["measured"]
        assert f"{run.validation_loss:.3f}" in row
        assert f"{max(measured['sink']):.3f}" in row
        assert f"{np.mean(measured['rank']):.1f}" in row
        assert f"{max(measured['dominance']):.1f}" in row


def test_an_arm_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="no trained arm 'linear'"):
        pretrained.arm("linear")


def test_too_many_tokens_and_an_unknown_arm_are_refused() -> None:
    with pytest.raises(ValueError, match="33 tokens are more than the block of 32"):
        SmallDecoder(SMALL, "baseline")(torch.zeros(1, 33, dtype=torch.long))
    with pytest.raises(ValueError, match="there is no arm"):
        SmallDecoder(SMALL, "linear")  # type: ignore[arg-type]
