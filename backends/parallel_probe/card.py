"""The card of parallel-probe: what is said of it without running it, and the params it takes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from backends import contract
from backends.contract import Card, Claim, Metric, Paper, Preset, Step, Upload, Weight

_Interval = Annotated[int, Field(ge=1, le=5000)]
_Stable = Annotated[int, Field(ge=1, le=100)]
_Prune = Annotated[int, Field(ge=1, le=100)]
_WarmUp = Annotated[int, Field(ge=0, le=100)]


def _extra(group: str, *, advanced: bool = True, **more: Any) -> dict[str, Any]:
    return {"group": group, **({"advanced": True} if advanced else {}), **more}


class Params(contract.Params):
    """Params of one ensemble and its controller."""

    source: Literal["reasoner", "synthetic", "pool"] = Field(
        "reasoner",
        description="A tiny network that reasons here and now, generated branches, or a file of yours",
        json_schema_extra=_extra("Branches", advanced=False),
    )
    branches: int = Field(
        32, title="Branches N", ge=2, le=128, description="Lines of thought side by side", json_schema_extra=_extra("Branches", advanced=False, unit="count")
    )
    stable: _Stable | Literal["auto", "off"] = Field(
        "auto",
        title="Stable for u",
        description="Stop when the vote has repeated itself so many times",
        json_schema_extra=_extra("Controller", advanced=False, unit="probes", live=True, slider=[2, 60]),
    )
    prune: _Prune | Literal["auto", "off"] = Field(
        "auto",
        title="Cut after k",
        description="Disagreements in a row that cut a branch",
        json_schema_extra=_extra("Controller", advanced=False, unit="probes", live=True, slider=[2, 20]),
    )
    warmup: _WarmUp | Literal["auto"] = Field(
        "auto",
        title="Warm-up W",
        description="Probes before disagreement counts",
        json_schema_extra=_extra("Controller", advanced=False, unit="probes", live=True, slider=[0, 30]),
    )
    interval: _Interval | Literal["auto"] = Field(
        "auto",
        title="Probe interval Δ",
        description="Tokens between two probes; a file brings its own",
        json_schema_extra=_extra("Branches", unit="tokens", slider=[8, 64]),
    )
    leaves: int = Field(7, title="Digits in the expression", ge=3, le=8, description="How hard the reasoner's question is", json_schema_extra=_extra("Branches", unit="count"))
    temperature: float = Field(1.0, ge=0.3, le=1.5, description="Of the reasoner's sampling", json_schema_extra=_extra("Branches"))
    questions: int = Field(1, ge=1, le=300, description="How many questions are asked; the first is shown", json_schema_extra=_extra("Branches", unit="count"))
    difficulty: float | Literal["drawn"] = Field(
        "drawn", description="Of synthetic questions, 0 to 1; drawn: from their law", json_schema_extra=_extra("Branches")
    )
    pool: Upload | None = Field(
        None, title="Your pool (JSON)", description="question, gold_answer, probe_freq, each_branch", json_schema_extra=_extra("Branches", accept=".json")
    )
    method: Literal["parallel-probe", "sc", "asc", "esc", "sac"] = Field(
        "parallel-probe", description="Which one the figures are of; all others run beside it", json_schema_extra=_extra("Controller", live=True)
    )
