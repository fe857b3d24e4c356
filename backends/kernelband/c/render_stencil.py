"""C text of the 5-point stencil: ``sweeps`` times each inner point becomes the mean of itself and its four neighbours; the border stays."""

from __future__ import annotations

from backends.kernelband.c.schedule import Schedule
from backends.kernelband.c.writer import Writer

PAD = 16
_END = {"i": "(rows - 1)", "j": "(cols - 1)"}


def work_floats(rows: int, cols: int) -> int:
    """Two padded grids."""
    return 2 * rows * (cols + 2 * PAD)


def render(s: Schedule) -> str:
    """The body of the function. Grids are kept in A and B; A holds the newest values before each sweep."""
    w = Writer()
    if s.aligned:
        w.line(*(f"{name} = __builtin_assume_aligned({name}, 64);" for name in ("X", "Y", "work")))
    half, padded = s.storage == "fp16", s.layout == "padded"
    kind = "_Float16" if half else "float"
    w.line(f"const long ld = {f'(cols + {PAD - 1}) / {PAD} * {PAD} + {PAD}' if padded else 'cols'};")
    own = half or padded
    w.line(f"{kind} *A = {f'({kind} *)work' if own else 'Y'};", f"{kind} *B = {f'({kind} *)work + rows * ld' if own else 'work'};")
    with w.loop("i", "0", "rows"), w.loop("j", "0", "cols"):
        w.line(f"A[i * ld + j] = B[i * ld + j] = {'(_Float16)' if half else ''}X[i * cols + j];")
    parallel = "omp parallel for" if s.parallel else ""
    if _paired(s):
        _pairs(w, s, kind)
        with w.block("if (sweeps % 2)"):
            w.line("const long t = sweeps / 2;")
            _buffers(w, s, kind)
            _sweep(w, s, "ij", kind, parallel)
    elif s.order[0] == "t":
        with w.loop("t", "0", "sweeps"):
            with w.block():  # what is reached through a restrict pointer is reached through nothing else while it lives
                _buffers(w, s, kind)
                _sweep(w, s, s.order[1:], kind, parallel)
            if s.fused == 0:
                with w.loop("i", "1", "(rows - 1)"), w.loop("j", "1", "(cols - 1)"):
                    w.line("A[i * ld + j] = B[i * ld + j];")
    else:  # a line of points goes through all its sweeps before its neighbours have begun
        outer, inner = s.order[0], s.order[2]
        with (
            w.tiles(outer, "1", _END[outer], _size(s, outer), s, parallel) as bounds,
            w.loop(outer, *bounds, pragma="" if _size(s, outer) else parallel),
            w.loop("t", "0", "sweeps"),
        ):
            _buffers(w, s, kind)
            w.inner(inner, "1", _END[inner], lambda q, _k: [_point(q, inner, kind)], s)
            if s.fused == 0:
                with w.loop(inner, "1", _END[inner]):
                    w.line("A[i * ld + j] = B[i * ld + j];")
    if own or s.fused:
        turns = "(sweeps + 1) / 2" if _paired(s) else "sweeps"
        w.line(f"const {kind} *last = {f'{turns} % 2 ? B : A' if s.fused else 'A'};")
        if not own:
            w.line("if (last == Y) return;")
        with w.loop("i", "0", "rows"), w.loop("j", "0", "cols"):
            w.line("Y[i * cols + j] = last[i * ld + j];")
    return w.text()


def _paired(s: Schedule) -> bool:
    return s.fused == 2 and s.order == "tij"


