"""The samplers that read minibatches: PoissonMH, Poisson-Barker, Poisson-MALA, TunaMH, Tuna-SGLD, and SGLD, which has no coin and is biased.

Each supplies its draws and log densities to the driver and nothing else (sections 4.4 to 4.6 of the method card). The prior is flat on the support.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from backends.auxiliary_mcmc import thinning
from backends.auxiliary_mcmc.alias import AliasTable
from backends.auxiliary_mcmc.driver import Proposed
from backends.auxiliary_mcmc.models import Look, TallModel
from backends.auxiliary_mcmc.proposals import Generator, Proposal, RandomWalk, standard_normal
from backends.auxiliary_mcmc.thinning import Slots

CLIPPED_NORM = 2.0  # of the batch gradient, as the authors' code has it
Known = tuple[Tensor, ...]


def above_zero(name: str, value: float) -> float:
    """The value; raises ValueError unless it is finite and above 0."""
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} is {value}; a finite number above 0 is needed")
    return value


class Minibatch(NamedTuple):
    """A thinned batch of C chains, all (C, B). rows: (C, B, k); share: c_i; phi at theta; kept: 1 or 0; gradient: (C, d) of the surrogate at theta."""

    slots: Slots
    rows: Tensor
    bound: Tensor
    share: Tensor
    phi: Tensor
    kept: Tensor
    gradient: Tensor


class PoissonSampler:
    """Poisson minibatch s drawn at theta, the same at theta' (4.4, 4.5): omega_1 = omega_2 = s.

    kappa: lambda = kappa L^2. The surrogate log density is sum_S s_i log(c_i + phi_i); its gradient drives Barker and MALA, a random walk ignores it.
    """

    def __init__(self, model: TallModel, proposal: Proposal, *, step: float, kappa: float, table: AliasTable | None = None) -> None:
        self.name = "poisson-mh" if isinstance(proposal, RandomWalk) else f"poisson-{proposal.name}"
        self.model, self.proposal, self.support = model, proposal, model.support
        self.step, self.kappa = above_zero("the step", step), above_zero("kappa", kappa)
        self.alias = AliasTable.of(model.bounds) if table is None else table
        self.total = self.alias.total
        self.lam = kappa * self.total**2
        self._column = model.table.shape[1] - 2  # of M_i, which is gathered with its row

    def start(self, theta: Tensor) -> Known:
        return ()

    def first(self, theta: Tensor, known: Known, generator: Generator) -> Minibatch:
        slots = thinning.draw_slots(self.alias, theta.new_full((theta.shape[0],), self.lam + self.total), generator)
        rows = self.model.table.index_select(0, slots.row.view(-1)).view(*slots.row.shape, self.model.table.shape[1])
        bound = rows[..., self._column]
        seen = self.model.look(rows, theta)
        phi = bound - seen.energy
        kept = thinning.keep(slots, phi, bound, self.lam, self.total, generator)
        share = bound * (self.lam / self.total)
        return Minibatch(slots, rows, bound, share, phi, kept, self._gradient(rows, theta, seen, kept, share + phi))

    def _gradient(self, rows: Tensor, theta: Tensor, seen: Look, kept: Tensor, rate: Tensor) -> Tensor:
        """sum_S s_i grad phi_i / (c_i + phi_i), with grad phi = -grad U."""
        if not self.proposal.uses_gradient:
            return torch.zeros_like(theta)
        return self.model.gradient(rows, theta, seen, (kept / rate).neg_())

    def surrogate(self, batch: Minibatch, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Log density (C,) of the surrogate at theta for this batch, and its gradient (C, d)."""
        seen = self.model.look(batch.rows, theta)
        rate = batch.share + batch.bound - seen.energy
        density = (batch.kept * torch.log(rate)).sum(1)
        return density, self._gradient(batch.rows, theta, seen, batch.kept, rate)

    def propose(self, theta: Tensor, known: Known, first: Minibatch, generator: Generator) -> Proposed:
        return Proposed(self.proposal.draw(theta, first.gradient, self.step, generator))

    def second(self, theta: Tensor, proposed: Tensor, first: Minibatch, generator: Generator) -> None:
        return None

    def log_ratio(self, theta: Tensor, proposed: Proposed, known: Known, first: Minibatch, second: None) -> Tensor:
        seen = self.model.look(first.rows, proposed.theta)
        phi = first.bound - seen.energy
        thinning.check_bounds(phi, first.bound, first.slots)
        back = self._gradient(first.rows, proposed.theta, seen, first.kept, first.share + phi)
        ratio = thinning.log_ratio(first.kept, first.phi, phi, first.share)
        return ratio + self.proposal.log_ratio(proposed.theta - theta, first.gradient, back, self.step)

    def touched(self, first: Minibatch, second: None) -> Tensor:
        return first.slots.touched

    def rows(self, first: Minibatch, second: None) -> Tensor:
        return first.slots.row[0][first.slots.drawn[0]]


