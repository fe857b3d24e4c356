"""The tree-structured Parzen estimator of optuna over whole schedules: a sampler that knows neither edits nor clusters."""

from __future__ import annotations

import math

import numpy as np
import optuna

from backends.kernelband.bench import Entry
from backends.kernelband.frontier import Frontier
from backends.kernelband.policies import Choice, Policy, Settings
from backends.kernelband.substrate import Candidate, ScheduleSpace

optuna.logging.set_verbosity(optuna.logging.WARNING)  # its default tells of every study on the terminal


class TreeParzen(Policy):
    """Minimises ln(ms) over the fields of the schedule; what fails has no value. Its parent, for the reward, is the baseline."""

    def __init__(self, settings: Settings, rng: np.random.Generator, space: ScheduleSpace, baseline: Candidate) -> None:
        super().__init__(settings, rng)
        self._space, self._kernel, self._size = space, baseline.kernel, baseline.size
        fields = space.space(baseline.kernel)
        self._values = dict(fields)
        # Places in the list of values, because optuna's categories must be plain numbers or text.
        self._distributions: dict[str, optuna.distributions.BaseDistribution] = {
            name: optuna.distributions.CategoricalDistribution(tuple(range(len(values)))) for name, values in fields.items()
        }
        self._study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=int(rng.integers(2**31))))

    def choose(self, frontier: Frontier) -> Choice:
        if not self._study.get_trials(deepcopy=False):
            self._tell(frontier.candidates[0], frontier.timings[0].ms)
        # Asked and dropped: the schedule that is measured may be another one (the nearest recorded), and that one is told.
        asked = self._study.ask(self._distributions)
        self._study.tell(asked, state=optuna.trial.TrialState.FAIL)
        schedule = self._space.at(self._kernel, {name: self._values[name][place] for name, place in asked.params.items()})
        return Choice(-1, -1, 0, self._space.render(self._kernel, self._size, schedule))

    def learn(self, choice: Choice, reward: float, candidate: Candidate, entry: Entry | None) -> None:
        if entry is not None and entry.timing is not None:
            self._tell(candidate, entry.timing.ms)

    def _tell(self, candidate: Candidate, ms: float) -> None:
        values = self._space.values(candidate.schedule)
        params = {name: self._values[name].index(values[name]) for name in self._values}
        self._study.add_trial(optuna.create_trial(params=params, distributions=self._distributions, value=math.log(ms)))
