"""How each method of plate's race is drawn, the same in every picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

HALF_PLOT_PX = 300


@dataclass(frozen=True, slots=True)
class Mark:
    """name: in words, short; sees_old: it keeps old data, so its end is an open sign."""

    name: str
    colour: str
    dash: str
    symbol: str = "circle"
    sees_old: bool = False


MARKS: Mapping[str, Mark] = {
    "head": Mark("head only", "$peer-3", "dashdot", "square"),
    "osf": Mark("OSF", "$peer-1", "longdash", "triangle-up"),
    "full": Mark("full", "$peer-2", "dot", "diamond"),
    "lora": Mark("LoRA", "$peer-1", "dash", "triangle-down"),
    "ewc": Mark("EWC, old data", "$truth", "longdashdot", "diamond-open", True),
    "replay": Mark("replay, old data", "$truth", "dot", "square-open", True),
    "plate": Mark("PLATE", "$method", "solid"),  # last: drawn over the others
}


def raced(data: Mapping[str, Any]) -> Iterator[tuple[str, Mark, Mapping[str, Any]]]:
    """Key, mark and trail of the methods that have begun."""
    for key, mark in MARKS.items():
        if key in data["trails"]:
            yield key, mark, data["trails"][key]


def name_of(key: str, data: Mapping[str, Any]) -> str:
    """The method's name, LoRA's with its rank."""
    return f"LoRA {data['kind']['lora_rank']}" if key == "lora" else MARKS[key].name


def lost(trail: Mapping[str, Any]) -> float:
    """Old accuracy that a trail has lost so far."""
    return float(trail["old"][0] - trail["old"][-1])
