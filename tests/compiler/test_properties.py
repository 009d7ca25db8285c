"""Laws of the front end, on random programs."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse.lang

allo_dse.lang.install()


from allo_dse.common.errors import ProgramError
from allo_dse.compiler import compile_region
from allo_dse.compiler.program.compiled import CompiledProgram

from ..support.written_programs import write_program
from . import samples
from .execute import verify_bodies

MESHES = st.lists(st.integers(1, 6), min_size=3, max_size=3)
CONDITIONS: list[Callable[[Any, Any, Any], Any]] = [
    lambda i, j, k: i == 0,
    lambda i, j, k: 0 < i < 3,
    lambda i, j, k: i in {0, 2} and j in {1, 3},
    lambda i, j, k: (i + 2 * j) % 3 == 1,
    lambda i, j, k: i == j or k > 2,
    lambda i, j, k: j // 2 != 1,
    lambda i, j, k: min(i, k) >= 1,
    lambda i, j, k: k not in (1, 2),
    lambda i, j, k: [5, 0, 3, 1, 2, 4][i] > j,
]
# The same conditions as a kernel sees them; `which` chooses the pair that a program uses.
PATHS = ["i == 0", "0 < i < 3", "i in {0, 2} and j in {1, 3}", "(i + 2 * j) % 3 == 1", "i == j or k > 2",
         "not (j // 2 == 1)", "min(i, k) >= 1", "k not in (1, 2)", "[5, 0, 3, 1, 2, 4][i] > j"]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@settings(max_examples=60, deadline=None)
@given(mesh=MESHES, first=st.sampled_from(range(9)), second=st.sampled_from(range(9)))
def test_class_table_equals_brute_force(folder: Path, mesh: list[int], first: int, second: int) -> None:
    """Two tasks are of one class exactly when the conditions they meet resolve alike."""
    build = write_program(
        folder / f"classes_{first}_{second}.py",
        f"""def build(mesh):
    @df.region()
    def top(A: int32[4]):
        @df.kernel(mapping=mesh, args=[A])
        def core(a: int32[4]):
            i, j, k = df.get_pid()
            with allo.meta_if({PATHS[first]}):
                a[0] = 1
            with allo.meta_elif({PATHS[second]}):
                a[1] = 1
            with allo.meta_else():
                a[2] = 1
            with allo.meta_if({PATHS[second]}):
                a[3] = 1
    return top
""",
    )
    (kernel,) = compile_region(build, {"mesh": mesh}).kernels
    pids = np.array(list(itertools.product(*map(range, mesh))))
    expected = []
    for pid in pids.tolist():
        one, two = bool(CONDITIONS[first](*pid)), bool(CONDITIONS[second](*pid))
        expected.append((one, two))
    found = kernel.class_of(pids).tolist()
    pairs = set(zip(expected, found, strict=True))
    assert len(pairs) == len(set(expected)) == len(set(found)) == len(kernel.classes)
    assert all(n in (1, m) for n, m in zip(kernel.class_table.shape, mesh, strict=True))


INDICES = [
    "i",
    "j",
    "i + 1",
    "2 * i + j",
    "j * 3 - 2",
    "i // 2",
    "(i + j) % 4",
    "5 - i",
    "max(i, j)",
    "[3, 1, 0, 2][i]",
]
FUNCTIONS: list[Callable[[int, int], int]] = [
    lambda i, j: i,
    lambda i, j: j,
    lambda i, j: i + 1,
    lambda i, j: 2 * i + j,
    lambda i, j: j * 3 - 2,
    lambda i, j: i // 2,
    lambda i, j: (i + j) % 4,
    lambda i, j: 5 - i,
    lambda i, j: max(i, j),
    lambda i, j: [3, 1, 0, 2][i],
]


@settings(max_examples=60, deadline=None)
@given(
    mesh=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    first=st.sampled_from(range(10)),
    second=st.sampled_from(range(10)),
)
def test_index_map_equals_brute_force(folder: Path, mesh: tuple[int, int], first: int, second: int) -> None:
    """A stream port names the stream that Python's own evaluation of its indices names."""
    build = write_program(
        folder / f"index_{first}_{second}.py",
        f"""def build(mesh):
    @df.region()
    def top(A: int32[4]):
        pipe: Stream[int32, 2][12, 12]
        @df.kernel(mapping=mesh, args=[A])
        def core(a: int32[4]):
            i, j = df.get_pid()
            pipe[{INDICES[first]}, {INDICES[second]}].put(a[0])
    return top
""",
    )
    pids = np.array(list(itertools.product(*map(range, mesh))))
    indices = [(FUNCTIONS[first](*pid), FUNCTIONS[second](*pid)) for pid in pids.tolist()]
    outside = any(not (0 <= a < 12 and 0 <= b < 12) for a, b in indices)
    doubled = len(set(indices)) < len(indices)
    try:
        program = compile_region(build, {"mesh": list(mesh)})
    except ProgramError as error:
        assert outside or doubled
        assert ("out of range" in error.message) == outside  # noqa: PT017
        return
    assert not outside
    assert not doubled
    (port,) = program.kernels[0].classes[0].stream_ports
    assert port.index.linear(pids).tolist() == [12 * a + b for a, b in indices]


