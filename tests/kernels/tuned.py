"""The kernels that take a schedule: interpreted beside their references, or compiled ahead of time; figures as JSON, one object a line.

A script of its own, because an interpreted kernel cannot be compiled in the same process:
``TRITON_INTERPRET=1 python -m tests.kernels.tuned interpreted`` and ``python -m tests.kernels.tuned compiled``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from kernels import ahead_of_time, flash_attention, launching, layernorm, matmul_bias_relu, rmsnorm, row_schedule, softmax
from kernels.flash_attention import AttentionSchedule
from kernels.matmul_bias_relu import MatmulSchedule
from kernels.row_schedule import RowSchedule
from tests.kernels.interpreted import relative

TARGETS = (80, 90)
DTYPES = (torch.float32, torch.float16)
# Everything that changes the program at once: several rows and programs, steps that do not fit, unrolled, rows far apart.
FAR = {"rows": 2, "block": 16, "stages": 2, "unroll": 2, "programs": 2, "interleaved": True, "load": "evict_first", "store": ".cs"}
ROWS: dict[str, RowSchedule] = {"two passes": RowSchedule(passes=2, **FAR), "one pass": RowSchedule(rows=4, passes=1)}
THREE = {"three passes": RowSchedule(rows=2, block=16, passes=3)}
MATMULS = {
    "grouped": MatmulSchedule(block_m=16, block_n=32, block_k=16, group=3),
    "split": MatmulSchedule(block_m=32, block_n=16, block_k=16, split_k=3, fused=False, columns_first=True, group=2, unroll=2, load="evict_last"),
}
ATTENTIONS = {
    "one pass": AttentionSchedule(rows=32, keys=16),
    "two passes": AttentionSchedule(rows=16, keys=32, passes=2, reverse=True, unroll=2),
    "three passes": AttentionSchedule(rows=32, keys=16, passes=3, load="evict_first"),
}

Make = Callable[..., torch.Tensor]


def row_checks(make: Make) -> Iterator[tuple[str, str, torch.Tensor, torch.Tensor]]:
    for shape in ((1, 1), (5, 37), (7, 3, 100)):  # one number; no multiple of any tile; a batch of matrices
        x, weight, bias = make(*shape), make(shape[-1]), make(shape[-1])
        for name, schedule in {"default": row_schedule.default(shape[-1]), **ROWS}.items():
            yield "rmsnorm", f"{shape} {name}", rmsnorm.launch(x, weight, schedule=schedule), rmsnorm.reference(x, weight)
        for name, schedule in {**ROWS, **THREE}.items():
            yield "softmax", f"{shape} {name}", softmax.launch(x, schedule), softmax.reference(x)
            shifted = x + 50  # where a variance from sums of squares would lose its digits
            yield "layernorm", f"{shape} {name}", layernorm.launch(shifted, weight, bias, schedule=schedule), layernorm.reference(shifted, weight, bias)
    hidden = make(3, 20).masked_fill(torch.arange(20) % 3 == 0, -torch.inf)
    for name, schedule in {**ROWS, **THREE}.items():
        yield "softmax", f"masked entries {name}", softmax.launch(hidden, schedule), softmax.reference(hidden)


def matmul_checks(make: Make) -> Iterator[tuple[str, str, torch.Tensor, torch.Tensor]]:
    for m, n, k in ((1, 1, 1), (37, 67, 21), (64, 32, 48)):
        a, b, bias = make(m, k), make(k, n), make(n)
        for name, schedule in MATMULS.items():
            for layout, right in (("rows", b), ("columns", b.T.contiguous().T)):
                found = matmul_bias_relu.launch(a, right, bias, schedule)
                yield "matmul_bias_relu", f"{(m, n, k)} {name}, b by {layout}", found, matmul_bias_relu.reference(a, b, bias)


def attention_checks(make: Make) -> Iterator[tuple[str, str, torch.Tensor, torch.Tensor]]:
    for shape in ((1, 1, 1, 1), (1, 2, 37, 20), (2, 1, 64, 16)):
        q, k, v = make(*shape), make(*shape), make(*shape)
        for name, schedule in ATTENTIONS.items():
            for causal in (False, True):
                found, wanted = flash_attention.launch(q, k, v, causal, schedule), flash_attention.reference(q, k, v, causal)
                yield "flash_attention", f"{shape} {name} causal={causal}", found, wanted


def interpreted() -> Iterator[dict[str, Any]]:
    for dtype in DTYPES:
        generator = torch.Generator().manual_seed(0)

        def make(*shape: int, dtype: torch.dtype = dtype, generator: torch.Generator = generator) -> torch.Tensor:
            return torch.randn(shape, generator=generator).to(dtype)

        for checks in (row_checks, matmul_checks, attention_checks):
            for kernel, case, found, wanted in checks(make):
                yield {"kernel": kernel, "case": case, "dtype": str(dtype).removeprefix("torch."), "error": relative(found, wanted)}


def cases() -> Iterator[tuple[str, Mapping[str, Any], list[launching.Call]]]:
    def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    x, weight = empty(512, 2048), empty(2048)
    for schedule in (row_schedule.default(2048), RowSchedule(rows=2, block=256, passes=2, stages=3, unroll=2)):
        yield "rmsnorm", rmsnorm.triton_kernels(), rmsnorm.calls(x, weight, x, rmsnorm.EPS, schedule)
        yield "softmax", softmax.triton_kernels(), softmax.calls(x, x, schedule)
        yield "layernorm", layernorm.triton_kernels(), layernorm.calls(x, weight, weight, x, layernorm.EPS, schedule)
    for dtype in DTYPES:
        square, bias, q = empty(512, 512, dtype=dtype), empty(512, dtype=dtype), empty(2, 4, 512, 64, dtype=dtype)
        kernels = matmul_bias_relu.triton_kernels()
        yield f"matmul_bias_relu {dtype}", kernels, matmul_bias_relu.calls(square, square, bias, square, matmul_bias_relu.default(dtype))
        kernels = flash_attention.triton_kernels()
        yield f"flash_attention {dtype}", kernels, flash_attention.calls(q, q, q, q, True, flash_attention.default(dtype, 64))


def compiled() -> Iterator[dict[str, Any]]:
    for name, kernels, calls in cases():
        for call in calls:
            for capability in TARGETS:
                made = ahead_of_time.compile_call(kernels[call.kernel], call, capability)
                yield {
                    "case": name, "capability": capability, "registers": made.registers, "spilled": made.spilled, "shared": made.shared,
                    "misfit": made.misfit(), "occupancy": made.occupancy(), "matrix": made.matrix, "wide": "v4.b32" in made.ptx,
                }  # fmt: skip


def main(mode: str) -> None:
    torch.set_num_threads(1)
    for row in {"interpreted": interpreted, "compiled": compiled}[mode]():
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
