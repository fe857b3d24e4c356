"""Navigation: "Take me to the shop" on a map with two shops, a lake and a hill; a candidate is a shortest path under jittered costs."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from backends.contract import Context
from backends.tai.candidates import Arrive, Candidates
from backends.tai.card import Params
from backends.tai.tasks import grammar
from backends.tai.tasks.grammar import Style

REQUEST = "Take me to the shop."
SIDE = 24  # cells
START = (1, 12)
SHOPS = {"the bakery": (22, 4), "the bookshop": (22, 19)}
OBSTACLES = {"the lake": (5, 8, 9, 16), "the hill": (14, 8, 18, 16)}  # x0, y0, x1, y1, inclusive; y grows to the north
SIDES = ("south", "north")
AXES = ("shop", "side of the lake", "side of the hill")
JITTERS, JITTER = 6, 0.3  # random cost fields of a seed, and the largest extra cost of a cell
WRONG_SIDE = 8.0  # cost factor beside an obstacle on the side that is not wanted
FAULTS = 2  # places along the way at which a faulty route steps aside
FRECHET_CELLS = 10.0
STYLES = (
    Style("How should the directions be worded?", ("by distance", "by street names", "by landmarks")),
    Style("Which units should the directions use?", ("metres", "feet")),
    Style("Which way is up on the map?", ("north", "the way you face")),
)
Cell = tuple[int, int]
Route = tuple[Cell, ...]


class NavigationTask:
    """Routes of eight intents: two shops, two sides of the lake, two sides of the hill."""

    redraws = True

    def __init__(self, *, seed: int, quirk_rate: float, prior_skew: float) -> None:
        import networkx

        self.quirk_rate = quirk_rate
        self.intents = tuple(itertools.product(SHOPS, SIDES, SIDES))
        self.prior = grammar.zipf(len(self.intents), prior_skew, seed)
        self.jitter = 1 + JITTER * np.random.default_rng([seed, 11]).random((JITTERS, SIDE, SIDE))
        graph = networkx.grid_2d_graph(SIDE, SIDE)
        graph.add_edges_from(((x, y), (x + 1, y + step)) for x in range(SIDE - 1) for y in range(SIDE) for step in (-1, 1) if 0 <= y + step < SIDE)
        graph.remove_nodes_from([(x, y) for x0, y0, x1, y1 in OBSTACLES.values() for x in range(x0, x1 + 1) for y in range(y0, y1 + 1)])
        self.graph = graph
        self.distances = Distances()
        self._routes: dict[tuple[int, int, int], Route] = {}

    def route(self, intent: int, field: int, fault: int = -1) -> Route:
        """The cells of the cheapest way for an intent under one of the cost fields; a fault steps aside of one cell of it."""
        key = intent, field, fault
        if key not in self._routes:
            blocked = None
            if fault >= 0:
                plain = self.route(intent, field)
                blocked = plain[len(plain) * (fault + 1) // (FAULTS + 1)]
            self._routes[key] = self._shortest(intent, field, blocked)
        return self._routes[key]

    def _shortest(self, intent: int, field: int, blocked: Cell | None) -> Route:
        import networkx

        shop, *wanted = self.intents[intent]
        cost = self.jitter[field].copy()
        for (x0, y0, x1, y1), side in zip(OBSTACLES.values(), wanted, strict=True):
            cost[x0 : x1 + 1, slice(y1 + 1, None) if side == "south" else slice(0, y0)] *= WRONG_SIDE
        goal, cells = SHOPS[shop], cost.tolist()  # the search reads single cells, which arrays do slowly
        graph = self.graph if blocked is None else networkx.restricted_view(self.graph, [blocked], [])

        def step(a: Cell, b: Cell, _: Mapping[str, Any]) -> float:
            return (cells[a[0]][a[1]] + cells[b[0]][b[1]]) / 2 * math.hypot(a[0] - b[0], a[1] - b[1])

        def left(a: Cell, _: Cell) -> float:
            return math.hypot(a[0] - goal[0], a[1] - goal[1])  # never more than the true cost: a cell costs at least 1

        return tuple(networkx.astar_path(graph, START, goal, left, step))

    def draw(self, count: int, rng: np.random.Generator, arrive: Arrive = lambda done, caption: None) -> Candidates:
        drawn = grammar.draw(rng, count, self.prior, STYLES, self.quirk_rate, FAULTS)
        fields = rng.integers(JITTERS, size=count)
        routes, captions = [], []
        for number, (intent, field, fault) in enumerate(zip(drawn.intents, fields, drawn.faults, strict=True), 1):
            routes.append(self.route(int(intent), int(field), int(fault)))
            captions.append(caption(routes[-1]))
            arrive(number, captions[-1])
        probes, codes = grammar.coded(PROBES, [outcomes(route) for route in routes])
        plain = [outcomes(self.route(intent, 0)) for intent in range(len(self.intents))]
        values = np.array([[list(SHOPS).index(shop), SIDES.index(lake), SIDES.index(hill)] for shop, lake, hill in self.intents])
        return Candidates(
            request=REQUEST,
            shown=tuple({"kind": "path", "cells": [list(cell) for cell in route], "map": MAP} for route in routes),
            captions=tuple(captions),
            texts=tuple(directions(route, style) for route, style in zip(routes, drawn.styles, strict=True)),
            probes=probes,
            codes=codes,
            distance=self.distances.of(routes),
            resolution=0.5 / FRECHET_CELLS,
            nuisance=grammar.nuisances(STYLES, drawn.styles),
            features=features(routes),
            feature_names=FEATURES,
            intents=drawn.intents,
            intent_names=tuple(f"{shop}, {lake} of the lake, {hill} of the hill" for shop, lake, hill in self.intents),
            quirk=drawn.faults >= 0,
            failed=np.zeros(count, dtype=bool),
            axis_coverage=grammar.coverage(values, AXES, grammar.coded(PROBES, plain)[1]),
            model=f"A* under {JITTERS} random cost fields, grammar of {len(self.intents)} intents",
            data=f"map of {SIDE} x {SIDE} cells, made for this lab",
        )


def open_task(params: Params, context: Context) -> NavigationTask:
    """The task of these params; routes and distances that were found once are kept for all visitors."""
    key = (params.seed, params.quirk_rate, params.prior_skew)
    return context.memo("navigation", key, lambda: NavigationTask(seed=params.seed, quirk_rate=params.quirk_rate, prior_skew=params.prior_skew))


MAP: Mapping[str, Any] = {
    "size": SIDE,
    "start": list(START),
    "shops": [{"name": name, "at": list(at)} for name, at in SHOPS.items()],
    "obstacles": [{"name": name, "x0": x0, "y0": y0, "x1": x1, "y1": y1} for name, (x0, y0, x1, y1) in OBSTACLES.items()],
}
PROBES = (
    ("Which shop should the route end at?", "Should the route end at {outcome}?"),
    ("On which side should the route pass the lake?", "Should the route pass {outcome} of the lake?"),
    ("On which side should the route pass the hill?", "Should the route pass {outcome} of the hill?"),
    ("Between the lake and the hill, where should the route be?", "Between the lake and the hill, should the route be in {outcome}?"),
    ("How long may the route be?", "May the route take {outcome}?"),
)
FEATURES = ("which shop", "the side of the lake", "the side of the hill", "the row half way", "the length")


def side_of(route: Route, obstacle: str) -> int:
    """Homotopy class beside one obstacle: 1 where the route is north of it while it crosses its columns, else 0."""
    x0, y0, x1, y1 = OBSTACLES[obstacle]
    return int(np.mean([y for x, y in route if x0 <= x <= x1]) > (y0 + y1) / 2)


def _shop(route: Route) -> str:
    return next(name for name, at in SHOPS.items() if at == route[-1])


def _middle_row(route: Route) -> float:
    """Mean row between the lake and the hill."""
    between = range(OBSTACLES["the lake"][2] + 1, OBSTACLES["the hill"][0])
    return float(np.mean([y for x, y in route if x in between]))


def outcomes(route: Route) -> list[str]:
    """What the route does, in the order of ``PROBES``."""
    third = min(int(_middle_row(route) * 3 / SIDE), 2)
    tens = 5 * (len(route) // 5)
    return [
        _shop(route),
        SIDES[side_of(route, "the lake")],
        SIDES[side_of(route, "the hill")],
        ("the southern third", "the middle", "the northern third")[third],
        f"{tens} to {tens + 4} steps",
    ]


def caption(route: Route) -> str:
    """One line: the shop and the sides.

    >>> caption(tuple((x, 12 if x < 4 else 4) for x in range(1, 23)))
    'to the bakery, south of the lake, south of the hill'
    """
    shop, lake, hill, *_ = outcomes(route)
    return f"to {shop}, {lake} of the lake, {hill} of the hill"


def directions(route: Route, style: np.ndarray) -> str:
    """The route in words, as its style has it: what the text distance compares."""
    moves = np.diff(np.array(route), axis=0)
    wording, units, up = (s.labels[v] for s, v in zip(STYLES, style, strict=True))
    turns = [f"{len(list(run))} {units} {('west', 'straight', 'east')[dx + 1]} {('down', 'level', 'up')[dy + 1]}" for (dx, dy), run in _runs(moves)]
    return f"{wording}; up is {up}; " + "; ".join(turns)


def _runs(moves: np.ndarray) -> Any:
    return itertools.groupby((int(dx), int(dy)) for dx, dy in moves)


def features(routes: list[Route]) -> np.ndarray:
    """(N, F) in the order of ``FEATURES``, each in about [0, 1]."""
    names = list(SHOPS)
    rows = [
        [names.index(_shop(r)), side_of(r, "the lake"), side_of(r, "the hill"), _middle_row(r) / SIDE, len(r) / (3 * SIDE)]
        for r in routes
    ]  # fmt: skip
    return np.array(rows, dtype=float)


class Distances:
    """D = .5 min(1, discrete Frechet distance / 10 cells) + .3 [other shop] + .2 [other side of an obstacle] between routes, each pair once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._place: dict[Route, int] = {}
        self._known: list[Route] = []
        self._table = np.zeros((0, 0))

    def of(self, routes: Sequence[Route]) -> np.ndarray:
        """(N, N), in [0, 1]."""
        with self._lock:
            fresh = [route for route in dict.fromkeys(routes) if route not in self._place]
            if fresh:
                self._place |= {route: len(self._known) + i for i, route in enumerate(fresh)}
                self._known += fresh
                rows = distances(fresh, self._known)
                table = np.zeros((len(self._known),) * 2)
                table[: -len(fresh), : -len(fresh)] = self._table
                table[-len(fresh) :], table[:, -len(fresh) :] = rows, rows.T
                self._table = table
            at = [self._place[route] for route in routes]
            return self._table[np.ix_(at, at)]