SAMPLES = [samples.gemm, samples.systolic, samples.producer_consumer, samples.tiled, samples.data_dependent]
SAMPLES += [samples.everything, samples.gemm_with_string_layouts]


EXPRESSIONS = ["0", "-1", "1.5", "'x'", "None", "nothing", "(1, 2)", "allo", "int32", "a", "[]", "pipe", "local_A"]
EXPRESSIONS += ["df.gather(pipe)", "df.gather(lanes[1:])", "lanes[:]", "[v for v in a]", "[lanes[v] for v in range(2)]"]
EXPRESSIONS += ["pipe.try_get()", "pipe.full()", "VENDOR(a, b)", "df.scatter(a, lanes)", "a[0].reverse()", "a @ b", "x"]
EXPRESSIONS += ["a ** 2", "first(1)", "Stateful", "gemm"]
EXPRESSIONS += ["range(3)", "i", "k", "df.get_pid()", "lambda: 0", "{}", "allo.add(a, 1)", "a[0:2]", "pipe.get()"]


STATEMENTS = ["pass", "return", "x = 1", "a: int32", "break", "del a", "a += 1", "raise 1", "continue", "return a"]
STATEMENTS += ["x: int32 @ Stateful = 1", "def first(y): return y", "nonlocal x", "for q in range(3): break"]
STATEMENTS += ["for q in allo.meta_for(3): continue", "while True: return", "if a: return 1", "x, y = pipe.try_get()"]
STATEMENTS += ["with allo.meta_for(2) as q: break", "x = df.gather(lanes)", "top(a, b, c)", "x[:] = a @ b"]


class Mutation(ast.NodeTransformer):
    """Changes one expression or statement of a program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.left = self.random.randrange(1, 60)

    def visit(self, node: ast.AST) -> Any:
        node = self.generic_visit(node)
        self.left -= 1
        return self._change(node) if self.left == 0 else node

    def _change(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            text = self.random.choice(EXPRESSIONS)
            return ast.copy_location(ast.parse(text, mode="eval").body, node)
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef):
            text = self.random.choice(STATEMENTS)
            return ast.copy_location(ast.parse(text).body[0], node)
        return node


source_of = functools.cache(inspect.getsource)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("seed", range(60))
def test_mutated_programs_raise_only_program_errors(folder: Path, sample: Callable[..., Any], seed: int) -> None:
    """A wrong program is an error of the user's; a right one has valid code. Nothing else happens."""
    (function,) = ast.parse(source_of(sample)).body
    assert isinstance(function, ast.FunctionDef)
    region = next(n for n in function.body if isinstance(n, ast.FunctionDef))
    region.body = [Mutation(seed).visit(n) for n in region.body]
    path = folder / f"mutated_{sample.__name__}_{seed}.py"
    path.write_text(ast.unparse(function))
    names = dict(vars(samples))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            exec(compile(path.read_text(), str(path), "exec"), names)
    except SyntaxError:
        return
    try:
        program = compile_region(names[sample.__name__])
    except ProgramError as error:
        assert error.file is not None, error  # noqa: PT017
        return
    verify_bodies(program)


def test_nothing_grows_with_the_mesh() -> None:
    """A mesh of two million tasks is compiled without listing them."""
    program: CompiledProgram = compile_region(
        samples.gemm, {"M": 8192, "N": 8192, "K": 8192, "Pm": 128, "Pn": 128, "Pk": 128}
    )
    (kernel,) = program.kernels
    assert kernel.task_count == 2**21
    assert kernel.class_table.size == 128
