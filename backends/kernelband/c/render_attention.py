"""C text of attention: O = softmax(Q K^T / sqrt(d)) V for one head, Q, K, V and O of shape (length, d)."""

from __future__ import annotations

from backends.kernelband.c.schedule import Schedule
from backends.kernelband.c.writer import Writer

ONLINE_KEYS = 64  # keys of one block of the online softmax where the schedule names no block


def work_floats(length: int, d: int) -> int:
    """The full score matrix and copies of K and V."""
    return length * length + 2 * length * d


def render(s: Schedule) -> str:
    """The body of the function."""
    w = Writer()
    if s.aligned:
        w.line(*(f"{name} = __builtin_assume_aligned({name}, 64);" for name in ("Q", "K", "V", "O", "work")))
    w.line("const float scale = 1.0f / sqrtf(d);")
    _prepare(w, s)
    pragma = "omp parallel for" if s.parallel else ""
    if s.fused == 0:
        w.line("float *restrict P = work;")
        for step in (_scores, _softmax, _values):
            with w.tiles("i", "0", "length", s.tile_i, s, pragma) as (low, high), w.loop("i", low, high, pragma="" if s.tile_i else pragma):
                w.line("float *restrict p = P + i * length;")
                step(w, s)
        return w.text()
    block = s.tile_i or 1
    with w.tiles("i", "0", "length", block, s, pragma) as (low, high):
        if s.fused == 1:
            w.line(f"float P[{block} * length];")
            for step in (_scores, _softmax, _values):
                with w.loop("i", low, high):
                    w.line(f"float *restrict p = P + (i - {low}) * length;")
                    step(w, s)
        else:
            with w.loop("i", low, high):
                _online(w, s)
    return w.text()


def _prepare(w: Writer, s: Schedule) -> None:
    half = s.storage == "fp16"
    kind = "_Float16" if half else "float"
    for name, at in (("K", 0), ("V", 1)):
        transposed = _transposed(s, name)
        if half or transposed:
            w.line(f"{kind} *restrict {name}c = ({kind} *)(work + length * length){' + length * d' if at else ''};")
            with w.loop("j", "0", "length"), w.loop("c", "0", "d"):
                w.line(f"{name}c[{'c * length + j' if transposed else 'j * d + c'}] = {'(_Float16)' if half else ''}{name}[j * d + c];")


def _transposed(s: Schedule, name: str) -> bool:
    return s.layout == ("keys-transposed" if name == "K" else "values-transposed")


def _element(s: Schedule, name: str, j: str, c: str) -> str:
    half, transposed = s.storage == "fp16", _transposed(s, name)
    index = f"{c} * length + {j}" if transposed else f"{j} * d + {c}"
    return f"{'(float)' if half else ''}{name}{'c' if half or transposed else ''}[{index}]"


def _prefetch(w: Writer, s: Schedule, name: str, j: str, c: str) -> None:
    if s.prefetch:
        w.line(f"__builtin_prefetch(&{_element(s, name, j, c).removeprefix('(float)')});")


def _scores(w: Writer, s: Schedule, low: str = "0", high: str = "length", *, blocks: bool = True, base: str = "") -> None:
    """p[j - base] = Q[i] . K[j] * scale for the keys low..high."""
    with w.tiles("j", low, high, s.tile_j if blocks else 0, s) as (first, last):
        if _transposed(s, "K"):
            with w.loop("j", first, last):
                w.line(f"{_score('j', base)} = 0.0f;")
            with w.loop("c", "0", "d"):
                _prefetch(w, s, "K", first, f"(c + {s.prefetch})")
                w.line("const float q = Q[i * d + c] * scale;")
                w.inner("j", first, last, lambda j, _k: [f"{_score(j, base)} += q * {_element(s, 'K', j, 'c')};"], s)
        else:
            with w.loop("j", first, last):
                _prefetch(w, s, "K", f"(j + {s.prefetch})", "0")
                w.line("float acc = 0.0f;")
                w.inner("c", "0", "d", lambda c, k: [f"acc{k} += Q[i * d + {c}] * {_element(s, 'K', 'j', c)};"], s, [("+", "acc")])
                w.line(f"{_score('j', base)} = acc * scale;")


