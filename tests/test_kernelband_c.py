"""The C substrate: every kernel against float64, edits that can fail, one compiler call a source, roofs and profiles."""

from __future__ import annotations

import math
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.contract import InputError
from backends.kernelband.c import CSubstrate, Schedule, compiler, measuring, record, roofline, schedule, screening
from backends.kernelband.c.kernels import KERNELS
from backends.kernelband.recording import Recording
from backends.kernelband.substrate import STRATEGIES, Built, Failure, Roofline, Timing

pytestmark = pytest.mark.skipif(not any(map(compiler.shutil.which, compiler.COMPILERS)), reason="no C compiler here")

# For each kernel a schedule that takes every kind of edit at once.
TUNED: dict[str, dict[str, Any]] = {
    "matmul": {"order": "ipj", "tile_i": 16, "tile_j": 32, "tile_p": 16, "simd": 8, "unroll": 4, "prefetch": 2, "parallel": True, "layout": "padded"},
    "matmul-bias-relu": {"layout": "transposed", "simd": 8, "unroll": 2, "fused": 2, "prefetch": 1, "aligned": True},
    "softmax": {"order": "rows", "fused": 2, "simd": 8, "unroll": 4, "tile_i": 16, "tile_j": 32, "parallel": True, "prefetch": 1},
    "rmsnorm": {"order": "rows", "fused": 1, "simd": 16, "unroll": 2, "layout": "padded", "aligned": True},
    "layernorm": {"order": "rows", "fused": 3, "simd": 4, "unroll": 8, "tile_i": 32},
    "row-sum": {"layout": "transposed", "simd": 8, "tile_i": 64, "tile_j": 64, "unroll": 2},
    "stencil": {"fused": 1, "simd": 8, "unroll": 2, "tile_i": 32, "tile_j": 64, "layout": "padded", "parallel": True, "prefetch": 4},
    "attention": {"order": "axpy", "fused": 2, "simd": 8, "unroll": 2, "tile_i": 16, "tile_j": 32, "layout": "keys-transposed", "parallel": True},
}
# Of the products' start: where rows of C get their first value depends on order, blocks and fusion together.
STARTS: list[dict[str, Any]] = [
    {"order": "ipj", "fused": 1},
    {"order": "ipj", "fused": 1, "tile_j": 32},
    {"order": "ipj", "fused": 2, "tile_i": 16, "tile_p": 16, "simd": 4},
    {"order": "ijp", "fused": 2, "tile_i": 16, "tile_j": 32, "tile_p": 32},
    {"order": "pij", "fused": 2, "unroll": 2},
]
ILLEGAL = [
    ("matmul", {"storage": "fp16"}, "wrong"),
    ("matmul", {"unroll": 4, "remainder": False}, "wrong"),
    ("matmul", {"tile_i": 64, "tile_j": 128, "tile_p": 32, "remainder": False}, "crash"),
    ("softmax", {"storage": "fp16"}, "wrong"),
    ("row-sum", {"storage": "fp16"}, "wrong"),
    ("stencil", {"order": "itj"}, "wrong"),
    ("stencil", {"order": "jti", "fused": 1}, "wrong"),
    ("attention", {"storage": "fp16"}, "wrong"),
]


@pytest.fixture(scope="module")
def substrate() -> Iterator[CSubstrate]:
    made = CSubstrate(1)
    yield made
    made.close()


def build(substrate: CSubstrate, kernel: str, values: dict[str, Any], size: int = 64) -> Built:
    built = substrate.compile(substrate.render(kernel, size, substrate.at(kernel, values)))
    assert isinstance(built, Built), built.text
    return built


@pytest.mark.parametrize("kernel", KERNELS)
def test_naive_and_tuned_agree_with_float64(substrate: CSubstrate, kernel: str) -> None:
    naive, tuned = substrate.naive(kernel, 64), substrate.render(kernel, 64, substrate.at(kernel, TUNED[kernel]))
    assert naive.source != tuned.source
    for candidate in (naive, tuned):
        built = substrate.compile(candidate)
        assert isinstance(built, Built), built.text
        assert substrate.check(built) is None
        assert built.log == "", "the compiler has nothing to remark on"


