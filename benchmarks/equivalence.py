"""What `dse.equivalent` finds, and how fast it is.

    python -m benchmarks.equivalence                       # all of what follows
    python -m benchmarks.equivalence --only speed          # a 64 x 64 systolic array against a product of matrices
    python -m benchmarks.equivalence --only mistakes --count 200
    python -m benchmarks.equivalence --only folds --count 1000

Mistakes of six kinds in turn are put into the programs of `equivalence_programs.BROKEN`, one each: another stream,
another process id, an index or a range off by one, a token that is not sent, a sum that begins with something else,
another bank. Those that the compiler refuses do not count, nor those that are found neither by comparing nor on random
numbers: they change nothing.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.util
import inspect
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import allo_dse as dse
from allo_dse.eval.inputs import directions, random_arrays
from allo_dse.lang.types import int16
from allo_dse.mapper.fold.fold_space import fold_choices
from benchmarks import equivalence_programs as programs
from tests.compiler.samples import gemm, systolic
from tests.eval.equivalence.programs import matmul
from tests.eval.execute.test_folded_results import pipeline

SIMULATE_SECONDS = 20.0
KINDS = ("swapped stream", "wrong pid", "off by one", "dropped token", "wrong reset", "wrong bank")
Mistake = tuple[Callable[..., Any], str, int, Callable[..., dse.Program]]
"""The program, what it is, its line, and how to load the program that has it."""


def speed(size: int) -> None:
    """A systolic array of `size` x `size` against three loops."""
    array = dse.load_program(systolic(size, size, size, int16))
    loops = dse.load_program(matmul(size, size, size, int16))
    started = time.perf_counter()
    found = dse.equivalent(array, loops)
    seconds = time.perf_counter() - started
    print(f"{size} x {size} systolic array and matmul: {found}")
    runs = found.points + 1
    print(f"  {seconds:.1f} s, {found.operations * runs / seconds:,.0f} operations/s in {runs} runs of both")


def mistakes(count: int, seed: int) -> int:
    """Programs with one mistake each; returns how many were missed."""
    rng, kinds, missed = random.Random(seed), Counter[str](), list[str]()
    refused = harmless = unseen = 0
    with tempfile.TemporaryDirectory() as folder:
        waiting = _by_kind(list(_broken(Path(folder))), rng)
        while any(waiting.values()) and sum(kinds.values()) + len(missed) < count:
            rarest = min((kind for kind in KINDS if waiting[kind]), key=lambda kind: kinds[kind])
            size, (function, kind, line, load) = waiting[rarest].pop()
            params = programs.BROKEN[function][size]
            original = dse.load_program(function(**params))
            try:
                mutant = load(**params)
            except dse.AlloDseError:
                refused += 1
                continue
            is_different = not dse.equivalent(original, mutant, seconds=SIMULATE_SECONDS)
            shows = _numbers_differ(original, mutant)
            if is_different:
                kinds[kind] += 1
                unseen += not shows
            elif shows:
                missed.append(f"{function.__name__} {params}, line {line}: {kind}")
            else:
                harmless += 1
    total = sum(kinds.values()) + len(missed)
    print(f"mistakes: {sum(kinds.values())} of {total} found: {dict(sorted(kinds.items()))}")
    print(f"  {refused} refused by the compiler, {harmless} change nothing")
    print(f"  {unseen} of those found do not show on random numbers")
    print("".join(f"  missed: {one}\n" for one in missed), end="")
    return len(missed)


def _by_kind(broken: list[Mistake], rng: random.Random) -> dict[str, list[tuple[int, Mistake]]]:
    """Mistakes of each kind in random order, those of small programs last; of each is tried what was found least."""
    rng.shuffle(broken)
    return {kind: [(size, one) for size in (1, 0) for one in broken if one[1] == kind] for kind in KINDS}


def folds(count: int, seed: int) -> int:
    """Legal folds against the program; returns how many were called different."""
    cases: list[tuple[Callable[..., Any], dict[str, int]]]
    cases = [(pipeline, {"R": r, "C": c, "turned": True}) for r in (1, 2, 4) for c in (2, 3)]
    meshes = [{"Pm": a, "Pn": b, "Pk": k} for a in (2, 4, 8) for b in (1, 2, 4, 8) for k in (1, 2, 4, 8)]
    cases += [(gemm, {"M": 8, "N": 8, "K": 8, **mesh}) for mesh in meshes]
    tried, deadlocks, wrong = 0, 0, []
    choices = []
    for function, params in cases:
        program = dse.load_program(function(**params))
        choices.append((list(islice(fold_choices(program), 20_000)), program, f"{function.__name__} {params}"))
    choices.sort(key=lambda choice: len(choice[0]))  # who has few leaves more to the others
    started = time.perf_counter()
    for number, (legal, program, name) in enumerate(choices):
        random.Random(seed).shuffle(legal)
        for fold in legal[: -(-(count - tried) // (len(cases) - number))]:
            found = dse.equivalent(program, program.vmg.fold(fold))
            tried += 1
            deadlocks += bool(found.message)  # streams may be too shallow for the order of a fold's tasks
            if not found and not found.message:
                wrong.append(f"{name}: {fold}: {found}")
    print(
        f"folds: {tried - deadlocks - len(wrong)} of {tried} equal, {deadlocks} deadlock, {len(wrong)} called different"
    )
    print(f"  {(time.perf_counter() - started) / max(tried, 1) * 1e3:.0f} ms each")
    print("".join(f"  {one}\n" for one in wrong), end="")
    return len(wrong)


def _numbers_differ(a: dse.Program, b: dse.Program) -> bool:
    """Whether two programs compute different outputs from random numbers, or only one ends."""
    for seed in range(2):
        inputs, _ = directions(a)
        arrays = random_arrays(a, [*inputs, *(t.name for t in a.tensors)], seed)
        ends, results = [], []
        for program in (a, b):
            own = [array.copy() for array in arrays.values()]
            try:
                dse.simulate(program, *own, seconds=SIMULATE_SECONDS)
                ends.append(True)
            except dse.SimulationError:
                ends.append(False)
            results.append(own)
        if ends[0] != ends[1] or any(x.tobytes() != y.tobytes() for x, y in zip(*results, strict=True)):
            return True
    return False


# -- mistakes ----------------------------------------------------------------------------------------------------------


def _broken(folder: Path) -> Iterator[Mistake]:
    """Every mistake of the programs."""
    for function in programs.BROKEN:
        module = ast.parse(Path(inspect.getfile(function)).read_text())
        for position in range(len(list(_changes(_named(module, function.__name__))))):
            changed = copy.deepcopy(module)
            kind, line, apply = list(_changes(_named(changed, function.__name__)))[position]
            apply()
            yield (
                function,
                kind,
                line,
                _loader(changed, function.__name__, folder / f"{function.__name__}{position}.py"),
            )


def _named(module: ast.Module, name: str) -> ast.FunctionDef:
    return next(node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == name)


def _loader(module: ast.Module, name: str, path: Path) -> Callable[..., dse.Program]:
    def load(**params: object) -> dse.Program:
        path.write_text(ast.unparse(ast.fix_missing_locations(module)))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        return dse.load_program(getattr(made, name)(**params))

    return load


def _changes(function: ast.FunctionDef) -> Iterator[tuple[str, int, Callable[[], None]]]:
    """Every mistake that can be put into a program, by what it is and its line."""
    streams, sizes = _declared(function)
    kernels = [n for n in ast.walk(function) if isinstance(n, ast.FunctionDef) and "kernel" in _decorators(n)]
    for kernel in kernels:
        pids = _pids(kernel)
        for parent, field, value, loop in _children(kernel, ""):
            children = value if isinstance(value, list) else [value]
            for k, child in enumerate(children):
                put = _put(value, k) if isinstance(value, list) else _set(parent, field)
                for kind, new in (*_scalars(child, streams, pids), *_indices(parent, child, field, sizes)):
                    yield kind, child.lineno, put(new)
                for kind, new in _statements(child, loop):
                    yield kind, child.lineno, put(new)
        for name, other in [(x, y) for x in streams for y in streams if x < y and streams[x] == streams[y]]:
            yield "swapped stream", kernel.lineno, _renamed(kernel, {name: other, other: name})


def _children(node: ast.AST, loop: str) -> Iterator[tuple[Any, str, Any, str]]:
    """Nodes of a kernel with the variable of the loop around them; types are left out."""
    own = node.target.id if isinstance(node, ast.For) and isinstance(node.target, ast.Name) else loop
    for field, value in ast.iter_fields(node):
        nodes = value if isinstance(value, list) else [value]
        if field in ("annotation", "decorator_list", "returns") or isinstance(value, ast.arguments):
            continue
        if nodes and isinstance(nodes[0], ast.AST):
            yield node, field, value, own
            for child in nodes:
                yield from _children(child, own)


def _declared(function: ast.FunctionDef) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Types of streams, and extents of arrays of kernels."""
    streams, sizes = {}, {}
    for node in ast.walk(function):
        annotation = getattr(node, "annotation", None)
        if annotation is None:
            continue
        name, text = node.arg if isinstance(node, ast.arg) else ast.unparse(node.target), ast.unparse(annotation)  # type: ignore[attr-defined]
        if text.startswith("Stream"):
            streams[name] = text
        elif "[" in text:
            sizes[name] = text.split(" @")[0].partition("[")[2].rstrip("]").split(", ")
    return streams, sizes


