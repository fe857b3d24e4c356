"""Top-DOGD: blocks of L1 + L2 rounds in which decisions stand still, differences are whispered, and one update follows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from backends.compressed_doco import theory
from backends.compressed_doco.compressors import Compressor
from backends.compressed_doco.feedback import Feedback
from backends.compressed_doco.gossip import Replicas, check_step
from backends.compressed_doco.graphs import check_weights
from backends.compressed_doco.streams import Stream, project_ball

Restart = Literal["decision", "sent"]
LOST = 1e6  # surrogates this many radii long have diverged: what they say is no longer a number to trust


@dataclass(frozen=True, slots=True)
class Plan:
    """How a block goes. Raises ValueError for L1 below 1, L2 below 0, a gossip step outside (0, 1], a step or radius of at most 0.

    gossip_rounds: L1; compensation_rounds: L2; gossip_step: gamma; step: e, so that eta = e / sqrt(L), or e / (mu L b) on
    strongly convex losses; radius: of the ball of decisions; compensation: whether the L2 rounds send the projection error, or
    go on gossiping; restart: whether the gradient step starts from the decision or from y + v, what was sent of it.
    """

    gossip_rounds: int
    compensation_rounds: int
    gossip_step: float
    step: float
    radius: float
    compensation: bool = True
    restart: Restart = "decision"

    def __post_init__(self) -> None:
        if self.gossip_rounds < 1 or self.compensation_rounds < 0:
            raise ValueError(f"a block needs L1 >= 1 and L2 >= 0, not {self.gossip_rounds} and {self.compensation_rounds}")
        check_step(self.gossip_step)
        if not (self.step > 0 and self.radius > 0):
            raise ValueError("step and radius must be above 0")

    @property
    def block(self) -> int:
        """L, in rounds."""
        return self.gossip_rounds + self.compensation_rounds

    def eta(self, number: int, curvature: float) -> float:
        """The step of block ``number``, counted from 1."""
        if curvature > 0:
            return self.step * theory.strongly_convex_step(curvature, self.block, number)
        return self.step / math.sqrt(self.block)


@dataclass(frozen=True, slots=True)
class Block:
    """What one block did. number from 1; rounds start to stop - 1; complete: False for the last, partial block.

    decisions: x, (n, d), played all through; losses: (L, n) on all data; bits: (n,) sent by each learner, over all its edges;
    surrogates: y before the block and after each round, (L + 1, n, d), in float32 where ``watch`` asks for them, else None;
    consensus: rms of ||x_i - mean||; residual_start, residual_end: rms of ||y_i - y-hat_i||; diverged: the surrogates are lost.
    """

    number: int
    start: int
    stop: int
    complete: bool
    decisions: np.ndarray
    losses: np.ndarray
    bits: np.ndarray
    surrogates: np.ndarray | None
    consensus: float
    residual_start: float
    residual_end: float
    diverged: bool


def rms(vectors: np.ndarray) -> float:
    """Root mean square length of (n, d) vectors; infinite once it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.nan_to_num(np.sqrt((vectors**2).sum(axis=-1).mean()), nan=np.inf))


class _Learners:
    """Decisions x, surrogates y and replicas of all learners; what crosses the wire is counted."""

    def __init__(self, stream: Stream, weights: np.ndarray, compress: Compressor, plan: Plan, radius: float) -> None:
        self.compress, self.plan, self.radius, self.curvature = compress, plan, radius, stream.curvature
        self.decisions = self.y = np.zeros((stream.learners, stream.dimension))
        self.replicas = Replicas(weights, self.y.shape)
        self.next = self.sent = self.y  # x of the next block, and v: what was sent of its projection error
        self.bits = np.zeros(stream.learners)
        self.seen: list[np.ndarray] | None = None

    def send(self, vectors: np.ndarray) -> np.ndarray:
        """One message of each learner: C(vector) goes to the learner's own replica and to that of each neighbour."""
        message = self.compress(vectors)
        self.replicas.receive(message)
        self.bits += self.compress.bits(message) * self.replicas.degree
        return message

    def whisper(self, rounds: int) -> None:
        """The messages of the first ``rounds`` rounds of a block: gossip, then the projection error."""
        plan = self.plan
        gossip = min(rounds, plan.gossip_rounds if plan.compensation else plan.block)
        for _ in range(gossip):
            self.send(self.y - self.replicas.own)
            self.y = self.y + plan.gossip_step * self.replicas.pull()  # the updated replicas, never y itself: that would be uncompressed
            self.look()
        self.next = project_ball(self.y, self.radius)
        residual = self.next - self.y
        self.sent = np.zeros_like(self.y)
        for _ in range(rounds - gossip):
            self.sent = self.sent + self.send(residual - self.sent)
            self.look()

    def move(self, gradient: np.ndarray, number: int) -> None:
        """The update at a block's end: the gradient of this block enters the gossip of the next."""
        self.decisions = self.next
        base = self.next if self.plan.restart == "decision" else self.y + self.sent
        self.y = base - self.plan.eta(number, self.curvature) * gradient

    def look(self) -> None:
        if self.seen is not None:
            self.seen.append(self.y.astype(np.float32))


def top_dogd(
    stream: Stream,
    weights: np.ndarray,
    compress: Compressor,
    plan: Plan,
    feedback: Feedback,
    *,
    watch: Callable[[int], bool] = lambda number: False,
) -> Iterator[Block]:
    """Plays the whole stream block by block; ends early after a block that diverged.

    weights: W, (n, n). watch(number) says whether block ``number`` keeps its surrogates. In every block the neighbours' replicas
    are compared bit by bit. Raises ValueError when W is bad, does not fit the stream, or a block is longer than the stream.
    """
    w = check_weights(weights)
    if len(w) != stream.learners:
        raise ValueError(f"the weights join {len(w)} learners, the stream has {stream.learners}")
    if plan.block > stream.horizon:
        raise ValueError(f"a block of {plan.block} rounds is longer than the horizon of {stream.horizon}")
    learners = _Learners(stream, w, compress, plan, feedback.room(plan.radius))
    for number, start in enumerate(range(0, stream.horizon, plan.block), 1):
        stop = min(start + plan.block, stream.horizon)
        decisions, replicas = learners.decisions, learners.replicas
        learners.bits = np.zeros(stream.learners)
        learners.seen = [] if watch(number) else None
        learners.look()
        residual_start = rms(learners.y - replicas.own)
        gradient, losses = feedback.ask(stream, start, stop, decisions)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported as diverged
            learners.whisper(stop - start)
        replicas.assert_equal()
        diverged = not rms(learners.y) < LOST * plan.radius
        yield Block(
            number=number,
            start=start,
            stop=stop,
            complete=stop - start == plan.block,
            decisions=decisions,
            losses=losses,
            bits=learners.bits,
            surrogates=None if learners.seen is None else np.array(learners.seen),
            consensus=rms(decisions - decisions.mean(axis=0)),
            residual_start=residual_start,
            residual_end=rms(learners.y - replicas.own),
            diverged=diverged,
        )
        if diverged:
            return
        learners.move(gradient, number)
