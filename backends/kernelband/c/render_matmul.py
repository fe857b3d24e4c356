"""C text of matmul and matmul + bias + ReLU: C (m, n) = A (m, k) B (k, n), loops i, j and p, any order, any blocks."""

from __future__ import annotations

from backends.kernelband.c.schedule import Schedule
from backends.kernelband.c.writer import Writer

PAD = 16  # floats: one cache line, so that rows of a power of two do not share their cache sets
_EXTENT = {"i": "m", "j": "n", "p": "k"}


def work_floats(m: int, n: int, k: int) -> int:
    """Scratch that every schedule can do with: a copy of A and a padded copy of B."""
    return m * k + k * (n + 2 * PAD)


class _Operands:
    """How elements of A and B are addressed after their preparation."""

    def __init__(self, s: Schedule) -> None:
        self.half = s.storage == "fp16"
        self.layout = s.layout
        self.type = "_Float16" if self.half else "float"

    def a(self, i: str, p: str) -> str:
        return f"(float)Ah[{i} * k + {p}]" if self.half else f"A[{i} * k + {p}]"

    def b(self, p: str, j: str) -> str:
        cast = "(float)" if self.half else ""
        if self.layout == "transposed":
            return f"{cast}Bt[{j} * k + {p}]"
        if self.layout == "padded":
            return f"{cast}Bp[{p} * ldb + {j}]"
        return f"(float)Bh[{p} * n + {j}]" if self.half else f"B[{p} * n + {j}]"

    def prepare(self, w: Writer) -> None:
        target = {"transposed": "Bt", "padded": "Bp", "rows": "Bh"}[self.layout]
        if self.layout == "padded":
            w.line(f"const long ldb = (n + {PAD - 1}) / {PAD} * {PAD} + {PAD};")
        if self.half or self.layout != "rows":
            index = {"transposed": "j * k + p", "padded": "p * ldb + j", "rows": "p * n + j"}[self.layout]
            w.line(f"{self.type} *restrict {target} = ({self.type} *)work;")
            with w.loop("p", "0", "k"), w.loop("j", "0", "n"):
                w.line(f"{target}[{index}] = {'(_Float16)' if self.half else ''}B[p * n + j];")
        if self.half:
            w.line(f"_Float16 *restrict Ah = (_Float16 *)(work + k * (n + {2 * PAD}));")
            with w.loop("q", "0", "m * k"):
                w.line("Ah[q] = (_Float16)A[q];")


def render(s: Schedule, *, bias: bool) -> str:
    """The body of the function."""
    w = Writer()
    if s.aligned:
        w.line(*(f"{name} = __builtin_assume_aligned({name}, 64);" for name in ("A", "B", "C", "work")))
    operands = _Operands(s)
    operands.prepare(w)
    in_register = _in_register(s)
    if not in_register and not _starts_inside(s):
        with w.loop("i", "0", "m"):
            _start(w, s, bias=bias)
    _nest(w, s, operands, bias=bias)
    if bias:
        _epilogue(w, s, in_register=in_register)
    return w.text()


def _in_register(s: Schedule) -> bool:
    """True when an element of C is finished in one go, so that nothing needs to be set to zero before or touched again."""
    return s.order[-1] == "p" and not s.tile_p


def _starts_inside(s: Schedule) -> bool:
    """True when rows of C get their first value just before they are added to, and not in a pass of their own."""
    rows_once = s.order[0] == "i" and bool(s.tile_i or not (s.tile_j or s.tile_p))  # else a block of j or p comes to a row again
    return bool(s.fused) and rows_once and not _in_register(s)


def _start(w: Writer, s: Schedule, *, bias: bool) -> None:
    with w.loop("j", "0", "n"):
        w.line(f"C[i * n + j] = {'bias[j]' if bias and s.fused == 2 else '0.0f'};")


