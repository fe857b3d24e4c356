"""What a fork of the worker does for one candidate: compile ahead of time, check, time; and the peaks of the device."""

from __future__ import annotations

import importlib.util
import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from backends.kernelband.triton_substrate import guard, schedules
from backends.kernelband.triton_substrate.schedules import Schedule
from backends.kernelband.triton_substrate.workloads import WORKLOADS, Tensors, Workload
from kernels import ahead_of_time, launching

TOLERANCE = 1e-4  # absolute and relative
FENCE = 1 << 15  # numbers before and behind each buffer, NaN: what a kernel reads or writes outside shows
WARM_UP_MS, REPEAT_MS = 100, 1000
SLOWEST = 10.0  # times the parent
SAID = "said.txt"  # where a fork's standard error goes, which the compiler's C++ side writes to
SHOWN = 3000  # characters of it

Answer = dict[str, Any]


def warm() -> None:
    """The imports that every fork needs; none of them may touch a GPU."""
    import triton.compiler
    import triton.testing

    torch.set_num_threads(1)
    assert triton.compiler
    assert triton.testing


def run(request: Mapping[str, Any], folder: Path) -> Answer:
    """{"result": ...} or {"failure": kind, "text": why}."""
    if request["device"] != "cpu":
        torch.cuda.set_device(torch.device(request["device"]))
    if request["do"] == "device":
        return {"result": _device()}
    if request["do"] == "peaks":
        return {"result": _peaks()}
    workload, source = WORKLOADS[request["kernel"]], str(request["source"])
    schedule = schedules.of(workload.tuning, guard.schedule_values(source))
    extents = workload.extents(int(request["size"]))
    try:
        module = _loaded(source, folder)
        if request["do"] == "compile":
            return _compile(workload, module, schedule, extents, request["capabilities"])
        if request["do"] == "check":
            return _check(workload, module, schedule, request["device"])
        return _time(workload, module, schedule, extents, request["parent_ms"])
    except MemoryError:
        return {"failure": "crash", "text": "out of memory"}
    except Exception as error:  # noqa: BLE001 - whatever the compiler or the launch says of the candidate is its result
        kind = "compile-error" if request["do"] == "compile" or type(error).__name__ == "OutOfResources" else "crash"
        said = [line for line in (folder / SAID).read_text(errors="replace").splitlines() if "error:" in line or "Assertion" in line]
        return {"failure": kind, "text": "\n".join([f"{type(error).__name__}: {error}", *said])[:SHOWN]}


def _loaded(source: str, folder: Path) -> ModuleType:
    """The text as a module; from a file, because Triton reads the source of its functions."""
    path = folder / "candidate.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _calls(workload: Workload, module: ModuleType, inputs: Tensors, y: torch.Tensor, schedule: Schedule) -> tuple[dict[str, Any], list[launching.Call]]:
    """(jit functions by name, launches of the text): of the constants only those that the text still asks for. Raises ValueError for a wrong signature."""
    calls = workload.calls(inputs, y, schedule.tuning)
    kernels = {call.kernel: getattr(module, call.kernel, None) for call in calls}
    found = []
    for call in calls:
        names = list(getattr(kernels[call.kernel], "arg_names", ()))
        if not set(call.arguments) <= set(names) or not set(names) <= set(call.arguments) | set(call.constants):
            raise ValueError(f"the text must define {call.kernel}({', '.join(call.arguments)})")
        found.append(replace(call, constants={n: v for n, v in call.constants.items() if n in names}))
    return kernels, found


def _compile(workload: Workload, module: ModuleType, schedule: Schedule, extents: tuple[int, ...], capabilities: list[int]) -> Answer:
    kernels, calls = _calls(workload, module, *workload.placeholders(extents, schedule), schedule)
    rows = []
    for capability in capabilities:
        for call in calls:
            rows.append({"kernel": call.kernel, "compiled": asdict(ahead_of_time.compile_call(kernels[call.kernel], call, capability))})
    return {"result": rows}


