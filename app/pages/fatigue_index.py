"""The pictures of fatigue-index: a text that is watched from inside, token by token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.dragging import is_number, moved_end
from app.pages._fatigue_index_signals import attention, compared, drift, entropy, flips, prompt, repetition, temperature
from app.pages._fatigue_index_study import known, scores, study
from app.pages._fatigue_index_text import contributions, tokens
from app.plotting import Changes, Panel, View, message
from backends.contract import Frame
from backends.fatigue_index.card import PAPER_WEIGHTS

WEIGHTS = {
    "paper": ("the paper's: 0.40, 0.35, 0.25", PAPER_WEIGHTS),
    "attention": ("attention alone", [1.0, 0.0, 0.0]),
    "entropy": ("entropy alone", [0.0, 1.0, 0.0]),
    "drift": ("drift alone", [0.0, 0.0, 1.0]),
}


def views(frame: Frame, params: Any) -> list[View]:
    """The text and what is known of it so far; in the study, its scatter."""
    data = frame.data
    if "study" in data:
        return [study(data), scores(data), known(data)]
    if "tokens" not in data:
        return [message("fatigue", "The prompt is being read", "The first token comes in a moment.", span="main")]
    made: list[View] = [
        tokens(data, "tokens", "The text as it is written", "lead"),
        contributions(data, params),
        tokens(data, "text", "The whole text, tinted by the index", "wide"),
        compared(data, params),
        attention(data),
        entropy(data),
        drift(data, params),
        prompt(data),
        flips(data),
        repetition(data),
        weights(params),
    ]
    if params.treatment == "erd":
        made.append(temperature(data))
    return [*made, known(data)]


def weights(params: Any) -> Panel:
    """Chips that set the weights: the paper's, or one signal alone as its peers."""
    chosen = next((name for name, (_, values) in WEIGHTS.items() if list(params.weights) == values), None)
    chips = [{"id": name, "text": text, "pressed": name == chosen} for name, (text, _) in WEIGHTS.items()]
    summary = "The weights are the paper's." if chosen == "paper" else "The weights are not the paper's; the first chip sets them back."
    return Panel("weights", "chips", "Weights", {"groups": [{"title": "Weights of the three penalties", "chips": chips}]}, summary, "wide")


def on_event(view: str, event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    """A dragged line sets a level of the alarm, a chip the weights."""
    kind = event.get("type")
    if view == "fatigue" and kind == "drag" and event.get("shape") in ("theta", "theta_low"):
        return _dragged(str(event["shape"]), event, params)
    if view == "weights" and kind == "click":
        chip = event.get("id")
        return Changes({"weights": list(WEIGHTS[chip][1])}, run=True) if isinstance(chip, str) and chip in WEIGHTS else None
    return None


def _dragged(field: str, event: Mapping[str, Any], params: Mapping[str, Any]) -> Changes | None:
    wanted = moved_end(event, params.get(field), along="y")
    if wanted is None:
        return None
    other = params.get("theta_low" if field == "theta" else "theta")
    low, high = (0.3, 0.9) if field == "theta" else (0.0, 0.9)
    if is_number(other):  # the lower line stays below the upper one
        low, high = (max(low, other), high) if field == "theta" else (low, min(high, other))
    return Changes({field: round(min(max(wanted, low), high), 2)}, run=True)
