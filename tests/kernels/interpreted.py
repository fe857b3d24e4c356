"""Runs each kernel in Triton's interpreter beside its reference and prints the errors as JSON, one object a line.

A script of its own, because TRITON_INTERPRET=1 must stand before Triton is imported and holds for the whole process:
``TRITON_INTERPRET=1 python -m tests.kernels.interpreted`` or, for one shape,
``... interpreted headwise_rmsnorm 5,3,20 float16`` (positions, H, D), ``... attention_column_mass 1,4,2,100,64 bfloat16`` (B, H, G, T, D),
``... lcs 2,50 float16`` (N, L); ``pairwise_mismatch`` has whole numbers (N, P) whatever the dtype, ``voronoi_boxes`` (M, K, C, d) float32 and float64,
``rounding`` (R, c, G) a target of the dtype, ``dequant_matmul`` (M, N, K, G).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import torch

from kernels import attention_column_mass, dequant_matmul, headwise_rmsnorm, lcs, pairwise_mismatch, rounding, voronoi_boxes

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "headwise_rmsnorm": [(1, 1, 1), (5, 3, 20), (40, 4, 64)],  # one number; no multiple of any tile; several programs
    "attention_column_mass": [(1, 1, 1, 1, 1), (1, 2, 1, 37, 20), (2, 4, 2, 80, 16), (1, 1, 1, 256, 32)],
    "pairwise_mismatch": [(1, 1), (33, 7), (100, 40), (130, 65)],
    "lcs": [(1, 1), (3, 17), (2, 64)],
    "voronoi_boxes": [(1, 1, 1, 1), (37, 3, 2, 2), (200, 16, 1, 2), (130, 5, 4, 3)],
    "rounding": [(1, 1, 1), (20, 48, 3), (37, 96, 1), (5, 256, 2)],
    "dequant_matmul": [(1, 1, 1, 1), (3, 21, 150, 3), (70, 67, 96, 1), (17, 10, 288, 3)],
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


def double_cone(generator: torch.Generator) -> tuple[lcs.Plane, lcs.Cone]:
    """A tilted cone as found in FLUX.1: hue anchors about 60 degrees and 15 units apart around an axis of 38."""
    tilt = torch.linalg.qr(torch.randn(3, 3, generator=generator))[0]
    angle = torch.arange(lcs.HUES) * torch.pi / 3 + 0.2 * torch.rand(lcs.HUES, generator=generator)
    radius = 14.0 + 3 * torch.rand(lcs.HUES, generator=generator)
    hues = torch.stack((radius * angle.cos(), radius * angle.sin(), 6 * torch.rand(lcs.HUES, generator=generator)), -1) @ tilt
    basis = torch.linalg.qr(torch.randn(64, 3, generator=generator))[0].T
    small = torch.randn(3, 3, generator=generator)
    plane = lcs.Plane(basis.contiguous(), small[0], 1.2 + 0.1 * small[1], 0.1 * small[2])
    return plane, lcs.Cone(hues, -19.0 * tilt[2], 38.0 * tilt[2])


def check_lcs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Iterator[tuple[str, float]]:
    pictures, length = shape
    plane, cone = double_cone(generator)
    x = (5 * torch.randn(pictures, length, 64, generator=generator)).to(dtype)
    mask = torch.rand(pictures, length, generator=generator) < 0.6
    shift, turn = 3 * torch.randn(pictures, 3, generator=generator), torch.rand(pictures, 3, generator=generator) - 0.5
    move = lcs.Move(shift, turn, 0.3)
    for name, clip in (("corrected", True), ("released", False)):
        found, wanted = lcs.launch_observe(x, plane, cone, clip=clip), lcs.observe_reference(x, plane, cone, clip=clip)
        yield f"{name} coordinates", relative(found.coordinates, wanted.coordinates)
        yield f"{name} rgb", relative(found.rgb, wanted.rgb)
        apart = (found.hsl - wanted.hsl).abs()
        yield f"{name} hue", float(torch.minimum(apart[..., 0], 1 - apart[..., 0]).max())
        yield f"{name} saturation", float((apart[..., 1] / wanted.hsl[..., 1].clamp(min=1)).max())
        yield f"{name} lightness", float(apart[..., 2].max())
        steered = lcs.launch_steer(x, mask, plane, cone, move, clip=clip)
        yield f"{name} steered", relative(steered, lcs.steer_reference(x, mask, plane, cone, move, clip=clip))
        yield f"{name} unmasked", float(not torch.equal(steered[~mask], x[~mask]))


def draw_boxes(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """low, high, owner, normals, offsets, weights, mean, sd of M boxes, K cells, C components, d variables; a third of the ends are infinite."""
    boxes, cells, components, d = shape
    ends = torch.randn(2, boxes, d, generator=generator, dtype=torch.float64).sort(0).values
    far = torch.rand(2, boxes, d, generator=generator) < 1 / 3
    low, high = torch.where(far[0], -torch.inf, ends[0]), torch.where(far[1], torch.inf, ends[1])
    owner = torch.randint(cells, (boxes,), generator=generator)
    c = torch.randn(cells, d, generator=generator, dtype=torch.float64)
    normals, square, own = 2 * (c[None] - c[:, None]), (c**2).sum(-1), torch.eye(cells, dtype=torch.bool)
    offsets = torch.where(own, -1.0, square[:, None] - square[None])
    weights = torch.rand(cells, components, generator=generator, dtype=torch.float64) + 0.1
    mean = torch.randn(cells, components, d, generator=generator, dtype=torch.float64)
    sd = 0.3 + torch.rand(cells, components, d, generator=generator, dtype=torch.float64)
    reals = (normals, offsets, weights / weights.sum(-1, keepdim=True), mean, sd)
    return low.to(dtype), high.to(dtype), owner, *(x.to(dtype) for x in reals)


def check_voronoi_boxes(shape: tuple[int, ...], _: torch.dtype, generator: torch.Generator) -> Iterator[tuple[str, float]]:
    given = draw_boxes(shape, torch.float64, generator)
    wanted = voronoi_boxes.reference(*given)
    for dtype in (torch.float64, torch.float32):
        found = voronoi_boxes.launch(*(x if x.dtype == torch.int64 else x.to(dtype) for x in given))
        yield f"{dtype} mass", float((found.mass.double() - wanted.mass).abs().max())
        yield f"{dtype} kind", float((found.kind != wanted.kind).sum())


def draw_rounding(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """v, floor, scale, zero, target, metric of R rows, c columns, G groups at 3 bits; a fifth of the levels are clipped, a tenth of v saturates."""
    rows, columns, groups = shape
    v = 1.5 * torch.randn(rows, columns, generator=generator)
    scale = 0.05 + torch.rand(rows, groups, generator=generator)
    zero = torch.randint(0, 8, (rows, groups), generator=generator).float()
    width = columns // groups
    floor = torch.randint(-1, 8, (rows, columns), generator=generator) - zero.repeat_interleave(width, 1)
    near = floor + torch.rand(rows, columns, generator=generator)
    target = (scale.repeat_interleave(width, 1) * near).to(dtype)
    inputs = torch.randn(columns, 2 * columns, generator=generator)
    return v, floor, scale, zero, target, inputs @ inputs.T / columns


def check_rounding(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Iterator[tuple[str, float]]:
    given = draw_rounding(shape, dtype, generator)
    for weight, beta in ((0.0, 20.0), (1.5, 20.0), (0.7, 2.0)):
        found, wanted = (f(*given, bits=3, weight=weight, beta=beta) for f in (rounding.launch, rounding.reference))
        for part in ("recon", "regulariser", "gradient"):
            yield f"weight={weight} beta={beta} {part}", relative(getattr(found, part), getattr(wanted, part))


def draw_packed(shape: tuple[int, ...], bits: int, generator: torch.Generator) -> dequant_matmul.Packed:
    """N rows of K columns in G groups, weights of the size that keeps the size of x."""
    rows, columns, groups = shape
    levels = torch.randint(2**bits, (rows, columns), generator=generator)
    scale = (0.5 + torch.rand(rows, groups, generator=generator)) / (2**bits * columns**0.5)
    zero = torch.randint(2**bits, (rows, groups), generator=generator).float()
    return dequant_matmul.Packed(dequant_matmul.pack(levels, bits), scale, zero, bits, columns)


def check_dequant_matmul(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Iterator[tuple[str, float]]:
    for bits in (3, 4):
        packed = draw_packed(shape[1:], bits, generator)
        x = torch.randn(shape[0], shape[2], generator=generator).to(dtype)
        yield f"{bits} bits y", relative(dequant_matmul.launch(x, packed), dequant_matmul.reference(x, packed))


CHECKS = {
    "headwise_rmsnorm": check_headwise_rmsnorm,
    "attention_column_mass": check_attention_column_mass,
    "pairwise_mismatch": check_pairwise_mismatch,
    "lcs": check_lcs,
    "voronoi_boxes": check_voronoi_boxes,
    "rounding": check_rounding,
    "dequant_matmul": check_dequant_matmul,
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
