"""The tiny reasoner: its expressions and traces, the fork that leaves no trace, its training, and that the shipped weights are fit to be shown."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from backends.contract import InputError
from backends.parallel_probe import acceptance, expressions, reasoner, thinking, train
from backends.parallel_probe.card import Params
from backends.parallel_probe.forking import Speech, Thinking, think

QUESTION = "((3+4)*(2-7))"


@pytest.fixture(scope="module")
def model() -> Any:
    return reasoner.load()


def thought(model: Any, *, interval: int = 16, branches: int = 6, longest: int = 96, seed: int = 3, speech: Speech | None = None) -> Thinking:
    generator = torch.Generator().manual_seed(seed)
    for state in think(model, speech or reasoner.speech(QUESTION), branches, interval, 1.2, longest, generator):  # noqa: B007 - the last one is meant
        pass
    return state


# --------------------------------------------------------------------------------------------------- the expressions


@pytest.mark.parametrize(("text", "worth"), [(QUESTION, 5), ("7", 7), ("(2-7)", 5), ("((9*9)+(9*9))", 2)])
def test_an_expression_is_worth_its_value_modulo_ten(text: str, worth: int) -> None:
    assert expressions.value(text) == worth == eval(text) % 10


@pytest.mark.parametrize("text", ["", "3+4", "(3+)", "((3+4)", "(3/4)", "12", "(12+3)"])
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="an expression is"):
        expressions.value(text)


def test_traces_reason_rightly_to_the_right_answer() -> None:
    rng, rechecked, cut = np.random.default_rng(0), 0, 0
    for _ in range(300):
        trace = expressions.trace(rng)
        text = expressions.decode(trace.ids)
        start = text[: trace.prompt - 1]
        assert len(trace.ids) <= expressions.BLOCK_TOKENS + 3
        assert text[-1] == str(expressions.value(start)), "a cut trace is closed with the right digit too"
        assert text[-2] == "#"
        whole = re.split("[;?]", text[:-2])[: -1 if trace.forced >= 0 else None]
        assert {expressions.value(line) for line in whole} == {expressions.value(start)}
        rechecked += "?" in text
        cut += trace.forced >= 0
    assert rechecked > 100
    assert 70 < cut < 130, "a third is cut"


def test_batches_hold_targets_only_where_the_reasoner_writes() -> None:
    for ids, weights in expressions.batches(np.random.default_rng(1), 2048, pool=64):
        for row, weight in zip(ids, weights, strict=True):
            prompt = expressions.decode(row).index(";") + 1
            assert not weight[:prompt].any()
            ends = np.flatnonzero(row == expressions.END)
            assert weight[ends[0]] == 1
            assert not weight[ends[0] + 1 :].any()


def test_signs_that_are_not_in_the_vocabulary_are_named() -> None:
    with pytest.raises(ValueError, match="not '/'"):
        expressions.encode("3/4")


# ---------------------------------------------------------------------------------------------------------- the fork


def test_a_probe_leaves_no_trace(model: Any) -> None:
    asked, never = thought(model, interval=3), thought(model, interval=96)
    np.testing.assert_array_equal(asked.ids, never.ids)
    np.testing.assert_array_equal(asked.tokens, never.tokens)
    assert sum(map(len, asked.probes)) > 20


def test_a_probe_reads_what_the_model_says_behind_the_prefix(model: Any) -> None:
    state = thought(model, interval=7)
    for branch, probes in enumerate(state.probes):
        for number, answer in enumerate(probes):
            text = f"{QUESTION};{state.text(branch)[: 7 * (number + 1)]}#"
            with torch.inference_mode():
                likeliest = int(model(torch.tensor([expressions.encode(text)])).logits[0, -1].argmax())
            assert answer == (expressions.CHARACTERS[likeliest] if likeliest < 10 else "ERR")


def test_branches_become_a_pool(model: Any) -> None:
    state = thought(model)
    pool = state.pool()
    assert pool.gold == "5"
    assert [len(branch.probes) for branch in pool.branches] == (state.tokens // 16).tolist()
    for number, branch in enumerate(pool.branches):
        if branch.tokens < 96:
            assert branch.final == reasoner.final_answer(state.text(number))
    assert state.so_far() == pool
    with pytest.raises(ValueError, match="1 branches still think"):
        replace(state, done=np.arange(6) != 2).pool()


def test_equal_seeds_give_equal_thoughts(model: Any) -> None:
    np.testing.assert_array_equal(thought(model).ids, thought(model).ids)
    assert not np.array_equal(thought(model, seed=4).ids, thought(model).ids)


@pytest.mark.parametrize("changed", [{"interval": 0}, {"branches": 0}, {"longest": 0}])
def test_thinking_of_nothing_is_refused(model: Any, changed: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        thought(model, **changed)


def test_an_answer_of_several_tokens_is_read_and_forgotten(model: Any) -> None:
    """As a real model is asked: the reading goes on for some tokens, and the branch is still untouched."""
    long = replace(reasoner.speech(QUESTION), answer_tokens=4, heard=expressions.decode)
    asked, never = thought(model, interval=5, speech=long), thought(model, interval=96)
    np.testing.assert_array_equal(asked.ids, never.ids)
    text = f"{QUESTION};{asked.text(0)[:5]}#"
    ids = expressions.encode(text)
    with torch.inference_mode():
        for _ in range(4):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    assert asked.probes[0][0] == expressions.decode(ids[-4:])


@pytest.mark.parametrize(("text", "answer"), [("1;1#7", "7"), ("1;1", "ERR"), ("1#", "ERR"), ("1#23", "ERR"), ("#3;#4", "4")])
def test_the_own_answer_is_the_digit_behind_the_last_sign(text: str, answer: str) -> None:
    assert reasoner.final_answer(text) == answer


# ----------------------------------------------------------------------------------------------------- a real model


def test_a_real_model_on_a_cpu_is_refused_unless_small() -> None:
    with pytest.raises(InputError) as refused:
        thinking.refuse_slow(32, 5120, "cpu")
    assert refused.value.field == "longest"
    thinking.refuse_slow(8, 256, "cpu")
    thinking.refuse_slow(64, 5120, "cuda")


class Decoder:
    """What the speech needs of a loaded model whose tokens are letters."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self.vocabulary = vocabulary
        self.tokenizer = self
        self.model = self
        self.generation_config = self
        self.eos_token_id = 1

    def get_vocab(self) -> dict[str, int]:
        return self.vocabulary

    def in_turns(self, request: str) -> str:
        return f"<user>{request}<model>"

    def __call__(self, text: str, *, add_special_tokens: bool) -> dict[str, list[int]]:
        assert not add_special_tokens
        return {"input_ids": [ord(c) for c in text]}

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))


