"""Data sets that come with installed packages, as named columns of floats; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, slots=True)
class Dataset:
    """columns: name -> (rows,) floats; target: name of the column to predict; units: name -> unit; source: where it comes from."""

    columns: Mapping[str, np.ndarray]
    target: str
    source: str
    units: Mapping[str, str] = field(default_factory=dict)

    @property
    def features(self) -> list[str]:
        return [name for name in self.columns if name != self.target]


def engel() -> Dataset:
    """Engel (1857): yearly income and food expenditure of 235 Belgian households, in francs (statsmodels)."""
    from statsmodels.datasets import engel as source

    frame = source.load_pandas().data
    columns = {"income": frame["income"].to_numpy(float), "food expenditure": frame["foodexp"].to_numpy(float)}
    return Dataset(columns, "food expenditure", "Engel food data, 235 households (statsmodels)", {"income": "francs", "food expenditure": "francs"})


def diabetes() -> Dataset:
    """Efron et al. (2004): progression of diabetes after one year and 10 baseline measures of 442 patients (scikit-learn)."""
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes(scaled=False)
    columns = {str(name): np.asarray(bunch.data[:, i], dtype=float) for i, name in enumerate(bunch.feature_names)}
    columns["progression"] = np.asarray(bunch.target, dtype=float)
    units = {"age": "years", "bmi": "kg/m2", "bp": "mmHg", "progression": "score"}
    return Dataset(columns, "progression", "Diabetes data, 442 patients (scikit-learn)", units)