def _fenced(values: torch.Tensor, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """(a copy of the values between two fences, the whole piece of memory)."""
    whole = torch.full((values.numel() + 2 * FENCE,), math.nan, dtype=values.dtype, device=device)
    inner = whole[FENCE:-FENCE].view(values.shape)
    inner.copy_(values)
    return inner, whole


def _drawn(workload: Workload, extents: tuple[int, ...], seed: int, device: str) -> dict[str, torch.Tensor]:
    generator = torch.Generator(device).manual_seed(seed)
    return {name: workload.scale * torch.randn(shape, generator=generator, device=device) for name, shape in workload.shapes(*extents).items()}


def _check(workload: Workload, module: ModuleType, schedule: Schedule, device: str) -> Answer:
    """Every set of extents, two draws each, so that nothing may carry over from one launch to the next."""
    for extents in workload.checks:
        for seed in (0, 1):
            drawn = _drawn(workload, extents, seed, device)
            wanted = workload.reference({name: x.double() for name, x in drawn.items()})
            inputs, memory = {}, {}
            for name, x in drawn.items():
                by_columns = schedule.transposed and name == workload.second
                stored = x.to(getattr(torch, schedule.storage))
                inner, memory[name] = _fenced(stored.mT.contiguous() if by_columns else stored, device)
                inputs[name] = inner.mT if by_columns else inner
            before = {name: whole.clone() for name, whole in memory.items()}
            y, whole = _fenced(torch.full(wanted.shape, math.nan, dtype=getattr(torch, schedule.storage), device=device), device)
            kernels, calls = _calls(workload, module, inputs, y, schedule)
            launching.run(kernels, calls)
            changed = [name for name in memory if not torch.equal(_bits(memory[name]), _bits(before[name]))]
            if changed:
                return {"failure": "cheat", "text": f"it changed its input {changed[0]}"}
            if not (whole[:FENCE].isnan().all() and whole[-FENCE:].isnan().all()):
                return {"failure": "wrong", "text": "it wrote outside its output"}
            failure = _compare(y, wanted, extents)
            if failure is not None:
                return failure
    return {"result": True}


def _bits(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.int16 if x.itemsize == 2 else torch.int32)  # NaN is unlike itself, its bits are not


def _compare(y: torch.Tensor, wanted: torch.Tensor, extents: tuple[int, ...]) -> Answer | None:
    right = (y.double() - wanted).abs() <= TOLERANCE + TOLERANCE * wanted.abs()
    if bool(right.all()):
        return None
    where = " x ".join(map(str, extents))
    if bool((y == y.flatten()[0]).all()):
        return {"failure": "cheat", "text": f"at {where} its output is the constant {float(y.flatten()[0]):.6g}"}
    first = tuple((~right).nonzero()[0].tolist())
    share = 100 * (1 - float(right.double().mean()))
    found = f"{float(y[first]):.6g}{' (never written)' if bool(y[first].isnan()) else ''}"
    place = ", ".join(map(str, first))
    return {"failure": "wrong", "text": f"at {where} Y[{place}] is {found}, not {float(wanted[first]):.6g}; {share:.3g} % of the output is wrong"}


def _time(workload: Workload, module: ModuleType, schedule: Schedule, extents: tuple[int, ...], parent_ms: float | None) -> Answer:
    """Median, count and spread with a cold L2 cache; the output of the timed runs is compared too."""
    from triton.testing import do_bench

    drawn = _drawn(workload, extents, 2, "cuda")
    inputs = workload.laid_out({name: x.to(getattr(torch, schedule.storage)) for name, x in drawn.items()}, schedule)
    y = torch.full(workload.output(*extents), math.nan, dtype=getattr(torch, schedule.storage), device="cuda")
    kernels, calls = _calls(workload, module, inputs, y, schedule)
    launching.run(kernels, calls)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    launching.run(kernels, calls)
    end.record()
    end.synchronize()
    first_ms = start.elapsed_time(end)
    if parent_ms is not None and first_ms > max(2000.0, SLOWEST * parent_ms):
        return {"failure": "timeout", "text": f"one run took {first_ms:.0f} ms, its parent's {parent_ms:.3g} ms"}
    times = do_bench(lambda: launching.run(kernels, calls), warmup=WARM_UP_MS, rep=REPEAT_MS, return_mode="all")
    failure = _compare(y, workload.reference({name: x.double() for name, x in drawn.items()}), extents)
    spread = statistics.pstdev(times) / statistics.fmean(times)
    return failure or {"result": {"ms": statistics.median(times), "runs": len(times), "cv": spread}}


def _device() -> Answer:
    found = torch.cuda.get_device_properties()
    return {"name": found.name, "capability": 10 * found.major + found.minor, "memory": found.total_memory}


def _peaks() -> Answer:
    """fp32 products without tf32, a copy far larger than the L2 cache, and numbers changed in place inside it."""
    from triton.testing import do_bench, do_bench_cudagraph

    torch.backends.cuda.matmul.allow_tf32 = False
    side, copied = 8192, torch.empty(1 << 28, device="cuda")
    a, target = torch.randn(side, side, device="cuda"), torch.empty_like(copied)
    product_ms = do_bench(lambda: a @ a, return_mode="median")
    copy_ms = do_bench(lambda: target.copy_(copied), return_mode="median")
    cached = torch.ones(torch.cuda.get_device_properties().L2_cache_size // 8, device="cuda")
    cached_ms = do_bench_cudagraph(lambda: cached.mul_(1.0), return_mode="median")
    return {"gflops": 2e-6 * side**3 / product_ms, "dram": 8e-6 * copied.numel() / copy_ms, "cache": 8e-6 * cached.numel() / cached_ms}
