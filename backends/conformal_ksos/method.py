"""One run of conformal-ksos as a stream of frames (section 4.8 of the card)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from backends.conformal_ksos import picture
from backends.conformal_ksos.band import as_lambda3
from backends.conformal_ksos.card import Params
from backends.conformal_ksos.conformal import BandReport, Interval, rank_needed
from backends.conformal_ksos.cross_validation import Selection, Settings, curves, folds, held_out, larger, select
from backends.conformal_ksos.dual import Multipliers
from backends.conformal_ksos.kernel import TRACE_SHARE, Features
from backends.conformal_ksos.peers import Rows as PeerRows
from backends.conformal_ksos.peers import constant_width, mapie_cqr, mapie_split
from backends.conformal_ksos.picture import Calibrated, Places, Shape
from backends.conformal_ksos.rows import Prepared, load, prepare
from backends.conformal_ksos.selection import FOLDS, LENGTH_SCALE_GRID, SYMMETRY_GRID, HeldOut
from backends.conformal_ksos.solver import Fit, Operators, Step, fit
from backends.contract import Context, Frame, MetricValue

LIVE = ("symmetry", "alpha")
ROWS_FIELDS = ("data", "csv", "target", "features", "prediction_column", "n", "outliers", "train_fraction", "calibration_fraction", "seed")
PREDICTOR_FIELDS = (*ROWS_FIELDS, "predictor", "bias")
FIT_FIELDS = (*PREDICTOR_FIELDS, "penalty", "b", "lambda1", "lambda2", "delta")
SELECTION_FIELDS = (*FIT_FIELDS, "criterion", "length_scale")
PATH_FIELDS = (*FIT_FIELDS, "tolerance")
DRAWN_EACH = 5  # iterations from one drawn band to the next


def run(params: Params, context: Context) -> Iterator[Frame]:
    """Streams a run; a live one gives its last frame only, from stored parts."""
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
        self.settings = Settings(params.b, params.lambda1, params.lambda2, params.delta, params.penalty, params.criterion, params.tolerance)
        self.data: dict[str, Any] = {}
        self.metrics: dict[str, MetricValue] = {}

    def key(self, fields: tuple[str, ...]) -> tuple[Any, ...]:
        """The values of these fields; a file by its hash."""
        upload = self.params.csv
        values = {name: getattr(self.params, name) for name in fields} | ({"csv": upload.sha256 if upload else None} if "csv" in fields else {})
        return tuple(values.values())

    def frame(self, progress: float, message: str) -> Frame:
        return Frame(progress, message, self.metrics | {"seconds": time.perf_counter() - self.began}, dict(self.data))

    def selection(self, prepared: Prepared) -> Generator[Frame, None, Selection]:
        """Out-of-fold scores fold by fold, then the choice; nothing here depends on symmetry or alpha."""
        params, context, training = self.params, self.context, prepared.training
        multipliers = LENGTH_SCALE_GRID if params.length_scale == "auto" else (params.length_scale,)
        parts: dict[float, list[HeldOut]] = {multiplier: [] for multiplier in multipliers}
        done, total = 0, FOLDS * len(multipliers)
        for number, held in enumerate(folds(len(training.x), params.seed), 1):
            for multiplier in multipliers:
                make = partial(held_out, training, multiplier, held, self.settings, context.check)
                parts[multiplier].append(context.memo("held-out", (*self.key(FIT_FIELDS), multiplier, number), make))
                done += 1
                yield self.frame(0.05 + 0.5 * done / total, f"fold {number} of {FOLDS}, length-scale {multiplier:g} median distances")
            if not self.live:
                self.data["path"] = picture.selection_curves(curves(training, parts, self.settings))
        chosen = context.memo("selection", self.key(SELECTION_FIELDS), lambda: select(training, parts, self.settings, params.seed, context.check))
        index = len(SYMMETRY_GRID) - 1 - chosen.chosen
        self.data["path"] = picture.selection_curves(chosen.curves) | {"p_value": chosen.p_values[picture.ASCENDING], "chosen": index}
        yield self.frame(0.58, f"training rows choose symmetry {picture.in_words(chosen.lambda3)} at length-scale {chosen.curves.multiplier:g}")
        return chosen

    def path(self, prepared: Prepared, places: Places, multiplier: float) -> Generator[Frame, None, tuple[list[Fit], list[Calibrated]]]:
        """The fixed path from symmetric to separate on all training rows: what a slider starts from, and what is drawn beside it."""
        fits: list[Fit] = []
        bands: list[Calibrated] = []
        for index, lambda3 in enumerate(SYMMETRY_GRID):
            problem = self.settings.problem(places.features.v, prepared.training.r, lambda3)
            start = fits[-1].multipliers if fits else None
            make = partial(fit, problem, tolerance=self.settings.tolerance, start=start, on_step=lambda _: self.context.check())
            fits.append(self.context.memo("path", (*self.key(PATH_FIELDS), multiplier, index), make))
            bands.append(self.calibrated(prepared, places, fits[-1].operators))
            if not self.live:
                self.show(prepared, bands[-1], bands[0])
                yield self.frame(0.6 + 0.15 * (index + 1) / len(SYMMETRY_GRID), f"path: symmetry {picture.in_words(lambda3)}")
        return fits, bands

    def calibrated(self, prepared: Prepared, places: Places, operators: Operators) -> Calibrated:
        shape = Shape.of(operators, places, prepared.training.residual_sd, self.settings.delta)
        return shape.calibrated(prepared, self.params.alpha)

    def show(self, prepared: Prepared, now: Calibrated, symmetric: Calibrated) -> None:
        """Draws one band beside the symmetric one and takes its figures."""
        rows = prepared.rows
        residuals = rows.y[rows.calibration] - prepared.mean[rows.calibration]
        constant = constant_width(residuals, prepared.grid_mean, self.params.alpha)
        self.data["grid"] = picture.grid(prepared, now, symmetric, constant)
        self.data["local"] = picture.local(rows, now, symmetric)
        self.data |= picture.calibration(prepared, now, self.params.alpha)
        self.metrics |= asdict(now.report)
        self.metrics |= {"coverage_symmetric": symmetric.report.coverage, "mean_width_symmetric": symmetric.report.mean_width}

    def frames(self) -> Iterator[Frame]:
        params, context = self.params, self.context
        rows = context.memo("rows", self.key(ROWS_FIELDS), lambda: load(params))
        self.data |= picture.opening(rows, params)
        yield self.frame(0.02, f"{len(rows.train)} training, {len(rows.calibration)} calibration and {len(rows.test)} test rows")
        prepared = context.memo("predictor", self.key(PREDICTOR_FIELDS), lambda: prepare(rows, params, context.check))
        self.data |= {"notes": list(prepared.notes), "made_by": picture.made_by(rows, params, prepared.shown)}
        self.data["grid"] = {"x": prepared.grid[:, 0], "mean": prepared.grid_mean}
        peers = {"mapie_split": self.peer("mapie_split", mapie_split, prepared)}
        yield self.frame(0.05, f"middle line: {prepared.shown}")
        selection = yield from self.selection(prepared)
        multiplier = selection.curves.multiplier
        places = context.memo("places", (*self.key(PREDICTOR_FIELDS), multiplier), lambda: Places.of(prepared, multiplier))
        self.data["made_by"] = picture.made_by(rows, params, prepared.shown, places.features)
        self.data["notes"] = self.notes(prepared, places.features)
        fits, bands = yield from self.path(prepared, places, multiplier)
        self.data["path"] = self.data["path"] | picture.measured_path(bands)
        lambda3 = as_lambda3(params.symmetry, selection.lambda3)
        self.metrics["symmetry_chosen"] = picture.in_words(lambda3)
        before = larger(lambda3)
        solved = yield from self.final_fit(prepared, places, bands[0], lambda3, fits[len(before) - 1].multipliers if before else None)
        now = self.calibrated(prepared, places, solved.operators)
        self.show(prepared, now, bands[0])
        upper, lower = solved.operators.spectra()
        self.data["spectrum"] = {"upper": upper, "lower": lower}
        self.metrics["duality_gap"] = solved.gap
        yield self.frame(0.92, "peer: conformalised quantile regression")
        peers["mapie_cqr"] = self.peer("mapie_cqr", partial(mapie_cqr, check=context.check), prepared)
        refused = [name for name, report in peers.items() if report is None]
        self.metrics |= {f"{figure}_{name}": None for figure in ("coverage", "mean_width") for name in refused}
        yield self.frame(1.0, self.summary(now, refused))

    def final_fit(self, prepared: Prepared, places: Places, symmetric: Calibrated, lambda3: float, start: Multipliers | None) -> Generator[Frame, None, Fit]:
        """The fit at lambda3, started from the next larger value of the path, never from what a visitor did before."""
        trace: list[tuple[float, float, float]] = []
        solved: list[Fit] = []

        def work(emit: Callable[[Step], None]) -> None:
            def on_step(step: Step) -> None:
                self.context.check()
                trace.append((step.dual, step.primal, step.gap))
                if step.iteration % DRAWN_EACH == 0:
                    emit(step)

            problem = self.settings.problem(places.features.v, prepared.training.r, lambda3)
            solved.append(fit(problem, tolerance=self.settings.tolerance, solver=self.params.solver, start=start, on_step=on_step))

        if self.live:
            work(lambda _: None)
        else:
            for step in self.context.stream(work):
                self.data["convergence"] = picture.convergence(trace[: step.iteration + 1])
                self.show(prepared, self.calibrated(prepared, places, step.operators()), symmetric)
                self.metrics["duality_gap"] = step.gap if math.isfinite(step.gap) else None
                progress = 0.75 + 0.15 * (1 - 1 / (1 + step.iteration / 40))
                yield self.frame(progress, f"iteration {step.iteration}: dual {step.dual:.5g}, feasible primal {step.primal:.5g}, gap {step.gap:.1e}")
        self.data["convergence"] = picture.convergence(trace)
        return solved[0]

    def peer(self, name: str, band: Callable[[PeerRows, float], Interval | None], prepared: Prepared) -> BandReport | None:
        """What a peer's band does on the test rows; its figures are in every frame from now on. None when it refuses."""
        rows, alpha = prepared.rows, self.params.alpha

        def measure() -> BandReport | None:
            found = band(PeerRows(rows.design, rows.y, prepared.mean, rows.train, rows.calibration, rows.test), alpha)
            return found.report(rows.y[rows.test]) if found else None

        report = self.context.memo(name, (*self.key(PREDICTOR_FIELDS), alpha), measure)
        if report is not None:
            self.metrics |= {f"coverage_{name}": report.coverage, f"mean_width_{name}": report.mean_width}
        return report

    def notes(self, prepared: Prepared, features: Features) -> list[str]:
        """Warnings in plain words."""
        notes = list(prepared.notes)
        if features.share < TRACE_SHARE:
            notes.append(f"the rank is capped at {features.v.shape[0]}, which keeps {features.share:.1%} of the kernel's trace")
        n_calibration = len(prepared.rows.calibration)
        if rank_needed(n_calibration, self.params.alpha) > n_calibration:
            least = math.ceil(round(1 / self.params.alpha, 9)) - 1
            notes.append(f"the band is infinite: {n_calibration} calibration rows, at least {least} are needed at this alpha")
        return notes

    def summary(self, now: Calibrated, refused: Sequence[str]) -> str:
        if now.report.mean_width is None:
            return "no finite band: " + self.data["notes"][-1].removeprefix("the band is infinite: ")
        symmetric = self.metrics["mean_width_symmetric"]
        text = f"coverage {now.report.coverage:.3f}, mean width {now.report.mean_width:.4g} (symmetric {symmetric:.4g})"
        text += f", symmetry {self.metrics['symmetry_chosen']}"
        return text + ("; too few calibration rows for " + ", ".join(refused) if refused else "")
