"""Checks every kernel of kernels/ on a CUDA device against its reference and times it against torch eager and torch.compile.

``python -m tests.benchmarks.gpu_kernels`` prints a table (``--check``: the errors alone, ``--json FILE``: all figures). Each time is the median
with a cold L2 cache, all contenders in one process, one after the other. Without a CUDA device it says so and exits.
"""

from __future__ import annotations

import argparse
import json
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import kernels
from kernels import attention_column_mass, headwise_rmsnorm, lcs
from tests.kernels.interpreted import double_cone

Outputs = tuple[torch.Tensor, ...]
# Relative to the largest entry. fp32 products are exact products here, but sums run in another order.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2**-7}
HSL_FLOOR = 1e-3  # the arc cosine of near-parallel vectors turns a rounding of 1e-7 into 4e-4


@dataclass(frozen=True, slots=True)
class Contest:
    """One operation at one size: our op and the plain torch that must give the same."""

    name: str
    dtype: torch.dtype
    ours: Callable[[], Outputs]
    plain: Callable[..., Outputs]
    arguments: tuple[Any, ...]
    timed: bool
    floor: float = 0.0  # a tolerance that is above the dtype's own


def headwise_contests(device: str) -> list[Contest]:
    found = []
    for dtype in TOLERANCE:
        for shape, timed in (((1, 1, 1, 1), False), ((1, 37, 3, 20), False), ((4, 4096, 12, 64), True), ((2, 4096, 32, 128), True)):
            generator = torch.Generator(device).manual_seed(0)
            x, dy = (torch.randn(shape, generator=generator, device=device).to(dtype) for _ in range(2))
            gamma = torch.randn(shape[-2:], generator=generator, device=device)

            def both_ways(norm: Callable[..., torch.Tensor], x: torch.Tensor, gamma: torch.Tensor, dy: torch.Tensor) -> Outputs:
                x, gamma = x.detach().requires_grad_(), gamma.detach().requires_grad_()
                y = norm(x, gamma)
                return y.detach(), *torch.autograd.grad(y, (x, gamma), dy)

            found.append(
                Contest(
                    f"headwise_rmsnorm forward + backward {shape}",
                    dtype,
                    lambda x=x, gamma=gamma, dy=dy: both_ways(headwise_rmsnorm.op, x, gamma, dy),  # type: ignore[misc]
                    lambda x, gamma, dy: both_ways(headwise_rmsnorm.reference, x, gamma, dy),
                    (x, gamma, dy),
                    timed,
                )
            )
    return found


