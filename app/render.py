"""A frame as one string for the browser: views, metric strip, what ran. Made once a frame, shared by all who watch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from app import pages
from app.controls import live_fields
from app.plotting import view_json
from backends import registry
from backends.contract import Card, Frame, MetricValue, Params
from backends.registry import Registered
from backends.runtime import device
from backends.validation import validate

ABBREVIATIONS = {word.lower(): word for word in ("IoU", "NLL", "TEIG", "EIG", "MAPIE", "CQR", "CV")}  # the metrics' names are lower case


def render(slug: str, frame: Frame, params: Params) -> str:
    """The stage's JSON string of one frame: {run, progress, views, metrics, ran, notes}."""
    method = registry.get(slug)
    made_by: Mapping[str, Any] = frame.data.get("made_by", {})
    stage = {
        "run": picture_id(method, params),
        "progress": frame.progress,
        "views": [view_json(v) for v in pages.load(slug).views(frame, params)],
        "metrics": metrics(method, frame.metrics, params),
        "ran": {**made_by, "device": made_by.get("device") or device.describe(), "seed": params.seed, "version": method.version}
        | ({"seconds": frame.metrics["seconds"]} if "seconds" in frame.metrics else {}),
        "notes": list(frame.data.get("notes", [])),
    }
    return orjson.dumps(stage).decode()


def picture_id(method: Registered, params: Params) -> str:
    """Names what the picture shows but for the live fields: a slider that is dragged leaves no ghosts."""
    return hashlib.sha256(params.model_dump_json(exclude=set(live_fields(method.Params))).encode()).hexdigest()[:12]


def metric_label(name: str) -> str:
    """A metric's name in words.

    >>> metric_label("delta_e_steered"), metric_label("mask_iou")
    ('ΔE steered', 'mask IoU')
    """
    return " ".join(ABBREVIATIONS.get(word, word) for word in name.replace("delta_e", "ΔE").replace("20pct", "20 % of the steps").split("_"))


def metrics(method: Registered, values: Mapping[str, MetricValue], params: Params) -> list[dict[str, Any]]:
    """The metric strip: value, unit, better-direction and, for the very params of a claim, the stated figure."""
    stated = stated_figures(method, params)
    return [
        {
            "name": name,
            "label": metric_label(name),
            "value": values.get(name),
            "unit": metric.unit,
            "better": metric.better,
            "meaning": metric.meaning,
            "kind": metric.kind,
            "stated": stated.get(name),
        }
        for name, metric in method.card.metrics.items()
        if name in values
    ]


def stated_figures(method: Registered, params: Params) -> dict[str, str]:
    """The stated figure of each metric whose claim was made for these params, the seed aside."""
    here = params.model_copy(update={"seed": 0})
    return {c.metric: f"{c.value:g}" for c in method.card.claims if claim_params(method.card, method.Params, c.name).model_copy(update={"seed": 0}) == here}


def claim_params(card: Card, model: type[Params], name: str) -> Params:
    """The params that re-measure a claim."""
    claim = next(c for c in card.claims if c.name == name)
    return validate(model, {**card.preset(claim.preset).params, **claim.params})
