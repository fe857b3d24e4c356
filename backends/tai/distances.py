"""From candidates to the distance that the homology sees, and to a map of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

WRONGLY_NEAR, NUDGE = 0.02, 0.05  # shares of the distance; of the largest distance
GOLDEN = np.pi * (3 - np.sqrt(5))  # turn from one nudge to the next
MAP_STEPS, MAP_LIMIT = 60, 128  # of scaling; above so many different candidates a step takes several milliseconds


def text_distance(texts: Sequence[str]) -> np.ndarray:
    """Angle between the texts' counts of tokens and pairs of tokens, over a right angle: (N, N) in [0, 1], a metric on counts.

    It knows how a candidate is written and nothing of what it does.

    >>> text_distance(["a b", "a b", "c"]).round(2).tolist()
    [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(token_pattern=r"\w+|[^\w\s]", ngram_range=(1, 2), lowercase=False)
    counts = vectorizer.fit_transform([text if text.strip() else "(empty)" for text in texts])
    rows = counts.toarray().astype(float)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return angles(rows) * 2


def angles(unit: np.ndarray) -> np.ndarray:
    """arccos of the cosine over pi, of unit vectors (N, d): (N, N) in [0, 1], symmetric with a zero diagonal."""
    # The half-angle form: arccos itself loses half of the digits near 0, where duplicates lie.
    chord = np.sqrt(np.maximum(2 - 2 * np.clip(unit @ unit.T, -1, 1), 0))
    chord[chord < 1e-6] = 0.0
    np.fill_diagonal(chord, 0.0)
    apart = 2 * np.arcsin(np.minimum(chord / 2, 1)) / np.pi
    return (apart + apart.T) / 2


def blend(behaviour: np.ndarray, texts: Sequence[str], text_weight: float) -> np.ndarray:
    """(1 - text_weight) D_behaviour + text_weight D_text, (N, N)."""
    if not text_weight:
        return behaviour
    return (1 - text_weight) * behaviour + text_weight * text_distance(texts)


def embed(distance: np.ndarray) -> np.ndarray:
    """A map (N, 2) of D (N, N): metric scaling (SMACOF) from classical scaling, so that its signs do not depend on the machine.

    Classical scaling alone lays what differs in its third direction on one place: 17 intents of the code task would cover each other.
    """
    from sklearn.manifold import ClassicalMDS, smacof

    if not distance.any():
        return np.zeros((len(distance), 2))
    rows, place = np.unique(distance.round(9), axis=0, return_inverse=True)  # alike candidates share a place, and the work
    place = place.reshape(-1)
    first = np.unique(place, return_index=True)[1]
    apart = distance[np.ix_(first, first)]
    start = ClassicalMDS(2, metric="precomputed").fit_transform(apart)
    largest = np.abs(start).argmax(0)
    start *= np.where(np.take_along_axis(start, largest[None], 0) < 0, -1.0, 1.0)
    start += _apart(start, apart)
    steps = MAP_STEPS if len(rows) <= MAP_LIMIT else MAP_STEPS // 3
    places, _ = smacof(apart, n_components=2, init=start, n_init=1, max_iter=steps, eps=1e-4, normalized_stress=False)
    return places[place]


def _apart(start: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """Steps (M, 2) for what the start (M, 2) lays on one place although it differs: from there no step of scaling leads apart."""
    laid = np.hypot(*np.moveaxis(start[:, None] - start, 2, 0))
    wrong = np.triu(laid < WRONGLY_NEAR * distance, 1).any(0)
    turn = GOLDEN * np.arange(len(start))
    return np.where(wrong, NUDGE * distance.max(), 0.0)[:, None] * np.stack([np.cos(turn), np.sin(turn)], 1)
