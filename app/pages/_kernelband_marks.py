"""Signs and words that all pictures of kernelband share: strategies, outcomes of an attempt, clusters, times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.plotting import floats, plain_text

# Under a narrow column a long word takes two lines.
COLUMNS = {"vectorization": "vector-<br>ization", "reordering": "re-<br>ordering", "access_layout": "access<br>layout"}
RESOURCES = {"sm": "arithmetic", "dram": "memory", "l2": "cache"}


@dataclass(frozen=True)
class Mark:
    """How one kind of attempt is drawn. sign: the same symbol as text, for the key."""

    outcomes: tuple[str, ...]
    words: str
    colour: str
    symbol: str
    sign: str


TIMED = (
    Mark(("faster",), "faster", "$method", "circle", "\u25cf"),
    Mark(("within-noise",), "even", "$method", "circle-open", "\u25cb"),
    Mark(("slower",), "slower", "$data", "triangle-up", "\u25b2"),
)
UNTIMED = (
    Mark(("duplicate",), "seen before", "$muted", "square-open", "\u25a1"),
    Mark(("compile-error", "no-code"), "not compiled", "$warning", "x", "\u2715"),
    Mark(("wrong", "timeout", "crash", "cheat"), "wrong", "$warning", "diamond", "\u25c6"),
)

# Clusters by their number; up to eight of them, so shape and colour differ together.
_CLUSTERS = (
    ("$method", "circle"),
    ("$ink", "square"),
    ("$data", "diamond"),
    ("$method/0.55", "triangle-up"),
    ("$ink/0.55", "triangle-down"),
    ("$data/0.6", "pentagon"),
    ("$method/0.35", "star"),
    ("$ink/0.35", "hexagon"),
)


def strategy(strategies: Sequence[str], place: int) -> str:
    """A strategy in words; -1 is a whole schedule, or a person's own program.

    >>> strategy(["access_layout"], 0), strategy(["access_layout"], -1)
    ('access layout', 'whole program')
    """
    return strategies[place].replace("_", " ") if place >= 0 else "whole program"


def policy(name: str) -> str:
    """A policy as people write it.

    >>> policy("best-of-n"), policy("tpe")
    ('best of n', 'TPE')
    """
    return {"kernelband": "KernelBand", "tpe": "TPE", "thompson": "Thompson"}.get(name, name.replace("-", " "))


def cluster_style(place: int) -> tuple[str, str]:
    """Colour and symbol of a cluster."""
    return _CLUSTERS[place % len(_CLUSTERS)]


def ms(value: float) -> str:
    """A time, to three digits or to the millisecond.

    >>> ms(151.62), ms(0.0421), ms(1034.2)
    ('152 ms', '0.0421 ms', '1,034 ms')
    """
    return f"{plain(value)} ms"


def plain(value: float) -> str:
    """A positive number to three digits, never with an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def counted(number: float, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "attempt"), counted(3, "attempt")
    ('1 attempt', '3 attempts')
    """
    return f"{number:g} {noun}" + ("" if number == 1 else "s")


def whole(values: Any) -> np.ndarray:
    """Places and counts."""
    return floats(values).astype(int)


def way_to(parent: Any, member: int) -> list[int]:
    """The kernels from the naive one to this one, each the parent of the next.

    >>> way_to([-1, 0, 1, 0], 2)
    [0, 1, 2]
    """
    path = [member]
    while path[-1]:
        path.append(int(parent[path[-1]]))
    return path[::-1]


def recorded(data: Mapping[str, Any]) -> str:
    """For a title: where and when the times were recorded; nothing for times that are measured now."""
    return f", {plain_text(data['recorded'])}" if data.get("recorded") else ""


def roof_ms(data: Mapping[str, Any]) -> float:
    """The least time that the measured roofline allows the naive kernel's arithmetic and compulsory traffic."""
    kernels, roof = data["kernels"], data["roofline"]
    intensity, speed, took = (float(floats(kernels[key])[0]) for key in ("intensity", "gflops", "ms"))
    return speed * took / min(roof["gflops"], intensity * roof["dram"])


def log_reach(values: Any, below: float = 0.08, above: float = 0.08) -> tuple[float, float]:
    """The range of a log axis around these values in decades, with room below and above as shares of it."""
    seen = floats(values)
    seen = np.log10(seen[np.isfinite(seen) & (seen > 0)])
    if not seen.size:
        return 0.0, 1.0
    low, high = float(seen.min()), float(seen.max())
    span = max(0.3, high - low)
    return low - below * span, high + above * span


def log_ticks(reach: tuple[float, float]) -> dict[str, Any]:
    """Full numbers as ticks of a log axis: 1, 2, 5 of each decade, over more than two decades 1 alone; reach in decades."""
    steps = (1, 2, 5) if reach[1] - reach[0] <= 2.2 else (1,)
    values = [step * 10.0**k for k in range(math.floor(reach[0]), math.ceil(reach[1]) + 1) for step in steps]
    shown = [v for v in values if reach[0] <= math.log10(v) <= reach[1]]
    return {"type": "log", "range": list(reach), "tickvals": shown, "ticktext": [f"{v:,.0f}" if v >= 1 else f"{v:g}" for v in shown]}


def round_ticks(rounds: int) -> list[int]:
    """Ticks of an axis of attempts."""
    return list(range(0, rounds + 1, 1 if rounds <= 8 else 5 if rounds <= 40 else 10))
