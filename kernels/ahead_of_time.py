"""Compiles a kernel for a GPU that is not here, and says what it would need there: static facts, never a time.

Only in a process in which Triton does not interpret (TRITON_INTERPRET unset). Nothing of it asks for a driver.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernels.launching import Call

POINTERS = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.int8: "*i8", torch.int32: "*i32", torch.int64: "*i64"}
MATRIX_INSTRUCTIONS = ("tcgen05", "wgmma", "mma.sync")


@dataclass(frozen=True, slots=True)
class Architecture:
    """Limits of one multiprocessor (CUDA programming guide, table of technical specifications)."""

    threads: int  # resident, a multiprocessor
    blocks: int  # resident, a multiprocessor
    shared: int  # bytes that one block may use
    shared_total: int  # bytes of a multiprocessor
    registers: int = 65_536  # 32-bit, a multiprocessor
    registers_a_thread: int = 255
    reserved: int = 1024  # bytes of shared memory that the system takes of each block


ARCHITECTURES = {
    75: Architecture(1024, 16, 65_536, 65_536, reserved=0),
    80: Architecture(2048, 32, 166_912, 167_936),
    86: Architecture(1536, 16, 101_376, 102_400),
    89: Architecture(1536, 24, 101_376, 102_400),
    90: Architecture(2048, 32, 232_448, 233_472),
    100: Architecture(2048, 32, 232_448, 233_472),
    120: Architecture(1536, 24, 101_376, 102_400),
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """registers: a thread. spilled: bytes of stack a thread, which Triton's kernels use for spilled registers alone. shared: bytes a block."""

    capability: int
    registers: int
    spilled: int
    shared: int
    warps: int
    matrix: str  # the matrix instruction in the PTX, "none" without one
    ptx: str

    def occupancy(self) -> float:
        """Resident threads over the most that a multiprocessor holds, in percent; 0 where the kernel does not fit and would fail at its launch.

        >>> Compiled(90, 64, 0, 0, 8, "none", "").occupancy()
        50.0
        >>> Compiled(80, 32, 0, 200_000, 4, "none", "").occupancy()
        0.0
        """
        limit = ARCHITECTURES[self.capability]
        if self.misfit():
            return 0.0
        # Registers are given to a warp in units of 256.
        warp_registers = -(-self.registers * 32 // 256) * 256
        by_registers = limit.registers // max(1, warp_registers) // self.warps
        blocks = min(limit.blocks, limit.threads // (32 * self.warps), by_registers, limit.shared_total // max(1, self.shared + limit.reserved))
        return 100.0 * 32 * self.warps * blocks / limit.threads

    def misfit(self) -> str | None:
        """Why a launch would fail on this architecture, or None. The compiler itself does not refuse it."""
        limit = ARCHITECTURES[self.capability]
        if self.shared > limit.shared:
            return f"out of resource: shared memory, {self.shared} bytes a block are needed, sm_{self.capability} has {limit.shared}"
        if self.registers * 32 * self.warps > limit.registers or self.registers > limit.registers_a_thread:
            return f"out of resource: registers, {self.registers} a thread for {32 * self.warps} threads, sm_{self.capability} has {limit.registers}"
        return None


def compile_for(kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any], capability: int, warps: int, stages: int, divisible: set[str]) -> Compiled:
    """The kernel for one architecture.

    types: of the run-time arguments, pointers as ``*fp16``. divisible: arguments (addresses, numbers) that are multiples of 16, as a launch would
    see; without this other code comes out than a GPU runs. Raises triton's CompilationError with line and caret.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    order = kernel.arg_names
    signature = {name: types.get(name, "constexpr") for name in order}
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(order) if name in divisible}
    source = ASTSource(fn=kernel, signature=signature, constexprs={(order.index(n),): v for n, v in constants.items()}, attrs=aligned)
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps, "num_stages": stages})
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        cuobjdump = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        usage = subprocess.run([cuobjdump, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if found is None:
        raise RuntimeError(f"cuobjdump does not say what the kernel needs: {usage[-300:]}")
    ptx = made.asm["ptx"]
    matrix = next((word for word in MATRIX_INSTRUCTIONS if word in ptx), "none")
    return Compiled(capability, int(found[1]), int(found[2]), made.metadata.shared, made.metadata.num_warps, matrix, ptx)


def compile_call(kernel: Any, call: Call, capability: int) -> Compiled:
    """The kernel of a launch, specialised as the launcher would: numbers that are 1 become constants, multiples of 16 are known as such.

    The constants of the call are taken where the kernel asks for them; tensors may lie on the device "meta".
    """
    constants = {name: value for name, value in call.constants.items() if name in kernel.arg_names}
    types, divisible = {}, set()
    for name, value in call.arguments.items():
        if isinstance(value, torch.Tensor):
            types[name] = POINTERS[value.dtype]
            divisible.add(name)
        elif isinstance(value, float):
            types[name] = "fp32"
        elif value == 1:
            constants[name] = 1
        else:
            types[name] = "i32" if abs(value) < 2**31 else "i64"
            if value % 16 == 0:
                divisible.add(name)
    return compile_for(kernel, types, constants, capability, call.num_warps, call.num_stages, divisible)
