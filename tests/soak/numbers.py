"""Random programs compute what Python does; random folds of meshes of tasks compute what the unfolded program does."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import allo_dse as dse
from allo_dse.common.errors import AlloDseError
from allo_dse.lang import install
from allo_dse.mapper.fold.fold_space import fold_choices
from allo_dse.simulator.deadlock import DeadlockError

from ..support.operator_tables import region
from ..support.random_mixed import mixed_program
from ..support.random_programs import random_program
from .attack import Endless, Found, limited

SECONDS = 120
MOST_FOLDS = 2000
FOLDS = 4


@dataclass(frozen=True)
class RandomPrograms:
    """Integer arithmetic of any width, against Python's."""

    name: str = "arithmetic"

    def attempt(self, rng: random.Random, folder: Path) -> None:
        install()
        program = random_program(rng.randrange(1 << 60), widths_matter=False)
        arrays = program.arrays(np.random.default_rng(rng.randrange(1 << 60)))
        inputs = [values.copy() for values in arrays[: len(program.inputs)]]
        try:
            with limited(SECONDS):
                dse.simulate(dse.load_program(program.region(folder / "program.py")), *arrays)
        except (Endless, AlloDseError) as error:
            raise Found(f"{error}\n{program.text}") from None
        found = [[int(v) for v in values] for values in arrays[len(program.inputs) :]]
        if found != program.expected(inputs):
            raise Found(f"computes {found}, not {program.expected(inputs)}\n{program.text}")


@dataclass(frozen=True)
class RandomMixed:
    """Scalars, tiles and streams of floats, fixed-point numbers and integers, against the interpreter."""

    name: str = "mixed"

    def attempt(self, rng: random.Random, folder: Path) -> None:
        install()
        seed = rng.randrange(1 << 60)
        program = mixed_program(seed)
        inputs = program.inputs(seed)
        arrays = program.arrays(inputs)
        try:
            with limited(SECONDS):
                dse.simulate(dse.load_program(region(program.text, folder / "program.py")), *arrays)
        except (Endless, AlloDseError) as error:
            raise Found(f"{error}\n{program.text}") from None
        if wrong := program.differences(inputs, arrays):
            raise Found(wrong[0])


@dataclass(frozen=True)
class RandomFolds:
    """Kernels of a mesh with streams between them and sums along its axes, folded at random."""

    name: str = "folds"

    def attempt(self, rng: random.Random, folder: Path) -> None:
        install()
        program, text, inputs = loaded_mesh(rng, folder)
        try:
            with limited(SECONDS):
                wanted = results_of(program, inputs)
                for fold in random_folds(program, rng, FOLDS):
                    self._compare(program, program.vmg.fold(fold), inputs, wanted, f"{fold}\n{text}")
        except (Endless, AlloDseError) as error:
            raise Found(f"{error}\n{text}") from None

    def _compare(self, program: dse.Program, vmg: dse.VMG, inputs: list[Any], wanted: list[Any], shown: str) -> None:
        try:
            found = results_of(vmg, inputs)
        except DeadlockError:  # streams may be too shallow for the order of a fold's tasks
            return
        if any((a != b).any() for a, b in zip(found, wanted, strict=True)):
            raise Found(f"computes other numbers when folded: {shown}")
        if not (answer := dse.equivalent(program, vmg)):
            raise Found(f"is called another function when folded: {answer}\n{shown}")


def results_of(program: Any, inputs: list[Any]) -> list[Any]:
    arrays = [array.copy() for array in inputs]
    dse.simulate(program, *arrays)
    return arrays


def random_folds(program: dse.Program, rng: random.Random, count: int) -> list[Any]:
    folds = list(itertools.islice(fold_choices(program), MOST_FOLDS))
    return rng.sample(folds, min(count, len(folds)))


def loaded_mesh(rng: random.Random, folder: Path) -> tuple[dse.Program, str, list[Any]]:
    """A program of meshes, its text, and random inputs."""
    text = mesh_program(rng)
    path = folder / "mesh.py"
    path.write_text(text)
    names: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), names)
    program = dse.load_program(names["top"])
    values = np.random.default_rng(rng.randrange(1 << 60))
    return program, text, [values.integers(-99, 99, t.shape).astype(np.int32) for t in program.tensors]


