"""One run of compressed-doco as a stream of frames: the person's blocks, the U-curve, the peers, the ablations."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from backends.compressed_doco import compressors, graphs, picture, theory
from backends.compressed_doco.card import BLOCKS, Params
from backends.compressed_doco.compressors import NUMBER_BITS, Compressor
from backends.compressed_doco.data import make_stream
from backends.compressed_doco.dogd import Settings, d_ogd, dc_dogd, theory_offset
from backends.compressed_doco.feedback import Feedback
from backends.compressed_doco.gossip import decay, factor_per_round
from backends.compressed_doco.streams import Best, Stream, max_regret
from backends.compressed_doco.topdogd import Block, Plan, top_dogd
from backends.contract import Context, Frame, InputError, MetricValue

LIVE = ("gossip_rounds", "compensation_rounds")
STREAMED = 14  # frames of the person's own run
DECAY_ROUNDS = 60
GOSSIP_STEPS = (0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.8, 1.0)
# DC-DOGD does best a little beyond the step at which gossip alone contracts fastest.
BEYOND, DCDOGD_ETAS = (1.0, 1.25, 1.5), (2.0, 3.5, 6.0)
OGD_ETAS = (2.0, 4.0, 8.0, 16.0)
CONVEX_ETAS = (0.5, 1.0, 2.0, 4.0)  # on strongly convex losses, in units of 1 / mu
FAR_FROM_ASKED = 0.1  # relative; from here on it is said that another share is used than was asked for
CHECK_EACH = 50  # rounds of a peer
STREAM_FIELDS = ("data", "learners", "horizon", "label_skew", "seed")
MESSAGE_FIELDS = (*STREAM_FIELDS, "graph", "compressor", "omega")
PEER_FIELDS = (*STREAM_FIELDS, "graph", "feedback", "delta", "radius")
DCDOGD_FIELDS = (*MESSAGE_FIELDS, "feedback", "delta", "radius")
PLAY_FIELDS = (*DCDOGD_FIELDS, "gossip_step", "step_scale", "compensation", "restart")
STREAM_DRAWS, MESSAGE_DRAWS, QUERY_DRAWS, START_DRAWS = range(4)  # each kind of draw has a generator of its own


@dataclass(frozen=True, slots=True)
class Setting:
    """What all algorithms share: stream (T, n, d), its best decision, weights W (n, n) and their spectrum, omega as promised."""

    stream: Stream
    best: Best
    weights: np.ndarray
    spectrum: graphs.Spectrum
    omega: float


@dataclass(frozen=True, slots=True)
class Played:
    """A whole course: regret (t,) of the worst learner after each round, bits (t,) sent by a learner until then, the mean.

    diverged: the round after which it was stopped, or None.
    """

    regret: np.ndarray
    bits: np.ndarray
    consensus: float
    residual_start: np.ndarray
    stop: np.ndarray
    diverged: int | None

    @classmethod
    def of(cls, blocks: list[Block], best: Best) -> Played:
        last = blocks[-1]
        lengths = np.array([block.stop - block.start for block in blocks])
        losses = np.concatenate([np.broadcast_to(b.losses, (b.stop - b.start, b.losses.shape[1])) for b in blocks])
        bits = np.repeat([block.bits.mean() for block in blocks] / lengths, lengths).cumsum()
        spread = float(np.sqrt((lengths * np.array([block.consensus for block in blocks]) ** 2).sum() / lengths.sum()))
        starts = np.array([block.residual_start for block in blocks])
        stops = np.array([block.stop for block in blocks])
        return cls(max_regret(losses, best.losses[: last.stop]), bits, spread, starts, stops, last.stop if last.diverged else None)

    @property
    def final(self) -> float | None:
        """Average regret of the worst learner; None when it diverged."""
        return None if self.diverged is not None else float(self.regret[-1])


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best of several settings of a peer: its regret (T,), bits (T,), gossip step and step size."""

    regret: np.ndarray
    bits: np.ndarray
    gossip_step: float
    eta: float


def run(params: Params, context: Context) -> Iterator[Frame]:
    """Streams a run; a live one gives its last frame only, the U-curve and the peers from stored parts."""
    started = _Run(params, context)
    for frame in started.frames():
        if context.live not in LIVE or frame.progress == 1.0:
            yield frame


