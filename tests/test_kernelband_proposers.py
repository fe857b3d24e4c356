"""Proposers that ask a model: what is sent, what is taken from the answer, and who may use them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from backends.contract import ContextSpec, InputError
from backends.kernelband import proposers
from backends.kernelband.proposers import ModelProposer, endpoint_proposer, first_code_block, local_proposer, require_switch
from backends.kernelband.substrate import STRATEGIES, Candidate, Failure
from backends.runtime import endpoints, language_model
from backends.runtime.context import RunContext
from tests.chat_server import ChatServer
from tests.toy_kernels import ToySubstrate


@pytest.mark.parametrize(
    ("text", "kind"),
    [("", "empty"), ("just do it", "no code block"), ("```c\n   \n```", "no code block"), ("```c\nint x;", "no code block")],
)
def test_answer_without_code_is_a_failed_pull(text: str, kind: str) -> None:
    toy = ToySubstrate()
    child = ModelProposer("coder", toy, lambda prompt, seed: text).propose(toy.naive("matmul", 384), 10.0, 0, np.random.default_rng(0))
    assert isinstance(child, Failure)
    assert child.kind == "no-code"
    assert kind in child.text


def test_first_code_block_is_the_child() -> None:
    toy = ToySubstrate()
    proposer = ModelProposer("coder", toy, lambda prompt, seed: "Sure.\n```c\nvoid a();\n```\n```c\nvoid b();\n```")
    child = proposer.propose(toy.naive("matmul", 384), 10.0, 0, np.random.default_rng(0))
    assert isinstance(child, Candidate)
    assert (child.source, child.schedule) == ("void a();\n", None)
    assert first_code_block("````") is None


def test_prompt_names_all_that_the_card_lists() -> None:
    toy = ToySubstrate()
    parent = toy.naive("matmul", 384)
    for strategy, name in enumerate(STRATEGIES):
        prompt = ModelProposer("coder", toy, lambda prompt, seed: "").prompt(parent, 12.345, strategy)
        for part in (toy.describe("matmul", 384), toy.machine, parent.source, "12.35 ms", name.replace("_", " "), proposers.STRATEGY_TEXT[name]):
            assert part in prompt


def test_switch_and_hosted_space() -> None:
    require_switch("proposer", {proposers.SWITCH: "1"})
    for environment, said in (
        ({}, "does not run here"),
        ({proposers.SWITCH: "yes"}, "does not run here"),
        ({proposers.SWITCH: "1", "SPACE_ID": "a/b"}, "Space"),
    ):
        with pytest.raises(InputError, match=said):
            require_switch("proposer", environment)


@pytest.mark.parametrize("make", [endpoint_proposer, local_proposer])
def test_model_proposers_are_off_by_default(make: Callable[..., ModelProposer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(proposers.SWITCH, raising=False)
    with pytest.raises(InputError) as error:
        make(ToySubstrate(), RunContext(ContextSpec()))
    assert error.value.field == "proposer"


def allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(proposers.SWITCH, "1")
    monkeypatch.delenv(proposers.HOSTED, raising=False)


def test_the_operators_endpoint_writes_the_child(chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch)
    chat_server.answer = lambda body: "```c\nvoid a();\n```"
    toy = ToySubstrate()
    proposer = endpoint_proposer(toy, RunContext(ContextSpec()))
    child = proposer.propose(toy.naive("matmul", 384), 1.0, 3, np.random.default_rng(0))
    assert isinstance(child, Candidate)
    assert (proposer.name, child.source) == ("m", "void a();\n")
    assert chat_server.asked[0]["messages"][0]["content"].startswith("Task")


@pytest.mark.parametrize("text", ["", '{"here": {"model": "organisation/coder"}}'])
def test_without_an_address_there_is_no_endpoint(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch)
    monkeypatch.setenv(endpoints.VARIABLE, text)
    with pytest.raises(InputError, match="names no endpoint"):
        endpoint_proposer(ToySubstrate(), RunContext(ContextSpec()))


@pytest.mark.parametrize(("text", "name"), [("", language_model.DEFAULT), ('{"here": {"model": "organisation/coder"}}', "organisation/coder")])
def test_local_model_is_asked_in_its_turns(text: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch)
    monkeypatch.setenv(endpoints.VARIABLE, text)
    asked: list[str] = []

    class Decoder:
        def in_turns(self, request: str) -> str:
            return f"<user>{request}<answer>"

    def load(models: object, name: str, device: str) -> Decoder:
        asked.append(name)
        return Decoder()

    def sample(decoder: Decoder, prompts: list[str], **_: object) -> list[language_model.Sample]:
        asked.extend(prompts)
        return [language_model.Sample("```c\nvoid a();\n```", 5, "stop")]

    monkeypatch.setattr(language_model, "load", load)
    monkeypatch.setattr(language_model, "sample", sample)
    toy = ToySubstrate()
    child = local_proposer(toy, RunContext(ContextSpec())).propose(toy.naive("matmul", 384), 1.0, 3, np.random.default_rng(0))
    assert isinstance(child, Candidate)
    assert asked[0] == name
    assert asked[1].startswith("<user>Task")
    assert asked[1].endswith("<answer>")
