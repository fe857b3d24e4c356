"""What a question tells, in bits: about the intent (TEIG), about the candidate (EIG), and what is wasted within the intents.

A candidate i implies the answer phi(i). The person gives it with probability 1 - error_rate, and each other option with
error_rate / (A - 1). Because the intent is a function of the candidate, EIG = TEIG + sum_k b_k I(i; Y | i in C_k).
"""

from __future__ import annotations

import numpy as np

from backends.contract import InputError


def check_error_rate(error_rate: float, n_options: int) -> None:
    """Raises InputError for fewer than two options, or an error rate at which an answer says nothing or the opposite.

    >>> check_error_rate(0.4, 2)
    """
    if n_options < 2:
        raise InputError("options", f"a question has {n_options} option", "give at least two")
    if not 0 <= error_rate < 1 - 1 / n_options:
        raise InputError("error_rate", f"{error_rate} is out of range for {n_options} options", f"choose from 0 to below {1 - 1 / n_options:.3g}")


def entropy(p: np.ndarray, axis: int = -1) -> np.ndarray:
    """Shannon entropy in bits along an axis; zeros count nothing.

    >>> float(entropy(np.array([0.5, 0.25, 0.25, 0.0])))
    1.5
    """
    p = np.asarray(p, dtype=float)
    return 0.0 - np.sum(p * np.log2(p, out=np.zeros_like(p), where=p > 0), axis=axis)  # no negative zero


def _distribution(p: np.ndarray, name: str) -> np.ndarray:
    p = np.asarray(p, dtype=float)
    if p.ndim != 1 or not p.size or not np.isfinite(p).all() or (p < 0).any() or p.sum() <= 0:
        raise InputError(name, "this is no distribution", "give finite weights from 0 that do not all vanish")
    return p / p.sum()


def teig(belief: np.ndarray, answer_given_cluster: np.ndarray, error_rate: float = 0.0) -> float:
    """Topological expected information gain I(K; Y) in bits.

    belief (K,): mass of each cluster, is normalised. answer_given_cluster (K, A): share of the cluster's mass that implies each
    answer, before errors; rows sum to 1. Raises InputError for bad shapes, an error rate of 1 - 1/A or more.

    >>> round(teig([0.5, 0.3, 0.2], [[1, 0], [0.5, 0.5], [0, 1]], 0.1), 4)
    0.3297
    """
    belief = _distribution(belief, "belief")
    answers = np.asarray(answer_given_cluster, dtype=float)
    if answers.ndim != 2 or len(answers) != len(belief) or not np.allclose(answers.sum(1), 1, atol=1e-9) or (answers < 0).any():
        raise InputError("answer_given_cluster", f"shape {answers.shape} for {len(belief)} clusters", "give one distribution over the answers for each cluster")
    check_error_rate(error_rate, answers.shape[1])
    joint = (answers * belief[:, None])[None]
    return float(scores(joint, np.array([answers.shape[1]]), error_rate)[0][0])


def eig(weights: np.ndarray, answers: np.ndarray, n_options: int, error_rate: float = 0.0) -> float:
    """Expected information gain about the candidate, I(i; Y), in bits.

    weights (N,): normalised here. answers (N,) ints from 0 to n_options - 1: what each candidate implies. Raises InputError.

    >>> eig([1, 1, 1, 1], [0, 0, 1, 1], 2)
    1.0
    """
    weights, answers = _distribution(weights, "weights"), check_answers(answers, n_options)
    if len(weights) != len(answers):
        raise InputError("answers", f"{len(answers)} answers for {len(weights)} candidates", "give one for each")
    check_error_rate(error_rate, n_options)
    joint = np.bincount(answers, weights, n_options)[None, None]
    return float(scores(joint, np.array([n_options]), error_rate)[1][0])


def check_answers(answers: np.ndarray, n_options: int) -> np.ndarray:
    """Answers (N,) as whole numbers below n_options; raises InputError for others."""
    answers = np.asarray(answers)
    if answers.ndim != 1 or answers.dtype.kind not in "iub" or (answers.size and not (answers.min() >= 0 and answers.max() < n_options)):
        raise InputError("answers", "an answer is no option", f"give whole numbers from 0 to {n_options - 1}")
    return answers.astype(int)


def scores(joint: np.ndarray, n_options: np.ndarray, error_rate: float) -> tuple[np.ndarray, np.ndarray]:
    """(TEIG, EIG) of Q questions in bits, both (Q,).

    joint (Q, K, A): mass of cluster k that implies answer a, before errors, each question summing to 1; questions of fewer options
    are padded with zeros. n_options (Q,): their numbers of options. EIG needs the joint only through the answers, since the noise
    is the same for every candidate: H(Y) - H(Y | i).
    """
    options = n_options[:, None, None]
    real = np.arange(joint.shape[2])[None, None] < options
    slip = error_rate / (options - 1)
    cluster = joint.sum(2, keepdims=True)
    noisy = np.where(real, (1 - error_rate - slip) * joint + slip * cluster, 0.0)
    answer = entropy(noisy.sum(1))
    given = np.concatenate([np.full((len(joint), 1), 1 - error_rate), np.where(real, slip, 0.0)[:, 0, 1:]], axis=1)
    about_cluster = entropy(cluster[:, :, 0]) + answer - entropy(noisy.reshape(len(noisy), -1))
    return np.maximum(about_cluster, 0.0), np.maximum(answer - entropy(given), 0.0)


def waste(teig_bits: np.ndarray, eig_bits: np.ndarray) -> np.ndarray:
    """The part of EIG that is spent within the intents, sum_k b_k I(i; Y | i in C_k), by the chain rule; never negative."""
    return np.maximum(eig_bits - teig_bits, 0.0)
