"""The minibatch that is part of the Metropolis ratio: Poisson counts drawn by thinning, in time of the batch and not of the data.

s_i ~ Poisson(c_i + phi_i), independent, c_i = lambda M_i / L, L = sum M_i (section 4.4 of the method card). Equivalent and cheap: B ~ Poisson(lambda + L)
row numbers by weight M_i / L, each kept with probability (lambda M_i + L phi_i) / ((lambda + L) M_i); s_i is how often row i was kept. A batch is
held slot by slot, one slot a drawn row, so that a row drawn twice counts twice. Chains have batches of different sizes: the shorter ones are padded
with slots that are never kept and never counted as touched.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from backends.auxiliary_mcmc.alias import AliasTable

ROUNDING = 1e-9  # of the bound


class Slots(NamedTuple):
    """Rows drawn for C chains. row: (C, B) row numbers; drawn: (C, B) bool, False in padding; touched: (C,) int64, the rows really drawn."""

    row: Tensor
    drawn: Tensor
    touched: Tensor


def draw_slots(table: AliasTable, mean: Tensor, generator: torch.Generator) -> Slots:
    """B ~ Poisson(mean) rows a chain by the weights of the table. mean: (C,), each at least 0."""
    number = torch.poisson(mean, generator=generator)
    width = int(number.max()) if number.numel() else 0
    drawn = torch.arange(width, dtype=number.dtype, device=number.device) < number[:, None]
    return Slots(table.draw((number.shape[0], width), generator), drawn, number.long())


def keep(slots: Slots, phi: Tensor, bound: Tensor, lam: Tensor | float, total: Tensor | float, generator: torch.Generator) -> Tensor:
    """Which slots stay, (C, B) of 1 and 0: each with probability (lambda M + L phi) / ((lambda + L) M). Raises ValueError where phi leaves 0..M."""
    check_bounds(phi, bound, slots)
    coin = torch.rand(phi.shape, dtype=phi.dtype, device=phi.device, generator=generator)
    return (coin.mul_(lam + total).mul_(bound) < lam * bound + total * phi).logical_and_(slots.drawn).to(phi.dtype)


def check_bounds(phi: Tensor, bound: Tensor, slots: Slots) -> None:
    """Raises ValueError with the row number unless 0 <= phi_i <= M_i on every drawn row: one wrong bound biases the chain silently."""
    if phi.numel() == 0 or (float(phi.amin()) >= 0 and float((bound - phi).amin()) >= 0):
        return
    inside = (phi >= -ROUNDING * bound) & (phi <= bound * (1 + ROUNDING))
    wrong = torch.nonzero(slots.drawn & ~inside)
    if wrong.numel():
        chain, slot = (int(v) for v in wrong[0])
        value, most, row = float(phi[chain, slot]), float(bound[chain, slot]), int(slots.row[chain, slot])
        raise ValueError(f"row {row}: phi is {value:.6g}, outside 0 to its bound {most:.6g}; the bound is wrong and the chain would be biased")


def log_ratio(kept: Tensor, phi: Tensor, phi_new: Tensor, share: Tensor) -> Tensor:
    """log R = sum over kept slots of log(1 + phi'/c) - log(1 + phi/c), (C,); all (C, B), kept is 1 or 0, share is c_i."""
    terms = torch.log1p(phi_new / share).sub_(torch.log1p(phi / share))
    return terms.mul_(kept).sum(1)


def thin(phi: Tensor, bounds: Tensor, lam: float, generator: torch.Generator, draws: int = 1) -> Tensor:
    """Counts s (draws, N), int64, with s_i ~ Poisson(lambda M_i / L + phi_i) independent, drawn by thinning.

    phi, bounds: (N,) with 0 <= phi_i <= M_i; lam: lambda > 0. Each draw touches Poisson(lambda + L) rows. Raises ValueError for other input.

    >>> s = thin(torch.tensor([0.2, 0.5, 0.1]), torch.ones(3), 9.0, torch.Generator().manual_seed(0), draws=4)
    >>> s.shape
    torch.Size([4, 3])
    """
    phi, bounds = _checked(phi, bounds, lam)
    if draws < 1:
        raise ValueError(f"{draws} draws were asked for; at least 1 is needed")
    table = AliasTable.of(bounds)
    slots = draw_slots(table, bounds.new_full((draws,), lam + table.total), generator)
    kept = keep(slots, phi[slots.row], bounds[slots.row], lam, table.total, generator)
    return torch.zeros((draws, phi.numel()), dtype=torch.int64).scatter_add_(1, slots.row, kept.long())


def auxiliary_log_ratio(counts: Tensor, phi: Tensor, phi_new: Tensor, bounds: Tensor, lam: float) -> Tensor:
    """log R_{theta -> theta'}(s) = sum_i s_i [log(1 + phi'_i/c_i) - log(1 + phi_i/c_i)], c_i = lambda M_i / L (4.4); E exp = exp(sum phi' - phi).

    counts: (..., N) multiplicities; phi, phi_new, bounds: (N,). Returns (...,) float64. Raises ValueError as ``thin`` does.
    """
    phi, bounds = _checked(phi, bounds, lam)
    phi_new, _ = _checked(phi_new, bounds, lam)
    counts = torch.as_tensor(counts)
    if counts.shape[-1:] != phi.shape or bool((counts < 0).any()):
        raise ValueError(f"the counts have shape {tuple(counts.shape)}; (..., {phi.numel()}) of numbers at least 0 are needed")
    share = lam * bounds / bounds.sum()
    return counts.to(torch.float64) @ (torch.log1p(phi_new / share) - torch.log1p(phi / share))


def ratio_moment(phi: Tensor, phi_new: Tensor, bounds: Tensor, lam: float, power: float) -> float:
    """E[R^power] in closed form: exp sum_i (c_i + phi_i) [((c_i + phi'_i) / (c_i + phi_i))^power - 1].

    >>> round(ratio_moment(torch.tensor([0.2, 0.5, 0.1]), torch.tensor([0.4, 0.3, 0.3]), torch.ones(3), 9.0, 2), 6)
    1.547796
    """
    phi, bounds = _checked(phi, bounds, lam)
    phi_new, _ = _checked(phi_new, bounds, lam)
    share = lam * bounds / bounds.sum()
    rate = share + phi
    return math.exp(float((rate * (((share + phi_new) / rate) ** power - 1)).sum()))


def _checked(phi: Tensor, bounds: Tensor, lam: float) -> tuple[Tensor, Tensor]:
    # Given as float32, 0.2 stays what it was written as to 8 digits only; the bound's rounding allows for that.
    phi, bounds = torch.as_tensor(phi).to(torch.float64), torch.as_tensor(bounds).to(torch.float64)
    if phi.ndim != 1 or phi.shape != bounds.shape or phi.numel() == 0:
        raise ValueError(f"phi and bounds have shapes {tuple(phi.shape)} and {tuple(bounds.shape)}; two lists of one length are needed")
    if not 0 < lam < math.inf:
        raise ValueError(f"lambda is {lam}; a finite number above 0 is needed")
    if not bool(torch.isfinite(bounds).all()) or not bool((bounds > 0).all()):
        raise ValueError("every bound must be finite and above 0")
    wrong = torch.nonzero(~((phi >= -1e-7 * bounds) & (phi <= bounds * (1 + 1e-7)))).flatten()
    if wrong.numel():
        row = int(wrong[0])
        raise ValueError(f"row {row}: phi is {float(phi[row]):.6g}, outside 0 to its bound {float(bounds[row]):.6g}")
    return phi.clamp(min=0).minimum(bounds), bounds
