"""The kernels that take a schedule: every form against its reference in Triton's interpreter, and compiled for two architectures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels import flash_attention, layernorm, matmul_bias_relu, rmsnorm, row_schedule, softmax
from kernels.ahead_of_time import Compiled
from kernels.matmul_bias_relu import MatmulSchedule
from kernels.row_schedule import RowSchedule
from tests.benchmarks import contest
from tests.kernels.interpreted import relative

pytestmark = pytest.mark.timeout(400)  # the interpreter takes milliseconds a program, and a busy host doubles it

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ("rmsnorm", "softmax", "layernorm", "matmul_bias_relu", "flash_attention")
ONE_TYPE = {"pairwise_mismatch", "voronoi_boxes"}  # whole numbers; masses of a certificate, for which half precision is none
TOLERANCE = {"float32": 1e-4, "float16": 1e-2}


def child(mode: str, folder: Path, **environment: str) -> list[dict[str, Any]]:
    settings = {"TRITON_CACHE_DIR": str(folder), "TRITON_DEFAULT_FP_FUSION": "1", "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-W", "ignore::RuntimeWarning", "-m", "tests.kernels.tuned", mode]  # numpy warns of rows that are never stored
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True, timeout=380)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return child("interpreted", tmp_path_factory.mktemp("interpreted"), TRITON_INTERPRET="1")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return child("compiled", tmp_path_factory.mktemp("compiled"))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_form_equals_the_reference(interpreted: list[dict[str, Any]], kernel: str, dtype: str) -> None:
    found = [row for row in interpreted if (row["kernel"], row["dtype"]) == (kernel, dtype)]
    assert len(found) >= 9
    wrong = [row for row in found if not row["error"] <= TOLERANCE[dtype]]  # a NaN is wrong too
    assert not wrong, wrong


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_compiled_form_fits_the_device(compiled: list[dict[str, Any]], kernel: str, capability: int) -> None:
    found = [row for row in compiled if row["case"].startswith(kernel) and row["capability"] == capability]
    assert len(found) >= 2
    for row in found:
        assert row["misfit"] is None, row
        assert row["spilled"] == 0, row
        assert row["registers"] <= 255, row
        assert 0 < row["occupancy"] <= 100, row
        assert row["wide"], f"no load of four numbers at once: {row}"
        if "float16" in row["case"]:
            assert row["matrix"] == {80: "mma.sync", 90: "wgmma"}[capability], row


def test_a_kernel_that_would_fail_at_its_launch_is_named() -> None:
    assert "393216 bytes" in str(Compiled(80, 128, 0, 393_216, 8, "none", "").misfit())
    assert "registers" in str(Compiled(80, 255, 0, 0, 16, "none", "").misfit())
    assert Compiled(80, 255, 0, 0, 16, "none", "").occupancy() == 0.0
    # 128 registers leave 16 warps of 64; 48 kB leave two blocks of 100 kB on sm_89, here of 4 warps each, of 48.
    assert Compiled(80, 128, 0, 0, 4, "none", "").occupancy() == 25.0
    assert Compiled(89, 32, 0, 48 * 1024, 4, "none", "").occupancy() == pytest.approx(100 * 8 / 48)


def test_schedules_that_cannot_be_right_are_refused() -> None:
    x, weight = torch.ones(2, 8), torch.ones(8)
    with pytest.raises(ValueError, match="rows is 3, not a power of two"):
        rmsnorm.calls(x, weight, x, rmsnorm.EPS, RowSchedule(rows=3))
    with pytest.raises(ValueError, match="forms of 1 to 2"):
        rmsnorm.calls(x, weight, x, rmsnorm.EPS, RowSchedule(passes=3))
    square = torch.ones(16, 16)
    with pytest.raises(ValueError, match="split_k must be 1"):
        matmul_bias_relu.calls(square, square, square[0], square, MatmulSchedule(split_k=2))
    with pytest.raises(ValueError, match="at least 16"):
        matmul_bias_relu.calls(square, square, square[0], square, MatmulSchedule(block_k=8))


def test_shapes_that_do_not_fit_are_refused() -> None:
    x = torch.ones(2, 8)
    with pytest.raises(ValueError, match="weight"):
        rmsnorm.op(x, torch.ones(4))
    with pytest.raises(ValueError, match="bias"):
        layernorm.op(x, torch.ones(8), torch.ones(4))
    with pytest.raises(ValueError, match="do not fit"):
        matmul_bias_relu.op(x, x, torch.ones(8))
    with pytest.raises(ValueError, match="one shape"):
        flash_attention.op(x[None, None], x[None, None], x[None, None, :1])


def test_a_cpu_tensor_takes_the_reference() -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(3, 8, generator=generator), torch.randn(8, generator=generator)
    assert torch.equal(rmsnorm.op(x, weight), rmsnorm.reference(x, weight))
    assert torch.equal(softmax.op(x), softmax.reference(x))
    assert torch.equal(layernorm.op(x, weight, weight), layernorm.reference(x, weight, weight))
    assert torch.equal(matmul_bias_relu.op(x, x.T, weight[:3]), matmul_bias_relu.reference(x, x.T, weight[:3]))
    q = x[None, None]
    assert torch.equal(flash_attention.op(q, q, q, True), flash_attention.reference(q, q, q, True))


@pytest.mark.parametrize("columns", [1, 2, 100, 1024, 5000, 16_384, 100_000])
def test_the_default_schedule_fits_any_width(columns: int) -> None:
    x = torch.empty(10, columns, device="meta")
    (call,) = softmax.calls(x, x, row_schedule.default(columns))
    assert call.constants["PASSES"] > 1 or call.constants["BLOCK"] >= columns
    assert call.constants["ROWS"] * call.constants["BLOCK"] <= 32 * 32 * call.num_warps  # at most 32 numbers a thread


def test_every_kernel_has_a_contest_for_the_gpu() -> None:
    names = contest.kernel_names()
    assert {*KERNELS, "headwise_rmsnorm", "attention_column_mass"} <= set(names)
    for name in names:
        made = list(contest.contests(name, "cpu"))
        assert any(c.timed for c in made), name
        assert {c.dtype for c in made} == set(contest.TOLERANCE) or name in ONE_TYPE, name


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_rival_of_a_contest_computes_the_same(kernel: str) -> None:
    for made in contest.contests(kernel, "cpu"):
        if not any(size in made.name for size in ("4096", "2048")):
            given = made.make()
            assert made.reference is not None
            found, wanted = made.plain(*given), made.reference(*given)
            assert relative(found, wanted) <= 2 * contest.TOLERANCE[made.dtype], made.name
            assert made.error() <= contest.TOLERANCE[made.dtype], made.name


def test_without_a_gpu_the_benchmark_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("here is a GPU")
    command = [sys.executable, "-m", "tests.benchmarks.gpu_kernels"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout) == (0, "no CUDA device here: nothing was checked or timed\n"), done.stderr[-2000:]