def _scalars(child: ast.AST, streams: dict[str, str], pids: list[str]) -> Iterator[tuple[str, ast.AST]]:
    if not (isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load)):
        return
    for other in streams:
        if child.id in streams and other != child.id and streams[other] == streams[child.id]:
            yield "swapped stream", ast.Name(other, ast.Load())
    if child.id in pids:
        for text in (*(p for p in pids if p != child.id), "0"):
            yield "wrong pid", ast.parse(text, mode="eval").body


def _indices(parent: Any, child: ast.AST, field: str, sizes: dict[str, list[str]]) -> Iterator[tuple[str, ast.AST]]:
    """Elements beside the right one, other banks, ranges that begin or end one off."""
    if field == "slice" and isinstance(parent.value, ast.Name) and parent.value.id in sizes:
        parts = child.elts if isinstance(child, ast.Tuple) else [child]
        for k, (part, size) in enumerate(zip(parts, sizes[parent.value.id], strict=False)):
            for by in () if isinstance(part, ast.Slice) else ("1", f"({size}) - 1"):
                moved: list[Any] = copy.deepcopy(parts)
                moved[k] = ast.parse(f"({ast.unparse(part)} + {by}) % ({size})", mode="eval").body
                yield "off by one", ast.Tuple(moved, ast.Load()) if isinstance(child, ast.Tuple) else moved[0]
    if isinstance(child, ast.BinOp) and isinstance(child.op, ast.Mod):
        for by in ("1", "2", "3"):
            yield (
                "wrong bank",
                ast.parse(f"({ast.unparse(child.left)} + {by}) % {ast.unparse(child.right)}", mode="eval").body,
            )
    if isinstance(child, ast.Call) and ast.unparse(child.func) == "range" and len(child.args) == 1:
        end = ast.unparse(child.args[0])
        for text in (f"range({end} - 1)", f"range(1, {end})"):
            yield "off by one", ast.parse(text, mode="eval").body
    if isinstance(child, ast.Constant) and isinstance(child.value, int | float):
        yield "off by one", ast.Constant(child.value + 1)


