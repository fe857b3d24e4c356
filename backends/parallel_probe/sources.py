"""Where branches come from: the tiny reasoner, a real model, the generator, a file; all give pools."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from backends.contract import Context, InputError
from backends.parallel_probe import expressions, generator, pools, reasoner, thinking
from backends.parallel_probe.card import TINY, Params
from backends.parallel_probe.controller import PRUNE, STABLE, WARM_UP, Setting
from backends.parallel_probe.forking import Speech, Thinking, think
from backends.parallel_probe.peers import SAC_REPEATS
from backends.parallel_probe.pools import Pool
from backends.runtime import device, language_model

REPLAYS = 10  # of a file with more branches than are asked for
SHORTEST_INTERVAL = 50  # tokens, of synthetic branches: a question then has up to 830 columns
THINKING_TOKENS = 5_120  # of a real model's branch, as in the published pools


@dataclass(frozen=True, slots=True)
class Defaults:
    """What "auto" means. interval: tokens. repeats: of the branches that stop by themselves. grid: u, k and W of the frontier."""

    interval: int
    stable: int
    prune: int
    warmup: int
    repeats: int
    grid: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

    def setting(self, params: Params) -> Setting:
        """The controller's setting of these params."""
        stable, prune, warmup = (
            own if given == "auto" else None if given == "off" else given
            for given, own in ((params.stable, self.stable), (params.prune, self.prune), (params.warmup, self.warmup))
        )
        return stable, prune, 0 if warmup is None else warmup


SHORT = Defaults(16, 8, 4, 4, 3, ((2, 4, 8), (2, 4, 8), (0, 4, 8)))  # scaled to thoughts of a few hundred characters
LONG = Defaults(generator.INTERVAL_TOKENS, STABLE, PRUNE, WARM_UP, SAC_REPEATS, ((10, 20, 40), (4, 7, 12), (0, 8, 15)))


@dataclass(frozen=True, slots=True)
class Thought:
    """A pool and, where there is a text, what each branch wrote between its probes: pieces[branch][probe]."""

    pool: Pool
    pieces: list[list[str]]


class Source:
    """One place that branches come from. defaults: what "auto" means. interval: tokens between probes. questions: how many there are.

    longest: tokens at which a branch that is being written ends at the latest.
    """

    defaults = LONG
    longest = generator.CAP_TOKENS

    def __init__(self, params: Params, context: Context) -> None:
        self.params, self.context = params, context
        self.interval = self.defaults.interval if params.interval == "auto" else params.interval
        self.questions = params.questions

    def stream(self, number: int) -> Iterator[Thought]:
        """The thought of a question as it grows, each time whole; yields nothing where the pool is there at once."""
        yield from ()

    def thoughts(self, number: int) -> list[Thought]:
        """The replays of a question: one, or several of a pool with more branches than are asked for."""
        raise NotImplementedError

    def made_by(self) -> dict[str, str]:
        """What makes the branches, in words."""
        raise NotImplementedError

    def size(self) -> str:
        questions = f"{self.questions} question{'s' * (self.questions != 1)}"
        return f"{questions}, {self.params.branches} branches, a probe every {self.interval} tokens"


class Living(Source):
    """Branches that a model writes now."""

    model: Any
    words: str

    def speech(self, number: int) -> Speech:
        raise NotImplementedError

    def question(self, number: int) -> str:
        """What is asked: the person's own question each time, or one drawn for each number."""
        return self.params.question.strip() or expressions.expression(self.params.leaves, np.random.default_rng([self.params.seed, number]))

    def thinking(self, number: int) -> Iterator[Thinking]:
        import torch

        if self.interval > self.longest:
            raise InputError("interval", f"branches end after {self.longest} tokens, so they would never be probed", f"choose at most {self.longest}")
        params, generator = self.params, torch.Generator(self.context.device if params_on_device(self.params) else "cpu")
        generator.manual_seed(int(np.random.SeedSequence([params.seed, number]).generate_state(1)[0]))
        yield from think(self.model, self.speech(number), params.branches, self.interval, params.temperature, self.longest, generator, self.context.check)

    def stream(self, number: int) -> Iterator[Thought]:
        for state in self.thinking(number):
            yield Thought(state.so_far(), _pieces(state))
        self._store(number, lambda: Thought(state.pool(), _pieces(state)))

    def thoughts(self, number: int) -> list[Thought]:
        def make() -> Thought:
            state = deque(self.thinking(number), maxlen=1).pop()
            return Thought(state.pool(), _pieces(state))

        return [self._store(number, make)]

    def _store(self, number: int, make: Any) -> Thought:
        params = self.params
        key = (params.model, self.question(number), number, params.branches, self.interval, params.temperature, self.longest, params.seed)
        thought: Thought = self.context.memo("thought", key, make)
        return thought

    def made_by(self) -> dict[str, str]:
        on = device.describe() if self.context.device == "cpu" or not params_on_device(self.params) else self.context.device
        asked = "a typed question" if self.params.question.strip() else f"drawn expressions of {self.params.leaves} digits"
        return {"model": self.words, "data": asked, "size": self.size(), "device": on}


