"""Who decides where the next attempt goes: KernelBand and the policies it is compared with (sections 4 and 6 of the card)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from backends.kernelband.bandit import Bandit, ThompsonBandit, mask, parent_weights
from backends.kernelband.bench import Entry
from backends.kernelband.clustering import Clustering
from backends.kernelband.frontier import Frontier
from backends.kernelband.substrate import RESOURCES, STRATEGIES, Candidate


@dataclass(frozen=True, slots=True)
class Settings:
    """The hyper-parameters of section 4. theta: percent of peak of (SM, DRAM, L2). profile_all: h of every kernel, not of representatives only."""

    clusters: int = 3
    exploration: float = 2.0
    recluster_every: int = 10
    theta: tuple[float, float, float] = (75.0, 75.0, 75.0)
    temperature: float = 1.0
    mask: bool = True
    profile_all: bool = True
    match_clusters: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """The next attempt. candidate: set by a sampler that draws whole schedules, then cluster and strategy are -1."""

    cluster: int
    strategy: int
    parent: int
    candidate: Candidate | None = None
    saved: bool = False


@dataclass
class Standing:
    """What a policy sees before it chooses: representatives (None for an empty cluster), their h (K, 3), open arms (K, 6)."""

    representatives: list[int | None] = field(default_factory=list)
    h: np.ndarray = field(default_factory=lambda: np.zeros((0, len(RESOURCES))))
    open: np.ndarray = field(default_factory=lambda: np.zeros((0, len(STRATEGIES)), bool))

    @property
    def empty(self) -> list[int]:
        return [i for i, r in enumerate(self.representatives) if r is None]


class Policy(ABC):
    """Clusters the frontier, keeps the statistics of all arms, and leaves to its kinds which arm and parent to take.

    rng: draws of the policy; a child of it those of its clustering, so that other clusters leave the policy's draws alone.
    """

    def __init__(self, settings: Settings, rng: np.random.Generator) -> None:
        self.settings, self.rng = settings, rng
        self._clustering_rng = rng.spawn(1)[0]
        self.clustering = Clustering(settings.clusters, settings.recluster_every)
        self.bandit = self._bandit()
        self.standing = Standing()

    def _bandit(self) -> Bandit:
        return Bandit(self.settings.clusters, self.settings.exploration)

    def prepare(self, frontier: Frontier, round_: int) -> None:
        """Re-clusters when it is due, profiles the representatives and computes the masks (section 4, steps 2 and 3)."""
        if self.clustering.due(len(frontier), round_):
            before = self.clustering.raw_centroids()
            labels = self.clustering.fit(frontier.phi, round_, self._clustering_rng)
            if before is not None and self.settings.match_clusters:
                self.bandit.permute(self.clustering.match(before))
            frontier.label = labels.tolist()
        representatives = self.clustering.representatives(frontier.phi, frontier.labels, frontier.ms)
        h = np.full((self.settings.clusters, len(RESOURCES)), np.nan)
        for cluster, place in enumerate(representatives):
            if place is not None:
                frontier.known[place] = True
                h[cluster] = frontier.profiles[place].h
        self.standing = Standing(representatives, h)
        # Without masks the thresholds are out of reach: only empty clusters are closed.
        seen = h if self.settings.mask else np.full_like(h, np.nan)
        self.standing.open = mask(seen, self.settings.theta, self.standing.empty)

    @abstractmethod
    def choose(self, frontier: Frontier) -> Choice:
        """Where the next attempt goes."""

    def learn(self, choice: Choice, reward: float, candidate: Candidate, entry: Entry | None) -> None:
        """Takes the reward of an attempt; entry None: a duplicate, which was not measured."""
        self.bandit.update(choice.cluster, choice.strategy, reward)

    def _any_strategy(self) -> int:
        return int(self.rng.integers(len(STRATEGIES)))


class KernelBand(Policy):
    """Masked UCB over clusters x strategies, then a parent by headroom (section 4, steps 4 and 5)."""

    def choose(self, frontier: Frontier) -> Choice:
        occupied = mask(np.full_like(self.standing.h, np.nan), self.settings.theta, self.standing.empty)
        freely = self.bandit.select(occupied)
        cluster, strategy = self.bandit.select(self.standing.open)
        members = np.flatnonzero(frontier.labels == cluster)
        h = frontier.h_known[members]
        if np.isnan(h).all():
            parent = members[frontier.ms[members].argmin()]
        else:
            parent = self.rng.choice(members, p=parent_weights(h, strategy, self.settings.theta, self.settings.temperature))
        return Choice(cluster, strategy, int(parent), saved=not self.standing.open[freely])


class Thompson(KernelBand):
    """As KernelBand, with draws from each arm's posterior in place of the upper bounds."""

    def _bandit(self) -> Bandit:
        return ThompsonBandit(self.settings.clusters, self.rng)


class UniformRandom(Policy):
    """An occupied cluster, a strategy and a member, each drawn uniformly."""

    def choose(self, frontier: Frontier) -> Choice:
        cluster = int(self.rng.choice([i for i, r in enumerate(self.standing.representatives) if r is not None]))
        return Choice(cluster, self._any_strategy(), int(self.rng.choice(np.flatnonzero(frontier.labels == cluster))))


class Greedy(Policy):
    """The fastest kernel, any strategy."""

    def choose(self, frontier: Frontier) -> Choice:
        best = frontier.best()
        return Choice(frontier.label[best], self._any_strategy(), best)


class BestOfN(Policy):
    """Always the baseline, any strategy: the budget is spent on independent tries."""

    def choose(self, frontier: Frontier) -> Choice:
        return Choice(frontier.label[0], self._any_strategy(), 0)
