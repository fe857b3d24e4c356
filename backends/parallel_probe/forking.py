"""Branches of one model that think side by side and are probed: the cache is forked for the question and cropped after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.parallel_probe.pools import Branch, Pool

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Speech:
    """How a model is spoken to, in its own tokens.

    prompt: what all branches begin with. stop: tokens that end a branch. ask: what a probe appends. answer_tokens: how many are then read, the
    likeliest each time. heard: the answer in these. final: a branch's own answer in all that it wrote. text: words of tokens.
    """

    question: str
    gold: str | None
    prompt: Sequence[int]
    stop: Sequence[int]
    ask: Sequence[int]
    answer_tokens: int
    heard: Callable[[list[int]], str]
    final: Callable[[list[int]], str]
    text: Callable[[list[int]], str]


@dataclass
class Thinking:
    """Branches as they grow.

    ids: (N, longest) what each has written after the prompt. tokens: (N,) how much that is. done: (N,) whether it ended. probes: what each
    answered when it was probed, one list a branch. finals: the own answer of each that ended, else None.
    """

    speech: Speech
    interval: int
    ids: np.ndarray
    tokens: np.ndarray
    done: np.ndarray
    probes: list[list[str]]
    finals: list[str | None] = field(default_factory=list)

    def text(self, branch: int) -> str:
        """What a branch has written."""
        return self.speech.text(self.ids[branch, : self.tokens[branch]].tolist())

    def pool(self) -> Pool:
        """What is there as a pool. Raises ValueError while a branch still thinks."""
        if not self.done.all():
            raise ValueError(f"{int((~self.done).sum())} branches still think")
        return self._pool()

    def so_far(self) -> Pool:
        """The same while branches think; such a one stands with its last answer as its own. Holds for columns that are there, not beyond."""
        return self._pool()

    def _pool(self) -> Pool:
        own = [probes[-1] if final is None else final for probes, final in zip(self.probes, self.finals, strict=True)]
        branches = zip(self.probes, self.tokens, own, strict=True)
        return Pool(tuple(Branch(tuple(p), int(n), f) for p, n, f in branches), self.interval, self.speech.gold, self.speech.question)


def think(
    model: Any,
    speech: Speech,
    branches: int,
    interval: int,
    temperature: float,
    longest: int,
    generator: torch.Generator,
    check: Callable[[], None] = lambda: None,
) -> Iterator[Thinking]:
    """Lets all branches think side by side and probes each every ``interval`` tokens; yields the growing state after each probe.

    model: of transformers, causal. A probe reads ``ask`` and the answer behind the branch's untouched prefix and forgets both: the cache is
    cropped, and the branch goes on as if it had never been asked. One that has not ended after ``longest`` tokens gives a probe's answer as
    its own. check: called before each token. Raises ValueError: branches, interval or longest below 1, a temperature that is not positive.
    """
    import torch
    from transformers import DynamicCache

    for name, value in (("branches", branches), ("interval", interval), ("longest", longest), ("temperature", temperature)):
        if value <= 0:
            raise ValueError(f"{name} is {value}; it must be positive")
    device = generator.device
    state = Thinking(
        speech,
        interval,
        np.zeros((branches, longest), int),
        np.zeros(branches, int),
        np.zeros(branches, bool),
        [[] for _ in range(branches)],
        [None] * branches,
    )
    stop, rows = np.array(speech.stop), np.arange(branches)  # rows: which branch each row of the cache belongs to
    with torch.inference_mode():
        cache = DynamicCache(config=model.config)
        prompt = torch.tensor([list(speech.prompt)], device=device).expand(branches, -1)
        logits = model(prompt, cache=cache).logits[:, -1]
        for written in range(longest):
            check()
            drawn = torch.multinomial(torch.softmax(logits.float() / temperature, -1), 1, generator=generator)
            new = drawn[:, 0].cpu().numpy()
            ended = np.isin(new, stop)
            state.ids[rows[~ended], written] = new[~ended]
            state.tokens[rows[~ended]] += 1
            if ended.any():
                _end(state, rows[ended], [speech.final(state.ids[row, : state.tokens[row]].tolist()) for row in rows[ended]])
                staying = np.flatnonzero(~ended)
                rows, drawn = rows[staying], drawn[staying]
                if not rows.size:
                    break
                cache.batch_select_indices(torch.from_numpy(staying).to(device))
            logits = model(drawn, cache=cache).logits[:, -1]
            is_last = written + 1 == longest
            if (written + 1) % interval == 0 or is_last:
                answers = _probe(model, cache, speech, len(rows), device)
                if (written + 1) % interval == 0:
                    for row, answer in zip(rows, answers, strict=True):
                        state.probes[row].append(answer)
                if is_last:
                    _end(state, rows, answers)
                yield state
    if not rows.size:
        yield state


def _end(state: Thinking, rows: np.ndarray, answers: list[str]) -> None:
    state.done[rows] = True
    for row, answer in zip(rows, answers, strict=True):
        state.finals[row] = answer


def _probe(model: Any, cache: Any, speech: Speech, rows: int, device: Any) -> list[str]:
    """What each row answers now; the cache is afterwards as it was."""
    import torch

    ask = torch.tensor([list(speech.ask)], device=device).expand(rows, -1)
    logits = model(ask, cache=cache).logits[:, -1]
    read = len(speech.ask)
    said = [logits.argmax(-1, keepdim=True)]
    while len(said) < speech.answer_tokens:
        logits = model(said[-1], cache=cache).logits[:, -1]
        said.append(logits.argmax(-1, keepdim=True))
        read += 1
    cache.crop(-read)
    return [speech.heard(one) for one in torch.cat(said, 1).tolist()]
