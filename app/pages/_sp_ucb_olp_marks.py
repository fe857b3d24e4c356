"""What the pictures of sp-ucb-olp share: names of policies, tints of configurations and resources, the axis of rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.plotting import alpha, axis, plain_text

POLICIES = {
    "lp-duals": "this method",
    "uniform-over-ties": "equal on ties",
    "greedy": "greedy, α = 0",
    "single": "learned fixed",
    "random": "random",
    "oracle": "oracle policy",
}
TINTS = (1.0, 0.62, 0.38, 0.2)  # of the theme's hue, by configuration or resource
DASHES = ("solid", "dash", "dot", "dashdot")
HALF_PLOT_PX = 230  # height of a half picture's plot area
SUBSCRIPTS = "₁₂₃₄"


def tint(number: int, opacity: float = 1.0) -> str:
    """The colour of a configuration or resource, at this opacity."""
    return alpha("$method", opacity * TINTS[number % len(TINTS)])


def names(data: Mapping[str, Any], key: str) -> list[str]:
    """The names of the configurations ("names") or the resources ("resources"), safe to draw."""
    return [plain_text(str(name)) for name in data[key]]


def policy_name(name: str, mine: str) -> str:
    """A policy's name; whichever rule is chosen is this method's run.

    >>> policy_name("lp-duals", "uniform-over-ties"), policy_name("uniform-over-ties", "uniform-over-ties")
    ('LP duals', 'this run')
    """
    if mine == "uniform-over-ties" and name in ("lp-duals", mine):
        return "this run" if name == mine else "LP duals"
    return POLICIES[name]


def rounds(data: Mapping[str, Any], room: float = 0.0) -> dict[str, Any]:
    """The axis of rounds, with room for labels as a share of it."""
    horizon = int(data["horizon"])
    step = next(s for s in (50, 100, 200, 500, 1000, 2000) if horizon / s <= 5)
    return axis("round", "number", range=[0, horizon * (1 + room)], showgrid=False, tickvals=list(range(0, horizon + 1, step)))
