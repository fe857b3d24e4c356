"""The paper's validation at small scale: does the mean index of a text go with its repetition, and do simpler alarms do as well?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from backends.fatigue_index.generation import Slice, Trace
from backends.fatigue_index.index import Constants, contributions, penalties
from backends.fatigue_index.repetition import SEVERE, repetition_ratio

Array = np.ndarray
CONFIDENCE = 0.95
RESAMPLES = 2000
FEWEST = 4  # texts below which an interval says nothing


@dataclass(frozen=True, slots=True)
class Correlation:
    """Spearman's rho and a bootstrap interval of it; None where it is not defined (all values alike, or too few)."""

    rho: float | None
    low: float | None
    high: float | None


def rank_correlation(x: ArrayLike, y: ArrayLike, rng: np.random.Generator | None = None) -> Correlation:
    """Spearman's rho of x and y, each (n,), with a 95 % percentile bootstrap over pairs. Raises ValueError.

    rng: of the resamples; without one there is no interval.

    >>> rank_correlation([1, 2, 3, 4], [1, 4, 9, 16]).rho
    1.0
    """
    a, b = _pair(x, y)
    if a.size < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return Correlation(None, None, None)
    rho = float(_rho(a, b))
    if rng is None or a.size < FEWEST:
        return Correlation(rho, None, None)
    from scipy.stats import bootstrap

    found = bootstrap((a, b), _rho, paired=True, vectorized=True, n_resamples=RESAMPLES, confidence_level=CONFIDENCE, method="percentile", rng=rng)
    low, high = (float(x) for x in found.confidence_interval)
    return Correlation(rho, low, high) if np.isfinite([low, high]).all() else Correlation(rho, None, None)


def _rho(a: Array, b: Array, axis: int = -1) -> Array:
    """Pearson's correlation of mean ranks along ``axis``; a resample in which all are alike counts as 0."""
    from scipy.stats import rankdata

    x, y = (rankdata(v, axis=axis) for v in (a, b))
    x, y = (v - v.mean(axis, keepdims=True) for v in (x, y))
    size = np.sqrt((x * x).sum(axis) * (y * y).sum(axis))
    together = (x * y).sum(axis)
    return np.divide(together, size, out=np.zeros_like(together), where=size > 0)


def auroc(scores: ArrayLike, labels: ArrayLike) -> float | None:
    """The chance that a positive scores above a negative, ties half; scores: (n,), labels: (n,) bool. None where one kind is absent.

    >>> auroc([0.1, 0.4, 0.35, 0.8], [False, False, True, True])
    0.75
    """
    s, given = _pair(scores, labels)
    positive = given.astype(bool)
    count = int(positive.sum())
    if count in (0, s.size):
        return None
    from scipy.stats import rankdata

    above = float(rankdata(s)[positive].sum()) - count * (count + 1) / 2
    return above / (count * (s.size - count))


def _pair(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    a, b = np.asarray(x, float), np.asarray(y, float)
    if a.ndim != 1 or a.shape != b.shape or np.isnan(a).any() or np.isnan(b).any():
        raise ValueError(f"shapes {a.shape} and {b.shape} are not two series of numbers of one length")
    return a, b


@dataclass(frozen=True, slots=True)
class Scores:
    """One number a text for each score, (n,): the index, each signal's penalty, and the peers that look at uncertainty alone."""

    fi: Array
    attention: Array
    entropy: Array
    drift: Array
    mean_entropy: Array
    mean_nll: Array
    last_nll: Array
    repetition: Array

    def ranked(self) -> dict[str, Array]:
        """The scores by name, the index first."""
        return {
            "Fatigue Index": self.fi,
            "attention alone": self.attention,
            "entropy alone": self.entropy,
            "drift alone": self.drift,
            "mean token entropy": self.mean_entropy,
            "mean token NLL": self.mean_nll,
            "last token's NLL": self.last_nll,
        }


def scores(traces: Sequence[Trace], slices: Sequence[Slice], constants: Constants, state: str) -> Scores:
    """Means over the steps of each text; state: whose drift is taken, "after" or "before" the final norm."""
    columns = []
    for trace, of in zip(traces, slices, strict=True):  # texts end at different steps
        given = trace.attention(of), np.array(trace.entropy), np.array(getattr(trace, state))
        single = penalties(*given, constants).mean(1)
        whole = float(contributions(*given, constants).sum(0).mean())
        columns.append((whole, *single, given[1].mean(), np.mean(trace.nll), trace.nll[-1], repetition_ratio(trace.ids)))
    return Scores(*np.array(columns, float).T)


@dataclass(frozen=True, slots=True)
class Row:
    """How one score goes with repetition. auroc: of texts whose ratio is at least 0.6."""

    name: str
    correlation: Correlation
    auroc: float | None


def compare(found: Scores, rng: np.random.Generator | None = None) -> list[Row]:
    """Each score against the repetition ratio; the intervals of all come from the same resamples."""
    seed = None if rng is None else int(rng.integers(2**63))
    severe = found.repetition >= SEVERE
    return [
        Row(name, rank_correlation(values, found.repetition, None if seed is None else np.random.default_rng(seed)), auroc(values, severe))
        for name, values in found.ranked().items()
    ]