def _softmax(w: Writer, s: Schedule) -> None:
    w.line("float top = -INFINITY, sum = 0.0f;")
    w.inner("j", "0", "length", lambda j, k: [f"top{k} = p[{j}] > top{k} ? p[{j}] : top{k};"], s, [("max", "top")])
    w.inner("j", "0", "length", lambda j, k: [f"p[{j}] = {_exp(s)}(p[{j}] - top);", f"sum{k} += p[{j}];"], s, [("+", "sum")])
    w.line("const float share = 1.0f / sum;")
    w.inner("j", "0", "length", lambda j, _k: [f"p[{j}] *= share;"], s)


def _values(w: Writer, s: Schedule) -> None:
    """O[i] = p . V."""
    with w.loop("c", "0", "d"):
        w.line("O[i * d + c] = 0.0f;")
    with w.tiles("j", "0", "length", s.tile_j, s) as (first, last):
        _add_values(w, s, first, last)


def _add_values(w: Writer, s: Schedule, first: str, last: str, base: str = "") -> None:
    if s.order == "dot":
        with w.loop("c", "0", "d"):
            _prefetch(w, s, "V", first, f"(c + {s.prefetch})")
            w.line("float acc = O[i * d + c];")
            w.inner("j", first, last, lambda j, k: [f"acc{k} += {_score(j, base)} * {_element(s, 'V', j, 'c')};"], s, [("+", "acc")])
            w.line("O[i * d + c] = acc;")
    else:
        with w.loop("j", first, last):
            _prefetch(w, s, "V", f"(j + {s.prefetch})", "0")
            w.inner("c", "0", "d", lambda c, _k: [f"O[i * d + {c}] += {_score('j', base)} * {_element(s, 'V', 'j', c)};"], s)


def _online(w: Writer, s: Schedule) -> None:
    """One query over blocks of keys: the sum and the output are rescaled whenever a larger score turns up."""
    block = s.tile_j or ONLINE_KEYS
    w.line(f"float top = -INFINITY, sum = 0.0f, p[{block}];")
    with w.loop("c", "0", "d"):
        w.line("O[i * d + c] = 0.0f;")
    with w.tiles("j", "0", "length", block, s) as (first, last):
        _scores(w, s, first, last, blocks=False, base=first)
        w.line("const float seen = top;")
        w.inner("j", first, last, lambda j, k: [f"top{k} = {_score(j, first)} > top{k} ? {_score(j, first)} : top{k};"], s, [("max", "top")])
        w.line(f"const float shrink = {_exp(s)}(seen - top);", "sum *= shrink;")
        w.inner(
            "j", first, last, lambda j, k: [f"{_score(j, first)} = {_exp(s)}({_score(j, first)} - top);", f"sum{k} += {_score(j, first)};"], s, [("+", "sum")]
        )
        w.inner("c", "0", "d", lambda c, _k: [f"O[i * d + {c}] *= shrink;"], s)
        _add_values(w, s, first, last, base=first)
    w.line("const float share = 1.0f / sum;")
    w.inner("c", "0", "d", lambda c, _k: [f"O[i * d + {c}] *= share;"], s)


def _score(j: str, base: str) -> str:
    return f"p[{j} - {base}]" if base else f"p[{j}]"


def _exp(s: Schedule) -> str:
    return "exp_lane" if s.simd else "expf"


def touched_bytes(s: Schedule, length: int, d: int) -> float:
    """Both products and the passes over the scores, less what stays in registers along each innermost loop."""
    pairs = float(length) * length
    element = 2 if s.storage == "fp16" else 4
    scores = pairs * d * (element + (8 if _transposed(s, "K") else 4)) + 4 * pairs
    values = pairs * d * (element + (4 if s.order == "dot" else 8))
    passes = 4 * pairs * (6 if s.fused < 2 else 3)
    copies = sum(float(length) * d * (4 + element) for name in "KV" if element == 2 or _transposed(s, name))
    return scores + values + passes + copies


def tile(s: Schedule, length: int, d: int) -> tuple[float, float]:
    """Bytes of the queries, keys, values and scores of one block, and its multiply-adds of one product."""
    i = s.tile_i or (length if s.fused == 0 else 1)
    j = s.tile_j or (ONLINE_KEYS if s.fused == 2 else length)
    return 4.0 * (2 * i * d + 2 * j * d + i * j), float(i) * j * d
