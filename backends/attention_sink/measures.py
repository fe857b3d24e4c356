"""What is measured at each layer (sections 3 and 4.1 of the card): sink score, dominance ratio, effective rank, spread, loss.

All functions take numpy arrays or torch tensors on any device and compute in fp32 or better, because ||h_0|| reaches 2.6e4 and its
square overflows fp16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from backends.contract import InputError

Array = np.ndarray
NLL_BLOCK = 128  # positions whose logits are held at once: 128 x 49,152 x 4 bytes = 25 MB
_TINY = np.finfo(np.float64).eps


def _tensor(values: Any, field: str, least_dimensions: int) -> torch.Tensor:
    found = torch.as_tensor(values).detach()
    found = found.double() if found.dtype == torch.float64 else found.float()
    if found.ndim < least_dimensions or found.numel() == 0:
        raise InputError(field, f"its shape {tuple(found.shape)} does not fit", f"give at least one number in {least_dimensions} or more dimensions")
    if not bool(torch.isfinite(found).all()):
        raise InputError(field, "it holds numbers that are not finite", "give finite numbers")
    return found


def _plain(values: torch.Tensor) -> Any:
    return float(values) if values.ndim == 0 else values.cpu().numpy()


def sink_score(attention: Any, key: int, after: int | None = None) -> float:
    """S_k: the mean attention that key k receives, over heads and over the queries q > k (or q > ``after``).

    attention: (..., T, T), row = query. Raises InputError when no query comes later.

    >>> sink_score([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.25, 0.5]], 0)
    0.375
    """
    weights = _tensor(attention, "attention", 2)
    size = weights.shape[-1]
    if weights.shape[-2] != size:
        raise InputError("attention", f"its shape {tuple(weights.shape)} is not square", "give (..., T, T), one row a query")
    first = key if after is None else after
    if not 0 <= key < size or not key <= first < size - 1:
        raise InputError("key", f"no query after position {first} sees key {key} among {size} tokens", f"choose a key from 0 to {size - 2}")
    return float(weights[..., first + 1 :, key].mean())


def dominance_ratio(h: Any) -> Any:
    """max_j |h_j| / mean_j |h_j| of each vector. h: (..., d); a float for one vector, else an array (...). 1 is even, d is one channel alone.

    >>> dominance_ratio([0.0, 0.0, 3.0, 0.0])
    4.0
    """
    size = _tensor(h, "h", 1).abs()
    mean = size.mean(-1)
    if bool((mean == 0).any()):
        raise InputError("h", "a vector is zero everywhere", "give vectors with at least one number other than 0")
    return _plain(size.amax(-1) / mean)


def effective_rank(M: Any) -> float:
    """exp(-sum p_i ln p_i) with p_i = s_i / sum s, s the singular values of M (rows x columns).

    They are the roots of the eigenvalues of the smaller Gram matrix, in fp64: a 2,000 x 576 matrix takes 0.05 s instead of 0.5 s.
    What is below the rounding error of the largest eigenvalue counts as zero.

    >>> round(effective_rank(np.eye(5)), 9), round(effective_rank(np.ones((4, 3))), 9)
    (5.0, 1.0)
    """
    matrix = _tensor(M, "M", 2).double()
    if matrix.ndim != 2:
        raise InputError("M", f"its shape {tuple(matrix.shape)} has more than two dimensions", "give one matrix")
    rows, columns = matrix.shape
    gram = matrix @ matrix.T if rows <= columns else matrix.T @ matrix
    eigenvalues = torch.linalg.eigvalsh(gram)
    largest = float(eigenvalues[-1])
    if largest <= 0:
        raise InputError("M", "the matrix is zero everywhere", "give a matrix with at least one number other than 0")
    kept = eigenvalues[eigenvalues > largest * _TINY * len(eigenvalues)].sqrt()
    p = kept / kept.sum()
    return float(torch.exp(-(p * p.log()).sum()))


def spread_over_width(o: Any) -> Array:
    """Version (a): the population standard deviation over the width of each vector. o: (..., T, width), gives (..., T)."""
    return np.asarray(_tensor(o, "o", 1).std(-1, correction=0).cpu().numpy())


def spread_over_samples(o: Any) -> Array:
    """Version (b): the standard deviation over samples at each position and channel, then the mean over channels.

    o: (samples, T, width) on random token ids, gives (T,).
    """
    values = _tensor(o, "o", 3)
    if values.shape[0] < 2:
        raise InputError("o", "one sample has no spread", "give at least two samples")
    return np.asarray(values.std(0, correction=0).mean(-1).cpu().numpy())


def theory(first: float, positions: Array) -> Array:
    """sigma_v / sqrt(t + 1): the spread of a mean of t + 1 independent values. positions: (p,), gives (p,)."""
    return np.asarray(first / np.sqrt(np.asarray(positions) + 1.0))


def nll(hidden: torch.Tensor, head: Callable[[torch.Tensor], torch.Tensor], token_ids: torch.Tensor, check: Callable[[], None] = lambda: None) -> Array:
    """The negative log-likelihood (nats) of each token after the first, logits made in blocks and dropped.

    hidden: (T, d) after the final norm; head gives (n, vocabulary); token_ids: (T,). Gives (T - 1,), empty for one token.
    """
    parts = []
    for start in range(0, len(token_ids) - 1, NLL_BLOCK):
        check()
        stop = min(start + NLL_BLOCK, len(token_ids) - 1)
        logits = head(hidden[start:stop]).float()
        parts.append(torch.nn.functional.cross_entropy(logits, token_ids[start + 1 : stop + 1], reduction="none").cpu().numpy())
    return np.concatenate(parts) if parts else np.empty(0, np.float32)
