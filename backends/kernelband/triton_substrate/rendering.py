"""The text of a candidate: the lab's own kernel with the constants of a schedule worked into it.

Partial evaluation: compile-time constants become numbers, branches that a schedule does not take go away, so that the text shows
what an edit changes, and this text alone is compiled and run. Reads the kernel's file; Triton is not imported.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Mapping
from functools import cache
from types import ModuleType
from typing import Any

from kernels.launching import Call

HEAD = "import triton\nimport triton.language as tl\n\n# The tile gives the grid; warps and stages go to the compiler.\n"
SCHEDULE_NAME = "SCHEDULE"
EMPTY_HINTS = {"eviction_policy", "cache_modifier"}  # "" is what they are without a word


def text(module: ModuleType, calls: Iterable[Call], values: Mapping[str, Any], note: str = "") -> str:
    """A module that holds the schedule's values and the jit functions that the calls launch. note: why there are none."""
    listed = "".join(f"    {name!r}: {value!r},\n" for name, value in values.items()) + (f"    # {note}\n" if note else "")
    functions = (ast.unparse(_folded(_definitions(module)[call.kernel], call.constants)) for call in calls)
    return f"{HEAD}{SCHEDULE_NAME} = {{\n{listed}}}\n\n\n" + "\n\n\n".join(functions) + "\n"


@cache
def _definitions(module: ModuleType) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(inspect.getsource(module))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {node.name: node for node in functions if any(ast.unparse(d) == "triton.jit" for d in node.decorator_list)}


def _folded(function: ast.FunctionDef, constants: Mapping[str, Any]) -> ast.FunctionDef:
    copy = ast.parse(ast.unparse(function)).body[0]
    assert isinstance(copy, ast.FunctionDef)
    copy.args.args = [argument for argument in copy.args.args if argument.arg not in constants]
    copy.body = _Folder(constants).block(copy.body)
    return ast.fix_missing_locations(copy)


class _Folder(ast.NodeTransformer):
    """Works constants in and evaluates what then holds constants alone."""

    def __init__(self, constants: Mapping[str, Any]) -> None:
        self._constants = constants

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The statements, each replaced by what it becomes: nothing, itself, or the branch that is taken."""
        found: list[ast.stmt] = []
        for node in body:
            new = self.visit(node)
            found += new if isinstance(new, list) else [new]
        return found

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self._constants[node.id]) if node.id in self._constants else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        node.keywords = [k for k in node.keywords if not (k.arg in EMPTY_HINTS and isinstance(k.value, ast.Constant) and k.value.value == "")]
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return _evaluated(node, [node.left, node.right])

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        return _evaluated(node, [node.left, *node.comparators])

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        decides = isinstance(node.op, ast.Or)
        if any(isinstance(v, ast.Constant) and bool(v.value) is decides for v in node.values):
            return ast.Constant(decides)
        open_values = [v for v in node.values if not isinstance(v, ast.Constant)]
        if len(open_values) < 2:
            return open_values[0] if open_values else ast.Constant(not decides)
        node.values = open_values
        return node

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt]:
        test = self.visit(node.test)
        if isinstance(test, ast.Constant):
            return self.block(node.body if test.value else node.orelse)
        node.test, node.body, node.orelse = test, self.block(node.body), self.block(node.orelse)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return (node.body if node.test.value else node.orelse) if isinstance(node.test, ast.Constant) else node


def _evaluated(node: ast.expr, parts: list[ast.expr]) -> ast.expr:
    """The value of an expression of constants; anything else as it is."""
    if not all(isinstance(part, ast.Constant) for part in parts):
        return node
    return ast.Constant(eval(compile(ast.fix_missing_locations(ast.Expression(node)), "<constants>", "eval"), {"__builtins__": {}}))
