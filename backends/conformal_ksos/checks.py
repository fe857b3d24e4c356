"""Numbers and arrays as a caller gives them, turned into float64 or refused with the argument's name."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from backends.contract import InputError

Array = np.ndarray


def number(name: str, value: Any, wanted: str, low: float, high: float, *, open_low: bool = False, open_high: bool = False) -> float:
    """A real number of [low, high], ends left out where open, as a Python float; numpy's scalars count, bool and complex do not.

    ``wanted`` is the remedy. Raises InputError for field ``name``.

    >>> number("alpha", np.float32(0.5), "choose 0 to 1", 0, 1)
    0.5
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise InputError(name, f"{shown(value)} is not a number", wanted)
    try:
        plain = float(value)
    except OverflowError:  # an int above 1e308
        raise InputError(name, f"{shown(value)} is not possible", wanted) from None
    inside = (low < plain if open_low else low <= plain) and (plain < high if open_high else plain <= high)
    if not inside:
        raise InputError(name, f"{shown(value)} is not possible", wanted)
    return plain


def seed_number(value: Any) -> int:
    """A seed as an int of 0 to 2^31 - 1. Raises InputError for field ``seed``."""
    wanted = "choose a whole number from 0 to 2147483647"
    plain = number("seed", value, wanted, 0, 2**31 - 1)
    if plain != int(plain):
        raise InputError("seed", f"{shown(value)} is not a whole number", wanted)
    return int(plain)


def array(name: str, value: Any, *, infinite: bool = False) -> Array:
    """An array of real numbers in float64, without NaN and, unless ``infinite``, without infinity.

    Text is not read as numbers and None is not read as NaN. Raises InputError for field ``name``.
    """
    try:
        given = np.asarray(value)
        if given.dtype.kind == "O" and given.ndim and all(isinstance(entry, Real) for entry in given.flat):
            given = given.astype(float)
    except (TypeError, ValueError, OverflowError):
        raise InputError(name, "is ragged or holds something that is not a number", "give an array of numbers") from None
    if given.dtype.kind not in "biuf":
        held = "complex numbers" if given.dtype.kind == "c" else "something that is not a number"
        raise InputError(name, f"holds {held}", "give an array of real numbers")
    numbers = given.astype(float)
    if np.isnan(numbers).any() or not (infinite or np.isfinite(numbers).all()):
        raise InputError(name, "holds NaN" if infinite else "holds NaN or infinity", "give finite numbers")
    return numbers


def one_of(name: str, value: Any, words: tuple[str, ...]) -> None:
    """Raises InputError for field ``name`` unless ``value`` is one of the words."""
    if not (isinstance(value, str) and value in words):
        raise InputError(name, f"{shown(value)} is unknown", "choose " + " or ".join(words))


def shown(value: Any) -> str:
    """What was given, as one short line."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, int) and abs(plain) > 10**20:  # Python refuses to print the longest ones
        return "a whole number above 1e20" if plain > 0 else "a whole number below -1e20"
    text = " ".join(repr(plain).split()) if isinstance(plain, str | Real | complex | None) else f"a {type(plain).__name__}"
    return text if len(text) <= 40 else text[:37] + "..."