class _Run:
    """The stages of one run; what each knows is added to ``data`` and ``metrics``, which every frame shows whole."""

    def __init__(self, params: Params, context: Context) -> None:
        self.params, self.context = params, context
        self.began = time.perf_counter()
        self.data: dict[str, Any] = {"notes": [], "curves": {}}
        self.metrics: dict[str, MetricValue] = {}
        _refuse(params)

    def key(self, fields: tuple[str, ...], *more: Any) -> tuple[Any, ...]:
        return (*(getattr(self.params, name) for name in fields), *more)

    def frame(self, progress: float, message: str) -> Frame:
        data = self.data | {"curves": dict(self.data["curves"])}
        return Frame(progress, message, self.metrics | {"seconds": time.perf_counter() - self.began}, data)

    def rng(self, kind: int) -> np.random.Generator:
        return np.random.default_rng([self.params.seed, kind])

    # ------------------------------------------------------------------------------------------- what all share

    def setting(self) -> Setting:
        params, memo = self.params, self.context.memo
        stream, source = memo(
            "stream",
            self.key(STREAM_FIELDS),
            lambda: make_stream(params.data, params.learners, params.horizon, params.label_skew, self.rng(STREAM_DRAWS)),
        )
        best = memo("best", self.key(STREAM_FIELDS, params.radius), lambda: stream.best(params.radius))
        graph, weights = graphs.weights_of(params.graph, params.learners)
        spectrum = graphs.spectrum(weights)
        self.data["graph"] = picture.drawn_graph(graph, weights) | {"gap": spectrum.gap, "beta": spectrum.beta}
        d = stream.dimension
        omega = self.compressor(d).omega(d)
        self.data["made_by"] = {
            "model": "strongly convex quadratics" if stream.curvature > 0 else "logistic regression",
            "data": source,
            "size": f"{params.learners} learners, {d} numbers a decision, {params.horizon} rounds",
            "device": "cpu",
        }
        self.data["best"] = {"loss": float(best.losses.mean() / params.learners), "gap": best.gap}
        self.data["omega"] = omega
        if abs(omega / self.params.omega - 1) > FAR_FROM_ASKED:
            self.data["notes"] = [f"a share of {self.params.omega:g} was asked; with {d} numbers a vector this compressor's nearest is {omega:.3g}"]
        return Setting(stream, best, weights, spectrum, omega)

    def compressor(self, dimension: int) -> Compressor:
        return compressors.make(self.params.compressor, self.params.omega, dimension, self.rng(MESSAGE_DRAWS))

    def feedback(self) -> Feedback:
        return Feedback(self.params.feedback, self.params.delta, self.rng(QUERY_DRAWS))

    def plan(self, setting: Setting, gossip: int, compensation: int) -> Plan:
        params, stream = self.params, setting.stream
        gamma = theory.gossip_step(setting.spectrum.gap, setting.omega, setting.spectrum.beta) if params.gossip_step == "theory" else params.gossip_step
        step = params.step_scale / self.feedback().noise(stream)
        return Plan(gossip, compensation, gamma, step, params.radius, params.compensation, params.restart)

    # ------------------------------------------------------------------------------------------------ the stages

    def frames(self) -> Iterator[Frame]:
        params = self.params
        setting = self.setting()
        yield self.frame(0.02, f"{params.learners} learners; the best fixed decision loses {self.data['best']['loss']:.4f} a sample")
        plan = self.plan(setting, params.gossip_rounds, params.compensation_rounds)
        fastest = self.contraction(setting, plan)
        yield self.frame(0.05, "how fast gossip alone agrees")
        own = yield from self.own(setting, plan)
        yield from self.blocks(setting)
        dcdogd = self.dcdogd(setting, fastest)
        self.metrics["max_regret_per_round_dcdogd"] = float(dcdogd.regret[-1])
        self.add_curve("dc-dogd", dcdogd)
        self.data["constants"] = picture.constants(setting.spectrum, setting.omega, params.radius, params.horizon, self.used(plan, setting, dcdogd))
        yield self.frame(0.85, f"DC-DOGD at its best: regret {dcdogd.regret[-1]:.4f}")
        for name, peer in self.uncompressed(setting).items():
            self.add_curve(name, peer)
        yield self.frame(0.95, "ablations")
        self.ablations(setting, plan, own)
        yield self.frame(1.0, self.summary(own, plan))

    def contraction(self, setting: Setting, plan: Plan) -> float:
        """Measured decay of gossip alone at several steps; returns the one that agrees fastest."""
        stream, spectrum = setting.stream, setting.spectrum
        promised = theory.gossip_step(spectrum.gap, setting.omega, spectrum.beta)
        steps = np.array([*GOSSIP_STEPS, plan.gossip_step, promised])

        def measure() -> np.ndarray:
            start = self.rng(START_DRAWS).normal(size=(stream.learners, stream.dimension))
            return decay(start, setting.weights, steps, self.compressor(stream.dimension), DECAY_ROUNDS)

        energies = self.context.memo("decay", self.key(MESSAGE_FIELDS, plan.gossip_step), measure)
        factors = factor_per_round(energies)
        rate = theory.contraction(spectrum.gap, setting.omega)
        self.data["contraction"] = {
            "used": energies[:, -2] / energies[0, -2],
            "theory": energies[:, -1] / energies[0, -1],
            "bound": rate ** np.arange(DECAY_ROUNDS + 1),
            "factor_used": _finite(factors[-2]),
            "factor_theory": float(factors[-1]),
            "factor_bound": rate,
            "step_used": plan.gossip_step,
            "step_theory": promised,
        }
        return float(steps[: len(GOSSIP_STEPS)][factors[: len(GOSSIP_STEPS)].argmin()])

    def own(self, setting: Setting, plan: Plan) -> Generator[Frame, None, Played]:
        """The person's blocks, drawn as they are played."""
        total = math.ceil(setting.stream.horizon / plan.block)
        each = max(1, total // STREAMED)
        newest: deque[Block] = deque(maxlen=picture.window_length(plan.block) + 1)
        blocks: list[Block] = []
        played = top_dogd(setting.stream, setting.weights, self.compressor(setting.stream.dimension), plan, self.feedback(), watch=lambda number: True)
        for block in played:
            self.context.check()
            newest.append(block)
            blocks.append(replace(block, surrogates=None))
            if len(newest) > 1 and block.number % each == 0 and block.stop < setting.stream.horizon:
                self.show(newest, blocks, setting)
                yield self.frame(0.05 + 0.25 * block.number / total, f"block {block.number} of {total}")
        own = self.show(newest, blocks, setting)
        yield self.frame(0.3, f"{len(blocks)} blocks played")
        return own

    def show(self, newest: deque[Block], blocks: list[Block], setting: Setting) -> Played:
        played = Played.of(blocks, setting.best)
        if len(newest) > 1:
            self.data["fan"] = picture.fan(newest)
        self.data["course"] = picture.course(blocks)
        self.add_curve("top-dogd", played)
        self.data["lost"] = played.diverged
        self.metrics["max_regret_per_round"] = played.final
        self.metrics["consensus_rms"] = played.consensus
        self.metrics["bits_per_learner"] = float(played.bits[-1])
        return played

    def add_curve(self, name: str, played: Played | Tuned) -> None:
        chosen = {"gossip_step": played.gossip_step, "eta": played.eta} if isinstance(played, Tuned) else {}
        self.data["curves"][name] = picture.curve(played.regret, played.bits) | chosen

    def play(self, setting: Setting, plan: Plan) -> Played:
        """The same stream with another block, stored for whoever asks next."""

        def make() -> Played:
            blocks = []
            for block in top_dogd(setting.stream, setting.weights, self.compressor(setting.stream.dimension), plan, self.feedback()):
                self.context.check()
                blocks.append(block)
            return Played.of(blocks, setting.best)

        return self.context.memo("play", (*self.key(PLAY_FIELDS), plan), make)

    def blocks(self, setting: Setting) -> Iterator[Frame]:
        """Regret against the block length, at the person's other settings."""
        found: list[tuple[int, int, Played]] = []
        lengths = [pair for pair in BLOCKS if sum(pair) <= setting.stream.horizon]
        for gossip, compensation in lengths:
            found.append((gossip, compensation, self.play(setting, self.plan(setting, gossip, compensation))))
            regret = [played.final for _, _, played in found]
            finite = [(value, sum(lengths[i])) for i, value in enumerate(regret) if value is not None]
            best = min(finite)[1] if finite else None
            self.data["u"] = {
                "gossip": [g for g, _, _ in found],
                "compensation": [c for _, c, _ in found],
                "regret": regret,
                "diverged": [played.diverged for _, _, played in found],
                "best": best,
            }
            self.metrics["best_block"] = best
            yield self.frame(0.3 + 0.3 * len(found) / len(lengths), f"blocks of {gossip + compensation} rounds")

    def on_round(self, round_: int) -> None:
        if round_ % CHECK_EACH == 0:
            self.context.check()

    def dcdogd(self, setting: Setting, fastest: float) -> Tuned:
        """DC-DOGD with the best of nine settings about the gossip step that agrees fastest."""
        stream = setting.stream
        steps = np.unique(np.minimum(1.0, fastest * np.array(BEYOND)))
        gammas, etas = (grid.ravel() for grid in np.meshgrid(steps, self.etas(setting, DCDOGD_ETAS), indexing="ij"))
        offsets = np.array([theory_offset(float(gamma), setting.spectrum.gap, stream.curvature) for gamma in gammas])

        def make() -> Tuned:
            self.context.say("DC-DOGD with nine settings")
            course = dc_dogd(
                stream,
                setting.weights,
                self.compressor(stream.dimension),
                Settings(gammas, etas, offsets),
                self.params.radius,
                self.feedback(),
                self.on_round,
            )
            return _best(course.losses, setting.best, course.bits.mean(axis=1).cumsum(), gammas, etas)

        return self.context.memo("dc-dogd", self.key(DCDOGD_FIELDS, fastest), make)

    def uncompressed(self, setting: Setting) -> dict[str, Tuned]:
        """D-OGD without compression, without any talk, and central descent on all data, each with the best of four steps."""
        stream, n = setting.stream, setting.stream.learners
        kinds = {"uncompressed": setting.weights, "alone": np.eye(n), "central": np.full((n, n), 1 / n)}
        grid = self.etas(setting, OGD_ETAS)
        offset = theory_offset(1.0, setting.spectrum.gap, stream.curvature)

        def make() -> dict[str, Tuned]:
            self.context.say("peers without compression")
            weights = np.repeat(np.array(list(kinds.values())), grid.size, axis=0)
            etas = np.tile(grid, len(kinds))
            losses = d_ogd(stream, weights, Settings(np.ones_like(etas), etas, np.full_like(etas, offset)), self.params.radius, self.feedback(), self.on_round)
            rounds = np.arange(1, stream.horizon + 1)
            message = NUMBER_BITS * stream.dimension
            degree = np.count_nonzero(setting.weights - np.diag(np.diag(setting.weights)), axis=1).mean()
            sent = {"uncompressed": message * degree, "alone": 0.0, "central": float(message)}  # to the centre
            parts = np.split(losses, len(kinds), axis=1)
            ones = np.ones_like(grid)
            return {name: _best(part, setting.best, sent[name] * rounds, ones, grid) for name, part in zip(kinds, parts, strict=True)}

        return self.context.memo("uncompressed", self.key(PEER_FIELDS), make)

    def etas(self, setting: Setting, convex: tuple[float, ...]) -> np.ndarray:
        """Step sizes to try: on strongly convex losses in units of 1 / mu; a bandit's are divided by the length of its estimates."""
        stream = setting.stream
        grid = np.array(CONVEX_ETAS) / stream.curvature if stream.curvature > 0 else np.array(convex)
        return grid / self.feedback().noise(stream)

    def ablations(self, setting: Setting, plan: Plan, own: Played) -> None:
        """The same blocks with and without compensation, and without its rounds."""
        runs = {
            name: own if other == plan else self.play(setting, other)
            for name, other in {
                "on": replace(plan, compensation=True),
                "off": replace(plan, compensation=False),
                "none": replace(plan, compensation_rounds=0),
            }.items()
        }
        self.data["ablation"] = {
            name: {"stop": played.stop.astype(float), "residual": played.residual_start, "regret": played.final} for name, played in runs.items()
        }

    def used(self, plan: Plan, setting: Setting, dcdogd: Tuned) -> dict[str, float]:
        return {
            "gossip_step": plan.gossip_step,
            "gossip": plan.gossip_rounds,
            "compensation": plan.compensation_rounds,
            "eta": plan.eta(1, setting.stream.curvature),
            "dcdogd_step": dcdogd.gossip_step,
        }

    def summary(self, own: Played, plan: Plan) -> str:
        if own.diverged is not None:
            step = f"a gossip step of {plan.gossip_step:.3g}"
            return f"diverged and stopped in round {own.diverged}: the replicas are too stale for {step}, so regret is undefined"
        dcdogd, best = self.metrics["max_regret_per_round_dcdogd"], self.metrics["best_block"]
        text = f"regret {own.final:.4f} a sample with blocks of {plan.block} rounds, DC-DOGD {dcdogd:.4f}"
        return f"{text}; best block {best} rounds" if best is not None else f"{text}; all five block lengths diverged, so there is no best one"


def _best(losses: np.ndarray, best: Best, bits: np.ndarray, gammas: np.ndarray, etas: np.ndarray) -> Tuned:
    """The setting of least regret in the end; losses (T, s, n)."""
    curves = np.stack([max_regret(losses[:, i], best.losses) for i in range(losses.shape[1])])
    chosen = int(curves[:, -1].argmin())
    return Tuned(curves[chosen], bits, float(gammas[chosen]), float(etas[chosen]))


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _refuse(params: Params) -> None:
    """What the fields' own bounds do not say."""
    block = params.gossip_rounds + params.compensation_rounds
    if block > params.horizon:
        problem = f"a block of {block} rounds is longer than the horizon of {params.horizon}"
        raise InputError("gossip_rounds", problem, "shorten the block or lengthen the horizon")
    if params.feedback != "gradient" and params.delta >= params.radius:
        raise InputError("delta", f"queries {params.delta:g} away leave the ball of radius {params.radius:g}", "choose delta below the radius")
    if params.compressor == "quantiser" and params.omega == 1:
        raise InputError("omega", "rounding always loses something", "choose omega below 1, or another compressor")
