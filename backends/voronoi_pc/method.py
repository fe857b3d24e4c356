"""One run of voronoi-pc as a stream of frames: training as alpha grows, boxes that close on the walls, then the answers.

Every frame: ``made_by``, ``plane`` (points, low, high, dimension; outline and centroids of the cells; density x, y, z), ``stage``.
As they come: ``training`` (losses, alpha, score), ``bounds`` (splits, lower, upper, exact), ``boxes``, ``likelihood``, ``peers``,
``marginal`` and ``conditional`` (at, lower, upper, exact), ``query`` (texts, lower, upper, exact), ``curse`` (dimension, gap), ``samples``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator
from dataclasses import astuple
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backends.contract import Context, Frame, InputError, MetricValue
from backends.voronoi_pc import picture, scenes
from backends.voronoi_pc.answers import Effort, Hard, density_curve, probability
from backends.voronoi_pc.card import CARD, Params
from backends.voronoi_pc.conditions import Evidence, parse
from backends.voronoi_pc.hierarchical import CLOSURE, FactorisedVoronoi, gridded
from backends.voronoi_pc.peers import gaussian_mixtures
from backends.voronoi_pc.refinement import Refinement
from backends.voronoi_pc.relaxation import start_factorised, start_voronoi
from backends.voronoi_pc.rows import Rows, load
from backends.voronoi_pc.sampling import sample
from backends.voronoi_pc.slices import exact_mass
from backends.voronoi_pc.training import Schedule, Soft, State, advance, begin, nearest_means
from backends.voronoi_pc.voronoi_sum import VoronoiSum, merged

LIVE = ("splits", "angle")
ROWS_FIELDS = ("data", "csv", "columns", "n", "angle", "dimension", "cells", "seed")
ONLY_FOR = {"angle": "two-centroids", "dimension": "random-centroids", "csv": "csv", "columns": "csv"}
TRAINING_FIELDS = (*ROWS_FIELDS, "expert", "centroids")
STRETCHES = 12  # of training, a frame each
FRAMES_EACH = 1.5  # factor of the splits from one frame of the boxes to the next
BOUNDS_BEYOND = 8  # variables above which bounds need a confirmation
CURSE_SPLITS, CURSE_DRAWS = 500, 3  # at most, of each point of the picture over dimensions; draws of the centroids
CURVE_POINTS, COARSE_POINTS = 60, 16  # of a density: in two variables, in more
SAMPLES = 400


def run(params: Params, context: Context) -> Iterator[Frame]:
    """Streams a run; a live one gives its last frame only, from stored parts. Raises InputError for what does not fit."""
    started = _Run(params, context)
    for frame in started.frames():
        if not started.live or frame.progress == 1.0:
            yield frame


class _Run:
    """The stages of one run; what each knows is added to ``data`` and ``metrics``, which every frame shows whole."""

    def __init__(self, params: Params, context: Context) -> None:
        self.params, self.context = params, context
        self.live = context.live in LIVE
        self.began = time.perf_counter()
        self.data: dict[str, Any] = {}
        self.metrics: dict[str, MetricValue] = dict.fromkeys(CARD.metrics)
        if params.gate == "hfv" and params.gate_scope == "pair":
            raise InputError("gate_scope", CLOSURE, "choose variable, so that every cell is a box")

    def key(self, fields: tuple[str, ...]) -> tuple[Any, ...]:
        """The values of these fields, without what only other data would read; a file by its hash."""
        upload = self.params.csv
        values: dict[str, Any] = {name: getattr(self.params, name) for name in fields if ONLY_FOR.get(name, self.params.data) == self.params.data}
        if "csv" in values:
            values["csv"] = upload.sha256 if upload else None
        return tuple(values.values())

    def frame(self, progress: float, message: str) -> Frame:
        return Frame(progress, message, self.metrics | {"seconds": time.perf_counter() - self.began}, dict(self.data))

    def frames(self) -> Iterator[Frame]:
        params = self.params
        scene = self._scene()
        rows = self.context.memo("rows", self.key(ROWS_FIELDS), lambda: self._rows(scene))
        if params.gate == "hfv" and params.data == "random-centroids":
            scene = None  # no experts are given to upright cells: they are trained on the scene's points
        evidence, event = self._query(rows.dimension)
        self.data |= {"plane": picture.opening(rows), "stage": "opening", "notes": list(rows.notes), "made_by": picture.made_by(params, rows, scene is None)}
        given = self._given_centroids(rows.dimension, scene)
        if params.gate == "voronoi" and rows.dimension > BOUNDS_BEYOND and not params.beyond_eight:
            raise InputError("beyond_eight", f"bounds over {rows.dimension} variables stay near 0 to 1", "choose the gate hfv, or tick this to see it")
        yield self.frame(0.01, f"{len(rows.train)} training, {len(rows.validation)} validation and {len(rows.test)} test points")
        if scene is not None:
            model, mixture = self._scene_model(scene if given is None else self._moved(scene, given)), scene.as_mixture()
        else:
            model, mixture = yield from self._trained(rows, given)
        yield from self._bounded(model, mixture, rows)
        yield from self._answered(model, rows, evidence, event)
        yield self.frame(1.0, self._summary(rows))

    # ------------------------------------------------------------------------------------------------ the model

    def _scene(self) -> VoronoiSum | None:
        if self.params.data == "two-centroids":
            return scenes.two_centroids(self.params.angle)
        if self.params.data == "random-centroids":
            return scenes.random_centroids(self.params.cells, self.params.dimension, self.params.seed)
        return None

    def _rows(self, scene: VoronoiSum | None) -> Rows:
        if scene is None:
            return load(self.params)
        drawn = scenes.draw_unwalled(scene, self.params.n, torch.Generator().manual_seed(self.params.seed))
        return load(self.params.model_copy(update={"cells": len(scene.weights)}), drawn.numpy())

    def _query(self, dimension: int) -> tuple[Evidence, Evidence]:
        """Evidence and event, read from their texts."""
        read = []
        for field in ("evidence", "event"):
            try:
                read.append(parse(getattr(self.params, field), dimension))
            except ValueError as error:
                raise InputError(field, str(error), "write conditions as x1 = 0.5 or x2 in [0, 1], separated by commas") from None
        evidence, event = read
        if event.fixed:
            raise InputError("event", "a single value has probability 0", "give an interval, as x2 > 0")
        known = set(event.between) & set(evidence.fixed)
        if known:
            raise InputError("event", f"x{min(known) + 1} is fixed by the evidence", "ask about another variable")
        if len(evidence.fixed) == dimension:
            raise InputError("evidence", "every variable is fixed", "leave one free")
        return evidence, event

    def _given_centroids(self, dimension: int, scene: VoronoiSum | None) -> Tensor | None:
        """The centroids of a hand, those that coincide merged; None where k-means finds them."""
        if not self.params.centroids:
            return None
        if dimension != 2:
            raise InputError("centroids", f"the points have {dimension} variables", "centroids can be moved in two variables only; leave the list empty")
        placed = torch.tensor(self.params.centroids, dtype=torch.float64).reshape(-1, 2)
        if scene is not None and len(placed) != len(scene.weights):
            raise InputError("centroids", f"{len(placed)} centroids for a scene of {len(scene.weights)} experts", "give one for each expert")
        kept, _ = merged(placed)
        if len(kept) < len(placed):
            if scene is not None:
                raise InputError("centroids", "two centroids coincide", "move one of them")
            self._note(f"{len(placed) - len(kept)} centroids that coincided with another one were merged into it")
        return kept if scene is None else placed

    def _note(self, text: str) -> None:
        self.data["notes"] = [*self.data["notes"], text]

    def _moved(self, scene: VoronoiSum, centroids: Tensor) -> VoronoiSum:
        """The scene with its walls elsewhere; its experts stay."""
        return VoronoiSum(centroids, scene.weights, scene.experts)

    def _scene_model(self, node: VoronoiSum) -> Hard:
        if self.params.gate == "hfv":
            return gridded(node)
        return node.as_mixture() if self.params.gate == "constant" else node

    def _trained(self, rows: Rows, given: Tensor | None) -> Generator[Frame, None, tuple[Hard, VoronoiSum]]:
        """The circuit and the mixture of the same size, both trained alike; a mixture is trained once where the gate is constant."""
        params = self.params
        kinds = ("constant",) if params.gate == "constant" else (params.gate, "constant")
        best: dict[str, Soft] = {}
        losses: dict[str, tuple[float, ...]] = {}
        for number, kind in enumerate(kinds):
            first = number == 0
            for state in self._epochs(kind, rows, given):
                best[kind], losses[kind] = state.best, state.losses
                alpha = self._schedule().alpha(max(0, state.epoch - 1))
                if not self.live:
                    self.data["training"] = picture.training(losses, (params.alpha_start, params.alpha_end), state.best_score)
                if first and not self.live:
                    self._show_soft(state.soft, rows, alpha)
                step = state.epoch / params.epochs
                shown = f"epoch {state.epoch} of {params.epochs}" + (f", α {alpha:.3g}" if kind != "constant" else ", the mixture of the same size")
                yield self.frame(0.02 + 0.43 * step if first else 0.45 + 0.15 * step, shown)
        self.data["training"] = picture.training(losses, (params.alpha_start, params.alpha_end), state.best_score)
        hard = best[params.gate].hard()
        mixture = best["constant"].hard()
        if isinstance(mixture, FactorisedVoronoi):
            raise TypeError("a mixture is a Voronoi sum")
        mixture = mixture.as_mixture()
        if params.gate == "constant":
            return mixture, mixture
        if isinstance(hard, VoronoiSum):
            empty = len(hard.weights) - len(torch.unique(hard.cell_of(torch.tensor(rows.train))))
            if empty:
                self._note(f"{empty} cells hold no training point")
        return hard, mixture

    def _schedule(self) -> Schedule:
        p = self.params
        return Schedule(p.epochs, p.alpha_start, p.alpha_end, p.loss)

    def _epochs(self, kind: str, rows: Rows, given: Tensor | None) -> Iterator[State]:
        """The states of one training, stretch by stretch; stored, so that a query or a slider does not train anew."""
        train, validation = torch.tensor(rows.train), torch.tensor(rows.validation)
        # A mixture knows neither alpha nor Z, so its training is shared by all settings of both.
        schedule = Schedule(self.params.epochs, 0, 0, "log-f") if kind == "constant" else self._schedule()
        key = (*self.key(TRAINING_FIELDS), *astuple(schedule), kind)
        begun = partial(self._begin, kind, train, given)
        state = self.context.memo("begin", key, lambda: begin(begun(), self.params.seed, validation, schedule))
        each = math.ceil(schedule.epochs / STRETCHES)
        while state.epoch < schedule.epochs:
            make = partial(advance, state, train, validation, schedule, each, self.context.check)
            state = self.context.memo("epochs", (*key, state.epoch), make)
            yield state

    def _begin(self, kind: str, train: Tensor, given: Tensor | None) -> Soft:
        params, generator = self.params, torch.Generator().manual_seed(self.params.seed)
        if kind == "hfv":
            return start_factorised(train, self._intervals(train, given), generator)
        components = 4 if params.expert == "mixture-of-4" else 1
        if given is None:
            found, _ = merged(torch.from_numpy(nearest_means(train.numpy(), params.cells, params.seed)))
            return start_voronoi(train, found, components, generator, gated=kind == "voronoi", free=True)
        return start_voronoi(train, given, components, generator, gated=kind == "voronoi", free=False)

    def _intervals(self, train: Tensor, given: Tensor | None) -> list[Tensor]:
        """Centroids of every variable, ascending: the coordinates of a hand's centroids, else k-means of each column."""
        if given is not None:
            return [torch.unique(given[:, i]) for i in range(2)]
        wanted = max(2, math.isqrt(self.params.cells))
        columns = []
        for i in range(train.shape[1]):
            distinct = len(torch.unique(train[:, i]))
            found = nearest_means(train[:, [i]].numpy(), min(wanted, distinct), self.params.seed)
            columns.append(torch.unique(torch.from_numpy(found[:, 0])))
        return columns

    def _show_soft(self, soft: Soft, rows: Rows, alpha: float) -> None:
        """Cells and density under the soft gate; the density is not normalised."""
        with torch.no_grad():
            plane = picture.opening(rows)
            hard = soft.hard() if self.params.gate != "constant" else None
            if hard is not None:
                plane |= picture.walls(hard, rows)
            if rows.dimension == 2:
                plane["density"] = picture.density(rows, lambda at: soft.log_density(at, alpha))
        self.data |= {"plane": plane, "stage": "training"}

    # ----------------------------------------------------------------------------------------------- the bounds

    def _bounded(self, model: Hard, mixture: VoronoiSum, rows: Rows) -> Iterator[Frame]:
        """Bounds of Z, and the likelihood interval that follows from them."""
        test = torch.tensor(rows.test)
        log_f = model.log_unnormalised(test).numpy()
        log_mixture = mixture.log_unnormalised(test).numpy()
        self.metrics["log_likelihood_mixture"] = _finite(float(log_mixture.mean()))
        self.data["plane"] = picture.opening(rows) | picture.walls(model, rows)
        self.data["stage"] = "bounds"
        show = partial(self._show_density, model, rows)
        likelihood = partial(self._likelihood, log_f, log_mixture)
        if isinstance(model, FactorisedVoronoi):
            z = model.partition()
            self.data["bounds"] = {"splits": np.zeros(1), "lower": np.array([z]), "upper": np.array([z]), "exact": z}
            self.data["boxes"] = {"inside_count": 0, "straddling_count": 0}
            self.metrics |= {"z_lower": z, "z_upper": z, "z_exact": z, "boxes": 0}
            show(z)
            likelihood(z, z)
            yield self.frame(0.75, f"exact: Z = {z:.6f}, no boxes are needed")
            return
        exact = self._exact(model)
        made = Refinement(model.region(), rule=self.params.split_rule)
        next_shown = 0.0
        for _ in made.run(self.params.splits, check=self.context.check):
            if made.splits >= next_shown and not self.live:
                found = made.bounds()
                next_shown = max(found.splits * FRAMES_EACH, found.splits + 3)
                self._show_bounds(made, rows, exact)
                show(exact or (found.lower + found.upper) / 2)
                likelihood(found.lower, found.upper)
                done = math.log1p(found.splits) / math.log1p(self.params.splits)
                yield self.frame(0.6 + 0.15 * min(done, 1.0), f"{found.splits:,} splits: Z from {found.lower:.4f} to {found.upper:.4f}")
        found = made.bounds()
        self._show_bounds(made, rows, exact)
        show(exact or (found.lower + found.upper) / 2)
        likelihood(found.lower, found.upper)
        yield self.frame(0.75, f"{found.splits:,} splits: Z from {found.lower:.4f} to {found.upper:.4f}")

    def _exact(self, model: VoronoiSum) -> float | None:
        """The value the bounds close on, where it is known: by quadrature in two variables, 1 for a mixture."""
        if self.params.gate == "constant":
            return 1.0
        return exact_mass(model) if model.dimension == 2 else None

    def _show_bounds(self, made: Refinement, rows: Rows, exact: float | None) -> None:
        found = made.bounds()
        self.data["bounds"] = picture.bounds(found, exact)
        self.data["boxes"] = picture.boxes(made, rows)
        self.metrics |= {"z_lower": found.lower, "z_upper": found.upper, "z_exact": exact, "boxes": found.boxes}

    def _show_density(self, model: Hard, rows: Rows, z: float) -> None:
        if rows.dimension == 2:
            log_z = math.log(z) if z > 0 else 0.0
            self.data["plane"] = self.data["plane"] | {"density": picture.density(rows, lambda at: model.log_unnormalised(at) - log_z)}
        elif isinstance(model, FactorisedVoronoi):
            self.data["plane"] = self.data["plane"] | {"density": picture.marginal_density(model, rows)}

    def _likelihood(self, log_f: np.ndarray, log_mixture: np.ndarray, lower: float, upper: float) -> None:
        mean = float(log_f.mean())
        self.metrics["log_likelihood_lower"] = _finite(mean - math.log(upper))
        self.metrics["log_likelihood_upper"] = _finite(mean - math.log(lower)) if lower > 0 else None
        self.data["likelihood"] = picture.likelihood(log_f, log_mixture, lower, upper)

    # ---------------------------------------------------------------------------------------------- the answers

    def _answered(self, model: Hard, rows: Rows, evidence: Evidence, event: Evidence) -> Iterator[Frame]:
        params, context = self.params, self.context
        effort = Effort(params.splits, params.split_rule, context.check)
        low, high = rows.train.min(0), rows.train.max(0)
        asked = next((i for i in event.between if i not in evidence.fixed), next(i for i in range(rows.dimension) if i not in evidence.fixed))
        points = CURVE_POINTS if rows.dimension == 2 or isinstance(model, FactorisedVoronoi) else COARSE_POINTS

        def places(variable: int) -> np.ndarray:
            return np.linspace(low[variable], high[variable], points)

        self.data["marginal"] = picture.curve(density_curve(model, 0, places(0), Evidence(), effort))
        yield self.frame(0.82, "the marginal of x1")
        try:
            conditional = density_curve(model, asked, places(asked), evidence, effort)
            found = probability(model, event.between, evidence, effort) if event.between else None
        except ValueError as error:
            raise InputError("evidence", str(error), "choose a value that the circuit can reach") from None
        self.data["conditional"] = picture.curve(conditional) | {"variable": asked}
        bounds = {} if found is None else {"lower": found[0], "upper": found[1], "exact": found[2]}
        self.data["query"] = {"evidence": params.evidence.strip(), "event": params.event.strip(), **bounds}
        yield self.frame(0.87, "the conditional")
        peers = partial(gaussian_mixtures, rows.train, rows.test, min(params.cells, len(rows.train)), params.seed)
        self.data["peers"] = context.memo("peers", self.key(ROWS_FIELDS), peers)
        yield self.frame(0.91, "Gaussian mixtures of the same size")
        splits = min(params.splits, CURSE_SPLITS)
        gaps = np.empty((len(scenes.CURSE_DIMENSIONS), CURSE_DRAWS))
        for at, dimension in enumerate(scenes.CURSE_DIMENSIONS):
            for draw in range(CURSE_DRAWS):
                context.check()
                make = partial(scenes.gap_of, dimension, splits, draw)
                gaps[at, draw] = context.memo("curse", (dimension, splits, draw), make)
        self.data["curse"] = {"dimension": list(scenes.CURSE_DIMENSIONS), "gap": gaps, "splits": splits}
        yield self.frame(0.96, "the gap as variables are added")
        self._sampled(model)

    def _sampled(self, model: Hard) -> None:
        generator = torch.Generator().manual_seed(self.params.seed)
        if isinstance(model, FactorisedVoronoi):
            drawn, kept = model.sample(SAMPLES, generator), 1.0
        else:
            try:
                drawn, kept = sample(model, SAMPLES, generator, self.context.check)
            except ValueError as error:
                self._note(f"no samples: {error}")
                return
        self.data["samples"] = {"points": drawn[:, :2].numpy().astype(np.float32), "kept": kept}

    def _summary(self, rows: Rows) -> str:
        m = self.metrics
        text = f"Z from {m['z_lower']:.4f} to {m['z_upper']:.4f}"
        if m["z_exact"] is None:
            text += f"; the exact value is not known in {rows.dimension} variables"
        if m["log_likelihood_upper"] is None and m["log_likelihood_lower"] is not None:
            text += "; no upper bound of the likelihood while the lower bound of Z is 0"
        elif m["log_likelihood_lower"] is not None:
            text += f"; log-likelihood from {m['log_likelihood_lower']:.3f} to {m['log_likelihood_upper']:.3f}"
        else:
            text += "; a test point has density 0, so its log-likelihood is not finite"
        if m["log_likelihood_mixture"] is not None:
            text += f", the mixture {m['log_likelihood_mixture']:.3f}"
        return text


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
