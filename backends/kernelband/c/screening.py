"""What machine code says before it runs: its registers and lanes, which functions it defines and which it asks for.

A kernel needs arithmetic, memory and OpenMP. One that asks for threads, files, clocks or the loader, defines a function of the system's
library, or calls the kernel of the operating system directly, can fake a time; it is rejected unrun.
"""

from __future__ import annotations

import ctypes
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backends.kernelband.c.compiler import FLAGS, Compiler, run_limited
from backends.kernelband.substrate import Failure

DISASSEMBLERS = ("objdump", "llvm-objdump")
_MATH = (
    "exp|exp2|expm1|log|log2|log10|log1p|sqrt|cbrt|pow|hypot|sin|cos|tan|asin|acos|atan|atan2|sinh|cosh|tanh|erf|erfc|fabs|fmax|fmin|fma|fmod"
    "|floor|ceil|round|rint|nearbyint|lrint|lround|trunc|ldexp|frexp|copysign|tgamma|lgamma"
)
ALLOWED = re.compile(
    rf"(?:(?:{_MATH})f?|_ZGV\w+|mem(?:cpy|set|move|cmp)|malloc|calloc|free|aligned_alloc|posix_memalign|abs|labs"
    r"|GOMP_(?:parallel\w*|loop_\w*|barrier|critical_\w+|single_start|atomic_\w+)|omp_get_(?:thread_num|num_threads|max_threads)"
    r"|__kmpc_(?:fork_call|for_static_init_\w+|for_static_fini|barrier|global_thread_num|push_num_threads|dispatch_\w+|reduce\w*|end_reduce\w*|critical|end_critical)"
    r"|__cxa_finalize|_ITM_\w+|__gmon_start__|__stack_chk_fail|__\w+[hsd]f2)"
)
_REGISTER = re.compile(r"%([xyz])mm(\d+)|\b([qv])(\d+)(?:\.\w+)?\b")
_PACKED = re.compile(r"\b(v?(?:add|mul|sub|div|max|min|sqrt|fmn?add\d+|fnmadd\d+|fmsub\d+|mov[au]))ps\b")
_SPILL = re.compile(r"\bv?mov[au]?[sp][sd]\s.*\(%r[sb]p\b")
_SYSTEM_CALL = re.compile(r"\b(?:syscall|sysenter|svc)\b|\bint\s+\$0x80")
_LANES = {"x": 4, "y": 8, "z": 16, "q": 4, "v": 4}


@dataclass(frozen=True, slots=True)
class Facts:
    """registers: distinct vector registers. spills: moves of them to and from the stack. lanes: of the widest packed instruction, 1 = scalar code."""

    registers: int
    spills: int
    lanes: int
    instructions: int


def screen(library: Path, source: str, symbol: str, compiler: Compiler, check: Callable[[], None]) -> Facts | Failure:
    """The facts of a shared object, or why it must not run."""
    failed, text, defined, asked = _read(library, source, compiler, check)
    if failed:
        return Failure("compile-error", f"its machine code cannot be read: {text[:300]}")
    if symbol not in defined:
        return Failure("wrong", f"it does not define the function {symbol}")
    system = ctypes.CDLL(None)
    for name in sorted(defined - {symbol, "_init", "_fini"}):
        if hasattr(system, name):
            return Failure("cheat", f"it defines {name}, a function of the system's library")
    for name in sorted(asked):
        if not ALLOWED.fullmatch(name):
            return Failure("cheat", f"it calls {name}, which a kernel has no need of")
    if _SYSTEM_CALL.search(text):
        return Failure("cheat", "it calls the operating system directly")
    return facts(text)


def _read(library: Path, source: str, compiler: Compiler, check: Callable[[], None]) -> tuple[bool, str, set[str], set[str]]:
    """(failed, machine code as text, names defined, names asked for): of the disassembly, or of the compiler's listing where nothing disassembles."""
    tool = next((found for found in map(shutil.which, DISASSEMBLERS) if found), None)
    if tool:
        failed, text = run_limited([tool, "-d", "-T", "--no-show-raw-insn", library.name], library.parent, check)
        return failed, text, *_dynamic_symbols(text)
    text_file, listing = library.with_suffix(".c"), library.with_suffix(".s")
    text_file.write_text(source, encoding="utf-8", errors="replace")
    flags = [flag for flag in FLAGS if flag != "-shared"]
    failed, text = run_limited([compiler.path, *flags, "-S", text_file.name, "-o", listing.name], library.parent, check)
    text = text if failed else listing.read_text(errors="replace")
    defined = set(re.findall(r"^\s*\.globl\s+(\S+)", text, re.MULTILINE))
    return failed, text, defined, set(re.findall(r"([\w.]+)@(?:PLT|GOTPCREL)", text)) - defined


def _dynamic_symbols(text: str) -> tuple[set[str], set[str]]:
    """(defined, undefined) names of objdump's dynamic symbol table."""
    defined: set[str] = set()
    asked: set[str] = set()
    for line in text.partition("Disassembly of section")[0].splitlines():
        if re.match(r"[0-9a-f]{8,}\s", line):
            (asked if "*UND*" in line else defined).add(line.split()[-1])
    return defined, asked


def facts(text: str) -> Facts:
    """Registers and lanes of a disassembly or a listing.

    >>> facts(" vfmadd231ps %ymm1,%ymm2,%ymm3").registers
    3
    """
    lines = [line for line in text.splitlines() if "\t" in line or line.startswith(" ")]
    registers: set[str] = set()
    lanes, spills = 1, 0
    for line in lines:
        found = _REGISTER.findall(line)
        registers.update(index or other for _, index, _, other in found)
        if found and _PACKED.search(line):
            lanes = max(lanes, *(_LANES[kind or other] for kind, _, other, _ in found))
        spills += bool(found and _SPILL.search(line))
    return Facts(len(registers), spills, lanes, len(lines))
