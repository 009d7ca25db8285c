"""Variables of the source that are declared without a value, and the places that read them."""

from __future__ import annotations

import ast
from contextlib import suppress
from pathlib import Path
from typing import Any

from allo_dse.compiler.program.compiled import CompiledProgram


def undefined_reads(program: CompiledProgram) -> list[str]:
    """Return a text for each local variable of a program's kernels that has no initial value."""
    found: dict[str, None] = {}
    for task_class in program.task_classes:
        place = task_class.location
        with suppress(OSError, SyntaxError, ValueError):
            if place is not None:
                for node in ast.walk(ast.parse(Path(place.file).read_text())):
                    if isinstance(node, ast.FunctionDef) and node.lineno == place.line:
                        found |= dict.fromkeys(_of_function(node, place.file))
    return list(found)


def _of_function(function: ast.FunctionDef, file: str) -> list[str]:
    texts: list[str] = []
    nodes: list[Any] = list(ast.walk(function))
    written = {n.value for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node, ast.AnnAssign) and node.value is None and isinstance(node.target, ast.Name):
            name = node.target.id
            reads = sorted({n.lineno for n in nodes if _is_read(n, name) and n not in written})
            lines = f", read at line{'s' * (len(reads) > 1)} {', '.join(map(str, reads))}" if reads else ""
            texts.append(f"`{name}` ({file}:{node.lineno}{lines})")
    return texts


def _is_read(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id == name
