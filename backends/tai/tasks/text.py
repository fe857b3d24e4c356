"""Text: short answers of a small language model to an ambiguous request, embedded as vectors; the clusters are "embedding clusters".

A sentence cannot be executed: what it does is the direction of its embedding, and its probes are the words it uses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from backends.contract import Context
from backends.runtime import device, embeddings, language_model
from backends.runtime.models import Models
from backends.tai.candidates import Arrive, Candidates, Nuisance, Probe
from backends.tai.card import TEXT_LIMIT, Params
from backends.tai.distances import angles

REQUEST = "What is Mercury?"
PROMPT = "<|im_start|>user\n{request}<|im_end|>\n<|im_start|>assistant\n"
TOKENS = 40
TEMPERATURE = 1.0
WORDS = 40  # that can be asked about
SAME = 1e-3  # of the angle over pi: embeddings nearer than this are rounding
CAPTION = 60
_WORD = re.compile(r"[a-z]{4,}")


class TextTask:
    """Answers of SmolLM2-135M-Instruct; they are few and slow, so there is one draw."""

    redraws = False

    def __init__(self, request: str, models: Models, seed: int, check: Callable[[], None]) -> None:
        self.request, self.models, self.seed, self.check = request or REQUEST, models, seed, check

    def draw(self, count: int, rng: np.random.Generator, arrive: Arrive = lambda done, caption: None) -> Candidates:
        count = min(count, TEXT_LIMIT)
        encoder = embeddings.load(self.models, device=device.default())
        texts: list[str] = []
        for number in range(count):  # one by one, so that each can be shown when it is there
            text = language_model.sample(
                language_model.DEFAULT,
                [PROMPT.format(request=self.request)],
                models=self.models,
                max_new=TOKENS,
                temperature=TEMPERATURE,
                seed=int(rng.integers(2**31)),
                stop=["<|im_end|>", "\n"],
                check=self.check,
            )[0].text.strip()
            texts.append(text or "(nothing)")
            arrive(number + 1, shortened(text))
        vectors = encoder.encode(texts, self.check).astype(float)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        words = telling_words(texts)
        has = np.array([[word in _WORD.findall(text.lower()) for word in words] for text in texts], dtype=int).reshape(count, len(words))
        return Candidates(
            request=self.request,
            shown=tuple({"kind": "text", "text": text} for text in texts),
            captions=tuple(shortened(text) for text in texts),
            texts=tuple(texts),
            probes=tuple(
                Probe(f"Should the sentence speak of \u201c{w}\u201d?", f"Should the sentence speak of \u201c{w}\u201d: {{outcome}}?", ("no", "yes"))
                for w in words
            ),
            codes=has,
            distance=angles(vectors),
            resolution=SAME,
            nuisance=(_length(texts), _ending(texts)),
            features=has.astype(float),
            feature_names=tuple(f"\u201c{w}\u201d" for w in words),
            intents=None,
            intent_names=(),
            quirk=np.zeros(count, dtype=bool),
            failed=np.array([text == "(nothing)" for text in texts]),
            axis_coverage={},
            model=f"SmolLM2-135M-Instruct, temperature {TEMPERATURE:g}, {TOKENS} tokens; {encoder.description}",
            data="the request",
            notes=("embedding clusters: the distance is the angle between sentence vectors, nothing was executed",),
        )


def open_task(params: Params, context: Context) -> TextTask:
    """The task of these params."""
    return TextTask(params.request.strip(), context.models, params.seed, context.check)


def shortened(text: str) -> str:
    """The first words of a sentence, at most 60 characters.

    >>> shortened("A bank holds money.")
    'A bank holds money.'
    """
    line = " ".join(text.split())
    return line if len(line) <= CAPTION else line[: CAPTION - 3].rsplit(" ", 1)[0] + "..."


def telling_words(texts: Sequence[str]) -> list[str]:
    """Words of four letters or more that some but not all texts use, most even split first, at most 40.

    >>> telling_words(["river water", "river money", "money"])
    ['money', 'river', 'water']
    """
    counts = Counter(word for text in texts for word in set(_WORD.findall(text.lower())))
    split = {word: min(n, len(texts) - n) for word, n in counts.items() if 0 < n < len(texts)}
    return sorted(split, key=lambda word: (-split[word], word))[:WORDS]


def _length(texts: Sequence[str]) -> Nuisance:
    lengths = np.array([len(text.split()) for text in texts])
    return Nuisance("How long should the sentence be?", ("short", "long"), (lengths > np.median(lengths)).astype(int))


def _ending(texts: Sequence[str]) -> Nuisance:
    return Nuisance("Should it begin with an article?", ("no", "yes"), np.array([int(text.lower().startswith(("a ", "an ", "the "))) for text in texts]))
