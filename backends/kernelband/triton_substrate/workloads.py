"""The five kernels of the lab that this substrate tunes: sizes, inputs, references in float64, work, and how a schedule is launched."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from backends.kernelband.triton_substrate.schedules import ATTENTION_SPACE, MATMUL_SPACE, Schedule, Tuning, Values, row_space
from kernels import flash_attention, layernorm, matmul_bias_relu, rmsnorm, softmax
from kernels.flash_attention import AttentionSchedule
from kernels.launching import Call
from kernels.matmul_bias_relu import MatmulSchedule
from kernels.row_schedule import RowSchedule

Tensors = Mapping[str, torch.Tensor]
Shapes = Mapping[str, tuple[int, ...]]

ATTENTION_HEADS, HEAD_WIDTH = 8, 64


@dataclass(frozen=True)
class Workload:
    """One kernel. extents: run-time sizes of a leading size; checks: two sets of them, of which one is a multiple of nothing.

    scale: of the normal inputs; the sums that it gives keep the tolerance in fp32 and lose it in fp16. second: the input that ``transposed`` lays
    out by columns. touched: bytes between cache and registers for 4-byte numbers.
    """

    name: str
    task: str
    module: ModuleType
    signature: str
    naive: Schedule
    space: tuple[Values, ...]  # by strategy
    default_size: int
    extents: Callable[[int], tuple[int, ...]]
    checks: tuple[tuple[int, ...], ...]
    shapes: Callable[..., Shapes]
    output: Callable[..., tuple[int, ...]]
    calls: Callable[[Tensors, torch.Tensor, Any], list[Call]]
    reference: Callable[[Tensors], torch.Tensor]
    flops: Callable[..., float]
    touched: Callable[..., float]
    scale: float = 1.0
    second: str | None = None

    @property
    def tuning(self) -> type[Tuning]:
        return type(self.naive.tuning)

    def compulsory_bytes(self, extents: Sequence[int], storage: str) -> float:
        """Each input once, each output once."""
        numbers = sum(math.prod(shape) for shape in self.shapes(*extents).values()) + math.prod(self.output(*extents))
        return float(numbers * getattr(torch, storage).itemsize)

    def placeholders(self, extents: Sequence[int], schedule: Schedule) -> tuple[Tensors, torch.Tensor]:
        """(inputs, output) with shapes and strides but without memory, for whoever only compiles."""
        dtype = getattr(torch, schedule.storage)
        inputs = {name: torch.empty(shape, dtype=dtype, device="meta") for name, shape in self.shapes(*extents).items()}
        return self.laid_out(inputs, schedule), torch.empty(self.output(*extents), dtype=dtype, device="meta")

    def laid_out(self, inputs: Tensors, schedule: Schedule) -> Tensors:
        """The inputs in the memory order that the schedule asks for."""
        if not schedule.transposed or self.second is None:
            return inputs
        return {**inputs, self.second: inputs[self.second].mT.contiguous().mT}


def _row_touched(rows: int, columns: int, tuning: RowSchedule) -> float:
    return 4.0 * rows * columns * (tuning.passes + 1)


def _row(name: str, task: str, module: ModuleType, size: int, columns: int, flops: float, vectors: tuple[str, ...] = ()) -> Workload:
    scalars = {"rmsnorm": "eps", "softmax": "log2e", "layernorm": "eps"}
    pointers = ", ".join(f"{n}_ptr" for n in ("x", *vectors, "y"))
    eps = () if name == "softmax" else (module.EPS,)
    passes = module.PASSES
    return Workload(
        name,
        f"{task} of each row of a matrix of {columns} columns",
        module,
        f"{name}({pointers}, {scalars[name]}, rows, columns)",
        Schedule(RowSchedule(rows=1, block=128, passes=passes, warps=1)),
        row_space(passes),
        size,
        lambda rows: (rows, columns),
        ((19, 131), (4, 256)),
        lambda rows, columns: {"x": (rows, columns), **dict.fromkeys(vectors, (columns,))},
        lambda rows, columns: (rows, columns),
        lambda inputs, y, tuning: module.calls(*inputs.values(), y, *eps, tuning),
        lambda inputs: _double_rows(name, inputs, *eps),
        lambda rows, columns: flops * rows * columns,
        _row_touched,
    )


def _double_rows(name: str, inputs: Tensors, eps: float = 0.0) -> torch.Tensor:
    x = inputs["x"]
    if name == "softmax":
        return x.softmax(-1)
    if name == "rmsnorm":
        return inputs["weight"] * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()
    centred = x - x.mean(-1, keepdim=True)
    return inputs["weight"] * centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt() + inputs["bias"]


def _matmul_touched(m: int, n: int, k: int, tuning: MatmulSchedule) -> float:
    partial = 0 if tuning.fused else 2 * tuning.split_k
    return 4.0 * m * n * (k / tuning.block_m + k / tuning.block_n + 1 + partial)


def _attention_touched(batch: int, heads: int, length: int, width: int, tuning: AttentionSchedule) -> float:
    return 4.0 * batch * heads * length * width * (2 + math.ceil(length / tuning.rows) * (tuning.passes + 1))


MATMUL = Workload(
    "matmul-bias-relu",
    "Y = relu(A @ B + bias) of square matrices",
    matmul_bias_relu,
    "matmul(a_ptr, b_ptr, bias_ptr, y_ptr, m, n, k, stride_bk, stride_bn), and where fused is False epilogue(partial_ptr, bias_ptr, y_ptr, size, n)",
    Schedule(MatmulSchedule(block_m=16, block_n=16, block_k=16, group=1, fused=False, warps=1, stages=1)),
    MATMUL_SPACE,
    2048,
    lambda n: (n, n, n),
    ((35, 67, 45), (32, 32, 64)),
    lambda m, n, k: {"a": (m, k), "b": (k, n), "bias": (n,)},
    lambda m, n, k: (m, n),
    lambda inputs, y, tuning: matmul_bias_relu.calls(inputs["a"], inputs["b"], inputs["bias"], y, tuning),
    lambda inputs: (inputs["a"] @ inputs["b"] + inputs["bias"]).relu(),
    lambda m, n, k: 2.0 * m * n * k + 2.0 * m * n,
    _matmul_touched,
    second="b",
)
ATTENTION = Workload(
    "attention",
    f"Y = softmax(Q K^T / sqrt(D)) V, not causal, {ATTENTION_HEADS} heads of D = {HEAD_WIDTH}",
    flash_attention,
    "attention(q_ptr, k_ptr, v_ptr, y_ptr, scale, length, stride_plane, stride_kt, stride_kd, width); scale holds log2(e)",
    Schedule(AttentionSchedule(rows=16, keys=16, passes=3, warps=1, stages=1)),
    ATTENTION_SPACE,
    2048,
    lambda length: (1, ATTENTION_HEADS, length, HEAD_WIDTH),
    ((1, 2, 37, 48), (1, 1, 64, HEAD_WIDTH)),
    lambda *extents: {"q": extents, "k": extents, "v": extents},
    lambda *extents: extents,
    lambda inputs, y, tuning: flash_attention.calls(inputs["q"], inputs["k"], inputs["v"], y, False, tuning),
    lambda inputs: (inputs["q"] @ inputs["k"].mT / math.sqrt(inputs["q"].shape[-1])).softmax(-1) @ inputs["v"],
    lambda batch, heads, length, width: 4.0 * batch * heads * length**2 * width,
    _attention_touched,
    second="k",
)
WORKLOADS = {
    w.name: w
    for w in (
        MATMUL,
        _row("softmax", "Y = exp(X - max X) / sum exp(X - max X)", softmax, 4096, 1024, 5.0),
        _row("rmsnorm", "Y = weight * X / sqrt(mean X^2 + 1e-6)", rmsnorm, 4096, 2048, 4.0, ("weight",)),
        _row("layernorm", "Y = weight * (X - mean X) / sqrt(variance X + 1e-5) + bias", layernorm, 4096, 2048, 8.0, ("weight", "bias")),
        ATTENTION,
    )
}
