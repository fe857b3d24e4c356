"""The policies against one another on one landscape: the same budget, proposer and seeds, and 95 % bands (section 6 of the card)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import stats

from backends.kernelband.landscape import Landscape
from backends.kernelband.policies import BestOfN, Greedy, KernelBand, Policy, Settings, Thompson, UniformRandom
from backends.kernelband.search import Search, measured
from backends.kernelband.substrate import STRATEGIES, Candidate, ScheduleProposer, ScheduleSpace

CONFIDENCE = 0.95
COMPARED = ("kernelband", "without-mask", "one-cluster", "thompson", "random", "greedy", "best-of-n", "tpe")
_KINDS: Mapping[str, type[Policy]] = {
    "kernelband": KernelBand,
    "without-mask": KernelBand,
    "one-cluster": KernelBand,
    "thompson": Thompson,
    "random": UniformRandom,
    "greedy": Greedy,
    "best-of-n": BestOfN,
}


def make_policy(name: str, settings: Settings, rng: np.random.Generator, space: ScheduleSpace, baseline: Candidate) -> Policy:
    """The policy of this name. space: what TPE draws its schedules from.

    "without-mask" and "one-cluster" are KernelBand with one of its parts taken away.
    """
    if name == "tpe":
        from backends.kernelband.tpe import TreeParzen  # optuna loads in a second

        return TreeParzen(settings, rng, space, baseline)
    if name == "without-mask":
        settings = replace(settings, mask=False)
    elif name == "one-cluster":
        settings = replace(settings, clusters=1)
    return _KINDS[name](settings, rng)


@dataclass(frozen=True)
class Band:
    """Speed-up over the baseline after 0 to T rounds, (T + 1,): geometric mean over the seeds and the ends of its 95 % interval."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass
class Comparison:
    """By policy: best, ln of the speed-up (seeds, T + 1), a row for each seed that is done; pulls, attempts by cluster and strategy (K, 6);
    figures, what ``search.measured`` says of each seed's search."""

    rounds: int
    best: dict[str, list[np.ndarray]] = field(default_factory=dict)
    pulls: dict[str, np.ndarray] = field(default_factory=dict)
    figures: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def add(self, policy: str, search: Search) -> None:
        """Takes a search that has ended."""
        self.best[policy].append(best_curve(search))
        self.figures.setdefault(policy, []).append(measured(search))
        for attempt in search.attempts:
            if attempt.strategy >= 0:
                self.pulls[policy][attempt.cluster, attempt.strategy] += 1

    def mean(self, policy: str, figure: str) -> float:
        """Mean of this figure over the seeds."""
        return sum(found[figure] for found in self.figures[policy]) / len(self.figures[policy])

    def band(self, policy: str) -> Band | None:
        """None below two seeds, which have no interval."""
        rows = np.array(self.best.get(policy, ()))
        if len(rows) < 2:
            return None
        return Band(*(np.exp(x) for x in _interval(rows)))

    def ratio(self, policy: str, other: str) -> tuple[float, float, float]:
        """Geometric mean of the ratio of final speed-ups, seed by seed, and the ends of its 95 % interval. Needs two seeds of both."""
        number = min(len(self.best[policy]), len(self.best[other]))
        difference = np.array([a[-1] - b[-1] for a, b in zip(self.best[policy][:number], self.best[other][:number], strict=True)])
        mean, low, high = (float(np.exp(x)) for x in _interval(difference))
        return mean, low, high


def _interval(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over the first axis and the ends of Student's interval."""
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(rows) - 1) * rows.std(axis=0, ddof=1) / len(rows) ** 0.5
    mean = rows.mean(axis=0)
    return mean, mean - half, mean + half


def best_curve(search: Search) -> np.ndarray:
    """ln(baseline / best so far) after 0 to T rounds, (T + 1,). The times are those of the attempts, before the best is confirmed."""
    times = np.full(search.rounds + 1, np.inf)
    times[0] = search.baseline_ms
    for attempt in search.attempts:
        if attempt.ms is not None:
            times[attempt.round] = min(times[attempt.round], attempt.ms)
    curve: np.ndarray = np.log(search.baseline_ms / np.minimum.accumulate(times))
    return curve


def compare(landscape: Landscape, settings: Settings, rounds: int, seed: int, check: Callable[[], None], seeds: int) -> Iterator[Comparison]:
    """Replays each policy once a seed, all policies of a seed before the next one; yields the comparison, which grows, after each seed."""
    arms = (settings.clusters, len(STRATEGIES))
    comparison = Comparison(rounds, {name: [] for name in COMPARED}, {name: np.zeros(arms, int) for name in COMPARED})
    for number in range(seeds):
        for place, name in enumerate(COMPARED):
            check()
            policy = make_policy(name, settings, np.random.default_rng([seed, number, place]), landscape, landscape.baseline)
            search = Search(landscape.bench, ScheduleProposer(landscape), policy, np.random.default_rng([seed, number, place, 1]), landscape.baseline, rounds)
            for _ in search.run():
                pass
            comparison.add(name, search)
        yield comparison
