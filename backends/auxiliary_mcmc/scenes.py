"""From params to a posterior: generated rows or a person's table, the reference that stands beside them, and how a row is drawn in the picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from backends.auxiliary_mcmc import data
from backends.auxiliary_mcmc.card import Params
from backends.auxiliary_mcmc.ising import LATTICE, GridPosterior, Lattice, ising_posterior
from backends.auxiliary_mcmc.models import Logistic, RobustRegression, TruncatedGaussian
from backends.auxiliary_mcmc.reference import Reference, SeparableError, gaussian_reference, grid_reference, integrated_reference
from backends.contract import InputError
from backends.runtime.tables import Table, quoted, read_table

Array = np.ndarray
Model = RobustRegression | Logistic | TruncatedGaussian

WEIGHT = {"robust-regression": 10.0, "gaussian-2d": 1.0, "gaussian-20d": 1.0, "logistic": 100.0}  # N times the tempering, as in the paper's scenes
KAPPA = {"gaussian-20d": 5e-4}  # elsewhere:
KAPPA_ELSEWHERE = 0.01
OBSERVED_S = 10.0
MAX_FEATURES = 20
MIN_ROWS = 30
MINIBATCH_ROWS = 1_000  # below, a minibatch saves nothing
ADVISED_ROWS = 5_000
JITTER = 0.32  # of outcomes 0 and 1 in the picture


@dataclass(frozen=True, slots=True)
class Projection:
    """Where every row stands in the picture of the data: across, up (N,), with the axes' labels."""

    across: Array
    up: Array
    labels: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Scene:
    """A posterior to sample. model, projection: None for the lattice, which has grid and lattice instead; names: of the coordinates."""

    kind: str
    reference: Reference
    names: tuple[str, ...]
    source: str
    tempering: float
    kappa: float
    model: Model | None = None
    projection: Projection | None = None
    grid: GridPosterior | None = None
    lattice: Lattice | None = None
    notes: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Rows; one data set on the lattice."""
        return 1 if self.model is None else int(self.model.table.shape[0])


def tempering_of(params: Params, kind: str, n: int) -> float:
    """What the likelihood of each row is raised to; auto keeps the weight of all rows together at the scene's own, whatever their number."""
    return min(1.0, WEIGHT[kind] / n) if params.tempering == "auto" else params.tempering


def load(params: Params, check: Callable[[], None]) -> Scene:
    """The posterior of these params with its reference. Raises InputError naming the field."""
    if params.scene == "ising":
        grid = ising_posterior(OBSERVED_S)
        source = f"one {LATTICE[0]} x {LATTICE[1]} lattice of spins with S = {OBSERVED_S:g}"
        return Scene("ising", grid_reference(grid), ("coupling",), source, 1.0, KAPPA_ELSEWHERE, grid=grid, lattice=Lattice.of(*LATTICE))
    if params.scene == "csv":
        return _from_csv(params, check)
    n, seed, kind = params.n, params.seed, params.scene
    tempering = tempering_of(params, kind, n)
    source = f"generated, {n:,} rows"
    if kind == "robust-regression":
        model: Model = data.robust_regression(n, seed, tempering)
    elif kind == "logistic":
        model = data.tall_logistic(n, seed, tempering)
    else:
        variances = np.array(data.FLAT_VARIANCES) if kind == "gaussian-2d" else data.falling_variances()
        model = data.truncated_gaussian(n, seed, variances, tempering)
    return _scene(kind, model, source, tempering, params, check)


