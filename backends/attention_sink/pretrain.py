"""Trains one arm of the small pre-training experiment: ``python -m backends.attention_sink.pretrain baseline|headnorm|sigmoid``.

Checkpoints go to ``out/pretrain/`` every few minutes; the same command goes on where the last one stopped. At the end the weights (fp16),
the log and the model card are written to ``static/weights/attention-sink/`` (``--ship`` another folder).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from backends.attention_sink import measures, pretrain_card, pretrain_data
from backends.attention_sink.pretrain_model import ARMS, Arm, LayerTrace, Size, SmallDecoder
from backends.runtime.folders import ROOT

MEASURED_WINDOWS = 32  # validation windows on which the arms are compared at the end
LOG_EVERY = 10


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an arm is trained; the same for all arms. The paper: AdamW (0.9, 0.95), decay 0.1 on matrices, clip 1, cosine to a tenth."""

    steps: int = 2000
    sequences: int = 4
    peak_rate: float = 2e-3
    floor: float = 0.1
    warm_up: int = 100
    decay: float = 0.1
    clip: float = 1.0
    seed: int = 0

    def rate(self, step: int) -> float:
        """Learning rate of this step: linear warm-up, then a cosine down to ``floor`` of the peak."""
        if step < self.warm_up:
            return self.peak_rate * (step + 1) / self.warm_up
        done = (step - self.warm_up) / max(1, self.steps - self.warm_up)
        return self.peak_rate * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * done)))


