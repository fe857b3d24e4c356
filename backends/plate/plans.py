"""From a layer's weights alone to rows and directions, with all that the pictures say of the choice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from backends.plate.arrays import as_matrix
from backends.plate.hadamard import estimated_width, randomised_low_energy
from backends.plate.layer import Plan
from backends.plate.redundancy import RowRule, choose_rows, redundancy_scores
from backends.plate.subspace import MAX_RANK, QMode, Spectrum, Width, protected_ratio, random_directions, width

PROBES = (2, 16, 64)  # of the estimates of k that stand beside the exact one


@dataclass(frozen=True, slots=True)
class Choice:
    """What one layer's weights decide, as numpy arrays, so that it can be stored.

    scores: (d_out,) redundancy of each row. rows: (r_eff,) that may move. energy: (d_in,) squared singular values of the frozen
    rows, descending. directions: (d_in, d_in) their right singular vectors. n_high, width: exact, at the energy asked for.
    Q: (d_in, k) directions in use; both in the float32 of the networks. estimates: k by 2, 16 and 64 probes. protected: ||W_frozen Q|| / ||W_frozen||.
    """

    scores: np.ndarray
    rows: np.ndarray
    energy: np.ndarray
    directions: np.ndarray
    n_high: int
    width: Width
    Q: np.ndarray
    estimates: tuple[int, ...]
    protected: float

    def plan(self) -> Plan:
        return Plan(torch.from_numpy(self.rows.copy()), torch.from_numpy(self.Q.copy()))


def choose(
    W: np.ndarray,
    r: int,
    energy: float,
    *,
    max_rank: int = MAX_RANK,
    q_mode: QMode = "exact",
    row_rule: RowRule = "redundant",
    rng: np.random.Generator,
) -> Choice:
    """Rows first, then Q from the rows that stay: nothing but W (d_out, d_in) is asked. Raises ValueError as the parts do.

    random and top-energy directions have the exact k: they are the controls of the choice, at equal cost.
    """
    weight = as_matrix(W)
    scores = redundancy_scores(weight)
    rows = choose_rows(weight, r, row_rule, rng, scores)
    frozen = weight[torch.isin(torch.arange(len(weight)), rows, invert=True)]
    spectrum = Spectrum.of(frozen)
    n_high = spectrum.n_high(energy)
    exact = width(spectrum.d_in, n_high, max_rank)
    if q_mode == "exact":
        Q = spectrum.low(exact.k)
    elif q_mode == "randomised":
        Q, _ = randomised_low_energy(frozen, energy, rng, max_rank)
    elif q_mode == "random":
        Q = random_directions(spectrum.d_in, exact.k, rng)
    else:
        Q = spectrum.top(exact.k)
    estimates = tuple(estimated_width(frozen, energy, probes, rng, max_rank) for probes in PROBES)
    directions, used = (part.float().numpy() for part in (spectrum.directions, Q))
    return Choice(scores.numpy(), rows.numpy(), spectrum.energy.numpy(), directions, n_high, exact, used, estimates, protected_ratio(frozen, Q))
