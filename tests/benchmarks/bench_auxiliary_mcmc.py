"""Effective draws a second on robust regression, N = 100,000, d = 10, against MALA on all rows (ours and blackjax) and PoissonMH; cost a step in N.

Every sampler is tuned to acceptance .55 in a pilot; time is processor time without it. The slowest coordinate counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from backends.auxiliary_mcmc import FullSampler, Mala, PoissonSampler, RandomWalk, effective, integrated_reference, robust_regression, run_chains, tune
from backends.auxiliary_mcmc.driver import Sampler, start
from backends.auxiliary_mcmc.reference import Reference

N, KAPPA, TARGET = 100_000, 0.01, 0.55
CHAINS = 16
SIZES = (10_000, 100_000, 1_000_000)


def starting(reference: Reference, chains: int) -> torch.Tensor:
    assert reference.points is not None
    return torch.from_numpy(reference.points[np.random.default_rng(0).choice(len(reference.points), chains, p=reference.weights)])


def rate(sampler: Sampler, begin: torch.Tensor, steps: int, pilot: int) -> tuple[float, float]:
    """(effective draws a processor second of the slowest coordinate, seconds a step of one chain)."""
    generator = torch.Generator().manual_seed(1)
    state = tune(sampler, start(sampler, begin), TARGET, generator, steps=pilot)
    began = time.process_time()
    ran = run_chains(sampler, state.theta, steps, generator)
    seconds = time.process_time() - began
    return float(effective(ran.draws.numpy())[0].min()) / seconds, seconds / steps / len(begin)


def blackjax_rate(step: float, begin: torch.Tensor, steps: int) -> float:
    """The same of blackjax's MALA at this step, compiled before it is timed; float64."""
    import blackjax
    import jax

    jax.config.update("jax_enable_x64", True)
    model = robust_regression(N, 0)
    a, b = jax.numpy.asarray(model.table[:, :10].numpy()), jax.numpy.asarray(model.table[:, 10].numpy())
    kernel = blackjax.mala(lambda theta: -model.factor * jax.numpy.log1p((a @ theta + b) ** 2 / model.nu).sum(), step_size=step**2)

    def chain(theta: Any, key: Any) -> Any:
        def advance(state: Any, key: Any) -> Any:
            state, _ = kernel.step(key, state)
            return state, state.position

        return jax.lax.scan(advance, kernel.init(theta), jax.random.split(key, steps))[1]

    compiled = jax.jit(jax.vmap(chain)).lower(jax.numpy.asarray(begin.numpy()), jax.random.split(jax.random.PRNGKey(0), len(begin))).compile()
    began = time.process_time()
    drawn = compiled(jax.numpy.asarray(begin.numpy()), jax.random.split(jax.random.PRNGKey(1), len(begin)))
    drawn.block_until_ready()
    return float(effective(np.asarray(drawn).transpose(1, 0, 2))[0].min()) / (time.process_time() - began)


def rows() -> Iterator[dict[str, Any]]:
    """Poisson-MALA against its peers, then its cost a step as N grows with the weight of all rows held."""
    torch.set_num_threads(1)
    model = robust_regression(N, 0)
    begin = starting(integrated_reference(model, 0), CHAINS)
    ours, a_step = rate(PoissonSampler(model, Mala(), step=0.36, kappa=KAPPA), begin, 1000, 2000)
    full = FullSampler(model, Mala(), step=0.38)
    peers = {
        "MALA on all rows": rate(full, begin[:8], 400, 400)[0],
        "PoissonMH": rate(PoissonSampler(model, RandomWalk(), step=0.17, kappa=KAPPA), begin, 2500, 2000)[0],
        "blackjax MALA": blackjax_rate(full.step, begin[:8], 400),
    }
    for peer, theirs in peers.items():
        yield {
            "method": "auxiliary-mcmc",
            "work": "seconds for one effective draw, robust regression",
            "size": N,
            "ours_s": 1 / ours,
            "peer": peer,
            "peer_s": 1 / theirs,
            "ratio": ours / theirs,
            "growth": None,
            "note": f"Poisson-MALA {ours:.0f} effective draws a second, {peer} {theirs:.0f}; {1e6 * a_step:.0f} us a step",
        }
    before: tuple[int, float] | None = None
    for n in SIZES:
        tall = robust_regression(n, 0, tempering=10 / n)
        _, seconds = rate(PoissonSampler(tall, Mala(), step=0.36, kappa=KAPPA), torch.ones(CHAINS, 10, dtype=torch.float64), 300, 160)
        growth = math.log(seconds / before[1]) / math.log(n / before[0]) if before else None
        before = (n, seconds)
        yield {
            "method": "auxiliary-mcmc",
            "work": "one Poisson-MALA step of one chain",
            "size": n,
            "ours_s": seconds,
            "peer": None,
            "peer_s": None,
            "ratio": None,
            "growth": growth,
            "note": "the weight of all rows together held at 10",
        }