@pytest.mark.parametrize("values", STARTS)
def test_products_start_right(substrate: CSubstrate, values: dict[str, Any]) -> None:
    assert substrate.check(build(substrate, "matmul-bias-relu", values)) is None


def test_two_sweeps_in_one_pass(substrate: CSubstrate) -> None:
    """Right for an even and an odd number of sweeps, which are what the two sets of sizes have."""
    assert {extents[2] % 2 for extents in KERNELS["stencil"].checks} == {0, 1}
    assert substrate.check(build(substrate, "stencil", {"fused": 2, "simd": 8, "prefetch": 1})) is None


def test_two_threads_agree_too() -> None:
    made = CSubstrate(2)
    try:
        built = build(made, "matmul", {"order": "ipj", "parallel": True, "simd": 8}, 128)
        assert made.check(built) is None
        timing = made.time(built, None)
        assert isinstance(timing, Timing), timing
    finally:
        made.close()


@pytest.mark.parametrize(("kernel", "values", "kind"), ILLEGAL)
def test_edits_that_must_fail(substrate: CSubstrate, kernel: str, values: dict[str, Any], kind: str) -> None:
    failure = substrate.check(build(substrate, kernel, values))
    assert failure is not None
    assert failure.kind == kind, failure.text


def test_every_illegal_schedule_is_one_edit_away() -> None:
    for kernel, values, _ in ILLEGAL:
        one = {k: v for k, v in values.items() if k != "fused"}
        start = schedule.at(kernel, {"fused": values.get("fused", 0)})
        assert schedule.at(kernel, values) in {s for strategy in range(len(STRATEGIES)) for s in schedule.edits(kernel, start, strategy)}, one


@pytest.mark.parametrize("kernel", KERNELS)
def test_edits(kernel: str) -> None:
    """Each edit changes fields of its strategy only, stays inside the space, and the naive kernel can be edited by nearly every strategy."""
    space, start = schedule.SPACE[kernel], schedule.naive(kernel)
    fields = [
        {"tile_i", "tile_j", "tile_p", "remainder"},
        {"simd", "storage"},
        {"fused"},
        {"unroll", "prefetch", "remainder"},
        {"order", "parallel"},
        {"layout", "aligned", "order"},
    ]
    for strategy, allowed in enumerate(fields):
        found = schedule.edits(kernel, start, strategy)
        assert len(set(found)) == len(found)
        assert found == schedule.edits(kernel, start, strategy)
        assert bool(found) == (strategy != 2 or kernel != "row-sum"), "a row sum has one pass, and nothing to merge"
        for edited in found:
            before, after = schedule.values(start), schedule.values(edited)
            changed = {name for name in before if before[name] != after[name]}
            assert changed, "an edit edits"
            assert changed <= allowed
            assert all(after[name] in space[name] for name in changed - {"remainder"})
            assert schedule.at(kernel, after) == edited


@pytest.mark.parametrize(
    ("kernel", "strategy", "mark"),
    [
        ("matmul", 0, "for (long i0 = 0; i0 < m; i0 += 32)"),
        ("matmul", 1, "#pragma omp simd simdlen(16) reduction(+: acc)"),
        ("matmul", 1, "_Float16"),
        ("matmul-bias-relu", 2, "acc += bias[j];"),
        ("attention", 2, "const float shrink = expf(seen - top);"),
        ("matmul", 3, "float acc1 = 0.0f, acc2 = 0.0f, acc3 = 0.0f;"),
        ("matmul", 3, "__builtin_prefetch(&B["),
        ("matmul", 4, "#pragma omp parallel for"),
        ("matmul", 5, "Bt[j * k + p]"),
        ("softmax", 5, "__builtin_assume_aligned(X, 64)"),
    ],
)
def test_a_strategy_is_a_visible_edit(substrate: CSubstrate, kernel: str, strategy: int, mark: str) -> None:
    """Some edit of the strategy brings the text by which it is known."""
    start = substrate.naive(kernel, 64)
    assert mark not in start.source
    assert any(mark in substrate.render(kernel, 64, edited).source for edited in substrate.edits(start, strategy))