class Estimate(NamedTuple):
    """A batch of uniform rows. index: (C, K); rows: (C, K, k); gradient: (C, d), estimate of the log density's gradient at theta."""

    index: Tensor
    rows: Tensor
    gradient: Tensor


class UniformGradient:
    """-(N/K) sum over K uniform rows (with replacement) of grad U_i; with ``clip`` scaled to norm 2, as the authors' code has it."""

    def __init__(self, model: TallModel, batch: int, clip: bool) -> None:
        self.model, self.batch, self.clip, self.n = model, batch, clip, model.table.shape[0]
        if not 1 <= batch <= self.n:
            raise ValueError(f"the batch is {batch} rows; 1 to {self.n} are there")

    def draw(self, theta: Tensor, generator: Generator) -> Estimate:
        index = torch.randint(self.n, (theta.shape[0], self.batch), generator=generator, device=theta.device)
        rows = self.model.table.index_select(0, index.view(-1)).view(*index.shape, self.model.table.shape[1])
        return Estimate(index, rows, self.at(rows, theta))

    def at(self, rows: Tensor, theta: Tensor) -> Tensor:
        """The estimate at theta from rows already drawn, (C, d)."""
        seen = self.model.look(rows, theta)
        gradient = self.model.gradient(rows, theta, seen, None) * (-self.n / self.batch)
        return gradient * (CLIPPED_NORM / torch.linalg.vector_norm(gradient, dim=1, keepdim=True).clamp(min=1e-300)) if self.clip else gradient


class Pair(NamedTuple):
    """omega_2 of TunaMH: the rows of all chains one below another, since their numbers differ widely; all but ``touched`` are (T, 1).

    chain: (T,) whose row it is; share: c_i; phi, phi_new: at theta and at theta'; kept: 1 or 0; touched: (C,).
    """

    row: Tensor
    chain: Tensor
    share: Tensor
    phi: Tensor
    phi_new: Tensor
    kept: Tensor
    touched: Tensor


