"""Where the points come from: generators of section 7 of the card, data sets of installed packages, a person's CSV."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from backends.contract import InputError
from backends.runtime.tables import listed, quoted, read_table, split_names
from backends.voronoi_pc.card import MAX_COLUMNS, Params

Array = np.ndarray
TRAIN_SHARE, VALIDATION_SHARE = 0.7, 0.1
MIN_ROWS = 20
GENERATED = ("spiral", "moons", "pinwheel", "ring")


@dataclass(frozen=True, slots=True)
class Rows:
    """train, validation, test: (n, d) float64. names: of the variables, with unit. source: in words; notes: for the visitor."""

    train: Array
    validation: Array
    test: Array
    names: tuple[str, ...]
    source: str
    notes: tuple[str, ...] = ()

    @property
    def dimension(self) -> int:
        return int(self.train.shape[1])


def generate(kind: str, n: int, rng: np.random.Generator) -> Array:
    """n points (n, 2) of a generator: two-arm spiral, two moons, pinwheel of five blades, a ring about a centre."""
    if kind == "spiral":
        angle = 2 * np.pi * np.sqrt(rng.uniform(0.02, 1, n))
        turned = angle + np.pi * rng.integers(0, 2, n)
        return np.stack([np.cos(turned), np.sin(turned)], 1) * (0.3 * angle)[:, None] + rng.normal(0, 0.1, (n, 2))
    if kind == "moons":
        half = rng.uniform(0, np.pi, n)
        second = rng.integers(0, 2, n)
        moons = np.where(second[:, None], np.stack([1 - np.cos(half), 0.5 - np.sin(half)], 1), np.stack([np.cos(half), np.sin(half)], 1))
        return np.asarray((moons - [0.5, 0.25] + rng.normal(0, 0.1, (n, 2))) * 1.4)
    if kind == "pinwheel":
        blade = rng.integers(0, 5, n)
        radial, across = 1.2 + 0.3 * rng.normal(size=n), 0.1 * rng.normal(size=n)
        turn = 2 * np.pi * blade / 5 + 0.7 * radial
        return np.stack([radial * np.cos(turn) - across * np.sin(turn), radial * np.sin(turn) + across * np.cos(turn)], 1)
    inner = rng.random(n) < 0.2
    radius = np.where(inner, 0.25 * np.abs(rng.normal(size=n)), 1.5 + 0.1 * rng.normal(size=n))
    turn = rng.uniform(0, 2 * np.pi, n)
    return np.stack([radius * np.cos(turn), radius * np.sin(turn)], 1)


def load(params: Params, scene: Array | None = None) -> Rows:
    """The rows of these params, split 70 / 10 / 20. scene: (n, d) points drawn from a scene's own experts.

    Raises InputError naming the field.
    """
    notes: tuple[str, ...] = ()
    rng = np.random.default_rng([params.seed, 1])
    if scene is not None:
        points, names, source = scene, _plain_names(scene.shape[1]), f"{params.data}: drawn from the experts, walls ignored"
    elif params.data in GENERATED:
        points, names, source = generate(params.data, params.n, rng), _plain_names(2), f"{params.data}, generated"
    elif params.data == "csv":
        points, names, source, notes = _from_csv(params)
    else:
        points, names, source = _from_package(params.data)
    if scene is None and params.data not in GENERATED:
        points, notes = _standardised(points, names, notes)
    return _split(points, names, source, notes, rng, params.cells)


def _plain_names(d: int) -> tuple[str, ...]:
    return tuple(f"x{i + 1}" for i in range(d))


def _from_package(name: str) -> tuple[Array, tuple[str, ...], str]:
    from sklearn import datasets

    load_it = {"iris": datasets.load_iris, "diabetes": datasets.load_diabetes, "wine": datasets.load_wine}[name]
    bunch = load_it()
    names = tuple(str(column).removesuffix(" (cm)") for column in bunch.feature_names)
    return np.asarray(bunch.data, float), names, f"{name}, {len(bunch.data)} rows (scikit-learn)"


def _from_csv(params: Params) -> tuple[Array, tuple[str, ...], str, tuple[str, ...]]:
    if params.csv is None:
        raise InputError("csv", "no file was given", "choose a CSV file")
    table = read_table(params.csv, "csv", min_rows=MIN_ROWS)
    known = table.numeric_names()
    chosen = split_names(params.columns)
    field = "columns" if chosen else "csv"
    unknown = [name for name in chosen if name not in table.columns]
    if unknown:
        raise InputError("columns", f"there is no column {quoted(unknown[0])}", "choose from " + listed(known))
    names = chosen or known[:MAX_COLUMNS]
    if len(set(names)) < len(names) or not 2 <= len(names) <= MAX_COLUMNS:
        raise InputError(field, f"{len(names)} columns are used", f"name 2 to {MAX_COLUMNS} columns of numbers, each once")
    points = np.column_stack([table.numbers(name, field) for name in names])
    notes = tuple(table.notes)
    if not chosen and len(known) > MAX_COLUMNS:
        notes += (f"the first {MAX_COLUMNS} of {len(known)} columns of numbers are used",)
    if len(points) > params.n:
        notes += (f"{params.n:,} rows drawn at random are used, of {len(points):,}",)
        kept = np.random.default_rng([params.seed, 2]).choice(len(points), params.n, replace=False)
        points = points[np.sort(kept)]
    return points, tuple(names), f"{params.csv.name}, {table.rows} rows", notes


def _standardised(points: Array, names: tuple[str, ...], notes: tuple[str, ...]) -> tuple[Array, tuple[str, ...]]:
    """Columns in standard deviations from their mean. Raises InputError for a column that never changes."""
    spread = points.std(0)
    flat = np.flatnonzero(~(spread > 1e-12 * np.abs(points).max(0)))
    if flat.size:
        raise InputError("csv", f"the column {quoted(names[int(flat[0])])} never changes", "leave it out by naming the others in columns")
    return (points - points.mean(0)) / spread, (*notes, "columns are in standard deviations from their mean: " + ", ".join(_numbered(names)))


def _numbered(names: tuple[str, ...]) -> list[str]:
    return [f"x{i + 1} is {name[:40]}" for i, name in enumerate(names)]


def _split(points: Array, names: tuple[str, ...], source: str, notes: tuple[str, ...], rng: np.random.Generator, cells: int) -> Rows:
    order = rng.permutation(len(points))
    n_train = math.floor(TRAIN_SHARE * len(points))
    n_validation = max(1, math.floor(VALIDATION_SHARE * len(points)))
    train, validation, test = np.split(points[order], [n_train, n_train + n_validation])
    distinct = len(np.unique(train, axis=0))
    if cells > distinct:
        raise InputError("cells", f"{cells} cells for {distinct} distinct training points", f"choose at most {distinct}")
    return Rows(train, validation, test, names, source, notes)
