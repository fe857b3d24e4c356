"""The data that learners share out: scikit-learn's digits and breast cancer, or drawn quadratics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from backends.compressed_doco.streams import LogisticStream, QuadraticStream, Stream

DataKind = Literal["digits", "breast-cancer", "quadratic"]
QUADRATIC_DIMENSION = 20
APART, NOISE = 3.0, 1.0  # of the quadratics' targets: distance of a learner's own centre from the common one, spread about it


@dataclass(frozen=True, slots=True)
class Table:
    """rows: (N, d), a constant appended, each of length 1 and multiplied by its label; in the order in which they are cut into parts."""

    rows: np.ndarray
    source: str


def digits() -> Table:
    """8 x 8 pixels divided by 16, "5 or more" against "below 5", sorted by digit."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return _table(bunch.data / 16, bunch.target >= 5, bunch.target, "digits, 5 or more against below 5 (scikit-learn)")


def breast_cancer() -> Table:
    """30 standardised measures, benign against malignant, sorted by kind."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    standard = (bunch.data - bunch.data.mean(axis=0)) / bunch.data.std(axis=0)
    return _table(standard, bunch.target == 1, bunch.target, "breast cancer, benign against malignant (scikit-learn)")


def _table(features: np.ndarray, positive: np.ndarray, order: np.ndarray, source: str) -> Table:
    rows = np.hstack([features, np.ones((len(features), 1))])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return Table((rows * np.where(positive, 1.0, -1.0)[:, None])[np.argsort(order, kind="stable")], source)


def draw_picks(rows: int, learners: int, horizon: int, skew: float, rng: np.random.Generator) -> np.ndarray:
    """(T, n) row numbers, with replacement: from the learner's own part of the sorted rows with probability ``skew``, else from all.

    At skew 1 each learner sees its own labels alone, at 0 all see the same law. Raises ValueError for more learners than rows
    or a skew outside [0, 1].
    """
    if not 0 <= skew <= 1 or learners > rows:
        raise ValueError(f"skew must lie in [0, 1] and {rows} rows be enough for {learners} learners")
    parts = np.array_split(np.arange(rows), learners)
    own = np.stack([rng.choice(part, horizon) for part in parts], axis=1)
    anywhere, mixed = rng.integers(rows, size=own.shape), rng.random(own.shape)
    return np.where(mixed < skew, own, anywhere)


def draw_targets(learners: int, horizon: int, skew: float, rng: np.random.Generator) -> np.ndarray:
    """(T, n, 20) targets of quadratics: one common centre, a centre of each learner's own times ``skew``, and noise."""
    common = rng.normal(size=QUADRATIC_DIMENSION)
    own = rng.normal(size=(learners, QUADRATIC_DIMENSION))
    own *= APART / np.linalg.norm(own, axis=1, keepdims=True)
    noise = NOISE / np.sqrt(QUADRATIC_DIMENSION) * rng.normal(size=(horizon, learners, QUADRATIC_DIMENSION))
    return common / np.linalg.norm(common) + skew * own + noise


def make_stream(kind: DataKind, learners: int, horizon: int, skew: float, rng: np.random.Generator) -> tuple[Stream, str]:
    """The stream and where its data is from."""
    if kind == "quadratic":
        return QuadraticStream(draw_targets(learners, horizon, skew, rng)), f"drawn quadratics in {QUADRATIC_DIMENSION} dimensions"
    table = digits() if kind == "digits" else breast_cancer()
    return LogisticStream(table.rows, draw_picks(len(table.rows), learners, horizon, skew, rng)), table.source
