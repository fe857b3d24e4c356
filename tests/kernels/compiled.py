"""Compiles each kernel ahead of time for sm_80 and sm_90, without a GPU, and prints what it needs as JSON, one object a line.

A script of its own: a kernel that was interpreted in this process cannot be compiled. ``python -m tests.kernels.compiled``
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kernels import ahead_of_time, attention_column_mass, dequant_matmul, headwise_rmsnorm, lcs, pairwise_mismatch, rounding, voronoi_boxes

TARGETS = (80, 90)
STAGES = 3  # what a launch takes where it names none
NAMES = {"float32": "*fp32", "bfloat16": "*bf16"}


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel with one choice of its compile-time constants."""

    name: str
    kernel: Any
    types: dict[str, str]  # of the run-time arguments, pointers as *fp16
    constants: dict[str, Any]
    warps: int = 4
    stages: int = STAGES


def cases() -> Iterator[Case]:
    forward, backward = headwise_rmsnorm.triton_kernels()
    attend, collect = attention_column_mass.triton_kernels()
    observe, steer = lcs.triton_kernels()
    # Wider and narrower heads and fp16 compile as well; these two bound the registers and the shared memory of the rest.
    for dtype, width in (("float32", 64), ("bfloat16", 128)):
        pointer = NAMES[dtype]
        rows = {"D": width, "ROWS": headwise_rmsnorm.ROWS, "BLOCK": width}
        pointers = {"x_ptr": pointer, "gamma_ptr": "*fp32"}
        ends = {"heads": "i32", "eps": "fp32"}
        label = f"{dtype} D={width}"
        yield Case(f"headwise_rmsnorm forward {label}", forward, {**pointers, "y_ptr": pointer, "rows": "i32", **ends}, {**rows, "SHARED": False})
        yield Case(
            f"headwise_rmsnorm backward {label}",
            backward,
            {**pointers, "dy_ptr": pointer, "dx_ptr": pointer, "dgamma_ptr": "*fp32", "positions": "i32", **ends},
            {**rows, "SHARED": True},
        )
        tile = {"D": width, "WIDEN": False, **attention_column_mass.tile(getattr(torch, dtype), width)}
        sizes = {"length": "i32", "heads": "i32", "groups": "i32"}
        reals, warps = {"scale": "fp32", "eps": "fp32"}, attention_column_mass.WARPS
        inputs = {"q_ptr": pointer, "k_ptr": pointer}
        for norm in (False, True):
            yield Case(
                f"attention_column_mass attend {label} norm={norm}",
                attend,
                {**inputs, "v_ptr": pointer, "isolated_ptr": "*i8", "gamma_ptr": "*fp32", "output_ptr": pointer, "lse_ptr": "*fp32", **sizes, **reals},
                {**tile, "NORM": norm, "SHARED": False},
                warps,
            )
        yield Case(
            f"attention_column_mass collect {label}",
            collect,
            {**inputs, "isolated_ptr": "*i8", "lse_ptr": "*fp32", "mass_ptr": "*fp32", **sizes, "first_query": "i32", "scale": "fp32"},
            {**tile, "DIAGONAL": True},
            warps,
        )
        constants = {"CLIP": dtype == "float32", "BLOCK": lcs.TOKENS}
        tables = {"basis_ptr": "*fp32", "table_ptr": "*fp32"}
        outputs = {"coordinates_ptr": "*fp32", "hsl_ptr": "*fp32", "rgb_ptr": "*fp32"}
        yield Case(f"lcs observe {dtype}", observe, {"x_ptr": pointer, **tables, **outputs, "tokens": "i32"}, constants)
        moved = {"x_ptr": pointer, "mask_ptr": "*i8", "move_ptr": "*fp32", **tables, "out_ptr": pointer}
        yield Case(f"lcs steer {dtype}", steer, {**moved, "tokens": "i32", "length": "i32", "gamma": "fp32"}, constants)
    (count,) = pairwise_mismatch.triton_kernels()
    for probes in (40, 4000):
        types = {"codes_ptr": "*i32", "counts_ptr": "*i32", "n": "i32", "probes": "i32"}
        yield Case(f"pairwise_mismatch P={probes}", count, types, pairwise_mismatch.tile(probes))
    (weigh,) = voronoi_boxes.triton_kernels()
    for real, d, cells, components in (("*fp64", 2, 16, 1), ("*fp64", 6, 64, 4), ("*fp32", 2, 16, 4)):
        reals = dict.fromkeys(("low_ptr", "high_ptr", "normals_ptr", "offsets_ptr", "weights_ptr", "mean_ptr", "sd_ptr", "mass_ptr"), real)
        counts = {"boxes": "i32", "cells": "i32", "components": "i32", "tie": "fp32"}
        types = {**reals, "owner_ptr": "*i64", "kind_ptr": "*i8", **counts}
        yield Case(f"voronoi_boxes {real} K={cells} d={d}", weigh, types, voronoi_boxes.tile(d, cells, components), voronoi_boxes.WARPS)
    yield from quantisation()


def quantisation() -> Iterator[Case]:
    """The kernels of weights of a few bits: the widest cluster and a common one; each way of reading 3 bits, and 4 bits, which never lie across words."""
    (objective,) = rounding.triton_kernels()
    given = ("v_ptr", "floor_ptr", "scale_ptr", "zero_ptr", "target_ptr", "metric_ptr", "recon_ptr", "regulariser_ptr", "gradient_ptr")
    types = {**dict.fromkeys(given, "*fp32"), **dict.fromkeys(("rows", "columns", "groups"), "i32"), **dict.fromkeys(("top", "weight", "beta"), "fp32")}
    for columns in (96, 256):
        yield Case(f"rounding c={columns}", objective, types, rounding.tile(columns), rounding.warps(columns))
    decode, prefill = dequant_matmul.triton_kernels()
    for bits in (3, 4):
        for dtype in NAMES:
            pointers = {"x_ptr": NAMES[dtype], "words_ptr": "*i32", "scale_ptr": "*fp32", "zero_ptr": "*fp32", "y_ptr": NAMES[dtype]}
            sizes = dict.fromkeys(("n", "k", "line", "groups", "width"), "i32")
            yield Case(f"dequant_matmul decode {dtype} {bits} bits", decode, {**pointers, **sizes}, {"BITS": bits, **dequant_matmul.decode_tile()})
            constants = {"BITS": bits, "WIDEN": False, **dequant_matmul.prefill_tile(getattr(torch, dtype))}
            stages = dequant_matmul.prefill_stages(getattr(torch, dtype))
            yield Case(
                f"dequant_matmul prefill {dtype} {bits} bits", prefill, {**pointers, "m": "i32", **sizes}, constants, dequant_matmul.PREFILL_WARPS, stages
            )


def compile_for(case: Case, capability: int) -> dict[str, Any]:
    """Registers and stack a thread, shared bytes a block, warps, and which matrix instruction the PTX holds."""
    pointers = {name for name, kind in case.types.items() if kind.startswith("*")}
    made = ahead_of_time.compile_for(case.kernel, case.types, case.constants, capability, case.warps, case.stages, pointers)
    facts = {"registers": made.registers, "stack": made.spilled, "shared": made.shared, "warps": made.warps, "matrix": made.matrix}
    return {"case": case.name, "capability": capability, **facts}


def main() -> None:
    for case in cases():
        for capability in TARGETS:
            print(json.dumps(compile_for(case, capability)), flush=True)


if __name__ == "__main__":
    main()
