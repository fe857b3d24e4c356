"""Visualisation: "Show me the electricity" on a real table; a candidate is a chart specification, executed to the marks it draws.

The table: net generation of Iowa by source, 2001 to 2017, 51 rows (vega-datasets).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from backends.contract import Context
from backends.tai.candidates import Arrive, Candidates
from backends.tai.card import Params
from backends.tai.tasks import grammar
from backends.tai.tasks.grammar import Style

REQUEST = "Show me the electricity."
ROUND = 1  # decimals of a drawn value
WEIGHTS = {"mark": 0.20, "cells": 0.40, "channels": 0.20, "scale": 0.10, "order": 0.10}
STYLE_STEP = 0.005  # of each style that differs; four of them stay within 0.02
AXES = ("what is compared", "measure", "mark", "scale", "order")
FAULTS = 2  # a year left out, or two neighbouring sources changed over: at the end, or in the middle
STYLES = (
    Style("Which colours do you prefer?", ("blue and orange", "viridis", "greys")),
    Style("Should there be a title?", ("no title", "a title")),
    Style("Where should the legend be?", ("right", "top")),
    Style("Should there be grid lines?", ("grid lines", "no grid lines")),
)
Cells = dict[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class Intent:
    """What a chart says. compares: "sources over the years", "years" or "sources"; measure: "amount", "share" or "change"."""

    compares: str
    measure: str
    mark: str
    scale: str = "linear"
    order: str = "in time"

    @property
    def name(self) -> str:
        """In words.

        >>> Intent("years", "change", "bar").name
        'change since 2001 of all years, as bars'
        """
        measure = {"amount": "amount", "share": "share", "change": "change since 2001"}[self.measure]
        what = {"sources over the years": "each source over the years", "years": "all years", "sources": "each source in all"}[self.compares]
        more = [] if self.scale == "linear" else ["log scale"]
        more += [] if self.order == "in time" else [f"{self.order} first"]
        return ", ".join([f"{measure} of {what}", f"as {PLURAL[self.mark]}", *more])


PLURAL = {"line": "lines", "bar": "bars", "area": "areas", "pie": "a pie", "point": "points"}
# Any two differ by at least 0.2: scale and order alone weigh no more than a faulty chart and its style may.
INTENTS = (
    *(Intent("sources over the years", measure, mark) for measure, mark in itertools.product(("amount", "share"), ("line", "bar", "area"))),
    Intent("sources over the years", "amount", "point", "log"),
    *(Intent("years", measure, mark) for measure, mark in itertools.product(("amount", "change"), ("line", "bar"))),
    Intent("sources", "amount", "bar", order="largest"),
    Intent("sources", "share", "bar", order="smallest"),
    Intent("sources", "share", "pie", order="largest"),
)


class VisualisationTask:
    """Charts of fourteen intents over one table."""

    redraws = True

    def __init__(self, *, seed: int, quirk_rate: float, prior_skew: float) -> None:
        self.quirk_rate = quirk_rate
        self.prior = grammar.zipf(len(INTENTS), prior_skew, seed)

    @cached_property
    def table(self) -> dict[tuple[str, str], float]:
        """(year, source) -> generation in thousand MWh."""
        from vega_datasets import local_data

        frame = local_data.iowa_electricity()
        return {(str(row.year.year), str(row.source)): float(row.net_generation) for row in frame.itertuples()}

    def draw(self, count: int, rng: np.random.Generator, arrive: Arrive = lambda done, caption: None) -> Candidates:
        drawn = grammar.draw(rng, count, self.prior, STYLES, self.quirk_rate, FAULTS)
        charts = []
        for number, (intent, fault) in enumerate(zip(drawn.intents, drawn.faults, strict=True), 1):
            charts.append(execute(INTENTS[intent], self.table, int(fault)))
            arrive(number, charts[-1].caption)
        probes, codes = grammar.coded(PROBES, [chart.outcomes() for chart in charts])
        plain = [execute(intent, self.table, -1).outcomes() for intent in INTENTS]
        values = np.array([_numbers([getattr(i, f) for i in INTENTS]) for f in ("compares", "measure", "mark", "scale", "order")]).T
        specifications = [chart.specification(style) for chart, style in zip(charts, drawn.styles, strict=True)]
        return Candidates(
            request=REQUEST,
            shown=tuple({"kind": "chart", **specification, "cells": chart.rows()} for chart, specification in zip(charts, specifications, strict=True)),
            captions=tuple(chart.caption for chart in charts),
            texts=tuple(json.dumps(s) for s in specifications),
            probes=probes,
            codes=codes,
            distance=distances(charts, drawn.styles),
            resolution=STYLE_STEP,
            nuisance=grammar.nuisances(STYLES, drawn.styles),
            features=np.array([chart.features() for chart in charts]),
            feature_names=FEATURES,
            intents=drawn.intents,
            intent_names=tuple(i.name for i in INTENTS),
            quirk=drawn.faults >= 0,
            failed=np.zeros(count, dtype=bool),
            axis_coverage=grammar.coverage(values, AXES, grammar.coded(PROBES, plain)[1]),
            model=f"seeded grammar of {len(INTENTS)} chart intents",
            data="net generation of Iowa by source, 2001 to 2017, 51 rows (vega-datasets)",
        )


def open_task(params: Params, context: Context) -> VisualisationTask:
    """The task of these params."""
    return VisualisationTask(seed=params.seed, quirk_rate=params.quirk_rate, prior_skew=params.prior_skew)


def _numbers(values: Sequence[str]) -> np.ndarray:
    return np.unique(values, return_inverse=True)[1]


@dataclass(frozen=True)
class Chart:
    """An executed specification: what it is meant to say, and the cells it draws, (x, series) -> value."""

    intent: Intent
    cells: Cells

    @property
    def caption(self) -> str:
        return self.intent.name

    @property
    def channels(self) -> tuple[str, str]:
        """What stands on the x axis, and what the colour is."""
        return ("source" if self.intent.compares == "sources" else "year"), ("none" if self.intent.compares == "years" else "source")

    def categories(self) -> list[str]:
        """The x values in the order in which they are drawn."""
        return list(dict.fromkeys(x for x, _ in self.cells))

    def rows(self) -> list[dict[str, Any]]:
        """The drawn marks as a table."""
        return [{"x": x, "series": series, "value": value} for (x, series), value in self.cells.items()]

    def specification(self, style: np.ndarray) -> dict[str, Any]:
        """The declarative form, with the style axes that change nothing of what is said."""
        colours, title, legend, grid = (s.labels[v] for s, v in zip(STYLES, style, strict=True))
        x, colour = self.channels
        return {
            "mark": self.intent.mark,
            "x": x,
            "y": UNITS[self.intent.measure],
            "color": colour,
            "scale": self.intent.scale,
            "order": self.intent.order,
            "style": {"colours": colours, "title": title, "legend": legend, "grid": grid},
        }

    def outcomes(self) -> list[str]:
        """What the chart draws, in the order of ``PROBES``."""
        first, last = next(iter(self.cells)), list(self.cells)[-1]
        x, colour = self.channels
        return [
            x,
            "one colour" if colour == "none" else "a colour for each source",
            PLURAL[self.intent.mark],
            UNITS[self.intent.measure],
            self.intent.scale,
            first[0],
            f"{self.cells[first]:,.0f}",
            f"{self.cells[last]:,.0f}",
            str(len(self.cells)),
        ]

    def features(self) -> list[float]:
        """Numbers in about [0, 1], in the order of ``FEATURES``."""
        i = self.intent
        flags = [i.compares == "sources", i.compares == "years", i.measure == "share", i.measure == "change"]
        return [float(v) for v in (*flags, i.mark == "line", i.mark == "bar", i.mark == "area", i.mark == "pie", i.mark == "point", i.order == "smallest")]


UNITS = {"amount": "thousand MWh", "share": "% of all", "change": "% change since 2001"}
PROBES = (
    ("What should stand along the x axis?", "Should the {outcome} stand along the x axis?"),
    ("What should the colours tell?", "Should there be {outcome}?"),
    ("How should the values be drawn?", "Should the values be drawn as {outcome}?"),
    ("In what should the values be?", "Should the values be in {outcome}?"),
    ("Which scale should the values have?", "Should the scale be {outcome}?"),
    ("What should come first on the x axis?", "Should {outcome} come first on the x axis?"),
    ("Which number should the first mark show?", "Should the first mark show {outcome}?"),
    ("Which number should the last mark show?", "Should the last mark show {outcome}?"),
    ("How many marks should there be?", "Should there be {outcome} marks?"),
)
FEATURES = ("sources side by side", "years without sources", "shares", "change", "lines", "bars", "areas", "a pie", "points on a log scale", "the order")


def execute(intent: Intent, table: Mapping[tuple[str, str], float], fault: int) -> Chart:
    """The marks that a specification draws from the table; with a fault (0, 1) a year is missing or two sources are changed over."""
    years = sorted({year for year, _ in table})
    sources = sorted({source for _, source in table})
    total = {year: sum(table[year, s] for s in sources) for year in years}
    base = total[years[0]]
    if fault >= 0:
        years.pop(-1 if fault == 0 else len(years) // 2)
    cells: Cells
    if intent.compares == "sources over the years":
        cells = {(y, s): 100 * table[y, s] / total[y] if intent.measure == "share" else table[y, s] for y in years for s in sources}
    elif intent.compares == "years":
        cells = {(y, ""): 100 * (total[y] / base - 1) if intent.measure == "change" else total[y] for y in years}
    else:
        in_all = {s: sum(value for (_, source), value in table.items() if source == s) for s in sources}
        ordered = sorted(sources, key=lambda s: in_all[s], reverse=intent.order == "largest")
        if fault >= 0:
            ordered[fault : fault + 2] = reversed(ordered[fault : fault + 2])
        cells = {(s, s): 100 * in_all[s] / sum(total.values()) if intent.measure == "share" else in_all[s] for s in ordered}
    return Chart(intent, {key: round(value, ROUND) for key, value in cells.items()})


def distances(charts: Sequence[Chart], styles: np.ndarray) -> np.ndarray:
    """D (N, N), a sum of metrics capped at 1: mark, drawn cells (Jaccard), channels, scale, order (Kendall), and a trace of style."""
    known = list({(chart.intent, tuple(chart.cells.items())): chart for chart in charts}.values())
    at = {(chart.intent, tuple(chart.cells.items())): i for i, chart in enumerate(known)}
    place = np.array([at[chart.intent, tuple(chart.cells.items())] for chart in charts])
    table = np.zeros((len(known), len(known)))
    for a, b in itertools.combinations(range(len(known)), 2):
        table[a, b] = table[b, a] = distance(known[a], known[b])
    apart = (styles[:, None] != styles[None]).sum(2)
    return np.minimum(1, table[np.ix_(place, place)] + STYLE_STEP * apart)


def distance(a: Chart, b: Chart) -> float:
    """The distance of two charts without style.

    >>> table = {("2001", "wind"): 1.0, ("2002", "wind"): 2.0}
    >>> lines, areas = (execute(Intent("years", "amount", mark), table, -1) for mark in ("line", "area"))
    >>> distance(lines, areas)
    0.2
    """
    one, other = set(a.cells.items()), set(b.cells.items())
    jaccard = 1 - len(one & other) / len(one | other)
    found = WEIGHTS["mark"] * (a.intent.mark != b.intent.mark) + WEIGHTS["cells"] * jaccard + WEIGHTS["channels"] * (a.channels != b.channels)
    return found + WEIGHTS["scale"] * (a.intent.scale != b.intent.scale) + WEIGHTS["order"] * kendall(a.categories(), b.categories())


def kendall(a: Sequence[str], b: Sequence[str]) -> float:
    """Share of the pairs of common categories that stand in another order; 0 where there are fewer than two.

    >>> kendall(["x", "y", "z"], ["z", "y", "x"])
    1.0
    """
    common = [x for x in a if x in set(b)]
    if len(common) < 2:
        return 0.0
    rank = {x: i for i, x in enumerate(b)}
    pairs = list(itertools.combinations(common, 2))
    return sum(rank[x] > rank[y] for x, y in pairs) / len(pairs)