def params_on_device(params: Params) -> bool:
    """The tiny reasoner is faster on a CPU; a real model takes the host's device."""
    return params.model != TINY


class Reasoner(Living):
    """The tiny network of this lab, or a real model in its place."""

    defaults = SHORT

    def __init__(self, params: Params, context: Context) -> None:
        super().__init__(params, context)
        self.longest = expressions.BLOCK_TOKENS if params.longest == "auto" else params.longest
        if self.longest > expressions.BLOCK_TOKENS:
            raise InputError("longest", f"the tiny reasoner was trained on {expressions.BLOCK_TOKENS} characters", f"choose at most {expressions.BLOCK_TOKENS}")
        self.model = context.models.load("parallel-probe reasoner", lambda say: reasoner.load())
        self.words = f"tiny reasoner of this lab, {reasoner.parameters() / 1e6:.2f} M parameters"

    def speech(self, number: int) -> Speech:
        try:
            return reasoner.speech(self.question(number))
        except ValueError as error:
            raise InputError("question", str(error), "type such an expression, or leave it empty") from None


class RealModel(Living):
    """A language model of the host."""

    def __init__(self, params: Params, context: Context) -> None:
        super().__init__(params, context)
        self.longest = THINKING_TOKENS if params.longest == "auto" else params.longest
        thinking.refuse_slow(params.branches, self.longest, context.device)
        self.decoder = language_model.load(context.models, params.model, context.device)
        self.model, self.words = self.decoder.model, self.decoder.description

    def speech(self, number: int) -> Speech:
        question = self.question(number)
        try:
            gold: str | None = str(expressions.value(question))
        except ValueError:
            return thinking.speech(self.decoder, question, None)
        return thinking.speech(self.decoder, f"Work out {question} modulo 10, as one digit from 0 to 9.", gold)


class Synthetic(Source):
    """Pools of the generator."""

    def __init__(self, params: Params, context: Context) -> None:
        super().__init__(params, context)
        if self.interval < SHORTEST_INTERVAL:
            raise InputError("interval", "synthetic branches have thousands of tokens", f"choose at least {SHORTEST_INTERVAL}")

    def thoughts(self, number: int) -> list[Thought]:
        params = self.params
        hard = None if params.difficulty == "drawn" else params.difficulty
        rng = np.random.default_rng([params.seed, number])
        return [Thought(generator.pool(rng, params.branches, hard, interval=self.interval), [])]

    def made_by(self) -> dict[str, str]:
        return {"model": "none: synthetic branches", "data": "a generator set to published statistics", "size": self.size(), "device": device.describe()}


class File(Source):
    """Pools of a person's file; without one the worked trace, where so few branches are asked for."""

    def __init__(self, params: Params, context: Context) -> None:
        super().__init__(params, context)
        if params.pool is None and params.branches > len(pools.TRACE):
            remedy = f"choose a file, or set branches to {len(pools.TRACE)} for the worked trace"
            raise InputError("pool", "no file is chosen", remedy)
        found = [pools.TRACE] if params.pool is None else pools.read(params.pool.read("pool"))
        self.pools = [self._checked(pool) for pool in found[: params.questions]]
        self.questions, self.interval = len(self.pools), self.pools[0].interval

    def _checked(self, pool: Pool) -> Pool:
        if len(pool) < self.params.branches:
            remedy = f"lower branches to {len(pool)}"
            raise InputError("branches", f"{self.params.branches} are asked for, the pool has {len(pool)}", remedy)
        if self.params.interval == "auto":
            return pool
        try:
            return pool.every(self.params.interval)
        except ValueError as error:
            raise InputError("interval", str(error), f"choose a multiple of {pool.interval}") from None

    def thoughts(self, number: int) -> list[Thought]:
        return [Thought(pool, []) for pool in pools.replays(self.pools[number], self.params.branches, REPLAYS, self.params.seed)]

    def made_by(self) -> dict[str, str]:
        given = self.params.pool
        return {
            "model": "unknown: a pool that was written before",
            "data": "the worked trace" if given is None else given.name,
            "size": self.size(),
            "device": device.describe(),
        }


def _pieces(state: Thinking) -> list[list[str]]:
    """What each branch wrote between its probes, the last piece behind its last one."""
    cuts = range(0, int(state.tokens.max()) + 1, state.interval)
    return [
        [state.speech.text(state.ids[row, start : min(start + state.interval, tokens)].tolist()) for start in cuts if start < tokens]
        for row, tokens in enumerate(state.tokens)
    ]


def source_of(params: Params, context: Context) -> Source:
    """The source that the params name. Raises InputError where it cannot give what they ask."""
    if params.source == "reasoner":
        return Reasoner(params, context) if params.model == TINY else RealModel(params, context)
    return Synthetic(params, context) if params.source == "synthetic" else File(params, context)
