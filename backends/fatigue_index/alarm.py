"""Smoothing and the alarm that does not flicker (section 4.4 of the card)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

Array = np.ndarray


def smooth(x: ArrayLike, window: int = 5) -> Array:
    """Trailing mean over the last ``window`` steps, over fewer at the start. x: (T,); returns (T,). Raises ValueError.

    >>> smooth([1.0, 2.0, 3.0, 4.0], 2)
    array([1. , 1.5, 2.5, 3.5])
    """
    values = _series(x)
    if window < 1:
        raise ValueError(f"the window is {window}; it must be at least 1")
    if not values.size:
        return values
    # A window's own sum, not a difference of running sums: no rounding is carried from step to step.
    padded = np.concatenate([np.zeros(window - 1), values])
    sums = np.lib.stride_tricks.sliding_window_view(padded, window).sum(-1)
    return sums / np.minimum(np.arange(1, values.size + 1), window)


def threshold(x: ArrayLike, at: float = 0.5) -> Array:
    """The plain alarm 1[x >= at]. x: (T,); returns (T,) bool."""
    return _series(x) >= _number("at", at)


def hysteresis(x: ArrayLike, on: float = 0.5, off: float = 0.4) -> Array:
    """The alarm that goes on at ``on`` or above, off at ``off`` or below, and otherwise stays as it is; off before the first step.

    x: (T,); returns (T,) bool. With ``off`` equal to ``on`` it is the plain threshold: a value at both is on. Raises ValueError for NaN
    and where ``off`` is above ``on``.

    >>> hysteresis([0.3, 0.55, 0.45, 0.4, 0.45]).tolist()
    [False, True, True, False, False]
    """
    values = _series(x)
    if _number("off", off) > _number("on", on):
        raise ValueError(f"the alarm would go off at {off:g}, above where it goes on ({on:g})")
    rises = values >= on
    decided = rises | (values <= off)
    last = np.maximum.accumulate(np.where(decided, np.arange(values.size), -1))
    return (last >= 0) & rises[last] if values.size else rises


def flips(alarm: ArrayLike) -> int:
    """Changes of an alarm's state from one step to the next. alarm: (T,) bool.

    >>> flips([False, True, True, False])
    2
    """
    states = np.asarray(alarm, bool)
    if states.ndim != 1:
        raise ValueError(f"an alarm of shape {states.shape} is not (T,)")
    return int(np.count_nonzero(states[1:] != states[:-1]))


def _series(x: ArrayLike) -> Array:
    values = np.asarray(x, float)
    if values.ndim != 1 or np.isnan(values).any():
        raise ValueError("this is not one series of numbers, (T,)")
    return values


def _number(name: str, value: float) -> float:
    if np.isnan(value):
        raise ValueError(f"{name} is not a number")
    return value
