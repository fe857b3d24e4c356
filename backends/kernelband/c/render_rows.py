"""C text of the kernels that sweep the rows of a matrix X (rows, cols): softmax, RMSNorm, LayerNorm and row sums.

Each is a list of passes over X: a reduction into one number a row, or a map into Y. A schedule merges passes, turns the sweep from
columns to rows, blocks it, and copies X first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backends.kernelband.c.schedule import Schedule
from backends.kernelband.c.writer import IDENTITY, Writer

PAD = 16
EPS = "1e-6f"
KERNELS = ("softmax", "rmsnorm", "layernorm", "row-sum")


@dataclass(frozen=True, slots=True)
class Pass:
    """One sweep. accumulators: (operator, name) of a reduction, kept in work as one array each. update: statements of one element; {x} is the
    element of X, {y} of Y, {d} its column, {k} the suffix of a partial accumulator. finish: statements of one row after its sweep.
    lanes: False where the updates of a row must be done one after the other."""

    update: tuple[str, ...]
    accumulators: tuple[tuple[str, str], ...] = ()
    finish: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()  # numbers of the row that the update uses
    lanes: bool = True


_SUM = Pass(("s{k} += {x};",), (("+", "s"),))
_SUM_EXP = Pass(("s{k} += EXP({x} - m);",), (("+", "s"),), (), ("m",))
_MAX = Pass(("m{k} = {x} > m{k} ? {x} : m{k};",), (("max", "m"),))
_ONLINE = Pass(
    ("const float seen = m, v = {x};", "m = v > seen ? v : seen;", "s = s * EXP(seen - m) + EXP(v - m);"),
    (("max", "m"), ("+", "s")),
    lanes=False,
)
_SOFTMAX_OUT = Pass(("{y} = EXP({x} - m) / s;",), reads=("m", "s"))
_SQUARES = Pass(("s{k} += {x} * {x};",), (("+", "s"),), (f"s = 1.0f / sqrtf(s / cols + {EPS});",))
_MEAN = Pass(("m{k} += {x};",), (("+", "m"),), ("m = m / cols;",))
_VARIANCE = Pass(("s{k} += ({x} - m) * ({x} - m);",), (("+", "s"),), (f"s = 1.0f / sqrtf(s / cols + {EPS});",), ("m",))
_MOMENTS = Pass(
    ("m{k} += {x};", "s{k} += {x} * {x};"),
    (("+", "m"), ("+", "s")),
    ("m = m / cols;", f"s = 1.0f / sqrtf(s / cols - m * m + {EPS});"),
)


def passes(kernel: str, fused: int) -> tuple[Pass, ...]:
    """fused 0: one sweep a step; 1: steps that can share a sweep do; 2: as the steps, a row at a time; 3: both."""
    merged = fused in (1, 3)
    if kernel == "row-sum":
        return (Pass(_SUM.update, _SUM.accumulators, ("Y[r] = s;",)),)
    if kernel == "softmax":
        return (_ONLINE, _SOFTMAX_OUT) if merged else (_MAX, _SUM_EXP, _SOFTMAX_OUT)
    if kernel == "rmsnorm":
        if fused:
            return (_SQUARES, Pass(("{y} = {x} * s * gamma[{d}];",), reads=("s",)))
        return (_SQUARES, Pass(("{y} = {x} * s;",), reads=("s",)), Pass(("{y} *= gamma[{d}];",)))
    if fused:
        statistics = (_MOMENTS,) if merged else (_MEAN, _VARIANCE)
        return (*statistics, Pass(("{y} = ({x} - m) * s * gamma[{d}] + beta[{d}];",), reads=("m", "s")))
    return (_MEAN, _VARIANCE, Pass(("{y} = ({x} - m) * s;",), reads=("m", "s")), Pass(("{y} = {y} * gamma[{d}] + beta[{d}];",)))


def work_floats(rows: int, cols: int) -> int:
    """Two numbers a row and a padded copy of X."""
    return 2 * rows + rows * (cols + 2 * PAD)


def render(kernel: str, s: Schedule) -> str:
    """The body of the function."""
    w = Writer()
    if s.aligned:
        w.line(*(f"{name} = __builtin_assume_aligned({name}, 64);" for name in ("X", "Y", "work")))
    w.line("float *restrict M = work, *restrict S = work + rows;")
    _prepare(w, s)
    todo = passes(kernel, s.fused)
    outer = "omp parallel for" if s.parallel else ""
    if s.fused >= 2:
        block = s.tile_i or 1
        with w.tiles("r", "0", "rows", block, s, outer) as (low, high):
            for one in todo:
                _sweep(w, one, s, low, high, "")
    else:
        for one in todo:
            with w.tiles("r", "0", "rows", s.tile_i, s, outer) as (low, high):
                _sweep(w, one, s, low, high, "" if s.tile_i else outer)
    return w.text()


def _prepare(w: Writer, s: Schedule) -> None:
    half = s.storage == "fp16"
    if not half and s.layout == "rows":
        return
    kind = "_Float16" if half else "float"
    if s.layout == "padded":
        w.line(f"const long ld = (cols + {PAD - 1}) / {PAD} * {PAD} + {PAD};")
    w.line(f"{kind} *restrict Z = ({kind} *)(work + 2 * rows);")
    with w.loop("r", "0", "rows"), w.loop("d", "0", "cols"):
        w.line(f"Z[{_index(s, 'r', 'd')}] = {'(_Float16)' if half else ''}X[r * cols + d];")


def _index(s: Schedule, r: str, d: str) -> str:
    return {"rows": f"{r} * cols + {d}", "transposed": f"{d} * rows + {r}", "padded": f"{r} * ld + {d}"}[s.layout]


def _x(s: Schedule, r: str, d: str) -> str:
    if s.storage == "fp16":
        return f"(float)Z[{_index(s, r, d)}]"
    return f"{'X' if s.layout == 'rows' else 'Z'}[{_index(s, r, d)}]"


def _sweep(w: Writer, one: Pass, s: Schedule, low: str, high: str, pragma: str) -> None:
    """One pass over the rows low..high and all columns."""
    if one.accumulators:
        with w.loop("r", low, high):
            w.line(*(f"{name.upper()}[r] = {IDENTITY[operator]};" for operator, name in one.accumulators))
    with w.tiles("d", "0", "cols", s.tile_j, s, pragma) as (first, last):
        pragma = "" if s.tile_j else pragma
        if s.order == "rows":
            with w.loop("r", low, high, pragma=pragma):
                _along_row(w, one, s, first, last)
        else:
            with w.loop("d", first, last, pragma=pragma):
                _down_column(w, one, s, low, high)
    if one.finish:
        with w.loop("r", low, high):
            names = [name for _, name in one.accumulators]
            reads = [name for name in one.reads if name not in names]
            w.line("float " + ", ".join(f"{name} = {name.upper()}[r]" for name in names + reads) + ";", *one.finish)
            w.line(*(f"{name.upper()}[r] = {name};" for name in names if f"{name} =" in " ".join(one.finish)))


def _statements(one: Pass, s: Schedule, r: str, d: str, suffix: str) -> list[str]:
    y = f"Y[{r} * cols + {d}]"
    return [text.replace("{x}", _x(s, r, d)).replace("{y}", y).replace("{d}", d).replace("{k}", suffix).replace("EXP", _exp(s)) for text in one.update]


def _exp(s: Schedule) -> str:
    return "exp_lane" if s.simd else "expf"


def _along_row(w: Writer, one: Pass, s: Schedule, first: str, last: str) -> None:
    """The row's numbers stay in registers; the innermost loop runs along the row."""
    names = [name for _, name in one.accumulators]
    if s.prefetch:
        w.line(f"__builtin_prefetch(&{_x(s, f'(r + {s.prefetch})', first).removeprefix('(float)')});")
    if names or one.reads:
        w.line("float " + ", ".join(f"{name} = {name.upper()}[r]" for name in [*names, *one.reads]) + ";")
    w.inner("d", first, last, lambda d, suffix: _statements(one, s, "r", d, suffix), s, one.accumulators, lanes=one.lanes)
    if names:
        w.line(*(f"{name.upper()}[r] = {name};" for name in names))