@pytest.mark.parametrize(("vocabulary", "closes"), [({"</think>": 5}, True), ({}, False)])
def test_a_thought_is_closed_before_the_answer_is_asked(vocabulary: dict[str, int], closes: bool) -> None:
    decoder: Any = Decoder(vocabulary)
    made = thinking.speech(decoder, "What is 1/2?", "1/2")
    assert ("</think>" in decoder.decode(made.ask)) == closes
    assert decoder.decode(made.ask).endswith("\\boxed{")
    assert made.stop == [1]
    assert made.heard([ord(c) for c in "\\frac{1}{2}}. Good"]) == "1/2"


# -------------------------------------------------------------------------------------------- training and acceptance


def test_training_goes_on_where_it_stopped_and_learns(tmp_path: Path) -> None:
    whole = train.Training(8, 0)
    losses = [whole.step() for _ in range(8)]
    half = train.Training(8, 0)
    for _ in range(4):
        half.step()
    half.save(tmp_path / "half.pt")
    again = train.Training(8, 1)
    again.resume(tmp_path / "half.pt")
    assert again.losses == losses[:4]
    assert again.step() < losses[0]
    assert np.mean(losses[-2:]) < np.mean(losses[:2])


def test_weights_come_back_from_their_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = reasoner.build()
    reasoner.ship(made, tmp_path / "weights.safetensors")
    again = reasoner.load(tmp_path / "weights.safetensors")
    ids = torch.tensor([expressions.encode(QUESTION)])
    torch.testing.assert_close(again(ids).logits, made(ids).logits, atol=2e-3, rtol=2e-3)
    assert sum(value.numel() for value in again.parameters()) == reasoner.parameters()


@pytest.mark.timeout(600)  # a guard against hanging on a busy machine
def test_the_shipped_reasoner_is_accepted(model: Any) -> None:
    """Measured anew, on other questions than those of its card."""
    defaults = Params()
    found = acceptance.measure(model, 16, defaults.leaves, defaults.temperature, seed=77)
    assert found.accepted, found
    assert found.accuracy >= found.single_branch, "a vote helps"
    assert found.sequential < found.sequential_sc


@pytest.mark.timeout(900)
@pytest.mark.slow  # forty questions take most of a minute
def test_the_model_card_says_what_the_weights_do(model: Any) -> None:
    defaults = Params()
    found = acceptance.measure(model, train.QUESTIONS, defaults.leaves, defaults.temperature)
    text = reasoner.WEIGHTS.with_name("MODEL_CARD.md").read_text(encoding="utf-8")
    for name, value in (("branches that come out right", found.single_branch), ("onset ratio, mean", found.onset)):
        stated = re.search(rf"\| {name} \| ([\d.]+) \|", text)
        assert stated is not None
        assert value == pytest.approx(float(stated[1]), abs=0.02)
    assert f"--leaves {defaults.leaves} --temperature {defaults.temperature:g}" in text
    assert f"`{reasoner.WEIGHTS.name}`" in text
