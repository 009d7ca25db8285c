"""Programs that apply every operation of the language to one or two types, and what they should compute."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .interpreter import FUNCTIONS, RING, TYPES, Type, interpret, stored

COUNT = 12
SIGNED = ("Int(3)", "int8", "Int(13)", "int16", "int32", "Int(40)", "int64")
UNSIGNED = ("UInt(1)", "UInt(5)", "uint8", "uint16", "uint32", "UInt(33)", "uint64")
FIXED = ("Fixed(8, 3)", "Fixed(16, 8)", "UFixed(7, 2)", "UFixed(16, 4)")
FLOATS = ("float16", "bfloat16", "float32", "float64")
FAMILIES = (*SIGNED, *UNSIGNED, *FIXED, *FLOATS)

ARITHMETIC = ("x + z", "x - z", "x * z", "x / n", "x // n", "x % n", "-x", "min(x, z)", "max(x, z)", "abs(x)")
CONDITIONS = (*(f"1 if x {op} z else 0" for op in ("<", "<=", ">", ">=", "==", "!=")), "x if x < z else z")
LITERALS = ("x + 3", "3 - x", "x * -3", "x / 3", "7 / n", "x // 3", "x % 3", "x // -3", "x % -3", "x + i", "x * i",
            "min(x, 3)", "max(x, -3)", "x < 2", "x + 0.5", "x * 0.3", "x > 0.5")  # fmt: skip
BITS = ("x & z", "x | z", "x ^ z", "~x", "x << 1", "x >> 1", "x << i", "x >> i", "x >> (i - 3)", "x & 5", "x ** 2")
FIXED_ONLY = ("x << 1", "x >> 1")
CASTS = tuple(f"{t}(x)" for t in ("int8", "uint8", "int32", "float16", "bfloat16", "float32", "float64"))
TILE_BINARY = tuple(f"allo.{name}(x, {'n' if name == 'div' else 'z'})" for name in (*RING, "div"))
TILE_OPERATORS = ("x + z", "x - z", "x * z", "x / n", "x + 3", "x * 2", "x * 2 + z", "min(x, z)", "max(x, z)", "abs(x)",
                  "allo.matmul(u, v)")  # fmt: skip
TILE_UNARY = tuple(f"allo.{name}(x)" for name in ("abs", "relu", *FUNCTIONS))


@dataclass(frozen=True)
class Table:
    """One program: expressions of scalars and of tiles of `x: first` and `z: second`; `n` is `z` without zeros."""

    first: str
    second: str
    scalars: tuple[str, ...]
    tiles: tuple[str, ...]

    @property
    def types(self) -> tuple[Type, Type]:
        first, second = (eval(name, dict(TYPES)) for name in (self.first, self.second))
        return first, second

    @property
    def result(self) -> str:
        """A type wide enough to show every bit of a result."""
        return "int64" if all(t.kind in ("int", "uint") for t in self.types) else "float64"

    def _tile_result(self, text: str) -> str:
        """The type of a tile's expression itself: in a wider target, floats and fixed-point numbers are computed so."""
        if any(f".{name}(" in text for name in FUNCTIONS) and not self.types[0].is_float:
            return "float32"
        return "int64" if self.result == "int64" else self.first

    def targets(self) -> list[tuple[str, str, bool]]:
        """Expressions, the type they are stored as, and whether they are of tiles."""
        both: list[tuple[str, str, bool]] = []
        for texts, is_tile in ((self.scalars, False), (self.tiles, True)):
            for text in texts:
                is_float = any(f".{name}(" in text for name in FUNCTIONS) or "0." in text or "float" in text
                wide = "float64" if is_float else self.result
                both.append((text, self._tile_result(text) if is_tile else wide, is_tile))
        return both

    @property
    def text(self) -> str:
        targets = self.targets()
        names = ["X", "Z", "N", *(f"Y{k}" for k in range(len(targets)))]
        types = [f"{t}[{COUNT}]" for t in (self.first, self.second, self.second)]
        shapes = [(f"{COUNT // 4}, {COUNT // 4}" if "matmul" in e else f"{COUNT}") for e, _, _ in targets]
        types += [f"{t}[{shape}]" for (_, t, _), shape in zip(targets, shapes, strict=True)]
        lines = [
            "import allo",
            "import allo.dataflow as df",
            "from allo.ir.types import *",
            "",
            "@df.region()",
            f"def top({', '.join(f'{n}: {t}' for n, t in zip(names, types, strict=True))}):",
            f"    @df.kernel(mapping=[1], args=[{', '.join(names)}])",
            f"    def core({', '.join(f'a{n}: {t}' for n, t in zip(names, types, strict=True))}):",
            f"        for i in range({COUNT}):",
            f"            x: {self.first} = aX[i]",
            f"            z: {self.second} = aZ[i]",
            f"            n: {self.second} = aN[i]",
        ]
        lines += [f"            aY{k}[i] = {text}" for k, (text, _, is_tile) in enumerate(targets) if not is_tile]
        if any("matmul" in text for text in self.tiles):
            lines += [
                f"        u: {self.first}[3, 4]",
                f"        v: {self.second}[4, 3]",
                "        for r in range(12):",
            ]
            lines += ["            u[r // 4, r % 4] = aX[r]", "            v[r // 3, r % 3] = aZ[r]"]
        for k, (text, _, is_tile) in enumerate(targets):
            if is_tile:
                for name in "xzn":
                    text = text.replace(f"({name}", f"(a{name.upper()}").replace(f", {name}", f", a{name.upper()}")
                    text = " ".join(f"a{name.upper()}" if word == name else word for word in text.split(" "))
                lines.append(f"        aY{k}[{':, :' if 'matmul' in text else ':'}] = {text}")
        return "\n".join(lines) + "\n"


