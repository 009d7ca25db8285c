"""Small changes of the package's code: one operator, comparison, constant or condition each."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "allo_dse/mapper",
    "allo_dse/space",
    "allo_dse/simulator",
    "allo_dse/backends/fpga/cost",
    "allo_dse/backends/npu",
    "allo_dse/backends/fpga",
)
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: which file and line, what stood there, what stands there now."""

    file: str
    line: int
    before: str
    after: str
    function: str
    """In which function it is; empty outside functions."""
    number: int
    """Which of the changes of the file."""

    @property
    def text(self) -> str:
        """The file with the change."""
        tree = ast.parse((ROOT / self.file).read_text(encoding="utf-8"))
        node, changed = list(_all_changes(tree))[self.number]
        for name in changed._fields:
            setattr(node, name, getattr(changed, name))
        return ast.unparse(tree)


def mutants_of(path: Path) -> Iterator[Mutant]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = dict(_functions(tree, ""))
    for number, (node, changed) in enumerate(_all_changes(tree)):
        line, file = getattr(node, "lineno", 0), str(path.relative_to(ROOT))
        yield Mutant(file, line, ast.unparse(node), ast.unparse(changed), functions.get(node, ""), number)


def _all_changes(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST]]:
    return ((node, changed) for node in _code(tree) for changed in _changes(node))


def _functions(node: ast.AST, name: str) -> Iterator[tuple[ast.AST, str]]:
    """Each node inside a function, with the qualified name of the outermost one."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inner = f"{name}.{child.name}".lstrip(".")
            if isinstance(child, ast.FunctionDef):
                yield from ((inside, inner) for part in child.body for inside in ast.walk(part))
            else:
                yield from _functions(child, inner)
        else:
            yield from _functions(child, name)


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes worth changing: not annotations, texts for people, or imports for types."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, (ast.Raise, ast.JoinedStr, ast.Assert)):
                continue
            if isinstance(child, ast.FunctionDef) and child.name in ("__repr__", "__str__", "describe"):
                continue
            if ast.unparse(child) == "-1" and isinstance(node, ast.Call) and ast.unparse(node.func).endswith("reshape"):
                continue  # any negative size means what is left
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if (
                isinstance(node, ast.Module)
                and isinstance(child, ast.Assign | ast.AnnAssign)
                and ast.unparse(child.target if isinstance(child, ast.AnnAssign) else child.targets[0]).isupper()
            ):
                continue
            yield child
            yield from _code(child)


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    changed = copy.copy(node)
    if isinstance(node, ast.Compare) and isinstance(changed, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        changed.ops = [COMPARISONS[type(node.ops[0])](), *node.ops[1:]]
        yield changed
    elif isinstance(node, ast.BinOp) and isinstance(changed, ast.BinOp) and type(node.op) in OPERATORS:
        changed.op = OPERATORS[type(node.op)]()
        yield changed
    elif isinstance(node, ast.BoolOp) and isinstance(changed, ast.BoolOp):
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield changed
    elif isinstance(node, ast.If | ast.IfExp) and isinstance(changed, ast.If | ast.IfExp):
        changed.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
        yield changed
    elif isinstance(node, ast.Constant) and isinstance(changed, ast.Constant) and type(node.value) is int:
        changed.value = node.value + 1
        yield changed


def sample(count: int, seed: int, only: str | None) -> list[Mutant]:
    """Mutants drawn so that every line of code counts alike."""
    files = [path for room in ([only] if only else ROOMS) for path in sorted((ROOT / room).rglob("*.py"))]
    found = [mutant for path in files for mutant in mutants_of(path)]
    return random.Random(seed).sample(found, min(count, len(found)))
