"""Questions that could be asked now: probes, separating hyperplanes, and matters of style (section 4.5 of the method's card).

Style questions tell nothing about the intent. They are in the pool on purpose, so that a rule that cannot see it asks them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from backends.tai.candidates import Candidates
from backends.tai.separators import MergeTree, bipartitions, hyperplanes, merge_tree

Source = Literal["probe", "hyperplane", "style"]
OPTIONS_LIMIT = 5  # buttons; rarer outcomes share the last one
OTHER = "another result"
ID_LENGTH = 12
FEATURES_NAMED = 2


@dataclass(frozen=True, eq=False)
class Question:
    """One question and what each candidate of a draw implies.

    text, options: as a person reads them. answers (N,): option of each candidate, -1 where none fits. source: where it comes from.
    axis: the probe or the nuisance axis it asks about, -1 for a hyperplane. names: the outcomes or labels behind the options (the
    last one stands for all others where ``rest``). normal (F,), offset: of a hyperplane; candidates[k]: the one that shows option k.
    """

    source: Source
    text: str
    options: tuple[str, ...]
    answers: np.ndarray
    axis: int = -1
    names: tuple[tuple[str, ...], ...] = ()
    rest: bool = False
    normal: np.ndarray | None = None
    offset: float = 0.0
    medoids: tuple[int, ...] = ()

    @cached_property
    def id(self) -> str:
        """Hash of what is asked: the same question has the same id in every run, whatever its place in the pool."""
        return content_id(self.text, *self.options)

    @cached_property
    def option_ids(self) -> tuple[str, ...]:
        return tuple(content_id(self.text, option) for option in self.options)

    @property
    def n_options(self) -> int:
        return len(self.options)

    @cached_property
    def cost(self) -> float:
        """What it takes to read: hundreds of characters, and options beyond two."""
        return (len(self.text) + sum(map(len, self.options))) / 100 + self.n_options - 2

    def answers_of(self, candidates: Candidates) -> np.ndarray:
        """What the candidates of another draw of the same task imply, (N,); -1 where none of the options fits."""
        if self.source == "hyperplane":
            return (candidates.features @ self.normal + self.offset <= 0).astype(int)  # option 0 is the positive side
        if self.source == "probe":
            outcomes, codes = candidates.probes[self.axis].outcomes, candidates.codes[:, self.axis]
        else:
            outcomes, codes = candidates.nuisance[self.axis].labels, candidates.nuisance[self.axis].codes
        return _option_of(outcomes, self.names, self.rest)[codes]

    def to_dict(self) -> dict[str, Any]:
        """For the page and for HTTP clients."""
        medoids = self.medoids or (None,) * self.n_options
        options = [{"id": i, "text": t, "candidate": m} for i, t, m in zip(self.option_ids, self.options, medoids, strict=True)]
        return {"id": self.id, "text": self.text, "source": self.source, "options": options}


def content_id(*parts: str) -> str:
    """Twelve hexadecimal digits of the SHA-256 of the texts.

    >>> content_id("a", "b") != content_id("ab")
    True
    """
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:ID_LENGTH]


def _option_of(outcomes: Sequence[str], names: Sequence[tuple[str, ...]], rest: bool) -> np.ndarray:
    """(codes,) option behind each outcome; what is named nowhere belongs to the last option where it takes the rest, else to none."""
    option = {name: number for number, group in enumerate(names) for name in group}
    missing = len(names) - 1 if rest else -1
    return np.array([option.get(outcome, missing) for outcome in outcomes], dtype=int)


def open_questions(candidates: Candidates, weights: np.ndarray, living: np.ndarray, struck: Collection[str] = ()) -> list[Question]:
    """The open question about each probe that parts the living candidates (N,) bool.

    Probes that part them the same way are told apart by nothing: only the first whose question is not struck is asked.
    """
    if not candidates.probes:
        return []
    found: dict[bytes, Question] = {}
    for axis, row in enumerate(canonical(candidates.codes[living].T)):
        key = row.tobytes()
        if not row.any() or key in found:
            continue
        probe, codes = candidates.probes[axis], candidates.codes[:, axis]
        mass = np.bincount(codes[living], weights[living], len(probe.outcomes))
        question = _open(probe.question, probe.outcomes, codes, np.unique(codes[living]), mass, axis, "probe")
        if question.id not in struck:
            found[key] = question
    return list(found.values())


def yes_no_questions(candidates: Candidates) -> list[Question]:
    """For every outcome of every probe, whether it should come of it; by probe, then by outcome."""
    return [
        _yes_no(probe.ask(code), probe.outcomes, candidates.codes[:, axis], code, axis, "probe")
        for axis, probe in enumerate(candidates.probes)
        for code in range(len(probe.outcomes))
    ]


def style_questions(candidates: Candidates, weights: np.ndarray, living: np.ndarray, binary: bool) -> list[Question]:
    """For each nuisance axis its question, as one of at most five options or as yes/no versions (``binary``)."""
    found: list[Question] = []
    for axis, nuisance in enumerate(candidates.nuisance):
        mass = np.bincount(nuisance.codes[living], weights[living], len(nuisance.labels))
        seen = np.flatnonzero(np.bincount(nuisance.codes[living], minlength=len(nuisance.labels)))
        if len(seen) < 2:
            continue
        if not binary or len(seen) == 2:
            found.append(_open(nuisance.question, nuisance.labels, nuisance.codes, seen, mass, axis, "style"))
        else:
            found += [_yes_no(f"{nuisance.question} {nuisance.labels[c]}?", nuisance.labels, nuisance.codes, int(c), axis, "style") for c in seen]
    return found


def _open(text: str, outcomes: Sequence[str], codes: np.ndarray, seen: np.ndarray, mass: np.ndarray, axis: int, source: Source) -> Question:
    rest = len(seen) > OPTIONS_LIMIT
    by_mass = seen[np.argsort(-mass[seen], kind="stable")]
    kept = by_mass[: OPTIONS_LIMIT - 1] if rest else by_mass
    options = [outcomes[c] for c in kept]
    names: list[tuple[str, ...]] = [(name,) for name in options]
    if rest:
        options.append(OTHER)
        names.append(())
    return Question(source, text, tuple(options), _option_of(outcomes, names, rest)[codes], axis, tuple(names), rest)


def _yes_no(text: str, outcomes: Sequence[str], codes: np.ndarray, code: int, axis: int, source: Source) -> Question:
    return Question(source, text, ("yes", "no"), (codes != code).astype(int), axis, ((outcomes[code],), ()), rest=True)


@dataclass(frozen=True)
class Partition:
    """The clusters as they stand: labels (N,), -1 outside; deaths (M - 1,) and merges (M - 1, 2) of the candidates ``at`` (M,), in their places there."""

    labels: np.ndarray
    deaths: np.ndarray
    merges: np.ndarray
    at: np.ndarray

    @property
    def count(self) -> int:
        """K."""
        return int(self.labels.max(initial=-1)) + 1

    @cached_property
    def tree(self) -> MergeTree:
        """What the merges say of the clusters."""
        return merge_tree(self.labels[self.at], self.merges, self.count)


def hyperplane_questions(candidates: Candidates, weights: np.ndarray, living: np.ndarray, partition: Partition, distance: np.ndarray) -> list[Question]:
    """One question for each bipartition of the clusters that a hyperplane in feature space can be fitted to.

    The answer of a candidate is its side of the plane, which need not be its side of the bipartition.
    """
    labels = partition.labels
    inside = living & (labels >= 0)
    if partition.count < 2 or not candidates.features.shape[1]:
        return []
    sides = bipartitions(partition.tree, np.bincount(labels[inside], weights[inside], partition.count))
    of_candidate = sides[:, labels[inside]]
    share = weights[inside] / weights[inside].sum()
    normals, offsets = hyperplanes(candidates.features[inside], share, of_candidate)
    above = candidates.features @ normals.T + offsets > 0
    central = _medoids(distance, weights * inside, above)
    found: dict[str, Question] = {}  # by id: planes that part the same two medoids by the same features are one question to a person
    for s in range(len(sides)):
        first, second = central[:, s]
        if first < 0 or second < 0 or candidates.captions[first] == candidates.captions[second]:
            continue
        largest = np.argsort(-np.abs(normals[s]), kind="stable")[:FEATURES_NAMED]
        named = " and ".join(candidates.feature_names[f] for f in largest)
        text = f"Which of these two is closer to what you want? They differ most in: {named}."
        options = (candidates.captions[first], candidates.captions[second])
        answers = (~above[:, s]).astype(int)
        question = Question("hyperplane", text, options, answers, normal=normals[s], offset=float(offsets[s]), medoids=(int(first), int(second)))
        found.setdefault(question.id, question)
    return list(found.values())


def _medoids(distance: np.ndarray, weights: np.ndarray, above: np.ndarray) -> np.ndarray:
    """(2, S) the weighted medoid of each side of S planes, above (N, S) first; -1 where a side has no weight."""
    found = []
    for side in (above, ~above):
        load = weights[:, None] * side
        cost = np.where(load > 0, distance @ load, np.inf)
        found.append(np.where(load.any(0), cost.argmin(0), -1))
    return np.array(found)


def canonical(answers: np.ndarray) -> np.ndarray:
    """Rows (Q, M) of whole numbers from -1, renamed so that the first value met is 0, the next new one 1, and so on.

    >>> canonical(np.array([[3, -1, 3, 0]])).tolist()
    [[0, 1, 0, 2]]
    """
    answers = answers + 1
    hits = answers[:, None, :] == np.arange(answers.max(initial=0) + 1)[None, :, None]
    first = np.where(hits.any(2), hits.argmax(2), answers.shape[1])
    rank = np.argsort(np.argsort(first, axis=1, kind="stable"), axis=1)
    return np.take_along_axis(rank, answers, 1)


def keys(questions: Sequence[Question], living: np.ndarray) -> list[bytes]:
    """What each question tells of the living candidates (N,) bool: equal where the options can be renamed into each other, empty where all say the same."""
    if not questions:
        return []
    rows = canonical(np.stack([q.answers for q in questions])[:, living]).astype(np.uint8)
    return [row.tobytes() if row.any() else b"" for row in rows]
