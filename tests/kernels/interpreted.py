"""Runs each kernel in Triton's interpreter beside its reference and prints the errors as JSON, one object a line.

A script of its own, because TRITON_INTERPRET=1 must stand before Triton is imported and holds for the whole process:
``TRITON_INTERPRET=1 python -m tests.kernels.interpreted`` or, for one shape,
``... interpreted headwise_rmsnorm 5,3,20 float16`` (positions, H, D), ``... attention_column_mass 1,4,2,100,64 bfloat16`` (B, H, G, T, D);
``pairwise_mismatch`` has whole numbers (N, P) whatever the dtype.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import torch

from kernels import attention_column_mass, headwise_rmsnorm, pairwise_mismatch

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "headwise_rmsnorm": [(1, 1, 1), (5, 3, 20), (40, 4, 64)],  # one number; no multiple of any tile; several programs
    "attention_column_mass": [(1, 1, 1, 1, 1), (1, 2, 1, 37, 20), (2, 4, 2, 80, 16), (1, 1, 1, 256, 32)],
    "pairwise_mismatch": [(1, 1), (33, 7), (100, 40), (130, 65)],
}
DTYPES = ("float32", "float16", "bfloat16")


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Largest error over the largest true entry (at least 1)."""
    return float((found.double() - wanted.double()).abs().max() / wanted.double().abs().max().clamp(min=1.0))


def check_headwise_rmsnorm(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Iterator[tuple[str, float]]:
    for name, gamma_shape in (("shared", shape[-1:]), ("per-head", shape[-2:])):
        x, dy = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
        gamma = torch.randn(gamma_shape, generator=generator)
        parts = []
        for norm in (headwise_rmsnorm.Fused.apply, headwise_rmsnorm.reference):
            inputs = x.clone().requires_grad_(), gamma.clone().requires_grad_()
            y = norm(*inputs, headwise_rmsnorm.EPS)
            parts.append((y.detach(), *torch.autograd.grad(y, inputs, dy)))
        for part, found, wanted in zip(("forward", "dx", "dgamma"), *parts, strict=True):
            yield f"{name} {part}", relative(found, wanted)


def check_attention_column_mass(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Iterator[tuple[str, float]]:
    batch, heads, groups, length, width = shape
    q = torch.randn(batch, heads, length, width, generator=generator).to(dtype)
    k, v = (torch.randn(batch, groups, length, width, generator=generator).to(dtype) for _ in range(2))
    middle = length // 2
    per_head = torch.randn(heads, width, generator=generator)
    variants: dict[str, dict[str, Any]] = {
        "plain": {},
        "isolated": {"isolate": sorted({middle, length - 1}), "first_query": middle, "diagonal": False},
        "normalised": {"gamma": per_head, "isolate": [0]},
        "shared gamma": {"gamma": per_head[0], "first_query": 1},
    }
    for name, options in variants.items():
        found = attention_column_mass.launch(q, k, v, **options)
        wanted = attention_column_mass.reference(q, k, v, **options)
        yield f"{name} output", relative(found.output, wanted.output)
        yield f"{name} mass", relative(found.mass, wanted.mass)


def check_pairwise_mismatch(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Iterator[tuple[str, float]]:
    codes = torch.randint(-2, 4, shape, generator=generator, dtype=torch.int32)
    found, wanted = pairwise_mismatch.launch(codes), pairwise_mismatch.reference(codes)
    yield "counts", float((found - wanted).abs().max())


CHECKS = {
    "headwise_rmsnorm": check_headwise_rmsnorm,
    "attention_column_mass": check_attention_column_mass,
    "pairwise_mismatch": check_pairwise_mismatch,
}


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    if arguments:
        cases = [(arguments[0], tuple(int(n) for n in arguments[1].split(",")), arguments[2])]
    else:
        cases = [(kernel, shape, dtype) for kernel, shapes in SHAPES.items() for shape in shapes for dtype in DTYPES]
    for kernel, shape, dtype in cases:
        generator = torch.Generator().manual_seed(sum(shape))
        errors = dict(CHECKS[kernel](shape, getattr(torch, dtype), generator))
        print(json.dumps({"kernel": kernel, "shape": shape, "dtype": dtype, "errors": errors}))


if __name__ == "__main__":
    main(sys.argv[1:])