class Training:
    """One arm in training: model, optimiser, step, losses, seconds; ``save`` and ``resume`` keep all of it."""

    def __init__(self, arm: Arm, size: Size, recipe: Recipe) -> None:
        self.arm, self.size, self.recipe = arm, size, recipe
        self.model = SmallDecoder(size, arm, recipe.seed)
        matrices = [p for n, p in self.model.named_parameters() if p.dim() == 2 and "head_norm" not in n]
        gains = [p for n, p in self.model.named_parameters() if p.dim() != 2 or "head_norm" in n]
        groups = [{"params": matrices, "weight_decay": recipe.decay}, {"params": gains, "weight_decay": 0.0}]
        self.optimiser = torch.optim.AdamW(groups, lr=recipe.peak_rate, betas=(0.9, 0.95))
        self.losses: list[float] = []  # of every step, so its length is the number of steps done
        self.seconds = 0.0

    def step(self, ids: np.ndarray) -> float:
        """One optimiser step; the mean cross-entropy (nats a token) of its batch."""
        start, at = time.perf_counter(), len(self.losses)
        inputs, targets = pretrain_data.batch(ids, self.recipe.sequences, self.size.block, self.recipe.seed, at)
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.rate(at)
        loss = nn.functional.cross_entropy(self.model(inputs).flatten(0, 1), targets.flatten())
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        self.optimiser.step()
        self.losses.append(loss.item())
        self.seconds += time.perf_counter() - start
        return self.losses[-1]

    def _identity(self) -> dict[str, Any]:
        return {"arm": self.arm, "size": asdict(self.size), "recipe": asdict(self.recipe)}

    def save(self, path: Path) -> None:
        """Writes the whole state; a crash while writing leaves the former file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {"identity": self._identity(), "model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()}
        fresh = path.with_suffix(".new")
        torch.save({**state, "losses": self.losses, "seconds": self.seconds}, fresh)
        fresh.replace(path)

    def resume(self, path: Path) -> None:
        """Goes on from a saved state; raises ValueError when it is of another arm, size or recipe."""
        state = torch.load(path, weights_only=True)
        if state["identity"] != self._identity():
            raise ValueError(f"{path} holds another arm, size or recipe; choose another folder with --out")
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.losses, self.seconds = list(state["losses"]), state["seconds"]


@torch.no_grad()
def measure(model: SmallDecoder, ids: np.ndarray, windows: int = MEASURED_WINDOWS) -> dict[str, Any]:
    """Loss and, per layer, what tells a sink, on the first validation windows.

    loss: nats a token. sink: S_0, the mean attention on token 0 over heads and later queries; sigmoid weights are first divided by the sum of their
    row. rank: effective rank of the layer's output, mean over windows. dominance: of token 0 leaving the layer, mean over windows.
    spread: std over the width of o_t at each position, read before W_O and before any head norm, mean over windows: (layers, T).
    norm_first, norm_others: mean length of token 0 and of the others leaving the layer.
    """
    inputs, targets = pretrain_data.validation_windows(ids, model.size.block, windows)
    trace: list[LayerTrace] = []
    loss = nn.functional.cross_entropy(model(inputs, trace).flatten(0, 1), targets.flatten()).item()
    found: dict[str, Any] = {"windows": len(inputs), "loss": loss, "sink": [], "rank": [], "dominance": [], "norm_first": [], "norm_others": [], "spread": []}
    for layer in trace:
        share = layer.attention / layer.attention.sum(-1, keepdim=True)
        lengths = layer.leaving.norm(dim=-1)
        found["sink"].append(measures.sink_score(share, 0))
        found["rank"].append(float(np.mean([measures.effective_rank(h) for h in layer.leaving])))
        found["dominance"].append(float(np.mean(measures.dominance_ratio(layer.leaving[:, 0]))))
        found["norm_first"].append(float(lengths[:, 0].mean()))
        found["norm_others"].append(float(lengths[:, 1:].mean()))
        found["spread"].append(measures.spread_over_width(layer.o).mean(0).tolist())
    return found


def ship(training: Training, folder: Path) -> Path:
    """Writes ``<arm>.safetensors`` (fp16), ``<arm>.json`` (log, figures measured on those fp16 weights) and MODEL_CARD.md; the log's path."""
    folder.mkdir(parents=True, exist_ok=True)
    halves = {name: value.half().contiguous() for name, value in training.model.state_dict().items()}
    save_file(halves, folder / f"{training.arm}.safetensors")
    model = SmallDecoder(training.size, training.arm)
    model.load_state_dict({name: value.float() for name, value in halves.items()})
    training_ids, validation_ids = pretrain_data.tokens()
    kept = range(0, len(training.losses), LOG_EVERY)
    log = {
        "arm": training.arm,
        "size": asdict(training.size),
        "recipe": asdict(training.recipe),
        "parameters": sum(p.numel() for p in model.parameters()),
        "corpus_tokens": {"training": len(training_ids), "validation": len(validation_ids)},
        "trained_tokens": len(training.losses) * training.recipe.sequences * training.size.block,
        "seconds": round(training.seconds, 1),
        "torch": torch.__version__,
        "step": [i + 1 for i in kept],
        "loss": [round(float(np.mean(training.losses[i : i + LOG_EVERY])), 4) for i in kept],
        "measured": measure(model, validation_ids),
    }
    path = folder / f"{training.arm}.json"
    path.write_text(json.dumps(log, indent=1) + "\n")
    pretrain_card.write(folder)
    return path


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m backends.attention_sink.pretrain", description="Train one arm of the small pre-training experiment.")
    parser.add_argument("arm", choices=ARMS)
    parser.add_argument("--steps", type=int, default=Recipe().steps)
    parser.add_argument("--seed", type=int, default=Recipe().seed)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so many minutes; the same command goes on later")
    parser.add_argument("--save-minutes", type=float, default=5.0)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "pretrain", help="folder of the checkpoints")
    parser.add_argument("--ship", type=Path, default=pretrain_data.WEIGHTS, help="folder of the finished weights and the log")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    training = Training(given.arm, Size(), Recipe(steps=given.steps, seed=given.seed))
    checkpoint = given.out / f"{given.arm}-{given.steps}-{given.seed}.pt"
    if checkpoint.exists():
        training.resume(checkpoint)
    ids, _ = pretrain_data.tokens()
    start = saved = time.monotonic()
    while len(training.losses) < training.recipe.steps and time.monotonic() - start < 60 * given.minutes:
        loss = training.step(ids)
        if len(training.losses) % LOG_EVERY == 0:
            print(f"{training.arm} step {len(training.losses)} loss {loss:.3f} {training.seconds:.0f} s", flush=True)
        if time.monotonic() - saved > 60 * given.save_minutes:
            training.save(checkpoint)
            saved = time.monotonic()
    training.save(checkpoint)
    if len(training.losses) == training.recipe.steps:
        print(f"written: {ship(training, given.ship)}")


if __name__ == "__main__":
    main()