def _nest(w: Writer, s: Schedule, operands: _Operands, *, bias: bool) -> None:
    tiles = {"i": s.tile_i, "j": s.tile_j, "p": s.tile_p}
    bounds: dict[str, tuple[str, str]] = {}
    pending = "omp parallel for" if s.parallel else ""

    def blocks(names: str) -> None:
        nonlocal pending
        if not names:
            points(s.order)
            return
        pragma = pending if tiles[names[0]] else ""
        pending = "" if tiles[names[0]] else pending
        with w.tiles(names[0], "0", _EXTENT[names[0]], tiles[names[0]], s, pragma) as bounds[names[0]]:
            if names[0] == s.order[0] and s.tile_i and _starts_inside(s):
                with w.loop("i", *bounds["i"]):
                    _start(w, s, bias=bias)
            blocks(names[1:])

    def points(names: str, steps: int = 1) -> None:
        nonlocal pending
        name, (low, high) = names[0], bounds[names[0]]
        if len(names) == 1:
            _innermost(w, s, operands, name, low, high, steps, bias=bias)
            return
        pragma, pending = pending, ""
        if name == "p" and s.unroll > 1 and not pragma:  # unroll and jam: several p for one pass over C
            w.line(f"long p = {low};")
            with w.block(f"for (; p + {s.unroll} <= {high}; p += {s.unroll})"):
                inside(names, s.unroll)
            if s.remainder:
                with w.block(f"for (; p < {high}; ++p)"):
                    inside(names, 1)
            return
        with w.loop(name, low, high, pragma=pragma):
            if name == s.order[0] and not s.tile_i and _starts_inside(s):
                _start(w, s, bias=bias)
            inside(names, steps)

    def inside(names: str, steps: int) -> None:
        if s.prefetch and len(names) == 2:
            w.line(f"__builtin_prefetch(&{_prefetched(operands, names, bounds[names[1]][0], s.prefetch)});")
        points(names[1:], steps)

    blocks(s.order)


def _innermost(w: Writer, s: Schedule, operands: _Operands, name: str, low: str, high: str, steps: int, *, bias: bool) -> None:
    if name != "p":
        terms = " + ".join(f"{operands.a('i', p)} * {operands.b(p, 'j')}" for p in ("p" if q == 0 else f"(p + {q})" for q in range(steps)))
        pragma = f"omp simd simdlen({s.simd})" if s.simd else ""
        with w.loop(name, low, high, pragma=pragma):
            w.line(f"C[i * n + j] += {terms};")
        return
    in_register = _in_register(s)
    w.line(f"float acc = {'0.0f' if in_register else 'C[i * n + j]'};")
    w.inner("p", low, high, lambda p, k: [f"acc{k} += {operands.a('i', p)} * {operands.b(p, 'j')};"], s, [("+", "acc")])
    if bias and s.fused == 2 and in_register:
        w.line("acc += bias[j];", "C[i * n + j] = acc > 0.0f ? acc : 0.0f;")
    else:
        w.line("C[i * n + j] = acc;")


def _prefetched(operands: _Operands, names: str, start: str, distance: int) -> str:
    """The element that the second-innermost loop touches first, ``distance`` of its steps ahead."""
    at = {names[0]: f"({names[0]} + {distance})", names[1]: start}
    if "i" not in at:
        return operands.b(at["p"], at["j"]).removeprefix("(float)")
    return operands.a(at["i"], at["p"]).removeprefix("(float)") if "p" in at else f"C[{at['i']} * n + {at['j']}]"


def _epilogue(w: Writer, s: Schedule, *, in_register: bool) -> None:
    if s.fused == 2 and in_register:
        return
    value = "C[i * n + j]"
    if s.fused == 0:
        with w.loop("i", "0", "m"), w.loop("j", "0", "n"):
            w.line(f"{value} += bias[j];")
    with w.loop("i", "0", "m"), w.loop("j", "0", "n"):
        w.line(f"const float v = {value}{' + bias[j]' if s.fused == 1 else ''};", f"{value} = v > 0.0f ? v : 0.0f;")


def touched_bytes(s: Schedule, m: int, n: int, k: int, *, bias: bool) -> float:
    """Bytes that the loop nest loads and stores after register reuse: an operand that the innermost loop does not index is loaded once for it."""
    extent = {"i": min(s.tile_i or m, m), "j": min(s.tile_j or n, n), "p": min(s.tile_p or k, k)}
    inner, total = s.order[-1], float(m) * n * k
    element = 2 if s.storage == "fp16" else 4
    a = total / (extent["j"] if inner == "j" else 1)
    b = total / (extent["i"] if inner == "i" else 1)
    c = 2 * total / (extent["p"] if inner == "p" else s.unroll)
    copied = float(k * n if s.layout != "rows" else 0)
    sweeps = (0 if _in_register(s) else 1) + ((4, 2, 0 if _in_register(s) else 2)[s.fused] if bias else 0)
    return element * (a + b) + 4 * c + 8 * copied + 4.0 * sweeps * m * n


def tile(s: Schedule, m: int, n: int, k: int) -> tuple[float, float]:
    """Bytes of the operands of one block, and its iterations."""
    i, j, p = s.tile_i or m, s.tile_j or n, s.tile_p or k
    return 4.0 * (i * p + p * j + i * j), float(i) * j * p
