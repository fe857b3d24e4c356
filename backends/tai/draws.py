"""One draw of candidates with its homology, and a fresh draw that fits what the person has said so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from backends.contract import InputError
from backends.tai import belief as beliefs
from backends.tai.candidates import Arrive, Candidates, Task, check
from backends.tai.distances import blend
from backends.tai.homology import Rule, barcode, check_distance, components, threshold, tomato
from backends.tai.questions import Question

Clustering = Literal["components", "tomato", "peer"]
OVERDRAW = 4  # candidates drawn for each one that is kept


@dataclass(frozen=True, slots=True)
class Draw:
    """Candidates (N), their blended distance (N, N), the barcode, tau and the clusters (N,).

    clusters below the least size have the label -1: "none of these".
    """

    candidates: Candidates
    distance: np.ndarray
    deaths: np.ndarray
    merges: np.ndarray
    tau: float
    labels: np.ndarray
    clustering: Clustering = "components"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a draw is cut: threshold rule or value, weight of the text distance, clustering, smallest cluster that counts."""

    rule: Rule | float = "ratio"
    text_weight: float = 0.0
    clustering: Clustering = "components"
    least_size: int = 1


def analyse(candidates: Candidates, geometry: Geometry, rng: np.random.Generator) -> Draw:
    """Distance, barcode, threshold and clusters of a sample. Raises InputError where no dialogue can be led."""
    check(candidates)
    distance = check_distance(blend(candidates.distance, candidates.texts, geometry.text_weight))
    deaths, merges = barcode(distance)
    tau = threshold(distance, deaths, geometry.rule, candidates.resolution, rng)
    if geometry.clustering == "tomato":
        labels = tomato(distance)
    else:
        labels = components(len(distance), deaths, merges, tau)
    notes = []
    if not isinstance(geometry.rule, str) and len(deaths):
        if tau < deaths[deaths > 0].min(initial=np.inf):
            notes.append("the threshold lies below every bar: what differs at all is an intent of its own")
        elif tau >= deaths[-1]:
            notes.append("the threshold lies above every bar: all candidates are one intent")
    kept = drop_small(labels, geometry.least_size)
    if (kept < 0).any():
        notes.append(f"{np.count_nonzero(kept < 0)} candidates stand alone and count as none of these")
    return Draw(candidates, distance, deaths, merges, tau, kept, geometry.clustering, tuple(notes))


def drop_small(labels: np.ndarray, least: int) -> np.ndarray:
    """Labels (N,) with clusters below ``least`` candidates at -1 and the others numbered anew; all stay where none is large enough.

    >>> drop_small(np.array([0, 1, 1, 2]), 2).tolist()
    [-1, 0, 0, -1]
    """
    large = np.bincount(labels) >= least
    if not large.any():
        return labels
    return np.where(large, np.cumsum(large) - 1, -1)[labels]


@dataclass(frozen=True, slots=True)
class Reply:
    """A question and what was said to it: the number of an option, "not-sure" or "none"."""

    question: Question
    said: int | Literal["not-sure", "none"]

    def likelihood(self, answers: np.ndarray, error_rate: float) -> np.ndarray:
        """P(reply | candidate), (N,), for candidates that imply these answers (N,)."""
        if self.said == "not-sure":
            return np.ones(len(answers))
        if self.said == "none":
            return np.where(answers < 0, 1 - error_rate, max(error_rate, beliefs.LEAST))
        return np.maximum(np.where(answers == self.said, 1 - error_rate, error_rate / (self.question.n_options - 1)), beliefs.LEAST)


def redraw(
    task: Task, count: int, replies: Sequence[Reply], error_rate: float, rng: np.random.Generator, arrive: Arrive = lambda done, caption: None
) -> Candidates:
    """``count`` candidates from p(h | request, replies): four times as many are drawn and resampled by their likelihood.

    Systematic resampling, so that the multiplicity is the posterior. Raises InputError where nothing that was drawn fits.
    """
    fresh = task.draw(OVERDRAW * count, rng, arrive)
    log = np.sum([np.log(reply.likelihood(reply.question.answers_of(fresh), error_rate)) for reply in replies], axis=0)
    if log.max() < np.log(beliefs.LEAST) / 2:  # nothing agrees but by the floor
        raise InputError("answers", "no candidate that can be made fits all answers", "undo an answer, or assume more wrong answers")
    weights = np.exp(log - log.max())
    ladder = (rng.random() + np.arange(count)) / count
    kept = np.minimum(np.searchsorted(np.cumsum(weights / weights.sum()), ladder), len(fresh) - 1)
    return select(fresh, kept)


def select(candidates: Candidates, kept: np.ndarray) -> Candidates:
    """The candidates at these places (M,), which may repeat."""
    from dataclasses import replace

    return replace(
        candidates,
        shown=tuple(candidates.shown[i] for i in kept),
        captions=tuple(candidates.captions[i] for i in kept),
        texts=tuple(candidates.texts[i] for i in kept),
        codes=candidates.codes[kept],
        distance=candidates.distance[np.ix_(kept, kept)],
        nuisance=tuple(replace(n, codes=n.codes[kept]) for n in candidates.nuisance),
        features=candidates.features[kept],
        intents=None if candidates.intents is None else candidates.intents[kept],
        quirk=candidates.quirk[kept],
        failed=candidates.failed[kept],
    )
