"""The person's own code task: a request in words, calls to try, and functions that were pasted or that a model wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from backends.contract import Context, InputError
from backends.runtime import endpoints, language_model
from backends.runtime.endpoints import Endpoint
from backends.runtime.models import Models
from backends.runtime.sandbox import SHARED, BadCall, Outcome
from backends.tai.candidates import FEWEST, REQUEST_LIMIT, Arrive, Candidates, Nuisance
from backends.tai.card import EXAMPLE_REQUEST, Params
from backends.tai.tasks import code, grammar

Check = Callable[[], None]

FIELD = "candidate_sources"  # empty: a model writes them

MOST_PASTED = 40
MOST_SAMPLED = 96
MOST_PROBES = 60
MOST_TOKENS = 400  # of one function that a model writes
CAPTION_CHARS = 70
PASTE = f"paste {FEWEST} to {MOST_PASTED} Python functions"


class Sampler(Protocol):
    """What writes candidate functions for a request."""

    @property
    def model(self) -> str:
        """Its name in words."""

    def sample(self, request: str, calls: Sequence[str], count: int, rng: np.random.Generator, check: Check) -> list[str]:
        """``count`` independent sources; raises InputError when it cannot."""


@dataclass(frozen=True, slots=True)
class GrammarSampler:
    """The grammar of the code task; it knows one request."""

    model: str = "grammar of the code task"

    def sample(self, request: str, calls: Sequence[str], count: int, rng: np.random.Generator, check: Check) -> list[str]:
        if request.strip() != code.REQUEST:
            raise InputError(FIELD, "no function was given, and this host has no model that writes one", PASTE)
        prior = np.full(len(code.INTENTS), 1 / len(code.INTENTS))
        drawn = grammar.draw(rng, count, prior, code.STYLES, 0.0, 1)
        return [code.source(code.INTENTS[i], style) for i, style in zip(drawn.intents, drawn.styles, strict=True)]


@dataclass(frozen=True, slots=True)
class TransformersSampler:
    """A model of the Hugging Face hub on this host."""

    name: str
    models: Models
    device: str

    @property
    def model(self) -> str:
        return f"{self.name} on this host"

    def sample(self, request: str, calls: Sequence[str], count: int, rng: np.random.Generator, check: Check) -> list[str]:
        decoder = language_model.load(self.models, self.name, self.device)
        found = language_model.sample(
            decoder,
            [decoder.in_turns(prompt(request, calls))] * count,
            models=self.models,
            max_new=MOST_TOKENS,
            temperature=1.0,
            seed=int(rng.integers(2**31)),
            check=check,
            engine="transformers",
        )
        return [extract(sample.text) for sample in found]


@dataclass(frozen=True, slots=True)
class EndpointSampler:
    """An OpenAI-compatible endpoint that the operator named; the key is the visitor's or the host's."""

    endpoint: Endpoint
    key: str | None = None

    @property
    def model(self) -> str:
        return f"{self.endpoint.model} at the endpoint {self.endpoint.name}"

    def sample(self, request: str, calls: Sequence[str], count: int, rng: np.random.Generator, check: Check) -> list[str]:
        seed = int(rng.integers(2**31 - count))
        texts = endpoints.chat(self.endpoint, [prompt(request, calls)] * count, field=FIELD, key=self.key, max_new=MOST_TOKENS, seed=seed, check=check)
        return [extract(text) for text in texts]


def host_sampler(models: Models, device: str, key: str | None = None) -> Sampler:
    """What writes functions on this host: the operator's first endpoint, at its address or on this host; else the grammar."""
    for endpoint in endpoints.configured(FIELD).values():
        return EndpointSampler(endpoint, key) if endpoint.url else TransformersSampler(endpoint.model, models, device)
    return GrammarSampler()


def prompt(request: str, calls: Sequence[str]) -> str:
    """What a model is asked. The expected results are left out: they are what the dialogue asks the person."""
    shown = "\n".join(f"f({call})" for call in calls[:3])
    return f"{request}\n\nIt is called like this:\n{shown}\n\nAnswer with one complete Python function named f, in one code block, and nothing else."


