"""Compressed gossip: each learner sends compressed differences to a replica that all its neighbours keep of it."""

from __future__ import annotations

import numpy as np

from backends.compressed_doco.compressors import Compressor
from backends.compressed_doco.graphs import check_weights


class Replicas:
    """What is known of each learner's surrogate: its own copy, and one at the end of every directed edge.

    own: (..., n, d), y-hat_i as learner i keeps it. held: (..., m, d), y-hat_j as neighbour i keeps it, for the m directed
    edges j -> i. Messages are the only way in, so all copies of one learner stay equal; ``assert_equal`` proves it bit by bit.
    """

    def __init__(self, weights: np.ndarray, shape: tuple[int, ...]) -> None:
        """weights: W, (n, n), checked by the caller; shape: (..., n, d)."""
        w = np.array(weights, dtype=float)
        np.fill_diagonal(w, 0.0)
        self.receiver, self.sender = np.nonzero(w)  # by receiver, so that a learner's incoming edges stand together
        self.weight = w[self.receiver, self.sender][:, None]
        self.own = np.zeros(shape)
        self.held = np.zeros((*shape[:-2], self.sender.size, shape[-1]))
        self.degree = np.bincount(self.sender, minlength=len(w))  # messages that one broadcast of a learner takes
        self._first = np.searchsorted(self.receiver, np.arange(len(w)))

    def receive(self, message: np.ndarray) -> None:
        """Every learner's message, (..., n, d), is added to its own copy and crosses each of its edges once."""
        self.own += message
        self.held += np.take(message, self.sender, axis=-2)

    def pull(self) -> np.ndarray:
        """sum_j w_ij (y-hat_j - y-hat_i), (..., n, d), of what learner i itself holds."""
        if not self.sender.size:
            return np.zeros_like(self.own)
        apart = self.held - np.take(self.own, self.receiver, axis=-2)
        apart *= self.weight
        return np.add.reduceat(apart, self._first, axis=-2)

    def assert_equal(self) -> None:
        """Raises AssertionError when a neighbour's copy differs in any bit from the learner's own."""
        if not np.array_equal(self.held, np.take(self.own, self.sender, axis=-2), equal_nan=True):
            raise AssertionError("a neighbour's replica differs from the learner's own")


def gossip_round(
    y: np.ndarray, replica: np.ndarray, weights: np.ndarray, step: float, compress: Compressor
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One round: q = C(y - y-hat), y-hat += q, y_i += step sum_j w_ij (y-hat_j - y-hat_i) with the updated replicas.

    y, replica: (n, d); weights: W, (n, n); step: gamma in (0, 1]. Returns y, replica and message, each (n, d); the mean of y does
    not move. Raises ValueError for bad shapes, values that are not finite, a bad W or step (Koloskova et al. 2019, algorithm 1).
    """
    y, replica, w = _pair(y, replica, weights)
    check_step(step)
    message = compress(y - replica)
    replicas = Replicas(w, y.shape)
    replicas.receive(replica)
    replicas.receive(message)
    return y + step * replicas.pull(), replicas.own, message


def disagreement(y: np.ndarray, replica: np.ndarray) -> np.ndarray:
    """||Y - mean||^2 + ||Y - Y-hat||^2 over the learners, (...) for y and replica of (..., n, d)."""
    apart = y - y.mean(axis=-2, keepdims=True)
    return (apart**2).sum(axis=(-2, -1)) + ((y - replica) ** 2).sum(axis=(-2, -1))


def decay(y: np.ndarray, weights: np.ndarray, steps: np.ndarray, compress: Compressor, rounds: int) -> np.ndarray:
    """The disagreement before and after each of ``rounds`` gossip rounds from empty replicas, for several steps at once.

    y: (n, d) at the start; weights: W, (n, n); steps: (s,) gammas in (0, 1]. Returns (rounds + 1, s); infinite once it
    overflows. Raises ValueError as ``gossip_round`` does.
    """
    y, _, w = _pair(y, np.zeros_like(y, dtype=float), weights)
    gammas = np.asarray(steps, dtype=float)
    for step in gammas.ravel():
        check_step(float(step))
    state = np.repeat(y[None], gammas.size, axis=0)
    replicas = Replicas(w, state.shape)
    seen = [disagreement(state, replicas.own)]
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(rounds):
            replicas.receive(compress(state - replicas.own))
            state = state + gammas[:, None, None] * replicas.pull()
            seen.append(disagreement(state, replicas.own))
    return np.nan_to_num(np.array(seen), nan=np.inf, posinf=np.inf)


def factor_per_round(energies: np.ndarray) -> np.ndarray:
    """The mean factor a round over the second half of ``decay``'s result, (s,); 0 where agreement is complete."""
    half = len(energies) // 2
    rounds = len(energies) - 1 - half
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = (energies[-1] / energies[half]) ** (1 / rounds)
    return np.where(energies[half] == 0, 0.0, np.nan_to_num(factor, nan=np.inf))


def compensate(residual: np.ndarray, compress: Compressor, rounds: int) -> np.ndarray:
    """v after ``rounds`` of v += C(residual - v) from 0: multi-step compression (Huang et al. 2022), residual of (n, d).

    With top-k the error obeys ||residual - v||^2 <= (1 - k/d)^rounds ||residual||^2, and v is the residual after ceil(d/k)
    rounds. Raises ValueError for a residual that is not finite or rounds below 0.
    """
    r = np.asarray(residual, dtype=float)
    if rounds < 0 or not np.isfinite(r).all():
        raise ValueError("the residual must be finite and the rounds at least 0")
    sent = np.zeros_like(r)
    for _ in range(rounds):
        sent += compress(r - sent)
    return sent


def check_step(step: float) -> None:
    """Raises ValueError for a gossip step outside (0, 1]."""
    if not 0 < step <= 1:
        raise ValueError(f"the gossip step must lie in (0, 1], not {step}")


def _pair(y: np.ndarray, replica: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    y, replica, w = np.asarray(y, dtype=float), np.asarray(replica, dtype=float), check_weights(weights)
    if y.ndim != 2 or y.shape != replica.shape or len(y) != len(w):
        raise ValueError(f"y {y.shape} and replica {replica.shape} must both have one row for each of {len(w)} learners")
    if not (np.isfinite(y).all() and np.isfinite(replica).all()):
        raise ValueError("y and replica must be finite numbers")
    return y, replica, w
