"""The shipped runs of the small pre-training experiment: their logs, their weights, and in words what they are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from backends.attention_sink.pretrain_data import WEIGHTS
from backends.attention_sink.pretrain_model import ARMS, Arm, Size, SmallDecoder
from backends.contract import InputError


@dataclass(frozen=True, slots=True)
class Shipped:
    """One trained arm. log: the JSON that ``pretrain.ship`` wrote; its ``measured`` figures are of the shipped fp16 weights."""

    arm: Arm
    log: dict[str, Any]

    @property
    def curve(self) -> dict[str, np.ndarray]:
        """What a picture needs: step, loss (k,), and per layer sink, rank, dominance (layers,); spread (layers, T)."""
        measured = self.log["measured"]
        curves = {name: np.asarray(self.log[name]) for name in ("step", "loss")}
        return curves | {name: np.asarray(measured[name]) for name in ("sink", "rank", "dominance", "spread")}

    @property
    def validation_loss(self) -> float:
        """Nats a token on the held-out verses."""
        return float(self.log["measured"]["loss"])

    def model(self, folder: Path = WEIGHTS) -> SmallDecoder:
        """The trained decoder in fp32, in eval mode and without gradients."""
        from safetensors.torch import load_file

        model = SmallDecoder(Size(**self.log["size"]), self.arm)
        model.load_state_dict({name: value.float() for name, value in load_file(folder / f"{self.arm}.safetensors").items()})
        return model.eval().requires_grad_(False)


@cache
def shipped(folder: Path = WEIGHTS) -> dict[Arm, Shipped]:
    """The arms whose log and weights are there, in the order baseline, headnorm, sigmoid; empty when none was trained."""
    there = (arm for arm in ARMS if (folder / f"{arm}.json").exists() and (folder / f"{arm}.safetensors").exists())
    return {arm: Shipped(arm, json.loads((folder / f"{arm}.json").read_text())) for arm in there}


def arm(name: str) -> Shipped:
    """The shipped arm of this name; raises InputError with what there is."""
    found = shipped()
    if name not in found:
        remedy = f"choose one of {', '.join(found)}" if found else "train one: python -m backends.attention_sink.pretrain baseline"
        raise InputError("arm", f"no trained arm {name!r} is shipped", remedy)
    return next(run for key, run in found.items() if key == name)


def pretraining() -> dict[str, Any]:
    """``{"arms": {name: {step, loss, sink, rank, dominance, spread}}, "made_by": sentence}`` for the page; empty where no arm is shipped."""
    return {"arms": {name: run.curve for name, run in shipped().items()}, "made_by": description()} if shipped() else {}


def description() -> str:
    """What the shipped runs are, in one sentence for people."""
    runs = shipped()
    if not runs:
        return "No arm of the small pre-training experiment is shipped."
    log = next(iter(runs.values())).log
    size, recipe = log["size"], log["recipe"]
    return (
        f"Trained in this lab, not by the paper: {log['parameters'] / 1e6:.1f} M parameters, {size['layers']} layers, {recipe['steps']:,} steps of "
        f"{recipe['sequences']} x {size['block']} tokens of the King James Version on one CPU core; the paper's models have 152 M and see billions of tokens."
    )
