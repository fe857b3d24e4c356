"""Who races: the samplers of a scene and their full-data peers, how many chains each has, and whether the budget can hold them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import torch

from backends.auxiliary_mcmc.alias import AliasTable
from backends.auxiliary_mcmc.card import Params
from backends.auxiliary_mcmc.driver import Sampler
from backends.auxiliary_mcmc.full_data import FullSampler, Hmc
from backends.auxiliary_mcmc.ising import IdealIsing, ising_exchange
from backends.auxiliary_mcmc.models import Logistic, TallModel
from backends.auxiliary_mcmc.proposals import PROPOSALS
from backends.auxiliary_mcmc.race import Entrant, starting_points
from backends.auxiliary_mcmc.samplers import PoissonSampler, Sgld, TunaSampler, UniformGradient
from backends.auxiliary_mcmc.scenes import OBSERVED_S, Scene
from backends.contract import InputError

POISSON = {"poisson-mh": "random-walk", "poisson-barker": "barker", "poisson-mala": "mala"}
FULL = {"full-mala": "mala", "full-mh": "random-walk", "full-barker": "barker"}
HMC = "full-hmc-5"
CHAINS, FULL_CHAINS, FEWEST_CHAINS = 16, 8, 4
CHAIN_ROWS = 65_536  # rows that all chains of a step hold at once, about
FULL_ROWS = 6e7  # that full-data MALA, which the speed-up is against, may read in the race; the other full-data peers half of it
LIVE_ROWS = 1.2e8  # that all minibatch samplers together may read
LIVE_SECONDS = 20.0
LIVE_STEPS = 200_000  # of a sampler
PILOT, FULL_PILOT = 500, 160  # steps of all chains together, fewer where a pilot would read more than
PILOT_ROWS = 4e6
FEWEST_STEPS = 5  # of each chain
WHOLE_DATA = 10  # times N: from here on reading all rows is the cheaper way


class Build(Protocol):
    """Makes a sampler of this step."""

    def __call__(self, *, step: float) -> Sampler: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """One sampler to race. build(step) makes it; batch: rows that a step is expected to read; steps: of each chain; rank: where its seed stands."""

    name: str
    build: Build
    guess: float
    batch: float
    full: bool
    chains: int
    steps: int
    pilot: int

    def enter(self, scene: Scene, seeds: np.random.SeedSequence, step: float | None = None) -> Entrant:
        """Its chains at their starting points, with random numbers of their own, so that no sampler's result depends on another's."""
        rng = np.random.default_rng(seeds)
        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        sampler = self.build(step=self.guess if step is None else step)
        return Entrant(sampler, starting_points(scene.reference, sampler, self.chains, rng), generator, self.full)


def spotlight(params: Params, scene: Scene) -> str:
    """The sampler that the run is about. Raises InputError where it cannot run on this scene."""
    wanted = params.sampler
    own = {"ising": "exchange", "logistic": "tuna-sgld"}.get(scene.kind, "poisson-mala")
    if wanted == "auto":
        return own
    if (wanted == "exchange") != (scene.kind == "ising"):
        what = "the lattice has no rows to draw a minibatch from" if scene.kind == "ising" else "exchange needs exact draws of whole data sets"
        raise InputError("sampler", what, "choose exchange for the scene ising, another sampler for the others")
    if wanted in POISSON and isinstance(scene.model, Logistic):
        problem = "Poisson minibatches need a bounded support, and logistic coefficients have none"
        raise InputError("sampler", problem, "choose tuna-mh or tuna-sgld here")
    return wanted


def plans(params: Params, scene: Scene, chosen: str) -> list[Plan]:
    """Every sampler of the race, the chosen one among them. Raises InputError when a batch or the budget is out of bounds."""
    if scene.model is None:
        return [_lattice_plan(params, "exchange"), _lattice_plan(params, "full-mh")]
    model, n, d = scene.model, scene.n, scene.model.dimension
    if params.batch > n:
        raise InputError("batch", f"{params.batch} rows of {n:,}", f"choose at most {n:,}")
    least = float(scene.reference.sd.min())
    names = ["tuna-mh", "tuna-sgld"] if isinstance(model, Logistic) else list(POISSON)
    names += [chosen] if chosen not in names else []
    made = [_minibatch_plan(params, scene, name, least, by_hand=name == chosen and params.step != "auto") for name in names]
    made.append(_sgld_plan(params, model, made))
    _check_budget(params, made)
    pull = (10 / d) ** (1 / 6)
    guesses = {"mala": 0.8 * pull, "random-walk": 1.2 / math.sqrt(d), "barker": pull}
    for name, proposal in FULL.items():
        build = partial(FullSampler, model, PROPOSALS[proposal])
        made.append(_full_plan(params, scene, name, build, guesses[proposal] * least, 1))
    made.append(_full_plan(params, scene, HMC, partial(Hmc, model, leaps=5), 0.4 * least, 5))
    return made


def kappa_of(params: Params, scene: Scene) -> float:
    """kappa, the scene's own when automatic."""
    return scene.kappa if params.kappa == "auto" else params.kappa


