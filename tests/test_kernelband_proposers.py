"""Proposers that ask a model: what is sent, what is taken from the answer, and who may use them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import httpx
import numpy as np
import pytest

from backends.contract import ContextSpec, InputError, Stopped
from backends.kernelband import proposers
from backends.kernelband.proposers import Endpoint, ModelProposer, endpoint_proposer, endpoints, first_code_block, local_proposer, require_switch
from backends.kernelband.substrate import STRATEGIES, Candidate, Failure
from backends.runtime.context import RunContext
from tests.toy_kernels import ToySubstrate

SECRET = "sk-very-secret"


def endpoint(answer: Callable[[httpx.Request], httpx.Response], check: Callable[[], None] = lambda: None) -> Endpoint:
    return Endpoint("https://models.example/v1/", "coder", SECRET, check, httpx.MockTransport(answer))


def chat(text: object) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: httpx.Response(200, json={"choices": [{"message": {"content": text}}]})


def test_endpoint_sends_the_prompt_and_the_key_in_the_header_only() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return chat("fine")(request)

    assert endpoint(answer)("make it fast", 7) == "fine"
    body = json.loads(asked[0].content)
    assert str(asked[0].url) == "https://models.example/v1/chat/completions"
    assert asked[0].headers["authorization"] == f"Bearer {SECRET}"
    assert (body["model"], body["messages"][0]["content"], body["seed"], body["temperature"]) == ("coder", "make it fast", 7, 1.0)
    assert SECRET not in asked[0].content.decode()


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (httpx.Response(401), "refuses the key"),
        (httpx.Response(500, text=SECRET), "code 500"),
        (httpx.Response(302, headers={"location": "http://10.0.0.1/"}), "code 302"),
        (httpx.Response(200, text="<html>"), "chat form"),
        (httpx.Response(200, json={"choices": []}), "chat form"),
    ],
)
def test_bad_replies_are_refused_in_words_without_the_key(reply: httpx.Response, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        endpoint(lambda _: reply)("x", 0)
    assert SECRET not in str(error.value)


def test_endpoint_that_cannot_be_reached() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError(f"no route for {SECRET}")

    with pytest.raises(InputError, match="cannot be reached") as error:
        endpoint(answer)("x", 0)
    assert SECRET not in str(error.value)


def test_stop_is_heard_while_an_endpoint_is_silent() -> None:
    def stop() -> None:
        raise Stopped

    def slow(request: httpx.Request) -> httpx.Response:
        time.sleep(0.5)
        return chat("late")(request)

    with pytest.raises(Stopped):
        endpoint(slow, stop)("x", 0)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("", "empty"), (None, "empty"), ("just do it", "no code block"), ("```c\n   \n```", "no code block"), ("```c\nint x;", "no code block")],
)
def test_answer_without_code_is_a_failed_pull(text: object, kind: str) -> None:
    toy = ToySubstrate()
    child = ModelProposer("coder", toy, endpoint(chat(text))).propose(toy.naive("matmul", 384), 10.0, 0, np.random.default_rng(0))
    assert isinstance(child, Failure)
    assert child.kind == "no-code"
    assert kind in child.text


def test_first_code_block_is_the_child() -> None:
    toy = ToySubstrate()
    proposer = ModelProposer("coder", toy, endpoint(chat("Sure.\n```c\nvoid a();\n```\n```c\nvoid b();\n```")))
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


def test_operator_names_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(proposers.SWITCH, "1")
    monkeypatch.delenv(proposers.HOSTED, raising=False)
    monkeypatch.delenv(proposers.ENDPOINTS, raising=False)
    with pytest.raises(InputError, match="names no endpoint"):
        endpoint_proposer(ToySubstrate(), RunContext(ContextSpec()))
    monkeypatch.setenv(proposers.ENDPOINTS, "https://models.example/v1 coder")
    assert endpoint_proposer(ToySubstrate(), RunContext(ContextSpec())).name == "coder"
    for wrong in ("file:///etc/passwd coder", "https://models.example/v1"):
        with pytest.raises(InputError, match="not readable"):
            endpoints({proposers.ENDPOINTS: wrong})


def test_local_model_is_asked_in_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    from backends.runtime import language_model

    monkeypatch.setenv(proposers.SWITCH, "1")
    monkeypatch.delenv(proposers.HOSTED, raising=False)
    asked: list[str] = []

    def sample(name: str, prompts: list[str], **_: object) -> list[language_model.Sample]:
        asked.extend(prompts)
        return [language_model.Sample("```c\nvoid a();\n```", 5, "stop")]

    monkeypatch.setattr(language_model, "sample", sample)
    toy = ToySubstrate()
    child = local_proposer(toy, RunContext(ContextSpec())).propose(toy.naive("matmul", 384), 1.0, 3, np.random.default_rng(0))
    assert isinstance(child, Candidate)
    assert asked[0].startswith("<|im_start|>user\nTask")
    assert asked[0].endswith("<|im_start|>assistant\n")
