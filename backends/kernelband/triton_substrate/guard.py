"""What the text of a candidate may hold: a schedule and jit functions of Triton's language, no other Python.

Whoever launches, fills, compares and times is the lab's own code; a text that holds nothing but kernels cannot patch a clock, keep results
between calls, start threads or read the inputs' fingerprints. Compilation still runs in a child process, and written text needs the operator's switch.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from backends.kernelband.triton_substrate.rendering import SCHEDULE_NAME

BUILTINS = {"range", "min", "max", "float", "int", "bool", "abs", "len", "print"}
# Named one by one: triton.language holds modules too, and in the interpreter a tensor leads to numpy and from there to files.
NAMES = """
    abs advance arange argmax argmin associative_scan assume atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor
    bfloat16 broadcast broadcast_to cast cat cdiv ceil clamp constexpr cos cumprod cumsum debug_barrier div_rn dot erf exp exp2 expand_dims
    fdiv flip float16 float32 float64 float8e4nv float8e5 floor fma full gather histogram int1 int16 int32 int64 int8 interleave
    join load log log2 make_block_ptr make_tensor_descriptor math max max_constancy max_contiguous maximum min minimum multiple_of num_programs
    permute program_id range ravel reduce reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn static_assert static_range store sum swizzle2d
    trans uint16 uint32 uint64 uint8 view where xor_sum zeros zeros_like
"""
LANGUAGE = frozenset(NAMES.split())
TENSOR = {"to", "dtype", "element_ty", "shape", "T", "load", "store"}


class RefusedError(ValueError):
    """The text holds what a kernel has no need of; the message names it and its line."""


def schedule_values(source: str) -> Mapping[str, Any]:
    """The values of the text's schedule. Raises SyntaxError for text that is not Python, RefusedError for text that holds anything but kernels."""
    tree = ast.parse(source)
    found: Mapping[str, Any] | None = None
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        match node:
            case ast.Import(names=[ast.alias(name="triton", asname=None)]):
                pass
            case ast.Import(names=[ast.alias(name="triton.language", asname="tl")]):
                pass
            case ast.Expr(value=ast.Constant()):
                pass
            case ast.Assign(targets=[ast.Name(id=name)]) if name == SCHEDULE_NAME:
                found = _literal(node.value)
            case ast.FunctionDef():
                _check_function(node, names)
            case _:
                raise _refused(node, "only a schedule and functions under @triton.jit may stand here")
    if found is None:
        raise RefusedError(f"the text has no {SCHEDULE_NAME}")
    return found


def _literal(node: ast.expr) -> Mapping[str, Any]:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise _refused(node, f"{SCHEDULE_NAME} must be a dict of literals")
    return value


def _check_function(function: ast.FunctionDef, names: set[str]) -> None:
    if [ast.unparse(d) for d in function.decorator_list] != ["triton.jit"]:
        raise _refused(function, f"{function.name} must stand under @triton.jit alone")
    signature = function.args
    if signature.defaults or signature.kw_defaults or signature.vararg or signature.kwarg or function.returns:
        raise _refused(function, f"{function.name} may have no default, no star and no return type")
    for argument in signature.args:
        if argument.annotation is not None and ast.unparse(argument.annotation) != "tl.constexpr":
            raise _refused(argument, "an argument's annotation may only be tl.constexpr")
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    known = stored | {a.arg for a in signature.args} | names | BUILTINS | {"tl"}
    for statement in function.body:
        for node in ast.walk(statement):
            _check_node(node, known)


def _check_node(node: ast.AST, known: set[str]) -> None:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal | ast.FunctionDef | ast.ClassDef | ast.Lambda | ast.Try | ast.With):
        raise _refused(node, f"{type(node).__name__} has no place in a kernel")
    if isinstance(node, ast.Name) and node.id not in known:
        raise _refused(node, f"the name {node.id} is unknown here")
    if isinstance(node, ast.Name) and node.id == "tl" and not isinstance(node.ctx, ast.Load):
        raise _refused(node, "tl may not be assigned")
    if isinstance(node, ast.Attribute):
        whole = ast.unparse(node)
        if node.attr not in (LANGUAGE if ast.unparse(node.value) in ("tl", "tl.math") else TENSOR):
            raise _refused(node, f"{whole} is outside Triton's language")
        if not isinstance(node.ctx, ast.Load):
            raise _refused(node, f"{whole} may not be assigned")


def _refused(node: Any, why: str) -> RefusedError:
    return RefusedError(f"line {getattr(node, 'lineno', 0)}: {why}")
