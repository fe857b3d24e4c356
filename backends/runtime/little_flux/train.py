"""Trains the little FLUX: ``python -m backends.runtime.little_flux.train vae|flow|ship``.

Checkpoints go to ``out/little-flux/`` every five minutes; the same command goes on where the last one stopped. The flow needs the finished
autoencoder of the first part in the same folder; ``ship`` writes what both have reached to ``static/weights/little-flux/``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKL

from backends.runtime.folders import ROOT
from backends.runtime.little_flux import data, flow_training, pipeline, vae_training

CHECKPOINT_S, REPORT_STEPS = 300, 100
UNSEEN = 1000  # pictures on which the finished autoencoder is measured


def _run(training: vae_training.VaeTraining | flow_training.FlowTraining, steps: Iterator[Any]) -> None:
    """Trains to the end of its time with a line every REPORT_STEPS steps and a checkpoint every CHECKPOINT_S seconds."""
    saved, recent = time.perf_counter(), []
    for figures in steps:
        recent.append(figures)
        clock = training.clock
        if clock.step % REPORT_STEPS == 0:
            shown = " ".join(f"{figure:.5f}" for figure in np.atleast_1d(np.mean(recent, axis=0)))
            print(f"step {clock.step}, {clock.wall_s / 60:.1f} min, cpu {clock.cpu_s / 60:.1f} min: {shown}", flush=True)
            recent.clear()
        if time.perf_counter() - saved > CHECKPOINT_S:
            training.save()
            saved = time.perf_counter()
    training.save()


def train_vae(out: Path, minutes: float, count: int) -> None:
    """The autoencoder, to ``out/vae``."""
    training = vae_training.VaeTraining(out / "vae.pt", minutes)
    _run(training, training.steps(data.load_or_make(out / f"pictures-{count}-0.npz", count, 0)))
    vae, psnr = vae_training.finished(training, data.make(UNSEEN, 1))
    vae.save_pretrained(out / "vae")
    print(f"PSNR {psnr:.2f} dB on {UNSEEN:,} unseen pictures, shift {vae.config.shift_factor:.4f}, scale {vae.config.scaling_factor:.4f}")


def train_flow(out: Path, minutes: float, count: int, start: Path | None, compiled: bool) -> None:
    """The flow and its text encoders, to the checkpoint ``out/flow.pt``. start: a shipped folder to begin with where there is no checkpoint."""
    vae = AutoencoderKL.from_pretrained(out / "vae")
    pictures = data.load_or_make(out / f"pictures-{count}-2.npz", count, 2)
    cached = flow_training.latents(vae, pictures, out / f"latents-{count}-2.pt")
    training = flow_training.FlowTraining(out / "flow.pt", minutes)
    if start is not None and training.clock.step == 0:
        training.start_from(start)
    if compiled:
        training.compile()
    _run(training, training.steps(pictures, cached))


def ship(out: Path, folder: Path) -> None:
    """What the checkpoint holds, as a pipeline's folder."""
    training = flow_training.FlowTraining(out / "flow.pt", 1)
    training.ship(AutoencoderKL.from_pretrained(out / "vae"), folder)
    print(f"{folder}: step {training.clock.step}, {training.clock.wall_s / 60:.0f} min, cpu {training.clock.cpu_s / 60:.0f} min")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("vae", "flow", "ship"))
    parser.add_argument("--minutes", type=float, default=90, help="wall time of the whole training; the rate lands at zero then")
    parser.add_argument("--pictures", type=int, default=40_000, help="size of the training set")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "little-flux", help="where checkpoints and data lie")
    parser.add_argument("--start", type=Path, help="flow: a shipped folder to begin with")
    parser.add_argument("--compile", action="store_true", help="flow: compile the blocks first (needs a C++ compiler)")
    parser.add_argument("--folder", type=Path, default=pipeline.FOLDER, help="ship: where the pipeline goes")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.part == "vae":
        train_vae(given.out, given.minutes, given.pictures)
    elif given.part == "flow":
        train_flow(given.out, given.minutes, given.pictures, given.start, given.compile)
    else:
        ship(given.out, given.folder)


if __name__ == "__main__":
    main()