def full_rows(name: str) -> float:
    """Rows that this full-data peer may read in the race."""
    return FULL_ROWS if name == "full-mala" else FULL_ROWS / 2


def _steps(params: Params, chains: int) -> int:
    """Steps of each chain; with a budget of seconds or touches as many as could ever fit."""
    total = params.budget if params.budget_by == "steps" else LIVE_STEPS
    return max(FEWEST_STEPS, math.ceil(total / chains))


def _minibatch_plan(params: Params, scene: Scene, name: str, least: float, *, by_hand: bool) -> Plan:
    model, d = scene.model, len(scene.names)
    assert model is not None
    if name in POISSON:
        table, kappa, proposal = AliasTable.of(model.bounds), kappa_of(params, scene), PROPOSALS[POISSON[name]]
        batch = kappa * table.total**2 + table.total
        guess = {"poisson-mh": 1.2 / math.sqrt(d), "poisson-barker": 1.0, "poisson-mala": 0.8}[name] * least

        def build(*, step: float) -> Sampler:
            return PoissonSampler(model, proposal, step=step, kappa=kappa, table=table)
    else:
        table = AliasTable.of(model.lipschitz)
        gradient = UniformGradient(model, params.batch, params.clip) if name == "tuna-sgld" else None
        guess = 1.7 / math.sqrt(d) * least
        distance = (params.step if by_hand and params.step != "auto" else guess) * math.sqrt(d)
        batch = params.chi * (table.total * distance) ** 2 + table.total * distance + (params.batch if gradient else 0)

        def build(*, step: float) -> Sampler:
            return TunaSampler(model, step=step, chi=params.chi, gradient=gradient, table=table)

    chains = int(max(FEWEST_CHAINS, min(CHAINS, CHAIN_ROWS // max(batch, 1))))
    pilot = max(chains, min(PILOT, int(PILOT_ROWS / max(batch, 1))))
    return Plan(name, build, guess, batch, False, chains, _steps(params, chains), pilot)


def _sgld_plan(params: Params, model: TallModel, made: list[Plan]) -> Plan:
    gradient, chains = UniformGradient(model, params.batch, params.clip), CHAINS
    return Plan("sgld", partial(Sgld, model, gradient), 1.0, params.batch, False, chains, _steps(params, chains), 0)


def _full_plan(params: Params, scene: Scene, name: str, build: Build, guess: float, looks: int) -> Plan:
    chains = FULL_CHAINS
    batch = float(looks * scene.n)
    most = max(FEWEST_STEPS, int(full_rows(name) / batch / chains))
    return Plan(name, build, guess, batch, True, chains, min(_steps(params, chains), most), max(chains, min(FULL_PILOT, int(full_rows(name) / 3 / batch))))


def _lattice_plan(params: Params, name: str) -> Plan:
    def build(*, step: float) -> Sampler:
        return ising_exchange(OBSERVED_S, step=step) if name == "exchange" else IdealIsing(OBSERVED_S, step=step)

    return Plan(name, build, 0.3, 1.0, name != "exchange", CHAINS, _steps(params, CHAINS), PILOT)


def _check_budget(params: Params, made: list[Plan]) -> None:
    budget = params.budget
    if params.budget_by == "seconds" and budget > LIVE_SECONDS:
        raise InputError("budget", f"{budget:g} seconds for each sampler", f"choose at most {LIVE_SECONDS:g} seconds, or count steps or touches")
    if params.budget_by == "steps" and budget > LIVE_STEPS:
        raise InputError("budget", f"{budget:,} steps for each sampler", f"choose at most {LIVE_STEPS:,} steps")
    race = {
        "seconds": 0.0,
        "touches": float(len(made) * budget),
        "steps": sum(plan.batch * plan.steps * plan.chains for plan in made),
    }[params.budget_by]
    rows = race + sum(plan.batch * plan.pilot for plan in made)
    if rows > LIVE_ROWS:
        remedy = f"keep it below {LIVE_ROWS / 1e6:g} million: a smaller budget, a smaller kappa or chi, or more tempering"
        raise InputError("budget", f"steps times batch is {rows / 1e6:,.0f} million rows", remedy)
