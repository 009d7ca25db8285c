"""How many small mistakes the tests notice: mutants of the package, each run against the tests that lie beside it.

    python benchmarks/mutants.py                        # 200 mutants of mapper, space, simulator and the cost models
    python benchmarks/mutants.py --count 20 --seed 7 --only allo_dse/mapper
    python benchmarks/mutants.py --resume mutants.jsonl # goes on where it was stopped

A mutant changes one operator, comparison, constant or condition. It is killed when a test of its own folder fails, or,
if none does, one of the package's. Messages, type annotations, `__repr__` and named constants of modules (bounds of
effort, sizes of pictures) are left alone.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = (
    "allo_dse/mapper",
    "allo_dse/space",
    "allo_dse/simulator",
    "allo_dse/backends/fpga",
    "allo_dse/eval/npu",
    "allo_dse/eval/fpga",
)
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.Mult,
}  # fmt: skip
TEST_SECONDS = 900


@dataclass(frozen=True)
class Mutant:
    """One change: which file and line, what stood there, what stands there now."""

    file: str
    line: int
    before: str
    after: str
    text: str


def mutants_of(path: Path) -> Iterator[Mutant]:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    for node in list(_code(tree)):
        for changed in _changes(node):
            original = {name: getattr(node, name) for name in node._fields}
            before = ast.unparse(node)
            for name in changed._fields:
                setattr(node, name, getattr(changed, name))
            text, after = ast.unparse(tree), ast.unparse(node)
            for name, value in original.items():
                setattr(node, name, value)
            yield Mutant(str(path.relative_to(ROOT)), getattr(node, "lineno", 0), before, after, text)


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
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if (
                isinstance(node, ast.Module)
                and isinstance(child, ast.Assign)
                and ast.unparse(child.targets[0]).isupper()
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


def tests_of(file: str) -> list[list[str]]:
    """Tests to try in turn: those that name the module or lie beside it, then the package's."""
    parts = Path(file).with_suffix("").parts[1:]
    module = ".".join(("allo_dse", *parts))
    names = [str(p.relative_to(ROOT)) for p in sorted((ROOT / "tests").rglob("test_*.py"))]
    direct = [name for name in names if module in (ROOT / name).read_text(encoding="utf-8")]
    beside = ROOT / "tests" / Path(*parts[:-1])
    while not beside.is_dir():
        beside = beside.parent
    rounds = [direct, [str(beside.relative_to(ROOT))], [f"tests/{parts[0]}"]]
    return [r for i, r in enumerate(rounds) if r and r not in rounds[:i]]


def killed_by(mutant: Mutant) -> str:
    """The first test that fails, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name in ("allo_dse", "tests", "studies", "benchmarks", "docs", "examples"):
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
            shutil.copy(ROOT / name, place / name)
        (place / mutant.file).write_text(mutant.text, encoding="utf-8")
        for tests in tests_of(mutant.file):
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-n", "0", *tests]
            try:
                done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=TEST_SECONDS)
            except subprocess.TimeoutExpired:
                return "does not end"
            if done.returncode not in (0, 5):
                failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
                return failed[0][:150] if failed else "cannot be imported"
    return ""


def sample(count: int, seed: int, only: str | None) -> list[Mutant]:
    """Mutants drawn so that every line of code counts alike."""
    files = [path for room in ([only] if only else ROOMS) for path in sorted((ROOT / room).rglob("*.py"))]
    found = [mutant for path in files for mutant in mutants_of(path)]
    return random.Random(seed).sample(found, min(count, len(found)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="a folder of the package")
    parser.add_argument("--resume", type=Path, help="results are kept in this file, and those in it are not run again")
    arguments = parser.parse_args()
    kept = arguments.resume.read_text().splitlines() if arguments.resume and arguments.resume.exists() else []
    known = {(r["file"], r["line"], r["before"], r["after"]): r["killed_by"] for r in map(json.loads, kept)}
    survivors = []
    mutants = sample(arguments.count, arguments.seed, arguments.only)
    for number, mutant in enumerate(mutants, 1):
        key = (mutant.file, mutant.line, mutant.before, mutant.after)
        if key not in known:
            known[key] = killed_by(mutant)
            if arguments.resume:
                row = {k: v for k, v in asdict(mutant).items() if k != "text"} | {"killed_by": known[key]}
                with arguments.resume.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        if not known[key]:
            survivors.append(mutant)
        verdict = known[key] or f"SURVIVES: {mutant.before}  ->  {mutant.after}"
        print(f"{number:4} {mutant.file}:{mutant.line} {verdict}", flush=True)
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants killed")


if __name__ == "__main__":
    main()
