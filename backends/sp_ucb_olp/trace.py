"""A cluster trace of the operator: planned processor and memory of each job, in the order in which they started."""

from __future__ import annotations

import numpy as np

from backends.contract import InputError, Upload
from backends.runtime.tables import listed, quoted, read_table
from backends.sp_ucb_olp.instances import COEFFICIENT_NAMES, COEFFICIENTS, LEAST_USE, LinearRewards
from backends.sp_ucb_olp.surplus import Array

COLUMNS = ("plan_cpu", "plan_mem", "start_time", "end_time")
FULL = 100.0  # plan_cpu 100 is one core, plan_mem 100 the whole memory


def read_trace(upload: Upload) -> tuple[Array, tuple[str, ...]]:
    """Jobs (n, 2) of processor and memory in [0.01, 1], by start time, and notes in plain words.

    Jobs that do not end after their start, or that plan nothing, are left out. Raises InputError for ``trace`` when a column is missing
    or holds no numbers, or when nothing is left.
    """
    table = read_table(upload, "trace")
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        known = listed(list(table.columns))
        raise InputError("trace", f"the file lacks the columns {', '.join(missing)}; it has {known}", "give a trace with " + ", ".join(COLUMNS))
    cpu, memory, start, end = (table.numbers(name, "trace") for name in COLUMNS)
    usable = (end > start) & (cpu > 0) & (memory > 0)
    if not usable.any():
        raise InputError("trace", "no job ends after its start and plans processor and memory", "check the four columns")
    order = np.flatnonzero(usable)[np.argsort(start[usable], kind="stable")]
    jobs = np.clip(np.column_stack([cpu, memory])[order] / FULL, LEAST_USE, 1.0)
    left_out = int(np.count_nonzero(~usable))
    dropped = (f"{left_out} jobs of {quoted(upload.name)} are left out: they do not end after their start, or plan nothing",) if left_out else ()
    return jobs, (*table.notes, *dropped)


def trace_instance(jobs: Array, configurations: int, name: str) -> LinearRewards:
    """The jobs in their order under the first of the authors' three reward formulas; the law is the jobs themselves, each as likely."""
    weights = np.full(len(jobs), 1.0 / len(jobs))
    source = f"{name}, {len(jobs)} jobs in their order"
    return LinearRewards(COEFFICIENTS[:configurations], jobs, weights, COEFFICIENT_NAMES[:configurations], source)
