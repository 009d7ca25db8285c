"""The operations of a region tree, listed without MLIR's `walk`.

`walk` calls back into Python, and makes a RuntimeError of whatever is raised there. Ctrl-C may come at any line of
Python, so that it would be taken for a failure of what is compiled.
"""

from __future__ import annotations

from .bindings import Op, ir


def nested_ops(root: Op | ir.Module, *, parents_first: bool = False) -> list[ir.Operation]:
    """An operation and all operations in its regions, each after, or before, those inside it."""
    found: list[ir.Operation] = []
    _collect(root.operation, found, parents_first=parents_first)
    return found


def _collect(op: ir.Operation, found: list[ir.Operation], *, parents_first: bool) -> None:
    if parents_first:
        found.append(op)
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                _collect(inner.operation, found, parents_first=parents_first)
    if not parents_first:
        found.append(op)
