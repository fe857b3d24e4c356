"""HiGHS as a small linear program that grows by rows and keeps its basis."""

from __future__ import annotations

import os

import highspy
import numpy as np

from backends.sp_ucb_olp.surplus import Array

LP_TOLERANCE = 1e-10  # HiGHS's tightest


def _swallow_banner() -> None:
    """HiGHS greets on standard output when its first object is made, whatever its options say; there the command line writes its JSON."""
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        highspy.Highs()
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


_swallow_banner()  # at import, which Python does once and under a lock


class Master:
    """min b.p + z over z >= 0 and 0 <= p <= P_max under the cuts so far: each new cut costs a few dual simplex steps."""

    def __init__(self, budget: Array, price_max: float) -> None:
        self.lp = highspy.Highs()
        self.lp.silent()
        for name, value in (("presolve", "off"), ("solver", "simplex"), ("threads", 1)):
            self.lp.setOptionValue(name, value)
        for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            self.lp.setOptionValue(name, LP_TOLERANCE)
        columns = budget.size + 1
        none = np.empty(0, dtype=np.int32)
        upper = np.append(highspy.kHighsInf, np.full(budget.size, price_max))  # z >= 0: no surplus is negative
        self.lp.addCols(columns, np.append(1.0, budget), np.zeros(columns), upper, 0, none, none, np.empty(0))

    def cut(self, slopes: Array, offsets: Array) -> None:
        """Adds z + slope_i . p >= offset_i; slopes: (m, d), offsets: (m,)."""
        rows, columns = len(slopes), self.lp.getNumCol()
        values = np.ones((rows, columns))
        values[:, 1:] = slopes
        starts = np.arange(0, values.size, columns, dtype=np.int32)
        indices = np.arange(values.size, dtype=np.int32) % columns
        self.lp.addRows(rows, offsets, np.full(rows, highspy.kHighsInf), values.size, starts, indices, values.ravel())

    def solve(self) -> tuple[float, Array, Array]:
        """(value, prices (d,), dual multipliers of the rows). Raises RuntimeError when HiGHS finds no optimum."""
        self.lp.run()
        status = self.lp.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise RuntimeError(f"the cutting-plane LP ended as {self.lp.modelStatusToString(status)}")
        solution = self.lp.getSolution()
        return float(self.lp.getObjectiveValue()), np.array(solution.col_value[1:]), np.array(solution.row_dual)
