"""The tasks: each draws candidates for one ambiguous request and executes them."""

from __future__ import annotations

from importlib import import_module

from backends.contract import Context
from backends.tai.candidates import Task
from backends.tai.card import Params


def open_task(params: Params, context: Context) -> Task:
    """The task that the params name; each module here has an ``open_task`` of its own. Raises InputError."""
    task: Task = import_module(f"{__name__}.{params.task}").open_task(params, context)
    return task
