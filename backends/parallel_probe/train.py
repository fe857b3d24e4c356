"""Trains the tiny reasoner, measures it and ships it: ``python -m backends.parallel_probe.train``.

The checkpoint goes to ``out/parallel-probe/`` every few minutes; the same command goes on where the last one stopped. At the end the
reasoner is measured, and only one that passes (``acceptance``) is written to ``static/weights/parallel-probe/``, with its MODEL_CARD.md.
"""

from __future__ import annotations

import argparse
import math
import time
from datetime import date
from pathlib import Path

import numpy as np
import torch
from torch import nn

from backends.parallel_probe import acceptance, expressions, reasoner
from backends.runtime.folders import ROOT

STEPS = 2400
BATCH_TOKENS = 4096
PEAK_RATE = 3e-3
WARM_UP = 200
FLOOR = 0.05  # of the peak, at the end of the cosine
DECAY = 0.05
CLIP = 1.0
LOG_EVERY = 50
QUESTIONS = 40  # of the measurement at the end
LEAVES, TEMPERATURE = 6, 1.0  # of these questions, and the page's defaults


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


def ship(training: Training, given: argparse.Namespace) -> None:
    """Measures the reasoner as it will be used, in half precision, and keeps it if it passes. Raises SystemExit if it does not."""
    fresh = reasoner.WEIGHTS.with_suffix(".new")
    reasoner.ship(training.model, fresh)
    found = acceptance.measure(reasoner.load(fresh), QUESTIONS, given.leaves, given.temperature)
    print(found, flush=True)
    if not found.accepted:
        fresh.unlink()
        raise SystemExit("not accepted: another number of digits, another temperature or other steps are needed")
    fresh.replace(reasoner.WEIGHTS)
    reasoner.WEIGHTS.with_name("MODEL_CARD.md").write_text(card(training, found, given.after), encoding="utf-8")


def card(training: Training, found: acceptance.Acceptance, after: int | None) -> str:
    """What is said beside the weights."""
    command = f"--steps {training.steps} --seed {training.seed} --leaves {found.leaves} --temperature {found.temperature:g}"
    if after is not None:
        command += f" --after {after}` after `... --steps {after} --seed {training.seed}"
    return f"""# The tiny reasoner

Trained in this lab for the page of Parallel-Probe (arXiv 2602.03845) on {date.today().isoformat()}. It is no model of the paper. This file is written by
`python -m backends.parallel_probe.train {command}`.

## What was trained
- Decoder: Llama-style, {reasoner.LAYERS} layers, {reasoner.HEADS} heads, width {reasoner.WIDTH},
  SwiGLU {reasoner.MLP_WIDTH}, tied embeddings, {reasoner.parameters():,} parameters, {expressions.VOCABULARY} characters.
- Task: nested arithmetic modulo 10 with {expressions.LEAVES[0]} to {expressions.LEAVES[1]} digits. A trace reduces one random
  innermost pair a step and writes the running expression; then, with probability {expressions.RECHECK_PROBABILITY:.2f} each time, it rechecks
  from the start; at most {expressions.BLOCK_TOKENS} characters. A third of the traces are cut anywhere and closed with the answer sign and the
  right digit, so that a probe asks for what was trained.
- Recipe: {training.steps:,} steps of about {BATCH_TOKENS:,} characters, AdamW (0.9, 0.95), decay {DECAY:g} on matrices,
  clip {CLIP:g}, rate {PEAK_RATE:g} after {WARM_UP} steps of warm-up, cosine to a twentieth, fp32, one CPU thread that was shared with
  other work, torch {torch.__version__}. Seconds: {training.seconds:,.0f}.
  Loss of the last {LOG_EVERY} steps: {np.mean(training.losses[-LOG_EVERY:]):.3f} nats a character.
- Shipped: `{reasoner.WEIGHTS.name}` in fp16.

## What was measured
{found.questions} new questions of {found.leaves} digits, {acceptance.BRANCHES} branches, temperature {found.temperature:g},
a probe every {acceptance.INTERVAL} characters, u, k, W = {acceptance.SETTING}:

| figure | value | accepted |
|---|---|---|
| branches that come out right | {found.single_branch:.3f} | {acceptance.SINGLE_BRANCH[0]:g} to {acceptance.SINGLE_BRANCH[1]:g} |
| onset ratio, mean | {found.onset:.3f} | below {acceptance.ONSET:g} |
| right by Parallel-Probe / by plain voting | {found.accuracy:.3f} / {found.accuracy_sc:.3f} | |
| sequential tokens | {found.sequential:.1f} / {found.sequential_sc:.1f} | |
| total tokens | {found.total:.0f} / {found.total_sc:.0f} | |

The number of digits and the temperature were chosen so that the first two lie inside their bounds.

## Use
To be looked at on the page and in tests. Licence of the weights: Apache-2.0, as the code.
"""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m backends.parallel_probe.train", description="Train the tiny reasoner.")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--after", type=int, help="go on from the end of the run of so many steps, at this run's rates")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so many minutes; the same command goes on later")
    parser.add_argument("--save-minutes", type=float, default=5.0)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "parallel-probe", help="folder of the checkpoint")
    parser.add_argument("--leaves", type=int, default=LEAVES, help="digits of the questions that it is measured on")
    parser.add_argument("--temperature", type=float, default=TEMPERATURE, help="of the sampling when it is measured")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    training = Training(given.steps, given.seed)
    checkpoint = given.out / f"reasoner-{given.steps}-{given.seed}.pt"
    if checkpoint.exists():
        training.resume(checkpoint)
    elif given.after is not None:
        training.resume(given.out / f"reasoner-{given.after}-{given.seed}.pt")
    start = saved = time.monotonic()
    while len(training.losses) < training.steps and time.monotonic() - start < 60 * given.minutes:
        training.step()
        if len(training.losses) % LOG_EVERY == 0:
            print(f"step {len(training.losses)} loss {np.mean(training.losses[-LOG_EVERY:]):.3f} {training.seconds:.0f} s", flush=True)
        if time.monotonic() - saved > 60 * given.save_minutes:
            training.save(checkpoint)
            saved = time.monotonic()
    training.save(checkpoint)
    if len(training.losses) == training.steps:
        ship(training, given)


if __name__ == "__main__":
    main()
