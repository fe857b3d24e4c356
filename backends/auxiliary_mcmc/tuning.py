"""Step sizes matched by acceptance: a pilot by Robbins and Monro, frozen, its draws discarded (section 4.6 of the method card)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from backends.auxiliary_mcmc.driver import Sampler, State, advance

PILOT_STEPS = 500  # of all chains together
MOST = 0.3  # that log step moves at once


def tune(
    sampler: Sampler, state: State, target: float, generator: torch.Generator, steps: int = PILOT_STEPS, on_step: Callable[[], None] = lambda: None
) -> State:
    """Moves ``sampler.step`` until the chains accept the share ``target`` of their proposals; returns where the pilot's chains ended.

    log step <- log step + (acceptance - target) / sqrt(t), where t counts the steps of all chains: C chains that step together make C such moves at
    once. The second half's mean is kept, which a single last value would scatter around. Raises ValueError unless 0 < target < 1 and steps >= 1.
    """
    if not 0 < target < 1 or steps < 1:
        raise ValueError(f"target {target} and steps {steps}: a share between 0 and 1 and at least 1 step are needed")
    chains, done, log_step, kept = state.theta.shape[0], 0, math.log(sampler.step), []
    while done < steps:
        on_step()
        step = advance(sampler, state, generator)
        state = step.state
        gain = sum(1 / math.sqrt(t) for t in range(done + 1, done + chains + 1))
        done += chains
        # At first a whole crowd of chains would throw the step by factors, which a short pilot could not undo.
        log_step += max(-MOST, min(MOST, gain * (float(step.accepted.double().mean()) - target)))
        sampler.step = math.exp(log_step)
        if 2 * done >= steps:
            kept.append(log_step)
    sampler.step = math.exp(sum(kept) / len(kept))
    return state
