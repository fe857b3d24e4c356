"""The repetition ratio, by which the paper labels degradation, and a text-only alarm beside the index (sections 4.5 and 5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Array = np.ndarray
SEVERE = 0.6  # ratio from which a text counts as severely degraded


def running_repetition(ids: Sequence[int] | Array, n: int = 4) -> Array:
    """After each token, the share of n-grams so far that had stood earlier in the text; 0 while there is none.

    ids: (T,) of generated tokens only; returns (T,). Raises ValueError for n below 1 and for ids of another shape.

    >>> running_repetition([1, 2, 1, 2, 1, 2], 2)
    array([0.        , 0.        , 0.        , 0.33333333, 0.5       ,
           0.6       ])
    """
    given = np.asarray(ids, np.int64)
    if given.ndim != 1:
        raise ValueError(f"ids of shape {given.shape} are not (T,)")
    if n < 1:
        raise ValueError(f"n-grams of {n} tokens are not defined; choose at least 1")
    ratio = np.zeros(given.size)
    if given.size < n:
        return ratio
    grams = np.lib.stride_tricks.sliding_window_view(given, n)
    first = np.unique(grams, axis=0, return_index=True)[1]
    seen = np.ones(len(grams))
    seen[first] = 0
    ratio[n - 1 :] = seen.cumsum() / np.arange(1, len(grams) + 1)
    return ratio


def repetition_ratio(ids: Sequence[int] | Array, n: int = 4) -> float:
    """The share of n-grams of the whole text that had stood earlier in it; 0 for a text of fewer than n tokens.

    >>> repetition_ratio([1, 2, 3, 4, 1, 2, 3, 4])
    0.2
    """
    running = running_repetition(ids, n)
    return float(running[-1]) if running.size else 0.0
