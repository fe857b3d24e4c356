"""Children written by a language model: an OpenAI-compatible endpoint of the operator, or a local model (section 5 of the card).

What a model or a person writes is arbitrary code, and it runs. It does so only where the operator has set the switch, and never on a
hosted Space.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from backends.contract import Context, InputError
from backends.kernelband.substrate import STRATEGIES, Candidate, Failure, Substrate
from backends.runtime import endpoints, language_model

SWITCH = "PLAYABLE_RUN_WRITTEN_CODE"
HOSTED = "SPACE_ID"  # set by the host of a Space

TEMPERATURE = 1.0
ENDPOINT_TOKENS, LOCAL_TOKENS = 16384, 1024
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


def allowed(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether written code may run here: the operator's switch is set, and this is no hosted Space."""
    return not environment.get(HOSTED) and environment.get(SWITCH) == "1"


def require_switch(field: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raises InputError for this field unless written code may run here."""
    if environment.get(HOSTED):
        raise InputError(field, "code that a model or a person writes is not run on a hosted Space", "install the lab on your own machine, or choose offline")
    if not allowed(environment):
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


def endpoint_proposer(substrate: Substrate, context: Context) -> ModelProposer:
    """The operator's first endpoint with an address, and the visitor's key. Raises InputError without a switch or an address."""
    require_switch("proposer")
    endpoint = next((e for e in endpoints.configured("proposer").values() if e.url), None)
    if endpoint is None:
        raise InputError("proposer", "this host names no endpoint", f"ask the operator to set {endpoints.VARIABLE}, or choose offline")
    key = context.secret(endpoints.KEY)

    def complete(prompt: str, seed: int) -> str:
        return endpoints.chat(
            endpoint, [prompt], field="proposer", key=key, max_new=ENDPOINT_TOKENS, temperature=TEMPERATURE, seed=seed, check=context.check
        )[0]

    return ModelProposer(endpoint.model, substrate, complete)


def local_proposer(substrate: Substrate, context: Context) -> ModelProposer:
    """The operator's first model without an address, else the one that comes with the lab, which is too small to write much that is right."""
    require_switch("proposer")
    named = (e.model for e in endpoints.configured("proposer").values() if not e.url)
    name = next(named, language_model.DEFAULT)

    def complete(prompt: str, seed: int) -> str:
        decoder = language_model.load(context.models, name, context.device)
        turns = [decoder.in_turns(prompt)]
        found = language_model.sample(
            decoder, turns, models=context.models, max_new=LOCAL_TOKENS, temperature=TEMPERATURE, seed=seed, stop=["<|im_end|>"], check=context.check
        )
        return found[0].text

    return ModelProposer(name.removeprefix("bundled:"), substrate, complete)
