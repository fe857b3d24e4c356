"""One run of auxiliary-mcmc as a stream of frames: scene and reference, pilots, then all samplers side by side."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from backends.auxiliary_mcmc import picture
from backends.auxiliary_mcmc.card import Params
from backends.auxiliary_mcmc.diagnostics import WARM_UP, quality
from backends.auxiliary_mcmc.entrants import WHOLE_DATA, Plan, full_rows, kappa_of, plans, spotlight
from backends.auxiliary_mcmc.race import Entrant
from backends.auxiliary_mcmc.scenes import Scene, load
from backends.contract import Context, Frame, MetricValue

SCENE_FIELDS = ("scene", "n", "tempering", "seed")
ROUNDS = 60
RATED_AT = (20, 40)  # rounds after which effective sample sizes are taken on the way, in runs longer than
RATE_AFTER_S = 2.0
FRAME_S = 0.3
TWIN = {"poisson-mala": math.sqrt(2), "tuna-sgld": 1.0}  # SGLD's step over its corrected sister's: both then make the same proposals


def run(params: Params, context: Context) -> Iterator[Frame]:
    """Streams a race; bad input is refused before the first pilot."""
    yield from _Run(params, context).frames()


class _Run:
    """The stages of one run; what each knows is added to ``data`` and ``metrics``, which every frame shows whole."""

    def __init__(self, params: Params, context: Context) -> None:
        self.params, self.context = params, context
        self.began = time.perf_counter()
        self.shown = -math.inf
        self.metrics: dict[str, MetricValue] = {}
        made_by = {"model": "auxiliary-variable MCMC, torch float64", "data": params.scene, "size": "loading", "device": "cpu"}
        self.data: dict[str, Any] = {"made_by": made_by, "notes": []}
        self.rates: dict[str, dict[str, Any]] = {}
        self.without: list[str] = []

    def frame(self, progress: float, message: str) -> Frame:
        self.shown = time.perf_counter()
        return Frame(progress, message, self.metrics | {"seconds": self.shown - self.began}, dict(self.data))

    def frames(self) -> Iterator[Frame]:
        params, context = self.params, self.context
        yield self.frame(0.01, "drawing the rows, then all of them once for the exact answer")
        upload = params.csv.sha256 if params.csv and params.scene == "csv" else None
        key = (*(getattr(params, name) for name in SCENE_FIELDS), upload)
        scene = context.memo("scene", key, lambda: load(params, context.check))
        chosen = spotlight(params, scene)
        made = plans(params, scene, chosen)
        seeds = dict(zip((plan.name for plan in made), np.random.SeedSequence(int(context.rng.integers(2**63))).spawn(len(made)), strict=True))
        light = next(plan for plan in made if plan.name == chosen)
        self._open(scene, light)
        entrants: dict[str, Entrant] = {}
        for number, plan in enumerate(made):
            fixed = self._fixed_step(plan, chosen, entrants)
            entrant = plan.enter(scene, seeds[plan.name], fixed)
            if fixed is None:
                entrant.pilot(params.target_acceptance, plan.pilot, context.check)
            entrants[plan.name] = entrant
            yield self.frame(0.05 + 0.25 * (number + 1) / len(made), f"pilot: {plan.name} has step {entrant.sampler.step:.3g}")
        for done in range(1, ROUNDS + 1):
            for plan in made:
                self._stretch(entrants[plan.name], plan, done)
                if time.perf_counter() - self.shown > FRAME_S and entrants[chosen].draws:
                    self._show(scene, entrants, light)
                    yield self.frame(0.3 + 0.7 * (done - 1) / ROUNDS, self._message(entrants[chosen]))
            if done == ROUNDS or (done in RATED_AT and time.perf_counter() - self.began > RATE_AFTER_S):
                self._rate(scene, entrants, chosen)
        self._show(scene, entrants, light)
        yield self.frame(1.0, self._message(entrants[chosen], last=True))

    def _fixed_step(self, plan: Plan, chosen: str, entrants: dict[str, Entrant]) -> float | None:
        """A step that no pilot looks for: the person's own, or SGLD's, which makes the very proposals of its corrected sister."""
        given = self.params.step
        if plan.name == "sgld":
            if given != "auto":
                return given
            sister = next(name for name in TWIN if name in entrants)
            return TWIN[sister] * entrants[sister].sampler.step
        return given if plan.name == chosen and given != "auto" else None

    def _stretch(self, entrant: Entrant, plan: Plan, done: int) -> None:
        """This round's share of the budget."""
        share, by, budget = done / ROUNDS, self.params.budget_by, self.params.budget
        most = full_rows(plan.name) if plan.full and plan.batch > 1 else math.inf
        steps = plan.steps - entrant.steps if by != "steps" else math.ceil(plan.steps * share) - entrant.steps
        if by == "touches":
            entrant.go(steps, self.context.check, touches=max(min(budget, most), plan.batch * plan.chains) * share)
        elif by == "seconds":
            entrant.go(steps, self.context.check, seconds=budget * share)
        else:
            entrant.go(steps, self.context.check)

    def _open(self, scene: Scene, light: Plan) -> None:
        """What does not change during the race."""
        params, d = self.params, len(scene.names)
        size = f"{scene.n:,} rows, {d} coefficients, tempering {scene.tempering:.3g}" if scene.model else "16 spins, one coupling"
        self.data["made_by"] = {"model": "auxiliary-variable MCMC, torch float64", "data": scene.source, "size": size, "device": "cpu"}
        self.data["reference"] = {"how": scene.reference.how, "mean": scene.reference.mean, "sd": scene.reference.sd, "names": list(scene.names)}
        self.data["posterior"] = self.context.memo("contours", (scene.kind, scene.reference.mean, scene.reference.sd), lambda: picture.posterior(scene))
        self.data["background"] = picture.background(scene)
        self.data["light"] = light.name
        if scene.model is not None:
            self.data["gap"] = picture.gap(scene, light, kappa_of(params, scene), params.chi)
        notes = list(scene.notes)
        if scene.model is not None and light.batch > WHOLE_DATA * scene.n:
            notes.append(f"a step is expected to read {light.batch:,.0f} rows of {scene.n:,}: reading all of them is cheaper")
        self.data["notes"] = notes

    def _show(self, scene: Scene, entrants: dict[str, Entrant], light: Plan) -> None:
        """What the race looks like now."""
        own, running = entrants[light.name], [e for e in entrants.values() if e.draws]
        self.data["chains"] = picture.chains(own)
        self.data["lit"] = picture.lit(scene, own)
        self.data["race"] = picture.summary(running, self.rates)
        self.data["curves"] = {e.sampler.name: picture.curve(e, scene.reference) for e in running}
        self.data["histograms"] = picture.histograms(own, light)
        self.data["marginals"] = picture.marginals(own, scene.reference)
        self.data["traces"] = {"light": picture.traces(own)}
        reference, mean_sd = scene.reference, quality_free(own)
        self.metrics |= {
            "acceptance": own.acceptance,
            "mean_batch": own.mean_batch,
            "posterior_mean_error_sd": float((np.abs(mean_sd[0] - reference.mean) / reference.sd).max()),
            "posterior_sd_ratio": float((mean_sd[1] / reference.sd).mean()),
            "sgld_sd_ratio": None,
        }
        sgld = entrants.get("sgld")
        if sgld is not None and sgld.draws:
            self.data["sgld"] = picture.moments(sgld)
            self.data["traces"]["sgld"] = picture.traces(sgld)
            self.metrics["sgld_sd_ratio"] = float((quality_free(sgld)[1] / reference.sd).mean())

    def _rate(self, scene: Scene, entrants: dict[str, Entrant], chosen: str) -> None:
        """Effective draws of every sampler, a second and a million rows; over the settled part of chains, time and rows alike."""
        for name, entrant in entrants.items():
            self.context.check()
            found = quality(entrant.drawn) if entrant.draws else None
            if found is None or not np.isfinite(found.ess).all():
                continue
            share = 1 - WARM_UP
            per = {"second": share * entrant.seconds, "million": share * entrant.touched / 1e6}
            bars = {unit: [float(v) for v in np.quantile(found.ess / per[unit], (0, 0.5, 1))] for unit in per}
            self.rates[name] = {"ess": bars, "rhat": float(found.rhat.max()), "biased": name == "sgld"}
        self.metrics |= {"ess_per_second_min": None, "ess_per_million_touches": None, "speedup_over_full_mala": None, "speedup_over_poissonmh": None}
        own = self.rates.get(chosen)
        if own is None:
            return
        self.metrics["ess_per_second_min"] = own["ess"]["second"][0]
        self.metrics["ess_per_million_touches"] = own["ess"]["million"][0]
        for metric, peer in (("speedup_over_full_mala", "full-mala"), ("speedup_over_poissonmh", "poisson-mh")):
            if peer in self.rates:
                self.metrics[metric] = own["ess"]["second"][0] / self.rates[peer]["ess"]["second"][0]

    def _message(self, own: Entrant, *, last: bool = False) -> str:
        text = (
            f"{own.sampler.name}: {own.steps * own.chains:,} steps of {own.chains} chains, {own.mean_batch:,.0f} rows a step, acceptance {own.acceptance:.2f}"
        )
        if not last:
            return text
        missing = [name.replace("_", " ") for name, value in self.metrics.items() if value is None]
        return text + (f"; no peer or too few draws for {', '.join(missing)}" if missing else "")


def quality_free(entrant: Entrant) -> tuple[np.ndarray, np.ndarray]:
    """(mean, sd) of the settled draws, each (d,)."""
    drawn = entrant.drawn
    kept = drawn[int(WARM_UP * len(drawn)) :].reshape(-1, drawn.shape[2])
    return kept.mean(0), kept.std(0)
