"""Language models that the operator named: what is sent, who may be asked, and what is said when one does not answer."""

from __future__ import annotations

import time

import pytest

from backends.contract import InputError, Stopped
from backends.runtime import endpoints
from backends.runtime.endpoints import Endpoint
from tests.chat_server import ChatServer

SECRET = "sk-very-secret"


def coder() -> Endpoint:
    return endpoints.configured("proposer")["coder"]


def test_the_prompt_is_sent_and_the_key_in_the_header_only(chat_server: ChatServer) -> None:
    assert endpoints.chat(coder(), ["make it fast"], field="proposer", key=SECRET, temperature=0.5, seed=7) == ["fine"]
    (asked,) = chat_server.asked
    assert asked.pop("key") == f"Bearer {SECRET}"
    assert (asked["path"], asked["model"], asked["messages"][0]["content"], asked["seed"], asked["temperature"]) == (
        "/v1/chat/completions", "m", "make it fast", 7, 0.5
    )  # fmt: skip
    assert SECRET not in str(asked)


def test_answers_have_the_order_of_the_prompts_and_a_seed_each(chat_server: ChatServer) -> None:
    chat_server.answer = lambda body: f"{body['messages'][0]['content']} by {body['seed']}"
    assert endpoints.chat(coder(), ["a", "b", "c"], field="proposer", seed=4) == ["a by 4", "b by 5", "c by 6"]


def test_without_a_key_the_hosts_token_of_the_hub_stays_here(chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "token-of-the-host")
    endpoints.chat(coder(), ["a"], field="proposer")
    assert chat_server.asked[0]["key"] == "Bearer none"


@pytest.mark.parametrize("status", [401, 500])
def test_an_endpoint_that_refuses_is_named_without_the_key(chat_server: ChatServer, status: int) -> None:
    chat_server.status, chat_server.answer = status, lambda body: SECRET
    with pytest.raises(InputError, match=f"coder answers with status {status}") as error:
        endpoints.chat(coder(), ["a"], field="proposer", key=SECRET)
    assert error.value.field == "proposer"
    assert SECRET not in str(error.value)


def test_an_endpoint_that_cannot_be_reached() -> None:
    with pytest.raises(InputError, match="gone does not answer") as error:
        endpoints.chat(Endpoint("gone", "m", "http://127.0.0.1:9/v1"), ["a"], field="proposer", key=SECRET)
    assert SECRET not in str(error.value)


def test_an_empty_answer_is_an_empty_text(chat_server: ChatServer) -> None:
    chat_server.answer = lambda body: None
    assert endpoints.chat(coder(), ["a"], field="proposer") == [""]


def test_stop_is_heard_while_an_endpoint_is_silent(chat_server: ChatServer) -> None:
    def slow(body: dict[str, object]) -> str:
        time.sleep(0.5)
        return "late"

    def stop() -> None:
        raise Stopped

    chat_server.answer = slow
    with pytest.raises(Stopped):
        endpoints.chat(coder(), ["a"] * 100, field="proposer", check=stop)


BAD = ["[]", "coder", '{"a": 1}', '{"a": {"url": "http://x"}}', '{"a": {"model": "m", "url": "file:///etc"}}', '{"a": {"model": "m", "key": "k"}}']


@pytest.mark.parametrize("text", BAD)
def test_a_list_that_cannot_be_read_is_said_to_the_operator(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(endpoints.VARIABLE, text)
    with pytest.raises(InputError, match=endpoints.VARIABLE):
        endpoints.configured("proposer")


def test_nothing_is_configured_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(endpoints.VARIABLE, raising=False)
    assert endpoints.configured("proposer") == {}