def extract(text: str) -> str:
    """The code of a model's answer: its first fenced block, or all of it.

    >>> extract("Here:\\n```python\\ndef f(x):\\n    return x\\n```\\nIt returns x.")
    'def f(x):\\n    return x'
    """
    found = re.search(r"```\w*\n(.*?)(?:```|\Z)", text, re.DOTALL)
    return (found.group(1) if found else text).strip()


def split_sources(text: str) -> list[str]:
    """The functions of a pasted text: between lines of three or more dashes, or else one for each top-level ``def``.

    Without dashes a function takes the lines before it, and every function takes the imports at the top.

    >>> split_sources("import math\\ndef f(x):\\n    return 1\\ndef g(x):\\n    return 2")
    ['import math\\ndef f(x):\\n    return 1', 'import math\\ndef g(x):\\n    return 2']
    """
    if re.search(r"^#? ?-{3,}\s*$", text, re.MULTILINE):
        return [part.strip("\n") for part in re.split(r"^#? ?-{3,}\s*$", text, flags=re.MULTILINE) if part.strip()]
    parts: list[list[str]] = [[]]
    for line in text.splitlines():
        begins = bool(re.match(r"[^\s)\]}]", line))
        if begins and any(previous.startswith("def ") for previous in parts[-1]):
            parts.append([])
        parts[-1].append(line)
    top = [line for line in parts[0] if re.match(r"(import|from) ", line)]
    whole = ["\n".join(part if number == 0 else [*top, *part]).strip("\n") for number, part in enumerate(parts)]
    return [part for part in whole if part.strip()]


def split_probes(text: str) -> list[str]:
    """Argument lists, one a line, with or without the name of a function around them. Raises InputError: none, or too many.

    >>> split_probes("f([3, 1], 2)\\n\\n[], item=1")
    ['[3, 1], 2', '[], item=1']
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not 1 <= len(lines) <= MOST_PROBES:
        raise InputError("probes", f"there are {len(lines)} calls", f"write 1 to {MOST_PROBES}, one a line, such as f([3, 1], 2)")
    found = [re.fullmatch(r"(?!set\()[A-Za-z_]\w*\((.*)\)", line) for line in lines]
    return [match.group(1).strip() if match else line for match, line in zip(found, lines, strict=True)]


class OwnTask:
    """Pasted functions, or where there are none, functions that the sampler writes; each is executed on the person's calls."""

    redraws = False  # what was pasted is all there is, and a model takes longer than a turn may

    def __init__(self, *, request: str, probes: str, sources: str, sampler: Sampler, check: Check = lambda: None) -> None:
        """Raises InputError for what was written into one of the fields."""
        if not request.strip() or len(request) > REQUEST_LIMIT:
            raise InputError("request", f"the request has {len(request.strip()):,} characters", f"write 1 to {REQUEST_LIMIT:,}")
        self.request, self.calls, self.sampler, self.check = request, split_probes(probes), sampler, check
        self.pasted = split_sources(sources)
        if self.pasted and not FEWEST <= len(self.pasted) <= MOST_PASTED:
            raise InputError(FIELD, f"there are {len(self.pasted)} functions", PASTE)
        SHARED.prepare()

    def draw(self, count: int, rng: np.random.Generator, arrive: Arrive = lambda done, caption: None) -> Candidates:
        sources = self.pasted or self.sampler.sample(self.request, self.calls, min(count, MOST_SAMPLED), rng, self.check)
        try:
            rows = SHARED.run(sources, self.calls, check=self.check)
        except BadCall as error:
            number, problem = error.args
            raise InputError("probes", f"{self.calls[number][:60]}: {problem}", "write calls with plain values, such as f([3, 1], 2)") from None
        failed = np.array([not any(outcome.kind == "value" for outcome in row) for row in rows])
        if failed.all():
            raise InputError(FIELD, f"no function gives a result; the first one: {rows[0][0]}", "give functions that run with these calls")
        texts = [[code.readable(outcome) for outcome in row] for row in rows]
        probes, codes = grammar.coded(code.questions(self.calls), texts)
        captions = describe(self.calls, texts, codes)
        for number, caption in enumerate(captions, 1):
            arrive(number, caption)
        values, names = features(self.calls, rows, texts)
        split = float((codes != codes[:1]).any(0).mean())
        return Candidates(
            request=self.request,
            shown=tuple({"kind": "source", "source": source} for source in sources),
            captions=captions,
            texts=tuple(sources),
            probes=probes,
            codes=codes,
            distance=code.mismatch(codes),
            resolution=1 / len(self.calls),
            nuisance=styles(sources),
            features=values,
            feature_names=names,
            intents=None,
            intent_names=(),
            quirk=np.zeros(len(sources), dtype=bool),
            failed=failed,
            axis_coverage={"what the functions give": split},
            model="pasted functions" if self.pasted else self.sampler.model,
            data=f"{len(self.calls)} calls of the person, run in the sandbox",
            notes=tuple(f"function {number} fails on every call: {rows[number - 1][0]}" for number in np.flatnonzero(failed) + 1),
        )


