"""The Fatigue Index (section "The Fatigue Index"): fixed penalty maps, frozen weights, contributions that sum to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

Array = np.ndarray
SIGNALS = ("attention", "entropy", "drift")
SUM_ERROR = 1e-9  # of weights that are said to sum to 1


@dataclass(frozen=True, slots=True)
class Constants:
    """What the penalty maps and the sum take. weights: of attention, entropy, drift. low, high: the healthy band of entropy in nats.

    beta: nats above the band at which the penalty is full. kappa: drift at which it is full. Raises ValueError where a rule is broken.
    """

    weights: Sequence[float] = (0.40, 0.35, 0.25)
    low: float = 3.8
    high: float = 5.0
    beta: float = 5.0
    kappa: float = 50.0

    def __post_init__(self) -> None:
        if len(self.weights) != 3 or not all(w >= 0 and math.isfinite(w) for w in self.weights):
            raise ValueError(f"the weights {tuple(self.weights)} are not three numbers of 0 or more")
        if abs(math.fsum(self.weights) - 1) > SUM_ERROR:
            raise ValueError(f"the weights sum to {math.fsum(self.weights):g}, not to 1; divide each by the sum")
        if not 0 < self.low < self.high < math.inf:
            raise ValueError(f"the band from {self.low:g} to {self.high:g} nats is empty or does not begin above 0")
        for name, value in (("beta", self.beta), ("kappa", self.kappa)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} is {value:g}; it must be above 0")


PAPER = Constants()


def penalties(a: ArrayLike, e: ArrayLike, d: ArrayLike, constants: Constants = PAPER) -> Array:
    """phi_A, phi_E, phi_D in [0, 1], each monotone in its signal's worsening (section 4.2 of the card).

    a: share of attention, e: nats, d: distance; shapes that broadcast to (...). Returns (3, ...). Raises ValueError for NaN.

    >>> penalties(0.2, 1.9, 25.0).tolist()
    [0.8, 0.5, 0.5]
    """
    a, e, d = np.broadcast_arrays(*(np.asarray(x, float) for x in (a, e, d)))
    if np.isnan(a).any() or np.isnan(e).any() or np.isnan(d).any():
        raise ValueError("a signal is not a number")
    below, above = (constants.low - e) / constants.low, (e - constants.high) / constants.beta
    return np.stack([1 - np.clip(a, 0, 1), np.clip(np.maximum(below, above), 0, 1), np.clip(d / constants.kappa, 0, 1)])


def contributions(a: ArrayLike, e: ArrayLike, d: ArrayLike, constants: Constants = PAPER) -> Array:
    """w_A phi_A, w_E phi_E, w_D phi_D; arguments as ``penalties``. Returns (3, ...), whose sum over the first axis is the index."""
    found = penalties(a, e, d, constants)
    return found * np.reshape(np.asarray(constants.weights, float), (3, *[1] * (found.ndim - 1)))


def fatigue_index(
    a: ArrayLike,
    e: ArrayLike,
    d: ArrayLike,
    *,
    weights: Sequence[float] = PAPER.weights,
    low: float = PAPER.low,
    high: float = PAPER.high,
    beta: float = PAPER.beta,
    kappa: float = PAPER.kappa,
) -> Array:
    """FI_t = w_A phi_A + w_E phi_E + w_D phi_D in [0, 1].

    a: A_t, attention to the prompt (share). e: E_t, entropy of the next token (nats). d: D_t, distance of the hidden state from that of
    the last prompt token. Numbers or arrays that broadcast to (...); returns (...). weights: of the three, summing to 1; low, high: the
    healthy band H_l to H_u (nats); beta, kappa: see ``Constants``. Raises ValueError for constants that break a rule and for NaN.

    >>> round(float(fatigue_index(0.5, 4.4, 20.0)), 3)
    0.3
    """
    total: Array = contributions(a, e, d, Constants(weights, low, high, beta, kappa)).sum(0)
    return total