def test_unknown_kernel_field_and_size(substrate: CSubstrate) -> None:
    with pytest.raises(InputError, match="choose one of matmul, matmul-bias-relu"):
        substrate.naive("convolution", 64)
    with pytest.raises(InputError, match=r"needs buffers of [\d,]+ MB"):
        substrate.naive("matmul", 10**6)
    with pytest.raises(InputError, match="would run for more than 60 s"):
        substrate.naive("matmul", 4096)
    with pytest.raises(InputError, match="choose a larger size"):
        substrate.naive("matmul", 2)
    with pytest.raises(ValueError, match="no field lanes"):
        substrate.at("matmul", {"lanes": 4})


def test_one_compiler_call_for_each_source() -> None:
    made = CSubstrate(1)
    try:
        texts = [made.naive("row-sum", 64), made.render("row-sum", 64, made.at("row-sum", {"order": "rows"})), made.naive("row-sum", 64)]
        texts += [made.written("row-sum", 64, "this is no C"), made.written("row-sum", 64, "this is no C"), made.naive("row-sum", 32)]
        results = [made.compile(c) for c in texts]
        assert made.compiler.calls == len({c.source for c in texts}) == 3
        assert isinstance(results[2], Built)
        assert results[2].seconds == 0
        assert isinstance(results[4], Failure)
        assert (results[4].kind, "error" in results[4].text) == ("compile-error", True)
    finally:
        made.close()


def test_a_compiler_that_always_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = tmp_path / "broken"
    stub.write_text("#!/bin/sh\necho it does not work today\nexit 1\n")
    stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CC", str(stub))
    made = CSubstrate(1)
    try:
        assert made.compile(made.naive("matmul", 64)) == Failure("compile-error", "it does not work today\n")
        assert made.compiler.calls == 1
    finally:
        made.close()


def test_nothing_is_left_behind() -> None:
    made = CSubstrate(1)
    folder = Path(made._folder.name)
    built = build(made, "row-sum", {})
    assert made.check(built) is None
    process = made._child._process
    assert process is not None
    made.close()
    assert process.returncode is not None
    assert not folder.exists()


def test_time_and_profile(substrate: CSubstrate, monkeypatch: pytest.MonkeyPatch) -> None:
    """h is 100 min(1, bound / time) with the measured roofs; phi has the card's five entries."""
    monkeypatch.setattr(roofline, "measure", lambda *_: (Roofline(50.0, 10.0, 80.0), 8))
    built = build(substrate, "matmul", {"order": "ipj", "simd": 8, "tile_i": 16, "tile_j": 32, "tile_p": 16})
    timing = substrate.time(built, 1000.0)
    assert isinstance(timing, Timing)
    monkeypatch.setattr(substrate, "_roofs", None)
    profile = substrate.profile(built, Timing(0.02, 3, 0.1))
    assert profile.flops == 2 * 64**3
    assert profile.bytes == 12 * 64**2
    assert profile.h[0] == pytest.approx(100 * 2 * 64**3 / 50e9 / 0.02e-3)
    assert profile.h[1] == pytest.approx(100 * 12 * 64**2 / 10e9 / 0.02e-3)
    assert profile.h[2] == 100, "a bound above the time is cut off"
    assert profile.phi[0] == pytest.approx(math.log1p(0.02))
    assert profile.phi[1] == built.handle.facts.registers > 1
    assert profile.phi[2:4] == pytest.approx([4 * (16 * 16 + 16 * 32 + 16 * 32) / 1024, math.log2(16 * 32 * 16)])
    assert profile.phi[4] == 100 * min(1, built.handle.facts.lanes / 8)


def test_touched_bytes_follow_the_loop_nest() -> None:
    """Of matmul: the innermost loop's register reuse, by hand."""
    n = 64
    kernel = KERNELS["matmul"]
    total = n**3
    by_dot = 4 * (2 * total + 2 * n * n)  # ijp: A and B at every step, C once
    by_axpy = 4 * (total / n + total + 2 * total + n * n)  # ipj: A once a row, B, C twice, and C set to zero
    assert kernel.touched(schedule.naive("matmul"), n, n, n) == by_dot
    assert kernel.touched(schedule.at("matmul", {"order": "ipj"}), n, n, n) == by_axpy
    jammed = kernel.touched(schedule.at("matmul", {"order": "ipj", "unroll": 4}), n, n, n)
    assert by_axpy - jammed == 4 * 1.5 * total


