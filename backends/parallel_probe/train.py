"""Trains the tiny reasoner: ``python -m backends.parallel_probe.train``.

The checkpoint goes to ``out/parallel-probe/`` every few minutes; the same command goes on where the last one stopped. At the end the
weights are written to ``static/weights/parallel-probe/`` (``--ship`` another folder).
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from backends.parallel_probe import expressions, reasoner
from backends.runtime.folders import ROOT

STEPS = 6000
BATCH_TOKENS = 4096
PEAK_RATE = 3e-3
WARM_UP = 200
FLOOR = 0.05  # of the peak, at the end of the cosine
DECAY = 0.05
CLIP = 1.0
LOG_EVERY = 50


def rate(step: int, steps: int) -> float:
    """Learning rate of this step: linear warm-up, then a cosine."""
    if step < WARM_UP:
        return PEAK_RATE * (step + 1) / WARM_UP
    done = (step - WARM_UP) / max(1, steps - WARM_UP)
    return PEAK_RATE * (FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))


class Training:
    """The reasoner in training: model, optimiser, steps done, losses; a batch depends on the seed and its number only."""

    def __init__(self, steps: int, seed: int) -> None:
        torch.manual_seed(seed)
        self.steps, self.seed = steps, seed
        self.model = reasoner.build()
        matrices = [p for p in self.model.parameters() if p.dim() == 2]
        gains = [p for p in self.model.parameters() if p.dim() != 2]
        groups = [{"params": matrices, "weight_decay": DECAY}, {"params": gains, "weight_decay": 0.0}]
        self.optimiser = torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.95))
        self.losses: list[float] = []
        self.seconds = 0.0
        self._pools = 0
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []

    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        if not self._waiting:
            self._waiting = expressions.batches(np.random.default_rng([self.seed, self._pools]), BATCH_TOKENS)
            self._pools += 1
        return self._waiting.pop()

    def step(self) -> float:
        """One optimiser step; the mean cross-entropy (nats a character) of its targets."""
        start = time.perf_counter()
        ids, weights = (torch.from_numpy(part) for part in self.batch())
        for group in self.optimiser.param_groups:
            group["lr"] = rate(len(self.losses), self.steps)
        logits = self.model(input_ids=ids[:, :-1]).logits
        each = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        mask = weights[:, 1:].flatten()
        loss = (each * mask).sum() / mask.sum()
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimiser.step()
        self.losses.append(loss.item())
        self.seconds += time.perf_counter() - start
        return self.losses[-1]

    def save(self, path: Path) -> None:
        """Writes the whole state; a crash while writing leaves the former file. The pool of traces that was begun starts anew."""
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {"steps": self.steps, "seed": self.seed, "model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()}
        fresh = path.with_suffix(".new")
        torch.save({**state, "losses": self.losses, "seconds": self.seconds, "pools": self._pools}, fresh)
        fresh.replace(path)

    def resume(self, path: Path) -> None:
        """Goes on from a saved state."""
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.losses, self.seconds, self._pools = list(state["losses"]), state["seconds"], state["pools"]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m backends.parallel_probe.train", description="Train the tiny reasoner.")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so many minutes; the same command goes on later")
    parser.add_argument("--save-minutes", type=float, default=5.0)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "parallel-probe", help="folder of the checkpoint")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    training = Training(given.steps, given.seed)
    checkpoint = given.out / f"reasoner-{given.steps}-{given.seed}.pt"
    if checkpoint.exists():
        training.resume(checkpoint)
    start = saved = time.monotonic()
    while len(training.losses) < training.steps and time.monotonic() - start < 60 * given.minutes:
        training.step()
        if len(training.losses) % LOG_EVERY == 0:
            print(f"step {len(training.losses)} loss {np.mean(training.losses[-LOG_EVERY:]):.3f} {training.seconds:.0f} s", flush=True)
        if time.monotonic() - saved > 60 * given.save_minutes:
            training.save(checkpoint)
            saved = time.monotonic()
    training.save(checkpoint)


if __name__ == "__main__":
    main()
