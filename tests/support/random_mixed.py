"""Random programs of all families of types: scalars, tiles, layouts and streams, for the interpreter."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from .interpreter import TYPES, Type, interpret
from .operator_tables import COUNT, array, numbers

FAMILIES = ("int8", "UInt(5)", "int16", "int32", "uint32", "Fixed(16, 8)", "Fixed(8, 3)", "UFixed(16, 4)", "float16",
            "bfloat16", "float32", "float64")  # fmt: skip


SIDES, MATRICES = (2, COUNT // 2), ("W", "Y2")


@dataclass(frozen=True)
class MixedProgram:
    """A kernel of several tasks computes with scalars and tiles and puts results, another one gets them and goes on.

    A third one has tiles of matrices in layouts that differ.
    """

    text: str
    types: dict[str, str]

    def inputs(self, seed: int) -> dict[str, list[Any]]:
        rng = np.random.default_rng(seed)
        found = {n: numbers(self._type(n), rng, zeros=n != "N") for n in self.types if not n.startswith("Y")}
        return found | {n: [0] * COUNT for n in self.types if n.startswith("Y")}

    def arrays(self, inputs: dict[str, list[Any]]) -> list[Any]:
        made = {name: array(inputs[name], self._type(name)) for name in self.types}
        return [one.reshape(SIDES) if name in MATRICES else one for name, one in made.items()]

    def differences(self, inputs: dict[str, list[Any]], found: list[Any]) -> list[str]:
        """The outputs that differ from the interpreter's, with the first element that does."""
        try:
            wanted, wrong = interpret(self.text, inputs), []
        except ValueError:  # a float that has overflowed has no integer value
            return []
        for name, theirs in zip(self.types, found, strict=True):
            if name.startswith("Y"):
                mine, own = (np.asarray(one).astype(np.float64).ravel() for one in (wanted[name], theirs))
                differs = ~((mine == own) | (np.isnan(mine) & np.isnan(own)))
                if differs.any():
                    at = int(np.argmax(differs))
                    wrong.append(f"{name}[{at}] is {own[at]!r}, not {mine[at]!r}\n{self.text}")
        return wrong

    def _type(self, name: str) -> Type:
        found: Type = eval(self.types[name], dict(TYPES))
        return found


def mixed_program(seed: int) -> MixedProgram:
    rng = random.Random(seed)
    first, second, third = (rng.choice(FAMILIES) for _ in range(3))
    kinds = {name: eval(name, dict(TYPES)) for name in (first, second, third)}
    types = {"X": first, "Z": second, "N": second, "W": first, "Y": third, "Y1": third, "Y2": third}
    tasks = rng.choice((1, 2))
    size, shard = COUNT // tasks, rng.choice(("", " @ [Layout.Shard(0)]")) if tasks == 1 else " @ [Layout.Shard(0)]"
    all_of = rng.choice(("", " @ [Layout.Replicate]"))
    given = rng.choice(([0, 1], [1, 0], [0, None], [None, 1], [1, None], [None, None]))
    layout, mesh = ", ".join("Layout.Replicate" if a is None else f"Layout.Shard({a})" for a in given), (2, 2)
    rows, columns = (side if axis is None else side // mesh[axis] for side, axis in zip(SIDES, given, strict=True))

    def scalar(names: tuple[str, ...], depth: int) -> str:
        if depth == 0 or rng.random() < 0.2:
            return rng.choice(names)
        a, b = scalar(names, depth - 1), scalar(names, depth - 1)
        kind = rng.randrange(8)
        if kind < 4:
            return f"({a} {rng.choice('+-*')} {rng.choice((b, b, '3', '0.5' if _floats(kinds) else '2'))})"
        if kind == 4:
            return f"({a} {rng.choice(('/', '//', '%'))} n)"
        if kind == 5:
            return f"{rng.choice(('min', 'max'))}({a}, {b})"
        if kind == 6:
            return f"({a} if {b} {rng.choice(('<', '<=', '==', '>'))} {rng.choice(names)} else {b})"
        return rng.choice((f"(-{a})", f"abs({a})"))

    def tile(depth: int) -> str:
        if depth == 0:
            return rng.choice(("x", "t"))
        kind = rng.choice(("allo.add", "allo.sub", "allo.mul", "allo.max", "allo.min"))
        return f"{kind}({tile(depth - 1)}, {tile(0)})"

    shape = {n: "{}, {}".format(*SIDES) if n in MATRICES else str(COUNT) for n in types}
    names = ", ".join(f"{n}: {t}[{shape[n]}]" for n, t in types.items())
    whole = shape["W"]
    x_tile, z_tile, y_tile = (f"{one}[{COUNT}]{shard}" for one in (first, second, third))
    text = f"""import allo
import allo.dataflow as df
from allo.ir.types import *
from allo.memory import Layout

@df.region()
def top({names}):
    s: Stream[{third}, {COUNT}][{tasks}]
    @df.kernel(mapping=[{tasks}], args=[X, Z, N, Y])
    def first(x: {x_tile}, zs: {z_tile}, ns: {second}[{COUNT}]{all_of}, y: {y_tile}):
        p = df.get_pid()
        t: {first}[{size}] = 0
        t[:] = {tile(1).replace("max", "add").replace("min", "sub")}
        for i in range({size}):
            z: {second} = zs[i]
            n: {second} = ns[p * {size} + i]
            v: {third} = {scalar(("x[i]", "z", "t[i]"), 2)}
            y[i] = v
            w: {third} = {scalar(("x[i]", "z", "v"), 1)}
            s[p].put(w)
    @df.kernel(mapping=[1], args=[Y1, N])
    def second(y1: {third}[{COUNT}], ns1: {second}[{COUNT}]):
        with allo.meta_for({tasks}) as q:
            for i in range({size}):
                n: {second} = ns1[q * {size} + i]
                g: {third} = s[q].get()
                y1[q * {size} + i] = {scalar(("g", "n"), 2)}
    @df.kernel(mapping=[2, 2], args=[W, Y2])
    def third(w: {first}[{whole}] @ [{layout}], y2: {third}[{whole}] @ [Layout.Shard(0), Layout.Shard(1)]):
        for i in range({SIDES[0] // 2}):
            for j in range({SIDES[1] // 2}):
                y2[i, j] = w[{rows} - 1 - i, {columns} - 1 - j]
"""
    return MixedProgram(text, types)


def _floats(kinds: dict[str, Type]) -> bool:
    return any(kind.is_float for kind in kinds.values())
