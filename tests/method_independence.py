"""An import-linter contract: no method package imports another one, and a new method is held to it with no line written."""

from __future__ import annotations

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output


class MethodsAreIndependent(Contract):
    """Every package ``backends.<method>`` that has a card must not import another such package."""

    type_name = "methods"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        methods = sorted(m for m in graph.find_children("backends") if f"{m}.card" in graph.modules)
        # One layer of siblings: grimp reports every chain of imports between any two of them.
        broken = graph.find_illegal_dependencies_for_layers(layers=(set(methods),)) if methods else set()
        pairs = sorted((d.importer, d.imported) for d in broken)
        return ContractCheck(kept=not pairs, metadata={"pairs": pairs})

    def render_broken_contract(self, check: ContractCheck) -> None:
        pairs: Any = check.metadata["pairs"]
        for importer, imported in pairs:
            output.print_error(f"{importer} imports {imported}: move what both need to backends/runtime", bold=False)
