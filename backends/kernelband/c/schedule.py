"""A schedule: every decision about a kernel's C text, and the single edits that a strategy may make to it (section 5 of the card).

An edit knows nothing of timings. Some edits are wrong on purpose, because writers of kernels make these mistakes: a tile or an
unrolled loop without its remainder, half precision where the tolerance asks for single, a time loop moved inwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

TILES_I = (16, 32, 64)
TILES_J = (32, 64, 128, 256, 384)
TILES_P = (16, 32, 64, 128)
LANES = (4, 8, 16)
UNROLLS = (2, 4, 8)
PREFETCHES = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class Schedule:
    """order: the loops from the outermost in, in the kernel's own letters. tile_*: block of the kernel's first, second and third loop, 0 = none.

    simd: lanes of ``omp simd`` on the innermost loop, 0 = none. storage: what inputs are kept as. fused: how far passes are merged, 0 = not.
    unroll: partial accumulators, or steps of an outer loop done together. prefetch: distance in rows. layout: how an input is copied before
    use. aligned: tells the compiler that pointers are 64-byte aligned. remainder: False leaves out what a block does not divide.
    """

    order: str
    tile_i: int = 0
    tile_j: int = 0
    tile_p: int = 0
    simd: int = 0
    storage: str = "float"
    fused: int = 0
    unroll: int = 1
    prefetch: int = 0
    parallel: bool = False
    layout: str = "rows"
    aligned: bool = False
    remainder: bool = True


# For each kernel the values of the fields that it has a choice in; the first of each is the naive form.
_EVERY = {
    "simd": (0, *LANES),
    "storage": ("float", "fp16"),
    "unroll": (1, *UNROLLS),
    "prefetch": (0, *PREFETCHES),
    "parallel": (False, True),
    "aligned": (False, True),
}
_MATMUL = {
    "order": ("ijp", "ipj", "jip", "jpi", "pij", "pji"),
    "tile_i": (0, *TILES_I),
    "tile_j": (0, *TILES_J),
    "tile_p": (0, *TILES_P),
    "layout": ("rows", "transposed", "padded"),
    **_EVERY,
}
_ROWS = {"order": ("columns", "rows"), "tile_i": (0, *TILES_I), "tile_j": (0, *TILES_J), "layout": ("rows", "transposed", "padded"), **_EVERY}
SPACE: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "matmul": {**_MATMUL, "fused": (0, 1)},
    "matmul-bias-relu": {**_MATMUL, "fused": (0, 1, 2)},
    "softmax": {**_ROWS, "fused": (0, 1, 2, 3)},
    "rmsnorm": {**_ROWS, "fused": (0, 1, 2)},
    "layernorm": {**_ROWS, "fused": (0, 1, 2, 3)},
    "row-sum": _ROWS,
    # itj and jti are illegal: a sweep needs the whole sweep before it.
    "stencil": {
        "order": ("tij", "tji", "itj", "jti"),
        "tile_i": (0, *TILES_I),
        "tile_j": (0, *TILES_J),
        "fused": (0, 1, 2),
        "layout": ("rows", "padded"),
        **_EVERY,
    },
    "attention": {
        "order": ("dot", "axpy"),
        "tile_i": (0, *TILES_I),
        "tile_j": (0, *TILES_J),
        "fused": (0, 1, 2),
        "layout": ("rows", "keys-transposed", "values-transposed"),
        **_EVERY,
    },
}

# Fields that a strategy may set, in the order of STRATEGIES; tiling sets its blocks together.
_FIELDS = (
    ("tile_i", "tile_j", "tile_p"),
    ("simd", "storage"),
    ("fused",),
    ("unroll", "prefetch"),
    ("order", "parallel"),
    ("layout", "aligned"),
)
_TILING, _PIPELINE, _ACCESS_LAYOUT = 0, 3, 5
_NO_REMAINDER_TILES = (64, 128, 32)
_NO_REMAINDER_UNROLL = 4


def naive(kernel: str) -> Schedule:
    """The schedule of k0: the first value of every field."""
    return Schedule(**{name: values[0] for name, values in SPACE[kernel].items()})


def edits(kernel: str, schedule: Schedule, strategy: int) -> tuple[Schedule, ...]:
    """Every schedule that one edit of this strategy makes of this one, in a fixed order; illegal ones stand among them."""
    space = SPACE[kernel]
    if strategy == _TILING:
        return tuple(s for s in _tilings(space, schedule) if s != schedule)
    names = list(_FIELDS[strategy])
    if strategy == _ACCESS_LAYOUT and "columns" in space["order"]:
        names.append("order")  # of a matrix that is swept, the direction is its layout as much as its order
    found = [replace(schedule, **{name: value}) for name in names for value in space.get(name, ()) if value != getattr(schedule, name)]
    if strategy == _PIPELINE and schedule.unroll != _NO_REMAINDER_UNROLL:
        found.append(replace(schedule, unroll=_NO_REMAINDER_UNROLL, remainder=False))
    return tuple(found)


def _tilings(space: Mapping[str, tuple[Any, ...]], schedule: Schedule) -> list[Schedule]:
    names = [name for name in _FIELDS[_TILING] if name in space]
    blocks: Iterable[tuple[Any, ...]] = itertools.product(*(space[name][1:] for name in names))
    untiled: dict[str, Any] = dict.fromkeys(names, 0)
    found = [replace(schedule, **untiled), *(replace(schedule, **_named(names, block)) for block in blocks)]
    found += [replace(schedule, **_named(names, block), remainder=False) for block in (_NO_REMAINDER_TILES, (32, 64, 16))]
    return found


def _named(names: Iterable[str], block: Iterable[Any]) -> dict[str, Any]:
    return dict(zip(names, block, strict=False))  # a kernel of two loops takes the first two sizes


def values(schedule: Schedule) -> dict[str, Any]:
    """The schedule as plain values, by field."""
    return asdict(schedule)


def at(kernel: str, given: Mapping[str, Any]) -> Schedule:
    """The schedule with these values; what is not given is naive. Raises ValueError for an unknown field."""
    unknown = set(given) - {f.name for f in fields(Schedule)}
    if unknown:
        raise ValueError(f"a schedule has no field {', '.join(sorted(unknown))}")
    return replace(naive(kernel), **given)