def mesh_program(rng: random.Random) -> str:
    """Kernels one after the other, tile by tile, their meshes turned or not; each may add up along an axis, in either
    direction. Tensors are laid out over the meshes, or moved by kernels of a line that have rows or columns of them."""
    rows, columns, tile = rng.choice((1, 2, 3, 4)), rng.choice((1, 2, 3)), rng.choice((1, 2, 4))
    stages = rng.randint(1, 3)
    tensor = f"int32[{rows * tile}, {columns}]"
    ends = [rng.choice(("tiles", "rows", "columns")) for _ in range(2)]
    lines = [
        "import allo", "import allo.dataflow as df", "from allo.ir.types import Stream, int32",
        "from allo.memory import Layout", "", "@df.region()", f"def top(X: {tensor}, Y: {tensor}):",
    ]  # fmt: skip
    lines += [
        f"    link{n}: Stream[int32[{tile}, 1], {rng.randint(1, 3)}][{rows}, {columns}]" for n in range(stages + 1)
    ]
    body = [] if ends[0] == "tiles" else _line("X", ends[0], "link0", rows, columns, tile)
    for n in range(stages):
        used = [
            name for name, last, end in (("X", 0, ends[0]), ("Y", stages - 1, ends[1])) if (n, end) == (last, "tiles")
        ]
        turned = rng.random() < 0.3
        shards = "Layout.Shard(1), Layout.Shard(0)" if turned else "Layout.Shard(0), Layout.Shard(1)"
        mesh, pids = (f"{columns}, {rows}", "j, i") if turned else (f"{rows}, {columns}", "i, j")
        arguments = ", ".join(f"{name.lower()}: {tensor} @ [{shards}]" for name in used)
        body += [
            "", f"    @df.kernel(mapping=[{mesh}], args=[{', '.join(used)}])",
            f"    def stage{n}({arguments}):", f"        {pids} = df.get_pid()", f"        t: int32[{tile}, 1] = 0",
            f"        t[:, :] = {'x' if 'X' in used else f'link{n}[i, j].get()'}",
            f"        for k in range({tile}):",
            f"            t[k, 0] = t[k, 0] {rng.choice('+-*')} {rng.choice(('3', 'i', 'j + 1', 'k', 't[k, 0]'))}",
        ]  # fmt: skip
        if rng.random() < 0.6:
            lines.append(f"    sums{n}: Stream[int32[{tile}, 1], {rng.randint(1, 2)}][{rows}, {columns}]")
            body += _sum_along(n, rng.randrange(2), (rows, columns), tile, backwards=rng.random() < 0.3)
        body.append("        y[:, :] = t" if "Y" in used else f"        link{n + 1}[i, j].put(t)")
    body += [] if ends[1] == "tiles" else _line("Y", ends[1], f"link{stages}", rows, columns, tile)
    return "\n".join([*lines, *body]) + "\n"


def _line(tensor: str, end: str, link: str, rows: int, columns: int, tile: int) -> list[str]:
    """A line of tasks, each with rows or columns of tiles of a tensor, which it sends on or gathers."""
    by_rows, name = end == "rows", tensor.lower()
    own, other, count = ("i", "j", columns) if by_rows else ("j", "i", rows)
    shards = "Layout.Shard(0), Layout.Replicate" if by_rows else "Layout.Replicate, Layout.Shard(0)"
    place = f"{name}[k, j]" if by_rows else f"{name}[i * {tile} + k, 0]"
    is_input = tensor == "X"
    return [
        "", f"    @df.kernel(mapping=[{rows if by_rows else columns}], args=[{tensor}])",
        f"    def move_{name}({name}: int32[{rows * tile}, {columns}] @ [{shards}]):", f"        {own} = df.get_pid()",
        f"        with allo.meta_for({count}) as {other}:",
        f"            u: int32[{tile}, 1] = {'0' if is_input else f'{link}[i, j].get()'}",
        f"            for k in range({tile}):",
        f"                {f'u[k, 0] = {place}' if is_input else f'{place} = u[k, 0]'}",
        *([f"            {link}[i, j].put(u)"] if is_input else []),
    ]  # fmt: skip


def _sum_along(number: int, axis: int, mesh: tuple[int, int], tile: int, *, backwards: bool) -> list[str]:
    """A running sum of tiles along an axis of the mesh."""
    pid, step = "ij"[axis], 1 if backwards else -1
    before = f"i + {step}, j" if axis == 0 else f"i, j + {step}"
    first, last = (
        (f"{pid} == {mesh[axis] - 1}", f"{pid} == 0") if backwards else (f"{pid} == 0", f"{pid} == {mesh[axis] - 1}")
    )
    return [
        f"        with allo.meta_if(not ({first})):",
        f"            s: int32[{tile}, 1] = sums{number}[{before}].get()",
        "            t[:, :] = allo.add(t, s)",
        f"        with allo.meta_if(not ({last})):",
        f"            sums{number}[i, j].put(t)",
    ]
