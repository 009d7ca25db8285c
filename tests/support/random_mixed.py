"""Random programs of floats, fixed-point numbers and integers: scalars, tiles and streams, for the interpreter."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from .interpreter import TYPES, Type, interpret
from .operator_tables import COUNT, array, numbers

FAMILIES = ("int8", "UInt(5)", "int16", "int32", "uint32", "Fixed(16, 8)", "Fixed(8, 3)", "UFixed(16, 4)", "float16",
            "bfloat16", "float32", "float64")  # fmt: skip


@dataclass(frozen=True)
class MixedProgram:
    """One kernel computes with scalars and tiles and puts what it finds, another one gets it and goes on."""

    text: str
    types: dict[str, str]

    def inputs(self, seed: int) -> dict[str, list[Any]]:
        rng = np.random.default_rng(seed)
        found = {n: numbers(self._type(n), rng, zeros=n != "N") for n in self.types if not n.startswith("Y")}
        return found | {n: [0] * COUNT for n in self.types if n.startswith("Y")}

    def arrays(self, inputs: dict[str, list[Any]]) -> list[Any]:
        return [array(inputs[name], self._type(name)) for name in self.types]

    def differences(self, inputs: dict[str, list[Any]], found: list[Any]) -> list[str]:
        """The outputs that differ from the interpreter's, with the first element that does."""
        try:
            wanted, wrong = interpret(self.text, inputs), []
        except ValueError:  # a float that has overflowed has no integer value
            return []
        for name, theirs in zip(self.types, found, strict=True):
            if name.startswith("Y"):
                mine, own = np.asarray(wanted[name], np.float64), np.asarray(theirs).astype(np.float64)
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
    types = {"X": first, "Z": second, "N": second, "Y": third, "Y1": third}

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

    names = ", ".join(f"{n}: {t}[{COUNT}]" for n, t in types.items())
    text = f"""import allo
import allo.dataflow as df
from allo.ir.types import *

@df.region()
def top({names}):
    s: Stream[{third}, {COUNT}]
    @df.kernel(mapping=[1], args=[X, Z, N, Y])
    def first(x: {first}[{COUNT}], zs: {second}[{COUNT}], ns: {second}[{COUNT}], y: {third}[{COUNT}]):
        t: {first}[{COUNT}] = 0
        t[:] = {tile(1).replace("max", "add").replace("min", "sub")}
        for i in range({COUNT}):
            z: {second} = zs[i]
            n: {second} = ns[i]
            v: {third} = {scalar(("x[i]", "z", "t[i]"), 2)}
            y[i] = v
            w: {third} = {scalar(("x[i]", "z", "v"), 1)}
            s.put(w)
    @df.kernel(mapping=[1], args=[Y1, N])
    def second(y1: {third}[{COUNT}], ns1: {second}[{COUNT}]):
        for i in range({COUNT}):
            n: {second} = ns1[i]
            g: {third} = s.get()
            y1[i] = {scalar(("g", "n"), 2)}
"""
    return MixedProgram(text, types)


def _floats(kinds: dict[str, Type]) -> bool:
    return any(kind.is_float for kind in kinds.values())
