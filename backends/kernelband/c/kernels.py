"""The eight kernels of the card: what each computes, at which sizes, its signature in C and its reference in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from backends.kernelband.c import render_attention, render_matmul, render_rows, render_stencil
from backends.kernelband.c.schedule import Schedule
from backends.kernelband.c.writer import EXP

Array = np.ndarray
Extents = tuple[int, ...]
Inputs = Mapping[str, Array]

EPS = 1e-6
BAND = 64  # rows of the stencil's reference that are swept together: two float64 bands stay in the cache


@dataclass(frozen=True)
class Kernel:
    """extents: the run-time sizes, named by ``sizes``, of a leading size; checks: two sets of them, one of which no block divides.

    scale: of the normal inputs, chosen so that sums in float32 keep the tolerance and in float16 do not. flops: of one call. bytes moved at
    least are each input and output once. touched and tile take a schedule and the extents.
    """

    name: str
    task: str
    sizes: tuple[str, ...]
    shapes: Callable[..., dict[str, Extents]]
    output: Callable[..., Extents]
    out: str
    reference: Callable[..., Array]
    flops: Callable[..., float]
    body: Callable[[Schedule], str]
    work: Callable[..., int]
    touched: Callable[..., float]
    tile: Callable[..., tuple[float, float]]
    extents: Callable[[int], Extents]
    default: int
    checks: tuple[Extents, Extents]
    scale: float = 1.0
    helpers: bool = False  # needs exp

    @property
    def symbol(self) -> str:
        return self.name.replace("-", "_")

    @property
    def signature(self) -> str:
        """The exact C signature."""
        inputs = [f"const float *restrict {name}" for name in self.shapes(*self.checks[0])]
        return f"void {self.symbol}({', '.join([*inputs, f'float *restrict {self.out}', 'float *restrict work', *(f'long {name}' for name in self.sizes)])})"

    def source(self, schedule: Schedule) -> str:
        """The whole text of a schedule."""
        helper = EXP + "\n" if self.helpers and schedule.simd else ""
        return f"#include <math.h>\n#include <stddef.h>\n\n{helper}{self.signature} {{\n{self.body(schedule)}}}\n"

    def compulsory_bytes(self, extents: Extents) -> float:
        """Each input once, each output once."""
        return 4.0 * (sum(float(np.prod(shape)) for shape in self.shapes(*extents).values()) + float(np.prod(self.output(*extents))))

    def buffer_bytes(self, extents: Extents) -> float:
        """Memory of one call: inputs, output and scratch."""
        return self.compulsory_bytes(extents) + 4.0 * self.work(*extents)


def _double(x: Inputs) -> dict[str, Array]:
    return {name: value.astype(np.float64) for name, value in x.items()}


def _matmul(x: Inputs, *_extents: int) -> Array:
    given = _double(x)
    return np.asarray(given["A"] @ given["B"])


def _matmul_bias_relu(x: Inputs, *extents: int) -> Array:
    return np.maximum(_matmul(x, *extents) + x["bias"].astype(np.float64), 0.0)


def _softmax(x: Inputs, *_extents: int) -> Array:
    p = x["X"].astype(np.float64)
    p -= p.max(1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(1, keepdims=True)
    return p


def _rmsnorm(x: Inputs, *_extents: int) -> Array:
    y = x["X"].astype(np.float64)
    y /= np.sqrt(np.einsum("rd,rd->r", y, y) / y.shape[1] + EPS)[:, None]
    y *= x["gamma"]
    return y


def _layernorm(x: Inputs, *_extents: int) -> Array:
    y = x["X"].astype(np.float64)
    y -= y.mean(1, keepdims=True)
    y /= np.sqrt(np.einsum("rd,rd->r", y, y) / y.shape[1] + EPS)[:, None]
    y *= x["gamma"]
    y += x["beta"]
    return y


def _row_sum(x: Inputs, *_extents: int) -> Array:
    return x["X"].sum(1, dtype=np.float64)


def _stencil(x: Inputs, rows: int, cols: int, sweeps: int) -> Array:
    """In bands with a halo of ``sweeps`` rows, which stay in the cache; ten sweeps over the whole grid take five times as long."""
    grid = x["X"]
    out = np.empty((rows, cols))
    for start in range(0, rows, BAND):
        low, high = max(start - sweeps, 0), min(start + BAND + sweeps, rows)
        band = grid[low:high].astype(np.float64)
        new = np.empty((high - low - 2, cols - 2))
        for _ in range(sweeps):
            np.add(band[:-2, 1:-1], band[2:, 1:-1], out=new)
            new += band[1:-1, :-2]
            new += band[1:-1, 2:]
            new += band[1:-1, 1:-1]
            new *= 0.2
            band[1:-1, 1:-1] = new
        out[start : start + BAND] = band[start - low : start - low + BAND]
    return out


def _attention(x: Inputs, _length: int, d: int) -> Array:
    given = _double(x)
    return _softmax({"X": given["Q"] @ given["K"].T / np.sqrt(d)}) @ given["V"]


def _rows(
    name: str, task: str, reference: Callable[..., Array], default: int, cols: int, flops: float, parameters: tuple[str, ...] = (), scale: float = 1.0
) -> Kernel:
    summed = name == "row-sum"
    return Kernel(
        name=name,
        task=task,
        sizes=("rows", "cols"),
        shapes=lambda r, d: {"X": (r, d), **dict.fromkeys(parameters, (d,))},
        output=lambda r, d: (r,) if summed else (r, d),
        out="Y",
        reference=reference,
        flops=lambda r, d: flops * r * d,
        body=lambda s: render_rows.render(name, s),
        work=render_rows.work_floats,
        touched=lambda s, r, d: render_rows.touched_bytes(name, s, r, d),
        tile=render_rows.tile,
        extents=lambda size: (size, cols),
        default=default,
        checks=((131, 67), (96, 256)),
        scale=scale,
        helpers=name == "softmax",
    )


def _product(name: str, task: str, *, bias: bool) -> Kernel:
    return Kernel(
        name=name,
        task=task,
        sizes=("m", "n", "k"),
        shapes=lambda m, n, k: {"A": (m, k), "B": (k, n), **({"bias": (n,)} if bias else {})},
        output=lambda m, n, k: (m, n),
        out="C",
        reference=_matmul_bias_relu if bias else _matmul,
        flops=lambda m, n, k: 2.0 * m * n * k + (2.0 * m * n if bias else 0.0),
        body=lambda s: render_matmul.render(s, bias=bias),
        work=render_matmul.work_floats,
        touched=lambda s, m, n, k: render_matmul.touched_bytes(s, m, n, k, bias=bias),
        tile=render_matmul.tile,
        extents=lambda n: (n, n, n),
        default=384,
        checks=((131, 67, 93), (96, 64, 128)),
    )


KERNELS: Mapping[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        _product("matmul", "C = A B, A of shape (m, k), B of shape (k, n)", bias=False),
        _product("matmul-bias-relu", "C = max(A B + bias, 0), A of shape (m, k), B of shape (k, n)", bias=True),
        _rows("softmax", "softmax of each row of X", _softmax, 4096, 1024, 5, scale=3.0),
        _rows("rmsnorm", "Y = X / sqrt(mean of squares of the row + 1e-6) * gamma", _rmsnorm, 4096, 2048, 4, ("gamma",)),
        _rows("layernorm", "Y = (X - mean) / sqrt(variance + 1e-6) * gamma + beta, by rows", _layernorm, 4096, 2048, 7, ("gamma", "beta")),
        _rows("row-sum", "Y = sum of each row of X", _row_sum, 8192, 2048, 1, scale=0.25),
        Kernel(
            name="stencil",
            task="sweeps times: each inner point of X becomes the mean of itself and its four neighbours, the border stays",
            sizes=("rows", "cols", "sweeps"),
            shapes=lambda rows, cols, _sweeps: {"X": (rows, cols)},
            output=lambda rows, cols, _sweeps: (rows, cols),
            out="Y",
            reference=_stencil,
            flops=lambda rows, cols, sweeps: 6.0 * rows * cols * sweeps,
            body=render_stencil.render,
            work=lambda rows, cols, _sweeps: render_stencil.work_floats(rows, cols),
            touched=render_stencil.touched_bytes,
            tile=lambda s, rows, cols, _sweeps: render_stencil.tile(s, rows, cols),
            extents=lambda n: (n, n, 10),
            default=2048,
            checks=((131, 67, 3), (96, 128, 10)),
            scale=4.0,
        ),
        Kernel(
            name="attention",
            task="O = softmax(Q K^T / sqrt(d)) V, all of shape (length, d)",
            sizes=("length", "d"),
            shapes=lambda length, d: {"Q": (length, d), "K": (length, d), "V": (length, d)},
            output=lambda length, d: (length, d),
            out="O",
            reference=_attention,
            flops=lambda length, d: 4.0 * length * length * d,
            body=render_attention.render,
            work=render_attention.work_floats,
            touched=render_attention.touched_bytes,
            tile=render_attention.tile,
            extents=lambda length: (length, 64),
            default=512,
            checks=((131, 67), (96, 64)),
            scale=1.5,
            helpers=True,
        ),
    )
}