def attention_contests(device: str) -> list[Contest]:
    found = []
    for dtype in TOLERANCE:
        for batch, heads, groups, length, width in ((1, 1, 1, 1, 1), (2, 6, 3, 201, 20), (1, 9, 3, 4096, 64), (1, 8, 8, 4096, 128)):
            generator = torch.Generator(device).manual_seed(0)
            q = torch.randn(batch, heads, length, width, generator=generator, device=device).to(dtype)
            k, v = (torch.randn(batch, groups, length, width, generator=generator, device=device).to(dtype) for _ in range(2))
            options: dict[str, Any] = {"isolate": sorted({length // 2, length - 1}), "gamma": torch.rand(heads, width, generator=generator, device=device)}
            found.append(
                Contest(
                    f"attention_column_mass B={batch} H={heads} G={groups} T={length} D={width}",
                    dtype,
                    lambda q=q, k=k, v=v, options=options: attention_column_mass.op(q, k, v, **options),  # type: ignore[misc]
                    lambda q, k, v, options=options: attention_column_mass.reference(q, k, v, **options),  # type: ignore[misc]
                    (q, k, v),
                    length >= 4096,
                )
            )
    return found


def lcs_contests(device: str) -> list[Contest]:
    found = []
    for dtype in TOLERANCE:
        for pictures, length in ((1, 1), (3, 17), (8, 1024), (64, 4096)):
            plane, cone = double_cone(torch.Generator().manual_seed(0))
            plane, cone = lcs.Plane(*(part.to(device) for part in plane)), lcs.Cone(*(part.to(device) for part in cone))
            generator = torch.Generator(device).manual_seed(0)
            x = (5 * torch.randn(pictures, length, 64, generator=generator, device=device)).to(dtype)
            mask = torch.rand(pictures, length, generator=generator, device=device) < 0.6
            shift, turn = (torch.rand(pictures, 3, generator=generator, device=device) - 0.5 for _ in range(2))
            move, timed = lcs.Move(shift, turn, 0.3), length >= 1024

            def steered(x: torch.Tensor, mask: torch.Tensor, move: lcs.Move = move, plane: lcs.Plane = plane, cone: lcs.Cone = cone) -> Outputs:
                return (lcs.steer_reference(x, mask, plane, cone, move, clip=True),)

            def read(x: torch.Tensor, plane: lcs.Plane = plane, cone: lcs.Cone = cone) -> Outputs:
                return lcs.observe_reference(x, plane, cone, clip=True)[::2]  # a hue near the wrap is the same at 0 and at 1

            size = f"N={pictures} L={length}"
            ours = lambda x=x, plane=plane, cone=cone: lcs.observe(x, plane, cone, clip=True)[::2]  # type: ignore[misc]  # noqa: E731
            found.append(Contest(f"lcs observe {size}", dtype, ours, read, (x,), timed, HSL_FLOOR))
            moving = lambda x=x, mask=mask, move=move, plane=plane, cone=cone: (lcs.steer(x, mask, plane, cone, move, clip=True),)  # type: ignore[misc]  # noqa: E731
            found.append(Contest(f"lcs steer {size}", dtype, moving, steered, (x, mask), timed, HSL_FLOOR))
    return found


CONTESTS = {"headwise_rmsnorm": headwise_contests, "attention_column_mass": attention_contests, "lcs": lcs_contests}


def error(found: Outputs, wanted: Outputs) -> float:
    return max(float((a.double() - b.double()).abs().max() / b.double().abs().max().clamp(min=1.0)) for a, b in zip(found, wanted, strict=True))


def run(contest: Contest, *, time: bool) -> dict[str, Any]:
    """Largest relative error and, where timed, milliseconds of ours, eager and torch.compile, with the two ratios."""
    row: dict[str, Any] = {"name": contest.name, "dtype": str(contest.dtype).removeprefix("torch.")}
    row["error"] = error(contest.ours(), contest.plain(*contest.arguments))
    row["passed"] = row["error"] <= max(TOLERANCE[contest.dtype], contest.floor)
    if time and contest.timed:
        from triton.testing import do_bench

        compiled = torch.compile(contest.plain, dynamic=False)
        compiled(*contest.arguments)
        row["ours_ms"] = do_bench(contest.ours, return_mode="median")
        row["eager_ms"] = do_bench(lambda: contest.plain(*contest.arguments), return_mode="median")
        row["compile_ms"] = do_bench(lambda: compiled(*contest.arguments), return_mode="median")
        row["against_eager"], row["against_compile"] = row["eager_ms"] / row["ours_ms"], row["compile_ms"] / row["ours_ms"]
    return row


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu_kernels")
    parser.add_argument("--check", action="store_true", help="errors only, no times")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    without = {module.name for module in pkgutil.iter_modules(kernels.__path__) if not module.name.startswith("_")} - set(CONTESTS)
    if without:
        print(f"no contest for: {', '.join(sorted(without))}")
        return 1
    if not (kernels.HAS_TRITON and torch.cuda.is_available()):
        print("no CUDA device here: nothing was checked or timed")
        return 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    rows = []
    for contests in CONTESTS.values():
        for contest in contests("cuda"):
            with torch.set_grad_enabled("backward" in contest.name):
                row = run(contest, time=not given.check)
            rows.append(row)
            times = f"  ours {row['ours_ms']:.3f} ms  eager {row['eager_ms']:.3f}  compile {row['compile_ms']:.3f}" if "ours_ms" in row else ""
            print(f"{'ok  ' if row['passed'] else 'FAIL'} {row['name']} {row['dtype']}: error {row['error']:.1e}{times}", flush=True)
    if given.json:
        given.json.write_text(json.dumps({"device": torch.cuda.get_device_name(), "rows": rows}, indent=1))
    return 0 if all(row["passed"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