@pytest.mark.parametrize("kernel", KERNELS)
def test_touched_is_never_below_compulsory(kernel: str) -> None:
    k = KERNELS[kernel]
    extents = k.extents(k.default)
    for values in ({}, TUNED[kernel]):
        assert k.touched(schedule.at(kernel, values), *extents) >= 0.99 * k.compulsory_bytes(extents)


def test_lanes_are_read_from_the_machine_code(substrate: CSubstrate) -> None:
    scalar = build(substrate, "row-sum", {"order": "rows"}).handle.facts
    packed = build(substrate, "row-sum", {"order": "rows", "simd": 16}).handle.facts
    assert scalar.lanes == 1
    assert packed.lanes >= 4


def test_without_a_disassembler_the_compilers_listing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening, "DISASSEMBLERS", ())
    made = CSubstrate(1)
    try:
        assert build(made, "row-sum", {"order": "rows", "simd": 16}).handle.facts.lanes >= 4
        text = "int system(const char *);\nvoid row_sum(const float *X, float *Y, float *work, long rows, long cols) { system(0); }\n"
        assert made.compile(made.written("row-sum", 64, text)) == Failure("cheat", "it calls system, which a kernel has no need of")
        found = made.compile(made.written("row-sum", 64, "void other(void) {}\n"))
        assert isinstance(found, Failure)
        assert found.kind == "wrong"
    finally:
        made.close()


def test_the_roofline_is_measured_by_the_first_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYABLE_CACHE", str(tmp_path))
    monkeypatch.setattr(roofline, "DEFAULT_LLC", 1 << 20)
    monkeypatch.setattr(roofline, "LARGEST_TRIAD", 1 << 22)
    made = CSubstrate(1)
    try:
        roof = made.roofline()
        assert made.roofline() is roof, "a search measures once"
        for value in (roof.gflops, roof.dram, roof.cache):
            assert 0.1 < value < 5000
        answers = iter([Roofline(1e-3, 1e4, 1e-3), Roofline(1e-3, 1e-3, 1e4)])
        monkeypatch.setattr(roofline, "_measure", lambda *_: (next(answers), 8))
        for _ in range(4):  # two more are measured, then the store answers
            made._roofs = None
            found = made.roofline()
        assert found == Roofline(roof.gflops, 1e4, 1e4), "the best of each"
    finally:
        made.close()


@pytest.mark.parametrize("block", [measuring.BLOCK, 5])
def test_compare_names_the_first_wrong_element(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "BLOCK", block)
    kernel = KERNELS["matmul"]
    right = np.arange(12.0).reshape(3, 4)
    wrong = right.astype(np.float32)
    assert measuring.compare(kernel, wrong, right, (3, 4, 2)) is None
    wrong[1, 2] += 0.01
    wrong[2, 3] = np.nan
    found = measuring.compare(kernel, wrong, right, (3, 4, 2))
    assert found is not None
    assert found.text == "at 3 x 4 x 2 C[1, 2] is 6.01, not 6; 16.7 % of the output is wrong"
    assert measuring.compare(kernel, wrong, np.full((3, 4), np.inf), (3, 4, 2)) == Failure("wrong", "the reference itself is not finite for these inputs")


def test_schedule_is_hashable_and_plain() -> None:
    one = schedule.at("matmul", {"simd": 8})
    assert isinstance(one, Schedule)
    assert {one: 1}[schedule.at("matmul", schedule.values(one))] == 1


def test_a_recording_is_made_and_read(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYABLE_CACHE", str(tmp_path))
    monkeypatch.setattr(roofline, "measure", lambda *_: (Roofline(50.0, 10.0, 80.0), 8))
    record.main(["row-sum", "--size", "64", "--schedules", "4", "--folder", str(tmp_path)])
    written = Path(capsys.readouterr().out.strip())
    found = Recording.load(written)
    assert (found.kernel, found.size, len(found.schedules)) == ("row-sum", 64, 4)
    assert schedule.at("row-sum", found.schedules[0].values) == schedule.naive("row-sum")
    assert all((one.entry.timing is None) != (one.entry.failure is None) for one in found.schedules)
