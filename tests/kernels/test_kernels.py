"""Every kernel against its reference in Triton's interpreter, and its compiled form against the limits of sm_80 and sm_90.

Both run in child processes: the interpreter is a switch of the whole process, and an interpreted kernel cannot be compiled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import kernels
from kernels import attention_column_mass, headwise_rmsnorm, lcs, pairwise_mismatch, voronoi_boxes
from tests.kernels.interpreted import draw_boxes

pytestmark = pytest.mark.timeout(240)  # a cold compilation of all cases takes 40 s on a busy host

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ("headwise_rmsnorm", "attention_column_mass", "pairwise_mismatch", "lcs", "voronoi_boxes", "rounding", "dequant_matmul")
SHARED_LIMIT = {80: 166_912, 90: 232_448}  # bytes a block may use (CUDA programming guide)
# fp16 rounds at 2^-11, and weights are rounded once more before they meet the values; the interpreter cuts bf16 off instead of rounding it.
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2**-7}
# Angles of near-parallel vectors: the arc cosine turns a rounding of 1e-7 into 4e-4. Read in fp32 whatever the dtype of the tokens.
HSL, HSL_TOLERANCE = ("hue", "saturation", "lightness", "rgb"), 1e-3


def child(module: str, folder: Path, *arguments: str, **environment: str) -> list[dict[str, Any]]:
    settings = {"TRITON_CACHE_DIR": str(folder), "TRITON_DEFAULT_FP_FUSION": "1", "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(
        [sys.executable, "-m", f"tests.kernels.{module}", *arguments], cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True, timeout=220
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return child("interpreted", tmp_path_factory.mktemp("interpreted"), TRITON_INTERPRET="1")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return child("compiled", tmp_path_factory.mktemp("compiled"))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_interpreted_kernel_equals_its_reference(interpreted: list[dict[str, Any]], kernel: str, dtype: str) -> None:
    cases = [c for c in interpreted if c["kernel"] == kernel and c["dtype"] == dtype]
    assert len(cases) >= 3
    for case in cases:
        for part, error in case["errors"].items():
            # The mass and gamma's gradient leave the kernel in fp32, also where the inputs have half precision.
            exact = {"counts": 0.0, "mass": 1e-6 if kernel == "voronoi_boxes" else 1e-5, "kind": 0.0, "dgamma": 1e-5} | dict.fromkeys(HSL, HSL_TOLERANCE)
            limit = exact.get(part.split()[-1], TOLERANCE[dtype])
            assert error <= limit, f"{kernel} {case['shape']} {dtype} {part}: {error}"


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_compiled_kernel_fits_the_device(compiled: list[dict[str, Any]], kernel: str, capability: int) -> None:
    cases = [c for c in compiled if c["case"].startswith(kernel) and c["capability"] == capability]
    assert len(cases) >= {"pairwise_mismatch": 2, "voronoi_boxes": 3, "rounding": 2}.get(kernel, 4)
    for case in cases:
        assert case["registers"] <= 255, case
        assert case["registers"] * 32 * case["warps"] <= 65_536, case
        assert case["shared"] <= SHARED_LIMIT[capability], case
        assert case["stack"] == 0, f"spilled registers: {case}"
        if ("attention" in kernel or "prefill" in case["case"]) and "bfloat16" in case["case"]:
            assert case["matrix"] == {80: "mma.sync", 90: "wgmma"}[capability], case


def test_importing_kernels_does_not_import_triton() -> None:
    modules = ", ".join(f"kernels.{name}" for name in KERNELS)
    code = f"import sys, {modules}; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=100).returncode == 0


def test_a_cpu_tensor_takes_the_reference() -> None:
    q = torch.randn(1, 2, 5, 4)
    assert not kernels.use_triton(q)
    assert torch.equal(attention_column_mass.op(q, q, q).mass, attention_column_mass.reference(q, q, q).mass)


def test_mass_is_conserved_and_isolation_moves_it() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 40, 8) for _ in range(3))
    plain = attention_column_mass.op(q, k, v)
    assert plain.mass.sum(-1) == pytest.approx(torch.full((2, 3), 40.0), rel=1e-5)
    alone = attention_column_mass.op(q, k, v, isolate=[9])
    assert torch.allclose(alone.output[:, :, 9], v[:, :, 9], atol=1e-6)
    kept = [t for t in range(40) if t != 9]
    assert torch.equal(alone.output[:, :, kept], plain.output[:, :, kept])  # later queries see the isolated token and all before it
    assert float((alone.mass - plain.mass)[..., 9].min()) > 0


def test_mass_counts_the_queries_that_are_asked_for() -> None:
    torch.manual_seed(1)
    q = torch.randn(1, 1, 20, 4)
    weights = (q @ q.transpose(-1, -2) / 2).masked_fill(torch.ones(20, 20).triu(1).bool(), -torch.inf).softmax(-1)
    found = attention_column_mass.op(q, q, q, first_query=7, diagonal=False).mass
    assert torch.allclose(found, weights.tril(-1)[..., 7:, :].sum(-2), atol=1e-6)


@pytest.mark.parametrize("shape", [(4,), (3, 4)])
def test_the_norm_of_the_output_is_the_norm_alone(shape: tuple[int, ...]) -> None:
    torch.manual_seed(2)
    q, gamma = torch.randn(1, 3, 6, 4), torch.rand(shape)
    plain = attention_column_mass.op(q, q, q).output
    wanted = headwise_rmsnorm.op(plain.transpose(1, 2), gamma).transpose(1, 2)
    assert torch.allclose(attention_column_mass.op(q, q, q, gamma=gamma).output, wanted, atol=1e-6)


def test_shapes_that_do_not_fit_are_refused() -> None:
    q = torch.randn(1, 4, 6, 8)
    with pytest.raises(ValueError, match="do not fit"):
        attention_column_mass.op(q, q[:, :3], q[:, :3])
    with pytest.raises(ValueError, match="outside 0 to 5"):
        attention_column_mass.op(q, q, q, isolate=[6])
    with pytest.raises(ValueError, match="first_query is -1"):
        attention_column_mass.op(q, q, q, first_query=-1)
    with pytest.raises(ValueError, match="gamma"):
        attention_column_mass.op(q, q, q, gamma=torch.ones(3))
    with pytest.raises(ValueError, match="gamma"):
        headwise_rmsnorm.op(q, torch.ones(4, 8))


def test_mismatches_are_counted_as_a_loop_counts_them() -> None:
    codes = torch.randint(0, 3, (23, 11), generator=torch.Generator().manual_seed(3))
    wanted = [[int((a != b).sum()) for b in codes] for a in codes]
    assert pairwise_mismatch.op(codes).tolist() == wanted
    with pytest.raises(ValueError, match="whole numbers"):
        pairwise_mismatch.op(torch.rand(3, 4))
    with pytest.raises(ValueError, match="shape"):
        pairwise_mismatch.op(torch.zeros(3, dtype=torch.int32))


def test_boxes_are_weighed_as_a_loop_weighs_them() -> None:
    """One box at a time, one half-space at a time, in plain numbers."""
    generator = torch.Generator().manual_seed(5)
    low, high, owner, normals, offsets, weights, mean, sd = draw_boxes((60, 4, 2, 2), torch.float64, generator)
    found = voronoi_boxes.op(low, high, owner, normals, offsets, weights, mean, sd)
    for m, k in enumerate(owner.tolist()):
        corners = torch.cartesian_prod(*torch.stack([low[m], high[m]], 1).clamp(-1e9, 1e9))
        sides = corners @ normals[k].T + offsets[k]
        inside, outside = bool((sides.amax(0) <= 0).all()), bool((sides.amin(0) >= 0).any())
        assert int(found.kind[m]) == (voronoi_boxes.INSIDE if inside else voronoi_boxes.OUTSIDE if outside else voronoi_boxes.STRADDLING)
        parts = (torch.special.ndtr((high[m] - mean[k]) / sd[k]) - torch.special.ndtr((low[m] - mean[k]) / sd[k])).prod(-1)
        assert float(found.mass[m]) == pytest.approx(float((weights[k] * parts).sum()), abs=1e-12)
    assert {int(kind) for kind in found.kind} == {-1, 0, 1}
    with pytest.raises(ValueError, match="do not fit"):
        voronoi_boxes.op(low, high[:3], owner, normals, offsets, weights, mean, sd)
    with pytest.raises(ValueError, match="int64"):
        voronoi_boxes.op(low, high, owner.int(), normals, offsets, weights, mean, sd)


def test_lcs_shapes_that_do_not_fit_are_refused() -> None:
    x, three = torch.randn(2, 5, 64), torch.zeros(3)
    plane, cone = lcs.Plane(torch.eye(64)[:3], three, three + 1, three), lcs.Cone(torch.randn(6, 3), three, three + 1)
    move = lcs.Move(torch.zeros(2, 3), torch.zeros(2, 3), 1.0)
    with pytest.raises(ValueError, match="do not fit"):
        lcs.steer(x, torch.ones(5).bool(), plane, cone, move, clip=True)
    assert torch.equal(lcs.steer(x, torch.ones(2, 5).bool(), plane, cone, move, clip=True), x)  # Type I by nothing


@pytest.mark.gpu
def test_the_kernels_on_a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    done = subprocess.run([sys.executable, "-m", "tests.benchmarks.gpu_kernels", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=220)
    assert done.returncode == 0, done.stdout + done.stderr
