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
from allo_dse.mapper.search.folds import fold_choices
from allo_dse.simulator.deadlock.explain import DeadlockError
from tests.support.random_programs import random_program

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
class RandomFolds:
    """Kernels of a mesh with streams between them and sums along its axes, folded at random."""

    name: str = "folds"

    def attempt(self, rng: random.Random, folder: Path) -> None:
        install()
        text = mesh_program(rng)
        path = folder / "mesh.py"
        path.write_text(text)
        names: dict[str, Any] = {}
        exec(compile(text, str(path), "exec"), names)
        values = np.random.default_rng(rng.randrange(1 << 60))
        try:
            with limited(SECONDS):
                program = dse.load_program(names["top"])
                inputs = [values.integers(-99, 99, t.shape).astype(np.int32) for t in program.tensors]
                wanted = _results(program, inputs)
                folds = list(itertools.islice(fold_choices(program), MOST_FOLDS))
                for fold in rng.sample(folds, min(FOLDS, len(folds))):
                    self._compare(program.vmg.fold(fold), inputs, wanted, f"{fold}\n{text}")
        except (Endless, AlloDseError) as error:
            raise Found(f"{error}\n{text}") from None

    def _compare(self, vmg: dse.VMG, inputs: list[Any], wanted: list[Any], shown: str) -> None:
        try:
            found = _results(vmg, inputs)
        except DeadlockError:  # streams may be too shallow for the order of a fold's tasks
            return
        if any((a != b).any() for a, b in zip(found, wanted, strict=True)):
            raise Found(f"computes other numbers when folded: {shown}")


def _results(program: Any, inputs: list[Any]) -> list[Any]:
    arrays = [array.copy() for array in inputs]
    dse.simulate(program, *arrays)
    return arrays


def mesh_program(rng: random.Random) -> str:
    """Kernels of one mesh one after the other, tile by tile; each may add up along an axis, in either direction."""
    rows, columns, tile = rng.choice((1, 2, 3, 4)), rng.choice((1, 2, 3)), rng.choice((1, 2, 4))
    stages = rng.randint(1, 3)
    tensor = f"int32[{rows * tile}, {columns}]"
    local = f"{tensor} @ [Layout.Shard(0), Layout.Shard(1)]"
    lines = [
        "import allo", "import allo.dataflow as df", "from allo.ir.types import Stream, int32",
        "from allo.memory import Layout", "", "@df.region()", f"def top(X: {tensor}, Y: {tensor}):",
    ]  # fmt: skip
    lines += [
        f"    link{n}: Stream[int32[{tile}, 1], {rng.randint(1, 3)}][{rows}, {columns}]" for n in range(stages - 1)
    ]
    body: list[str] = []
    for n in range(stages):
        tensors = [name for name, used in (("X", n == 0), ("Y", n == stages - 1)) if used]
        arguments = ", ".join(f"{name.lower()}: {local}" for name in tensors)
        body += [
            "", f"    @df.kernel(mapping=[{rows}, {columns}], args=[{', '.join(tensors)}])",
            f"    def stage{n}({arguments}):", "        i, j = df.get_pid()", f"        t: int32[{tile}, 1] = 0",
            f"        t[:, :] = {'x' if n == 0 else f'link{n - 1}[i, j].get()'}",
            f"        for k in range({tile}):",
            f"            t[k, 0] = t[k, 0] {rng.choice('+-*')} {rng.choice(('3', 'i', 'j + 1', 'k', 't[k, 0]'))}",
        ]  # fmt: skip
        if rng.random() < 0.6:
            lines.append(f"    sums{n}: Stream[int32[{tile}, 1], {rng.randint(1, 2)}][{rows}, {columns}]")
            body += _sum_along(n, rng.randrange(2), (rows, columns), tile, backwards=rng.random() < 0.3)
        body.append("        y[:, :] = t" if n == stages - 1 else f"        link{n}[i, j].put(t)")
    return "\n".join([*lines, *body]) + "\n"


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