class TunaSampler:
    """TunaMH (omega_1 absent, random walk) and Tuna-SGLD (omega_1 a uniform batch that gives the gradient), section 4.6.

    Per step M_i = psi_i |theta' - theta|, L = Psi |theta' - theta|, lambda = chi L^2; phi_i = (U_i(theta') - U_i(theta) + M_i)/2 at theta, the mirror of it
    at theta'. gradient: None for TunaMH. step: eps, the proposal's standard deviation.
    """

    def __init__(self, model: TallModel, *, step: float, chi: float, gradient: UniformGradient | None = None, table: AliasTable | None = None) -> None:
        self.name = "tuna-mh" if gradient is None else "tuna-sgld"
        self.model, self.support, self.gradient = model, model.support, gradient
        self.step, self.chi = above_zero("the step", step), above_zero("chi", chi)
        self.alias = AliasTable.of(model.lipschitz) if table is None else table
        self._column = model.table.shape[1] - 1

    def start(self, theta: Tensor) -> Known:
        return ()

    def first(self, theta: Tensor, known: Known, generator: Generator) -> Estimate | None:
        return None if self.gradient is None else self.gradient.draw(theta, generator)

    def propose(self, theta: Tensor, known: Known, first: Estimate | None, generator: Generator) -> Proposed:
        drift = 0.0 if first is None else self.step**2 / 2 * first.gradient
        return Proposed(theta + drift + self.step * standard_normal(theta, generator))

    def second(self, theta: Tensor, proposed: Tensor, first: Estimate | None, generator: Generator) -> Pair:
        distance = torch.linalg.vector_norm(proposed - theta, dim=1)
        total = self.alias.total * distance
        lam = self.chi * total**2
        number = torch.poisson(lam + total, generator=generator).long()
        chain = torch.repeat_interleave(number)
        row = self.alias.draw((chain.numel(), 1), generator)
        rows = self.model.table.index_select(0, row.view(-1))[:, None, :]
        bound = rows[..., self._column] * distance[chain, None]
        change = self.model.look(rows, proposed[chain]).energy - self.model.look(rows, theta[chain]).energy
        phi, phi_new = (bound + change) / 2, (bound - change) / 2
        slots = Slots(row, torch.ones_like(row, dtype=torch.bool), number)
        kept = thinning.keep(slots, phi, bound, lam[chain, None], total[chain, None], generator)
        return Pair(row, chain, bound * (self.chi * total)[chain, None], phi, phi_new, kept, number)

    def log_ratio(self, theta: Tensor, proposed: Proposed, known: Known, first: Estimate | None, second: Pair) -> Tensor:
        terms = thinning.log_ratio(second.kept, second.phi, second.phi_new, second.share)
        ratio = theta.new_zeros(theta.shape[0]).index_add_(0, second.chain, terms)
        if first is None or self.gradient is None:
            return ratio
        moved, back = proposed.theta - theta, self.gradient.at(first.rows, proposed.theta)
        forth = ((moved - self.step**2 / 2 * first.gradient) ** 2).sum(1)
        return ratio + (forth - ((moved + self.step**2 / 2 * back) ** 2).sum(1)) / (2 * self.step**2)

    def touched(self, first: Estimate | None, second: Pair) -> Tensor:
        return second.touched + (0 if first is None else first.index.shape[1])

    def rows(self, first: Estimate | None, second: Pair) -> Tensor:
        tuna = second.row[second.chain == 0, 0]
        return tuna if first is None else torch.cat([first.index[0], tuna])


class Sgld:
    """theta' = theta + eps^2/2 g_B(theta) + eps xi, always taken (Welling and Teh, 2011): no coin, hence a bias that more steps do not remove."""

    def __init__(self, model: TallModel, gradient: UniformGradient, *, step: float) -> None:
        self.name, self.support, self.gradient, self.step = "sgld", model.support, gradient, above_zero("the step", step)

    def start(self, theta: Tensor) -> Known:
        return ()

    def first(self, theta: Tensor, known: Known, generator: Generator) -> Estimate:
        return self.gradient.draw(theta, generator)

    def propose(self, theta: Tensor, known: Known, first: Estimate, generator: Generator) -> Proposed:
        return Proposed(theta + self.step**2 / 2 * first.gradient + self.step * standard_normal(theta, generator))

    def second(self, theta: Tensor, proposed: Tensor, first: Estimate, generator: Generator) -> None:
        return None

    def log_ratio(self, theta: Tensor, proposed: Proposed, known: Known, first: Estimate, second: None) -> Tensor:
        return theta.new_full((theta.shape[0],), torch.inf)

    def touched(self, first: Estimate, second: None) -> int:
        return first.index.shape[1]

    def rows(self, first: Estimate, second: None) -> Tensor:
        return first.index[0]
