"""From params to the rows of a run: loaded, checked, split, and predicted on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from backends.conformal_ksos import data as generated
from backends.conformal_ksos.band import MAX_KERNEL_ROWS, MIN_ROWS, split_rows
from backends.conformal_ksos.card import Params
from backends.conformal_ksos.cross_validation import Training
from backends.conformal_ksos.predictors import fit_predictor, refuse_interpolation
from backends.contract import InputError
from backends.runtime.datasets import Dataset, diabetes, engel
from backends.runtime.tables import Table, listed, quoted, read_table, split_names

Array = np.ndarray

MAX_FEATURES = 3
MAX_ROWS = 10_000  # of all parts together; 10,000 x 600 kernel values are about 50 MB
GRID_POINTS = 200
DIABETES_FEATURES = ["bmi", "s5", "bp"]  # the first three that a lasso path admits (Efron et al. 2004, Fig. 1)
TRAIN_SHARE = 0.45  # of the rows, where "auto" has no other reason
GENERATED_TRAIN_ROWS = 150  # as in the card's simulation; more generated rows go to calibration and test
TEST_SHARE = 0.05  # at least
OUTLIER_SD = 4.0  # how far an outlier moves, in sds of y
_DATA_STREAM, _OUTLIER_STREAM = 4, 5


@dataclass(frozen=True, slots=True)
class Rows:
    """Loaded and split rows.

    x: (N, d) what the widths depend on; design: (N, p) what the predictor sees; y: (N,); prediction: (N,) or None, a column of predictions;
    train, calibration, test: row numbers; labels: of x[:, 0] and y, with unit; columns: what the table picture shows.
    """

    x: Array
    design: Array
    y: Array
    prediction: Array | None
    train: Array
    calibration: Array
    test: Array
    labels: tuple[str, str]
    source: str
    notes: tuple[str, ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)


def load(params: Params) -> Rows:
    """Loads the data of these params, checks them and splits them. Raises InputError naming the field."""
    if params.data == "csv":
        loaded = _from_csv(params)
    elif params.data == "engel" or params.data == "diabetes":
        loaded = _from_dataset(params)
    else:
        drawn = generated.generate(params.data, params.n, np.random.default_rng([params.seed, _DATA_STREAM]))
        loaded = _Loaded(drawn.x[:, None], drawn.x[:, None], drawn.y, drawn.prediction, ("x (no unit)", "y (no unit)"), f"generated, {params.data} noise")
    return _split(loaded, params)


@dataclass(frozen=True, slots=True)
class _Loaded:
    x: Array
    design: Array
    y: Array
    prediction: Array | None
    labels: tuple[str, str]
    source: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def _chosen_features(text: str, known: list[str]) -> list[str]:
    names = split_names(text)
    if len(names) > MAX_FEATURES:
        raise InputError("features", f"{len(names)} columns are named", f"name at most {MAX_FEATURES}")
    if len(set(names)) < len(names):
        raise InputError("features", "a column is named twice", "name each once")
    for name in names:
        if name not in known:
            raise InputError("features", f"there is no column {quoted(name)} to use", "choose from " + listed(known))
    return names


def _from_dataset(params: Params) -> _Loaded:
    source: Dataset = engel() if params.data == "engel" else diabetes()
    names = _chosen_features(params.features, source.features) or (DIABETES_FEATURES if params.data == "diabetes" else source.features)
    design = np.column_stack([source.columns[name] for name in source.features])
    x = np.column_stack([source.columns[name] for name in names])

    def label(name: str) -> str:
        return f"{name} ({source.units.get(name, 'no unit')})"

    return _Loaded(x, design, source.columns[source.target], None, (label(names[0]), label(source.target)), source.source)


def _from_csv(params: Params) -> _Loaded:
    if params.csv is None:
        raise InputError("csv", "no file was given", "choose a CSV file")
    table = read_table(params.csv, "csv", min_rows=MIN_ROWS)
    numeric = [name for name in table.numeric_names() if name != params.prediction_column]
    if len(numeric) < 2:
        found = f"{len(numeric)} of {len(table.columns)} columns hold numbers"
        text = table.first_text()
        problem, remedy = (
            (f"{found}; {text[0]}", f"{text[1]}: a target and a feature of numbers are needed") if text else (found, "give a target and a feature of numbers")
        )
        raise InputError("csv", problem, remedy)
    target = params.target.strip() or numeric[-1]
    y = table.numbers(target, "target" if params.target.strip() else "csv", "target")
    known = [name for name in table.columns if name not in (target, params.prediction_column)]
    chosen = _chosen_features(params.features, known)
    names = chosen or [name for name in numeric if name != target][:MAX_FEATURES]
    x = np.column_stack([table.numbers(name, "features" if chosen else "csv", "feature") for name in names])
    prediction = table.numbers(params.prediction_column, "prediction_column", "predictions") if params.prediction_column else None
    used = _summary(table, target, names, params.prediction_column)
    labels = (f"{names[0]} (column's unit)", f"{target} (column's unit)")
    return _Loaded(x, x, y, prediction, labels, f"{params.csv.name}, {table.rows} rows", used, table.notes)


def _summary(table: Table, target: str, features: list[str], prediction: str) -> dict[str, Any]:
    def role(name: str) -> str:
        return "target" if name == target else "feature" if name in features else "prediction" if name == prediction else "unused"

    return {
        "delimiter": table.delimiter,
        "decimal": table.decimal,
        "encoding": table.encoding,
        "rows": table.rows,
        "target": target,
        "features": list(features),
        "table": [{"name": c.name, "kind": c.kind, "role": role(c.name), "missing": c.missing} for c in table.columns.values()],
    }


def _wanted_training_rows(n: int, params: Params) -> int:
    """How many of n rows are to be trained on. Raises InputError when training and calibration leave too few for the test."""
    most = 1 - TEST_SHARE - params.calibration_fraction
    if params.train_fraction == "auto":
        wanted = round(min(TRAIN_SHARE, most) * n)
        return min(wanted, GENERATED_TRAIN_ROWS) if params.data in generated.NOISES else wanted
    if params.train_fraction > most + 1e-9:
        total = params.train_fraction + params.calibration_fraction
        raise InputError("calibration_fraction", f"training and calibration take {total:.0%} of the rows", f"leave at least {TEST_SHARE:.0%} for the test")
    return round(params.train_fraction * n)


def _split(loaded: _Loaded, params: Params) -> Rows:
    n = min(len(loaded.y), MAX_ROWS)
    wanted = _wanted_training_rows(n, params)
    n_train, n_calibration = min(wanted, MAX_KERNEL_ROWS), max(1, round(params.calibration_fraction * n))
    train, calibration, test = split_rows(len(loaded.y), n_train, n_calibration, params.seed)
    test = test[: n - n_train - n_calibration]
    if np.ptp(loaded.y[train]) == 0:
        raise InputError("target", "the target never changes in the training rows", "choose another column")
    if np.any(np.ptp(loaded.x[train], axis=0) == 0):
        raise InputError("features", "a feature never changes in the training rows", "choose other columns")
    notes = list(loaded.notes)
    if len(loaded.y) > n:
        notes.append(f"{n:,} rows drawn at random are used, of {len(loaded.y):,}")
    if wanted > n_train:
        notes.append(f"{n_train} training rows are used, of {wanted}; the other {wanted - n_train} rows go to the test")
    repeated = n_train - len(np.unique(loaded.x[train], axis=0))
    if repeated:
        what = "1 training row repeats" if repeated == 1 else f"{repeated} training rows repeat"
        notes.append(f"{what} the features of another row: the kernel matrix is singular and is solved on its numerical rank")
    y = loaded.y
    if params.outliers:
        y = y.copy()
        moved = np.random.default_rng([params.seed, _OUTLIER_STREAM]).choice(train, params.outliers, replace=False)
        y[moved] += OUTLIER_SD * np.std(loaded.y[train])
        notes.append(f"{params.outliers} training rows were moved up by {OUTLIER_SD:g} sds of y; calibration and test rows were not")
    columns = {**loaded.columns, "used": n} if loaded.columns else {}
    return Rows(loaded.x, loaded.design, y, loaded.prediction, train, calibration, test, loaded.labels, loaded.source, tuple(notes), columns)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows with their predictor: mean (N,) at all rows, training (rows and residuals), and the grid that the band is drawn on.

    grid_x: (200,) first feature; grid: (200, d) kernel features, the others at their training median; grid_mean: (200,).
    """

    rows: Rows
    mean: Array
    training: Training
    grid: Array
    grid_mean: Array
    shown: str
    notes: tuple[str, ...]


