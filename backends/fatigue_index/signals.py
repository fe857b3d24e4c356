"""The three raw signals of one decoding step (section "The three signals" of the project page), in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

Array = np.ndarray


def attention_to_prompt(rows: ArrayLike, prompt: int, prefix: int = 64, *, start: int = 0, drop_first: bool = False) -> Array:
    """A_t: the attention that the current token gives to the prompt slice, summed over the slice, mean over heads.

    rows: (..., H, S) of the last layer, each row the weights over S real positions (of which the prompt is the first ``prompt``).
    prompt: L_p tokens. prefix: K, so that the slice holds min(K, L_p - start) tokens from ``start`` on. drop_first: without token 0,
    where the attention sink stands. Returns (...), shares of attention. Raises ValueError for sizes that do not fit and for negative weights.

    >>> rows = np.array([[[0.5, 0.25, 0.125, 0.125]], [[0.25, 0.25, 0.25, 0.25]]])
    >>> attention_to_prompt(rows, 3), attention_to_prompt(rows, 3, drop_first=True)
    (array([0.875, 0.75 ]), array([0.375, 0.5  ]))
    """
    given = np.asarray(rows, float)
    if given.ndim < 2 or given.shape[-2] < 1:
        raise ValueError(f"attention of shape {given.shape} has no axis of heads before that of positions")
    if not 1 <= prompt <= given.shape[-1]:
        raise ValueError(f"a prompt of {prompt} tokens does not fit in {given.shape[-1]} positions")
    if prefix < 1:
        raise ValueError(f"the prefix K is {prefix}; it must be at least 1")
    if not 0 <= start < prompt:
        raise ValueError(f"the slice starts at {start}, outside a prompt of {prompt} tokens")
    if not (given >= 0).all():
        raise ValueError("attention weights must be numbers of 0 or more")
    stop = min(start + prefix, prompt)
    return given[..., start + (drop_first and start == 0) : stop].sum(-1).mean(-1)


def entropy(logits: ArrayLike) -> Array:
    """E_t = -sum_v p ln p in nats, p the full softmax of unmodified logits: before temperature, top-p and penalties.

    logits: (..., V); minus infinity is a token that cannot come. Returns (...). Raises ValueError for NaN, plus infinity, and rows
    without any token.

    >>> round(float(entropy(np.zeros(49152))), 3)
    10.803
    """
    z = np.asarray(logits, float)
    if z.ndim < 1 or z.shape[-1] < 1:
        raise ValueError("there are no logits")
    if np.isnan(z).any() or (z == np.inf).any() or (z == -np.inf).all(-1).any():
        raise ValueError("the logits are not numbers")
    # H = ln sum w - sum w z / sum w with w = e^z, z shifted by its maximum: one exponential a token, and nothing overflows.
    shifted = z - z.max(-1, keepdims=True)
    w = np.exp(shifted)
    total = w.sum(-1)
    found: Array = np.log(total) - np.einsum("...v,...v->...", w, np.where(w > 0, shifted, 0.0)) / total
    return found


def drift(states: ArrayLike, anchor: ArrayLike | None = None) -> Array:
    """D_t = ||h_t - h_0||_2.

    states: (T, d), of which the first is h_0, or (..., d) with an ``anchor`` h_0 that broadcasts against it. Returns (T,) or (...).
    Raises ValueError for shapes that do not fit and for NaN.

    >>> drift([[1.0, 1.0], [4.0, 5.0]])
    array([0., 5.])
    """
    h = np.asarray(states, float)
    if anchor is None and (h.ndim != 2 or not len(h)):
        raise ValueError(f"states of shape {h.shape} are not (T, d)")
    origin = h[0] if anchor is None else np.asarray(anchor, float)
    if h.ndim < 1 or origin.ndim < 1 or h.shape[-1] != origin.shape[-1]:
        raise ValueError(f"states of shape {h.shape} and an anchor of shape {origin.shape} do not fit")
    if np.isnan(h).any() or np.isnan(origin).any():
        raise ValueError("the states are not numbers")
    return np.linalg.norm(h - origin, axis=-1)