def distances(first: Sequence[Route], second: Sequence[Route]) -> np.ndarray:
    """Distances (A, B) between two lists of routes."""
    shops = [np.array([list(SHOPS).index(_shop(r)) for r in routes]) for routes in (first, second)]
    sides = [np.array([2 * side_of(r, "the lake") + side_of(r, "the hill") for r in routes]) for routes in (first, second)]
    apart = 0.5 * np.minimum(1, frechet(first, second) / FRECHET_CELLS)
    return apart + 0.3 * (shops[0][:, None] != shops[1]) + 0.2 * (sides[0][:, None] != sides[1])


def frechet(first: Sequence[Route], second: Sequence[Route]) -> np.ndarray:
    """Discrete Frechet distances (A, B) in cells (Eiter and Mannila), of all pairs at once.

    Shorter routes wait at their last cell, which changes nothing: a leash that waits grows no longer.
    """
    longest = max(len(route) for route in (*first, *second))
    a, b = (np.array([[*route, *[route[-1]] * (longest - len(route))] for route in routes], dtype=float) for routes in (first, second))
    leash = np.full((longest + 1, len(a), len(b)), np.inf)  # of the step before, shifted by one column
    leash[0] = -np.inf
    for i in range(longest):
        apart = np.hypot(*np.moveaxis(a[:, i][:, None, None] - b, 3, 0))
        above, leash = leash, np.full_like(leash, np.inf)
        for j in range(longest):
            best = np.minimum(np.minimum(above[j], above[j + 1]), leash[j])
            leash[j + 1] = np.maximum(apart[:, :, j], best)
    return leash[-1]
