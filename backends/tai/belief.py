"""The belief over candidates after an answer; intents get the sum of their candidates' weights."""

from __future__ import annotations

import numpy as np

from backends.contract import InputError
from backends.tai.information import check_answers, check_error_rate

LEAST = 1e-12  # a weight never falls below it, so that no answer is beyond recall
FALL_BACK = 0.02  # error rate that is assumed when the answers contradict each other
ALIVE = 1e-3  # of the largest weight


def update(weights: np.ndarray, answers: np.ndarray, n_options: int, reply: int | None, error_rate: float) -> np.ndarray:
    """Weights (N,) after the reply, summing to 1: Bayes' rule with P(reply | i) = 1 - error_rate, or error_rate / (A - 1).

    weights (N,): before. answers (N,): what each candidate implies, 0 to n_options - 1; -1 where it implies none of the options.
    reply: the option, or None for "not sure", which leaves the weights as they are. Computed in logarithms with a floor of 1e-12
    a weight. Where no candidate of any weight agrees with the reply and error_rate is 0, 0.02 is taken. Raises InputError.

    >>> update([0.5, 0.3, 0.2], [0, 0, 1], 2, 1, 0.1).round(4).tolist()
    [0.1923, 0.1154, 0.6923]
    """
    weights = np.asarray(weights, dtype=float)
    if weights.ndim != 1 or not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum() > 0:
        raise InputError("weights", "this is no distribution", "give finite weights from 0 that do not all vanish")
    answers = np.asarray(answers)
    check_answers(answers[answers >= 0], n_options)
    check_error_rate(error_rate, n_options)
    if len(answers) != len(weights) or (answers.size and answers.min() < -1):
        raise InputError("answers", f"{len(answers)} answers for {len(weights)} candidates", "give one for each, -1 where no option fits")
    if reply is None:
        return weights / weights.sum()
    if not 0 <= reply < n_options:
        raise InputError("answers", f"the reply {reply} is no option", f"choose from 0 to {n_options - 1}")
    if contradicts(weights, answers, reply, error_rate):
        error_rate = FALL_BACK
    likelihood = np.where(answers == reply, 1 - error_rate, error_rate / (n_options - 1))
    log = np.log(np.maximum(weights, LEAST)) + np.log(np.maximum(likelihood, LEAST))
    weights = np.exp(log - log.max())
    weights = np.maximum(weights / weights.sum(), LEAST)
    return weights / weights.sum()


def contradicts(weights: np.ndarray, answers: np.ndarray, reply: int, error_rate: float) -> bool:
    """True when errors are ruled out (error_rate 0) and only candidates that earlier answers ruled out agree with the reply.

    >>> contradicts(np.array([1.0, 0.0]), np.array([0, 1]), 1, 0.0)
    True
    """
    agreeing = float(np.asarray(weights)[np.asarray(answers) == reply].sum())
    return error_rate == 0 and agreeing <= 10 * LEAST * len(weights) * float(np.sum(weights))


def belief(weights: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Mass b_k (K,) of the clusters 0 to K - 1: sums of the candidates' weights. labels (N,); -1 belongs to no cluster.

    Recomputed from the weights after each answer: an update of b with the former weights within a cluster is not Bayes' rule.

    >>> belief(np.array([0.5, 0.3, 0.2]), np.array([0, 1, 0])).tolist()
    [0.7, 0.3]
    """
    inside = labels >= 0
    return np.bincount(labels[inside], weights[inside], int(labels.max(initial=-1)) + 1)


def none_of_these(weights: np.ndarray, answers: np.ndarray, outside: float, error_rate: float) -> tuple[np.ndarray, float]:
    """(weights (N,), outside) after "none of these": every candidate that implies an option is multiplied by the error rate.

    answers (N,): -1 where a candidate implies none of the options; outside: mass of what is no candidate, which takes the rest.

    >>> none_of_these(np.array([0.5, 0.5]), np.array([0, 1]), 0.0, 0.05)[1]
    0.95
    """
    likelihood = np.where(answers < 0, 1 - error_rate, max(error_rate, LEAST))
    inside = float(weights @ likelihood)
    return np.maximum(weights * likelihood / inside, LEAST), 1 - (1 - outside) * inside


def effective_number(weights: np.ndarray) -> float:
    """Effective sample size 1 / sum w_i^2 of normalised weights.

    >>> effective_number(np.array([0.5, 0.5, 0.0]))
    2.0
    """
    return float(1 / np.sum(np.square(weights)))


def alive(weights: np.ndarray) -> np.ndarray:
    """Candidates (N,) bool that still count: above a thousandth of the largest weight."""
    return weights > ALIVE * weights.max()