def prepare(rows: Rows, params: Params, check: Callable[[], None]) -> Prepared:
    """Fits the predictor on the training rows and shifts it by the bias. Raises InputError naming the field."""
    x, train = rows.x, rows.train
    grid = np.tile(np.median(x[train], axis=0), (GRID_POINTS, 1))
    grid[:, 0] = np.linspace(x[:, 0].min(), x[:, 0].max(), GRID_POINTS)
    notes = list(rows.notes)
    if x.shape[1] > 1:
        notes.append("the band is drawn along the first feature, the others at their training median; the points have their own values")
    name = params.predictor
    if name == "column" or (name == "auto" and rows.prediction is not None):
        if rows.prediction is None:
            field_name = "prediction_column" if params.data == "csv" else "predictor"
            raise InputError(field_name, "no column of predictions is known", "name one of your table, or choose another predictor")
        mean, residuals = rows.prediction, rows.y[train] - rows.prediction[train]
        refuse_interpolation(residuals, rows.y[train])
        if params.data in generated.NOISES:
            grid_mean, shown = generated.predicted(grid[:, 0], params.data), "the known centre" if params.data != "biased" else "a line one sd too high"
        else:
            grid_mean, shown = _between_rows(rows, grid), f"predictions of column {params.prediction_column}"
            notes.append("between the rows the middle line is that of the nearest row")
    else:
        fitted = fit_predictor("linear" if name == "auto" else name, rows.design[train], rows.y[train], params.seed, check)
        design_grid = grid if rows.design is rows.x else _design_grid(rows)
        mean, grid_mean, residuals, shown = fitted.predict(rows.design), fitted.predict(design_grid), fitted.residuals, fitted.shown
    training = Training.of(x[train], residuals, params.bias)
    if params.bias:
        mean, grid_mean = mean + params.bias * training.residual_sd, grid_mean + params.bias * training.residual_sd
        shown += f", moved by {params.bias:+g} sd"
    above = int(np.count_nonzero(training.residuals > 0))
    if above in (0, len(train)):
        notes.append(f"all training residuals are {'above' if above else 'below'} the line: the other half-width follows the symmetry weight alone")
    return Prepared(rows, mean, training, grid, grid_mean, shown, tuple(notes))


def _between_rows(rows: Rows, grid: Array) -> Array:
    from scipy.spatial import cKDTree

    assert rows.prediction is not None
    spread = np.std(rows.x[rows.train], axis=0)
    _, nearest = cKDTree(rows.x / spread).query(grid / spread)
    return rows.prediction[nearest]


def _design_grid(rows: Rows) -> Array:
    """The grid in the predictor's columns: medians, but the first kernel feature runs over its range."""
    grid = np.tile(np.median(rows.design[rows.train], axis=0), (GRID_POINTS, 1))
    first = next(j for j in range(rows.design.shape[1]) if np.array_equal(rows.design[:, j], rows.x[:, 0]))
    grid[:, first] = np.linspace(rows.x[:, 0].min(), rows.x[:, 0].max(), GRID_POINTS)
    return grid
