"""How a kernel that reduces each row of a matrix is laid out on the device: rmsnorm, layernorm and softmax share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernels.launching import Call, next_power_of_two, require_powers_of_two

WHOLE_ROW = 16_384  # columns up to which the default holds a row in registers


@dataclass(frozen=True, slots=True)
class RowSchedule:
    """rows: of one program's tile. block: columns of one step. passes: reads of a row; one pass holds whole rows and ignores ``block``.

    programs: at most so many, each walks the tiles with a stride; 0: one a tile. interleaved: a tile's rows lie far apart instead of side by side.
    masked=False leaves the mask on the columns out: right only where ``block`` divides them. load: eviction policy; store: cache modifier.
    """

    rows: int = 1
    block: int = 1024
    passes: int = 1
    warps: int = 4
    stages: int = 1
    unroll: int = 1
    programs: int = 0
    interleaved: bool = False
    masked: bool = True
    load: str = ""
    store: str = ""


def default(columns: int) -> RowSchedule:
    """Whole rows in registers up to 16,384 columns, eight numbers a thread and more; longer rows in two passes."""
    if columns > WHOLE_ROW:
        return RowSchedule(block=4096, passes=2, warps=8, stages=2)
    block = next_power_of_two(columns)
    return RowSchedule(rows=max(1, 1024 // block), warps=min(16, max(1, block // 512)) if block > 1024 else 4)


def row_call(kernel: str, arguments: Mapping[str, Any], rows: int, columns: int, schedule: RowSchedule, passes: int) -> Call:
    """The launch over a matrix (rows, columns). passes: the most that the kernel knows. Raises ValueError for a schedule outside its bounds."""
    require_powers_of_two(rows=schedule.rows, block=schedule.block, warps=schedule.warps)
    if not 1 <= schedule.passes <= passes:
        raise ValueError(f"passes is {schedule.passes}; {kernel} has forms of 1 to {passes}")
    tiles = -(-rows // schedule.rows)
    constants = {
        "ROWS": schedule.rows,
        "BLOCK": next_power_of_two(columns) if schedule.passes == 1 else schedule.block,
        "PASSES": schedule.passes,
        "STAGES": schedule.stages,
        "UNROLL": schedule.unroll,
        "INTERLEAVED": schedule.interleaved,
        "MASKED": schedule.masked,
        "LOAD": schedule.load,
        "STORE": schedule.store,
    }
    grid = (min(tiles, schedule.programs) if schedule.programs else tiles,)
    return Call(kernel, grid, {**arguments, "rows": rows, "columns": columns}, constants, schedule.warps, schedule.stages)
