"""Steps a second of 100,000 particles on the simplex, beside a plain NumPy program of the same step; the means must agree.

The exact step has no Poisson numbers of its own: a noncentral chi-square number stands for Poisson and Gamma. The NumPy peer draws both,
as section 4.4 of the card writes it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from backends.mirror_mfld import MeanMatching, Settings, Simplex, simulate

SIZES = (2_000, 20_000, 100_000)
Q = np.array([0.7, 0.2, 0.1])
STEPS = 60
STEP, TEMPERATURE = 0.01, 0.1
DIFFUSIONS = ("exact", "em-floor")
WANTED_A_SECOND = 20.0  # of 100,000 particles on 2 cores
AGREE = 5.0  # standard errors between the means after the run


def numpy_exact(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    moved = x * np.exp(-STEP * 2 * (x.mean(0) - Q))
    drawn = rng.standard_gamma(1 + rng.poisson(moved / moved.sum(1, keepdims=True) / (TEMPERATURE * STEP)))
    return drawn / drawn.sum(1, keepdims=True)


def numpy_floor(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    h = TEMPERATURE * STEP
    y = np.log(np.maximum(x, h)) - STEP * 2 * (x.mean(0) - Q)
    inside = np.exp(y - y.max(1, keepdims=True))
    inside = np.maximum(inside / inside.sum(1, keepdims=True), h)
    y = np.log(inside) + np.sqrt(2 * h / inside) * rng.standard_normal(x.shape)
    out = np.exp(y - y.max(1, keepdims=True))
    return out / out.sum(1, keepdims=True)


PEERS: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {"exact": numpy_exact, "em-floor": numpy_floor}


def rows() -> Iterator[dict[str, Any]]:
    """One row a scheme and a size; growth is the exponent from the size before."""
    import torch

    domain = Simplex(3)
    functional = MeanMatching(domain, Q)
    for diffusion in DIFFUSIONS:
        before: tuple[int, float] | None = None
        for size in SIZES:
            start = domain.uniform(size, torch.Generator().manual_seed(size))
            settings = Settings(STEP, TEMPERATURE, 0.0, diffusion)  # type: ignore[arg-type]
            clouds = simulate(domain, functional, settings, start, torch.Generator().manual_seed(1))
            next(clouds)
            began = time.perf_counter()
            *_, ours = islice(clouds, STEPS - 1)
            ours_s = (time.perf_counter() - began) / (STEPS - 1)
            x, rng = start.numpy(), np.random.default_rng(1)
            x = PEERS[diffusion](x, rng)
            began = time.perf_counter()
            for _ in range(STEPS - 1):
                x = PEERS[diffusion](x, rng)
            peer_s = (time.perf_counter() - began) / (STEPS - 1)
            apart = np.abs(ours.numpy().mean(0) - x.mean(0)) / (x.std(0) * math.sqrt(2 / size))
            if apart.max() > AGREE:
                raise AssertionError(f"{diffusion}, N = {size}: the means are {apart.max():.1f} standard errors apart")
            growth = math.log(ours_s / before[1]) / math.log(size / before[0]) if before else None
            before = (size, ours_s)
            yield {
                "method": "mirror-mfld",
                "work": f"one step on the simplex, {diffusion}",
                "size": size,
                "ours_s": ours_s,
                "peer": "the same step in NumPy",
                "peer_s": peer_s,
                "ratio": peer_s / ours_s,
                "growth": growth,
                "note": f"{1 / ours_s:.0f} steps a second" + (f", at least {WANTED_A_SECOND:g} wanted" if size == SIZES[-1] else ""),
            }