def describe(calls: Sequence[str], texts: Sequence[Sequence[str]], codes: np.ndarray) -> tuple[str, ...]:
    """One line a candidate: what it gives for the two calls on which the candidates agree least."""
    agreement = np.array([np.square(np.bincount(column) / len(column)).sum() for column in codes.T])
    telling = np.argsort(agreement, kind="stable")[:2]
    lines = ["; ".join(f"f({calls[p]}) gives {row[p]}" for p in telling) for row in texts]
    return tuple(line if len(line) <= CAPTION_CHARS else line[: CAPTION_CHARS - 3] + "..." for line in lines)


KINDS = {  # the first pattern that fits says what the literal is
    "gives None": r"None",
    "gives True or False": r"True|False",
    "gives a number": r"-?[\d.]+(e[+-]?\d+)?|-?inf|nan|\(?-?[\d.][^,]*j\)?",
    "gives text": r"b?['\"].*",
    "gives a collection": r"[\[({].*|(set|frozenset)\(.*",
}


def features(calls: Sequence[str], rows: Sequence[Sequence[Outcome]], texts: Sequence[Sequence[str]]) -> tuple[np.ndarray, tuple[str, ...]]:
    """(N, F) and F names: shares of the calls by kind of result, and for each call whether the result is the commonest one."""
    named = (*KINDS, "raises an error")
    kinds = [[[kind == name for name in named] for kind in map(_kind, row)] for row in rows]
    commonest = [max(dict.fromkeys(column), key=list(column).count) for column in zip(*texts, strict=True)]
    common = [[float(text == usual) for text, usual in zip(row, commonest, strict=True)] for row in texts]
    names = (*named, *(f"f({call}) gives {usual}" for call, usual in zip(calls, commonest, strict=True)))
    return np.column_stack([np.mean(kinds, axis=1), common]), names


def _kind(outcome: Outcome) -> str | None:
    if outcome.kind == "value":
        return next((name for name, pattern in KINDS.items() if re.fullmatch(pattern, outcome.text, re.DOTALL)), None)
    return "raises an error" if outcome.kind == "exception" else None


def styles(sources: Sequence[str]) -> tuple[Nuisance, ...]:
    """Matters of style that the texts show; read by patterns, because nobody parses a stranger's source in this process."""
    loops = [0 if re.search(r"^\s*while\b", s, re.M) else 1 if re.search(r"^\s*for\b", s, re.M) else 2 for s in sources]
    documented = [int(bool(re.search(r'^\s+("""|\'\'\')', s, re.M))) for s in sources]
    hinted = [int(bool(re.search(r"def \w+\(.*(->|\w: ?\w)", s))) for s in sources]
    axes = (
        ("Which form of loop do you prefer?", ("while", "for", "no loop statement"), loops),
        ("Should the function have a docstring?", ("no docstring", "a docstring"), documented),
        ("Should the arguments have type hints?", ("no type hints", "type hints"), hinted),
    )
    return tuple(Nuisance(question, labels, np.array(codes)) for question, labels, codes in axes)


def open_task(params: Params, context: Context) -> OwnTask:
    """The task of these params. Raises InputError for what was written into one of the fields."""
    request = params.request.strip() or EXAMPLE_REQUEST
    sampler = host_sampler(context.models, context.device, context.secret(endpoints.KEY))
    return OwnTask(request=request, probes=params.probes, sources=params.candidate_sources, sampler=sampler, check=context.check)
