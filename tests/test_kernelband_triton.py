"""KernelBand over Triton: texts and edits, what a text may hold, and on a host without a GPU real compilation and real checks, never a time."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import numpy as np
import pytest

from backends.contract import InputError
from backends.kernelband.substrate import STRATEGIES, Built, Candidate, Failure, Roofline, ScheduleProposer, Timing
from backends.kernelband.triton_substrate import Schedule, TritonSubstrate, guard, process, schedules, substrate
from backends.kernelband.triton_substrate.workloads import WORKLOADS
from backends.runtime import device
from kernels.ahead_of_time import Compiled

pytestmark = pytest.mark.timeout(600)  # each candidate is compiled three times and interpreted; a busy host doubles it

KERNELS = tuple(WORKLOADS)
on_cpu = pytest.mark.skipif(device.default() != "cpu", reason="what a host without a GPU does")


@pytest.fixture(scope="module")
def lab() -> Iterator[TritonSubstrate]:
    made = TritonSubstrate(1, lambda: None)
    yield made
    made.close()


def naive(lab: TritonSubstrate, kernel: str) -> Candidate:
    return lab.naive(kernel, lab.default_size(kernel))


def changed(lab: TritonSubstrate, kernel: str, **values: object) -> Candidate:
    parent = naive(lab, kernel)
    return lab.render(kernel, parent.size, lab.at(kernel, {**lab.values(parent.schedule), **values}))


def outcome(lab: TritonSubstrate, candidate: Candidate) -> Failure | None:
    built = lab.compile(candidate)
    return built if isinstance(built, Failure) else lab.check(built)


def rmsnorm_text(lab: TritonSubstrate, old: str, new: str) -> Candidate:
    """k0 of rmsnorm with one piece of its text replaced, as a model would write it."""
    parent = naive(lab, "rmsnorm")
    assert old in parent.source
    return lab.written("rmsnorm", parent.size, parent.source.replace(old, new))


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_edit_changes_one_field_and_the_text_tells_it(lab: TritonSubstrate, kernel: str) -> None:
    parent = naive(lab, kernel)
    before = lab.values(parent.schedule)
    for strategy, fields in enumerate(WORKLOADS[kernel].space):
        edits = lab.edits(parent, strategy)
        assert edits, STRATEGIES[strategy]
        for schedule in edits:
            after = lab.values(schedule)
            assert len([name for name in fields if after[name] != before[name]]) == 1
            assert {name: v for name, v in after.items() if name not in fields} == {name: v for name, v in before.items() if name not in fields}
            child = lab.render(kernel, parent.size, schedule)
            assert child.key != parent.key
            assert guard.schedule_values(child.source) == lab.values(child.schedule)
            assert lab.at(kernel, lab.values(schedule)) == schedule


def test_the_text_holds_what_the_schedule_takes_and_nothing_else(lab: TritonSubstrate) -> None:
    unfused, fused = naive(lab, "matmul-bias-relu").source, changed(lab, "matmul-bias-relu", fused=True).source
    assert "def epilogue" in unfused
    assert "def epilogue" not in fused
    assert "bias_ptr + column" in fused
    for kernel in KERNELS:
        names = {node.id for node in ast.walk(ast.parse(naive(lab, kernel).source)) if isinstance(node, ast.Name)}
        assert not {name for name in names if name.isupper()} - {"SCHEDULE"}
    assert naive(lab, "softmax").source.count("for first in") == 3
    assert changed(lab, "softmax", passes=2).source.count("for first in") == 2
    assert "for first in" not in changed(lab, "softmax", passes=1).source


def test_programs_that_are_the_same_have_the_same_key(lab: TritonSubstrate) -> None:
    # Whole rows in registers: the step is not read, so an edit of it is a duplicate.
    assert changed(lab, "rmsnorm", passes=1).key == changed(lab, "rmsnorm", passes=1, block=512, unroll=4).key
    assert changed(lab, "rmsnorm", block=512).key != naive(lab, "rmsnorm").key


def test_the_offline_proposer_reaches_every_strategy(lab: TritonSubstrate) -> None:
    proposer, rng, parent = ScheduleProposer(lab), np.random.default_rng(0), naive(lab, "attention")
    for strategy, fields in enumerate(WORKLOADS["attention"].space):
        child = proposer.propose(parent, 1.0, strategy, rng)
        assert isinstance(child, Candidate)
        before, after = lab.values(parent.schedule), lab.values(child.schedule)
        assert {name for name in before if before[name] != after[name]} <= set(fields)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("import triton\n", "import time\nimport triton\n", "only a schedule"),
        ("import triton\n", "import triton\ntriton.testing.do_bench = lambda *a, **k: [0.001]\n", "only a schedule"),
        ("import triton\n", "import triton\n_seen = {}\n", "only a schedule"),
        ("@triton.jit", "@triton.jit\n@__import__('os').system", "under @triton.jit alone"),
        ("rows, columns):", "rows, columns=__import__('os')):", "no default"),
        ("rows, columns):", "rows, columns: open('/etc/passwd')):", "annotation"),
        ("tiles = tl.cdiv(rows, 1)", "tiles = tl.core.builtin(rows)", "outside Triton's language"),
        ("tiles = tl.cdiv(rows, 1)", "tiles = tl.cdiv.__globals__", "outside Triton's language"),
        ("tiles = tl.cdiv(rows, 1)", "tiles = tl.math.core.os", "outside Triton's language"),
        ("tiles = tl.cdiv(rows, 1)", "core = tl.core", "outside Triton's language"),
        ("tiles = tl.cdiv(rows, 1)", "rows.handle.data.tofile('x')", "outside Triton's language"),
        ("tiles = tl.cdiv(rows, 1)", "tiles = eval('1')", "eval is unknown"),
        ("tiles = tl.cdiv(rows, 1)", "tl.load = tl.store", "may not be assigned"),
        ("tiles = tl.cdiv(rows, 1)", "import threading", "Import has no place"),
    ],
)
def test_a_text_that_is_more_than_kernels_is_refused(lab: TritonSubstrate, old: str, new: str, said: str) -> None:
    found = lab.compile(rmsnorm_text(lab, old, new))
    assert isinstance(found, Failure)
    assert found.kind == "cheat"
    assert said in found.text


def test_the_names_that_a_text_may_use_exist() -> None:
    """In the Triton that is installed, so that the list does not grow stale."""
    import triton.language as tl

    assert not [name for name in guard.LANGUAGE if not hasattr(tl, name)]


def test_text_that_cannot_be_read_is_a_compile_error(lab: TritonSubstrate) -> None:
    for old, new in (("import triton\n", "import ((\n"), ("'block': 128", "'blok': 128"), ("'block': 128", "'block': 100")):
        found = lab.compile(rmsnorm_text(lab, old, new))
        assert isinstance(found, Failure)
        assert found.kind == "compile-error", found
    assert lab.edits(rmsnorm_text(lab, "import triton\n", "import ((\n"), 0) == []


@on_cpu
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_naive_kernel_compiles_and_is_right(lab: TritonSubstrate, kernel: str) -> None:
    built = lab.compile(naive(lab, kernel))
    assert isinstance(built, Built), built
    profile = lab.profile(built, None)
    assert np.isnan(profile.h).all()
    assert profile.phi[0] == 0
    for target in ("sm_80", "sm_89", "sm_90"):
        assert 0 < float(profile.facts[f"{target} registers"]) <= 255
        assert 0 < float(profile.facts[f"{target} occupancy %"]) <= 100
        assert f"for {target}: " in built.log
    assert ".target sm_90" in built.log
    assert lab.check(built) is None


@on_cpu
def test_a_good_schedule_is_right_too(lab: TritonSubstrate) -> None:
    tuned = {"block_m": 32, "block_n": 32, "block_k": 32, "fused": True, "group": 4, "stages": 3, "warps": 4}
    assert outcome(lab, changed(lab, "matmul-bias-relu", **tuned, transposed=True, precision="tf32x3", hinted=True)) is None


@on_cpu
@pytest.mark.parametrize(
    ("kernel", "values", "kind", "said"),
    [
        ("rmsnorm", {"storage": "float16"}, "wrong", "of the output is wrong"),
        ("softmax", {"masked": False, "passes": 1}, "wrong", "of the output is wrong"),
        ("matmul-bias-relu", {"fused": True, "split_k": 4}, "compile-error", "split_k must be 1"),
        # fp16, because a large tile takes minutes to compile in fp32.
        ("matmul-bias-relu", {"storage": "float16", "block_m": 128, "block_n": 128, "block_k": 128, "stages": 4, "warps": 8}, "compile-error", "shared memory"),
    ],
)
def test_edits_fail_for_real(lab: TritonSubstrate, kernel: str, values: dict[str, object], kind: str, said: str) -> None:
    found = outcome(lab, changed(lab, kernel, **values))
    assert found is not None
    assert found.kind == kind, found
    assert said in found.text


@on_cpu
@pytest.mark.parametrize(
    ("old", "new", "kind", "said"),
    [
        ("y = x * scale[:, None] * weight", "y = x * 0.0 + 1.0", "cheat", "the constant 1"),
        ("squares += x * x", "squares += x * x\n            tl.store(x_ptr + start + column, x * 2.0, mask=mask)", "cheat", "changed its input x"),
        ("y_ptr.dtype.element_ty), mask=mask)", "y_ptr.dtype.element_ty), mask=mask & (column < columns - 1))", "wrong", "never written"),
        ("y_ptr.dtype.element_ty), mask=mask)", "y_ptr.dtype.element_ty), mask=inside)", "wrong", "outside its output"),
        ("y = x * scale[:, None] * weight", "y = x * scale[:, None]", "wrong", "of the output is wrong"),
        ("def rmsnorm(x_ptr,", "def rms(x_ptr,", "compile-error", "must define rmsnorm"),
        ("squares += x * x", "squares += x * y", "compile-error", "y is not defined"),
    ],
)
def test_planted_kernels_are_rejected(lab: TritonSubstrate, old: str, new: str, kind: str, said: str) -> None:
    candidate = rmsnorm_text(lab, old, new)
    found = lab.compile(candidate) if kind == "compile-error" else lab.check(Built(candidate, ()))
    assert isinstance(found, Failure)
    assert found.kind == kind, found
    assert said in found.text


@on_cpu
def test_a_kernel_that_does_not_end_is_ended(lab: TritonSubstrate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(substrate, "RUN_S", 4.0)
    candidate = rmsnorm_text(lab, "tiles = tl.cdiv(rows, 1)", "tiles = tl.cdiv(rows, 1)\n    while rows > 0:\n        tiles += 0")
    built = Built(candidate, ())
    found = lab.check(built)
    assert found is not None
    assert (found.kind, found.text) == ("timeout", "it did not end within 4 s")


@on_cpu
def test_without_a_gpu_there_is_no_time(lab: TritonSubstrate) -> None:
    assert not lab.can_time
    assert "no GPU" in lab.machine
    for ask in (lambda: lab.time(Built(naive(lab, "rmsnorm"), ()), None), lab.roofline):
        with pytest.raises(InputError, match="no GPU") as said:
            ask()
        assert said.value.remedy == "choose the substrate c"


def test_a_timed_profile_follows_the_roofline(lab: TritonSubstrate, monkeypatch: pytest.MonkeyPatch) -> None:
    """4096 x 2048: 4 flops a number; each number once in, once out; k0 reads each row twice. Peaks of 1000 and a time of 0.2 ms."""
    monkeypatch.setattr(lab, "machine", "a GPU by hand")
    monkeypatch.setattr(lab, "can_time", True)
    monkeypatch.setitem(substrate._rooflines, "a GPU by hand", Roofline(1000.0, 1000.0, 1000.0))
    built = Built(lab.render("rmsnorm", 4096, WORKLOADS["rmsnorm"].naive), (("rmsnorm", Compiled(90, 64, 0, 2048, 8, "none", "")),))
    profile = lab.profile(built, Timing(0.2, 100, 0.01))
    numbers = 4096 * 2048
    assert profile.h == pytest.approx(np.array([4 * numbers, 4 * (2 * numbers + 2048), 4 * 3 * numbers]) / 1e9 / 0.2 * 100)
    assert profile.phi == pytest.approx([np.log(1.2), 64, 2, 8, 50])
    assert lab.profile(built, Timing(0.001, 100, 0.01)).h.tolist() == [100, 100, 100]


def test_bad_kernels_and_sizes_are_named(lab: TritonSubstrate) -> None:
    with pytest.raises(InputError, match="rmsnorm"):
        lab.naive("stencil", 64)
    with pytest.raises(InputError, match="MB"):
        lab.naive("attention", 1_000_000)
    with pytest.raises(ValueError, match="wrong: blok"):
        schedules.of(WORKLOADS["softmax"].tuning, {**lab.values(naive(lab, "softmax").schedule), "blok": 1})
    assert isinstance(lab.at("softmax", lab.values(naive(lab, "softmax").schedule)), Schedule)


def test_a_stop_ends_the_worker() -> None:
    class Stop(BaseException):
        pass

    def check() -> None:
        raise Stop

    worker = process.Worker(check)
    with pytest.raises(Stop):
        worker.ask(60.0, do="device", device="cpu")
    assert worker._process is None
    worker.close()


@pytest.mark.gpu
def test_a_gpu_times_and_profiles(lab: TritonSubstrate) -> None:
    slow, fast = naive(lab, "rmsnorm"), changed(lab, "rmsnorm", passes=1, warps=8)
    found = []
    for candidate in (slow, fast):
        built = lab.compile(candidate)
        assert isinstance(built, Built)
        assert lab.check(built) is None
        timing = lab.time(built, None)
        assert not isinstance(timing, Failure)
        profile = lab.profile(built, timing)
        assert profile.phi.shape == (5,)
        assert ((profile.h >= 0) & (profile.h <= 100)).all()
        found.append(timing.ms)
    assert found[1] < found[0]