def _pairs(w: Writer, s: Schedule, kind: str) -> None:
    """Two sweeps in one pass over the rows: the rows of the first that the second needs, three, stay in the nearest cache."""
    with w.loop("t", "0", "sweeps / 2"):
        _buffers(w, s, kind)
        w.line(f"{kind} M[3 * ld];")
        with w.loop("i", "0", "rows"):
            if s.prefetch:
                w.line(f"__builtin_prefetch(&from[(i + 1 + {s.prefetch}) * ld]);")
            w.line(f"{kind} *mid = M + i % 3 * ld;")
            with w.block("if (i == 0 || i == rows - 1)"), w.loop("j", "0", "cols"):
                w.line("mid[j] = from[i * ld + j];")
            with w.block("else"):
                w.line("mid[0] = from[i * ld];", "mid[cols - 1] = from[i * ld + cols - 1];")
                w.inner("j", "1", _END["j"], lambda q, _k: [_point(q, "j", kind).replace(f"to[i * ld + {q}]", f"mid[{q}]")], s)
            w.line("if (i < 2) continue;", f"const {kind} *up = M + (i - 2) % 3 * ld, *at = M + (i - 1) % 3 * ld;")
            cast = "" if kind == "float" else "(float)"
            terms = ("at[{q}]", "up[{q}]", "mid[{q}]", "at[{q} - 1]", "at[{q} + 1]")
            value = " + ".join(cast + term for term in terms)
            w.inner("j", "1", _END["j"], lambda q, _k: [f"to[(i - 1) * ld + {q}] = {_stored(kind, value.replace('{q}', q))};"], s)


def _size(s: Schedule, name: str) -> int:
    return s.tile_i if name == "i" else s.tile_j


def _buffers(w: Writer, s: Schedule, kind: str) -> None:
    """Without fusion a pass goes from A to B and is copied back; fused, the two change places."""
    source, target = ("t % 2 ? B : A", "t % 2 ? A : B") if s.fused else ("A", "B")
    w.line(f"const {kind} *restrict from = {source};", f"{kind} *restrict to = {target};")


def _sweep(w: Writer, s: Schedule, names: str, kind: str, parallel: str) -> None:
    """One sweep over all inner points, in blocks where the schedule has them."""
    outer, inner = names[0], names[1]
    with (
        w.tiles(outer, "1", _END[outer], _size(s, outer), s, parallel) as rows,
        w.tiles(inner, "1", _END[inner], _size(s, inner), s, "" if _size(s, outer) else parallel) as columns,
        w.loop(outer, *rows, pragma="" if s.tile_i or s.tile_j else parallel),
    ):
        if s.prefetch:
            at = f"(i + 1 + {s.prefetch}) * ld + {columns[0]}" if outer == "i" else f"{columns[0]} * ld + j + {s.prefetch}"
            w.line(f"__builtin_prefetch(&from[{at}]);")
        w.inner(inner, *columns, lambda q, _k: [_point(q, inner, kind)], s)


def _point(q: str, name: str, kind: str) -> str:
    at = f"{q} * ld + j" if name == "i" else f"i * ld + {q}"
    value = " + ".join(f"(float)from[{at}{step}]" if kind != "float" else f"from[{at}{step}]" for step in ("", " - ld", " + ld", " - 1", " + 1"))
    return f"to[{at}] = {_stored(kind, value)};"


def _stored(kind: str, value: str) -> str:
    return f"0.2f * ({value})" if kind == "float" else f"({kind})(0.2f * ({value}))"


def touched_bytes(s: Schedule, rows: int, cols: int, sweeps: int) -> float:
    """Five loads and a store a point and sweep, and the copies; without -O3 the compiler carries no neighbour over from one point to the next."""
    element = 2 if s.storage == "fp16" else 4
    points = float(rows) * cols
    copies = 2 if s.fused == 0 else 0
    own = s.storage == "fp16" or s.layout == "padded"
    return points * (sweeps * element * (6 + copies) + 4 + 2 * element + (element + 4 if own else 0))


def tile(s: Schedule, rows: int, cols: int) -> tuple[float, float]:
    """Bytes of both grids in one block, and its points."""
    volume = float(s.tile_i or rows) * (s.tile_j or cols)
    return 8.0 * volume, volume
