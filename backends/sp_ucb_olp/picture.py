"""Plain data for the pictures of one run: what ``frame.data`` holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from backends.sp_ucb_olp.oracle import Oracle
from backends.sp_ucb_olp.play import ACCEPT_TOLERANCE, Play
from backends.sp_ucb_olp.saddle import Saddle
from backends.sp_ucb_olp.surplus import Array, surplus_of_samples
from backends.sp_ucb_olp.workload import Workload

CURVE_POINTS = 160  # of a curve over the rounds
SOLVES = 120  # drawn of those of a run
REQUESTS = 300  # the newest ones
CURVE_PRICES = 201  # of the objective over one price
MAP_PRICES = 33  # a side of the objective over two prices
REACH = 1.6  # of the largest price of interest: how far the objective is drawn
CUTS = 8  # lines drawn
TRIED = 200  # prices drawn


def rounds_drawn(done: int, horizon: int) -> Array:
    """Rounds at which curves are drawn, as numbers of rounds that are over: 0, a step, ..., done."""
    step = max(1, horizon // CURVE_POINTS)
    return np.append(np.arange(0, done, step), done)


def curves(plays: Mapping[str, Play], done: int) -> dict[str, Any]:
    """round: (n,) rounds over; each policy's reward so far (n,)."""
    horizon = next(iter(plays.values())).terms.horizon
    at = rounds_drawn(done, horizon)
    return {"round": at} | {name: np.append(0.0, np.cumsum(play.reward[:done]))[at] for name, play in plays.items()}


def solves(play: Play) -> dict[str, Any]:
    """round: (m,) from which a decision holds; w: (m, K); p: (m, d); beta: (m, K)."""
    made = play.solves
    kept = np.unique(np.linspace(0, len(made) - 1, min(len(made), SOLVES)).astype(int))
    decisions = [made[i].decision for i in kept]
    return {
        "round": np.array([made[i].round for i in kept]),
        "w": np.array([d.mixture for d in decisions]),
        "p": np.array([d.prices for d in decisions]),
        "beta": np.array([d.radii for d in decisions]),
    }


def budget_left(play: Play, done: int) -> dict[str, Any]:
    """round: (n,); share: (n, d) of the budget that is left."""
    at = rounds_drawn(done, play.terms.horizon)
    left = np.concatenate([play.total[None], play.left[:done]])[at]
    return {"round": at, "share": np.clip(left / play.total, 0.0, 1.0)}


def requests(play: Play, done: int) -> dict[str, Any]:
    """The newest requests: price p.a and reward r (n,), the configuration, and what became of each: 0 rejected, 1 accepted, 2 did not fit."""
    newest = np.arange(max(0, done - REQUESTS), done)
    chosen, accepted = play.chosen[newest], play.accepted[newest]
    offered, price = play.requests.rewards[newest, chosen], play.price[newest]
    if play.solves and play.policy.learns:  # those of the warm start are rejected at the highest price, far outside the picture
        shown = newest >= play.terms.configurations
        newest, chosen, accepted, offered, price = newest[shown], chosen[shown], accepted[shown], offered[shown], price[shown]
    missed = ~accepted & (offered >= price - ACCEPT_TOLERANCE)
    fate = np.where(accepted, 1, np.where(missed, 2, 0))
    return {"price": price, "reward": offered, "chosen": chosen, "fate": fate}


def spending(play: Play, oracle: Oracle, done: int) -> dict[str, Any]:
    """Units of each resource used a round: by this run so far (d,), by the best fixed configuration (d,) and the budget (d,)."""
    used = (play.total - play.left[done - 1]) / done
    return {"used": used, "fixed": oracle.fixed_use, "budget": play.terms.budget}


def objective(play: Play, oracle: Oracle | None) -> dict[str, Any] | None:
    """The dual objective of the learner's latest solve over one or two prices, with its cuts; None for more resources.

    grids: (n,) prices of each axis; z: (n,) or (n, n), rows the second price; best: (d,); value: there. Two prices: tried (m, 2), where
    the solves so far made cuts. One price: cuts (c, n), the lines that hold the objective up from below.
    """
    terms, latest = play.terms, play.solves[-1]
    resources, found, radii = terms.budget.size, latest.decision.saddle, latest.decision.radii
    if resources > 2 or found is None or radii is None:
        return None
    rewards, use = play.samples.first(latest.counts)
    grids = _grids(found, oracle, terms.price_max, resources)
    drawn: dict[str, Any] = {"best": found.prices, "value": found.value, "grids": grids}
    if resources == 2:
        first, second = np.meshgrid(grids[0], grids[1])
        at = np.stack([first.ravel(), second.ravel()], axis=1)
        heights = _heights(rewards, use, radii, at)
        tried = np.concatenate([s.decision.saddle.tried for s in play.solves if s.decision.saddle is not None])
        tried = np.unique(tried.round(6), axis=0)
        return drawn | {"z": (at @ terms.safe + heights).reshape(first.shape), "tried": tried[:: -(-len(tried) // TRIED)]}
    grid = grids[0]
    z = grid * terms.safe[0] + _heights(rewards, use, radii, grid[:, None])
    surplus, lines = surplus_of_samples(rewards, use), []
    for price in found.tried[-CUTS:]:
        g, h = surplus(price)
        best = int(np.argmax(g + radii))
        lines.append(terms.safe[0] * grid + g[best] + radii[best] - h[best, 0] * (grid - price[0]))
    return drawn | {"z": z, "cuts": np.array(lines)}


def exact_objective(workload: Workload, grid: Array) -> Array:
    """(n,) the true dual objective b p + max_k g_k(p) over one price."""
    return np.array([workload.terms.budget[0] * p + workload.instance.surplus(np.array([p]))[0].max() for p in grid])


def _grids(found: Saddle, oracle: Oracle | None, price_max: float, resources: int) -> list[Array]:
    of_interest = [found.prices, *([oracle.prices] if oracle else [])]
    reach = np.minimum(np.maximum(REACH * np.max(of_interest, axis=0), 0.2 * price_max / (1 + resources)), price_max)
    number = CURVE_PRICES if resources == 1 else MAP_PRICES
    return [np.linspace(0.0, top, number) for top in reach]


def _heights(rewards: list[Array], use: list[Array], radii: Array, prices: Array) -> Array:
    """(m,) max over k of the empirical surplus and its radius at prices (m, d)."""
    each = [np.maximum(r[:, None] - a @ prices.T, 0.0).mean(axis=0) + radius for r, a, radius in zip(rewards, use, radii, strict=True)]
    highest: Array = np.max(each, axis=0)
    return highest


def answer(oracle: Oracle) -> dict[str, Any]:
    """The exact answer, as the pictures draw it."""
    return {"v_mix": oracle.v_mix, "v_fix": oracle.v_fix, "w": oracle.mixture, "p": oracle.prices, "fixed": oracle.fixed}