def tables(first: str, second: str | None = None) -> Table:
    """Every operation that two types have."""
    second = second or first
    a, b = (eval(name, dict(TYPES)) for name in (first, second))
    scalars = ARITHMETIC + CONDITIONS + LITERALS + CASTS
    tiles = TILE_BINARY + TILE_OPERATORS + TILE_UNARY
    if a.kind in ("int", "uint") and b.kind in ("int", "uint"):
        scalars += BITS
    if a.is_fixed:
        scalars += FIXED_ONLY
    scalars += tuple(f"allo.{name}(x)" for name in (*FUNCTIONS, "relu"))
    return Table(first, second, scalars, tiles)


def numbers(type_: Type, rng: np.random.Generator, *, zeros: bool = True) -> list[Any]:
    """Values of a type, its ends among them; raw integers of fixed-point numbers."""
    if type_.is_float:
        drawn = [float(v) for v in rng.normal(size=COUNT) * 4.0 ** rng.integers(-2, 3, COUNT)]
        values = [0.0, -0.0, 1.0, -2.5, *drawn][:COUNT] if zeros else [v or 1.0 for v in drawn]
        return [stored(v, TYPES["float64"], type_) for v in values]
    low, high = (-(1 << type_.bits - 1), (1 << type_.bits - 1) - 1) if type_.is_signed else (0, (1 << type_.bits) - 1)
    ends = [low, high, 0, 1, high // 2, low // 2] if zeros else [high, 1, 1, high]
    drawn = [int.from_bytes(rng.bytes(16), "little") % (high - low + 1) + low for _ in range(COUNT)]
    return [v if zeros or v else 1 for v in [*ends, *drawn][:COUNT]]


def array(values: list[Any], type_: Type) -> Any:
    """Values as a program's argument."""
    if type_.is_float:
        import ml_dtypes

        dtypes = {16: np.float16, 32: np.float32, 64: np.float64}
        return np.array(values, ml_dtypes.bfloat16 if type_.kind == "bfloat" else dtypes[type_.bits])
    bits = next(b for b in (8, 16, 32, 64) if b >= type_.bits)
    return np.array(values, f"{'i' if type_.is_signed else 'u'}{bits // 8}")


def arguments(table: Table, seed: int) -> tuple[dict[str, list[Any]], list[Any]]:
    """Inputs for the interpreter by name, and all arguments of the program."""
    rng = np.random.default_rng(seed)
    first, second = table.types
    inputs = {"X": numbers(first, rng), "Z": numbers(second, rng), "N": numbers(second, rng, zeros=False)}
    arrays = [array(inputs[name], t) for name, t in (("X", first), ("Z", second), ("N", second))]
    for k, (text, type_, _) in enumerate(table.targets()):
        shape = (3, 3) if "matmul" in text else (COUNT,)
        inputs[f"Y{k}"] = np.zeros(shape).tolist()
        arrays.append(array(inputs[f"Y{k}"], eval(type_, dict(TYPES))))
    return inputs, arrays


def region(text: str, path: Path) -> Any:
    """The region of a program's text, from a file of its own."""
    path.write_text(text)
    names: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), names)
    return names["top"]


def disagreements(table: Table, inputs: dict[str, Any], found: list[Any]) -> list[str]:
    """Expressions whose results are not those of the interpreter."""
    wanted = interpret(table.text, inputs)
    wrong = []
    for k, (text, _, is_tile) in enumerate(table.targets()):
        mine, theirs = (np.asarray(v).astype(np.float64) for v in (wanted[f"Y{k}"], found[3 + k]))
        exact = not any(f".{name}(" in text for name in (*FUNCTIONS, "matmul"))
        close = _bits(table) if not exact else 0.0
        same = np.isclose(theirs, mine, rtol=close, atol=close, equal_nan=True) if close else (mine == theirs)
        same |= np.isnan(mine) & np.isnan(theirs)
        if not same.all():
            at = int(np.argmin(same.reshape(-1)))
            shown = f"{theirs.reshape(-1)[at]!r}, not {mine.reshape(-1)[at]!r}"
            given = ", ".join(str(inputs[name][at]) for name in "XZN")
            wrong.append(
                f"{'tile' if is_tile else 'scalar'} {text} of {table.first}, {table.second} is {shown} ({given})"
            )
    return wrong


def _bits(table: Table) -> float:
    """Libraries round functions differently by a few units in the last place, and so do sums in another order."""
    types = [t for t in table.types if t.is_float] or [TYPES["float32"]]
    narrow = min(types, key=lambda t: t.bits)
    return {"bfloat": 2.0**-7, "float": {16: 2.0**-9, 32: 2.0**-20, 64: 2.0**-48}[narrow.bits]}[narrow.kind]
