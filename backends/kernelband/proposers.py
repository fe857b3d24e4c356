"""Children written by a language model: an OpenAI-compatible endpoint of the operator, or a local model (section 5 of the card).

What a model or a person writes is arbitrary code, and it runs. It does so only where the operator has set the switch, and never on a
hosted Space.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import httpx
import numpy as np

from backends.contract import Context, InputError
from backends.kernelband.substrate import STRATEGIES, Candidate, Failure, Substrate

SWITCH = "PLAYABLE_RUN_WRITTEN_CODE"
ENDPOINTS = "PLAYABLE_ENDPOINTS"
LOCAL_MODEL = "PLAYABLE_CODE_MODEL"
KEY = "PLAYABLE_ENDPOINT_KEY"
HOSTED = "SPACE_ID"  # set by the host of a Space

TEMPERATURE = 1.0
ENDPOINT_TOKENS, LOCAL_TOKENS = 16384, 1024
REPLY_LIMIT_S = 180.0
POLL_S = 0.2
_CODE = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)

# What each strategy holds, as the paper merged them from eleven.
STRATEGY_TEXT = {
    "tiling": "Tile the loops so that the working set of the inner ones stays in cache.",
    "vectorization": "Use vector instructions, and narrower numbers where the tolerance allows them.",
    "fusion": "Merge passes over the data, reductions among them, so that less of it is written and read again.",
    "pipeline": "Overlap loads with arithmetic: unroll, keep several accumulators, prefetch.",
    "reordering": "Change the order of the loops, what runs in parallel, and how much each thread does.",
    "access_layout": "Change how data lies in memory or is walked through, so that neighbouring accesses are neighbours in memory.",
}


class Complete(Protocol):
    """Asks a model. seed: of its draws, where it takes one."""

    def __call__(self, prompt: str, seed: int) -> str: ...


def require_switch(field: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raises InputError for this field unless written code may run here."""
    if environment.get(HOSTED):
        raise InputError(field, "code that a model or a person writes is not run on a hosted Space", "install the lab on your own machine, or choose offline")
    if environment.get(SWITCH) != "1":
        raise InputError(field, "code that a model or a person writes does not run here", f"ask the operator to set {SWITCH}=1, or choose offline")


class ModelProposer:
    """Prompts with task, signature, machine, strategy and the parent's code and time; the first code block of the answer is the child."""

    def __init__(self, name: str, substrate: Substrate, complete: Complete) -> None:
        self.name = name
        self._substrate, self._complete = substrate, complete

    def prompt(self, parent: Candidate, parent_ms: float, strategy: int) -> str:
        """The text that is sent."""
        name = STRATEGIES[strategy]
        return "\n\n".join(
            (
                f"Task and signature:\n{self._substrate.describe(parent.kernel, parent.size)}",
                f"Machine: {self._substrate.machine}",
                f"This program takes {parent_ms:.4g} ms:\n```\n{parent.source}\n```",
                f"Make it faster by one strategy only, {name.replace('_', ' ')}. {STRATEGY_TEXT[name]}",
                "Keep the signature and the results. Answer with the whole program in one code block.",
            )
        )

    def propose(self, parent: Candidate, parent_ms: float, strategy: int, rng: np.random.Generator) -> Candidate | Failure:
        answer = self._complete(self.prompt(parent, parent_ms, strategy), int(rng.integers(2**31)))
        code = first_code_block(answer)
        if code is None:
            return Failure("no-code", "the answer holds no code block" if answer.strip() else "the answer is empty")
        return self._substrate.written(parent.kernel, parent.size, code)


def first_code_block(answer: str) -> str | None:
    """The text of the first fenced block, None without one.

    >>> first_code_block("Here:\\n```c\\nint x;\\n```\\nor\\n```c\\nint y;\\n```")
    'int x;\\n'
    """
    found = _CODE.search(answer)
    return found[1] if found and found[1].strip() else None


