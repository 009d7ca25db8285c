"""Random programs of integer arithmetic, and what Python makes of them.

A program reads one element of each input, computes with it and writes one element of each output, eight times. Integers
have any width. Expressions are Python's own, so Python is the reference: integers grow as they must, and storing
truncates. `<<` and `~` depend on the width of what they are given and are left out unless asked for.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from allo_dse.compiler.model.arguments import numpy_dtype
from allo_dse.lang.types import DType, Int, UInt

COUNT = 8
WIDTHS = (1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 24, 31, 32, 33, 40, 48, 63, 64, 65, 80, 96, 100, 128, 130)
NUMBERS = (0, 1, 2, 3, -1, 5, 7, -9, 100, 255, 1000, 4095, 70_000, -70_000)


@dataclass(frozen=True)
class RandomProgram:
    """A program, statement by statement: what is assigned to, its type and the expression."""

    inputs: tuple[DType, ...]
    outputs: tuple[DType, ...]
    statements: tuple[tuple[str, DType, str], ...]

    @property
    def text(self) -> str:
        tensors = [(f"X{k}", t) for k, t in enumerate(self.inputs)] + [(f"Y{k}", t) for k, t in enumerate(self.outputs)]
        types = [f"{'Int' if t.kind == 'int' else 'UInt'}({t.bits})[{COUNT}]" for _, t in tensors]
        names = [name for name, _ in tensors]
        lines = [
            "import allo.dataflow as df",
            "from allo.ir.types import Int, UInt",
            "",
            "@df.region()",
            f"def top({', '.join(f'{n}: {t}' for n, t in zip(names, types, strict=True))}):",
            f"    @df.kernel(mapping=[1], args=[{', '.join(names)}])",
            f"    def core({', '.join(f'{n.lower()}: {t}' for n, t in zip(names, types, strict=True))}):",
            f"        for i in range({COUNT}):",
        ]
        for target, type_, expression in self.statements:
            declared = "" if target.startswith("y") else f": {'Int' if type_.kind == 'int' else 'UInt'}({type_.bits})"
            lines.append(f"            {target}{declared} = {expression}")
        return "\n".join(lines) + "\n"

    def region(self, path: Path) -> Any:
        """The region, from a file of its own."""
        path.write_text(self.text)
        names: dict[str, Any] = {}
        exec(compile(self.text, str(path), "exec"), names)
        return names["top"]

    def arrays(self, rng: np.random.Generator) -> list[Any]:
        """Random inputs, and outputs of zeros."""
        made = []
        for dtype in self.inputs:
            numbers = [wrap(int.from_bytes(rng.bytes(dtype.bits // 8 + 1), "little"), dtype) for _ in range(COUNT)]
            made.append(np.array(numbers, object).astype(object if dtype.bits > 64 else numpy_dtype(dtype)))
        return made + [np.zeros(COUNT, object if t.bits > 64 else numpy_dtype(t)) for t in self.outputs]

    def expected(self, inputs: list[Any]) -> list[list[int]]:
        """What Python computes for these inputs."""
        outputs = [[0] * COUNT for _ in self.outputs]
        names: dict[str, Any] = {f"x{k}": values.tolist() for k, values in enumerate(inputs)}
        for i in range(COUNT):
            names["i"] = i
            for target, type_, expression in self.statements:
                value = wrap(int(eval(expression, {}, names)), type_)
                if target.startswith("y"):
                    outputs[int(target[1])][i] = value
                else:
                    names[target] = value
        return outputs


def wrap(value: int, dtype: DType) -> int:
    """An integer as a type holds it."""
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.is_signed and value >> (dtype.bits - 1) else value


def random_program(seed: int, *, widths_matter: bool) -> RandomProgram:
    """A program; `widths_matter` allows what Python, whose integers have no width, computes otherwise."""
    draw = _Draw(random.Random(seed), widths_matter)
    inputs, outputs = [tuple(draw.type() for _ in range(3)) for _ in range(2)]
    names = [f"x{k}[i]" for k in range(3)]
    statements = []
    for k in range(draw.rng.randrange(1, 4)):
        statements.append((f"v{k}", draw.type(), draw.expression(names, 2)))
        names.append(f"v{k}")
    statements += [(f"y{k}[i]", t, draw.expression(names, 3)) for k, t in enumerate(outputs)]
    return RandomProgram(inputs, outputs, tuple(statements))


@dataclass(frozen=True)
class _Draw:
    rng: random.Random
    widths_matter: bool

    def type(self) -> DType:
        return self.rng.choice((Int, UInt))(self.rng.choice(WIDTHS))

    def leaf(self, names: list[str]) -> str:
        return self.rng.choice((*names, *names, *names, str(self.rng.choice(NUMBERS)), "i"))

    def expression(self, names: list[str], depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.2:
            return self.leaf(names)
        a, b = (self.expression(names, depth - 1) for _ in range(2))
        kind = self.rng.randrange(12)
        if kind < 6:
            return f"({a} {self.rng.choice('+-*&|^')} {b})"
        if kind == 6:
            return f"({a} {self.rng.choice(('//', '%'))} {self.rng.choice(('3', '7', '-5', '(i + 1)'))})"
        if kind == 7:
            return f"(-{a})"
        if kind == 8:
            return f"{self.rng.choice(('min', 'max'))}({a}, {b})"
        if kind == 9:
            order = self.rng.choice(("<", "<=", ">", ">=", "==", "!="))
            return f"({a} if {self.leaf(names)} {order} {self.expression(names, depth - 1)} else {b})"
        if not self.widths_matter:
            return f"({a} >> {self.rng.choice(('1', '3', 'i', '12', '33', '200'))})"
        if kind == 10:
            return f"(~{a})"
        by = self.rng.choice(("1", "3", "i", "12", "33", "200", "(i - 3)", self.leaf(names)))
        return f"({a} {self.rng.choice(('<<', '>>'))} {by})"
