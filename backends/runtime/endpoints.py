"""Language models that the operator of this host named in ``PLAYABLE_ENDPOINTS``; a visitor brings at most a key, never an address."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from backends.contract import InputError
from backends.runtime import memo

VARIABLE = "PLAYABLE_ENDPOINTS"
KEY = "PLAYABLE_ENDPOINT_KEY"  # name of the secret
REMEDY = f'set {VARIABLE} to JSON such as {{"coder": {{"url": "http://127.0.0.1:8000/v1", "model": "organisation/model"}}}}'
TOGETHER = 4  # requests on their way at once
TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model at an OpenAI-compatible address; without an address it is a name of the Hugging Face hub and runs on this host."""

    name: str
    model: str
    url: str | None = None


def configured(field: str) -> Mapping[str, Endpoint]:
    """What the operator named, in his order; empty without the variable. Raises InputError for this field when it is not of the form of ``REMEDY``."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return {}
    try:
        return {name: _endpoint(name, **entry) for name, entry in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        raise InputError(field, f"the operator's {VARIABLE} cannot be read", REMEDY) from None


def _endpoint(name: str, model: str, url: str | None = None) -> Endpoint:
    if not isinstance(model, str) or not model or (url is not None and urlsplit(url).scheme not in ("http", "https")):
        raise ValueError(name)
    return Endpoint(name, model, url)


def chat(
    endpoint: Endpoint,
    prompts: Sequence[str],
    *,
    field: str,
    key: str | None = None,
    max_new: int = 512,
    temperature: float = 1.0,
    seed: int = 0,
    emit: Callable[[int, str], None] = lambda done, text: None,
    check: Callable[[], None] = lambda: None,
) -> list[str]:
    """One answer a prompt, in the order of the prompts.

    seed: prompt i asks with seed + i, which most servers heed. emit(i, text): called in this thread as answers come. check: called
    while it waits, may raise to stop. Raises InputError for ``field`` when it does not answer.
    """
    from huggingface_hub import InferenceClient

    # Without a key of its own the client would send this host's token of the hub to the endpoint.
    client = InferenceClient(base_url=endpoint.url, api_key=key or "none", timeout=TIMEOUT_S)
    pool = ThreadPoolExecutor(TOGETHER, thread_name_prefix="endpoint")
    ask = partial(_ask, client, endpoint, field, max_new, temperature)
    try:
        waiting = {pool.submit(ask, prompt, seed + i): i for i, prompt in enumerate(prompts)}
        texts = [""] * len(prompts)
        while waiting:
            check()
            done, _ = wait(waiting, memo.POLL_S, FIRST_COMPLETED)
            for future in done:
                i = waiting.pop(future)
                texts[i] = future.result()
                emit(i, texts[i])
        return texts
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _ask(client: Any, endpoint: Endpoint, field: str, max_new: int, temperature: float, prompt: str, seed: int) -> str:
    messages = [{"role": "user", "content": prompt}]
    try:
        answer = client.chat_completion(messages, model=endpoint.model, max_tokens=max_new, temperature=temperature, seed=seed)
        return answer.choices[0].message.content or ""
    except Exception as error:  # noqa: BLE001 - the client's and its transport's many kinds; their texts may hold the key
        status = getattr(getattr(error, "response", None), "status_code", None)
        what = f"answers with status {status}" if status else f"does not answer ({type(error).__name__})"
        raise InputError(field, f"{endpoint.name} {what}", "check the key, or ask the operator of this host") from None
