"""The schedules that a search walks over: which fields an edit of each strategy may change, and to what.

An edit changes one field to another of its values (the Triton column of section 5 of the card). Edits only look legal: a split sum under a
fused epilogue does not exist, a tile may need more shared memory than there is, loads without a mask read beyond a row, fp16 and tf32 lose digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from kernels.flash_attention import AttentionSchedule
from kernels.launching import next_power_of_two
from kernels.matmul_bias_relu import MatmulSchedule
from kernels.row_schedule import RowSchedule

Tuning = RowSchedule | MatmulSchedule | AttentionSchedule
Storage = Literal["float32", "float16"]
Values = Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Schedule:
    """tuning: of the kernel itself. storage: type of the numbers in memory. transposed: the second matrix (the keys) lies by columns, packed ahead."""

    tuning: Tuning
    storage: Storage = "float32"
    transposed: bool = False

    def values(self) -> dict[str, Any]:
        """All fields by name, flat."""
        found = {**asdict(self.tuning), "storage": self.storage, "transposed": self.transposed}
        if isinstance(self.tuning, RowSchedule):
            del found["transposed"]  # a row kernel has one matrix alone
        return found


LOADS = ("", "evict_first", "evict_last")
STORAGES = ("float32", "float16")
TILES = (16, 32, 64, 128, 256)
BOTH = (False, True)
PIPELINE: Values = {"stages": (1, 2, 3, 4), "unroll": (1, 2, 4, 8)}


def row_space(passes: int) -> tuple[Values, ...]:
    """By strategy, in the order of STRATEGIES. passes: forms that the kernel has."""
    return (
        {"rows": (1, 2, 4, 8, 16), "block": (64, 128, 256, 512, 1024, 2048, 4096)},
        {"storage": STORAGES, "masked": BOTH},
        {"passes": tuple(range(1, passes + 1))},
        PIPELINE,
        {"warps": (1, 2, 4, 8, 16), "programs": (0, 128, 512, 2048)},
        {"interleaved": BOTH, "load": LOADS, "store": ("", ".cs", ".wt")},
    )


MATMUL_SPACE: tuple[Values, ...] = (
    {"block_m": TILES, "block_n": TILES, "block_k": (16, 32, 64, 128), "group": (1, 4, 8), "split_k": (1, 2, 4, 8)},
    {"storage": STORAGES, "precision": ("ieee", "tf32x3", "tf32"), "hinted": BOTH, "masked": BOTH},
    {"fused": BOTH},
    PIPELINE,
    {"warps": (1, 2, 4, 8), "columns_first": BOTH},
    {"transposed": BOTH, "load": LOADS},
)
ATTENTION_SPACE: tuple[Values, ...] = (
    {"rows": TILES[:4], "keys": TILES[:4]},
    {"storage": STORAGES, "precision": ("ieee", "tf32x3", "tf32"), "masked": BOTH},
    {"passes": (1, 2, 3)},
    PIPELINE,
    {"warps": (1, 2, 4, 8), "reverse": BOTH},
    {"transposed": BOTH, "load": LOADS},
)


def changed(schedule: Schedule, name: str, value: Any) -> Schedule:
    """The schedule with one field changed, wherever the field lies."""
    if name in ("storage", "transposed"):
        return replace(schedule, **{name: value})
    return replace(schedule, tuning=replace(schedule.tuning, **{name: value}))


def canonical(schedule: Schedule, columns: int) -> Schedule:
    """The schedule with the fields that its form does not read set to one value, so that programs that are the same have the same text."""
    if isinstance(schedule.tuning, RowSchedule) and schedule.tuning.passes == 1:
        return replace(schedule, tuning=replace(schedule.tuning, block=next_power_of_two(columns), stages=1, unroll=1))
    return schedule


def of(kind: type[Tuning], values: Mapping[str, Any]) -> Schedule:
    """The schedule with these values, the inverse of ``Schedule.values``. Raises ValueError naming a field that is missing or unknown."""
    names = {f.name for f in fields(kind)}
    known = names | {"storage"} | ({"transposed"} if kind is not RowSchedule else set())
    if set(values) != known:
        raise ValueError(f"the schedule needs the fields {', '.join(sorted(known))}; wrong: {', '.join(sorted(set(values) ^ known))}")
    return Schedule(kind(**{n: values[n] for n in names}), values["storage"], values.get("transposed", False))


def edits(schedule: Schedule, choices: Values) -> Sequence[Schedule]:
    """Every schedule that differs in one field of ``choices``, in their order."""
    now = schedule.values()
    return [changed(schedule, name, value) for name, values in choices.items() for value in values if value != now[name]]
