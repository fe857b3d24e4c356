"""What the pictures of fatigue-index need, from traces and constants; all of it vectorised over the steps of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backends.fatigue_index import alarm
from backends.fatigue_index.card import Params
from backends.fatigue_index.generation import Slice, Trace
from backends.fatigue_index.index import Constants, contributions
from backends.fatigue_index.repetition import running_repetition
from backends.fatigue_index.study import Row, Scores

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Watched:
    """One text by one set of constants, one entry a step, (T,). parts: (3, T) contributions of attention, entropy, drift."""

    attention: Array
    entropy: Array
    drift: Array
    parts: Array
    smoothed: Array
    alarm: Array
    threshold: Array

    @property
    def fi(self) -> Array:
        """FI_t, (T,)."""
        total: Array = self.parts.sum(0)
        return total


def watch(trace: Trace, of: Slice, constants: Constants, params: Params) -> Watched:
    """The index and both alarms. Raises ValueError where the drift of the asked state was not seen."""
    a, e, d = trace.attention(of), np.array(trace.entropy), np.array(getattr(trace, params.state))
    parts = contributions(a, e, d, constants)
    smoothed = alarm.smooth(parts.sum(0), params.smoothing)
    return Watched(a, e, d, parts, smoothed, alarm.hysteresis(smoothed, params.theta, params.theta_low), alarm.threshold(smoothed, params.theta))


def text(trace: Trace, tokens: Sequence[str], found: Watched, first: Array) -> dict[str, Any]:
    """The written text with its signals. first: (T,) attention to token 0."""
    return {
        "tokens": list(tokens),
        "signals": {
            "attention": found.attention,
            "attention_first": first,
            "entropy": found.entropy,
            "drift": found.drift,
            "nll": np.array(trace.nll),
            "temperature": np.array(trace.temperature),
            "repetition": running_repetition(trace.ids),
        },
        "index": {"fi": found.fi, "parts": found.parts, "smoothed": found.smoothed, "alarm": found.alarm, "threshold": found.threshold},
        "flips": {"threshold": alarm.flips(found.threshold), "hysteresis": alarm.flips(found.alarm)},
        "row": np.asarray(trace.rows[-1], np.float32),
        "acted": [list(pair) for pair in trace.acted],
    }


def compared(found: Mapping[str, Watched]) -> dict[str, Any]:
    """The smoothed index and the alarm's flips, one entry a way to count: constants, with and without token 0."""
    return {
        name: {"smoothed": one.smoothed, "mean": float(one.fi.mean()), "flips": [alarm.flips(one.threshold), alarm.flips(one.alarm)]}
        for name, one in found.items()
    }


def constants(found: Constants) -> dict[str, Any]:
    """The constants as plain numbers."""
    return {"weights": list(found.weights), "low": found.low, "high": found.high, "beta": found.beta, "kappa": found.kappa}


def study(found: Scores, rows: Sequence[Row], prompts: Sequence[str], tokens: Sequence[int]) -> dict[str, Any]:
    """The scatter, one entry a text, and the table of scores."""
    table = [[row.name, row.correlation.rho, row.correlation.low, row.correlation.high, row.auroc] for row in rows]
    return {"prompts": list(prompts), "fi": found.fi, "repetition": found.repetition, "tokens": list(tokens), "scores": table}
