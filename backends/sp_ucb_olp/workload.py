"""From params to a workload, its exact answer and the terms of the learner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backends.contract import Context, InputError
from backends.sp_ucb_olp import digits
from backends.sp_ucb_olp.card import Params
from backends.sp_ucb_olp.instances import CLUSTER, COEFFICIENTS, SMALL_JOBS, Instance, Requests, crossing_surpluses, separate_resources, synthetic_cluster
from backends.sp_ucb_olp.oracle import Oracle, fluid_oracle
from backends.sp_ucb_olp.policies import Terms
from backends.sp_ucb_olp.radius import default_slack, price_bound
from backends.sp_ucb_olp.surplus import Array
from backends.sp_ucb_olp.trace import read_trace, trace_instance

_REQUESTS, _PICKS = 0, 1  # streams of randomness


@dataclass(frozen=True, slots=True)
class Workload:
    """instance: where requests come from; terms: what the learner is told; oracle: the exact answer; notes: in plain words."""

    instance: Instance
    terms: Terms
    oracle: Oracle
    notes: tuple[str, ...]

    def draw(self, seed: int) -> tuple[Requests, Array]:
        """The requests of the whole run, and (T,) uniform numbers that pick from a mixture."""
        horizon = self.terms.horizon
        requests = self.instance.requests(horizon, np.random.default_rng([seed, _REQUESTS]))
        return requests, np.random.default_rng([seed, _PICKS]).uniform(size=horizon)


def load(params: Params, context: Context) -> Workload:
    """Builds the workload of these params. Raises InputError for ``trace`` where a file is missing or does not serve."""
    instance, notes, rounds = _instance(params, context)
    configurations, resources = len(instance.names), len(instance.resources)
    horizon = min(params.horizon, rounds or params.horizon)
    if configurations < params.configurations:
        notes = (*notes, f"this workload has {configurations} configurations, not {params.configurations}")
    if horizon < params.horizon:
        notes = (*notes, f"the trace has {horizon} jobs, so there are {horizon} rounds, not {params.horizon}")
    budget = np.array(params.budgets[:resources])
    price_max = price_bound(instance.r_max, budget)
    slack = default_slack(horizon) if params.slack == "auto" else params.slack
    terms = Terms(configurations, budget, horizon, instance.r_max, instance.a_max, price_max, slack)
    file = params.trace.sha256 if params.trace and params.preset_instance == "trace" else None
    key = (params.preset_instance, configurations, budget.tolist(), file, horizon if file else 0)
    oracle = context.memo("oracle", key, lambda: fluid_oracle(instance.surplus, budget, configurations=configurations, price_max=price_max))
    return Workload(instance, terms, oracle, notes)


def _instance(params: Params, context: Context) -> tuple[Instance, tuple[str, ...], int | None]:
    """The instance, notes, and how many rounds it can serve (None: any number)."""
    offered = params.configurations
    match params.preset_instance:
        case "separate-resources":
            return separate_resources(offered), (), None
        case "crossing":
            return crossing_surpluses(offered), (), None
        case "synthetic-cluster" | "synthetic-small-jobs":
            law = CLUSTER if params.preset_instance == "synthetic-cluster" else SMALL_JOBS
            return synthetic_cluster(law, offered), ("generated jobs, not the Alibaba data",), None
        case "digits":
            network = context.memo("digits", digits.EPOCHS, lambda: digits.train(context.check, lambda epoch: _say(context, epoch)))
            return digits.pool(network, offered), (), None
    if params.trace is None:
        raise InputError("trace", "no file was given", "choose a trace with plan_cpu, plan_mem, start_time and end_time")
    jobs, notes = read_trace(params.trace)
    least = min(offered, len(COEFFICIENTS)) + 1
    if len(jobs) < least:
        raise InputError("trace", f"only {len(jobs)} jobs can be used", f"give at least {least}, one more than there are configurations")
    jobs = jobs[: params.horizon]
    return trace_instance(jobs, offered, params.trace.name), notes, len(jobs)


def _say(context: Context, epoch: int) -> None:
    context.say(f"training the network on {digits.TRAINED_ON} digits: epoch {epoch} of {digits.EPOCHS}")