def _scene(
    kind: str,
    model: Model,
    source: str,
    tempering: float,
    params: Params,
    check: Callable[[], None],
    *,
    names: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> Scene:
    own = tuple(f"θ{j + 1}" for j in range(model.dimension))
    try:
        reference = gaussian_reference(model) if isinstance(model, TruncatedGaussian) else integrated_reference(model, params.seed, check)
    except SeparableError:
        remedy = "without a prior this posterior has no end; give rows in which the classes overlap"
        raise InputError("csv" if params.scene == "csv" else "n", "a plane separates the two classes", remedy) from None
    except (ValueError, np.linalg.LinAlgError):
        problem = "a column is a combination of others, so its coefficient is undetermined"
        raise InputError("csv" if params.scene == "csv" else "n", problem, "leave that column out") from None
    kappa = KAPPA.get(kind, KAPPA_ELSEWHERE)
    return Scene(kind, reference, names or own, source, tempering, kappa, model, _projection(model, reference), notes=notes)


def _projection(model: Model, reference: Reference) -> Projection:
    rows, d = model.table, model.dimension
    if isinstance(model, TruncatedGaussian):
        return Projection(rows[:, 0].numpy(), rows[:, 1].numpy(), ("first number of a row (no unit)", "second number (no unit)"))
    fitted = (rows[:, :d] @ torch.from_numpy(reference.mean)).numpy()
    if isinstance(model, RobustRegression):
        return Projection(-fitted, rows[:, d].numpy(), ("fitted value (no unit)", "observed value (no unit)"))
    # A row holds t x with t the sign of its outcome, which the first feature's sign alone does not tell: the model kept it.
    sign = model.sign.numpy()
    scatter = (np.arange(len(sign)) * 0.6180339887 % 1 - 0.5) * 2 * JITTER  # by row number, so that a row stays where it is
    return Projection(sign * fitted, (sign + 1) / 2 + scatter, ("fitted log odds (no unit)", "outcome, spread (no unit)"))


def _from_csv(params: Params, check: Callable[[], None]) -> Scene:
    if params.csv is None:
        raise InputError("csv", "no file was given", "choose a CSV file")
    table = read_table(params.csv, "csv", min_rows=MIN_ROWS)
    names = table.numeric_names()
    if len(names) < 2:
        raise InputError("csv", f"{len(names)} of {len(table.columns)} columns hold numbers", "give features and, last, a target of numbers")
    *features, target = names
    if len(features) > MAX_FEATURES:
        raise InputError("csv", f"{len(features)} columns of features", f"keep at most {MAX_FEATURES}")
    x = np.column_stack([_standard(table, name) for name in features])
    raw = table.numbers(target, "csv", "target")
    n, values = len(raw), np.unique(raw)
    if len(values) < 2:
        raise InputError("csv", f"the target {quoted(target)} never changes", "give another last column of numbers")
    notes = [*table.notes, f"the last column of numbers, {quoted(target)}, is what is explained; features are brought to mean 0 and sd 1"]
    if n < MINIBATCH_ROWS:
        notes.append(f"{n} rows: with fewer than {MINIBATCH_ROWS:,} a minibatch saves nothing, reading all of them is as cheap")
    elif n < ADVISED_ROWS:
        notes.append(f"{n:,} rows: the gain shows from about {ADVISED_ROWS:,} on")
    source = f"{params.csv.name}, {n:,} rows"
    model: Model
    design = torch.from_numpy(np.column_stack([x, np.ones(n)]))
    if len(values) == 2:
        tempering, kind = tempering_of(params, "logistic", n), "logistic"
        model = Logistic(design, torch.from_numpy((raw == values[1]).astype(float)), tempering=tempering)
    else:
        tempering, kind = tempering_of(params, "robust-regression", n), "robust-regression"
        model = RobustRegression(design, torch.from_numpy(_standard(table, target)), tempering=tempering)
    names = [*features, "constant"]
    return _scene(kind, model, source, tempering, params, check, names=tuple(names), notes=tuple(notes))


def _standard(table: Table, name: str) -> Array:
    values = table.numbers(name, "csv")
    sd = float(np.std(values))
    if not sd > 1e-12 * float(np.abs(values).max()):
        raise InputError("csv", f"the column {quoted(name)} never changes", "leave it out")
    return np.asarray((values - values.mean()) / sd)
