"""What the seeded grammars share: a skewed prior over intents, and draws of intents, styles and edge-case faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backends.tai.candidates import Nuisance, Probe

SHUFFLE = 7  # stream of the seed that shuffles the prior


def zipf(count: int, skew: float, seed: int) -> np.ndarray:
    """Prior (count,) proportional to rank^-skew, the ranks shuffled by the seed; skew 0 is uniform.

    >>> zipf(4, 0.0, 1).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    mass = np.arange(1, count + 1, dtype=float) ** -skew
    return np.random.default_rng([seed, SHUFFLE]).permutation(mass / mass.sum())


@dataclass(frozen=True, slots=True)
class Style:
    """One nuisance axis of a grammar: its question and its values."""

    question: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """intents (N,), styles (N, axes) and faults (N,) of a draw; fault -1 is none."""

    intents: np.ndarray
    styles: np.ndarray
    faults: np.ndarray


def draw(rng: np.random.Generator, count: int, prior: np.ndarray, styles: Sequence[Style], quirk_rate: float, n_faults: int) -> Drawn:
    """``count`` independent candidates: intent by the prior, each style at random, a fault with probability quirk_rate."""
    intents = rng.choice(len(prior), size=count, p=prior)
    chosen = np.stack([rng.integers(len(s.labels), size=count) for s in styles], 1)
    faults = np.where(rng.random(count) < quirk_rate, rng.integers(n_faults, size=count), -1)
    return Drawn(intents, chosen, faults)


def nuisances(styles: Sequence[Style], chosen: np.ndarray) -> tuple[Nuisance, ...]:
    """The style axes as the dialogue takes them; chosen (N, axes)."""
    return tuple(Nuisance(s.question, s.labels, chosen[:, axis]) for axis, s in enumerate(styles))


def coded(probes: Sequence[tuple[str, str]], outcomes: Sequence[Sequence[str]]) -> tuple[tuple[Probe, ...], np.ndarray]:
    """Probes with their outcomes numbered, and codes (N, P). probes: (question, yes/no form); outcomes: N rows of P readable ones."""
    columns = list(zip(*outcomes, strict=True))
    made, codes = [], []
    for (question, yes_no), column in zip(probes, columns, strict=True):
        values, code = np.unique(column, return_inverse=True)
        made.append(Probe(question, yes_no, tuple(str(v) for v in values)))
        codes.append(code)
    return tuple(made), np.stack(codes, 1)


def coverage(values: np.ndarray, axes: Sequence[str], prints: np.ndarray) -> dict[str, float]:
    """Axis -> share of the probes that tell two values of it apart, between intents that differ in as few other axes as there are.

    values (I, axes): each intent's value on each axis; prints (I, P): what a faultless candidate of each intent does, in codes.
    """
    found = {}
    first, second = np.triu_indices(len(values), 1)
    differ = values[first] != values[second]
    for axis, name in enumerate(axes):
        pairs = differ[:, axis]
        pairs = pairs & (differ.sum(1) == differ[pairs].sum(1).min(initial=len(axes)))
        told = (prints[first[pairs]] != prints[second[pairs]]).any(0)
        found[name] = float(told.mean()) if pairs.any() else 0.0
    return found