def _statements(child: ast.AST, loop: str) -> Iterator[tuple[str, ast.AST]]:
    """Tokens that are not sent, or that are lost; sums that begin with something else, or only once."""
    text = ast.unparse(child) if isinstance(child, ast.stmt) else ""
    if isinstance(child, ast.Expr) and (".put(" in text or text.endswith(".get()")):
        yield "dropped token", ast.Pass()
    if (
        isinstance(child, ast.AnnAssign)
        and loop
        and text.endswith(".get()")
        and "[" not in ast.unparse(child.annotation)
    ):
        for when in (0, 1):
            lost = f"if True:\n    {text}\n    if {loop} == {when}:\n        {ast.unparse(child.target)} = 0"
            yield "dropped token", _inlined(lost)
    if isinstance(child, ast.For):
        for k, statement in enumerate(child.body):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.value, ast.Constant):
                late = copy.deepcopy(child)
                late.body.pop(k)
                yield (
                    "wrong reset",
                    _inlined(f"if True:\n{_indented(ast.unparse(statement))}\n{_indented(ast.unparse(late))}"),
                )
    if isinstance(child, ast.AnnAssign) and isinstance(child.value, ast.Constant):
        for value in (1, 3):
            changed = copy.deepcopy(child)
            changed.value = ast.Constant(value)
            yield "wrong reset", changed


def _inlined(text: str) -> ast.AST:
    """Several statements in the place of one."""
    (made,) = ast.parse(text.replace("if True:", "with allo.meta_if(True):", 1)).body
    for node in ast.walk(made):
        if hasattr(node, "lineno"):
            node.lineno = 0
    return made


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _decorators(function: ast.FunctionDef) -> str:
    return " ".join(map(ast.unparse, function.decorator_list))


def _renamed(kernel: ast.FunctionDef, names: dict[str, str]) -> Callable[[], None]:
    def apply() -> None:
        for node in ast.walk(kernel):
            if isinstance(node, ast.Name):
                node.id = names.get(node.id, node.id)

    return apply


def _pids(kernel: ast.FunctionDef) -> list[str]:
    for node in ast.walk(kernel):
        if isinstance(node, ast.Assign) and "get_pid" in ast.unparse(node.value):
            return ast.unparse(node.targets[0]).strip("()").split(", ")
    return []


def _put(values: list[Any], k: int) -> Callable[[ast.AST], Callable[[], None]]:
    return lambda new: lambda: values.__setitem__(k, new)


def _set(parent: ast.AST, field: str) -> Callable[[ast.AST], Callable[[], None]]:
    return lambda new: lambda: setattr(parent, field, new)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=["speed", "mistakes", "folds"])
    parser.add_argument("--count", type=int, help="how many mistakes (200) or folds (1000)")
    parser.add_argument("--size", type=int, default=64, help="of the systolic array")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    wrong = 0
    if options.only in (None, "speed"):
        speed(options.size)
    if options.only in (None, "mistakes"):
        wrong += mistakes(options.count or 200, options.seed)
    if options.only in (None, "folds"):
        wrong += folds(options.count or 1000, options.seed)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
