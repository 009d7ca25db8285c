"""Kernels whose statements do not all depend on each other, as several kernels that run at once.

before:  k { s = A' r; q = A p }        one task does one product after the other
after:   k_part0 { s = A' r }, k_part1 { q = A p }

Two statements of a kernel belong together if both use a local array or variable, a stream, or a tensor that either may
write. Streams and tensors keep the order of their uses so, and every part reads for itself what no part writes; a task
in parts waits for nothing that the whole would not have waited for. So results are the same, and no deadlock is new.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from copy import copy

from allo_dse.common.records import replace

from .region_sources import KernelSource, RegionSource

PID = "get_pid"


def split_kernels(source: RegionSource) -> bool:
    """Put the parts of each kernel in its place; whether any has several."""
    found = [_parts(source, kernel) for kernel in source.kernels]
    source.kernels[:] = [part for parts in found for part in parts]
    return any(len(parts) > 1 for parts in found)


def _parts(source: RegionSource, kernel: KernelSource) -> list[KernelSource]:
    statements = [s for s in kernel.node.body if not _is_text(s)]
    common = [s for s in statements if _is_pid(s)]
    own = [s for s in statements if not _is_pid(s)]
    if kernel.results or kernel.sync is not None or any(isinstance(s, ast.Return) for s in own):
        return [kernel]
    # What is declared and not used is no part.
    groups = [
        g for g in _together(own, _ties(source, kernel, own)) if len(g) > 1 or not isinstance(g[0], ast.AnnAssign)
    ]
    if len(groups) < 2:
        return [kernel]
    return [_part(kernel, number, common, group) for number, group in enumerate(groups)]


def _part(
    kernel: KernelSource, number: int, common: Sequence[ast.stmt], statements: Sequence[ast.stmt]
) -> KernelSource:
    used = {name for statement in statements for name in _names(statement)}
    parameters = tuple(p for p in kernel.parameters if p.name in used)
    node = copy(kernel.node)
    node.body = [*common, *statements]
    node.args = copy(kernel.node.args)
    node.args.posonlyargs = []
    node.args.args = [a for a in (*kernel.node.args.posonlyargs, *kernel.node.args.args) if a.arg in used]
    return replace(kernel, name=f"{kernel.name}_part{number}", node=node, parameters=parameters)


def _together(statements: Sequence[ast.stmt], ties: Sequence[set[str]]) -> list[list[ast.stmt]]:
    """Statements that hang together by names, in the order of the first of each group."""
    group_of: dict[str, int] = {}
    groups: dict[int, list[int]] = {}
    for position, names in enumerate(ties):
        members = sorted({group_of[name] for name in names if name in group_of})
        merged = [m for group in members for m in groups.pop(group)]
        first = min(members, default=position)
        groups[first] = sorted([*merged, position])
        group_of.update((name, first) for member in groups[first] for name in ties[member])
    return [[statements[m] for m in groups[first]] for first in sorted(groups)]


def _ties(source: RegionSource, kernel: KernelSource, statements: Sequence[ast.stmt]) -> list[set[str]]:
    """Per statement the names that tie it to others."""
    tensor = {p.name: p.tensor.name for p in kernel.parameters}
    written = {tensor[name] for s in statements for name in _names(s) - _only_read(s) if name in tensor}
    shared = {name for name in tensor if tensor[name] in written}
    local = {name for statement in statements for name in _declared(statement)} - tensor.keys()
    ties = []
    for statement in statements:
        names = _names(statement)
        ties.append({f"tensor {tensor[n]}" for n in names & shared} | (names & (local | source.streams.keys())))
    return ties


def _declared(statement: ast.stmt) -> Iterable[str]:
    """What a statement of the kernel itself, not of a block inside it, gives a value to."""
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _only_read(statement: ast.stmt) -> set[str]:
    """Names of which a statement only reads elements."""
    elements = [n for n in ast.walk(statement) if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name)]
    read = [n.value for n in elements if isinstance(n.ctx, ast.Load)]
    others = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and not any(n is one for one in read)}
    return {n.id for n in read if isinstance(n, ast.Name)} - others


def _is_pid(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Assign) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == PID


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )
