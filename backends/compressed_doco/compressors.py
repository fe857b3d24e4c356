"""Compressors C with E||C(x) - x||^2 <= (1 - omega) ||x||^2, and the bits that a message takes.

Each maps messages of any leading shape, (..., d), row by row. Numbers count 32 bits on the wire, as in the paper's accounts;
here they are computed in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

CompressorKind = Literal["top-k", "rand-k", "random-gossip", "quantiser"]
NUMBER_BITS = 32
LEVELS_LIMIT = 2**16


class Compressor(Protocol):
    """What a learner does to a vector before it is sent."""

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """C(x), of the shape of x, (..., d)."""

    def omega(self, dimension: int) -> float:
        """The share omega in (0, 1] that the compressor promises in ``dimension`` numbers."""

    def bits(self, message: np.ndarray) -> np.ndarray:
        """Bits of each message C(x), (...) of integers, for (..., d)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Sends everything."""

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return np.array(x, dtype=float)

    def omega(self, dimension: int) -> float:
        return 1.0

    def bits(self, message: np.ndarray) -> np.ndarray:
        return np.full(message.shape[:-1], NUMBER_BITS * message.shape[-1])


@dataclass(frozen=True, slots=True)
class _KeepsK:
    """What a compressor that sends k entries has in common: its count, contraction and bits."""

    k: int

    def __post_init__(self) -> None:
        _check_count(self.k)

    def omega(self, dimension: int) -> float:
        return self.k / dimension

    def bits(self, message: np.ndarray) -> np.ndarray:
        return np.full(message.shape[:-1], self.k * _entry_bits(message.shape[-1]))


@dataclass(frozen=True, slots=True)
class TopK(_KeepsK):
    """Keeps the k entries of largest absolute value. Raises ValueError for k below 1; calls raise it for k above d.

    >>> TopK(1)(np.array([[4.0, 1.0], [0.0, 3.0]])).tolist()
    [[4.0, 0.0], [0.0, 3.0]]
    """

    def __call__(self, x: np.ndarray) -> np.ndarray:
        x = _rows(x, self.k)
        d = x.shape[-1]
        if self.k == d:
            return x.copy()
        kept = np.argpartition(np.abs(x), d - self.k, axis=-1)[..., d - self.k :]
        return _only(x, kept)


@dataclass(frozen=True, slots=True)
class RandK(_KeepsK):
    """Keeps k entries drawn without replacement, unscaled. Raises ValueError as TopK does."""

    rng: np.random.Generator

    def __call__(self, x: np.ndarray) -> np.ndarray:
        x = _rows(x, self.k)
        if self.k == x.shape[-1]:
            return x.copy()
        kept = np.argpartition(self.rng.random(x.shape), self.k, axis=-1)[..., : self.k]
        return _only(x, kept)


@dataclass(frozen=True, slots=True)
class RandomGossip:
    """Sends the whole vector with probability ``share``, else nothing. Raises ValueError for a share outside (0, 1]."""

    share: float
    rng: np.random.Generator

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"the probability of sending must lie in (0, 1], not {self.share}")

    def __call__(self, x: np.ndarray) -> np.ndarray:
        sent = self.rng.random((*np.shape(x)[:-1], 1)) < self.share
        return np.where(sent, x, 0.0)

    def omega(self, dimension: int) -> float:
        return self.share

    def bits(self, message: np.ndarray) -> np.ndarray:
        return 1 + NUMBER_BITS * message.shape[-1] * (message != 0).any(axis=-1)  # one bit says whether more follows


@dataclass(frozen=True, slots=True)
class Quantiser:
    """Random rounding to ``levels`` steps of the norm (QSGD), divided by tau = 1 + min(d / s^2, sqrt(d) / s): omega = 1 / tau.

    scaled=False leaves out the division. That is unbiased, and a contraction only while tau < 2: calls raise ValueError elsewhere,
    as the constructor does for fewer than one level.
    """

    levels: int
    rng: np.random.Generator
    scaled: bool = True

    def __post_init__(self) -> None:
        if not (isinstance(self.levels, int) and self.levels >= 1):
            raise ValueError(f"a quantiser needs at least one level, not {self.levels}")

    def __call__(self, x: np.ndarray) -> np.ndarray:
        x = np.asarray(x, dtype=float)
        self.omega(x.shape[-1])  # refuses what is no contraction
        norm = np.linalg.norm(x, axis=-1, keepdims=True)
        steps = self.levels * np.abs(x) / np.where(norm > 0, norm, 1.0)
        rounded = np.floor(steps + self.rng.random(x.shape))
        return np.sign(x) * norm * rounded / (self.levels * (self.tau(x.shape[-1]) if self.scaled else 1.0))

    def tau(self, dimension: int) -> float:
        return 1 + min(dimension / self.levels**2, math.sqrt(dimension) / self.levels)

    def omega(self, dimension: int) -> float:
        tau = self.tau(dimension)
        if self.scaled:
            return 1 / tau
        if tau >= 2:
            raise ValueError(f"the unscaled quantiser is no contraction here: its error is up to {tau - 1:.3g} times the vector; divide it by {tau:.3g}")
        return 2 - tau

    def bits(self, message: np.ndarray) -> np.ndarray:
        d = message.shape[-1]
        return np.full(message.shape[:-1], NUMBER_BITS + d * (1 + math.ceil(math.log2(self.levels + 1))))


def levels_for(omega: float, dimension: int) -> int:
    """The fewest levels at which the scaled quantiser promises at least ``omega``. Raises ValueError outside (0, 1).

    >>> levels_for(0.5, 64)
    8
    """
    if not 0 < omega < 1:
        raise ValueError(f"a quantiser promises any share below 1, not {omega}")
    excess = 1 / omega - 1
    wanted = math.sqrt(dimension / excess) if excess < 1 else math.sqrt(dimension) / excess
    levels = max(1, math.ceil(wanted - 1e-9))
    if levels > LEVELS_LIMIT:
        raise ValueError(f"{levels} levels would be needed for omega {omega}")
    return levels


def make(kind: CompressorKind, omega: float, dimension: int, rng: np.random.Generator) -> Compressor:
    """The compressor of this kind whose promise comes nearest to ``omega``: k = omega d to the nearest whole number, at least 1.

    Raises ValueError for omega outside (0, 1] or, for a quantiser, at 1.
    """
    if not 0 < omega <= 1:
        raise ValueError(f"omega must lie in (0, 1], not {omega}")
    k = min(dimension, max(1, round(omega * dimension)))
    if kind == "top-k":
        return TopK(k)
    if kind == "rand-k":
        return RandK(k, rng)
    if kind == "random-gossip":
        return RandomGossip(omega, rng)
    return Quantiser(levels_for(omega, dimension), rng)


def _check_count(k: int) -> None:
    if not (isinstance(k, int | np.integer) and k >= 1):
        raise ValueError(f"k must be a whole number of at least 1, not {k}")


def _rows(x: np.ndarray, k: int) -> np.ndarray:
    x = np.asarray(x, dtype=float)
    if k > x.shape[-1]:
        raise ValueError(f"k must be at most the {x.shape[-1]} entries of a message, not {k}")
    return x


def _only(x: np.ndarray, kept: np.ndarray) -> np.ndarray:
    sent = np.zeros_like(x)
    rows, columns = x.reshape(-1, x.shape[-1]), kept.reshape(-1, kept.shape[-1])
    at = np.arange(len(rows))[:, None]  # half the time of numpy's take_along_axis and put_along_axis
    sent.reshape(rows.shape)[at, columns] = rows[at, columns]
    return sent


def _entry_bits(dimension: int) -> int:
    """A number and its place."""
    return NUMBER_BITS + math.ceil(math.log2(dimension)) if dimension > 1 else NUMBER_BITS