class Endpoint:
    """An OpenAI-compatible chat endpoint. address: up to and without ``/chat/completions``. key: kept here only, never logged or shown."""

    def __init__(self, address: str, model: str, key: str | None, check: Callable[[], None], transport: httpx.BaseTransport | None = None) -> None:
        self.model = model
        self._address, self._key, self._check, self._transport = address.rstrip("/"), key, check, transport

    def __call__(self, prompt: str, seed: int) -> str:
        """The answer's text. Raises InputError when there is none to be had; looks at Stop while it waits."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": TEMPERATURE,
            "max_tokens": ENDPOINT_TOKENS,
            "seed": seed,
        }
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        got: list[httpx.Response | Exception] = []
        with httpx.Client(timeout=REPLY_LIMIT_S, headers=headers, transport=self._transport) as client:

            def ask() -> None:
                try:
                    got.append(client.post(f"{self._address}/chat/completions", json=body))
                except (httpx.HTTPError, RuntimeError) as error:  # RuntimeError: the client was closed by a stop
                    got.append(error)

            asking = threading.Thread(target=ask, name="endpoint", daemon=True)
            asking.start()
            while asking.is_alive():
                self._check()
                asking.join(POLL_S)
        return _content(got[0])


def _content(reply: httpx.Response | Exception) -> str:
    if isinstance(reply, Exception):
        raise InputError("proposer", f"the endpoint cannot be reached ({type(reply).__name__})", "try again, or choose offline")
    if reply.status_code in (401, 403):
        raise InputError("proposer", "the endpoint refuses the key", "type your key on this page, or choose offline")
    if reply.status_code != httpx.codes.OK:
        raise InputError("proposer", f"the endpoint answers with code {reply.status_code}", "try again, or choose offline")
    try:
        content: Any = reply.json()["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError):
        raise InputError("proposer", "the endpoint's answer is not of the chat form", "ask the operator for an OpenAI-compatible endpoint") from None
    return content if isinstance(content, str) else ""


def endpoints(environment: Mapping[str, str] = os.environ) -> list[tuple[str, str]]:
    """The operator's endpoints: (address, model) of each ``address model`` in PLAYABLE_ENDPOINTS, several separated by commas.

    >>> endpoints({"PLAYABLE_ENDPOINTS": "https://a.example/v1 coder-7b, http://10.0.0.2:8000/v1 coder-32b"})
    [('https://a.example/v1', 'coder-7b'), ('http://10.0.0.2:8000/v1', 'coder-32b')]
    """
    found: list[tuple[str, str]] = []
    for part in filter(None, (p.strip() for p in environment.get(ENDPOINTS, "").split(","))):
        address, _, model = part.partition(" ")
        if not address.startswith(("https://", "http://")) or not model.strip():
            raise InputError(
                "proposer", f"the operator's list of endpoints is not readable at its entry {len(found) + 1}", f"write {ENDPOINTS}='address model'"
            )
        found.append((address, model.strip()))
    return found


def endpoint_proposer(substrate: Substrate, context: Context) -> ModelProposer:
    """The operator's first endpoint, with the visitor's key. Raises InputError without a switch or an address."""
    require_switch("proposer")
    known = endpoints()
    if not known:
        raise InputError("proposer", "this host names no endpoint", f"ask the operator to set {ENDPOINTS}, or choose offline")
    address, model = known[0]
    return ModelProposer(model, substrate, Endpoint(address, model, context.secret(KEY), context.check))


def local_proposer(substrate: Substrate, context: Context) -> ModelProposer:
    """The operator's local model, else the one that comes with the lab, which is too small to write much that is right."""
    require_switch("proposer")
    from backends.runtime import language_model

    name = os.environ.get(LOCAL_MODEL) or language_model.DEFAULT

    def complete(prompt: str, seed: int) -> str:
        # The turns of ChatML, which the instruction models of the Qwen and SmolLM families read.
        turns = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
        return language_model.sample(
            name, [turns], models=context.models, max_new=LOCAL_TOKENS, temperature=TEMPERATURE, seed=seed, stop=["<|im_end|>"], check=context.check
        )[0].text

    return ModelProposer(name.removeprefix("bundled:"), substrate, complete)