def _down_column(w: Writer, one: Pass, s: Schedule, low: str, high: str) -> None:
    """The innermost loop runs over rows, each with its own numbers, so that no addition waits for another."""
    if s.prefetch:
        w.line(f"__builtin_prefetch(&{_x(s, low, f'(d + {s.prefetch})').removeprefix('(float)')});")
    names: Sequence[str] = [name for _, name in one.accumulators]

    def body(r: str, _suffix: str) -> list[str]:
        known = [f"{name} = {name.upper()}[{r}]" for name in [*names, *one.reads]]
        texts = _statements(one, s, r, "d", "")
        load = ["float " + ", ".join(known) + ";"] if known else []
        return ["{", *load, *texts, *(f"{name.upper()}[{r}] = {name};" for name in names), "}"]

    w.inner("r", low, high, body, s)


def touched_bytes(kernel: str, s: Schedule, rows: int, cols: int) -> float:
    """Bytes that the sweeps load and store: X each time it is read, Y each time it is written, a row's numbers where they are not in registers."""
    element = 2 if s.storage == "fp16" else 4
    total = 0.0
    for one in passes(kernel, s.fused):
        text = " ".join(one.update)
        total += element * ("{x}" in text) + 4 * text.count("{y}") + 4 * (text.count("*= ") > 0)
        total += 4 * ("gamma" in text) + 4 * ("beta" in text)
        total += 0 if s.order == "rows" else 8 * len(one.accumulators) + 4 * len(one.reads)
    total += 0 if s.layout == "rows" and element == 4 else 4 + element
    return total * rows * cols


def tile(s: Schedule, rows: int, cols: int) -> tuple[float, float]:
    """Bytes of X and Y in one block, and its elements."""
    whole = 1 if s.fused >= 2 else rows
    volume = float(s.tile_i or whole) * (s.tile_j or cols)
    return 8.0 * volume, volume
