"""The pool of one draw: its questions and clusters. What the weights do not change is made once and shared by all dialogues over the draw."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

import numpy as np

from backends.tai.draws import Draw
from backends.tai.homology import barcode, components
from backends.tai.questions import Partition, Question, hyperplane_questions, keys, open_questions, style_questions, yes_no_questions


class Pool:
    """All questions that a draw gives. ``binary``: yes/no ones only."""

    def __init__(self, draw: Draw, binary: bool) -> None:
        self.draw, self.binary = draw, binary
        self._partitions: dict[bytes, Partition] = {}
        self._told: dict[bytes, dict[bytes, list[Question]]] = {}
        self._first: dict[bytes, list[Question]] = {}

    def partition(self, living: np.ndarray) -> Partition:
        """The clusters of the living candidates (N,) bool: their own barcode, cut at the draw's tau.

        tau is estimated once a draw, from all its candidates: a handful that is left has too few bars for a rule.
        """
        key = living.tobytes()
        if key not in self._partitions:
            at = np.flatnonzero(living)
            deaths, merges = barcode(self.draw.distance[np.ix_(at, at)])
            local = self.draw.labels[at]
            if self.draw.clustering == "components":
                local = np.where(local < 0, -1, components(len(at), deaths, merges, self.draw.tau))
            labels = np.full(len(living), -1)
            labels[at] = local
            kept = np.unique(labels[labels >= 0])
            labels[labels >= 0] = np.searchsorted(kept, labels[labels >= 0])
            self._partitions[key] = Partition(labels, deaths, merges, at)
        return self._partitions[key]

    def questions(self, weights: np.ndarray, living: np.ndarray, struck: Collection[str] = ()) -> list[Question]:
        """What can be asked now: probes first, then hyperplanes and style; without constant ones, repeats, and those whose id is struck.

        Of questions that part the living candidates alike, the first is kept. weights (N,), living (N,) bool.
        """
        if struck:
            return self._made(weights, living, struck)
        key = weights.tobytes()  # every dialogue over the draw begins with the same one
        if key not in self._first:
            self._first = {key: self._made(weights, living, ())}
        return self._first[key]

    def _made(self, weights: np.ndarray, living: np.ndarray, struck: Collection[str]) -> list[Question]:
        candidates, partition = self.draw.candidates, self.partition(living)
        found: dict[bytes, Question] = {}
        if not self.binary:
            _add(found, open_questions(candidates, weights, living, struck), living, struck)
        for key, alike in self._yes_no(living).items():
            question = next((q for q in alike if q.id not in struck), None)
            if question is not None:
                found.setdefault(key, question)
        _add(found, hyperplane_questions(candidates, weights, living, partition, self.draw.distance), living, struck)
        _add(found, style_questions(candidates, weights, living, self.binary), living, struck)
        return list(found.values())

    @cached_property
    def _all_yes_no(self) -> tuple[list[Question], np.ndarray, np.ndarray]:
        """Every yes/no question about a probe, (R, N) what it implies, and (R,) its probe."""
        questions = yes_no_questions(self.draw.candidates)
        n = len(self.draw.candidates)
        return questions, np.array([q.answers for q in questions], dtype=np.uint8).reshape(-1, n), np.array([q.axis for q in questions], dtype=int)

    def _yes_no(self, living: np.ndarray) -> dict[bytes, list[Question]]:
        """What is told of the living candidates -> the yes/no questions that tell it; of two outcomes, the open question tells it already."""
        place = living.tobytes()
        if place not in self._told:
            questions, answers, axes = self._all_yes_no
            answers = answers[:, living]
            tells = answers.any(1) & ~answers.all(1)
            if not self.binary:
                seen = np.bincount(axes[~answers.all(1)], minlength=len(self.draw.candidates.probes))
                tells &= seen[axes] > 2
            rows = answers ^ answers[:, :1]
            told: dict[bytes, list[Question]] = {}
            for row in np.flatnonzero(tells):
                told.setdefault(rows[row].tobytes(), []).append(questions[row])
            self._told[place] = told
        return self._told[place]


def _add(found: dict[bytes, Question], questions: list[Question], living: np.ndarray, struck: Collection[str]) -> None:
    """Adds those that tell something new."""
    for key, question in zip(keys(questions, living), questions, strict=True):
        if key and key not in found and question.id not in struck:
            found[key] = question
