"""One run of sp-ucb-olp as a stream of frames: all policies side by side on the same requests, then five more seeds of the learner."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from backends.contract import Context, Frame, MetricValue
from backends.sp_ucb_olp import picture
from backends.sp_ucb_olp.card import Params
from backends.sp_ucb_olp.play import Play
from backends.sp_ucb_olp.policies import Policy, SaddlePointUCB, SingleConfigurationUCB, known, random_choice
from backends.sp_ucb_olp.surplus import Array
from backends.sp_ucb_olp.workload import Workload, load

FRAME_ROUNDS = 50
FRAME_SOLVES = 10  # at most, so that frames come often where every round is solved
SEEDS = 6
MAP_EACH = 5  # frames from one map of the objective to the next
MAIN_SHARE = 0.7  # of the progress: the policies side by side; the other seeds follow
UNSCARCE = 1e-6  # a price below this share of P_max is no price
ORACLE = "oracle"


def run(params: Params, context: Context) -> Iterator[Frame]:
    """Streams a run."""
    yield from _Run(params, context).frames()


class _Run:
    """What is known so far is in ``data`` and ``metrics``, which every frame shows whole."""

    def __init__(self, params: Params, context: Context) -> None:
        self.params, self.context = params, context
        self.began = time.perf_counter()
        self.mine = params.mixture
        made_by = {"model": "SP-UCB-OLP, saddle point by HiGHS", "data": params.preset_instance, "size": f"{params.horizon} rounds", "device": "cpu"}
        self.data: dict[str, Any] = {"made_by": made_by}
        self.metrics: dict[str, MetricValue] = {}

    def frame(self, progress: float, message: str) -> Frame:
        return Frame(progress, message, self.metrics | {"seconds": time.perf_counter() - self.began}, dict(self.data))

    def frames(self) -> Iterator[Frame]:
        yield self.frame(0.0, "the workload is made")
        workload = load(self.params, self.context)
        self.open(workload)
        yield self.frame(0.02, "the exact answer is known" if self.params.reveal_oracle else "the exact answer is hidden")
        plays = self.plays(workload)
        horizon, step = workload.terms.horizon, min(FRAME_ROUNDS, FRAME_SOLVES * self.params.resolve_every)
        stops = [*range(step, horizon, step), horizon]
        for number, until in enumerate(stops):
            for play in plays.values():
                play.advance(until)
            self.show(workload, plays, until, draw_map=number % MAP_EACH == 0 or until == horizon)
            yield self.frame(0.02 + MAIN_SHARE * until / horizon, self.said(until, horizon))
        yield from self.other_seeds(workload, plays[self.mine])
        yield self.frame(1.0, self.summary())

    def open(self, workload: Workload) -> None:
        """What stands before the first round."""
        params, terms, instance = self.params, workload.terms, workload.instance
        size = f"{terms.horizon} rounds, K = {terms.configurations}, d = {terms.budget.size}"
        self.data["made_by"] = self.data["made_by"] | {"data": instance.source, "size": size}
        self.data |= {
            "names": list(instance.names),
            "resources": list(instance.resources),
            "budget": terms.budget,
            "horizon": terms.horizon,
            "slack": terms.slack,
            "mine": self.mine,
            "oracle": picture.answer(workload.oracle) if params.reveal_oracle else None,
            "notes": list(workload.notes),
        }
        shown = params.reveal_oracle
        self.metrics |= {"v_mix": workload.oracle.v_mix if shown else None, "v_fix": workload.oracle.v_fix if shown else None}

    def plays(self, workload: Workload) -> dict[str, Play]:
        """Every policy on the same requests; the learner of the chosen rule is this method's run."""
        terms, oracle, alpha = workload.terms, workload.oracle, self.params.alpha
        policies: dict[str, Policy] = {
            "lp-duals": SaddlePointUCB(terms, alpha),
            "uniform-over-ties": SaddlePointUCB(terms, alpha, "uniform-over-ties"),
            "greedy": SaddlePointUCB(terms, 0.0),
            "single": SingleConfigurationUCB(terms, alpha),
            "random": random_choice(terms.configurations, terms.budget.size),
        }
        if self.params.reveal_oracle:
            policies[ORACLE] = known(oracle.mixture, oracle.prices)
        requests, picks = workload.draw(self.params.seed)
        return {name: Play(terms, policy, requests, picks, self.params.resolve_every, self.context.check) for name, policy in policies.items()}

    def show(self, workload: Workload, plays: dict[str, Play], done: int, *, draw_map: bool) -> None:
        """The state after ``done`` rounds."""
        play, oracle, shown = plays[self.mine], workload.oracle, self.params.reveal_oracle
        self.data |= {
            "done": done,
            "curves": picture.curves(plays, done),
            "solves": picture.solves(play),
            "left": picture.budget_left(play, done),
            "requests": picture.requests(play, done),
            "spending": picture.spending(play, oracle, done) | ({} if shown else {"fixed": None}),
            "ratios": {name: p.earned / (done * (oracle.v_mix if shown else 1.0)) for name, p in plays.items()},
        }
        if draw_map:
            drawn = picture.objective(play, oracle if shown else None)
            if drawn is not None and len(drawn["grids"]) == 1 and shown:
                drawn["exact"] = picture.exact_objective(workload, drawn["grids"][0])
            self.data["objective"] = drawn
        self.metrics |= self.measured(workload, play, done)

    def measured(self, workload: Workload, play: Play, done: int) -> dict[str, MetricValue]:
        """The figures after ``done`` rounds; what only the oracle knows is None while it is hidden."""
        left = float(np.clip(play.left[done - 1] / play.total, 0.0, 1.0).min())
        names = ("competitive_ratio", "regret_over_sqrt_t", "w_error", "price_error")
        if not self.params.reveal_oracle:
            return {**dict.fromkeys(names), "budget_left_min": left}
        oracle = workload.oracle
        bound = done * oracle.v_mix
        mixture, prices = later_half(play, done)
        scarce = bool((oracle.prices > UNSCARCE * workload.terms.price_max).any())
        unique = scarce or workload.terms.configurations == 1
        figures: tuple[MetricValue, ...] = (
            play.earned / bound,
            (bound - play.earned) / math.sqrt(done),
            float(np.abs(mixture - oracle.mixture).max()) if unique else None,
            float(np.abs(prices - oracle.prices).max()),
        )
        return {**dict(zip(names, figures, strict=True)), "budget_left_min": left}

    def other_seeds(self, workload: Workload, first: Play) -> Iterator[Frame]:
        """The same learner on five more seeds: one run says little about a policy that explores."""
        terms, params = workload.terms, self.params
        scale = workload.oracle.v_mix if params.reveal_oracle else 1.0
        ratios = [first.earned / (terms.horizon * scale)]
        for number in range(1, SEEDS):
            requests, picks = workload.draw(params.seed + number)
            play = Play(terms, SaddlePointUCB(terms, params.alpha, params.mixture), requests, picks, params.resolve_every, self.context.check)
            play.advance(terms.horizon)
            ratios.append(play.earned / (terms.horizon * scale))
            self.data["seeds"] = {"seed": params.seed + np.arange(len(ratios)), "ratio": np.array(ratios)}
            share = MAIN_SHARE + 0.02 + (0.97 - MAIN_SHARE) * number / (SEEDS - 1)
            yield self.frame(share, f"seed {params.seed + number}: {number + 1} of {SEEDS} seeds")

    def said(self, done: int, horizon: int) -> str:
        ratio = self.metrics["competitive_ratio"]
        reward = f"{ratio:.3f} of the oracle's bound" if ratio is not None else "the oracle is hidden"
        return f"round {done} of {horizon}: {reward}, {self.metrics['budget_left_min']:.0%} of the scarcest budget left"

    def summary(self) -> str:
        ratios = self.data["seeds"]["ratio"]
        if self.metrics["competitive_ratio"] is None:
            return "the exact answer is hidden, and with it what is measured against it"
        text = f"{self.metrics['competitive_ratio']:.3f} of the oracle's bound; {SEEDS} seeds: {ratios.min():.3f} to {ratios.max():.3f}"
        return text if self.metrics["w_error"] is not None else text + "; no budget is scarce, so the best mixture is not unique"


def later_half(play: Play, done: int) -> tuple[Array, Array]:
    """Mean mixture (K,) and mean prices (d,) of the rounds from done/2 on, each solve weighted by the rounds it holds for."""
    edges = np.array([*(s.round for s in play.solves), done])
    rounds = np.maximum(np.diff(np.maximum(edges, done // 2)), 0)
    held = [s.decision for s in play.solves]
    return rounds @ np.array([d.mixture for d in held]) / rounds.sum(), rounds @ np.array([d.prices for d in held]) / rounds.sum()
